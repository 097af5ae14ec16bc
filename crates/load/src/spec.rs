//! A load as a file defines it: the workload of a simulation's spec, without its drives.
//!
//! ```toml
//! title = "A database's night"
//! seed = 1
//!
//! [workload.open]
//! rate = 2000
//! duration = "60 s"
//! access = { addresses = "uniform", sizes = "8 KiB", mix = { read_percent = 70 } }
//! ```
//!
//! A spec of `hemi sim run` is a valid load spec as it stands, unless it has a sweep. Its simulated
//! system is ignored.

use std::path::{Path, PathBuf};

use hemi_text::Places;
use hemi_workload::RunSpec;
use hemi_workload::spec::WorkloadSpec;
use serde::Deserialize;
use toml::Table;

/// A load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// A title for people.
    #[serde(default)]
    pub title: String,
    /// The seed of everything random in the load.
    #[serde(default = "one")]
    pub seed: u64,
    /// The requests.
    pub workload: WorkloadSpec,
    /// The intervals of the figures, and the longest the load may last.
    #[serde(default)]
    pub run: RunSpec,
    /// A simulation's system, which is ignored.
    #[serde(default)]
    pub system: Option<Table>,
    /// A simulation's sweep, which is refused.
    #[serde(default)]
    pub sweep: Table,
    /// The places of its keys, for errors that show only at a target.
    #[serde(skip)]
    pub places: Places,
}

fn one() -> u64 {
    1
}

/// The reason why a spec was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadSpecError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or not of this shape: the message shows the line.
    #[error("{file}: {problem}")]
    Wrong {
        /// The path of the file.
        file: String,
        /// The problem with line and column, and the right form.
        problem: String,
    },
    /// A value does not suit a load.
    #[error("{place}: {key} = {value}: {right}")]
    Impossible {
        /// The file, line and column.
        place: String,
        /// The dotted key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// The right form.
        right: &'static str,
    },
}

/// Reads a spec. Returns it with the directory that paths in it are relative to.
///
/// # Errors
/// Fails as [`LoadSpecError`] says.
pub fn load(path: &Path) -> Result<(LoadSpec, PathBuf), LoadSpecError> {
    let file = path.display().to_string();
    let text = hemi_text::read(path)
        .map_err(|source| LoadSpecError::Unreadable { file: file.clone(), source })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok((parse(&file, &text)?, folder))
}

/// Parses a spec from the text of a file, which errors call `file`.
///
/// # Errors
/// Fails as [`LoadSpecError`] says.
pub fn parse(file: &str, text: &str) -> Result<LoadSpec, LoadSpecError> {
    let mut spec: LoadSpec = toml::from_str(text)
        .map_err(|error| LoadSpecError::Wrong { file: file.into(), problem: error.to_string() })?;
    let places = Places::new(file, text);
    let impossible = |key, value: String, right| {
        Err(LoadSpecError::Impossible { place: places.of(key), key, value, right })
    };
    if !spec.sweep.is_empty() {
        let right = "a load is one case: write one spec for each, or leave the sweep out";
        return impossible("sweep", spec.sweep.to_string().trim().to_owned(), right);
    }
    if spec.run.interval.0 == 0 || spec.run.limit.0 == 0 {
        let key = if spec.run.limit.0 == 0 { "run.limit" } else { "run.interval" };
        return impossible(key, "0 s".to_owned(), "write a duration above zero");
    }
    spec.places = places;
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::parse;

    const WORKLOAD: &str = "[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 9\n\
        access = { addresses = \"uniform\", sizes = \"4 KiB\", mix = { read_percent = 70 } }\n";

    #[test]
    fn a_simulations_spec_is_one_of_a_load() {
        let text = format!("title = \"x\"\n[system]\nlegs = [\"gp3\"]\n{WORKLOAD}");
        let spec = parse("x.toml", &text).expect("it is one");
        assert!(spec.system.is_some() && spec.seed == 1);
        assert!(parse("x.toml", WORKLOAD).is_ok());
    }

    #[test]
    fn what_does_not_go_with_a_load_is_named() {
        let error = |text: &str| {
            parse("x.toml", &format!("{text}{WORKLOAD}")).expect_err("wrong").to_string()
        };
        let sweep = error("[sweep]\n\"workload.closed.threads\" = [1, 2]\n");
        assert!(sweep.starts_with("x.toml:1:2: sweep = "), "{sweep}");
        let run = error("run = { interval = \"0 s\" }\n");
        assert!(run.starts_with("x.toml:1:9: run.interval = 0 s"), "{run}");
        assert!(error("sed = 1\n").contains("unknown field `sed`"));
    }
}
