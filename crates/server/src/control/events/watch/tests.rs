//! Tests of the events made from snapshots.

use super::super::made::snapshot;
use super::*;
use crate::control::volume::Identity;
use crate::opening::GivenUp;

fn seen(watch: &mut Watch, snapshot: &Arc<Snapshot>) -> Vec<String> {
    let mut events = Vec::new();
    watch.observe(snapshot, &[], 0, Some(Before::Unknown), &mut events);
    events.into_iter().map(|event| format!("{} {}", event.kind, event.text)).collect()
}

#[test]
fn a_start_is_told_once_and_only_when_it_is_known_what_was_before() {
    let mut watch = Watch::default();
    let mut events = Vec::new();
    let calm = snapshot(|_| {});
    watch.observe(&calm, &[], 0, None, &mut events);
    assert!(events.is_empty(), "{events:?}");
    let before = Before::Broken(unix_ms() - 600_000);
    watch.observe(&calm, &[], 0, Some(before), &mut events);
    watch.observe(&calm, &[], 0, Some(before), &mut events);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*event.kind, event.severity), ("started", Severity::Warning));
    let words = "serves the volume db of 1 GiB on 2 legs; it had not been stopped, and was last served 10 \
                 min ago.";
    assert!(event.text.ends_with(words), "{}", event.text);
    assert_eq!(event.values["unclean"], true);
}

/// A start that misses a leg, or gave one up, is for somebody to read.
#[test]
fn a_start_without_a_leg_is_a_warning() {
    let started = |change: fn(&mut Snapshot)| {
        let mut events = Vec::new();
        let before = Some(Before::Stopped);
        Watch::default().observe(&snapshot(change), &[], 0, before, &mut events);
        events.swap_remove(0)
    };
    let calm = started(|_| {});
    assert_eq!(calm.severity, Severity::Info);
    assert!(calm.text.ends_with("on 2 legs, after a stop."), "{}", calm.text);
    let without = started(|snapshot| {
        let leg = &mut snapshot.status.legs[1];
        (leg.state, leg.out_reason) = (LegState::Out, Some(OutReason::Removed));
        let given_up = GivenUp { legs: vec![1], lacks_bytes: 0, uncertain_bytes: 4096 };
        let identity = Identity { given_up: Some(given_up), ..Identity::clone(&snapshot.identity) };
        snapshot.identity = Arc::new(identity);
    });
    assert_eq!(without.severity, Severity::Warning);
    let words = "on 1 of 2 legs, after a stop. Missing is: hdd (leg 1). This start gave up hdd \
                 (leg 1), which was missing (start_degraded): acknowledged writes that it alone held are lost, \
                 none for certain, and perhaps some in 4 KiB more.";
    assert!(without.text.ends_with(words), "{}", without.text);
    let detached = started(|snapshot| {
        let leg = &mut snapshot.status.legs[1];
        (leg.state, leg.out_reason) = (LegState::Out, Some(OutReason::Detached));
    });
    assert_eq!(detached.severity, Severity::Info, "somebody did that");
}

#[test]
fn an_upgrade_says_who_took_over_and_how_long_clients_waited() {
    let report = HandoverReport {
        version: "0.0.9".into(),
        connections: 3,
        pause_ns: 80_000_000,
        ..HandoverReport::default()
    };
    let said = |report| {
        let after = snapshot(|snapshot| snapshot.taken_over = Some(report));
        let texts = seen(&mut Watch::default(), &after);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        text.clone()
    };
    let text = said(report.clone());
    let words = "took over from 0.0.9: 3 clients went on after 80 ms, 0 were cut off.";
    assert!(text.ends_with(words), "{text}");
    let text = said(HandoverReport { not_grown: Some("a.img has no room.".into()), ..report });
    assert!(text.ends_with(" The volume has not grown: a.img has no room."), "{text}");
}

#[test]
fn a_leg_that_is_gone_and_back_is_told_of() {
    let mut watch = Watch::default();
    seen(&mut watch, &snapshot(|_| {}));
    let gone = snapshot(|snapshot| {
        snapshot.status.legs[1].state = LegState::Gone;
        snapshot.no_session.push((1, "connection refused".into()));
    });
    assert_eq!(seen(&mut watch, &gone), ["gone hdd (leg 1) is gone: connection refused."]);
    assert_eq!(seen(&mut watch, &gone), Vec::<String>::new());
    let texts = seen(&mut watch, &snapshot(|_| {}));
    assert!(texts[0].starts_with("back hdd (leg 1) is back after "), "{texts:?}");
}

#[test]
fn a_leg_found_joining_is_a_rebuild() {
    let mut watch = Watch::default();
    let joining = snapshot(|snapshot| {
        let leg = &mut snapshot.status.legs[1];
        (leg.state, leg.out_reason) = (LegState::Out, Some(OutReason::Joining));
        leg.owed_bytes = 512 << 20;
    });
    let texts = seen(&mut watch, &joining);
    assert_eq!(texts[1], "rebuild The rebuild of hdd (leg 1) began: 512 MiB have to be filled.");
    assert_eq!(seen(&mut watch, &joining), Vec::<String>::new());
}

#[test]
fn moves_of_authority_are_told_of_in_sum_when_they_are_over() {
    let moved = |moves: u64, hdd: u32| {
        snapshot(|snapshot| {
            snapshot.status.authority_moves = moves;
            snapshot.status.legs[1].authority_regions = hdd;
        })
    };
    let (before, after) = (moved(5, 7), moved(12, 0));
    let moves = Moves { began_ms: 1000, last_ms: 3000, before };
    let event = super::moved(&moves, &after, 48_000);
    assert_eq!(
        event.text,
        "The authority of regions moved 7 times, the last time 45 s ago: hdd decides 0 regions, before 7."
    );
    assert_eq!((event.at, &event.values["took_ns"]), (48_000, &2_000_000_000_u64.into()));
    let moves = Moves { began_ms: 1000, last_ms: 1000, before: moved(5, 0) };
    assert_eq!(
        super::moved(&moves, &moved(6, 1), 4000).text,
        "The authority of a region moved 3 s ago: hdd decides 1 region, before 0."
    );
    let mut watch = Watch::default();
    seen(&mut watch, &moved(5, 7));
    assert_eq!(seen(&mut watch, &moved(12, 0)), Vec::<String>::new(), "they may go on");
}

/// Reports of moves are a minute apart, by their times, too, and over an upgrade.
#[test]
fn moves_are_told_of_once_a_minute() {
    let moved = |moves: u64| snapshot(|snapshot| snapshot.status.authority_moves = moves);
    let mut last = moved(0);
    let (mut watch, mut events) = (Watch::default(), Vec::new());
    let start = 1_700_000_000_000;
    for tick in 0..4 * 240 {
        let now_ms = start + tick * 250;
        if tick == 480 {
            let told = events.last().map_or(0, |event: &Event| event.at);
            watch = Watch::default();
            watch.told_before(told);
        }
        // A move every four seconds, so that each is over before the next.
        let next = moved(tick / 16);
        watch.watch_moves(&last, &next, now_ms, &mut events);
        last = next;
    }
    let times: Vec<u64> = events.iter().map(|event| event.at - start).collect();
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] >= pair[0] + MOVES_TOLD_MS), "{times:?}");
}

#[test]
fn events_left_out_are_told_of_in_sum() {
    let (mut watch, mut events) = (Watch::default(), Vec::new());
    for (now_ms, left_out) in [(1000, 1), (1250, 5), (1500, 0), (2000, 7), (61_000, 0), (61_250, 3)]
    {
        watch.watch_left_out(left_out, now_ms, &mut events);
    }
    let texts: Vec<&str> = events.iter().map(|event| &*event.text).collect();
    let because = "1 event was left out here, because too many came at once; the log has the rest.";
    let more = "12 more events were left out here within a minute; the log has the rest.";
    assert_eq!(texts, [because, more]);
}

#[test]
fn the_last_events_say_how_the_server_ended() {
    let event = |kind: &'static str, severity| Event::new(kind, severity, "x").at(5);
    let started = Before::Unknown.after(&event("started", Severity::Info));
    assert_eq!(started, Before::Broken(5));
    assert_eq!(started.after(&event("freeze", Severity::Warning)).seen(9), Before::Broken(9));
    assert_eq!(started.after(&event("stopped", Severity::Info)), Before::Stopped);
    assert_eq!(started.after(&event("stopped", Severity::Critical)), started);
}

#[test]
fn a_stop_says_what_is_left_on_the_legs() {
    let sentence = "All data is on ssd (leg 0) alone; if it is lost, the volume is lost.";
    let closed = VolumeStatus { phase: Phase::Closed, ..VolumeStatus::default() };
    let left = |state, text: &str| Summary { state, text: text.into(), advice: None };
    let event = stopped(&closed, &left(Health::Degraded, sentence));
    assert_eq!(event.text, format!("The volume was stopped. {sentence}"));
    assert_eq!(event.severity, Severity::Notice);
    let event = stopped(&closed, &left(Health::Healthy, "All is well."));
    assert_eq!(event.severity, Severity::Info);
    let serving = VolumeStatus { phase: Phase::Serving, ..VolumeStatus::default() };
    let event = stopped(&serving, &left(Health::Healthy, "All is well."));
    assert_eq!(event.severity, Severity::Critical, "it was not closed");
}
