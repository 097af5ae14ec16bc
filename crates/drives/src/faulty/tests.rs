mod failing;
mod slow;

use hemi_stalls::{Delays, Experiment, Phase, Schedule, Share};
use hemi_units::{Extent, MILLISECOND, SECOND};
use proptest::prelude::*;

use super::*;
use crate::any::AnyDrive;
use crate::preset::Preset;
use crate::testing::{Life, open_loop};

const MS: u64 = MILLISECOND;

fn drive() -> AnyDrive {
    Preset::built_in("gp3").unwrap().drive(1).unwrap()
}

/// Returns alternate reads and writes, one a millisecond from 1 ms on.
fn load(count: u64) -> Vec<(Instant, Operation, Extent)> {
    let request = |number: u64| {
        let operation = match number % 2 {
            0 => Operation::Read,
            _ => Operation::Write { fua: false },
        };
        (Instant((number + 1) * MS), operation, Extent::new(8 * number, 8))
    };
    (0..count).map(request).collect()
}

fn latencies(lives: &[Life]) -> Vec<u64> {
    lives.iter().map(|life| life.done.since(life.submitted)).collect()
}

fn stalls(phases: &[(u32, u32, u64, Option<u64>)], began: Instant) -> Stalls {
    let phase = |&(reads, writes, delay, length): &(u32, u32, u64, Option<u64>)| Phase {
        reads: Share::per_mille(reads),
        writes: Share::per_mille(writes),
        delays: Delays::Fixed(delay),
        length,
    };
    Stalls::new(Schedule::new(phases.iter().map(phase).collect()).unwrap(), 3, began)
}

fn spell(at: Instant, length: u64, every: Option<u64>) -> Spell {
    Spell { at, length: Some(length), every }
}

fn frozen(freezes: Vec<Spell>) -> Faulty<AnyDrive> {
    Faulty::new(drive(), Faults { freezes, ..Faults::default() })
}

fn stalling(stalls: Vec<Stalls>) -> Faulty<AnyDrive> {
    Faulty::new(drive(), Faults { stalls, ..Faults::default() })
}

#[test]
fn without_faults_a_drive_is_as_it_was() {
    let mut plain = drive();
    let mut faulty = Faulty::new(drive(), Faults::default());
    assert_eq!(open_loop(&mut plain, &load(500)), open_loop(&mut faulty, &load(500)));
    assert_eq!(plain.counters(), faulty.counters());
}

#[test]
fn nothing_is_done_in_a_freeze_and_everything_after() {
    // The freeze starts just after a request, so that one is in flight.
    let at = Instant(100 * MS + MS / 10);
    let mut faulty = frozen(vec![spell(at, 300 * MS, None)]);
    let lives = open_loop(&mut faulty, &load(600));
    let thaw = at + 300 * MS;
    let within = |now: Instant| now >= at && now < thaw;
    assert!(lives.iter().all(|life| !within(life.done)), "none ends in it");
    let met: Vec<&Life> =
        lives.iter().filter(|life| life.submitted < thaw && life.done >= at).collect();
    // Requests in flight when it began, and requests that arrived during it.
    assert!(met.len() >= 300, "{}", met.len());
    assert!(met.iter().all(|life| life.done >= thaw));
    assert!(met.iter().any(|life| life.submitted < at && life.done == thaw));
    let usual = *latencies(&lives[..50]).iter().max().unwrap();
    assert!(lives[500..].iter().all(|life| life.done.since(life.submitted) < 5 * usual));
}

#[test]
fn freezes_that_repeat_hit_each_time() {
    let at = 50 * MS + MS / 10;
    let mut faulty = frozen(vec![spell(Instant(at), 20 * MS, Some(100 * MS))]);
    let lives = open_loop(&mut faulty, &load(1000));
    let frozen = |now: Instant| now.0 >= at && (now.0 - at) % (100 * MS) < 20 * MS;
    assert!(lives.iter().all(|life| !frozen(life.done)));
    let held = latencies(&lives).into_iter().filter(|latency| *latency > 15 * MS).count();
    assert!((50..70).contains(&held), "{held} requests of ten freezes came in their first 5 ms");
}

#[test]
fn what_stalls_holds_up_nothing_else() {
    let phases = [(0, 0, 0, Some(100 * MS)), (0, 1000, 500 * MS, Some(200 * MS))];
    let mut plain = drive();
    let alone = latencies(&open_loop(&mut plain, &load(600)));
    let mut faulty = stalling(vec![stalls(&phases, Instant(0))]);
    let lives = open_loop(&mut faulty, &load(600));
    let slow = *alone.iter().max().unwrap();
    assert!(slow < 400 * MS, "the drive itself has nothing like it: {slow}");
    for (number, life) in lives.iter().enumerate() {
        let stalls = number % 2 == 1 && (100 * MS..300 * MS).contains(&life.submitted.0);
        let latency = life.done.since(life.submitted);
        assert_eq!(latency >= 500 * MS, stalls, "request {number}: {latency}");
    }
}

#[test]
fn stalls_and_freezes_add_up() {
    let freeze = spell(Instant(40 * MS), 100 * MS, None);
    let (one, two) = ([(1000, 1000, 20 * MS, None)], [(1000, 1000, 30 * MS, None)]);
    let schedules = vec![stalls(&one, Instant(0)), stalls(&two, Instant(0))];
    let faults = Faults { freezes: vec![freeze], stalls: schedules, ..Faults::default() };
    let mut faulty = Faulty::new(drive(), faults);
    let lives = open_loop(&mut faulty, &load(1));
    assert!(lives[0].done >= Instant(140 * MS), "1 + 50 ms is in the freeze: {lives:?}");
    let mut faulty = stalling(vec![stalls(&one, Instant(0)), stalls(&two, Instant(0))]);
    let lives = open_loop(&mut faulty, &load(1));
    let latency = lives[0].done.since(lives[0].submitted);
    assert!((50 * MS..60 * MS).contains(&latency), "{latency}");
}

#[test]
fn a_published_experiment_meets_its_shares_and_delays() {
    let schedule = Experiment::Increasing.schedule(0.1).unwrap();
    let stalls = Stalls::new(schedule, 1, Instant(0));
    let mut faulty = stalling(vec![stalls]);
    // 90 s of 500 requests per second; phases of 18 s.
    let load: Vec<_> = load(45_000)
        .into_iter()
        .map(|(at, operation, extent)| (Instant(2 * at.0), operation, extent))
        .collect();
    let lives = open_loop(&mut faulty, &load);
    let delays = [50 * MS, 200 * MS, 700 * MS, SECOND, 15 * SECOND];
    for (phase, delay) in delays.into_iter().enumerate() {
        for (kind, share) in [(0, 0.1), (1, 0.25)] {
            let own: Vec<&Life> = lives
                .iter()
                .skip(kind)
                .step_by(2)
                .filter(|life| life.submitted.0 / (18 * SECOND) == phase as u64)
                .collect();
            let late = |life: &&&Life| life.done.since(life.submitted) >= delay;
            let share_met = own.iter().filter(late).count() as f64 / own.len() as f64;
            assert!((share_met - share).abs() < 0.03, "phase {phase}: {share_met} of {share}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the faults, each request ends once, in time order, and no earlier than without
    /// them. [`open_loop`] asserts the former.
    #[test]
    fn every_request_ends_once(
        seed: u64,
        freezes in prop::collection::vec((0_u64..300, 1_u64..50, prop::option::of(51_u64..200)), 0..4),
        phases in prop::collection::vec((0_u32..=1000, 0_u32..=1000, 1_u64..100, 1_u64..100), 0..4),
    ) {
        let freezes = freezes.into_iter().map(|(at, length, every)| {
            spell(Instant(at * MS), length * MS, every.map(|every| (every + 100) * MS))
        });
        let schedule = phases.into_iter().map(|(reads, writes, delay, length)| Phase {
            reads: Share::per_mille(reads),
            writes: Share::per_mille(writes),
            delays: Delays::Fixed(delay * MS),
            length: Some(length * MS),
        });
        let stalls = Schedule::new(schedule.collect()).ok();
        let stalls = stalls.map(|schedule| Stalls::new(schedule, seed, Instant(0)));
        let stalls = stalls.into_iter().collect();
        let faults = Faults { freezes: freezes.collect(), stalls, ..Faults::default() };
        let faulty = Faulty::new(drive(), faults);
        let lives = open_loop(&mut faulty.clone(), &load(300));
        prop_assert!(lives.iter().all(|life| life.done > life.submitted));
        prop_assert_eq!(lives, open_loop(&mut faulty.clone(), &load(300)), "it is deterministic");
    }
}
