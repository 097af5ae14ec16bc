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
    /// Parts of the configuration are refused. Each has a line, those of a file with their place and in its
    /// order.
    #[error("{}", in_lines(.0))]
    Faults(Vec<String>),
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

    /// Returns the option that is refused, if it is a single one.
    pub fn key(&self) -> Option<&str> {
        match self {
            ConfigError::Range { key, .. } | ConfigError::Conflict { key, .. } => Some(key),
            ConfigError::Read { .. } | ConfigError::Faults(_) | ConfigError::Override { .. } => {
                None
            }
        }
    }

    /// Gives the option that is refused another name.
    pub fn rename(&mut self, name: String) {
        if let ConfigError::Range { key, .. } | ConfigError::Conflict { key, .. } = self {
            *key = name;
        }
    }
}

fn in_lines(faults: &[String]) -> String {
    match faults {
        [fault] => fault.clone(),
        faults => format!("{} faults:\n{}", faults.len(), faults.join("\n")),
    }
}
