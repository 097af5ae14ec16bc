//! A crash at every step. Short fixed workloads are stopped after every single event, by a kill and
//! by power cuts, with every metadata write in flight then landed, not landed, and torn. The volume
//! is recovered, read, run on a little, and crashed again.

use crate::world;
use crate::world::landing::Landing;
use crate::world::script::What;
use crate::world::{Random, Shape, World, fast, settings};
use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::{LegEvent, LegOperation, Operation};
use hemi_engine::recovery::Problem;
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MICROSECOND, MILLISECOND};
use hemi_world::disk::Cache;

const A: usize = 0;
const B: usize = 1;
const REGION: u64 = world::REGION_BYTES / 512;
/// The most metadata writes in flight that land independently.
const VARIED: u32 = 3;

/// The number of crashes per state and landing, each with data landing another way.
const ROUNDS: u32 = 3;

/// An action at a given time, in microseconds.
type Step = (u64, fn(&mut World));

fn workload_settings() -> Settings {
    Settings {
        wait_floor: 20 * MILLISECOND,
        wait_ceiling: 20 * MILLISECOND,
        clean_after: 60 * MILLISECOND,
        out_after: 100_000 * MILLISECOND,
        exposure_bytes: 4 << 20,
        ..settings()
    }
}

fn write(world: &mut World, start: u64, count: u64) {
    world.submit(Operation::Write, Extent::new(start, count), false);
}

fn flush(world: &mut World) {
    world.submit(Operation::Flush, Extent::default(), false);
}

fn close(world: &mut World) {
    let now = world.now;
    let drain_until = now + 300 * MILLISECOND;
    world.engine().command(now, 1 << 60, Command::Close { drain_until });
    world.take_actions();
}

fn command(world: &mut World, command: Command) {
    let now = world.now;
    world.engine().command(now, 1 << 61, command);
    world.take_actions();
}

/// Writes, flushes, a freeze of each leg with authority moving there and back, cleaning, close.
const FREEZES: &[Step] = &[
    (0, |w| write(w, 0, 8)),
    (900, |w| {
        w.submit(Operation::Write, Extent::new(REGION + 2, 8), true);
    }),
    (2_000, flush),
    (3_000, |w| w.hold(B, What::Anything)),
    (3_100, |w| write(w, 4, 8)),
    (4_000, |w| {
        w.submit(Operation::WriteZeroes { may_unmap: true }, Extent::new(REGION, 6), false);
    }),
    (28_000, flush),
    (60_000, |w| w.release(B)),
    (62_000, |w| write(w, 2 * REGION - 4, 8)),
    (70_000, |w| w.hold(A, What::Anything)),
    (71_000, |w| write(w, 0, 4)),
    (72_000, |w| write(w, 3 * REGION, 8)),
    (95_000, flush),
    (96_000, |w| write(w, 2, 4)),
    (130_000, |w| w.release(A)),
    (131_000, |w| write(w, 1, 2)),
    (132_000, |w| {
        w.submit(Operation::Discard, Extent::new(5, 2), false);
    }),
    (380_000, |w| write(w, 3, 1)),
    (381_000, flush),
    (500_000, close),
];

/// A leg is marked out, comes back, and the other is detached.
const MEMBERS: &[Step] = &[
    (0, |w| write(w, 0, 8)),
    (1_000, |w| write(w, REGION, 8)),
    (2_000, flush),
    (3_000, |w| w.hold(B, What::Anything)),
    (3_500, |w| write(w, 4, 8)),
    (5_000, |w| write(w, 2 * REGION, 8)),
    (230_000, |w| write(w, 0, 2)),
    (231_000, flush),
    (240_000, |w| w.release(B)),
    (260_000, |w| write(w, 2, 2)),
    (261_000, |w| write(w, 3 * REGION, 4)),
    (900_000, |w| write(w, 3, 2)),
    (901_000, |w| command(w, Command::Detach { leg: LegIndex(0) })),
    (902_000, |w| write(w, 1, 1)),
    (950_000, close),
];

/// A leg is replaced by one full of rubbish.
const REPLACEMENT: &[Step] = &[
    (0, |w| write(w, 0, 8)),
    (1_000, |w| write(w, REGION, 8)),
    (2_000, flush),
    (20_000, |w| command(w, Command::Detach { leg: LegIndex(1) })),
    (30_000, |w| write(w, 2, 2)),
    (150_000, |w| {
        w.put_in_new_disk(B, 1 << 40);
        command(w, Command::Join { leg: LegIndex(1), id: [77; 16], traits: fast() });
    }),
    (151_000, |w| write(w, 3, 2)),
    (151_500, |w| write(w, 2 * REGION - 1, 2)),
    (152_000, flush),
    (900_000, |w| write(w, 0, 1)),
    (950_000, close),
];

/// Each leg in turn loses its session and its cache.
const CACHES: &[Step] = &[
    (0, |w| write(w, 0, 8)),
    (1_000, |w| write(w, REGION, 8)),
    (2_000, flush),
    (3_000, |w| write(w, 0, 4)),
    (4_000, |w| write(w, REGION + 4, 8)),
    (5_000, |w| lose(w, A)),
    (5_500, |w| write(w, 2, 4)),
    (6_000, flush),
    (8_000, |w| w.event(A, LegEvent::Back)),
    (8_100, |w| write(w, REGION, 2)),
    (8_200, flush),
    (9_000, |w| write(w, 2 * REGION, 8)),
    (20_000, |w| lose(w, B)),
    (21_000, |w| w.event(B, LegEvent::Back)),
    (21_050, flush),
    (22_000, |w| write(w, 1, 2)),
    (250_000, close),
];

fn lose(world: &mut World, leg: usize) {
    world.lose_leg(leg, Cache::Dropped);
}

fn start(seed: u64, settings: Settings) -> World {
    let shape = Shape { volume_bytes: 4 * world::REGION_BYTES, ..Shape::default() };
    let mut world = World::of_shape(seed, 2, settings, shape);
    world.steady(A, 100 * MICROSECOND);
    world.steady(B, 270 * MICROSECOND);
    world
}

/// Returns every way in which up to [`VARIED`] metadata writes in flight can land.
fn landings(metadata: u32) -> Vec<Vec<Landing>> {
    let each =
        [Landing::Whole, Landing::Not, Landing::Torn(0b0000_0011), Landing::Torn(0b1111_1000)];
    let varied = metadata.min(VARIED);
    (0..4usize.pow(varied))
        .map(|code| (0..varied).map(|at| each[code >> (2 * at) & 3]).collect())
        .collect()
}

/// Crashes a copy of the world in one way, recovers and checks it, and again a little later.
fn crash_and_check(world: &World, cache: Option<Cache>, metadata: &[Landing], seed: u64) {
    let mut copy = world.without_engine();
    copy.random = Random(seed);
    let mut random = Random(seed ^ 0x5555);
    let mut next = metadata.iter().cycle();
    copy.crash(cache, |pending| match pending.io.operation {
        LegOperation::WriteMetadata => *next.next().unwrap_or(&Landing::Not),
        _ => match random.below(3) {
            0 => Landing::Whole,
            1 => Landing::Not,
            _ => Landing::Torn(random.next() as u8),
        },
    });
    reopen(&mut copy);
    copy.read_everything();
    // Recovery is work like any other: it can be cut short as well.
    write(&mut copy, 3, 3);
    copy.submit(Operation::Write, Extent::new(REGION + 1, 3), true);
    let steps = copy.random.below(30);
    for _ in 0..steps {
        let until = copy.now + 100 * MILLISECOND;
        copy.step(until);
    }
    let again = [None, Some(Cache::Dropped), Some(Cache::Any)][copy.random.below(3) as usize];
    copy.crash(again, |_| match random.below(3) {
        0 => Landing::Whole,
        1 => Landing::Not,
        _ => Landing::Torn(random.next() as u8),
    });
    reopen(&mut copy);
    copy.read_everything();
    if seed.is_multiple_of(16) {
        copy.converge_what_is_in();
        copy.read_everything();
    }
}

/// Opens with every leg that may take part.
fn reopen(world: &mut World) {
    world.settings.clean_after = 20 * MILLISECOND;
    world.settings.out_after = 100_000 * MILLISECOND;
    let refusal = match world.open(&[A, B]) {
        Ok(()) => return,
        Err(refusal) => refusal,
    };
    let none = |p: &Problem| match p {
        Problem::Stranger { image, .. } | Problem::NotALeg { image, .. } => Some(*image),
        _ => None,
    };
    let gone: Vec<usize> = refusal.problems.iter().filter_map(none).collect();
    assert_eq!(gone.len(), refusal.problems.len(), "{}", refusal.describe(&["a", "b"]));
    let rest: Vec<usize> = [A, B].into_iter().filter(|leg| !gone.contains(leg)).collect();
    world.open(&rest).expect("without the leg that is none it opens");
}

fn crash_everywhere(workload: &[Step], settings: Settings) {
    let mut world = start(7, settings);
    let begin = world.now;
    let mut crashes = 0u64;
    let mut points = 0u64;
    let mut steps = workload.iter();
    let mut next = steps.next();
    while !world.closed {
        let limit = begin + next.map_or(30_000 * MILLISECOND, |(at, _)| at * MICROSECOND);
        if !world.step(limit) {
            world.run_until(limit);
            let Some((_, happens)) = next else { panic!("the volume does not close") };
            happens(&mut world);
            next = steps.next();
        }
        points += 1;
        let is_metadata = |p: &&world::Pending| p.io.operation == LegOperation::WriteMetadata;
        let metadata = world.pending.iter().filter(is_metadata).count() as u32;
        for landing in landings(metadata) {
            for cache in [None, Some(Cache::Kept), Some(Cache::Dropped), Some(Cache::Any)] {
                for _ in 0..ROUNDS {
                    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        crash_and_check(&world, cache, &landing, crashes);
                    }));
                    if let Err(cause) = caught {
                        eprintln!("crash {crashes} after {points} steps, {cache:?}, {landing:?}");
                        std::panic::resume_unwind(cause);
                    }
                    crashes += 1;
                }
            }
        }
    }
    assert!(points > 60, "{points} steps only");
}

#[test]
fn crash_at_every_step_of_freezes_and_moves() {
    crash_everywhere(FREEZES, workload_settings());
}

#[test]
fn crash_at_every_step_of_membership() {
    let settings = Settings { out_after: 150 * MILLISECOND, ..workload_settings() };
    crash_everywhere(MEMBERS, settings);
}

#[test]
fn crash_at_every_step_of_a_replacement() {
    crash_everywhere(REPLACEMENT, workload_settings());
}

#[test]
fn crash_at_every_step_of_lost_caches() {
    crash_everywhere(CACHES, workload_settings());
}
