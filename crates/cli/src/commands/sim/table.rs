//! Reports as tables for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use hemi_drives::drive::Failed;
use hemi_simulate::described::Described;
use hemi_simulate::report::{LegReport, Report, Summary};
use hemi_simulate::spec::Case;
use hemi_workload::report::Spread;

/// Returns all cases: their choices and latencies, then the figures of each leg.
pub(super) fn cases(reports: &[Report]) -> String {
    let mut text = String::new();
    let Some(first) = reports.first() else { return text };
    let _ = writeln!(text, "{} (seed {}; simulated)\n", first.title, first.seed);
    let choices: Vec<&str> = first.choices.iter().map(|(key, _)| last(key)).collect();
    let mut table = new(
        &choices,
        &["", "IOPS", "MB/s", "mean", "σ", "p50", "p99", "p99.9", "max", "exposed MB"],
    );
    for report in reports {
        let kinds = [("reads", &report.reads), ("writes", &report.writes)];
        let kinds = kinds.into_iter().chain([("flushes", &report.flushes)]);
        for (kind, summary) in kinds.filter(|(_, summary)| summary.count > 0) {
            let exposed = format!("{:.1}", report.exposure_peak as f64 / 1e6);
            table.add_row(row(report, kind, latencies(summary), exposed));
        }
    }
    let _ = writeln!(text, "{}\n", right(table, choices.len()));
    let mut table = new(
        &choices,
        &[
            "leg",
            "flash ÷",
            "reads",
            "writes",
            "of reads",
            "of writes",
            "busy",
            "WA",
            "erases",
            "J",
        ],
    );
    for report in reports {
        for leg in &report.legs {
            table.add_row(leg_row(report, leg));
        }
    }
    let _ = writeln!(text, "{}", right(table, choices.len()));
    if reports.iter().any(|report| report.failed.is_some()) {
        let _ = writeln!(text, "\n{}", right(faults(reports, &choices), choices.len()));
    }
    for remark in remarks(reports) {
        let _ = writeln!(text, "{remark}");
    }
    text
}

/// Returns what a reader has to know of the drives: warnings, and models that nothing holds.
fn remarks(reports: &[Report]) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    let mut add = |remark: String| {
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    };
    for report in reports {
        for warning in &report.warnings {
            add(format!("warning: {warning}"));
        }
        for leg in &report.legs {
            let Described { preset, not_validated, .. } = &leg.drive;
            if !not_validated.is_empty() {
                add(format!("{preset}: {} not validated", not_validated.join(" and ")));
            }
        }
    }
    remarks
}

/// Returns what became of the clients' requests and of the legs under faults.
fn faults(reports: &[Report], choices: &[&str]) -> Table {
    let columns = [
        "failed",
        "reads",
        "writes",
        "flushes",
        "trims",
        "state",
        "outs",
        "out for",
        "lacks MB",
        "worn",
        "worn out in",
    ];
    let mut table = new(choices, &columns);
    let none = || String::from("-");
    let counts = |failed: Failed| {
        [failed.reads, failed.writes, failed.flushes, failed.trims].map(|count| count.to_string())
    };
    for report in reports {
        let choices = report.choices.iter().map(|(_, value)| value.clone());
        let mut row: Vec<String> = choices.clone().chain([String::from("clients")]).collect();
        row.extend(counts(report.failed.unwrap_or_default()));
        table.add_row(row);
        for leg in &report.legs {
            let Some(health) = leg.health else { continue };
            let mut row: Vec<String> = choices.clone().chain([leg.drive.preset.clone()]).collect();
            row.extend(counts(health.failed));
            match health.condition {
                Some(leg) => row.extend([
                    leg.state.to_owned(),
                    leg.outs.to_string(),
                    if leg.outs == 0 { none() } else { time(leg.out_time) },
                    format!("{:.1}", leg.owed_bytes as f64 / 1e6),
                ]),
                None => row.extend([none(), none(), none(), none()]),
            }
            match leg.wear {
                Some(wear) => row.extend([
                    format!("{:.3} %", wear.used * 100.0),
                    wear.lasts.map_or_else(none, years),
                ]),
                None => row.extend([none(), none()]),
            }
            table.add_row(row);
        }
    }
    table
}

/// Formats a long time in seconds, in years, days or hours.
fn years(seconds: f64) -> String {
    const HOUR: f64 = 3600.0;
    const DAY: f64 = 24.0 * HOUR;
    const YEAR: f64 = 365.25 * DAY;
    match seconds {
        0.0 => String::from("now"),
        s if s >= YEAR => format!("{:.1} years", s / YEAR),
        s if s >= DAY => format!("{:.1} days", s / DAY),
        s if s >= HOUR => format!("{:.1} hours", s / HOUR),
        s => time(s),
    }
}

/// Returns the list of cases: number, seed, and the values chosen by the sweep.
pub(super) fn listed(cases: &[Case], seed: impl Fn(&Case) -> u64) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let choices = cases.first().map(|case| case.choices.iter().map(|(key, _)| key.clone()));
    let columns = ["case", "seed"].map(str::to_owned).into_iter();
    table.set_header(columns.chain(choices.into_iter().flatten()));
    for case in cases {
        let numbers = [case.number.to_string(), seed(case).to_string()];
        table.add_row(numbers.into_iter().chain(case.choices.iter().map(|(_, v)| v.clone())));
    }
    format!("{table}\n")
}

/// Returns the last part of a key: `rate` of `workload.open.rate`.
fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

fn new(choices: &[&str], columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(choices.iter().chain(columns));
    table
}

fn right(mut table: Table, choices: usize) -> Table {
    for column in table.column_iter_mut().skip(choices + 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(report: &Report, kind: &str, mut cells: Vec<String>, exposed: String) -> Vec<String> {
    let mut row: Vec<String> = report.choices.iter().map(|(_, value)| value.clone()).collect();
    row.push(kind.to_owned());
    row.append(&mut cells);
    row.push(exposed);
    row
}

fn latencies(summary: &Summary) -> Vec<String> {
    let Spread { mean, standard_deviation, p50, p99, p999, max, .. } = summary.latency;
    let rates = [format!("{:.0}", summary.iops), format!("{:.1}", summary.bandwidth / 1e6)];
    let times = [mean, standard_deviation, p50, p99, p999, max].map(time);
    rates.into_iter().chain(times).collect()
}

fn leg_row(report: &Report, leg: &LegReport) -> Vec<String> {
    let mut row: Vec<String> = report.choices.iter().map(|(_, value)| value.clone()).collect();
    row.extend([
        leg.drive.preset.clone(),
        leg.drive.flash_scale.to_string(),
        leg.reads.to_string(),
        leg.writes.to_string(),
        format!("{:.0} %", leg.read_share * 100.0),
        format!("{:.0} %", leg.write_share * 100.0),
        format!("{:.0} %", leg.busy * 100.0),
        format!("{:.2}", leg.write_amplification),
        leg.erases.to_string(),
        format!("{:.0}", leg.energy),
    ]);
    row
}

/// Formats a time in seconds with three digits and a unit.
pub(crate) fn time(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "µs"),
    };
    let digits = if number >= 100.0 {
        0
    } else if number >= 10.0 {
        1
    } else {
        2
    };
    format!("{number:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::{time, years};

    #[test]
    fn times_have_three_digits_and_a_unit() {
        assert_eq!(time(0.000_081_24), "81.2 µs");
        assert_eq!(time(0.001_5), "1.50 ms");
        assert_eq!(time(123.4), "123 s");
        assert_eq!(time(0.0), "0.00 µs");
        assert_eq!(years(1e8), "3.2 years");
        assert_eq!(years(86_400.0 * 1.5), "1.5 days");
        assert_eq!(years(9000.0), "2.5 hours");
        assert_eq!(years(90.0), "90.0 s");
        assert_eq!(years(0.0), "now");
    }
}
