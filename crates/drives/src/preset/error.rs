//! Why a preset was refused.

/// Why a preset was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// No such preset is built in.
    #[error("no preset is named `{name}`; {instead}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names close to it, or all there are.
        instead: String,
    },
    /// The file cannot be read.
    #[error("{file}: {reason}")]
    Unreadable {
        /// Its path.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// A parameter was changed, since the preset was read, to what cannot be.
    #[error("{name}: {reason}")]
    Impossible {
        /// Name of the preset.
        name: String,
        /// Which parameter, its value and what would be right.
        reason: String,
    },
    /// The file says something that cannot be.
    #[error("{file}:{line}:{column}: {}{problem}", of(.key))]
    Wrong {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Path of the key it is about: `parameters.iops.peak`; empty where there is none.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Members within members without end.
    #[error("`{name}`: arrays nest at most {deepest} deep: does it contain itself?")]
    Nested {
        /// The preset at which it was given up.
        name: String,
        /// The most that is taken.
        deepest: usize,
    },
}

fn of(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("`{key}`: ") }
}
