//! The options of legs and of TLS, their bounds, and why options are refused.

use std::path::PathBuf;

pub mod bounds;
pub mod legs;
pub mod tls;

/// The reason why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong kind.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's error, with the line.
        source: Box<toml::de::Error>,
    },
    /// A number is outside its range.
    #[error(
        "{key} = {value} is out of range: allowed are {lowest} to {highest} (default {default})"
    )]
    Range {
        /// The option.
        key: String,
        /// Its value.
        value: String,
        /// Lowest allowed.
        lowest: String,
        /// Highest allowed.
        highest: String,
        /// Default.
        default: String,
    },
    /// An option does not make sense, alone or beside another.
    #[error("{key}: {reason}")]
    Conflict {
        /// The option.
        key: String,
        /// The reason, and the way out.
        reason: String,
    },
    /// A `KEY=VALUE` of the command line was refused.
    #[error("--set {assignment}: {reason}")]
    Override {
        /// The assignment as given.
        assignment: String,
        /// The reason.
        reason: String,
    },
}

impl ConfigError {
    /// Makes the error of an option that does not make sense: its key, what is wrong and the way out.
    pub fn conflict(key: impl Into<String>, reason: impl Into<String>) -> ConfigError {
        ConfigError::Conflict { key: key.into(), reason: reason.into() }
    }
}
