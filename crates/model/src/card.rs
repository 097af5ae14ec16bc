//! A preset's card: each published figure of a drive beside the model's.

use std::path::Path;

use hemi_core::units::{Instant, SECOND};
use hemi_drives::drive::Drive;
use hemi_drives::preset::{Figure, Load, Measure, Pattern, Preset, PresetError};

use crate::figures::Figures;
use crate::run::Run;
use crate::system::System;
use crate::workload::error::WorkloadError;
use crate::workload::spec::WorkloadSpec;

/// Requests before what is measured begins, for each one of the queue depth …
const WARM_UP: u64 = 64;
/// … and at least.
const WARM_UP_LEAST: u64 = 2_000;
/// Requests measured, or as many as come in [`LONGEST`].
const MEASURED: u64 = 200_000;
const LONGEST: u64 = 120 * SECOND;

/// Why a figure could not be had of the model.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// No drive can be made of the preset.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The load does not fit the drive.
    #[error("card: load: {0}")]
    Load(#[from] WorkloadError),
}

/// What the model gives for a figure of the preset's card, in the figure's unit.
///
/// # Errors
/// See [`CardError`].
pub fn model(preset: &Preset, figure: &Figure, seed: u64) -> Result<f64, CardError> {
    let mut drive = preset.drive(seed)?;
    drive.precondition(figure.load.precondition, seed);
    let Load { read_percent, size, pattern, queue_depth, span, .. } = figure.load;
    let span = span.map_or(drive.sectors() * 512, |span| span.0).min(drive.sectors() * 512);
    let addresses = match pattern {
        Pattern::Random => "uniform",
        Pattern::Sequential => "sequential",
    };
    let warm_up = WARM_UP_LEAST.max(WARM_UP * u64::from(queue_depth));
    let spec = format!(
        "[[phases]]
        measured = false
        requests = {warm_up}
        workload.closed.threads = 1
        workload.closed.queue_depth = {queue_depth}
        workload.closed.access.addresses = \"{addresses}\"
        workload.closed.access.sizes = \"{size} B\"
        workload.closed.access.span = \"{span} B\"
        workload.closed.access.mix.read_percent = {read_percent}
        [[phases]]
        requests = {MEASURED}
        duration = \"{longest} ns\"",
        size = size.0,
        span = span / size.0.max(512) * size.0.max(512),
        longest = LONGEST,
    );
    let spec: WorkloadSpec = toml::from_str(&spec).expect("a card's load is a workload");
    let mut workload = spec.build(drive.sectors(), seed, Path::new(""))?;
    let before = drive.counters();
    let mut system = System::Single(drive);
    let mut run = Run::new(SECOND);
    run.until(Instant(24 * 3600 * SECOND), &mut system, &mut workload, |_| true);
    let joules = system.counters().energy - before.energy;
    let watts = joules / (run.now().0 as f64 / SECOND as f64);
    Ok(measured(figure.measure, run.figures(), watts))
}

fn measured(measure: Measure, figures: &Figures, watts: f64) -> f64 {
    let all = &figures.all;
    let quantile = |q| all.histogram.value_at_quantile(q) as f64 / SECOND as f64;
    match measure {
        Measure::Iops => figures.rate(all),
        Measure::Bandwidth => figures.bandwidth(all),
        Measure::Mean => all.moments().mean(),
        Measure::P50 => quantile(0.5),
        Measure::P99 => quantile(0.99),
        Measure::Max => all.moments().max as f64 / SECOND as f64,
        Measure::Stddev => all.moments().standard_deviation(),
        Measure::Watts => watts,
    }
}
