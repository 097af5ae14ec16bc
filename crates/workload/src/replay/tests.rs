use std::io::Cursor;
use std::sync::Arc;

use super::{Replay, ReplaySpec};
use crate::testing::{Server, run, workload};
use crate::traces::Reader;
use crate::traces::format::{Format, TimeUnit};
use crate::traces::load::Trace;

/// Returns a replay of 1,000 requests of 4 KiB, one every millisecond.
fn replay(more: &str) -> Replay {
    let lines: String = (0..1000).map(|i| format!("{}.5 0 {} 8 {}\n", i, i * 8, i % 2)).collect();
    let format = Format::Disksim(TimeUnit::Ms);
    let trace =
        Trace::from_reader(Reader::new(Cursor::new(lines), "a.trace", format), None).unwrap();
    let text = format!("trace = \"a.trace\"\nformat = \"disksim\"\ntime_unit = \"ms\"\n{more}");
    let spec: ReplaySpec = toml::from_str(&text).unwrap();
    spec.check().unwrap();
    Replay::new(Arc::new(trace), &spec)
}

#[test]
fn requests_come_at_the_recorded_times() {
    for (speed, period) in [("", 1_000_000), ("speed = 2.0", 500_000), ("speed = 0.5", 2_000_000)] {
        // The server is slower than the arrivals, which come all the same.
        let mut server = Server::fixed(9_999_999);
        let log = run(&mut replay(speed), &mut server);
        assert_eq!(log.len(), 1000);
        for (index, done) in (0..).zip(&log) {
            assert_eq!((done.issue.intended.0, done.issued.0), (index * period, index * period));
            assert_eq!((done.issue.extent.start, done.issue.extent.sectors()), (index * 8, 8));
        }
        assert_eq!(server.most_outstanding as u64, 10_000_000 / period);
    }
}

#[test]
fn those_beyond_the_queue_depth_wait_and_their_latency_counts() {
    let mut server = Server::fixed(10_000_000);
    let log = run(&mut replay("queue_depth = 8"), &mut server);
    assert_eq!((log.len(), server.most_outstanding), (1000, 8));
    // Eight each 10 ms: the last eight are issued after 124 rounds.
    assert_eq!(log[999].issue.intended.0, 999_000_000);
    assert_eq!(log[999].issued.0, 124 * 10_000_000 + 7_000_000);
}

#[test]
fn as_fast_as_possible_keeps_the_queue_full() {
    let mut server = Server::fixed(10_000_000);
    let log = run(&mut replay("pace = \"fastest\"\nqueue_depth = 8"), &mut server);
    assert_eq!((log.len(), server.most_outstanding), (1000, 8));
    for (index, done) in (0..).zip(&log) {
        assert_eq!(done.issue.intended.0, index / 8 * 10_000_000);
        assert_eq!(done.issue.intended, done.issued);
    }
}

#[test]
fn limits_end_a_replay() {
    let timed = run(&mut replay("duration = \"500 ms\""), &mut Server::fixed(1));
    assert_eq!(timed.len(), 500);
    let counted = run(&mut replay("requests = 7"), &mut Server::fixed(1));
    assert_eq!(counted.len(), 7);
    let text = "pace = \"fastest\"\nqueue_depth = 2\nduration = \"95 ms\"";
    let fastest = run(&mut replay(text), &mut Server::fixed(10_000_000));
    assert_eq!(fastest.len(), 20);
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (text, key) in [
        ("trace = \"t\"\nformat = \"disksim\"", "replay.time_unit = none"),
        ("trace = \"t\"\nformat = \"msr\"\ntime_unit = \"ms\"", "replay.time_unit = ms"),
        ("trace = \"t\"\nformat = \"msr\"\nevent = \"D\"", "replay.event = Dispatch"),
        ("trace = \"t\"\nformat = \"msr\"\npace = \"fastest\"", "replay.queue_depth = none"),
        ("trace = \"t\"\nformat = \"msr\"\nqueue_depth = 0", "replay.queue_depth = 0"),
        ("trace = \"t\"\nformat = \"msr\"\nspeed = 0.0", "replay.speed = 0"),
        (
            "trace = \"t\"\nformat = \"msr\"\npace = \"fastest\"\nqueue_depth = 8\nspeed = 2.0",
            "replay.speed = 2",
        ),
    ] {
        let error = workload(&format!("[replay]\n{text}"), 1 << 20).unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}

#[test]
fn a_real_trace_is_replayed_from_its_file() {
    let text = "[replay]\ntrace = \"data/traces/mqsim/tpcc-small.trace\"\nformat = \"mqsim\"\n\
                time_unit = \"ns\"\nvolume = \"*\"\nqueue_depth = 8\n";
    let error = workload(text, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("tpcc-small.trace has requests up to"), "{error}");
    for (more, sectors) in [("", 1_u64 << 30), ("beyond = \"wrap\"", 1 << 20)] {
        let mut replay = workload(&format!("{text}{more}"), sectors).unwrap();
        let mut server = Server::random(1, 1_000_000);
        let log = run(&mut replay, &mut server);
        assert_eq!((log.len(), server.most_outstanding), (6_999, 8));
        assert!(log.iter().all(|done| done.issue.extent.end <= sectors));
    }
}

/// Returns a replay of MSR lines with requests at `at` that took `took`, in microseconds.
fn dependent(requests: &[(u64, u64)], more: &str) -> Replay {
    let line = |&(at, took): &(u64, u64)| format!("{},h,0,Read,0,4096,{}\n", at * 10, took * 10);
    let lines: String = requests.iter().map(line).collect();
    let trace =
        Trace::from_reader(Reader::new(Cursor::new(lines), "a.csv", Format::Msr), None).unwrap();
    let text = format!("trace = \"a.csv\"\nformat = \"msr\"\npace = \"dependent\"\n{more}");
    let spec: ReplaySpec = toml::from_str(&text).unwrap();
    spec.check().unwrap();
    Replay::new(Arc::new(trace), &spec)
}

#[test]
fn a_dependent_request_waits_for_what_was_done_before_it_came_and_thinks_as_long() {
    // The second and third overlap the first. The fourth came 50 µs after both of the first two
    // were done (at 100 and 130), while the third (until 500) was not.
    let requests = [(0, 100), (10, 120), (20, 480), (180, 10), (600, 10)];
    let times = |service| -> Vec<u64> {
        let log = run(&mut dependent(&requests, ""), &mut Server::fixed(service));
        assert!(log.iter().all(|done| done.issue.intended == done.issued));
        log.iter().map(|done| done.issued.0 / 1000).collect()
    };
    // Ten times as slow as the first: only the fifth waits for the third, and it came 100 µs
    // after it.
    assert_eq!(times(1_000_000), [0, 10, 20, 1060, 2160]);
    // Faster: the fourth still has its think time.
    assert_eq!(times(1_000), [0, 10, 20, 61, 162]);
}

#[test]
fn a_closed_loop_recorded_is_a_closed_loop_again() {
    // One at a time, 100 µs each, no think time.
    let requests: Vec<(u64, u64)> = (0..200).map(|index| (index * 100, 100)).collect();
    let mut server = Server::fixed(300_000);
    let log = run(&mut dependent(&requests, ""), &mut server);
    assert_eq!((log.len(), server.most_outstanding), (200, 1));
    assert_eq!(log.last().unwrap().at.0, 200 * 300_000);
    // A cap does not make requests overlap that never did in the recording.
    let log = run(&mut dependent(&requests, "queue_depth = 4"), &mut Server::fixed(50_000));
    assert_eq!(log.last().unwrap().at.0, 200 * 50_000);
}

#[test]
fn what_a_recording_lacks_is_told_wherever_it_is_replayed() {
    use hemi_capture::{Head, Kind, Record, Writer};
    let head = Head { volume_bytes: 1 << 20, block_bytes: 512, began: 0, name: "db".into() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let (kind, fua, failed) = (Kind::Read, false, false);
    let record = Record { at: 0, latency: 7, start: 0, sectors: 8, kind, fua, failed };
    writer.push(&record, 0).unwrap();
    let bytes = writer.finish(0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("whole"), &bytes).unwrap();
    std::fs::write(folder.path().join("cut"), &bytes[..bytes.len() - 1]).unwrap();
    let lacking = |text: &str| {
        let spec: crate::spec::WorkloadSpec = toml::from_str(text).unwrap();
        spec.build(1 << 20, 1, folder.path()).unwrap().lacking()
    };
    let replay = |name: &str| format!("replay = {{ trace = \"{name}\" }}");
    assert_eq!(lacking(&replay("whole")), [""; 0]);
    let cut = replay("cut");
    for text in [
        cut.clone(),
        format!("combine.parts = [{{ {cut} }}, {{ {cut} }}, {{ {} }}]", replay("whole")),
        format!("phases = [{{ workload = {{ {cut} }} }}, {{ requests = 1 }}]"),
    ] {
        let said = lacking(&text);
        assert!(said.len() == 1 && said[0].contains("cut has no end: hemi was killed"), "{said:?}");
    }
}
