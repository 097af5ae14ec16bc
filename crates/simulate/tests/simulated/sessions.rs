//! Sessions: a system keeps its state from step to step, and accounts for each by itself.

use std::path::Path;

use hemi_simulate::experiment;
use hemi_simulate::session::{Session, SessionSpec, Step, StepReport};
use hemi_simulate::spec;
use hemi_simulate::stock::Stock;

const SYSTEM: &str = r#"
title = "a pair"
seed = 3
[system]
policy = "first"
legs = ["gp3", "gp3-16k"]
volume = "1 GiB"
"#;

const FLASH: &str = r#"
title = "flash"
[system]
policy = "single"
legs = ["iodrive-duo-640gb"]
scale = 64
"#;

fn open(text: &str) -> Session {
    let spec = SessionSpec::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
    Session::open(&spec, Path::new(""), None).unwrap_or_else(|error| panic!("{error}"))
}

fn step(session: &mut Session, json: &str) -> StepReport {
    let step: Step = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}"));
    session.step(&step, Path::new("")).unwrap_or_else(|error| panic!("{error}"))
}

fn load(requests: u32, read_percent: u32) -> String {
    format!(
        r#"{{"name": "load", "seed": 3, "workload": {{"closed": {{"threads": 4, "queue_depth": 4,
           "requests": {requests}, "access": {{"addresses": "uniform", "sizes": "4 KiB",
           "mix": {{"read_percent": {read_percent}}}}}}}}}}}"#
    )
}

#[test]
fn the_first_step_is_what_an_experiment_of_it_is() {
    let text = format!(
        "{SYSTEM}[workload.closed]\nthreads = 4\nqueue_depth = 4\nrequests = 5000\n\
         access = {{ addresses = \"uniform\", sizes = \"4 KiB\", mix = {{ read_percent = 50 }} }}"
    );
    let cases = spec::parse("test.toml", &text).unwrap();
    let stock = Stock::default();
    let whole = experiment::run(&cases[0], Path::new(""), None, &stock, |_| true).unwrap();
    let first = step(&mut open(SYSTEM), &load(5000, 50));
    let json = |summary| serde_json::to_string(summary).unwrap();
    assert_eq!(json(&whole.reads), json(&first.reads));
    assert_eq!(json(&whole.writes), json(&first.writes));
    assert_eq!((whole.requests, whole.time), (first.requests, first.time));
    assert_eq!(whole.little, first.little);
}

#[test]
fn a_step_accounts_for_itself_alone() {
    let mut session = open(SYSTEM);
    let mut before = 0.0;
    for read_percent in [0, 50, 100] {
        let report = step(&mut session, &load(4000, read_percent));
        assert_eq!(report.requests, 4000);
        assert_eq!(report.all.count, 4000);
        // In whole nanoseconds, since sums of fractions of seconds need not be equal to the
        // last bit.
        let nanoseconds = |seconds: f64| (seconds * 1e9).round();
        assert_eq!(nanoseconds(report.start), nanoseconds(before));
        before = report.start + report.time;
        let counted: u64 = report.intervals.iter().map(|i| i.reads.count + i.writes.count).sum();
        assert_eq!(counted, 4000);
        let length: f64 = report.intervals.iter().map(|interval| interval.length).sum();
        assert!((length - report.time).abs() < 1e-6);
        let bytes: u64 = report.intervals.iter().map(|i| i.reads.bytes + i.writes.bytes).sum();
        assert_eq!(bytes, 4000 * 4096);
        let legs: u64 =
            report.intervals.iter().flat_map(|i| &i.legs).map(|leg| leg.read_bytes).sum();
        assert_eq!(legs, report.legs.iter().map(|leg| leg.read_bytes).sum::<u64>());
        let (in_system, by_stay) = report.little;
        assert!((in_system / by_stay - 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_step_meets_the_drive_as_the_last_one_left_it() {
    let mut session = open(FLASH);
    let bytes = session.opened().bytes;
    let rewritten = (bytes / 4096 * 3) as u32;
    let fresh = step(&mut session, &load(20_000, 0));
    step(&mut session, &load(rewritten, 0));
    let used = step(&mut session, &load(20_000, 0));
    assert!(fresh.legs[0].write_amplification < 1.05, "{}", fresh.legs[0].write_amplification);
    assert!(used.legs[0].write_amplification > 1.5, "{}", used.legs[0].write_amplification);
    assert!(used.writes.iops < fresh.writes.iops / 2.0);
}

#[test]
fn rest_takes_as_long_as_it_should() {
    let mut session = open(SYSTEM);
    let report = step(&mut session, r#"{"name": "rest", "idle": "2500 ms"}"#);
    assert_eq!((report.time, report.requests, report.intervals.len()), (2.5, 0, 3));
    assert_eq!(step(&mut session, &load(10, 0)).start, 2.5);
}

#[test]
fn a_step_that_makes_no_sense_is_refused_and_changes_nothing() {
    let mut session = open(SYSTEM);
    let endless = load(1, 0).replace(r#""requests": 1, "#, "").replace("\"requests\": 1,", "");
    for (json, says) in [
        (endless.as_str(), "has no end"),
        (r#"{"name": "x"}"#, "either `workload` or `idle`"),
        (&load(10, 150), "read_percent = 150"),
    ] {
        let step: Step = serde_json::from_str(json).unwrap();
        let error = session.step(&step, Path::new("")).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let mut other = open(SYSTEM);
    let json = |report: StepReport| serde_json::to_string(&report).unwrap();
    assert_eq!(json(step(&mut session, &load(500, 0))), json(step(&mut other, &load(500, 0))));
}

#[test]
fn a_session_with_a_workload_is_refused() {
    let error = SessionSpec::parse("test.toml", &format!("{SYSTEM}[workload]\n")).unwrap_err();
    assert!(error.to_string().contains("workload"), "{error}");
}
