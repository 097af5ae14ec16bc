//! Settings that change while the volume is served: at no moment may this break a promise.

use crate::world::script::What;
use crate::world::{LONG, Random, SECTORS, World, calm, settings, steady_legs};
use hemi_engine::command::{Command, CommandError};
use hemi_engine::io::Operation;
use hemi_engine::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_units::{Extent, MILLISECOND, SECOND};

const A: usize = 0;
const B: usize = 1;
const SECTOR: u64 = 512;

/// Gives the engine other settings, which also hold for the next start.
fn configure(world: &mut World, settings: Settings) -> Result<(), CommandError> {
    let token = 1 << 40 | world.commands.len() as u64;
    let now = world.now;
    world.engine().command(now, token, Command::Configure { settings });
    world.take_actions();
    // It ends when the volume is open, at the latest.
    while !world.commands.contains_key(&token) {
        assert!(world.step(now + 60 * SECOND), "the command does not end");
    }
    let result = world.commands[&token];
    if result.is_ok() {
        world.settings = settings;
    }
    result
}

/// Draws everything that may change.
fn drawn(random: &mut Random, from: Settings) -> Settings {
    let mut one_of = |values: &[u64]| values[random.below(values.len() as u64) as usize];
    let wait_floor = one_of(&[1, 5, 20]) * MILLISECOND;
    Settings {
        policy: [Policy::First, Policy::Paper, Policy::All, Policy::WriteBehind]
            [one_of(&[0, 0, 0, 1, 2, 3]) as usize],
        exposure_mode: [ExposureMode::Throttle, ExposureMode::FallBehind]
            [one_of(&[0, 0, 0, 1]) as usize],
        exposure_bytes: one_of(&[64, 128, 256, 1024]) << 10,
        exposure_age: one_of(&[100, 1000, 5000]) * MILLISECOND,
        out_after: one_of(&[1500, 3000, 10_000]) * MILLISECOND,
        flush_copies: [FlushCopies::Count(1), FlushCopies::Count(2), FlushCopies::All]
            [one_of(&[0, 0, 1, 2]) as usize],
        wait_floor,
        wait_ceiling: wait_floor.max(one_of(&[5, 50, 1000]) * MILLISECOND),
        wait_multiple: one_of(&[1, 3, 10]) as u32,
        paper_wait_permille: one_of(&[1000, 1300, 5000]) as u32,
        slow_leg: one_of(&[0, 1, 2]) as u8,
        write_behind_limit: one_of(&[1, 8, 256]) as u32,
        leg_window_bytes: one_of(&[64 << 10, 32 << 20]),
        drain_bytes: one_of(&[4, 16, 64]) as u32 * 1024,
        copies_reserve: one_of(&[0, 1 << 20]),
        clean_after: one_of(&[100, 300, 5000]) * MILLISECOND,
        hedge_permille: one_of(&[0, 20, 1000]) as u32,
        read_hysteresis_percent: one_of(&[0, 12, 100]) as u32,
        ..from
    }
}

/// The most that may come to be exposed: the bound, or what had been let in before it was lowered.
struct Cap {
    bytes: u64,
    before: Vec<u64>,
}

impl Cap {
    /// Takes stock as the settings change.
    fn new(world: &mut World) -> Cap {
        let status = world.status();
        let before: Vec<u64> = world.requests.keys().copied().collect();
        // At worst each is held by one leg only, and may have come to be so in parts.
        let let_in: u64 = world.requests.values().map(|r| r.extent.sectors() * SECTOR).sum();
        Cap { bytes: status.exposure_bytes + 2 * let_in, before }
    }

    fn check(&mut self, world: &mut World) {
        let settings = world.settings;
        let throttles = settings.exposure_mode == ExposureMode::Throttle
            && matches!(settings.policy, Policy::First | Policy::Paper);
        let exposed = world.status().exposure_bytes;
        if !throttles {
            return;
        }
        self.before.retain(|token| world.requests.contains_key(token));
        if self.before.is_empty() {
            self.bytes = self.bytes.min(exposed);
        }
        let bound = settings.exposure_bytes.max(self.bytes);
        assert!(exposed <= bound, "{exposed} bytes exposed, {bound} allowed");
    }
}

fn submit(world: &mut World) {
    let length = [8, 8, 16, 64][world.random.below(4) as usize];
    let start = world.random.below(SECTORS - length);
    let operation = match world.random.below(10) {
        0 => {
            world.submit(Operation::Flush, Extent::default(), false);
            return;
        }
        1 | 2 => Operation::Read,
        3 => Operation::WriteZeroes { may_unmap: true },
        _ => Operation::Write,
    };
    let fua = operation != Operation::Read && world.random.one_in(8);
    world.submit(operation, Extent::new(start, length), fua);
}

fn change_at_any_moment(seed: u64) {
    let legs = 2 + (seed % 2) as usize;
    let mut world = match seed % 3 {
        0 => World::with_ledger(seed, legs, settings()),
        _ => World::new(seed, legs, settings()),
    };
    let mut cap = Cap::new(&mut world);
    for _ in 0..600 {
        if world.can_submit() && world.requests.len() < 48 {
            submit(&mut world);
        }
        if world.random.one_in(60) {
            let (leg, time) = (world.random.below(legs as u64), world.random.below(2 * SECOND));
            let until = world.now + time;
            world.freeze(leg as usize, until);
        }
        if world.random.one_in(12) {
            let from = world.settings;
            let wanted = drawn(&mut world.random, from);
            configure(&mut world, wanted).expect("all of these may change");
            cap = Cap::new(&mut world);
        }
        if world.random.one_in(300) {
            world.kill();
            let all: Vec<usize> = (0..legs).collect();
            world.open(&all).expect("all legs are there");
            cap = Cap::new(&mut world);
        }
        let until = world.now + world.random.below(3 * MILLISECOND);
        while world.step(until) {
            cap.check(&mut world);
        }
        world.now = world.now.max(until);
    }
    world.run_until_answered(120 * SECOND);
    world.read_everything();
    world.converge();
    world.close();
}

#[test]
fn settings_may_change_at_any_moment() {
    for seed in 0..60 {
        change_at_any_moment(seed);
    }
}

/// The engine given the same settings again goes on as without the command.
#[test]
fn the_same_settings_again_change_nothing() {
    let run = |again: bool| {
        let mut world = World::new(7, 2, settings());
        let mut trace = Vec::new();
        for round in 0..300 {
            submit(&mut world);
            if again && round % 10 == 5 {
                let same = world.settings;
                configure(&mut world, same).expect("they are those in use");
            }
            let until = world.now + MILLISECOND;
            world.run_until(until);
            let ios: Vec<_> = world.pending.iter().map(|p| (p.io.id, p.due)).collect();
            trace.push((world.requests.keys().copied().collect::<Vec<_>>(), ios));
        }
        trace
    };
    assert_eq!(run(false), run(true));
}

/// Writers wait under a bound that is now below the exposure, and no data is touched.
#[test]
fn a_bound_below_what_is_exposed_holds_writers_back_until_it_is_paid() {
    let mut world = steady_legs(2, Settings { exposure_bytes: 1 << 20, ..calm() });
    world.write(0, 8);
    world.hold(B, What::Anything);
    world.wait(LONG);
    for at in 0..40 {
        world.write(at * 8, 8);
    }
    assert_eq!(world.status().exposure_bytes, 40 * 8 * SECTOR);
    let lower = Settings { exposure_bytes: 64 << 10, ..world.settings };
    configure(&mut world, lower).expect("it may be lowered");
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    let read = world.submit(Operation::Read, Extent::new(SECTORS - 8, 8), false);
    world.wait(LONG);
    assert!(!world.is_answered(write), "it is over the bound");
    assert!(world.is_answered(read), "readers go on");
    assert_eq!(world.status().exposure_bytes, 40 * 8 * SECTOR, "what was let in stays");
    let higher = Settings { exposure_bytes: 2 << 20, ..world.settings };
    configure(&mut world, higher).expect("it may be raised");
    world.wait(MILLISECOND);
    assert!(world.is_answered(write), "there is room at once");
    configure(&mut world, lower).expect("it may be lowered again");
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.release(B);
    world.wait(SECOND);
    assert!(world.is_answered(write), "it is paid");
}

/// A wait limit that was lowered holds for I/O already in flight.
#[test]
fn a_lower_wait_limit_holds_for_what_is_under_way() {
    let long = Settings { wait_floor: 10 * SECOND, wait_ceiling: 10 * SECOND, ..calm() };
    let mut world = steady_legs(2, long);
    world.hold(A, What::Anything);
    world.hold(B, What::Anything);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(MILLISECOND);
    world.release(B);
    world.wait(SECOND);
    assert!(!world.is_answered(write), "the authority is waited for");
    let short =
        Settings { wait_floor: 20 * MILLISECOND, wait_ceiling: 20 * MILLISECOND, ..world.settings };
    configure(&mut world, short).expect("it may be lowered");
    world.wait(50 * MILLISECOND);
    assert!(world.is_answered(write), "the leg is frozen, and another decides");
}

/// A write that waits because of a rule that no longer holds goes on at once.
#[test]
fn a_write_goes_on_once_the_policy_allows_it() {
    let mut world = steady_legs(2, Settings { policy: Policy::All, ..calm() });
    world.write(0, 8);
    // The leg that decides the region is not the one that holds the write up.
    let other = [A, B].into_iter().find(|&leg| world.status().legs[leg].authority_regions == 0);
    world.hold(other.expect("one decides"), What::Writes);
    let write = world.submit(Operation::Write, Extent::new(0, 8), false);
    world.wait(5 * MILLISECOND);
    assert!(!world.is_answered(write));
    let first = Settings { policy: Policy::First, ..world.settings };
    configure(&mut world, first).expect("it may change");
    assert!(world.is_answered(write));
}

#[test]
fn what_bounds_memory_or_makes_no_sense_is_refused_and_changes_nothing() {
    let mut world = steady_legs(2, calm());
    let now = world.settings;
    let fixed = CommandError::FixedSetting;
    let bad = CommandError::BadSetting;
    let refused = [
        (Settings { leg_window: 9, ..now }, fixed("leg_window")),
        (Settings { requests_max: 65, ..now }, fixed("requests_max")),
        (Settings { dirty_regions_max: 9, ..now }, fixed("dirty_regions_max")),
        (Settings { resync_bytes: 1 << 30, ..now }, fixed("resync_bytes")),
        (Settings { owed_extents_max: 65, ..now }, fixed("owed_extents_max")),
        (Settings { exposure_bytes: 1, ..now }, bad("exposure_bytes")),
        (Settings { wait_ceiling: 1, ..now }, bad("wait_ceiling")),
        (Settings { slow_leg: 8, ..now }, bad("slow_leg")),
        (Settings { drain_bytes: 0, ..now }, bad("drain_bytes")),
        (Settings { drain_bytes: 5000, ..now }, bad("drain_bytes")),
    ];
    for (settings, error) in refused {
        let settings = Settings { exposure_age: 1, ..settings };
        assert_eq!(configure(&mut world, settings), Err(error));
        assert_eq!(world.status().exposure_age_bound, now.exposure_age);
    }
    world.write(0, 8);
}
