//! Errors of presets.

/// The reason why a preset was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// No such preset is built in.
    #[error("no preset is named `{name}`; {instead}")]
    Unknown {
        /// The name given.
        name: String,
        /// Names close to it, or all names.
        instead: String,
    },
    /// The file cannot be read.
    #[error("{file}: {reason}")]
    Unreadable {
        /// Its path.
        file: String,
        /// The system's error.
        reason: String,
    },
    /// A parameter was changed, after the preset was read, to an impossible value.
    #[error("{name}: {reason}")]
    Impossible {
        /// Name of the preset.
        name: String,
        /// The parameter, its value and the allowed values.
        reason: String,
    },
    /// The file contains an error.
    #[error("{file}:{line}:{column}: {}{problem}", of(.key))]
    Wrong {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Path of the key concerned, `parameters.iops.peak`; empty if there is none.
        key: String,
        /// The error and the expected form.
        problem: String,
    },
    /// Arrays nest too deep, possibly without end.
    #[error("`{name}`: arrays nest at most {deepest} deep: does it contain itself?")]
    Nested {
        /// The preset at which nesting became too deep.
        name: String,
        /// The most levels allowed.
        deepest: usize,
    },
}

fn of(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("`{key}`: ") }
}
