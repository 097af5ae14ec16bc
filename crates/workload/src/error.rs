//! What is wrong with a workload.

use std::fmt::Display;

use super::traces::TraceError;

/// Why a workload cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A value that cannot be.
    #[error("{key} = {value}: {right}")]
    Impossible {
        /// Where in the spec, as in `phases[1].workload.closed.threads`.
        key: String,
        /// What was given.
        value: String,
        /// What would be right.
        right: String,
    },
    /// A trace that cannot be read, or does not fit.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl WorkloadError {
    /// `key` has this `value`; `right` says what would be right.
    pub fn new(key: &str, value: impl Display, right: impl Into<String>) -> WorkloadError {
        WorkloadError::Impossible {
            key: key.to_owned(),
            value: value.to_string(),
            right: right.into(),
        }
    }

    /// The same, where the key lies within `outer`.
    #[must_use]
    pub fn within(self, outer: impl Display) -> WorkloadError {
        match self {
            WorkloadError::Impossible { key, value, right } => {
                let dot = if key.starts_with('[') { "" } else { "." };
                WorkloadError::Impossible { key: format!("{outer}{dot}{key}"), value, right }
            }
            trace => trace,
        }
    }
}

/// Refuses a percentage that is none.
pub(crate) fn check_percent(key: &str, percent: f64) -> Result<(), WorkloadError> {
    if (0.0..=100.0).contains(&percent) {
        return Ok(());
    }
    Err(WorkloadError::new(key, percent, "write a percentage, 0 to 100"))
}

/// Refuses a count outside `1..=most`.
pub(crate) fn check_count(key: &str, count: u64, most: u64) -> Result<(), WorkloadError> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(WorkloadError::new(key, count, format!("write a number from 1 to {most}")))
}

/// Refuses a duration of nothing.
pub(crate) fn check_duration(key: &str, nanoseconds: u64) -> Result<(), WorkloadError> {
    if nanoseconds > 0 {
        return Ok(());
    }
    Err(WorkloadError::new(key, "0 ns", "write a duration above zero"))
}
