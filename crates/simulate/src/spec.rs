//! The spec of an experiment, as in a file.
//!
//! ```toml
//! title = "A database on local NVMe and a network volume"
//! seed = 1
//!
//! [system]
//! policy = "first"                       # single, all, write-behind, paper, first, …
//! legs = ["nvme-enterprise", "gp3"]      # presets, or paths of preset files
//!
//! [workload.closed]
//! threads = 4
//! queue_depth = 8
//! duration = "30 s"
//! access = { addresses = "uniform", sizes = "8 KiB", mix = { read_percent = 70 } }
//!
//! [sweep]                                # every combination is a case
//! system.policy = ["all", "first"]
//! ```

use std::path::{Path, PathBuf};

use hemi_drives::preset::Precondition;
use hemi_text::Places;
use hemi_units::{Size, Time};
use hemi_workload::RunSpec;
use serde::Deserialize;
use toml::{Table, Value};

use crate::experiment::ExperimentError;
use crate::faults::{self, FaultSpec};
use crate::sweep::{self, SweepError};
use crate::system::{EngineSpec, PolicyName, RuleSpec};
use hemi_workload::spec::WorkloadSpec;

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Title of the experiment.
    pub title: String,
    /// Seed of all randomness.
    #[serde(default = "one")]
    pub seed: u64,
    /// System that serves the requests.
    pub system: SystemSpec,
    /// The requests.
    pub workload: WorkloadSpec,
    /// Length and resolution of the run.
    #[serde(default)]
    pub run: RunSpec,
    /// Lists of values by key; every combination is a case.
    #[serde(default)]
    pub sweep: Table,
}

/// The `[system]` section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemSpec {
    /// Policy that turns the legs into one volume.
    #[serde(default)]
    pub policy: PolicyName,
    /// Names of presets, or paths of preset files (relative to the spec's).
    pub legs: Vec<String>,
    /// Size of the volume; as much as the legs hold if absent.
    pub volume: Option<Size>,
    /// Divisor of the capacity of flash legs; rates stay as they are.
    #[serde(default = "one")]
    pub scale: u64,
    /// State of the legs before the run.
    #[serde(default)]
    pub precondition: Precondition,
    /// Scripted faults of the legs during the run.
    #[serde(default)]
    pub faults: Vec<FaultSpec>,
    /// Settings of the engine.
    #[serde(default)]
    pub engine: EngineSpec,
    /// Settings of `paper-unsafe`.
    #[serde(default)]
    pub published: RuleSpec,
}

fn one() -> u64 {
    1
}

/// Values by dotted key.
pub type Values = Table;

/// One case of a spec, ready to be run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number of the case in its spec, from 0.
    pub number: usize,
    /// The sweep's choices, as shown.
    pub choices: Vec<(String, String)>,
    /// The sweep's choices as in its lists, with numbers as numbers.
    pub values: Values,
    /// The spec with these choices applied.
    pub spec: Spec,
    /// The places of keys in its file.
    places: Places,
}

impl Case {
    /// Returns the place in the spec's file that an error of this case is about, as in
    /// `mirror.toml:7:1`: the line of the key, or the one in the sweep that gave its value. It is
    /// the file alone for an error that is about no key.
    pub fn place(&self, error: &ExperimentError) -> String {
        self.place_of(&error.key())
    }

    fn place_of(&self, key: &str) -> String {
        let chosen = |swept: &&String| {
            let rest = key.strip_prefix(swept.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        match self.values.keys().find(chosen) {
            Some(swept) => self.places.of(&format!("sweep.{swept}")),
            None => self.places.of(key),
        }
    }
}

/// The reason why a spec was refused.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// Path of the file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has the wrong structure; the message contains the line.
    #[error("{file}: {problem}")]
    Wrong {
        /// Path of the file.
        file: String,
        /// The error with line and column, and the expected form.
        problem: String,
    },
    /// A value of the sweep does not fit its key.
    #[error("{place}: sweep: with {choices}: {problem}")]
    Choice {
        /// File, line and column of the sweep.
        place: String,
        /// The values chosen.
        choices: String,
        /// The error.
        problem: String,
    },
    /// A number is impossible.
    #[error("{place}: {key} = {value}: {right}")]
    Impossible {
        /// File, line and column of the key.
        place: String,
        /// Dotted key.
        key: &'static str,
        /// The value given.
        value: String,
        /// The allowed values.
        right: &'static str,
    },
    /// A fault is impossible.
    #[error("{place}: {problem}")]
    Fault {
        /// File, line and column of the fault.
        place: String,
        /// The fault and the error in it.
        problem: String,
    },
    /// The sweep is invalid.
    #[error("{place}: {source}")]
    Sweep {
        /// File, line and column of the key in the sweep.
        place: String,
        /// The error.
        source: SweepError,
    },
}

/// Reads the cases of a spec. Also returns the directory that paths in it are relative to.
///
/// # Errors
/// See [`SpecError`].
pub fn load(path: &Path) -> Result<(Vec<Case>, PathBuf), SpecError> {
    let file = path.display().to_string();
    let text = hemi_text::read(path)
        .map_err(|source| SpecError::Unreadable { file: file.clone(), source })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok((parse(&file, &text)?, folder))
}

/// Parses the cases of a spec from text; errors call it `file`. See [`load`].
///
/// # Errors
/// See [`SpecError`].
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, SpecError> {
    parse_part(file, text, &Places::new(file, text))
}

/// Parses the cases of a spec from text, which is a part of a file or all of it: `places` are
/// those of its keys.
pub(crate) fn parse_part(file: &str, text: &str, places: &Places) -> Result<Vec<Case>, SpecError> {
    let wrong =
        |error: toml::de::Error| SpecError::Wrong { file: file.into(), problem: error.to_string() };
    // Parse the text as it stands first, since these errors contain the line.
    toml::from_str::<Spec>(text).map_err(wrong)?;
    let table: Table = toml::from_str(text).map_err(wrong)?;
    let cases = sweep::cases(table).map_err(|source| {
        let place = places.of(&format!("sweep.{}", source.key()));
        SpecError::Sweep { place, source }
    })?;
    let case = |(number, case): (usize, sweep::Case)| {
        let choices: Vec<(String, String)> =
            case.choices.iter().map(|(key, value)| (key.clone(), shown(value))).collect();
        let spec: Spec = Value::Table(case.spec).try_into().map_err(|error: toml::de::Error| {
            let place = match &choices[..] {
                [(only, _)] => places.of(&format!("sweep.{only}")),
                _ => places.of("sweep"),
            };
            let choices = choices.iter().map(|(key, value)| format!("{key} = {value}"));
            let choices = choices.collect::<Vec<_>>().join(", ");
            SpecError::Choice { place, choices, problem: error.to_string() }
        })?;
        let values = case.choices.into_iter().collect();
        let case = Case { number, choices, values, spec, places: places.clone() };
        check_system(&case.spec.system, &case.spec.run, |key| case.place_of(key))?;
        Ok(case)
    };
    cases.into_iter().enumerate().map(case).collect()
}

/// Returns an error for impossible numbers; `place_of` returns the place of a key.
pub(crate) fn check_system(
    system: &SystemSpec,
    run: &RunSpec,
    place_of: impl Fn(&str) -> String,
) -> Result<(), SpecError> {
    let engine = &system.engine;
    let within = |key, value: Option<u64>, least: u64, most: u64, right| match value {
        Some(value) if !(least..=most).contains(&value) => {
            let (place, value) = (place_of(key), value.to_string());
            Err(SpecError::Impossible { place, key, value, right })
        }
        _ => Ok(()),
    };
    let time = |time: Option<Time>| time.map(|time| time.0);
    let size = |size: Option<Size>| size.map(|size| size.0);
    let legs = system.legs.len() as u64;
    let most = u64::MAX;
    within("system.legs", Some(legs), 1, 8, "1 to 8 presets")?;
    faults::check(&system.faults, system.legs.len()).map_err(|error| SpecError::Fault {
        place: place_of(&error.key()),
        problem: format!("system.faults: {error}"),
    })?;
    within("system.scale", Some(system.scale), 1, 1 << 20, "1 to 1048576")?;
    within("run.interval", Some(run.interval.0), 1, most, "above zero")?;
    within("run.limit", Some(run.limit.0), 1, most, "above zero")?;
    let key = "system.engine.exposure_bytes";
    within(key, size(engine.exposure_bytes), 1 << 20, 1 << 40, "1 MiB to 1 TiB")?;
    let key = "system.engine.exposure_age";
    within(key, time(engine.exposure_age), 1, most, "above zero")?;
    let key = "system.engine.wait_floor";
    within(key, time(engine.wait_floor), 1, most, "above zero")?;
    let key = "system.engine.wait_ceiling";
    within(key, time(engine.wait_ceiling), 1, most, "above zero")?;
    let key = "system.engine.out_after";
    within(key, time(engine.out_after), 1, most, "above zero")?;
    let key = "system.engine.paper_wait_permille";
    within(key, engine.paper_wait_permille.map(u64::from), 1000, 100_000, "1000 to 100000")?;
    let key = "system.engine.leg_window";
    within(key, engine.leg_window.map(u64::from), 1, 4096, "1 to 4096")?;
    let key = "system.engine.flush_copies";
    within(key, engine.flush_copies.map(u64::from), 1, 8, "1 to 8")?;
    let key = "system.engine.slow_leg";
    within(key, engine.slow_leg.map(u64::from), 0, legs - 1, "the number of a leg, from 0")?;
    let key = "system.engine.write_behind_limit";
    within(key, engine.write_behind_limit.map(u64::from), 1, 65_536, "1 to 65536")?;
    let key = "system.engine.owed_extents_max";
    within(key, engine.owed_extents_max.map(u64::from), 1024, 1 << 22, "1024 to 4194304")?;
    let key = "system.engine.clean_after";
    within(key, time(engine.clean_after), 1, most, "above zero")?;
    let key = "system.engine.dirty_regions_max";
    within(key, engine.dirty_regions_max.map(u64::from), 64, 1 << 20, "64 to 1048576")?;
    let key = "system.engine.region_bytes";
    within(key, size(engine.region_bytes), 64 << 10, 64 << 20, "64 KiB to 64 MiB")?;
    let key = "system.engine.buffers";
    within(key, size(engine.buffers), 16 << 20, most, "at least 16 MiB")?;
    let key = "system.published.wait_permille";
    within(key, system.published.wait_permille, 1000, 1_000_000, "1000 to 1000000")
}

/// Returns a value as shown in tables, with text unquoted.
pub(crate) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
