//! A preset's card: what was published of the drive, to hold the model against.

use serde::Deserialize;

use hemi_units::{Size, Time};

/// One published figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What it is, for people.
    pub figure: String,
    /// The load under which it was measured.
    pub load: Load,
    /// What was measured.
    pub measure: Measure,
    /// The figure, in requests a second, bytes a second, seconds or watts.
    pub published: f64,
    /// Where it was published.
    pub source: String,
    /// Whether a parameter was fitted to this very figure.
    pub fitted: bool,
}

/// A load on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Share of reads, 0 to 100.
    pub read_percent: u8,
    /// Bytes of each request.
    pub size: Size,
    /// Where the requests go.
    pub pattern: Pattern,
    /// Requests under way at once; at least 1.
    pub queue_depth: u32,
    /// How much of the drive, from its beginning, the load goes over; all of it if left out.
    pub span: Option<Size>,
    /// What happened to the drive before.
    #[serde(default)]
    pub precondition: Precondition,
    /// The load is a short burst: at most so much is read and written, from its first request
    /// on, and all of it is measured. Of a drive whose flash is scaled, the share that is left.
    pub bytes: Option<Size>,
    /// How long the load runs before it is measured, where a few thousand requests are not
    /// enough: until credit or a cache is used up. Not with `bytes`.
    pub after: Option<Time>,
}

/// Where a load's requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Anywhere, aligned to their size.
    Random,
    /// Each behind the one before.
    Sequential,
}

/// What happened to a drive before it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// Nothing: fresh out of the box.
    #[default]
    None,
    /// It was written once, sequentially.
    Sequential,
    /// The load itself ran until its rate no longer changed.
    Steady,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Requests a second.
    Iops,
    /// Bytes a second.
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
    /// Whether it is a latency.
    pub fn is_latency(self) -> bool {
        !matches!(self, Measure::Iops | Measure::Bandwidth | Measure::Watts)
    }
}
