//! A preset's card: each published figure of a drive beside the model's figure.

use std::path::Path;

use hemi_drives::drive::Drive;
use hemi_drives::preset::{Deviation, Figure, Load, Measure, Pattern, Preset, PresetError};
use hemi_units::{Instant, SECOND, SECTOR_BYTES};

use crate::run::Run;
use crate::stock::Stock;
use crate::system::System;
use hemi_workload::error::WorkloadError;
use hemi_workload::figures::Figures;
use hemi_workload::spec::WorkloadSpec;

/// Requests before the measurement, for each request of the queue depth.
const WARM_UP: u64 = 64;
/// Least number of requests before the measurement.
const WARM_UP_LEAST: u64 = 2_000;
/// Requests measured, or as many as arrive in [`LONGEST`].
const MEASURED: u64 = 200_000;
const LONGEST: u64 = 120 * SECOND;

/// The reason why the model has no value for a figure.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// No drive can be created from the preset.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The load does not fit the drive.
    #[error("card: load: {0}")]
    Load(#[from] WorkloadError),
}

/// A figure of a card and the model's value.
#[derive(Clone, Debug)]
pub struct Row {
    /// The published figure.
    pub figure: Figure,
    /// The model's value in the figure's unit.
    pub model: f64,
}

impl Row {
    /// Returns the comparison of the two.
    pub fn deviation(&self) -> Deviation {
        Deviation::of(&self.figure, self.model)
    }

    /// Returns the model's deviation as a share of the published figure: 0.1 for 10 % more.
    pub fn off(&self) -> f64 {
        self.deviation().off()
    }

    /// Returns true if the deviation is within the model's tolerance: 15 %, or 30 % for a
    /// latency.
    pub fn is_within(&self) -> bool {
        self.deviation().is_within()
    }
}

/// Returns the rows of a preset's whole card. Drives come from `stock`; `told` is called with
/// each figure before its run.
///
/// # Errors
/// See [`CardError`].
pub fn rows(
    preset: &Preset,
    stock: &Stock,
    seed: u64,
    mut told: impl FnMut(&Figure),
) -> Result<Vec<Row>, CardError> {
    let row = |figure: &Figure| {
        told(figure);
        Ok(Row { figure: figure.clone(), model: model(preset, figure, stock, seed)? })
    };
    preset.card.iter().map(row).collect()
}

/// Returns the model's value for a figure of the preset's card, in the figure's unit.
///
/// # Errors
/// See [`CardError`].
pub fn model(preset: &Preset, figure: &Figure, stock: &Stock, seed: u64) -> Result<f64, CardError> {
    let drive = stock.of(preset, figure.load.precondition, seed)?;
    let spec = phases(&figure.load, drive.sectors() * SECTOR_BYTES, preset.flash_scale()?);
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

/// Returns the load as phases: a warm-up and a measurement, or only a burst.
fn phases(load: &Load, capacity: u64, flash_scale: u64) -> String {
    let size = load.size.0;
    let span = load.span.map_or(capacity, |span| span.0).min(capacity) / size * size;
    let addresses = match load.pattern {
        Pattern::Random => "uniform",
        Pattern::Sequential => "sequential",
    };
    let access = format!(
        "workload.closed.threads = 1
        workload.closed.queue_depth = {queue_depth}
        workload.closed.access.addresses = \"{addresses}\"
        workload.closed.access.sizes = \"{size} B\"
        workload.closed.access.span = \"{span} B\"
        workload.closed.access.mix.read_percent = {read_percent}",
        queue_depth = load.queue_depth,
        read_percent = load.read_percent,
    );
    if let Some(bytes) = load.bytes {
        let requests = (bytes.0 / flash_scale / size).max(1);
        return format!("[[phases]]\nrequests = {requests}\n{access}");
    }
    let warm_up = match load.after {
        Some(time) => format!("duration = \"{} ns\"", time.0),
        None => {
            let requests = WARM_UP_LEAST.max(WARM_UP * u64::from(load.queue_depth));
            format!("requests = {requests}")
        }
    };
    format!(
        "[[phases]]
        measured = false
        {warm_up}
        {access}
        [[phases]]
        requests = {MEASURED}
        duration = \"{LONGEST} ns\""
    )
}

fn measured(measure: Measure, figures: &Figures, watts: f64) -> f64 {
    let all = &figures.all;
    let quantile = |share| all.quantile(share) as f64 / SECOND as f64;
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
