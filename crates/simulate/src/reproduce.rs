//! Reproductions of published measurements on the models.
//!
//! A reproduction is a TOML file. It has whole specs under `[run.NAME]` and the evaluation of
//! their cases: `[[compare]]` rows (published, ours, deviation), `[[target]]`s (ours beside a
//! reference), `[[order]]`ings that must hold, `[[table]]`s and `[[picture]]`s. [`page`]
//! generates the page, except for the file's own introduction and findings. A miss stays on the
//! page.

pub mod page;
pub mod picture;
mod select;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hemi_text::Places;
use serde::Deserialize;
use toml::{Table, Value};

use crate::spec::{self, Case, SpecError};

pub use self::select::{Results, SelectError};

/// A reproduction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reproduction {
    /// Title of the page.
    pub title: String,
    /// Author, place and date of the published figures.
    pub source: String,
    /// Fitted parameters, and the figures they were fitted to.
    pub fitted: Vec<String>,
    /// The measurement and its model, in Markdown.
    pub introduction: String,
    /// The results, each miss with its cause, in Markdown.
    #[serde(default)]
    pub findings: String,
    /// Specs by name.
    run: BTreeMap<String, Table>,
    /// Rows of published figures.
    #[serde(default)]
    pub compare: Vec<Compare>,
    /// Comparisons among our own figures.
    #[serde(default)]
    pub target: Vec<Target>,
    /// Orderings of cases.
    #[serde(default)]
    pub order: Vec<Order>,
    /// Tables of all cases of a run.
    #[serde(default)]
    pub table: Vec<TableSpec>,
    /// Pictures.
    #[serde(default)]
    pub picture: Vec<PictureSpec>,
    /// The places of keys in its file.
    #[serde(skip)]
    places: Places,
}

/// The selection of one or more cases.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Name of the run.
    pub run: String,
    /// Choices of the sweep that the cases must match.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// Measure to use instead of the row's.
    pub measure: Option<String>,
}

/// The aggregation of several cases to one figure.
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

/// A comparison with one published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// Description of the figure.
    pub figure: String,
    /// Name of the run.
    pub run: String,
    /// Choices of the sweep that the cases must match.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// Aggregation of several cases; without it exactly one has to match.
    pub aggregate: Option<Aggregate>,
    /// Path of a figure in a report: `writes.iops`, `legs.0.erases`; or `watts`.
    pub measure: String,
    /// Divisor of the figure.
    pub over: Option<Selection>,
    /// Published figure, or its range.
    pub published: Published,
    /// True if a parameter was fitted to it.
    #[serde(default)]
    pub fitted: bool,
    /// Tolerance as a share; 0.15 if absent, 0.3 for latencies.
    pub within: Option<f64>,
}

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// One number.
    Number(f64),
    /// A range, both ends included.
    Range([f64; 2]),
}

/// Figures of one case, each bounded by the figure of a reference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Description of the figures.
    pub figure: String,
    /// The case measured.
    pub of: Selection,
    /// The same case before a change, shown beside it.
    pub before: Option<Selection>,
    /// The case it is compared with.
    pub reference: Selection,
    /// Bounds by the path of the figure.
    pub bounds: BTreeMap<String, Bound>,
}

/// A bound on a figure, as a multiple of the reference's figure.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Bound {
    /// Allows at most this multiple.
    AtMost(f64),
    /// Allows at least this multiple.
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
    /// The claim that the ordering supports.
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
    /// Title of the table.
    pub title: String,
    /// Name of the run.
    pub run: String,
    /// Further runs, whose cases follow.
    #[serde(default)]
    pub also: Vec<String>,
    /// Choices of the sweep that the cases must match.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// Paths of figures.
    pub measures: Vec<String>,
}

/// A picture: lines over a swept key, or over time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PictureSpec {
    /// Name of the picture's file.
    pub name: String,
    /// Title of the picture.
    pub title: String,
    /// Name of the run.
    pub run: String,
    /// Choices of the sweep that the cases must match.
    #[serde(default, rename = "where")]
    pub choices: Table,
    /// A swept key (sizes are shown in GiB), or `time`.
    pub x: String,
    /// Path of a figure; over time, `intervals.` and a figure of an interval.
    pub y: String,
    /// A swept key with a line for each of its values.
    pub series: Option<String>,
    /// True if the y axis is logarithmic.
    #[serde(default)]
    pub logarithmic: bool,
    /// Label of the x axis; the key if absent.
    pub x_label: Option<String>,
    /// Label of the y axis; the path if absent.
    pub y_label: Option<String>,
}

impl Reproduction {
    /// Reads the file of a reproduction.
    ///
    /// # Errors
    /// The same as for a spec.
    pub fn load(path: &Path) -> Result<Reproduction, SpecError> {
        let file = path.display().to_string();
        let text = hemi_text::read(path)
            .map_err(|source| SpecError::Unreadable { file: file.clone(), source })?;
        let places = Places::new(&file, &text);
        let mut read: Reproduction = toml::from_str(&text)
            .map_err(|error| SpecError::Wrong { file, problem: error.to_string() })?;
        read.places = places;
        Ok(read)
    }

    /// Returns the cases of all runs, each with the name of its run. Errors call the file
    /// `file`.
    ///
    /// # Errors
    /// The same as for a spec.
    pub fn cases(&self, file: &str) -> Result<Vec<(String, Case)>, SpecError> {
        let mut all = Vec::new();
        for (name, table) in &self.run {
            let mut table = table.clone();
            let title = Value::String(name.clone());
            table.entry("title").or_insert(title);
            let text = table.to_string();
            let places = self.places.below(&format!("run.{name}"));
            let cases = spec::parse_part(&format!("{file}: run.{name}"), &text, &places)?;
            all.extend(cases.into_iter().map(|case| (name.clone(), case)));
        }
        Ok(all)
    }
}

/// Returns the reproductions in a directory, sorted.
///
/// # Errors
/// Fails if the directory cannot be read.
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
