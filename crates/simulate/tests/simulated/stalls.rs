//! The published latency experiments on one leg of a mirror: clients hardly notice.

use std::path::Path;

use hemi_simulate::experiment;
use hemi_simulate::report::Report;
use hemi_simulate::spec;
use hemi_simulate::stock::Stock;

/// Runs at a sixth of the published length: every delay occurs many times, and limits have time
/// to adapt.
fn run(name: &str, leg: usize, ledger: bool) -> Report {
    let text = format!(
        r#"
title = "{name} on leg {leg}"
[system]
legs = ["gp3-16k", "gp3"]
volume = "1 GiB"
[system.engine]
ledger = {ledger}
[[system.faults]]
leg = {leg}
at = "5 s"
experiment = "{name}"
time_scale = 0.17
[workload.open]
rate = 300
duration = "160 s"
access = {{ addresses = "uniform", sizes = "4 KiB", mix = {{ read_percent = 50 }} }}
"#
    );
    let cases = spec::parse("stalls.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let stock = Stock::default();
    experiment::run(&cases[0], Path::new(""), Some(3), &stock, |_| true)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A healthy leg of this model itself takes up to 60 ms at times at this length.
#[test]
fn clients_hardly_notice_the_published_experiments() {
    for name in ["ebs-sustained", "ebs-increasing", "ebs-intermittent", "ebs-decreasing"] {
        for (leg, ledger) in [(0, false), (0, true), (1, false), (1, true)] {
            let report = run(name, leg, ledger);
            let (reads, writes) = (&report.reads.latency, &report.writes.latency);
            let longest = reads.max.max(writes.max);
            println!("{name} leg {leg} ledger {ledger}: {longest} {} {}", reads.p999, writes.p999);
            assert!(longest < 0.06, "{name}, leg {leg}, ledger {ledger}: {longest} s");
            let high = reads.p999.max(writes.p999);
            assert!(high < 0.025, "{name}, leg {leg}, ledger {ledger}: {high} s for one in 1,000");
        }
    }
}
