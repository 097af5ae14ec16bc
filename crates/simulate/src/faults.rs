//! `[[system.faults]]`: scripted faults of a leg, whatever its drive.

mod lay;
#[cfg(test)]
mod tests;

use hemi_drives::faulty::{Absence, Affected, FACTOR_MAX, Slow, SlowExperiment, Spell};
use hemi_stalls::{Experiment, PhaseSpec, SCALE_MAX, Schedule, Share};
use hemi_units::{Instant, Percent, SECTOR_BYTES, Size, Time};
use serde::Deserialize;

pub(crate) use self::lay::lay;

/// Default time until the host is told that a drive is away or worn out: an estimate of what the
/// host's driver takes.
const REFUSED_AFTER: Time = Time::millis(1);
/// Default time that a drive spends on sectors it cannot read in the end: an estimate. Disks are
/// usually told to give up after 7 s at the latest.
const RETRIED_FOR: Time = Time::millis(100);
/// Highest percentage of the rated cycles.
const WORN_MAX: f64 = 1000.0;
/// Most ranges that one fault scatters.
const RANGES_MAX: u32 = 100_000;

/// A fault of one leg.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// The leg, from 0.
    pub leg: usize,
    /// A member of the leg's array, from 0; the leg as a whole if absent.
    pub member: Option<usize>,
    /// Start in virtual time since the beginning of the run. Default 0.
    #[serde(default)]
    pub at: Time,
    /// Length of the fault, for those that end.
    #[serde(rename = "for")]
    pub length: Option<Time>,
    /// Time from the start of one to the start of the next, for those that come again.
    pub every: Option<Time>,

    /// Time for which the leg does not answer.
    pub freeze: Option<Time>,
    /// Stalls of single requests, in phases.
    pub stall: Option<Vec<PhaseSpec>>,
    /// Stalls as in an [`Experiment`], or slowness as in a [`SlowExperiment`].
    pub experiment: Option<String>,
    /// Factor on the time that a request takes.
    pub slow: Option<f64>,
    /// Time for which the leg is away: what it is given fails until it returns.
    pub absent: Option<Time>,
    /// True for a leg that goes away and does not return.
    pub dies: Option<bool>,
    /// Sectors that cannot be read until they are written again.
    pub bad: Option<BadSpec>,
    /// Shares of requests that fail by chance.
    pub errors: Option<ErrorsSpec>,
    /// Share of the rated cycles of the leg's flash that is used when the run begins. The leg ends
    /// when they are used up.
    pub worn: Option<Percent>,

    /// Factor on the lengths of an experiment. Default 1.
    pub time_scale: Option<f64>,
    /// Seed of the choice of requests or sectors. Derived from the run's seed if absent.
    pub seed: Option<u64>,
    /// Time over which slowness grows. Default none.
    pub over: Option<Time>,
    /// The requests that are slow. Default all.
    pub of: Option<AffectedSpec>,
    /// Share of the rated cycles at which the leg takes no more writes. Default 100 %.
    pub read_only: Option<Percent>,
    /// Time from then until it answers with errors only. Default never.
    pub fails_after: Option<Time>,
    /// Time until an error is told. Default 1 ms for a leg that is away or worn out, 100 ms for
    /// sectors that the drive tries to read or write.
    pub error_after: Option<Time>,
}

/// The requests that are slow.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AffectedSpec {
    /// All: the drive itself is slow.
    All,
    /// Reads.
    Reads,
    /// All others.
    Writes,
}

/// Sectors of a leg that go bad.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "ranges such as [{ from = \"1 GiB\", length = \"64 KiB\" }], or \
                               { ranges = 100, length = \"4 KiB\", over = \"1 h\" }"
)]
pub enum BadSpec {
    /// Given ranges, all at once.
    Given(Vec<RangeSpec>),
    /// Ranges at random places.
    Scattered(ScatteredSpec),
}

/// A range of a leg.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeSpec {
    /// Beginning, in bytes from that of the leg.
    pub from: Size,
    /// Length.
    pub length: Size,
}

/// Ranges at random places of a leg.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatteredSpec {
    /// Number of ranges.
    pub ranges: u32,
    /// Length of each.
    pub length: Size,
    /// Time over which they go bad, one after another. Default all at once.
    #[serde(default)]
    pub over: Time,
    /// Beginning of the leg that they lie in. Default the whole leg.
    pub span: Option<Size>,
}

/// Shares of requests that fail.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorsSpec {
    /// Share of the reads, 0 to 1.
    #[serde(default)]
    pub reads: f64,
    /// Share of the writes, flushes and trims, 0 to 1.
    #[serde(default)]
    pub writes: f64,
}

/// A fault in the form a drive takes, but for what depends on the drive.
enum Fault {
    Freeze(Spell),
    Stalls(Schedule),
    Slow(Slow),
    Absence(Absence),
    Bad { sectors: BadSpec, error_after: u64 },
    Errors { spell: Spell, reads: Share, writes: Share, error_after: u64 },
    Worn { used: f64, read_only: f64, fails_after: Option<u64>, error_after: u64 },
}

/// The faults, as they are written.
const KINDS: [&str; 9] =
    ["freeze", "stall", "experiment", "slow", "absent", "dies", "bad", "errors", "worn"];

impl FaultSpec {
    /// Returns the names of the faults that are given.
    fn kinds(&self) -> Vec<&'static str> {
        let given = [
            self.freeze.is_some(),
            self.stall.is_some(),
            self.experiment.is_some(),
            self.slow.is_some(),
            self.absent.is_some(),
            self.dies.is_some(),
            self.bad.is_some(),
            self.errors.is_some(),
            self.worn.is_some(),
        ];
        KINDS.into_iter().zip(given).filter(|(_, given)| *given).map(|(kind, _)| kind).collect()
    }

    /// Returns the fault, or the error in it.
    fn fault(&self) -> Result<Fault, String> {
        let kinds = self.kinds();
        let [kind] = kinds[..] else {
            let given = match kinds[..] {
                [] => "none is given".to_owned(),
                _ => format!("{} are given", kinds.join(" and ")),
            };
            return Err(format!("a fault has one of {}; {given}", KINDS.join(", ")));
        };
        self.check_keys(kind)?;
        match kind {
            "freeze" => self.freeze(),
            "stall" | "experiment" => self.stalls(),
            "slow" => self.slow(),
            "absent" | "dies" => self.absence(),
            "bad" => self.bad(),
            "errors" => self.errors(),
            _ => self.worn(),
        }
    }

    /// Returns an error for a key that does not go with this kind of fault.
    fn check_keys(&self, kind: &str) -> Result<(), String> {
        let errors: &[&str] = &["absent", "dies", "bad", "errors", "worn"];
        let keys: [(&str, bool, &[&str]); 9] = [
            ("for", self.length.is_some(), &["slow", "errors"]),
            ("every", self.every.is_some(), &["freeze", "slow", "absent", "errors"]),
            ("time_scale", self.time_scale.is_some(), &["experiment"]),
            ("seed", self.seed.is_some(), &["stall", "experiment", "bad", "errors"]),
            ("over", self.over.is_some(), &["slow"]),
            ("of", self.of.is_some(), &["slow"]),
            ("read_only", self.read_only.is_some(), &["worn"]),
            ("fails_after", self.fails_after.is_some(), &["worn"]),
            ("error_after", self.error_after.is_some(), errors),
        ];
        for (key, given, with) in keys {
            if given && !with.contains(&kind) {
                return Err(format!("`{key}` goes with {}, not with {kind}", with.join(", ")));
            }
        }
        Ok(())
    }

    /// Returns the times at which a fault of this length is in force. `name` names the length.
    fn spell(&self, name: &str, length: Option<Time>) -> Result<Spell, String> {
        if length == Some(Time(0)) {
            return Err(format!("{name}: the length must be above zero"));
        }
        if let Some(every) = self.every {
            match length {
                None => return Err(format!("every: needs `{name}`, the length of each")),
                Some(length) if every <= length => {
                    return Err(format!("every = {every}: has to be longer than `{name}`"));
                }
                Some(_) => {}
            }
        }
        let every = self.every.map(|every| every.0);
        Ok(Spell { at: Instant(self.at.0), length: length.map(|length| length.0), every })
    }

    fn error_after(&self, usual: Time) -> Result<u64, String> {
        match self.error_after.unwrap_or(usual) {
            Time(0) => Err("error_after: must be above zero".to_owned()),
            Time(after) => Ok(after),
        }
    }

    fn freeze(&self) -> Result<Fault, String> {
        Ok(Fault::Freeze(self.spell("freeze", self.freeze)?))
    }

    fn stalls(&self) -> Result<Fault, String> {
        let wrong = |error: hemi_stalls::ScheduleError| error.to_string();
        let Some(name) = &self.experiment else {
            let phases = self.stall.as_deref().unwrap_or_default();
            return PhaseSpec::schedule(phases).map(Fault::Stalls).map_err(wrong);
        };
        let scale = self.time_scale.unwrap_or(1.0);
        if let Ok(experiment) = name.parse::<SlowExperiment>() {
            // The reverse comparison would let NaN pass.
            if !(scale > 0.0 && scale <= SCALE_MAX) {
                return Err(format!(
                    "a time scale of {scale} is out of range: use more than 0, at most {SCALE_MAX}"
                ));
            }
            return Ok(Fault::Slow(experiment.slow(Instant(self.at.0), scale)));
        }
        let experiment = name.parse::<Experiment>().map_err(|stalls| {
            let slow = SlowExperiment::ALL.map(SlowExperiment::name).join(", ");
            format!("{stalls}, {slow}")
        })?;
        experiment.schedule(scale).map(Fault::Stalls).map_err(wrong)
    }

    fn slow(&self) -> Result<Fault, String> {
        let factor = self.slow.unwrap_or(1.0);
        if !(1.0..=FACTOR_MAX).contains(&factor) {
            return Err(format!("slow = {factor}: a factor from 1 to {FACTOR_MAX}"));
        }
        let over = self.over.unwrap_or_default();
        if let Some(length) = self.length.filter(|length| over > *length) {
            return Err(format!("over = {over}: longer than `for`, {length}"));
        }
        let affected = match self.of {
            None | Some(AffectedSpec::All) => Affected::All,
            Some(AffectedSpec::Reads) => Affected::Reads,
            Some(AffectedSpec::Writes) => Affected::Writes,
        };
        let spell = self.spell("for", self.length)?;
        Ok(Fault::Slow(Slow { spell, factor, over: over.0, affected }))
    }

    fn absence(&self) -> Result<Fault, String> {
        if self.dies == Some(false) {
            return Err("dies = false: leave the fault out".to_owned());
        }
        let spell = self.spell("absent", self.absent)?;
        let error_after = self.error_after(REFUSED_AFTER)?;
        Ok(Fault::Absence(Absence { spell, error_after }))
    }

    fn bad(&self) -> Result<Fault, String> {
        let sectors = self.bad.clone().unwrap_or(BadSpec::Given(Vec::new()));
        let whole = |name: &str, size: Size| {
            if size.0 == 0 || !size.0.is_multiple_of(SECTOR_BYTES) {
                return Err(format!("bad: {name} = {size}: a multiple of 512 bytes, above zero"));
            }
            Ok(())
        };
        match &sectors {
            BadSpec::Given(ranges) if ranges.is_empty() => {
                return Err("bad: give at least one range".to_owned());
            }
            BadSpec::Given(ranges) => {
                for range in ranges {
                    whole("length", range.length)?;
                    if range.from.0 % SECTOR_BYTES != 0 {
                        let from = range.from;
                        return Err(format!("bad: from = {from}: a multiple of 512 bytes"));
                    }
                }
            }
            BadSpec::Scattered(spec) => {
                if !(1..=RANGES_MAX).contains(&spec.ranges) {
                    return Err(format!("bad: ranges = {}: 1 to {RANGES_MAX}", spec.ranges));
                }
                whole("length", spec.length)?;
                if let Some(span) = spec.span {
                    whole("span", span)?;
                }
            }
        }
        Ok(Fault::Bad { sectors, error_after: self.error_after(RETRIED_FOR)? })
    }

    fn errors(&self) -> Result<Fault, String> {
        let ErrorsSpec { reads, writes } =
            self.errors.unwrap_or(ErrorsSpec { reads: 0.0, writes: 0.0 });
        let share = |name: &str, value: f64| {
            Share::of(value).ok_or_else(|| {
                let right = "use 0 (none) to 1 (all), in steps of a millionth";
                format!("errors: {name}: a share of {value} is out of range: {right}")
            })
        };
        let (reads, writes) = (share("reads", reads)?, share("writes", writes)?);
        if reads == Share::NONE && writes == Share::NONE {
            return Err("errors: no request fails: give a share of the reads or writes".to_owned());
        }
        let spell = self.spell("for", self.length)?;
        Ok(Fault::Errors { spell, reads, writes, error_after: self.error_after(RETRIED_FOR)? })
    }

    fn worn(&self) -> Result<Fault, String> {
        if self.at != Time(0) {
            return Err("worn: it is so when the run begins: leave out `at`".to_owned());
        }
        let share = |name: &str, percent: Percent| {
            if percent.0 > WORN_MAX {
                return Err(format!("{name} = {percent}: 0 % to {WORN_MAX} % of the rated cycles"));
            }
            Ok(percent.share())
        };
        Ok(Fault::Worn {
            used: share("worn", self.worn.unwrap_or_default())?,
            read_only: share("read_only", self.read_only.unwrap_or(Percent(100.0)))?,
            fails_after: self.fails_after.map(|after| after.0),
            error_after: self.error_after(REFUSED_AFTER)?,
        })
    }
}

/// An error in a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault {number}: {problem}")]
pub struct FaultError {
    /// Number of the fault in its spec, from 1.
    number: usize,
    /// The error and the allowed values.
    problem: String,
}

impl FaultError {
    fn new(number: usize, problem: String) -> FaultError {
        FaultError { number, problem }
    }

    /// Returns the path of the fault in its spec.
    pub(crate) fn key(&self) -> String {
        format!("system.faults[{}]", self.number - 1)
    }
}

/// Checks the faults of a system of `legs` legs, as far as its drives need not be known.
pub(crate) fn check(faults: &[FaultSpec], legs: usize) -> Result<(), FaultError> {
    for (number, fault) in (1..).zip(faults) {
        if fault.leg >= legs {
            let last = legs.saturating_sub(1);
            let problem = format!("leg = {}: the legs are 0 to {last}", fault.leg);
            return Err(FaultError::new(number, problem));
        }
        fault.fault().map_err(|problem| FaultError::new(number, problem))?;
    }
    Ok(())
}
