//! Drives that fail.

use hemi_random::Rng;

use super::*;

const WRITE: Operation = Operation::Write { fua: false };

fn absent(at: u64, length: Option<u64>) -> Absence {
    Absence { spell: Spell { at: Instant(at), length, every: None }, error_after: 2 * MS }
}

fn behind(drive: AnyDrive, faults: Faults) -> Faulty<AnyDrive> {
    Faulty::new(drive, faults)
}

#[test]
fn a_drive_that_is_away_fails_what_it_has_and_gets() {
    let absences = vec![absent(100 * MS + MS / 10, Some(200 * MS))];
    let mut faulty = behind(drive(), Faults { absences, ..Faults::default() });
    let lives = open_loop(&mut faulty, &load(600));
    let (gone, back) = (Instant(100 * MS + MS / 10), Instant(300 * MS + MS / 10));
    let mut lost = 0;
    for life in &lives {
        let had = life.submitted < gone && (life.done > gone);
        let got = (gone..back).contains(&life.submitted);
        let result = if had || got { Err(Failure::Gone) } else { Ok(()) };
        assert_eq!(life.result, result, "{life:?}");
        if had {
            assert_eq!(life.done, gone + 2 * MS, "{life:?}");
            lost += 1;
        } else if got {
            assert_eq!(life.done, life.submitted + 2 * MS, "{life:?}");
        }
    }
    assert!(lost > 0, "one was in flight");
    let Failed { reads, writes, flushes, trims } = faulty.counters().failed;
    assert_eq!((reads + writes, flushes, trims), (lost + 200, 0, 0));
}

#[test]
fn presence_changes_are_events() {
    let absences = vec![absent(10, Some(5)), absent(40, None)];
    let mut faulty = behind(drive(), Faults { absences, ..Faults::default() });
    let mut seen = Vec::new();
    let mut done = Vec::new();
    while faulty.next_event() != Instant::NEVER && seen.len() < 10 {
        let at = faulty.next_event();
        faulty.advance(at, &mut done);
        seen.push((at.0, faulty.presence()));
    }
    let expected =
        [(10, Some(Presence::Away)), (15, Some(Presence::Present)), (40, Some(Presence::Dead))];
    assert_eq!(seen, expected);
    assert_eq!(drive().presence(), None);
}

#[test]
fn bad_sectors_can_be_read_once_they_are_written() {
    let bad = vec![Bad { at: Instant(20 * MS), extent: Extent::new(100, 8), error_after: 30 * MS }];
    let mut faulty = behind(drive(), Faults { bad, ..Faults::default() });
    let at = |ms: u64, operation, start| (Instant(ms * MS), operation, Extent::new(start, 8));
    let load = [
        at(10, Operation::Read, 100),
        at(100, Operation::Read, 100),
        at(200, Operation::Read, 104),
        at(300, Operation::Read, 108),
        at(400, WRITE, 96),
        at(500, Operation::Read, 96),
        at(600, Operation::Read, 104),
        at(700, WRITE, 104),
        at(800, Operation::Read, 100),
    ];
    let lives = open_loop(&mut faulty, &load);
    let failed: Vec<bool> = lives.iter().map(|life| life.result.is_err()).collect();
    assert_eq!(failed, [false, true, true, false, false, false, true, false, false]);
    for life in lives.iter().filter(|life| life.result.is_err()) {
        assert_eq!(life.result, Err(Failure::Medium));
        assert!(life.done.since(life.submitted) > 30 * MS, "it has tried: {life:?}");
    }
}

#[test]
fn errors_by_chance_meet_their_share() {
    let (reads, writes) = (Share::per_mille(100), Share::per_mille(20));
    let spell = Spell { at: Instant(0), length: Some(20_000 * MS), every: None };
    let errors = Errors { spell, reads, writes, error_after: MS, rng: Rng::new(3, 0) };
    let mut faulty = behind(drive(), Faults { errors: vec![errors], ..Faults::default() });
    let lives = open_loop(&mut faulty, &load(24_000));
    let failed = |part: &[Life], kind: usize| {
        part.iter().skip(kind).step_by(2).filter(|life| life.result.is_err()).count()
    };
    let (within, after) = lives.split_at(20_000);
    assert!((900..1100).contains(&failed(within, 0)), "{}", failed(within, 0));
    assert!((150..250).contains(&failed(within, 1)), "{}", failed(within, 1));
    assert_eq!(failed(after, 0) + failed(after, 1), 0);
}

#[test]
fn flash_ends_when_its_cycles_are_used_up() {
    const SCALE: u64 = 64;
    let flash = Preset::built_in("x25e-32gb").unwrap().scaled(SCALE).drive(1).unwrap();
    let AnyDrive::Ssd(model) = &flash else { panic!("it is flash") };
    let of = model.parameters();
    let block = of.lane_page() * u64::from(of.pages_per_block);
    let raw = of.capacity.0 as f64 * of.alpha * (1.0 - of.raw_loss);
    // It has had 1,000 cycles and may have one 200th more.
    let (before, limit) = (1000.0, 1000.005);
    let end = EndOfLife::new(before, limit, Some(200 * MS), 3 * MS);
    let mut faulty = behind(flash, Faults { end: Some(end), ..Faults::default() });
    let sectors = faulty.sectors();
    let load: Vec<_> = (0..40_000_u64)
        .map(|number| {
            let operation = if number % 10 == 0 { Operation::Read } else { WRITE };
            (Instant(number * MS / 4), operation, Extent::new(number * 64 % (sectors - 64), 64))
        })
        .collect();
    let lives = open_loop(&mut faulty, &load);
    let first = lives.iter().position(|life| life.result.is_err()).expect("it ends");
    // Reads notice the end too, so it may have come a request earlier.
    let dead = lives[first].submitted + 200 * MS;
    for (life, (_, operation, _)) in lives[first..].iter().zip(&load[first..]) {
        let expected = match operation {
            _ if life.submitted >= dead => Err(Failure::Medium),
            _ if life.submitted + MS >= dead => continue,
            Operation::Read => Ok(()),
            _ => Err(Failure::ReadOnly),
        };
        assert_eq!(life.result, expected, "{life:?}");
    }
    let Counters { cycles, cycles_most, rated_cycles, erases, written_bytes, .. } =
        faulty.counters();
    let erased = (erases * block) as f64;
    assert!((0.005..0.0055).contains(&(erased / raw)), "{erased} bytes of {raw}");
    assert!(erased <= written_bytes as f64, "in order, nothing has to be copied");
    assert!((limit..limit + 0.001).contains(&cycles), "{cycles}");
    assert!(cycles_most >= cycles && cycles_most < cycles + 5.0, "{cycles_most}");
    assert_eq!(rated_cycles, 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the faults, each request ends once and in time order, and always in the same way.
    #[test]
    fn every_request_ends_once_whatever_fails(
        seed: u64,
        absences in prop::collection::vec((0_u64..300, prop::option::of(1_u64..60)), 0..3),
        freezes in prop::collection::vec((0_u64..300, 1_u64..50), 0..3),
        slow in prop::collection::vec((0_u64..300, 1.0_f64..20.0, 0_u64..40, 41_u64..90, 0_usize..3), 0..4),
        bad in prop::collection::vec((0_u64..300, 0_u64..2400, 1_u64..64), 0..20),
        share in 0_u32..300,
    ) {
        let spell = |at: u64, length: Option<u64>| Spell {
            at: Instant(at * MS),
            length: length.map(|length| length * MS),
            every: None,
        };
        let affected = [Affected::All, Affected::Reads, Affected::Writes];
        let (reads, writes) = (Share::per_mille(share), Share::per_mille(share / 2));
        let errors = Errors { spell: spell(50, None), reads, writes, error_after: MS, rng: Rng::new(seed, 1) };
        let faults = Faults {
            freezes: freezes.into_iter().map(|(at, length)| spell(at, Some(length))).collect(),
            absences: absences
                .into_iter()
                .map(|(at, length)| Absence { spell: spell(at, length), error_after: MS / 2 })
                .collect(),
            slow: slow
                .into_iter()
                .map(|(at, factor, over, length, which)| Slow {
                    spell: spell(at, Some(length)),
                    factor,
                    over: over * MS,
                    affected: affected[which],
                })
                .collect(),
            bad: bad
                .into_iter()
                .map(|(at, start, count)| Bad {
                    at: Instant(at * MS),
                    extent: Extent::new(start, count),
                    error_after: 3 * MS,
                })
                .collect(),
            errors: vec![errors],
            ..Faults::default()
        };
        let faulty = behind(drive(), faults);
        let run = || {
            let mut faulty = faulty.clone();
            (open_loop(&mut faulty, &load(300)), faulty)
        };
        let (lives, after) = run();
        prop_assert!(lives.iter().all(|life| life.done > life.submitted));
        let failed = lives.iter().filter(|life| life.result.is_err()).count() as u64;
        prop_assert_eq!(after.counters().failed.total(), failed);
        prop_assert!(after.followed.values().all(|request| request.lost), "all else is forgotten");
        prop_assert_eq!(lives, run().0, "it is deterministic");
    }
}
