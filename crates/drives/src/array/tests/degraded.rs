//! Arrays whose members fail.

use super::*;
use crate::drive::{Failure, Presence};
use crate::faulty::{Absence, Bad, EndOfLife, Errors, Faults, Faulty, Spell};
use crate::testing::Life;
use hemi_stalls::Share;

type Degradable = Array<Faulty<FixedService>>;

/// Time from which on members are away.
const GONE: u64 = 10 * MILLISECOND;
const REFUSED_AFTER: u64 = MILLISECOND;

fn away(at: u64, length: Option<u64>) -> Faults {
    let spell = Spell { at: Instant(at), length, every: None };
    let absences = vec![Absence { spell, error_after: REFUSED_AFTER }];
    Faults { absences, ..Faults::default() }
}

/// Returns an array of members of 64 MiB, with these faults of some of them.
fn faulty(parameters: &Parameters, faults: &[(usize, Faults)]) -> Degradable {
    let one = || FixedService::new(131_072, 100 * MICROSECOND, MICROSECOND);
    let none = || Faulty::new(one(), Faults::default());
    let members = (0..parameters.count).map(|_| none()).collect();
    let mut array = Array::new(parameters, members).unwrap();
    for (member, faults) in faults {
        array.replace_member(*member, Faulty::new(one(), faults.clone()));
    }
    array
}

/// Runs a request each 20 ms, the first at 0.
fn spaced(array: &mut Degradable, load: &[(Operation, Extent)]) -> Vec<Life> {
    let timed = (0..)
        .zip(load)
        .map(|(turn, &(operation, extent))| (Instant(turn * 20 * MILLISECOND), operation, extent));
    open_loop(array, &timed.collect::<Vec<_>>())
}

/// Returns the number of reads and of writes that a member has served.
fn served(array: &mut Degradable, member: usize) -> (usize, usize) {
    let log = &array.members_mut()[member].drive_mut().log;
    let of = |wanted: Operation| log.iter().filter(|(operation, _)| *operation == wanted).count();
    (of(Operation::Read), of(WRITE))
}

fn all_served(array: &mut Degradable) -> (usize, usize) {
    let count = array.members.len();
    let each = (0..count).map(|member| served(array, member));
    each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

/// Nothing is left in an array that has come to rest.
fn is_at_rest(array: &Degradable) -> bool {
    array.jobs.used() + array.row_writes.used() + array.recoveries.used() == 0
        && array.locked.is_empty()
}

#[test]
fn a_stripe_is_away_with_its_member() {
    let mut stripe =
        faulty(&parameters(Level::Raid0, 4), &[(2, away(GONE, Some(50 * MILLISECOND)))]);
    assert_eq!(stripe.presence(), Some(Presence::Present));
    // Each on a member of its own, at 0, 20, 40, 60 and 80 ms.
    let load: Vec<_> = (0..5).map(|at| (Operation::Read, Extent::new(at % 4 * 128, 8))).collect();
    let lives = spaced(&mut stripe, &load);
    let results: Vec<_> = lives.iter().map(|life| life.result).collect();
    let gone = Err(Failure::Gone);
    assert_eq!(results, [Ok(()), gone, gone, Ok(()), Ok(())]);
    assert_eq!(lives[1].done.since(lives[1].submitted), REFUSED_AFTER);
    let counters = stripe.counters();
    assert_eq!((counters.failed.reads, counters.reads, counters.members_out), (2, 3, 0));

    let mut stripe = faulty(&parameters(Level::Raid0, 4), &[(2, away(GONE, None))]);
    let lives = spaced(&mut stripe, &load);
    assert!(lives[1..].iter().all(|life| life.result == gone));
    assert_eq!(stripe.presence(), Some(Presence::Dead));
}

#[test]
fn a_mirror_goes_on_without_a_member_and_never_with_it_again() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid10, 4)] {
        let brief = away(GONE, Some(30 * MILLISECOND));
        let mut mirror = faulty(&parameters(level, count), &[(1, brief)]);
        let mut load = random(Operation::Read, 20, 8, 100_000);
        load.extend(random(WRITE, 20, 8, 100_000));
        let lives = spaced(&mut mirror, &load);
        assert!(lives.iter().all(|life| life.result.is_ok()));
        assert_eq!(mirror.presence(), Some(Presence::Present));
        assert_eq!(mirror.counters().members_out, 1);
        // Only the first request came before it was gone.
        let (reads, writes) = served(&mut mirror, 1);
        assert!(reads <= 1 && writes == 0, "{reads} {writes}");
        let (reads, writes) = all_served(&mut mirror);
        assert_eq!(reads, 20);
        let copies = if level == Level::Raid1 { 20..21 } else { 21..40 };
        assert!(copies.contains(&writes), "{writes}");
    }
}

#[test]
fn the_last_copy_is_never_out() {
    let pair = [(0, away(GONE, None)), (1, away(3 * GONE, Some(2 * GONE)))];
    let mut mirror = faulty(&parameters(Level::Raid1, 2), &pair);
    let load: Vec<_> = (0..4).map(|at| (Operation::Read, Extent::new(at * 8, 8))).collect();
    let results: Vec<_> = spaced(&mut mirror, &load).iter().map(|life| life.result).collect();
    assert_eq!(results, [Ok(()), Ok(()), Err(Failure::Gone), Ok(())]);
    assert_eq!(mirror.counters().members_out, 1);
}

#[test]
fn a_lost_chunk_is_computed_from_the_rest_of_its_row() {
    for (level, count, reads) in [(Level::Raid5, 5, 4), (Level::Raid6, 6, 4)] {
        let mut array = faulty(&parameters(level, count), &[(1, away(0, None))]);
        let layout = array.layout;
        let load = random(Operation::Read, 200, 8, 500_000);
        let mut expected = 0;
        for (_, extent) in &load {
            layout.rows_of(*extent, |row, start, end| {
                layout.runs_of(start, end, |run| {
                    expected += if layout.data_member(row, run.index) == 1 { reads } else { 1 };
                })
            });
        }
        let lives = closed_loop(&mut array, 1, &load);
        assert!(lives.iter().all(|life| life.result.is_ok()));
        assert_eq!(all_served(&mut array), (expected, 0), "{level:?}");
        assert!(expected > 220, "{expected}");
        // The others are read at the same time.
        assert!((makespan(&lives) - 200.0 * 108e-6).abs() < 1e-9);
    }
    // A read of a whole row reads each member that is left once.
    let mut five = faulty(&parameters(Level::Raid5, 5), &[(0, away(0, None))]);
    let row = five.layout.row_sectors();
    closed_loop(&mut five, 1, &[(Operation::Read, Extent::new(row, row))]);
    assert_eq!(all_served(&mut five), (4, 0));
}

#[test]
fn what_is_computed_passes_the_parity_engine() {
    let engine = Controller { parity: Rate(512_000_000), ..controller() };
    let of = Parameters { controller: Some(engine), ..parameters(Level::Raid5, 5) };
    let took = |member: usize| {
        let mut five = faulty(&of, &[(member, away(0, None))]);
        let lives = closed_loop(&mut five, 1, &[(Operation::Read, Extent::new(0, 8))]);
        lives[0].done.since(lives[0].submitted)
    };
    let holder = faulty(&of, &[]).layout.data_member(0, 0);
    // Four chunks of 4 KiB at 512 MB/s.
    let more = took(holder) - took((holder + 1) % 5);
    assert!(more.abs_diff(32 * MICROSECOND) < 100, "{more} ns");
}

#[test]
fn what_a_lost_member_would_be_written_is_left_out() {
    let layout = array(&parameters(Level::Raid5, 5)).layout;
    let small = Extent::new(0, 8);
    let (data, other) = (layout.data_member(0, 0), layout.data_member(0, 1));
    for (lost, asked) in [
        // The new parity needs the other three chunks; the data itself has no place.
        (data, (3, 1)),
        // Old data and old parity tell the new one, though another chunk is lost.
        (other, (2, 2)),
        // Without parity the data is all there is to write.
        (layout.parity_member(0, 0), (0, 1)),
    ] {
        let mut five = faulty(&parameters(Level::Raid5, 5), &[(lost, away(0, None))]);
        let lives = closed_loop(&mut five, 1, &[(WRITE, small)]);
        assert_eq!((lives[0].result, all_served(&mut five)), (Ok(()), asked), "{lost}");
    }
    // Two lost chunks, one of them written and one not: the rest of the row has to give both.
    let layout = array(&parameters(Level::Raid6, 6)).layout;
    let lost = [0, 1].map(|index| (layout.data_member(0, index), away(0, None)));
    let mut six = faulty(&parameters(Level::Raid6, 6), &lost);
    closed_loop(&mut six, 1, &[(WRITE, small)]);
    assert_eq!(all_served(&mut six), (4, 2));
}

#[test]
fn an_array_bears_as_many_losses_as_it_has_parities() {
    for (level, count, borne) in [(Level::Raid5, 5, 1), (Level::Raid6, 6, 2)] {
        for lost in 0..=borne + 1 {
            let gone: Vec<_> = (0..lost)
                .map(|turn| (2 * turn % 5, away(GONE * (turn as u64 + 1), None)))
                .collect();
            let mut array = faulty(&parameters(level, count), &gone);
            let mut load = random(Operation::Read, 30, 8, 300_000);
            load.extend(random(WRITE, 30, 8, 300_000));
            let lives = spaced(&mut array, &load);
            let failed = lives.iter().filter(|life| life.result.is_err()).count();
            let expected = if lost > borne { 58 } else { 0 };
            assert!(failed.abs_diff(expected) <= 1, "{level:?} without {lost}: {failed} failed");
            assert_eq!(array.counters().members_out, lost.min(borne) as u64);
            let dead = lost > borne;
            let expected = if dead { Presence::Dead } else { Presence::Present };
            assert_eq!(array.presence(), (lost > 0).then_some(expected));
            assert!(is_at_rest(&array));
        }
    }
}

#[test]
fn bad_sectors_are_read_elsewhere_and_written_again() {
    for (level, count, others) in
        [(Level::Raid1, 2, 1), (Level::Raid5, 5, 4), (Level::Raid10, 4, 1)]
    {
        let place = Extent::new(0, 8);
        let bad = Bad { at: Instant(0), extent: Extent::new(0, 128), error_after: MILLISECOND };
        let member = array(&parameters(level, count)).layout.data_member(0, 0);
        let faults = Faults { bad: vec![bad], ..Faults::default() };
        let mut array = faulty(&parameters(level, count), &[(member, faults)]);
        let lives = spaced(&mut array, &[(Operation::Read, place), (Operation::Read, place)]);
        assert!(lives.iter().all(|life| life.result.is_ok()), "{level:?}");
        let took: Vec<u64> = lives.iter().map(|life| life.done.since(life.submitted)).collect();
        assert_eq!(took, [MILLISECOND + 216 * MICROSECOND, 108 * MICROSECOND], "{level:?}");
        assert_eq!(all_served(&mut array), (2 + others, 1), "{level:?}");
        assert_eq!((array.counters().members_out, array.counters().failed.total()), (0, 0));
    }
    let bad = Bad { at: Instant(0), extent: Extent::new(0, 8), error_after: MILLISECOND };
    let faults = Faults { bad: vec![bad], ..Faults::default() };
    let mut stripe = faulty(&parameters(Level::Raid0, 2), &[(0, faults)]);
    let lives = spaced(&mut stripe, &[(Operation::Read, Extent::new(0, 8)); 2]);
    assert!(lives.iter().all(|life| life.result == Err(Failure::Medium)));
    assert_eq!(stripe.presence(), None);
}

#[test]
fn a_member_that_takes_no_writes_is_out() {
    let worn = Faults { end: Some(EndOfLife::new(9.0, 8.0, None, MILLISECOND)), ..<_>::default() };
    let spell = Spell { at: Instant(0), length: None, every: None };
    let writes = Share::of(1.0).expect("a share");
    let rng = Rng::new(1, 0);
    let errors = Errors { spell, reads: Share::NONE, writes, error_after: MILLISECOND, rng };
    let errors = Faults { errors: vec![errors], ..<_>::default() };
    for (faults, failure) in [(worn, Failure::ReadOnly), (errors, Failure::Medium)] {
        let load = [(Operation::Read, Extent::new(0, 8)), (WRITE, Extent::new(0, 256))];
        let mut five = faulty(&parameters(Level::Raid5, 3), &[(0, faults.clone())]);
        assert!(spaced(&mut five, &load).iter().all(|life| life.result.is_ok()));
        assert_eq!(five.counters().members_out, 1);
        // A stripe needs it: it goes on to read.
        let mut stripe = faulty(&parameters(Level::Raid0, 2), &[(0, faults)]);
        let lives = spaced(&mut stripe, &[load[0], load[1], load[0]]);
        let results: Vec<_> = lives.iter().map(|life| life.result).collect();
        assert_eq!(results, [Ok(()), Err(failure), Ok(())]);
        assert_eq!(stripe.counters().members_out, 0);
    }
}

#[test]
fn an_array_in_an_array_is_lost_as_one_member() {
    let stripe = |faults: &[(usize, Faults)]| faulty(&parameters(Level::Raid0, 2), faults);
    let members = vec![stripe(&[(1, away(GONE, None))]), stripe(&[])];
    let mut both = Array::new(&parameters(Level::Raid1, 2), members).unwrap();
    let load = random(WRITE, 200, 8, 100_000);
    let lives = closed_loop(&mut both, 1, &load);
    assert!(makespan(&lives) > 0.02);
    assert!(lives.iter().all(|life| life.result.is_ok()));
    assert_eq!((both.counters().members_out, both.presence()), (1, Some(Presence::Present)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_request_ends_once_and_well_while_enough_members_are_left(
        parameters in any_array(),
        load in any_load(80),
        gone in prop::collection::vec((0_usize..8, 0_u64..60_000_000, any::<bool>()), 0..3),
        bad in prop::collection::vec((0_usize..8, 0_u64..1400, 1_u64..50), 0..3),
    ) {
        let count = parameters.count as usize;
        let member = FixedService::new(1500, 100 * MICROSECOND, MICROSECOND);
        let mut faults = vec![Faults::default(); count];
        for &(member, at, returns) in &gone {
            let length = returns.then_some(5 * MILLISECOND);
            faults[member % count].absences.extend(away(at, length).absences);
        }
        for &(member, start, length) in &bad {
            let extent = Extent::new(start, length);
            faults[member % count].bad.push(Bad { at: Instant(0), extent, error_after: 1 });
        }
        let make = || {
            let none = || Faulty::new(member.clone(), Faults::default());
            let mut array = Array::new(&parameters, (0..count).map(|_| none()).collect()).unwrap();
            for (at, faults) in faults.iter().enumerate() {
                array.replace_member(at, Faulty::new(member.clone(), faults.clone()));
            }
            array
        };
        let sectors = make().sectors();
        let load = timed(&load, sectors);
        let end = load.last().map_or(Instant(0), |last| last.0);
        let run = || {
            let mut array = make();
            (open_loop(&mut array, &load), array)
        };
        let (lives, mut array) = run();
        prop_assert_eq!(&lives, &run().0);
        // Let the cache and repairs come to rest.
        array.advance(end + 600 * SECOND, &mut Vec::new());
        prop_assert!(is_at_rest(&array));
        let failed = lives.iter().filter(|life| life.result.is_err()).count() as u64;
        prop_assert_eq!(array.counters().failed.total(), failed);
        // One fault at most in each group of copies or row is borne.
        let layout = array.layout;
        let broken = |member: &usize| !faults[*member].is_empty();
        let borne = (0..count).all(|member| {
            layout.group_of(member).filter(|member| broken(member)).count() <= layout.spare()
        });
        if borne {
            prop_assert_eq!(failed, 0);
        }
    }
}
