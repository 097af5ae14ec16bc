//! How long a run lasts and how finely it is reported: the `[run]` section of a spec.

use hemi_units::{SECOND, Time};
use serde::Deserialize;

/// `[run]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Figures are also given for each interval of this length. Default 1 s.
    pub interval: Time,
    /// Ends the run after so much virtual time, whatever the workload still wants. Default
    /// 24 h.
    pub limit: Time,
}

impl Default for RunSpec {
    fn default() -> RunSpec {
        RunSpec { interval: Time(SECOND), limit: Time(24 * 3600 * SECOND) }
    }
}
