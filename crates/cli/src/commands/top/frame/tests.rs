//! Tests of the screens.

use hemi_server::control::api::{Latency, Risk};
use hemi_server::control::health::Condition;

use super::*;

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
    Latencies { recent, total: recent }
}

/// Returns a volume after `seconds` of 1000 reads and 500 writes each.
fn volume(seconds: u64) -> VolumeStatus {
    let leg = |slot: u8, name: &str, write_ns: u64| LegStatus {
        leg: slot,
        name: name.into(),
        path: format!("/dev/{name}"),
        state: LegState::Healthy,
        in_flight: 3,
        reads: latencies(1000, 85_000),
        writes: latencies(500, write_ns),
        written_bytes: seconds * 2 * MIB,
        ..LegStatus::default()
    };
    let mut status = VolumeStatus {
        name: "db".into(),
        size_bytes: 10 << 30,
        phase: Phase::Serving,
        health: Health::Healthy,
        uptime_ns: seconds * SECOND,
        legs: vec![leg(0, "ssd", 65_000), leg(1, "hdd", 8_000_000)],
        ..VolumeStatus::default()
    };
    status.exposure.bound_bytes = 64 * MIB;
    status.exposure.bound_age_ns = 5 * SECOND;
    status.exposure.bytes = 16 * MIB;
    status.clients.reads = latencies(seconds * 1000, 90_000);
    status.clients.writes = latencies(seconds * 500, 70_000);
    status
}

fn view() -> View {
    let mut view = View { volume: (0, 1), ..View::default() };
    for seconds in 10..20 {
        view.note(volume(seconds));
    }
    view
}

fn shown(view: &View, width: usize, height: usize) -> String {
    let lines = view.frame(width, height);
    assert_eq!(lines.len(), height);
    let lines: Vec<String> = lines.iter().map(|line| line.render(width, false)).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
    lines.join("\n")
}

#[test]
fn a_screen_has_what_matters() {
    let text = shown(&view(), 110, 30);
    for part in [
        "db  10 GiB  healthy",
        "served for 19 s",
        "Every promise holds.",
        "  read            1000    90 µs   180 µs   360 µs     9 ms",
        "  write            500",
        "exposure  ########......................  16 MiB of 64 MiB, 0 s of 5 s",
        " 0 ssd   healthy",
        "2 MiB",
        "q quit  p pause  d detail  s sort  ? help",
    ] {
        assert!(text.contains(part), "it lacks {part:?}:\n{text}");
    }
    assert!(!text.contains("zero"), "nobody zeroes:\n{text}");
}

#[test]
fn work_under_way_shows_its_end() {
    let mut view = view();
    let mut status = volume(20);
    status.legs[1].state = LegState::Out;
    status.legs[1].owed_bytes = 640 * MIB;
    status.legs[1].progress_permille = Some(375);
    status.legs[1].drain_bytes_per_s = Some(120 * MIB);
    status.legs[1].remaining_ns = Some(180 * SECOND);
    status.scrub.running = true;
    status.scrub.permille = Some(5);
    status.exposure.throttling = true;
    status.risks = vec![Risk {
        promise: "P1".into(),
        condition: Condition::SoleLeg,
        brief: String::new(),
        text: "The volume runs on leg 0.".into(),
        advice: None,
    }];
    view.note(status);
    let text = shown(&view, 110, 30);
    for part in [
        "leg 1     ###########...................  37.5 %, 640 MiB to go, 120 MiB/s, 3 min left",
        "scrub     #.............................  0.5 %, 0 B differ",
        "writers are being slowed",
        "The volume runs on leg 0.",
    ] {
        assert!(text.contains(part), "it lacks {part:?}:\n{text}");
    }
}

#[test]
fn a_leg_that_stalls_is_no_good_one() {
    let mut leg = volume(1).legs[0].clone();
    assert!(matches!(style_of(&leg), Style::Good));
    leg.stalled = true;
    assert!(matches!(style_of(&leg), Style::Bad));
}

#[test]
fn a_sentence_is_never_cut() {
    let mut view = view();
    let mut status = volume(20);
    status.risks = vec![Risk {
        promise: "P1".into(),
        condition: Condition::RegionsOwed,
        brief: String::new(),
        text: "hdd (leg 1) is not known to hold 1 GiB, and has to be compared. ".repeat(4) + "END",
        advice: None,
    }];
    view.note(status);
    assert!(shown(&view, 80, 30).contains("END"));
}

#[test]
fn every_size_is_filled_and_none_overflows() {
    let mut view = view();
    view.unicode = true;
    for (detail, help) in [(false, false), (true, false), (false, true)] {
        (view.detail, view.help) = (detail, help);
        for width in [1, 2, 20, 40, 80, 300] {
            for height in [1, 2, 5, 24, 100] {
                shown(&view, width, height);
            }
        }
    }
    shown(&View::default(), 80, 24);
}

#[test]
fn legs_are_sorted_and_selected() {
    let mut view = view();
    let first = |view: &View| view.legs()[0].leg;
    assert_eq!(first(&view), 0);
    view.order = Order::Latency;
    assert_eq!(first(&view), 1, "the slow one");
    view.select(1);
    assert_eq!(view.selected, Some(1));
    view.select(1);
    assert_eq!(view.selected, Some(0), "the one below");
    view.select(1);
    assert_eq!(view.selected, Some(0), "there is no other");
    view.detail = true;
    let text = shown(&view, 110, 40);
    assert!(text.contains("leg 0  /dev/ssd") && text.contains(">0 ssd"), "{text}");
}

#[test]
fn another_opening_begins_anew() {
    let mut view = view();
    view.gone = Some("gone".into());
    assert!(shown(&view, 80, 24).contains("gone"));
    view.note(volume(1));
    assert_eq!((view.seen.len(), view.gone.as_deref()), (1, None));
    assert!(shown(&view, 110, 30).contains("  read               -"), "no rate of one figure");
    for seconds in 2..500 {
        view.note(volume(seconds));
    }
    assert_eq!(view.seen.len(), MEMORY);
}
