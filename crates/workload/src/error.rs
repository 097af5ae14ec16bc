//! Errors of workloads.

use std::fmt::Display;

use super::traces::TraceError;

/// The reason why a workload cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A value is impossible.
    #[error("{key} = {value}: {right}")]
    Impossible {
        /// Path of the key in the spec, for example `phases[1].workload.closed.threads`.
        key: String,
        /// The value given.
        value: String,
        /// The values that are allowed.
        right: String,
    },
    /// A trace cannot be read or does not fit.
    #[error("{key}: {error}")]
    Trace {
        /// Path of the key in the spec that names the trace.
        key: String,
        /// The error.
        error: Box<TraceError>,
    },
}

impl From<TraceError> for WorkloadError {
    fn from(error: TraceError) -> WorkloadError {
        WorkloadError::Trace { key: "trace".to_owned(), error: Box::new(error) }
    }
}

impl WorkloadError {
    /// Creates an error for the `value` of `key`; `right` describes the allowed values.
    pub fn new(key: &str, value: impl Display, right: impl Into<String>) -> WorkloadError {
        WorkloadError::Impossible {
            key: key.to_owned(),
            value: value.to_string(),
            right: right.into(),
        }
    }

    /// Returns the path of the key that the error is about.
    pub fn key(&self) -> &str {
        match self {
            WorkloadError::Impossible { key, .. } | WorkloadError::Trace { key, .. } => key,
        }
    }

    /// Returns the error with its key placed within `outer`.
    #[must_use]
    pub fn within(mut self, outer: impl Display) -> WorkloadError {
        let (WorkloadError::Impossible { key, .. } | WorkloadError::Trace { key, .. }) = &mut self;
        let dot = if key.is_empty() || key.starts_with('[') { "" } else { "." };
        *key = format!("{outer}{dot}{key}");
        self
    }
}

/// Returns an error unless `percent` is a percentage.
pub(crate) fn check_percent(key: &str, percent: f64) -> Result<(), WorkloadError> {
    if (0.0..=100.0).contains(&percent) {
        return Ok(());
    }
    Err(WorkloadError::new(key, percent, "write a percentage, 0 to 100"))
}

/// Returns an error unless `count` is in `1..=most`.
pub(crate) fn check_count(key: &str, count: u64, most: u64) -> Result<(), WorkloadError> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(WorkloadError::new(key, count, format!("write a number from 1 to {most}")))
}

/// Returns an error unless a list has 1 to `most` entries.
pub(crate) fn check_length(key: &str, length: usize, most: u64) -> Result<(), WorkloadError> {
    if (1..=most).contains(&(length as u64)) {
        return Ok(());
    }
    let right = format!("write a list of 1 to {most} entries");
    Err(WorkloadError::new(key, format!("a list of {length}"), right))
}

/// Returns an error if the duration is zero.
pub(crate) fn check_duration(key: &str, nanoseconds: u64) -> Result<(), WorkloadError> {
    if nanoseconds > 0 {
        return Ok(());
    }
    Err(WorkloadError::new(key, "0 ns", "write a duration above zero"))
}
