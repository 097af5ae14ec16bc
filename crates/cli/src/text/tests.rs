//! Tests of golden screens. `UPDATE_GOLDEN=1 cargo test -p hemi-cli` rewrites them. Read the diff.

use hemi_engine::settings::Settings;
use hemi_server::control::api::{Injected, Latency, OutReason, Risk, StallCount};
use hemi_server::control::health::Condition;

use super::*;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

fn latencies(count: u64, p50_ns: u64) -> Latencies {
    let recent = Latency {
        count,
        mean_ns: p50_ns,
        p50_ns,
        p99_ns: p50_ns * 2,
        p999_ns: p50_ns * 4,
        max_ns: p50_ns * 100,
    };
    Latencies { recent, total: Latency { count: count * 100, ..recent } }
}

fn leg(slot: u8, name: &str, state: LegState) -> LegStatus {
    LegStatus {
        leg: slot,
        name: name.into(),
        path: name.into(),
        state,
        read_wait_limit_ns: 20 * MILLISECOND,
        write_wait_limit_ns: 20 * MILLISECOND,
        reads: latencies(1000, 85_000),
        writes: latencies(500, 65_000),
        ..Default::default()
    }
}

fn healthy() -> VolumeStatus {
    let mut status = VolumeStatus {
        version: "0.1.0".into(),
        name: "db".into(),
        id: "ab".repeat(16),
        size_bytes: 10 << 30,
        block_bytes: 512,
        region_bytes: 65536,
        phase: Phase::Serving,
        uptime_ns: 11_000 * SECOND,
        age_ns: 100 * MILLISECOND,
        recent_ns: 10 * SECOND,
        converged: true,
        legs: vec![
            leg(0, "/dev/nvme0n1p3", LegState::Healthy),
            leg(1, "/dev/sdb", LegState::Healthy),
        ],
        ..Default::default()
    };
    status.exposure.bound_bytes = 64 * MIB;
    status.exposure.bound_age_ns = 5 * SECOND;
    status.exposure.peak_bytes = 3 * MIB / 2;
    status.clients.connections.open = 2;
    status.clients.requests = 1;
    status.clients.reads = latencies(1000, 90_000);
    status.clients.writes = latencies(500, 70_000);
    status
}

/// Judges it as the server would.
fn finished(mut status: VolumeStatus) -> VolumeStatus {
    let settings = Settings { policy: status.policy, ..Default::default() };
    health::fill_in(&mut status, &settings);
    status
}

fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/text/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden files can be written");
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, wanted, "{name}: see {}", path.display());
}

#[test]
fn a_volume_without_a_ledger_says_what_it_waits_for() {
    let mut volume = healthy();
    assert!(!status(&volume, None).contains("ledger"));
    volume.ledger.why_none = Some("no run directory can be written (/run/hemi)".into());
    let text = status(&volume, None);
    assert!(
        text.contains("ledger    none: no run directory can be written (/run/hemi). A"),
        "{text}"
    );
}

#[test]
fn a_healthy_volume() {
    golden("healthy", &status(&finished(healthy()), None));
}

#[test]
fn rates_need_two_moments_of_one_opening() {
    let mut earlier = healthy();
    earlier.uptime_ns -= SECOND;
    earlier.clients.reads.total.count -= 12_345;
    golden("rates", &status(&finished(healthy()), Some(&earlier)));
    let mut other_opening = healthy();
    other_opening.uptime_ns += SECOND;
    assert_eq!(
        status(&finished(healthy()), Some(&other_opening)),
        status(&finished(healthy()), None)
    );
}

#[test]
fn a_frozen_leg() {
    let mut volume = healthy();
    volume.converged = false;
    volume.exposure.bytes = 12 * MIB;
    volume.exposure.age_ns = 3 * SECOND;
    let frozen = &mut volume.legs[1];
    frozen.state = LegState::Frozen;
    frozen.state_age_ns = Some(3 * SECOND);
    frozen.owed_bytes = 12 * MIB;
    frozen.owed_age_ns = 3 * SECOND;
    frozen.freezes = 2;
    frozen.longest_freeze_ns = 1900 * MILLISECOND;
    frozen.reads = Latencies::default();
    frozen.writes = Latencies::default();
    golden("frozen", &status(&finished(volume), None));
}

#[test]
fn a_slow_leg_at_the_bound() {
    let mut volume = healthy();
    volume.converged = false;
    volume.exposure.bytes = 60 * MIB;
    volume.exposure.age_ns = 4 * SECOND;
    volume.exposure.peak_bytes = 63 * MIB;
    volume.exposure.throttling = true;
    let slow = &mut volume.legs[1];
    slow.state = LegState::Lagging;
    slow.slow = true;
    slow.state_age_ns = Some(90 * SECOND);
    slow.owed_bytes = 60 * MIB;
    slow.owed_age_ns = 4 * SECOND;
    slow.writes = latencies(100, 20 * MILLISECOND);
    golden("slow", &status(&finished(volume), None));
}

#[test]
fn injected_faults() {
    let mut volume = healthy();
    let count = |seen, stalled| StallCount { seen, stalled };
    let stalls = InjectedStalls {
        seed: 7,
        phase: Some(2),
        phases: 5,
        phase_left_ns: Some(90 * SECOND),
        reads: count(120, 12),
        writes: count(118, 30),
    };
    volume.legs[0].injected = Some(Injected { read_errors_permille: 5, ..Default::default() });
    volume.legs[1].injected = Some(Injected {
        frozen_for_ns: 2 * SECOND,
        delay_ns: 20 * MILLISECOND,
        held: 3,
        stalls: Some(stalls),
        ..Default::default()
    });
    golden("injected", &status(&finished(volume.clone()), None));
    let over = InjectedStalls { phase: None, phase_left_ns: None, ..stalls };
    volume.legs[1].injected = Some(Injected { stalls: Some(over), ..Default::default() });
    let line = "injected  leg 1: stalls (over, seed 7): 12 of 120 reads, 30 of 118 writes\n";
    let screen = status(&finished(volume), None);
    assert!(screen.contains(line), "{screen}");
}

#[test]
fn one_leg_out_and_data_lost() {
    let mut volume = healthy();
    volume.converged = false;
    volume.lost_bytes = 8192;
    volume.legs[0].state = LegState::Out;
    volume.legs[0].out_reason = Some(OutReason::Removed);
    volume.legs[0].owed_bytes = 10 << 30;
    volume.legs[0].state_age_ns = Some(600 * SECOND);
    golden("lost", &status(&finished(volume), None));
}

#[test]
fn a_leg_being_filled_while_a_scrub_runs() {
    let mut volume = healthy();
    volume.converged = false;
    volume.legs[1].state = LegState::Out;
    volume.legs[1].out_reason = Some(OutReason::Joining);
    volume.legs[1].owed_bytes = 3 << 30;
    volume.legs[1].progress_permille = Some(700);
    volume.legs[1].drain_bytes_per_s = Some(100 * MIB);
    volume.legs[1].remaining_ns = Some(31 * SECOND);
    volume.scrub.running = true;
    volume.scrub.compared_bytes = 1 << 30;
    volume.scrub.total_bytes = 10 << 30;
    volume.scrub.permille = Some(100);
    volume.scrub.bytes_per_s = Some(200 * MIB);
    volume.scrub.remaining_ns = Some(46 * SECOND);
    golden("filling", &status(&finished(volume), None));
}

#[test]
fn eight_legs_of_many_kinds() {
    let mut volume = healthy();
    volume.policy = Policy::All;
    volume.name = String::new();
    volume.legs = (0..8)
        .map(|slot| leg(slot, &format!("nbd://storage-{slot}.example/volume"), LegState::Healthy))
        .collect();
    volume.legs[3].state = LegState::Gone;
    volume.legs[3].state_age_ns = Some(20 * SECOND);
    volume.legs[3].owed_bytes = 4096;
    volume.legs[5].state = LegState::Lagging;
    volume.legs[5].owed_bytes = MIB;
    volume.exposure.mode = ExposureMode::FallBehind;
    golden("eight", &status(&finished(volume), None));
}

#[test]
fn a_stuck_data_path_is_said() {
    let mut volume = healthy();
    volume.age_ns = 42 * SECOND;
    golden("stuck", &status(&finished(volume), None));
}

#[test]
fn before_and_after_serving() {
    for (phase, word) in
        [(Phase::Opening, "opening"), (Phase::Closing, "closing"), (Phase::Closed, "closed")]
    {
        let mut volume = healthy();
        volume.phase = phase;
        let screen = status(&finished(volume), None);
        assert!(screen.starts_with(&format!("db  10 GiB  {word}  policy first\n")), "{screen}");
        assert!(!screen.contains("Every promise holds"), "{screen}");
    }
}

fn risk(text: String) -> Risk {
    let (promise, condition) = ("P1".into(), Condition::Lost);
    Risk { promise, condition, brief: String::new(), text, advice: None }
}

#[test]
fn long_sentences_are_broken_between_words() {
    let mut volume = healthy();
    let text = "word ".repeat(60).trim_end().to_owned();
    volume.risks = vec![risk(text)];
    let screen = promises(&volume);
    assert!(screen.lines().all(|line| line.len() <= WIDTH), "{screen}");
    assert_eq!(screen.matches("word").count(), 60);
    assert!(screen.lines().skip(1).all(|line| line.starts_with("    word")), "{screen}");
}

#[test]
fn a_scrub_that_has_ended_says_when_and_how() {
    const DAY_MS: u64 = 86_400_000;
    let last = LastScrub { at_ms: 7 * DAY_MS, took_ns: 90 * SECOND, ..Default::default() };
    let says = |last: LastScrub| last_scrub(&last, 10 * DAY_MS);
    assert_eq!(says(last), "ended 3 days ago after 90 s: no difference was found");
    let differed = LastScrub { mismatched_bytes: 8192, ..last };
    assert_eq!(says(differed), "ended 3 days ago after 90 s: 8 KiB differed");
    let unreadable = LastScrub { unreadable_bytes: 4096, ..differed };
    assert_eq!(
        says(unreadable),
        "ended 3 days ago after 90 s: 8 KiB differed, a leg could not read 4 KiB"
    );
    let stopped = LastScrub { stopped: true, ..last };
    assert_eq!(says(stopped), "stopped 3 days ago after 90 s: no difference was found");
}
