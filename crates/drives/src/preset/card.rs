//! A preset's card: published figures to compare the model with.

use serde::Deserialize;

use hemi_units::{Size, Time};

/// One published figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Description of the figure.
    pub figure: String,
    /// The load under which it was measured.
    pub load: Load,
    /// The quantity measured.
    pub measure: Measure,
    /// The value, in requests per second, bytes per second, seconds or watts.
    pub published: f64,
    /// Place of publication.
    pub source: String,
    /// True if a parameter was fitted to this figure.
    pub fitted: bool,
}

impl Figure {
    /// Returns the deviation allowed to the model as a share of the published figure: 15 %, or
    /// 30 % for a latency.
    pub fn tolerance(&self) -> f64 {
        if self.measure.is_latency() { 0.3 } else { 0.15 }
    }
}

/// A load on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Bytes of each request.
    pub size: Size,
    /// Pattern of the requests.
    pub pattern: Pattern,
    /// Requests in flight; at least 1.
    pub queue_depth: u32,
    /// Part of the drive used, counted from its beginning; all of it if absent.
    pub span: Option<Size>,
    /// State of the drive before the load.
    #[serde(default)]
    pub precondition: Precondition,
    /// Set for a short burst: the load reads and writes at most this many bytes, and all of it
    /// is measured, starting with the first request. Divided by the scale of a drive whose
    /// flash is scaled.
    pub bytes: Option<Size>,
    /// Time that the load runs before the measurement, if a few thousand requests are not
    /// enough, for example to use up credit or a cache. Excludes `bytes`.
    pub after: Option<Time>,
}

/// The pattern of a load's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Anywhere, aligned to the request size.
    Random,
    /// Each request starts behind the one before.
    Sequential,
}

/// The state of a drive before a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// Fresh out of the box.
    #[default]
    None,
    /// Written once, sequentially, as far as the SLC cache reaches; without such a cache as after
    /// `sequential`.
    Cached,
    /// Written once, sequentially.
    Sequential,
    /// Used by the load itself until the rate no longer changed.
    Steady,
}

/// A quantity to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Requests per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// Mean latency, seconds.
    Mean,
    /// Median latency, seconds.
    P50,
    /// 99th percentile of the latency, seconds.
    P99,
    /// Longest latency, seconds.
    Max,
    /// Standard deviation of the latency, seconds.
    Stddev,
    /// Power, watts.
    Watts,
}

impl Measure {
    /// Returns true if the quantity is a latency.
    pub fn is_latency(self) -> bool {
        !matches!(self, Measure::Iops | Measure::Bandwidth | Measure::Watts)
    }
}
