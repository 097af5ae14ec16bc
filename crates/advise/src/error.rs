//! Errors of advice.

use std::fmt::Display;

use hemi_drives::preset::PresetError;

/// The reason why no advice can be given.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// An option is impossible.
    #[error("{option} {value}: {right}")]
    Option {
        /// The option.
        option: &'static str,
        /// The value given.
        value: String,
        /// The values that are allowed.
        right: String,
    },
    /// All requests of the trace come at the same time.
    #[error("{file}: all requests come at the same time: check its format and unit of time")]
    NoTime {
        /// The trace.
        file: String,
    },
    /// A preset cannot be read.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// The file of prices is wrong.
    #[error("{file}: {problem}")]
    Prices {
        /// The file.
        file: String,
        /// The error with line and column, or the key at fault.
        problem: String,
    },
    /// No candidate is left.
    #[error("no candidate is left: {reasons}")]
    Nothing {
        /// The reasons, the commonest first.
        reasons: String,
    },
}

impl AdviseError {
    /// Returns the error for an option's value; `right` describes what is allowed.
    pub fn option(
        option: &'static str,
        value: impl Display,
        right: impl Into<String>,
    ) -> AdviseError {
        AdviseError::Option { option, value: value.to_string(), right: right.into() }
    }
}
