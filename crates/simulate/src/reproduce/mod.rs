//! Published measurements, made again on the models.
//!
//! A reproduction is a TOML file: whole specs under `[run.NAME]`, and what is made of their
//! cases: `[[compare]]` rows (published, ours, how far off), `[[target]]`s (ours beside a
//! reference), `[[order]]`ings that must hold, `[[table]]`s and `[[picture]]`s. [`page`] writes it
//! up, generated but for the file's own introduction and findings. A miss stays on the page.

pub mod page;
pub mod picture;
mod select;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use crate::spec::{self, Case, SpecError};

pub use self::select::{Results, SelectError};

/// A reproduction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reproduction {
    /// What it is.
    pub title: String,
    /// Who published the figures, where and when.
    pub source: String,
    /// Parameters fitted, and to what.
    pub fitted: Vec<String>,
    /// What was measured, and how it is modelled. Markdown.
    pub introduction: String,
    /// What came out, each miss with its cause. Markdown.
    #[serde(default)]
    pub findings: String,
    /// Specs by name.
    run: BTreeMap<String, Table>,
    /// Rows of published figures.
    #[serde(default)]
    pub compare: Vec<Compare>,
    /// Figures of ours beside other figures of ours.
    #[serde(default)]
    pub target: Vec<Target>,
    /// Orderings.
    #[serde(default)]
    pub order: Vec<Order>,
    /// Tables of all cases of a run.
    #[serde(default)]
    pub table: Vec<TableSpec>,
    /// Pictures.
    #[serde(default)]
    pub picture: Vec<PictureSpec>,
}

/// Which case, or cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The run's name.
    pub run: String,
    /// What the sweep chose for some keys.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// Another measure than that of the row.
    pub measure: Option<String>,
}

/// How several cases make one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// What it is, for people.
    pub figure: String,
    /// The run's name.
    pub run: String,
    /// What the sweep chose for some keys.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// What of several cases; without it there has to be one.
    pub aggregate: Option<Aggregate>,
    /// Path of a figure in a report: `writes.iops`, `legs.0.erases`; or `watts`.
    pub measure: String,
    /// Divided by this.
    pub over: Option<Selection>,
    /// The figure published, or its range.
    pub published: Published,
    /// Whether a parameter was fitted to it.
    #[serde(default)]
    pub fitted: bool,
    /// By what share ours may be off; 0.15 if not given, 0.3 for latencies.
    pub within: Option<f64>,
}

/// A figure as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// One number.
    Number(f64),
    /// From the one to the other.
    Range([f64; 2]),
}

/// Figures of one case, each bound to be near that of a reference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// What it is, for people.
    pub figure: String,
    /// The case.
    pub of: Selection,
    /// The same before what the page is about: shown beside it.
    pub before: Option<Selection>,
    /// The case it is measured by.
    pub reference: Selection,
    /// What is asked, by the path of the figure.
    pub bounds: BTreeMap<String, Bound>,
}

/// What a figure may be, as a multiple of the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Bound {
    /// This much or less.
    AtMost(f64),
    /// This much or more.
    AtLeast(f64),
}

impl Bound {
    /// Returns true if a ratio is within the bound.
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::AtMost(most) => ratio <= most,
            Bound::AtLeast(least) => ratio >= least,
        }
    }
}

/// An ordering of cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What it says.
    pub what: String,
    /// Path of the figure compared.
    pub measure: String,
    /// The cases, the least first.
    pub least_first: Vec<Selection>,
}

/// A table of all cases of a run, or of several.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    /// What it shows.
    pub title: String,
    /// The run's name.
    pub run: String,
    /// Further runs, whose cases come below.
    #[serde(default)]
    pub also: Vec<String>,
    /// What the sweep chose for some keys.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// Paths of figures.
    pub measures: Vec<String>,
}

/// A picture: lines over a swept key, or over time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureSpec {
    /// Of its file.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The run's name.
    pub run: String,
    /// What the sweep chose for some keys.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// A swept key (sizes are shown in GiB), or `time`.
    pub x: String,
    /// Path of a figure; over time `intervals.` and one of an interval's.
    pub y: String,
    /// A swept key with a line for each of its values.
    pub series: Option<String>,
    /// Whether y is logarithmic.
    #[serde(default)]
    pub logarithmic: bool,
    /// Beside the axis; the key if not given.
    pub x_label: Option<String>,
    /// Beside the axis; the path if not given.
    pub y_label: Option<String>,
}

impl Reproduction {
    /// Reads the file of a reproduction.
    ///
    /// # Errors
    /// As those of a spec.
    pub fn load(path: &Path) -> Result<Reproduction, SpecError> {
        let file = path.display().to_string();
        let text = hemi_text::read(path)
            .map_err(|source| SpecError::Unreadable { file: file.clone(), source })?;
        toml::from_str(&text).map_err(|error| SpecError::Wrong { file, problem: error.to_string() })
    }

    /// The cases of all its runs, each with its run's name. `file` is named in errors.
    ///
    /// # Errors
    /// As those of a spec.
    pub fn cases(&self, file: &str) -> Result<Vec<(String, Case)>, SpecError> {
        let mut all = Vec::new();
        for (name, table) in &self.run {
            let mut table = table.clone();
            let title = Value::String(name.clone());
            table.entry("title").or_insert(title);
            let text = table.to_string();
            let cases = spec::parse(&format!("{file}: run.{name}"), &text)?;
            all.extend(cases.into_iter().map(|case| (name.clone(), case)));
        }
        Ok(all)
    }
}

/// The reproductions of a folder, sorted.
///
/// # Errors
/// A folder that cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn a_bound_is_read_and_kept_to() {
        let bound = |text: &str| {
            let mut table: std::collections::BTreeMap<String, Bound> =
                toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
            table.remove("mean").expect("it is named")
        };
        let most = bound("mean = { at_most = 1.05 }");
        assert!(most.holds(0.5) && most.holds(1.05) && !most.holds(1.06));
        let least = bound("mean = { at_least = 0.95 }");
        assert!(least.holds(1.5) && least.holds(0.95) && !least.holds(0.94));
    }
}
