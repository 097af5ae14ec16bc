//! Figures of cases, selected by the sweep's choices and by their path in the report.

use serde_json::Value;
use toml::Table;

use super::{Aggregate, Selection};
use crate::report::Report;
use crate::spec::shown;

/// The reason why a figure was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No case matches, or several where only one may.
    #[error("run `{run}` where {choices}: {found} cases; {right}")]
    Cases {
        /// The run.
        run: String,
        /// The choices asked for.
        choices: String,
        /// Number of matching cases.
        found: usize,
        /// The remedy.
        right: &'static str,
    },
    /// The report has no such figure.
    #[error("`{0}` is not a figure of a report")]
    Measure(String),
}

/// The reports of all cases of a reproduction.
pub struct Results<'r> {
    cases: Vec<(&'r str, &'r Report, Value)>,
}

impl<'r> Results<'r> {
    /// Creates the results from the run names of [`super::Reproduction::cases`] and the
    /// reports.
    pub fn new(names: &'r [String], reports: &'r [Report]) -> Results<'r> {
        let json = |report| serde_json::to_value(report).expect("a report is plain data");
        let cases = names.iter().zip(reports);
        let cases = cases.map(|(name, report)| (name.as_str(), report, json(report)));
        Results { cases: cases.collect() }
    }

    /// Returns the warnings of all cases, each once.
    pub fn warnings(&self) -> Vec<&'r str> {
        let mut all: Vec<&'r str> = Vec::new();
        for (_, report, _) in &self.cases {
            for warning in &report.warnings {
                if !all.contains(&warning.as_str()) {
                    all.push(warning);
                }
            }
        }
        all
    }

    /// Returns the cases of a run with these choices, in the order in which they ran.
    pub fn matching(&self, run: &str, choices: &Table) -> Vec<Found<'_>> {
        let fits = |report: &Report| {
            choices.iter().all(|(key, value)| {
                let wanted = shown(value);
                report.choices.iter().any(|(chosen, value)| chosen == key && *value == wanted)
            })
        };
        let of_run = self.cases.iter().filter(|(name, ..)| *name == run);
        let matching = of_run.filter(|(_, report, _)| fits(report));
        matching.map(|(_, report, json)| Found { report, json }).collect()
    }

    /// Returns one figure, of the only matching case or aggregated over several.
    ///
    /// # Errors
    /// See [`SelectError`].
    pub fn figure(
        &self,
        run: &str,
        choices: &Table,
        measure: &str,
        aggregate: Option<Aggregate>,
    ) -> Result<f64, SelectError> {
        let found = self.matching(run, choices);
        let wrong = |right| SelectError::Cases {
            run: run.to_owned(),
            choices: choices.to_string().trim().replace('\n', ", "),
            found: found.len(),
            right,
        };
        if found.is_empty() {
            return Err(wrong("name one by its sweep's choices"));
        }
        if aggregate.is_none() && found.len() > 1 {
            return Err(wrong("name one, or say how they make one figure (aggregate)"));
        }
        let values: Result<Vec<f64>, SelectError> =
            found.iter().map(|found| found.figure(measure)).collect();
        let values = values?;
        Ok(match aggregate {
            Some(Aggregate::Max) => values.iter().copied().fold(f64::MIN, f64::max),
            Some(Aggregate::Min) => values.iter().copied().fold(f64::MAX, f64::min),
            Some(Aggregate::Mean) | None => values.iter().sum::<f64>() / values.len() as f64,
        })
    }

    /// Returns the figure of one case.
    ///
    /// # Errors
    /// See [`SelectError`].
    pub fn selected(&self, selection: &Selection, measure: &str) -> Result<f64, SelectError> {
        let measure = selection.measure.as_deref().unwrap_or(measure);
        self.figure(&selection.run, &selection.choices, measure, None)
    }
}

/// The report of one case.
#[derive(Clone, Copy)]
pub struct Found<'r> {
    /// The report itself.
    pub report: &'r Report,
    json: &'r Value,
}

impl Found<'_> {
    /// Returns a figure by its path.
    ///
    /// # Errors
    /// Fails if there is no such figure.
    pub fn figure(&self, measure: &str) -> Result<f64, SelectError> {
        if measure == "watts" {
            let joules: f64 = self.report.legs.iter().map(|leg| leg.energy).sum();
            return Ok(joules / self.report.time.max(1e-9));
        }
        let pointer = format!("/{}", measure.replace('.', "/"));
        let found = self.json.pointer(&pointer).and_then(Value::as_f64);
        found.ok_or_else(|| SelectError::Measure(measure.to_owned()))
    }

    /// Returns the sweep's choice for a key.
    pub fn choice(&self, key: &str) -> Option<&str> {
        let choices = self.report.choices.iter();
        choices.into_iter().find(|(chosen, _)| chosen == key).map(|(_, value)| value.as_str())
    }
}
