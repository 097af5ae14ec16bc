//! Faults of legs: what clients notice of them under each policy.

use std::path::Path;

use hemi_simulate::experiment;
use hemi_simulate::report::{LegHealth, Report};
use hemi_simulate::session::{Session, SessionSpec, Step};
use hemi_simulate::spec;
use hemi_simulate::stock::Stock;

const EVERY_POLICY: [&str; 7] =
    ["single", "all", "write-behind", "paper", "paper-unsafe", "first", "oracle"];

/// Runs a load on a pair under a policy, with faults and other lines of the spec.
fn run(policy: &str, faults: &str, more: &str) -> Report {
    run_on("\"gp3-16k\", \"gp3\"", policy, faults, more)
}

fn run_on(legs: &str, policy: &str, faults: &str, more: &str) -> Report {
    let text = format!(
        r#"
title = "a fault under {policy}"
[system]
policy = "{policy}"
legs = [{legs}]
volume = "256 MiB"
scale = 16
{more}
{faults}
[workload.open]
rate = 400
duration = "60 s"
access = {{ addresses = "uniform", sizes = "4 KiB", mix = {{ read_percent = 50, flush_every = 50 }} }}
"#
    );
    run_spec(&text)
}

fn run_spec(text: &str) -> Report {
    let cases = spec::parse("faults.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let stock = Stock::default();
    experiment::run(&cases[0], Path::new(""), Some(3), &stock, |_| true)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn fault(text: &str) -> String {
    format!("[[system.faults]]\n{text}")
}

fn failed(report: &Report) -> u64 {
    report.failed.expect("the spec has faults").total()
}

fn longest(report: &Report) -> f64 {
    report.reads.latency.max.max(report.writes.latency.max).max(report.flushes.latency.max)
}

fn health(report: &Report, leg: usize) -> LegHealth {
    report.legs[leg].health.expect("the spec has faults")
}

fn state(report: &Report, leg: usize) -> &'static str {
    health(report, leg).condition.expect("a mirror of the engine").state
}

/// Every request ends, well or not.
fn all_ended(report: &Report) {
    let all = &report.all;
    assert_eq!(all.count + failed(report), report.requests);
}

/// Clients that do not wait for answers would come to hold all of the volume's memory, and what legs owe
/// could not be read for want of any.
#[test]
fn legs_that_freeze_by_turns_pay_their_debts_however_much_clients_ask_for() {
    let text = r#"
title = "more than the legs can take"
[system]
policy = "first"
legs = ["gp3", "gp3"]
volume = "4 GiB"
scale = 16
[system.engine]
buffers = "64 MiB"
[[system.faults]]
leg = 0
at = "1 s"
freeze = "1 s"
every = "3 s"
[[system.faults]]
leg = 1
at = "2500 ms"
freeze = "1 s"
every = "3 s"
[workload.open]
rate = 400
duration = "8 s"
access = { addresses = "uniform", sizes = "1 MiB", mix = { read_percent = 20 } }
"#;
    let report = run_spec(text);
    all_ended(&report);
    assert_eq!(failed(&report), 0);
    // Some 2.5 GB, at 125 MB a second for two thirds of the time: 30 s. It takes half as long again, since
    // a drain of 8 MiB in flight, an eighth of the memory, reads behind what clients ask for.
    assert!(report.time < 60.0, "{} s", report.time);
}

#[test]
fn a_freeze_is_hidden_by_first_and_not_by_all() {
    for leg in [0, 1] {
        let freezes =
            fault(&format!("leg = {leg}\nat = \"10 s\"\nfreeze = \"2 s\"\nevery = \"20 s\""));
        let (first, all) = (run("first", &freezes, ""), run("all", &freezes, ""));
        assert!(longest(&first) < 0.2, "first, leg {leg}: {} s", longest(&first));
        assert!(longest(&all) > 1.9, "all, leg {leg}: {} s", longest(&all));
        assert_eq!((failed(&first), failed(&all)), (0, 0));
        let condition = health(&first, leg).condition.expect("a mirror of the engine");
        assert!(condition.freezes >= 3 && condition.outs == 0, "{condition:?}");
    }
}

#[test]
fn a_leg_that_dies_fails_no_request_of_a_pair() {
    for leg in [0, 1] {
        let dies = fault(&format!("leg = {leg}\nat = \"20 s\"\ndies = true"));
        for policy in EVERY_POLICY {
            let report = run(policy, &dies, "");
            all_ended(&report);
            if policy == "single" {
                let lost = if leg == 0 { 16_000 } else { 0 };
                assert!(failed(&report).abs_diff(lost) < 300, "{}", failed(&report));
                continue;
            }
            assert_eq!(failed(&report), 0, "{policy}, leg {leg}");
            assert!(longest(&report) < 0.5, "{policy}, leg {leg}: {} s", longest(&report));
            if !["paper-unsafe", "oracle"].contains(&policy) {
                assert_eq!(state(&report, leg), "out", "{policy}");
                assert_eq!(state(&report, 1 - leg), "healthy", "{policy}");
            }
        }
    }
}

#[test]
fn a_leg_that_returns_is_rebuilt() {
    let absent = fault("leg = 1\nat = \"15 s\"\nabsent = \"20 s\"");
    for policy in ["first", "all", "write-behind", "paper"] {
        for (out_after, outs) in [("5 s", 1), ("60 s", 0)] {
            let engine = format!("[system.engine]\nout_after = \"{out_after}\"");
            let report = run(policy, &absent, &engine);
            all_ended(&report);
            assert_eq!(failed(&report), 0, "{policy}");
            let condition = health(&report, 1).condition.expect("a mirror of the engine");
            assert_eq!((condition.state, condition.outs), ("healthy", outs), "{policy}");
            assert_eq!(condition.owed_bytes, 0, "{policy}");
            // 200 writes a second for 20 s, some of them to the same place.
            assert!(condition.drained_bytes > 10 << 20, "{policy}: {condition:?}");
            let out_time = condition.out_time;
            let expected = if outs == 1 { 14.0..25.0 } else { 0.0..0.1 };
            assert!(expected.contains(&out_time), "{policy}: out for {out_time} s");
        }
    }
}

#[test]
fn a_drive_by_itself_is_back_when_it_returns() {
    let absent = fault("leg = 0\nat = \"20 s\"\nabsent = \"10 s\"");
    let report = run("single", &absent, "");
    all_ended(&report);
    assert!(failed(&report).abs_diff(4000) < 200, "{}", failed(&report));
    let by_second: Vec<u64> = report.intervals.iter().map(|interval| interval.failed).collect();
    assert!(by_second[..20].iter().chain(&by_second[31..]).all(|&failed| failed == 0));
    assert!(by_second[21..29].iter().all(|&failed| failed > 300), "{by_second:?}");
    assert_eq!(health(&report, 0).condition, None);
}

#[test]
fn bad_sectors_are_read_elsewhere_and_repaired() {
    // The whole first leg cannot be read from 5 s on, until it is written.
    let bad = fault(
        "leg = 0\nat = \"5 s\"\nbad = { ranges = 300, length = \"1 MiB\", span = \"270 MiB\" }",
    );
    for policy in ["first", "all", "paper", "paper-unsafe", "oracle"] {
        let report = run(policy, &bad, "");
        all_ended(&report);
        assert_eq!(failed(&report), 0, "{policy}");
        assert!(health(&report, 0).failed.reads > 50, "{policy}: {:?}", health(&report, 0));
        assert_eq!(health(&report, 1).failed.total(), 0);
    }
    let single = run("single", &bad, "");
    all_ended(&single);
    assert!(single.failed.unwrap().reads > 2000 && single.failed.unwrap().writes == 0);
}

#[test]
fn errors_by_chance_are_hidden_by_a_mirror() {
    let errors = fault("leg = 0\nerrors = { reads = 0.05, writes = 0.01 }\nerror_after = \"5 ms\"");
    for policy in ["first", "all"] {
        let report = run(policy, &errors, "");
        all_ended(&report);
        assert_eq!(failed(&report), 0, "{policy}");
        assert!(health(&report, 0).failed.total() > 20, "{policy}");
    }
    let single = run("single", &errors, "").failed.unwrap();
    assert!((480..720).contains(&single.reads) && (80..160).contains(&single.writes), "{single:?}");
}

#[test]
fn when_no_leg_is_left_requests_fail_or_wait() {
    let both = fault("leg = 0\nat = \"20 s\"\ndies = true\n")
        + &fault("leg = 1\nat = \"30 s\"\ndies = true");
    for policy in EVERY_POLICY {
        let report = run(policy, &both, "[run]\nlimit = \"90 s\"");
        if ["single", "paper-unsafe", "oracle"].contains(&policy) {
            assert!(report.time < 61.0, "{policy}: {} s", report.time);
            all_ended(&report);
            let lost = if policy == "single" { 16_000 } else { 12_000 };
            assert!(failed(&report).abs_diff(lost) < 500, "{policy}: {}", failed(&report));
        } else {
            // The engine fails reads and lets writes wait for a leg to return, as a volume that is
            // served does, until it holds as many requests as it may.
            assert_eq!(report.time, 90.0, "{policy}");
            let failed = report.failed.expect("the spec has faults");
            assert_eq!(failed.total(), failed.reads, "{policy}");
            assert!(failed.reads > 2000, "{policy}: {failed:?}");
            assert!(report.all.count.abs_diff(12_000) < 500, "{policy}: {}", report.all.count);
        }
    }
}

#[test]
fn a_slow_leg_is_no_burden_to_first() {
    let slow = fault("leg = 1\nat = \"20 s\"\nslow = 100\nover = \"10 s\"");
    let (first, all) = (run("first", &slow, ""), run("all", &slow, ""));
    assert!(first.all.latency.p99 < 0.01, "{}", first.all.latency.p99);
    assert!(all.all.latency.p99 > 1.0, "{}", all.all.latency.p99);
    assert_eq!((failed(&first), failed(&all)), (0, 0));
}

#[test]
fn worn_flash_goes_out_and_its_mirror_goes_on() {
    let worn = fault("leg = 0\nworn = \"99.9999999 %\"\nfails_after = \"5 s\"");
    for policy in ["first", "all"] {
        let steady = "precondition = \"steady\"";
        let report = run_on("\"nvme-enterprise\", \"gp3-16k\"", policy, &worn, steady);
        all_ended(&report);
        assert_eq!(failed(&report), 0, "{policy}");
        let wear = report.legs[0].wear.expect("its cycles are rated");
        assert_eq!(wear.rated_cycles, 7000);
        assert!((1.0..1.000_01).contains(&wear.used), "{policy}: {wear:?}");
        assert!(health(&report, 0).failed.writes > 0, "{policy}");
        assert_eq!(state(&report, 0), "out", "{policy}");
        assert_eq!(report.legs[1].wear, None, "it is no flash");
    }
}

#[test]
fn wear_says_when_it_ends() {
    let worn = fault("leg = 0\nworn = \"50%\"");
    let report = run_on("\"nvme-enterprise\"", "single", &worn, "precondition = \"steady\"");
    let wear = report.legs[0].wear.expect("its cycles are rated");
    assert!((0.5..0.500_1).contains(&wear.used), "{wear:?}");
    assert!(wear.cycles_max >= wear.cycles_mean && wear.cycles_mean >= 3500.0, "{wear:?}");
    // What is left by the rate: bytes erased in the run by those of the flash, 2.2 TB.
    let leg = &report.legs[0];
    let programmed = leg.written_bytes as f64 * leg.write_amplification;
    let cycles_a_second = programmed / report.time / 2.2e12;
    let expected = 3500.0 / cycles_a_second;
    let lasts = wear.lasts.expect("it wrote");
    assert!((0.6..1.7).contains(&(lasts / expected)), "{lasts} s, about {expected} s expected");
}

#[test]
fn a_member_of_an_array_may_be_slow() {
    let legs = "\"gp3-4-raid0-host\"";
    let mean = |faults: &str| run_on(legs, "single", faults, "").all.latency.mean;
    let usual = mean("");
    let one = mean(&fault("leg = 0\nmember = 2\nslow = 5"));
    let all = mean(&fault("leg = 0\nslow = 5"));
    // A quarter of the requests are five times as slow, twice as slow together.
    assert!((1.7..2.3).contains(&(one / usual)), "{one} s of {usual} s");
    assert!((4.5..5.5).contains(&(all / usual)), "{all} s of {usual} s");
}

/// A member of a stripe is a part of it, one of a RAID-5 is not needed, and two are.
#[test]
fn an_array_fails_with_the_members_it_needs() {
    let dies = |member: usize, at: &str| {
        fault(&format!("leg = 0\nmember = {member}\nat = \"{at}\"\ndies = true\n"))
    };
    let stripe = "\"gp3-4-raid0-host\", \"gp3-16k\"";
    let single = run_on(stripe, "single", &dies(2, "20 s"), "");
    all_ended(&single);
    assert!(failed(&single).abs_diff(16_000) < 300, "{}", failed(&single));
    for policy in ["first", "all"] {
        let report = run_on(stripe, policy, &dies(2, "20 s"), "");
        all_ended(&report);
        assert_eq!((failed(&report), state(&report, 0)), (0, "out"), "{policy}");
    }

    let five = "\"x25e-4-raid5-host\", \"gp3-16k\"";
    let degraded = run_on(five, "single", &dies(1, "20 s"), "");
    all_ended(&degraded);
    assert_eq!((failed(&degraded), health(&degraded, 0).members_out), (0, 1));
    let whole = run_on(five, "single", &fault("leg = 0\nslow = 1"), "");
    assert_eq!(health(&whole, 0).members_out, 0);
    let both = [dies(1, "20 s"), dies(3, "40 s")].concat();
    let single = run_on(five, "single", &both, "");
    assert!(failed(&single).abs_diff(8_000) < 300, "{}", failed(&single));
    let first = run_on(five, "first", &both, "");
    all_ended(&first);
    assert_eq!((failed(&first), state(&first, 0)), (0, "out"));
    assert_eq!(health(&first, 0).members_out, 1);
}

#[test]
fn a_stripe_whose_member_returns_is_rebuilt_as_a_leg() {
    let absent = fault("leg = 0\nmember = 3\nat = \"15 s\"\nabsent = \"20 s\"");
    let engine = "[system.engine]\nout_after = \"5 s\"";
    let report = run_on("\"gp3-4-raid0-host\", \"gp3-16k\"", "first", &absent, engine);
    all_ended(&report);
    assert_eq!((failed(&report), state(&report, 0)), (0, "healthy"));
    assert_eq!(health(&report, 0).condition.expect("a mirror of the engine").outs, 1);
}

#[test]
fn bad_sectors_of_a_member_are_the_arrays_to_repair() {
    let bad = "bad = { ranges = 300, length = \"1 MiB\", span = \"100 MiB\" }";
    let bad = |legs: &str| {
        run_on(legs, "single", &fault(&format!("leg = 0\nmember = 0\nat = \"5 s\"\n{bad}")), "")
    };
    let (five, stripe) = (bad("\"x25e-4-raid5-host\""), bad("\"gp3-4-raid0-host\""));
    all_ended(&five);
    assert_eq!((failed(&five), health(&five, 0).members_out), (0, 0));
    let lost = stripe.failed.expect("the spec has faults");
    assert!(lost.reads > 500 && lost.writes == 0, "{lost:?}");
}

#[test]
fn a_fault_of_an_array_as_a_whole_lies_before_those_of_its_members() {
    let faults = fault("leg = 0\nmember = 1\nat = \"20 s\"\ndies = true\n")
        + &fault("leg = 0\nat = \"30 s\"\nfreeze = \"2 s\"");
    let report = run_on("\"gp3-4-raid0-host\"", "single", &faults, "");
    all_ended(&report);
    let lost = report.failed.expect("the spec has faults");
    assert_eq!(lost, health(&report, 0).failed);
    assert!(lost.reads > 7000 && lost.writes > 7000, "{lost:?}");
    assert!(lost.flushes.abs_diff(160) < 40, "{lost:?}");
}

#[test]
fn runs_with_faults_repeat() {
    let faults = [
        fault("leg = 0\nat = \"10 s\"\nabsent = \"5 s\"\nevery = \"20 s\"\n"),
        fault("leg = 1\nexperiment = \"perseus-intermittent\"\ntime_scale = 0.1\n"),
        fault("leg = 1\nerrors = { reads = 0.01, writes = 0.01 }\n"),
        fault("leg = 0\nbad = { ranges = 50, length = \"64 KiB\", over = \"30 s\", span = \"200 MiB\" }\n"),
    ]
    .concat();
    for policy in EVERY_POLICY {
        let json = || serde_json::to_string(&run(policy, &faults, "")).expect("plain numbers");
        assert!(json() == json(), "{policy}");
    }
}

#[test]
fn in_a_session_faults_go_on_from_step_to_step() {
    let text = "title = \"a pair\"\n[system]\nlegs = [\"gp3-16k\", \"gp3\"]\nvolume = \"256 MiB\"\n"
        .to_owned()
        + "[system.engine]\nout_after = \"3 s\"\n"
        + &fault("leg = 1\nat = \"10 s\"\nabsent = \"10 s\"");
    let spec = SessionSpec::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let mut session = Session::open(&spec, Path::new(""), None).expect("a right spec");
    let step = r#"{"name": "load", "workload": {"open": {"rate": 200, "duration": "9 s",
        "access": {"addresses": "uniform", "sizes": "4 KiB", "mix": {"read_percent": 50}}}}}"#;
    let step: Step = serde_json::from_str(step).expect("a right step");
    let states: Vec<&str> = (0..4)
        .map(|_| {
            let report = session.step(&step, Path::new("")).expect("it ends");
            assert_eq!(report.failed.expect("the spec has faults").total(), 0);
            let health = report.legs[1].health.expect("the spec has faults");
            health.condition.expect("a mirror of the engine").state
        })
        .collect();
    assert_eq!(states, ["healthy", "out", "healthy", "healthy"]);
}

#[test]
fn what_does_not_fit_a_leg_is_refused_before_the_run() {
    let text = "title = \"x\"\n[system]\npolicy = \"single\"\nlegs = [\"gp3\"]\n".to_owned()
        + &fault("leg = 0\nworn = \"90%\"\n")
        + "[workload.open]\nrate = 1\nduration = \"1 s\"\n\
           access = { addresses = \"uniform\", sizes = \"4 KiB\", mix = { read_percent = 50 } }";
    let cases = spec::parse("worn.toml", &text).expect("only the drive is wrong");
    let run = experiment::run(&cases[0], Path::new(""), None, &Stock::default(), |_| true);
    let error = run.expect_err("gp3 has no flash").to_string();
    assert_eq!(
        error,
        "system.faults: fault 1: leg 0: worn: it has no flash of known endurance: `rated_cycles` \
         in the parameters of its preset"
    );
}
