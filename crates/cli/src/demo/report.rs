//! The output of the demonstration: its introduction, its table, and a sentence computed from it.

use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::fio::{DEPTH, Figures, PACE};
use super::scenario::{Scenario, Setting};
use super::{DELAY, FREEZE, POLICIES};

/// The result of one run.
pub(super) struct Row {
    pub(super) policy: &'static str,
    pub(super) scenario: Scenario,
    pub(super) figures: Figures,
    pub(super) exposure_peak: u64,
}

/// Describes the runs to come.
pub(super) fn introduction(setting: &Setting) -> String {
    let by = if setting.from_outside {
        "nbdkit delays and freezes them, outside hemi"
    } else {
        "`hemi inject` delays and freezes them"
    };
    format!(
        "A volume on two file-backed legs, the second {} ms slower than the first; {by}.\n\
         fio writes 4 KiB blocks at random through NBD, up to {PACE} a second, {DEPTH} at once, \
         and reads\nall of them back, verified. {} runs of {} s:",
        DELAY.as_millis(),
        POLICIES.len() * Scenario::ALL.len(),
        setting.seconds,
    )
}

/// Returns the table of all runs.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "policy",
        "scenario",
        "IOPS",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "longest stall ms",
        "exposure peak MiB",
        "verified MiB",
    ]);
    for row in rows {
        let figures = &row.figures;
        table.add_row([
            row.policy.to_owned(),
            row.scenario.label().to_owned(),
            format!("{:.0}", figures.iops),
            milliseconds(figures.p50),
            milliseconds(figures.p99),
            milliseconds(figures.p999),
            milliseconds(figures.max),
            milliseconds(figures.longest_stall),
            mebibytes(row.exposure_peak),
            mebibytes(figures.verified_bytes),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn milliseconds(time: Duration) -> String {
    let value = time.as_secs_f64() * 1000.0;
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Returns the sentence that sums up the table.
pub(super) fn conclusion(rows: &[Row]) -> String {
    let worst = |policy: &str| {
        rows.iter()
            .filter(|row| row.policy == policy && row.scenario != Scenario::Calm)
            .map(|row| row.figures.max)
            .max()
            .unwrap_or_default()
    };
    let calm = |policy: &str| {
        rows.iter()
            .find(|row| row.policy == policy && row.scenario == Scenario::Calm)
            .map_or(0.0, |row| row.figures.iops)
    };
    let ours = worst("first");
    let verified: u64 = rows.iter().map(|row| row.figures.verified_bytes).sum();
    let hidden = if ours < FREEZE / 2 {
        "a leg that stopped answering"
    } else {
        "NOT hidden on this machine: a leg that stopped answering"
    };
    format!(
        "Policy first: {hidden} for {} s, whichever it was, held no write longer than {} ms, \
         where the plain mirror (all) held one for {} ms and write-behind for {} ms; beside the \
         slow leg it wrote {:.0} blocks a second, the others {:.0} and {:.0}; all {} MiB written \
         read back right.",
        FREEZE.as_secs(),
        milliseconds(ours),
        milliseconds(worst("all")),
        milliseconds(worst("write-behind")),
        calm("first"),
        calm("all"),
        calm("write-behind"),
        mebibytes(verified),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(first_max: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        for (policy, max) in POLICIES.into_iter().zip([first_max, 2021, 2005]) {
            for scenario in Scenario::ALL {
                let max = if scenario == Scenario::Calm { 25 } else { max };
                let figures = Figures {
                    iops: 599.6,
                    p50: Duration::from_micros(120),
                    p99: Duration::from_millis(2),
                    p999: Duration::from_millis(9),
                    max: Duration::from_millis(max),
                    longest_stall: Duration::from_millis(max),
                    verified_bytes: 3 << 20,
                };
                rows.push(Row { policy, scenario, figures, exposure_peak: 1 << 20 });
            }
        }
        rows
    }

    #[test]
    fn the_sentence_is_computed_from_the_rows() {
        let text = conclusion(&rows(47));
        assert!(text.contains("no write longer than 47 ms"), "{text}");
        assert!(text.contains("for 2021 ms") && text.contains("27.0 MiB"), "{text}");
        assert!(!text.contains("NOT"), "{text}");
    }

    #[test]
    fn a_freeze_that_was_not_hidden_is_said() {
        assert!(conclusion(&rows(2010)).contains("NOT hidden"));
    }

    #[test]
    fn every_run_has_a_row() {
        let text = table(&rows(47));
        for row in rows(47) {
            assert!(text.contains(row.policy) && text.contains(row.scenario.label()));
        }
        assert!(text.contains("0.12") && text.contains("600"), "{text}");
    }
}
