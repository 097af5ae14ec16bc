//! Tests of arrays made of predictable members.

mod degraded;

use std::collections::BTreeSet;

use hemi_random::Rng;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, Operation, Rate, SECOND, Size, Time};
use proptest::prelude::*;

use super::fixed::FixedService;
use super::{Array, Cache, Controller, Level, Parameters, PartialWrites};
use crate::drive::Drive;
use crate::testing::{closed_loop, makespan, open_loop};

const WRITE: Operation = Operation::Write { fua: false };

fn parameters(level: Level, count: u32) -> Parameters {
    Parameters {
        member: "fixed".into(),
        count,
        level,
        chunk: Size(64 << 10),
        controller: None,
        supply_efficiency: 1.0,
    }
}

/// Returns a controller whose limits never matter.
fn controller() -> Controller {
    Controller {
        command: Time(0),
        member_command: Time(0),
        bandwidth: Rate(1 << 50),
        member_bandwidth: Rate(1 << 50),
        parity: Rate(1 << 50),
        partial_writes: PartialWrites::FewestReads,
        cache: None,
        read_ahead: None,
        power: None,
    }
}

fn cache() -> Cache {
    Cache {
        size: Size(4 << 20),
        protected: true,
        destage_from: 0.5,
        destage_depth: 8,
        linger: Time(SECOND),
    }
}

/// Returns an array of members of 64 MiB that take 100 us a request and 1 us a sector.
fn array(parameters: &Parameters) -> Array<FixedService> {
    let one = FixedService::new(131_072, 100 * MICROSECOND, MICROSECOND);
    Array::new(parameters, vec![one; parameters.count as usize]).unwrap()
}

fn behind(controller: Controller, level: Level, count: u32) -> Array<FixedService> {
    array(&Parameters { controller: Some(controller), ..parameters(level, count) })
}

fn random(operation: Operation, count: u64, sectors: u64, span: u64) -> Vec<(Operation, Extent)> {
    let mut rng = Rng::new(11, 0);
    let mut place = || Extent::new(rng.below(span / sectors) * sectors, sectors);
    (0..count).map(|_| (operation, place())).collect()
}

fn sequential(operation: Operation, count: u64, sectors: u64) -> Vec<(Operation, Extent)> {
    (0..count).map(|index| (operation, Extent::new(index * sectors, sectors))).collect()
}

/// Returns the number of reads and of writes sent to the members.
fn asked(array: &Array<FixedService>) -> (usize, usize) {
    let all = || array.members.drives().iter().flat_map(|drive| &drive.log);
    let of = |wanted: Operation| all().filter(|(operation, _)| *operation == wanted).count();
    (of(Operation::Read), of(WRITE))
}

#[test]
fn a_stripe_reads_as_fast_as_its_members_together() {
    let load = random(Operation::Read, 20_000, 8, 130_000);
    let one = makespan(&closed_loop(&mut array(&parameters(Level::Raid0, 1)), 64, &load));
    let four = makespan(&closed_loop(&mut array(&parameters(Level::Raid0, 4)), 64, &load));
    assert!((3.7..4.05).contains(&(one / four)), "{}", one / four);
    // A request over all members is one request to each, however many rows it spans.
    let mut wide = array(&parameters(Level::Raid0, 4));
    let lives = closed_loop(&mut wide, 1, &sequential(Operation::Read, 10, 2048));
    assert_eq!(asked(&wide), (40, 0));
    assert!((makespan(&lives) - 10.0 * (100e-6 + 512e-6)).abs() < 1e-9);
}

#[test]
fn mirrors_share_reads_and_repeat_writes() {
    let reads = random(Operation::Read, 10_000, 8, 100_000);
    let one = makespan(&closed_loop(&mut array(&parameters(Level::Raid0, 1)), 16, &reads));
    let two = makespan(&closed_loop(&mut array(&parameters(Level::Raid1, 2)), 16, &reads));
    assert!((1.95..2.01).contains(&(one / two)), "{}", one / two);
    let mut ten = array(&parameters(Level::Raid10, 8));
    closed_loop(&mut ten, 16, &random(WRITE, 1000, 8, 100_000));
    assert_eq!(asked(&ten), (0, 2000));
}

#[test]
fn an_idle_mirror_reads_from_the_nearest_member() {
    let mut mirror = array(&parameters(Level::Raid1, 2));
    let extents = [(0, 8), (100_000, 8), (64, 8), (100_064, 8), (16, 8)];
    let load = extents.map(|(start, count)| (Operation::Read, Extent::new(start, count)));
    // The first request goes to the first member, and so does the second, at the same distance
    // from both.
    closed_loop(&mut mirror, 2, &load);
    let at = |member: usize| {
        let log = &mirror.members.drives()[member].log;
        log.iter().map(|(_, extent)| extent.start).collect::<Vec<_>>()
    };
    assert_eq!((at(0), at(1)), (vec![0, 64, 16], vec![100_000, 100_064]));
}

#[test]
fn a_small_write_to_raid5_is_two_reads_and_two_writes() {
    let mut five = array(&parameters(Level::Raid5, 8));
    let lives = closed_loop(&mut five, 1, &random(WRITE, 1000, 8, 500_000));
    assert_eq!(asked(&five), (2000, 2000));
    // Both reads at once, then both writes at once.
    assert!((makespan(&lives) - 1000.0 * 2.0 * 108e-6).abs() < 1e-9);
    let mut six = array(&parameters(Level::Raid6, 8));
    closed_loop(&mut six, 1, &random(WRITE, 1000, 8, 500_000));
    assert_eq!(asked(&six), (3000, 3000));
}

#[test]
fn a_full_row_is_written_at_once() {
    let mut five = array(&parameters(Level::Raid5, 8));
    let lives = closed_loop(&mut five, 1, &sequential(WRITE, 20, 7 * 128));
    assert_eq!(asked(&five), (0, 160));
    assert!((makespan(&lives) - 20.0 * 228e-6).abs() < 1e-9);
}

#[test]
fn writes_to_one_row_take_their_turns() {
    let mut five = array(&parameters(Level::Raid5, 4));
    let load: Vec<_> = (0..3).map(|index| (WRITE, Extent::new(index * 8, 8))).collect();
    let lives = closed_loop(&mut five, 3, &load);
    let ends: Vec<u64> = lives.iter().map(|life| life.done.0 / 1000).collect();
    assert_eq!(ends, [216, 432, 648]);
    // Writes to different rows do not wait for each other: their parities are on different
    // members.
    let mut five = array(&parameters(Level::Raid5, 8));
    let load = [(WRITE, Extent::new(0, 8)), (WRITE, Extent::new(7 * 128 + 2 * 128, 8))];
    let lives = closed_loop(&mut five, 2, &load);
    assert!(lives[1].done.0 / 1000 < 432);
}

#[test]
fn a_controller_holds_its_members_to_its_limits() {
    let rate = |controller: Controller, load: &[(Operation, Extent)]| {
        let mut drive = behind(controller, Level::Raid0, 8);
        load.len() as f64 / makespan(&closed_loop(&mut drive, 64, load))
    };
    let small = random(Operation::Read, 20_000, 8, 500_000);
    let commands = Controller { command: Time(20 * MICROSECOND), ..controller() };
    assert!((rate(commands, &small) / 50_000.0 - 1.0).abs() < 0.01);
    let members = Controller { member_command: Time(25 * MICROSECOND), ..controller() };
    assert!((rate(members, &small) / 40_000.0 - 1.0).abs() < 0.01);
    let large = sequential(Operation::Read, 2000, 512);
    let link = Controller { bandwidth: Rate(500_000_000), ..controller() };
    assert!((rate(link, &large) * 262_144.0 / 5e8 - 1.0).abs() < 0.01);
    let large = sequential(WRITE, 2000, 512);
    let side = Controller { member_bandwidth: Rate(500_000_000), ..controller() };
    assert!((rate(side, &large) * 262_144.0 / 5e8 - 1.0).abs() < 0.01);
}

#[test]
fn the_parity_engine_is_a_limit_of_its_own() {
    let engine = Controller { parity: Rate(400_000_000), ..controller() };
    let mut five = behind(engine, Level::Raid5, 8);
    let lives = closed_loop(&mut five, 16, &sequential(WRITE, 1000, 7 * 128));
    let rate = 1000.0 * 7.0 * 65536.0 / makespan(&lives);
    assert!((rate / 4e8 - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn a_write_is_done_once_it_is_in_the_cache_and_waits_when_it_is_full() {
    let caching = Controller { cache: Some(cache()), ..controller() };
    let mut drive = behind(caching, Level::Raid10, 2);
    // 4 MiB hold 1,024 blocks; a member serves one in 108 us.
    let lives = closed_loop(&mut drive, 1, &random(WRITE, 6000, 8, 130_000));
    let slow = lives.iter().position(|life| life.done.since(life.submitted) > 1000).unwrap();
    assert!((1024..1300).contains(&slow), "{slow}");
    let rate = 3000.0 / (lives[5999].done.since(lives[2999].done) as f64 / 1e9);
    // The rate exceeds the members' own because blocks are overwritten, or joined by a
    // neighbour, while they wait.
    assert!((1.0..1.25).contains(&(rate * 108e-6)), "{rate}");
}

#[test]
fn the_cache_makes_full_rows_of_sequential_writes() {
    let caching = Controller { cache: Some(cache()), ..controller() };
    let mut five = behind(caching, Level::Raid5, 8);
    closed_loop(&mut five, 4, &sequential(WRITE, 20 * 7 * 16, 8));
    assert_eq!(asked(&five).0, 0);
    // Where it cannot, it keeps to the order of the rows.
    let mut five = behind(Controller { cache: Some(cache()), ..controller() }, Level::Raid5, 8);
    closed_loop(&mut five, 4, &random(WRITE, 3000, 8, 900_000));
    let log = &five.members.drives()[3].log;
    let reads: Vec<_> = log.iter().filter(|(o, _)| *o == Operation::Read).collect();
    let backwards = reads.windows(2).filter(|two| two[1].1.start + 8 * 128 < two[0].1.start);
    assert!(backwards.count() <= reads.len() / 100 + 2);
}

#[test]
fn what_lingers_in_the_cache_is_destaged_and_read_from_it_until_then() {
    let caching = Controller { cache: Some(cache()), ..controller() };
    let mut five = behind(caching, Level::Raid5, 8);
    let ms = |ms: u64| Instant(ms * MILLISECOND);
    let place = Extent::new(4096, 8);
    let beside = Extent::new(4104, 8);
    let load = [
        (ms(0), WRITE, place),
        (ms(10), Operation::Read, place),
        (ms(20), Operation::Read, beside),
        (ms(1500), Operation::Read, place),
    ];
    let lives = open_loop(&mut five, &load);
    let took: Vec<u64> = lives.iter().map(|life| life.done.since(life.submitted) / 1000).collect();
    assert_eq!(took, [0, 0, 108, 108]);
    assert_eq!(asked(&five), (4, 2));
}

#[test]
fn a_flush_drains_the_cache_only_if_it_is_not_protected() {
    let flushed = |protected: bool| {
        let cache = Cache { protected, ..cache() };
        let caching = Controller { cache: Some(cache), ..controller() };
        let mut five = behind(caching, Level::Raid5, 4);
        let mut load = random(WRITE, 50, 8, 100_000);
        load.push((Operation::Flush, Extent::default()));
        let lives = closed_loop(&mut five, 1, &load);
        let written = asked(&five).1;
        (lives[50].done.since(lives[50].submitted), written)
    };
    assert_eq!(flushed(true), (0, 0));
    let (took, written) = flushed(false);
    assert!(took > 50 * 108 * MICROSECOND / 2 && written >= 90, "{took} {written}");
}

#[test]
fn reading_ahead_makes_one_reader_as_fast_as_the_members() {
    let load = sequential(Operation::Read, 2000, 64);
    let alone = makespan(&closed_loop(&mut behind(controller(), Level::Raid0, 4), 1, &load));
    let ahead = Controller { read_ahead: Some(Size(1 << 20)), ..controller() };
    let mut drive = behind(ahead.clone(), Level::Raid0, 4);
    let quick = makespan(&closed_loop(&mut drive, 1, &load));
    // Alone: 164 us each. Read ahead: four members, each 228 us for 64 KiB.
    assert!((alone / 2000.0 - 164e-6).abs() < 1e-7, "{alone}");
    assert!((quick / 2000.0 / (228e-6 / 8.0) - 1.0).abs() < 0.05, "{}", quick / 2000.0);
    // Random reads do not suffer from it.
    let load = random(Operation::Read, 2000, 8, 500_000);
    let mut drive = behind(ahead, Level::Raid0, 4);
    closed_loop(&mut drive, 4, &load);
    assert!(asked(&drive).0 < 2150, "{}", asked(&drive).0);
}

#[test]
fn a_trim_reaches_the_members_only_where_nothing_is_computed_from_them() {
    let load = [(Operation::Trim, Extent::new(0, 1024))];
    let mut ten = array(&parameters(Level::Raid10, 4));
    closed_loop(&mut ten, 1, &load);
    assert!(ten.members.drives().iter().all(|drive| drive.log.len() == 1));
    let mut five = array(&parameters(Level::Raid5, 4));
    closed_loop(&mut five, 1, &load);
    assert!(five.members.drives().iter().all(|drive| drive.log.is_empty()));
}

#[test]
fn an_array_of_arrays_is_a_drive() {
    let stripe = array(&parameters(Level::Raid0, 2));
    let mirror = vec![stripe.clone(), stripe];
    let mut both = Array::new(&parameters(Level::Raid1, 2), mirror).unwrap();
    assert_eq!(both.sectors(), 262_144);
    let load = random(Operation::Read, 10_000, 8, 262_144);
    let rate = 10_000.0 / makespan(&closed_loop(&mut both, 32, &load));
    assert!((0.9..1.01).contains(&(rate * 108e-6 / 4.0)), "{rate}");
}

#[test]
fn what_no_array_can_be_is_refused_by_name() {
    let refused = |parameters: Parameters| {
        let members = vec![FixedService::new(1000, 0, 0); parameters.count as usize];
        Array::new(&parameters, members).unwrap_err().to_string()
    };
    let error = refused(parameters(Level::Raid5, 2));
    assert_eq!(error, "`count` is 2: at least 3 members for RAID-5, and at most 256");
    assert!(refused(parameters(Level::Raid10, 5)).contains("an even number"));
    let odd = Parameters { chunk: Size(5000), ..parameters(Level::Raid0, 2) };
    assert!(refused(odd).starts_with("`chunk` is 5000 B"));
    let long = Parameters { chunk: Size(1 << 20), ..parameters(Level::Raid0, 2) };
    assert!(refused(long).contains("at most what a member holds"));
    let cache = Cache { destage_from: 1.5, ..cache() };
    let controller = Controller { cache: Some(cache), ..controller() };
    let wrong = Parameters { controller: Some(controller), ..parameters(Level::Raid0, 2) };
    assert!(refused(wrong).contains("`controller.cache.destage_from` is 1.5"));
}

fn any_controller() -> impl Strategy<Value = Option<Controller>> {
    let cache = (16_u64..200, any::<bool>(), 0_u8..3, 1_u32..5, 0_u64..20_000_000);
    let partial = prop_oneof![
        Just(PartialWrites::FewestReads),
        Just(PartialWrites::ReadModifyWrite),
        Just(PartialWrites::Reconstruct),
    ];
    let read_ahead = proptest::option::of(1_u64..300_000);
    prop::option::of((prop::option::of(cache), read_ahead, partial, 0_u64..50_000).prop_map(
        |(cache, read_ahead, partial_writes, command)| Controller {
            command: Time(command),
            member_command: Time(command / 2),
            bandwidth: Rate(300_000_000),
            member_bandwidth: Rate(600_000_000),
            parity: Rate(400_000_000),
            partial_writes,
            cache: cache.map(|(blocks, protected, from, destage_depth, linger)| Cache {
                size: Size(blocks * 4096),
                protected,
                destage_from: f64::from(from) / 2.0,
                destage_depth,
                linger: Time(linger),
            }),
            read_ahead: read_ahead.map(Size),
            power: None,
        },
    ))
}

fn any_array() -> impl Strategy<Value = Parameters> {
    let level = prop_oneof![
        (Just(Level::Raid0), 1_u32..6),
        (Just(Level::Raid1), 2_u32..4),
        (Just(Level::Raid5), 3_u32..7),
        (Just(Level::Raid6), 4_u32..8),
        (Just(Level::Raid10), (1_u32..4).prop_map(|pairs| 2 * pairs)),
    ];
    (level, 1_u64..5, any_controller()).prop_map(|((level, count), chunk, controller)| {
        let chunk = Size(chunk * 4096);
        Parameters { chunk, controller, ..parameters(level, count) }
    })
}

/// A request of a random load: a pause before some of them, a kind, the first sector and the length.
type Drawn = (u64, u8, u64, u64);

fn any_load(most: usize) -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec((0_u64..3_000_000, 0_u8..20, 0_u64..3000, 1_u64..200), 1..most)
}

/// Returns the requests of a load with their times, on an array of `sectors` sectors.
fn timed(load: &[Drawn], sectors: u64) -> Vec<(Instant, Operation, Extent)> {
    let mut now = Instant(0);
    let request = |&(pause, kind, start, length): &Drawn| {
        now = now + pause / 4 * u64::from(kind % 5);
        let start = start % sectors;
        let extent = Extent { start, end: (start + length).min(sectors) };
        let operation = match kind {
            0..8 => Operation::Read,
            8..16 => WRITE,
            16..18 => Operation::Write { fua: true },
            18 => Operation::Trim,
            _ => Operation::Flush,
        };
        (now, operation, extent)
    };
    load.iter().map(request).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_request_ends_once_and_every_write_reaches_all_its_places(
        parameters in any_array(),
        load in any_load(120),
    ) {
        let member = FixedService::new(1500, 100 * MICROSECOND, MICROSECOND);
        let members = vec![member; parameters.count as usize];
        let sectors = Array::new(&parameters, members.clone()).unwrap().sectors();
        let mut load = timed(&load, sectors);
        let end = load.last().map_or(Instant(0), |last| last.0);
        // In the end, everything has to leave the cache.
        load.push((end + 60 * SECOND, Operation::Flush, Extent::default()));
        let run = || {
            let mut array = Array::new(&parameters, members.clone()).unwrap();
            (open_loop(&mut array, &load), array)
        };
        let (lives, array) = run();
        prop_assert_eq!(&lives, &run().0);
        prop_assert_eq!(array.jobs.used() + array.row_writes.used(), 0);
        prop_assert!(array.locked.is_empty());
        let written = |member: usize| {
            let log = array.members.drives()[member].log.iter();
            let writes = log.filter(|(operation, _)| *operation == WRITE);
            writes.flat_map(|(_, extent)| extent.start..extent.end).collect::<BTreeSet<u64>>()
        };
        let places: Vec<BTreeSet<u64>> =
            (0..parameters.count as usize).map(written).collect();
        let layout = array.layout;
        for (_, operation, extent) in &load {
            if !matches!(operation, Operation::Write { .. }) {
                continue;
            }
            layout.rows_of(*extent, |row, start, end| layout.runs_of(start, end, |run| {
                let on = layout.on_member(row, run.start, run.end);
                let first = layout.data_member(row, run.index);
                let parity = (0..layout.parity()).map(|which| layout.parity_member(row, which));
                for member in (first..first + layout.copies()).chain(parity) {
                    for sector in on.start..on.end {
                        assert!(places[member].contains(&sector), "{sector} of {member}");
                    }
                }
            }));
        }
        let counters = array.counters();
        let reads = load.iter().filter(|(_, operation, _)| *operation == Operation::Read);
        prop_assert_eq!(counters.reads, reads.count() as u64);
        prop_assert!(counters.busy <= end.0 + 120 * SECOND);
    }
}

#[test]
fn an_array_is_as_busy_as_its_members_on_average() {
    let member = FixedService::new(1500, 100 * MICROSECOND, MICROSECOND);
    let mut array = Array::new(&parameters(Level::Raid0, 2), vec![member; 2]).unwrap();
    // Three requests for the first member, and one for the second at the same time.
    let read = |start| (Instant(0), Operation::Read, Extent::new(start, 8));
    open_loop(&mut array, &[read(0), read(8), read(16), read(128)]);
    let busy: Vec<u64> = array.members.drives().iter().map(|it| it.counters().busy).collect();
    assert_eq!(busy[0], 3 * busy[1]);
    assert_eq!(array.counters().busy, 2 * busy[1]);
}

#[test]
fn what_is_drawn_at_the_wall_is_more_than_what_arrives() {
    let joules = |efficiency: f64| {
        let of = Parameters { supply_efficiency: efficiency, ..parameters(Level::Raid0, 2) };
        let members = (0..2).map(|_| crate::preset::Preset::built_in("wd-1tb-2009"));
        let members = members.map(|preset| preset.unwrap().drive(1).unwrap()).collect();
        let mut array = super::Array::new(&of, members).unwrap();
        array.advance(Instant(SECOND), &mut Vec::new());
        array.counters().energy
    };
    assert!(joules(1.0) > 5.0);
    assert!((joules(0.8) / joules(1.0) - 1.25).abs() < 1e-9);
    let none = Parameters { supply_efficiency: 0.0, ..parameters(Level::Raid0, 2) };
    assert!(none.check().unwrap_err().to_string().contains("`supply_efficiency` is 0"));
}
