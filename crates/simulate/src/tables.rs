//! Results as Parquet tables, so that many runs can be queried together.
//!
//! There are three files: `cases.parquet` (a row for each case), `intervals.parquet` (a row for
//! each interval) and `latencies.parquet` (a row for each histogram bucket, from which
//! percentiles of several runs can be merged exactly). The column `case` joins them.

use std::fs;
use std::path::Path;

use hemi_workload::table::{TableError, TableFile};
use parquet::record::RecordWriter;
use parquet_derive::ParquetRecordWriter;

use crate::report::{Report, Summary};

#[derive(ParquetRecordWriter)]
struct CaseRow<'a> {
    case: i64,
    title: &'a str,
    choices: String,
    seed: i64,
    scale: i64,
    measured_seconds: f64,
    iops: f64,
    bytes_per_second: f64,
    mean_seconds: f64,
    standard_deviation_seconds: f64,
    p50_seconds: f64,
    p99_seconds: f64,
    p999_seconds: f64,
    max_seconds: f64,
    exposure_peak_bytes: i64,
    failed_reads: i64,
    failed_writes: i64,
    failed_flushes: i64,
    failed_trims: i64,
}

#[derive(ParquetRecordWriter)]
struct IntervalRow {
    case: i64,
    start_seconds: f64,
    iops: f64,
    bytes_per_second: f64,
    mean_seconds: f64,
    standard_deviation_seconds: f64,
    max_seconds: f64,
    exposure_bytes: i64,
    exposure_age_seconds: f64,
    records_per_1000_writes: f64,
    page_writes_per_1000_writes: f64,
    moves_per_1000_writes: f64,
    failed: i64,
}

#[derive(ParquetRecordWriter)]
struct LatencyRow {
    case: i64,
    operation: &'static str,
    nanoseconds: i64,
    count: i64,
}

/// Writes the tables into `folder`, which is created if it does not exist.
///
/// # Errors
/// See [`TableError`].
pub fn write(folder: &Path, reports: &[Report]) -> Result<(), TableError> {
    fs::create_dir_all(folder).map_err(|error| TableError::io(folder, error))?;
    let numbered = || (0_i64..).zip(reports);
    let cases: Vec<CaseRow<'_>> = numbered().map(|(case, report)| case_row(case, report)).collect();
    table(folder, "cases", cases.as_slice())?;
    let intervals: Vec<IntervalRow> = numbered().flat_map(interval_rows).collect();
    table(folder, "intervals", intervals.as_slice())?;
    let latencies: Vec<LatencyRow> = numbered()
        .flat_map(|(case, report)| {
            let kinds =
                [("read", &report.reads), ("write", &report.writes), ("flush", &report.flushes)];
            kinds.into_iter().flat_map(move |(kind, summary)| latency_rows(case, kind, summary))
        })
        .collect();
    table(folder, "latencies", latencies.as_slice())
}

fn case_row(case: i64, report: &Report) -> CaseRow<'_> {
    let choices = report.choices.iter().map(|(key, value)| format!("{key} = {value}"));
    let all = &report.all;
    let failed = report.failed.unwrap_or_default();
    CaseRow {
        case,
        title: &report.title,
        choices: choices.collect::<Vec<_>>().join(", "),
        seed: report.seed as i64,
        scale: report.scale as i64,
        measured_seconds: report.measured,
        iops: all.iops,
        bytes_per_second: all.bandwidth,
        mean_seconds: all.latency.mean,
        standard_deviation_seconds: all.latency.standard_deviation,
        p50_seconds: all.latency.p50,
        p99_seconds: all.latency.p99,
        p999_seconds: all.latency.p999,
        max_seconds: all.latency.max,
        exposure_peak_bytes: report.exposure_peak as i64,
        failed_reads: failed.reads as i64,
        failed_writes: failed.writes as i64,
        failed_flushes: failed.flushes as i64,
        failed_trims: failed.trims as i64,
    }
}

fn interval_rows((case, report): (i64, &Report)) -> impl Iterator<Item = IntervalRow> {
    report.intervals.iter().map(move |interval| IntervalRow {
        case,
        start_seconds: interval.start,
        iops: interval.iops,
        bytes_per_second: interval.bandwidth,
        mean_seconds: interval.mean,
        standard_deviation_seconds: interval.standard_deviation,
        max_seconds: interval.max,
        exposure_bytes: interval.exposure_bytes as i64,
        exposure_age_seconds: interval.exposure_age,
        records_per_1000_writes: interval.records_per_1000_writes,
        page_writes_per_1000_writes: interval.page_writes_per_1000_writes,
        moves_per_1000_writes: interval.moves_per_1000_writes,
        failed: interval.failed as i64,
    })
}

fn latency_rows(
    case: i64,
    operation: &'static str,
    summary: &Summary,
) -> impl Iterator<Item = LatencyRow> {
    summary.latency.histogram.iter().map(move |&(nanoseconds, count)| LatencyRow {
        case,
        operation,
        nanoseconds: nanoseconds as i64,
        count: count as i64,
    })
}

fn table<R>(folder: &Path, name: &str, rows: &[R]) -> Result<(), TableError>
where
    for<'a> &'a [R]: RecordWriter<R>,
{
    let mut table = TableFile::create::<R>(&folder.join(format!("{name}.parquet")))?;
    table.write(rows)?;
    table.finish()
}
