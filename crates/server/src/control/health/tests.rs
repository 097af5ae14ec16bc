//! Tests of the judge: each condition is made, and its sentence and state are read.

use super::*;
use crate::opening::GivenUp;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

fn leg(slot: u8, name: &str) -> LegStatus {
    LegStatus { leg: slot, name: name.into(), state: LegState::Healthy, ..LegStatus::default() }
}

/// Returns a volume of two legs of which nothing is to be said.
fn volume() -> VolumeStatus {
    let mut status = VolumeStatus {
        phase: Phase::Serving,
        size_bytes: 2 * GIB,
        converged: true,
        legs: vec![leg(0, "ssd"), leg(1, "hdd")],
        ..VolumeStatus::default()
    };
    (status.exposure.bound_bytes, status.exposure.bound_age_ns) = (64 * MIB, 5 * SECOND);
    status
}

fn out(leg: &mut LegStatus, reason: OutReason, owed: u64) {
    (leg.state, leg.out_reason, leg.owed_bytes) = (LegState::Out, Some(reason), owed);
}

/// A way to make a condition, and what has to be said of it.
struct Row {
    condition: Condition,
    make: fn(&mut VolumeStatus, &mut Settings),
    text: &'static str,
    brief: &'static str,
    one_copy_bytes: u64,
    alike: bool,
}

const ROWS: [Row; 19] = [
    Row {
        condition: Condition::Stuck,
        make: |status, _| status.age_ns = 12 * SECOND,
        text: "The data path has not moved for 12 s, and clients wait.",
        brief: "stuck",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::NoLegAnswers,
        make: |status, _| {
            // The last leg that answers is never called frozen.
            (status.legs[0].state, status.legs[1].stalled) = (LegState::Frozen, true);
        },
        text: "No leg answers, and clients wait.",
        brief: "no leg answers",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::Lost,
        make: |status, _| status.lost_bytes = 4096,
        text: "4 KiB of acknowledged data are on no leg any more; reading them fails until they are \
               written again.",
        brief: "4 KiB lost",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::SoleLeg,
        make: |status, _| {
            out(&mut status.legs[1], OutReason::Unresponsive, MIB);
            status.converged = false;
        },
        text: "All data is on ssd (leg 0) alone; if it is lost, the volume is lost.",
        brief: "leg 1 out: unresponsive",
        one_copy_bytes: 2 * GIB,
        alike: false,
    },
    Row {
        condition: Condition::SoleLeg,
        make: |status, _| {
            out(&mut status.legs[1], OutReason::Joining, GIB);
            status.legs[1].remaining_ns = Some(600 * SECOND);
            status.converged = false;
        },
        text: "All data is on ssd (leg 0) alone; if it is lost, the volume is lost. hdd (leg 1) is being \
               filled: 1 GiB to go, some 10 min.",
        brief: "leg 1 filling",
        one_copy_bytes: 2 * GIB,
        alike: false,
    },
    Row {
        condition: Condition::RegionsOwed,
        make: |status, _| {
            let leg = &mut status.legs[1];
            (leg.owed_bytes, leg.owed_region_bytes) = (GIB, GIB);
            (leg.state, status.converged) = (LegState::Lagging, false);
        },
        text: "hdd (leg 1) is not known to hold 1 GiB, and has to be filled or compared there: ssd (leg 0) \
               alone holds them; 1 GiB to go.",
        brief: "leg 1 owes 1 GiB",
        one_copy_bytes: GIB,
        alike: false,
    },
    Row {
        condition: Condition::MetadataLost,
        make: |status, _| {
            status.legs[1].metadata_lost = Some("there is no hemi superblock".into());
        },
        text: "hdd (leg 1) does not hold its metadata any more: there is no hemi superblock.",
        brief: "leg 1 lost its metadata",
        one_copy_bytes: 0,
        alike: false,
    },
    Row {
        condition: Condition::Differences,
        make: |status, _| status.scrub.different_bytes = 16 << 10,
        text: "Legs are known to differ in 16 KiB: a read may return either.",
        brief: "legs differ",
        one_copy_bytes: 0,
        alike: false,
    },
    Row {
        condition: Condition::LegSilent,
        make: |status, _| {
            let leg = &mut status.legs[1];
            (leg.state, leg.owed_bytes) = (LegState::Frozen, 12 * MIB);
            leg.state_age_ns = Some(3 * SECOND);
            (status.exposure.bytes, status.exposure.age_ns) = (12 * MIB, SECOND);
            status.converged = false;
        },
        text: "hdd (leg 1) has not answered for 3 s, and lacks 12 MiB.",
        brief: "leg 1 frozen",
        one_copy_bytes: 12 * MIB,
        alike: false,
    },
    Row {
        condition: Condition::ExposurePastBound,
        make: |status, _| {
            (status.exposure.bytes, status.exposure.age_ns) = (65 * MIB, SECOND);
            status.converged = false;
        },
        text: "Exposure is past its bound of 64 MiB, since the leg that owes it is slower than clients write: \
               65 MiB of the last 1 s are on one leg only.",
        brief: "exposure past its bound",
        one_copy_bytes: 65 * MIB,
        alike: false,
    },
    Row {
        condition: Condition::LegOut,
        make: |status, _| {
            status.legs.push(leg(2, "nvme"));
            out(&mut status.legs[2], OutReason::Removed, 8 * MIB);
            status.converged = false;
        },
        text: "nvme (leg 2) is out and lacks 8 MiB.",
        brief: "leg 2 out: removed",
        one_copy_bytes: 0,
        alike: false,
    },
    Row {
        condition: Condition::FlushCopies,
        make: |status, settings| {
            settings.flush_copies = FlushCopies::Count(3);
            status.converged = true;
        },
        text: "A flush is durable on 2 of the 3 legs that flush_copies requires.",
        brief: "flush copies missing",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::GivenUp,
        make: |status, _| {
            let (legs, lacks_bytes, uncertain_bytes) = (vec![1], MIB, 0);
            status.given_up = Some(GivenUp { legs, lacks_bytes, uncertain_bytes });
        },
        text: "This start gave up hdd (leg 1), which was missing (start_degraded): acknowledged writes that \
               it alone held are lost, 1 MiB for certain.",
        brief: "gave up a leg",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::Exposed,
        make: |status, _| {
            (status.exposure.bytes, status.exposure.age_ns) = (12 * MIB, 3 * SECOND);
            status.legs[1].owed_bytes = 12 * MIB;
            status.converged = false;
        },
        text: "12 MiB of the last 3 s are on ssd (leg 0) only, and are lost with it.",
        brief: "exposed",
        one_copy_bytes: 12 * MIB,
        alike: false,
    },
    Row {
        condition: Condition::Exposed,
        make: |status, _| {
            (status.exposure.bytes, status.exposure.age_ns) = (MIB, SECOND / 2);
            status.legs.push(leg(2, ""));
            status.legs.iter_mut().for_each(|leg| leg.owed_bytes = MIB);
            status.converged = false;
        },
        text: "1 MiB of the last 500 ms are on one leg only: any of ssd (leg 0), hdd (leg 1) and leg 2 may \
               alone hold some of them.",
        brief: "exposed",
        one_copy_bytes: MIB,
        alike: false,
    },
    Row {
        condition: Condition::Throttled,
        make: |status, _| status.exposure.throttling = true,
        text: "Writers are being slowed to keep exposure below 64 MiB and 5 s.",
        brief: "writers slowed",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::PolicyWaits,
        make: |_, settings| settings.policy = Policy::All,
        text: "Policy all waits for every leg: while one stalls, writes stall.",
        brief: "waits by policy",
        one_copy_bytes: 0,
        alike: true,
    },
    Row {
        condition: Condition::Filling,
        make: |status, _| {
            status.legs.push(leg(2, "new"));
            out(&mut status.legs[2], OutReason::Joining, GIB);
            status.converged = false;
        },
        text: "new (leg 2) is being filled: 1 GiB to go.",
        brief: "leg 2 filling",
        one_copy_bytes: 0,
        alike: false,
    },
    Row {
        condition: Condition::Lagging,
        make: |status, _| {
            (status.legs[1].state, status.legs[1].owed_bytes) = (LegState::Lagging, 12 * MIB);
            status.converged = false;
        },
        text: "hdd (leg 1) owes 12 MiB and drains.",
        brief: "leg 1 lagging",
        one_copy_bytes: 0,
        alike: false,
    },
];

fn made(row: &Row) -> (VolumeStatus, Judgement) {
    let (mut status, mut settings) = (volume(), Settings::default());
    (row.make)(&mut status, &mut settings);
    let judged = judge(&status, &settings);
    (status, judged)
}

#[test]
fn each_condition_is_said_with_its_state() {
    for row in &ROWS {
        let (_, judged) = made(row);
        let name = row.condition.name();
        let found = judged.risks.iter().find(|risk| risk.condition == row.condition);
        let found = found.unwrap_or_else(|| panic!("{name}: {judged:#?}"));
        assert_eq!(found.text, row.text, "{name}");
        assert_eq!(found.brief, row.brief, "{name}");
        assert!(judged.summary.state >= row.condition.health(), "{name}");
        assert_eq!(judged.alike, row.alike, "{name}");
        let worst = judged.risks.iter().map(|risk| risk.condition.health()).max();
        assert_eq!(Some(judged.summary.state), worst, "{name}");
        if row.condition.health() > Health::Healthy {
            assert_eq!(
                judged.summary.text, judged.risks[0].text,
                "{name}: the worst is the sentence"
            );
        }
    }
}

#[test]
fn what_one_leg_alone_holds_is_counted() {
    for row in &ROWS {
        let (status, judged) = made(row);
        assert_eq!(judged.one_copy_bytes, row.one_copy_bytes, "{}", row.condition.name());
        let is_alone = judged.one_copy_bytes >= status.size_bytes;
        let exposed = if is_alone { judged.one_copy_bytes } else { status.exposure.bytes };
        assert_eq!(judged.one_copy_region_bytes, judged.one_copy_bytes - exposed);
    }
    let owing = |owed: [u64; 3]| {
        let mut status = volume();
        status.legs.push(leg(2, "nvme"));
        for (leg, owed) in status.legs.iter_mut().zip(owed) {
            (leg.owed_bytes, leg.owed_region_bytes) = (owed, owed);
        }
        let judged = judge(&status, &Settings::default());
        assert_eq!(judged.one_copy_region_bytes, judged.one_copy_bytes, "nothing is exposed");
        judged.one_copy_bytes
    };
    assert_eq!(owing([0, 0, GIB]), 0, "two legs hold everything");
    assert_eq!(owing([0, GIB, GIB]), GIB);
    assert_eq!(owing([MIB, MIB, MIB]), 3 * MIB / 2, "at most, where each may lack another part");
}

#[test]
fn every_condition_has_a_row_but_those_of_a_closed_volume() {
    for condition in Condition::ALL {
        let has_row = ROWS.iter().any(|row| row.condition == condition);
        assert_eq!(has_row, condition != Condition::NotOpen, "{}", condition.name());
        let json = serde_json::to_string(&condition).expect("it has a form");
        assert_eq!(json, format!("\"{}\"", condition.name()));
    }
    assert!(Condition::ALL.is_sorted(), "worst first");
}

#[test]
fn a_volume_that_is_not_open_is_not_served() {
    let of = |phase, waits_for: Option<&str>| {
        let mut status = volume();
        (status.phase, status.waits_for) = (phase, waits_for.map(str::to_owned));
        judge(&status, &Settings::default())
    };
    for (phase, waits_for, text) in [
        (Phase::Opening, None, "The volume is being opened."),
        (
            Phase::Opening,
            Some("leg /dev/sdb: no such file."),
            "The volume is not open: it waits for legs. leg /dev/sdb: no such file.",
        ),
        (Phase::Closing, None, "The volume is being stopped."),
        (Phase::Closed, None, "The volume is stopped."),
        (Phase::Upgrading, None, "Another program is taking over; clients wait."),
    ] {
        let judged = of(phase, waits_for);
        assert_eq!(judged.summary.state, Health::NotServing);
        assert_eq!((&*judged.summary.text, judged.risks.len()), (text, 0));
        assert!(!judged.alike);
    }
}

#[test]
fn what_is_left_on_the_legs_of_a_stopped_volume_is_said() {
    let mut status = volume();
    (status.phase, status.age_ns) = (Phase::Closed, 60 * SECOND);
    let left = |status: &VolumeStatus| at_rest(status, &Settings::default());
    assert_eq!(left(&status).text, "Everything that was acknowledged is on all 2 legs.");
    out(&mut status.legs[1], OutReason::Unresponsive, MIB);
    assert_eq!(
        left(&status).text,
        "All data is on ssd (leg 0) alone; if it is lost, the volume is lost."
    );
    status.legs[0].state = LegState::Frozen;
    assert_eq!(left(&status).state, Health::Degraded, "nobody waits for it");
}

#[test]
fn all_is_well_where_nothing_is_to_be_said() {
    let judged = judge(&volume(), &Settings::default());
    assert_eq!(judged.summary.state, Health::Healthy);
    assert_eq!(judged.summary.text, "Everything that was acknowledged is on all 2 legs.");
    assert_eq!((judged.summary.advice, judged.risks.len()), (None, 0));
    let mut status = volume();
    (status.exposure.bytes, status.exposure.age_ns) = (12 * MIB, SECOND);
    let judged = judge(&status, &Settings::default());
    assert_eq!(judged.summary.state, Health::Healthy);
    assert_eq!(
        judged.summary.text,
        "All 2 legs answer; 12 MiB of the last 1 s are on one leg only."
    );
}

#[test]
fn a_silent_leg_that_alone_holds_regions_makes_their_readers_wait() {
    let mut status = volume();
    status.legs[0].state = LegState::Frozen;
    (status.legs[1].owed_bytes, status.legs[1].owed_region_bytes) = (GIB, GIB);
    let judged = judge(&status, &Settings::default());
    let silent = judged.risks.iter().find(|risk| risk.condition == Condition::LegSilent);
    assert_eq!(
        silent.map(|risk| &*risk.text),
        Some("ssd (leg 0) has not answered: it alone holds 1 GiB, and reads of them wait.")
    );
}

#[test]
fn exposure_past_its_bound_blames_the_leg_for_what_it_does() {
    let mut status = volume();
    (status.exposure.bytes, status.exposure.age_ns) = (MIB, 6 * SECOND);
    status.legs[1].owed_bytes = MIB;
    let text = |status: &VolumeStatus| judge(status, &Settings::default()).summary.text;
    let past = "Exposure is past its bound of 5 s, since the leg that owes it";
    let slow = format!("{past} is slower than clients write: ");
    assert!(text(&status).starts_with(&slow), "{}", text(&status));
    status.legs[1].state = LegState::Frozen;
    let judged = judge(&status, &Settings::default());
    let said = judged.risks.iter().find(|risk| risk.condition == Condition::ExposurePastBound);
    let silent = format!("{past} does not answer: ");
    assert!(said.is_some_and(|risk| risk.text.starts_with(&silent)), "{said:?}");
}

#[test]
fn a_leg_that_was_detached_is_no_condition_of_the_others() {
    let mut status = volume();
    status.legs.push(leg(2, "copy"));
    out(&mut status.legs[2], OutReason::Detached, MIB);
    assert_eq!(judge(&status, &Settings::default()).summary.state, Health::Healthy);
}

/// The row in `docs/metrics.md` of each condition has its name, its state and an alert that exists, or none.
#[test]
fn the_documentation_lists_every_condition() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).expect("the file is in the tree");
    let (page, rules) = (read("docs/metrics.md"), read("packaging/prometheus/hemi.rules.yml"));
    let mut rows = 0;
    for line in
        page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 6)
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, state, _, alert, _] = cells[..] else { continue };
        let Some(condition) =
            Condition::ALL.into_iter().find(|known| format!("`{}`", known.name()) == name)
        else {
            continue;
        };
        rows += 1;
        let health = serde_json::to_string(&condition.health()).expect("it has a form");
        assert_eq!(format!("\"{state}\""), health, "{name}");
        let is_bad = condition.health() > Health::Healthy;
        assert!(!is_bad || alert != "–", "{name}: no alert");
        if alert != "–" {
            let alert = alert.trim_matches('`');
            assert!(rules.contains(&format!("alert: {alert}\n")), "{name}: no alert {alert}");
        }
    }
    assert_eq!(rows, Condition::ALL.len(), "docs/metrics.md: a row for each condition");
}
