//! The `[run]` section of a spec: length and resolution of a run.

use hemi_units::{SECOND, Time};
use serde::Deserialize;

/// The `[run]` section.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Length of the intervals for which figures are also given. Default 1 s.
    pub interval: Time,
    /// Virtual time after which the run ends, whatever the workload still issues. Default 24 h.
    pub limit: Time,
}

impl Default for RunSpec {
    fn default() -> RunSpec {
        RunSpec { interval: Time(SECOND), limit: Time(24 * 3600 * SECOND) }
    }
}
