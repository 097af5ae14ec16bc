//! The result of a load for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use hemi_load::report::{Kind, LoadReport};
use hemi_workload::report::Spread;

use crate::commands::sim::time;

/// Returns the load's description, latencies and audit as text.
pub(super) fn report(report: &LoadReport) -> String {
    let mut text = String::new();
    let target = &report.setting.target;
    let cache = match target.direct {
        Some(true) => ", direct",
        Some(false) => ", through the page cache",
        None => "",
    };
    let title = match report.setting.title.as_str() {
        "" => "load",
        title => title,
    };
    let _ = writeln!(
        text,
        "{title} (seed {}) on {} ({}{cache}){}\n",
        report.setting.seed,
        target.name,
        target.kind,
        if report.partial { ": PARTIAL" } else { "" }
    );
    let _ = writeln!(text, "{}\n", latencies(report));
    if let Some(refusal) = &report.refusal {
        let _ = writeln!(text, "NO LATENCIES: {refusal}\n");
    }
    for error in &report.errors {
        let (count, operation, kind) = (error.count, error.operation, error.error);
        let first = time(error.first);
        let _ = writeln!(text, "FAILED: {count} × {operation}, {kind}, first after {first}");
    }
    let _ = write!(text, "{}", account(report));
    text
}

fn latencies(report: &LoadReport) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let columns = ["", "count", "IOPS", "MB/s", "mean", "σ", "p50", "p99", "p99.9", "max"];
    table.set_header(columns);
    let kinds = [
        ("reads", &report.reads),
        ("writes", &report.writes),
        ("flushes", &report.flushes),
        ("all", &report.all),
    ];
    for (name, kind) in kinds.into_iter().filter(|(_, kind)| kind.count > 0) {
        table.add_row(row(name, kind));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(name: &str, kind: &Kind) -> Vec<String> {
    let rates = [
        name.to_owned(),
        kind.count.to_string(),
        format!("{:.0}", kind.iops),
        format!("{:.1}", kind.bandwidth / 1e6),
    ];
    let times = match &kind.latency {
        Some(Spread { mean, standard_deviation, p50, p99, p999, max, .. }) => {
            [mean, standard_deviation, p50, p99, p999, max].map(|seconds| time(*seconds))
        }
        None => [(); 6].map(|()| "-".to_owned()),
    };
    rates.into_iter().chain(times).collect()
}

fn account(report: &LoadReport) -> String {
    let mut text = String::new();
    let lateness = &report.lateness;
    let _ = writeln!(
        text,
        "lateness   p50 {}, p99 {}, max {} (bound {})",
        time(lateness.p50),
        time(lateness.p99),
        time(lateness.max),
        time(report.setting.lateness_bound)
    );
    let _ = writeln!(
        text,
        "requests   {} issued, {} completed, {} failed, {} unfinished in {}",
        report.requests,
        report.completed,
        report.failed,
        report.unfinished,
        time(report.time)
    );
    if report.rounded > 0 {
        let block = report.setting.target.block;
        let _ = writeln!(
            text,
            "rounded    {} requests to whole blocks of {block} B; MB/s is of what was asked for",
            report.rounded
        );
    }
    let processor = &report.processor;
    let _ = writeln!(
        text,
        "processor  engine {:.0} % ({} of it spinning), process {}",
        processor.engine_share * 100.0,
        time(processor.spun),
        time(processor.process)
    );
    let audit = &report.audit;
    let _ = writeln!(
        text,
        "audit      {}: Little's law {:.3} = {:.3}, counts {}",
        if audit.passed { "passed" } else { "FAILED" },
        audit.little.0,
        audit.little.1,
        if audit.counts_hold { "hold" } else { "DO NOT HOLD" }
    );
    text
}
