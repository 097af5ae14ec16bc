//! A workload in a spec file: the section `workload`, which names one kind.
//!
//! ```toml
//! [workload.closed]
//! threads = 16
//! queue_depth = 16
//! duration = "60 s"
//! access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 70 } }
//! ```
//!
//! Complete examples are in the crate's `specs/`.

use std::fmt;
use std::path::Path;

use hemi_units::SECTOR_BYTES;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::any::AnyWorkload;
use super::bursts::BurstsSpec;
use super::closed::ClosedSpec;
use super::combine::{Combine, CombineSpec, MOST_PARTS};
use super::error::{WorkloadError, check_count, check_length};
use super::limit::{self, Limits};
use super::open::OpenSpec;
use super::phases::{MOST_PHASES, Phase, PhaseSpec, Phases};
use super::replay::ReplaySpec;
use super::seeds::Seeds;

/// The spec of a workload.
#[derive(Clone, Debug)]
pub enum WorkloadSpec {
    /// Threads that each keep a number of requests in flight.
    Closed(ClosedSpec),
    /// Requests at a rate.
    Open(OpenSpec),
    /// Checkpoint bursts, with or without another workload beside them.
    Bursts(BurstsSpec),
    /// Replay of a trace.
    Replay(ReplaySpec),
    /// Several workloads at once.
    Combine(CombineSpec),
    /// Several workloads, one after another.
    Phases(Vec<PhaseSpec>),
}

const KINDS: [&str; 6] = ["closed", "open", "bursts", "replay", "combine", "phases"];

impl<'de> Deserialize<'de> for WorkloadSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WorkloadSpec, D::Error> {
        struct Kinds;

        impl<'de> Visitor<'de> for Kinds {
            type Value = WorkloadSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of closed, open, bursts, replay, combine, phases")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WorkloadSpec, A::Error> {
                let spec = match map.next_key::<String>()?.as_deref() {
                    Some("closed") => WorkloadSpec::Closed(map.next_value()?),
                    Some("open") => WorkloadSpec::Open(map.next_value()?),
                    Some("bursts") => WorkloadSpec::Bursts(map.next_value()?),
                    Some("replay") => WorkloadSpec::Replay(map.next_value()?),
                    Some("combine") => WorkloadSpec::Combine(map.next_value()?),
                    Some("phases") => WorkloadSpec::Phases(map.next_value()?),
                    Some(name) => {
                        return Err(A::Error::unknown_variant(name, &KINDS));
                    }
                    None => {
                        let text = "the workload is empty: write one of closed, open, bursts, \
                                    replay, combine, phases, as in [workload.open]";
                        return Err(A::Error::custom(text));
                    }
                };
                match map.next_key::<String>()? {
                    Some(name) => Err(A::Error::custom(format_args!(
                        "`{name}` is a second workload: write them as the parts of a combine"
                    ))),
                    None => Ok(spec),
                }
            }
        }

        deserializer.deserialize_map(Kinds)
    }
}

/// The volume and directory a workload is built for.
struct Site<'a> {
    volume_sectors: u64,
    base_directory: &'a Path,
}

impl WorkloadSpec {
    /// Builds the workload on a volume of `volume_sectors` sectors, beginning at time zero.
    /// Traces are read into memory, from files relative to `base_directory`; no other file is
    /// read, now or later.
    ///
    /// # Errors
    /// Fails if the spec is impossible on that volume, naming the key, and if a trace cannot be
    /// read or does not fit.
    pub fn build(
        &self,
        volume_sectors: u64,
        seed: u64,
        base_directory: &Path,
    ) -> Result<AnyWorkload, WorkloadError> {
        self.check(volume_sectors)?;
        let site = Site { volume_sectors, base_directory };
        self.build_at(&site, Seeds::new(seed)).map_err(|e| e.within(self.name()))
    }

    /// Checks that the spec is possible on a volume of `volume_sectors` sectors, as far as that
    /// can be known without reading traces.
    ///
    /// # Errors
    /// Fails at the first problem, naming the key.
    pub fn check(&self, volume_sectors: u64) -> Result<(), WorkloadError> {
        // The most drives take; the space of block addresses is smaller than that of bytes.
        let most = u64::MAX / SECTOR_BYTES;
        check_count("sectors of the volume", volume_sectors, most)?;
        self.check_kind(volume_sectors, false, false).map_err(|e| e.within(self.name()))
    }

    /// Returns the key that names the kind.
    pub fn name(&self) -> &'static str {
        match self {
            WorkloadSpec::Closed(_) => "closed",
            WorkloadSpec::Open(_) => "open",
            WorkloadSpec::Bursts(_) => "bursts",
            WorkloadSpec::Replay(_) => "replay",
            WorkloadSpec::Combine(_) => "combine",
            WorkloadSpec::Phases(_) => "phases",
        }
    }

    /// Returns true if the workload ends by itself.
    pub fn ends(&self) -> bool {
        match self {
            WorkloadSpec::Closed(spec) => spec.duration.is_some() || spec.requests.is_some(),
            WorkloadSpec::Open(spec) => spec.duration.is_some() || spec.requests.is_some(),
            WorkloadSpec::Bursts(spec) => {
                (spec.duration.is_some() || spec.requests.is_some())
                    && spec.over.as_ref().is_none_or(|over| over.ends())
            }
            WorkloadSpec::Replay(_) => true,
            WorkloadSpec::Combine(spec) => {
                spec.duration.is_some()
                    || spec.requests.is_some()
                    || spec.parts.iter().all(WorkloadSpec::ends)
            }
            WorkloadSpec::Phases(phases) => phases.iter().enumerate().all(|(index, phase)| {
                phase.duration.is_some()
                    || phase.requests.is_some()
                    || workload_of(phases, index).is_some_and(WorkloadSpec::ends)
            }),
        }
    }

    fn check_kind(
        &self,
        volume_sectors: u64,
        in_combine: bool,
        in_phases: bool,
    ) -> Result<(), WorkloadError> {
        // Building a workload without traces is cheap and finds all errors.
        let seeds = Seeds::new(0);
        match self {
            WorkloadSpec::Closed(spec) => spec.build(volume_sectors, seeds).map(drop),
            WorkloadSpec::Open(spec) => spec.build(volume_sectors, seeds).map(drop),
            WorkloadSpec::Replay(spec) => spec.check(),
            WorkloadSpec::Bursts(spec) => {
                spec.build(volume_sectors, seeds)?;
                let Some(over) = &spec.over else {
                    return Ok(());
                };
                match **over {
                    WorkloadSpec::Closed(_) | WorkloadSpec::Open(_) | WorkloadSpec::Replay(_) => {
                        over.check_kind(volume_sectors, in_combine, in_phases)
                            .map_err(|e| e.within(over.name()).within("over"))
                    }
                    _ => {
                        Err(WorkloadError::new("over", over.name(), "write closed, open or replay"))
                    }
                }
            }
            WorkloadSpec::Combine(spec) => {
                if in_combine {
                    let right = "write the parts beside the others of the outer `combine`";
                    return Err(WorkloadError::new("parts", "a combine in a combine", right));
                }
                limit::check(spec.duration, spec.requests)?;
                check_length("parts", spec.parts.len(), MOST_PARTS as u64)?;
                for (index, part) in spec.parts.iter().enumerate() {
                    part.check_kind(volume_sectors, true, in_phases)
                        .map_err(|e| e.within(part.name()).within(format!("parts[{index}]")))?;
                }
                Ok(())
            }
            WorkloadSpec::Phases(phases) => {
                if in_phases {
                    let right = "write the phases beside the others of the outer `phases`";
                    return Err(WorkloadError::new("workload", "phases in a phase", right));
                }
                check_length("", phases.len(), MOST_PHASES)?;
                for (index, phase) in phases.iter().enumerate() {
                    check_phase(phases, index, phase)
                        .and_then(|()| match &phase.workload {
                            None => Ok(()),
                            Some(workload) => workload
                                .check_kind(volume_sectors, in_combine, true)
                                .map_err(|e| e.within(workload.name()).within("workload")),
                        })
                        .map_err(|e| e.within(format!("[{index}]")))?;
                }
                Ok(())
            }
        }
    }

    fn build_at(&self, site: &Site<'_>, seeds: Seeds) -> Result<AnyWorkload, WorkloadError> {
        Ok(match self {
            WorkloadSpec::Closed(spec) => {
                AnyWorkload::Closed(spec.build(site.volume_sectors, seeds)?)
            }
            WorkloadSpec::Open(spec) => AnyWorkload::Open(spec.build(site.volume_sectors, seeds)?),
            WorkloadSpec::Replay(spec) => {
                AnyWorkload::Replay(spec.build(site.volume_sectors, site.base_directory)?)
            }
            WorkloadSpec::Bursts(spec) => {
                let bursts = spec.build(site.volume_sectors, seeds.part(0))?;
                let bursts = AnyWorkload::Bursts(bursts);
                let Some(over) = &spec.over else {
                    return Ok(bursts);
                };
                let over = over
                    .build_at(site, seeds.part(1))
                    .map_err(|e| e.within(over.name()).within("over"))?;
                AnyWorkload::Combine(Combine::new(vec![over, bursts], Limits::new(None, None)))
            }
            WorkloadSpec::Combine(spec) => {
                let parts = (0..).zip(&spec.parts);
                let parts = parts.map(|(index, part)| {
                    part.build_at(site, seeds.part(index))
                        .map_err(|e| e.within(part.name()).within(format!("parts[{index}]")))
                });
                let parts = parts.collect::<Result<_, _>>()?;
                let limits = Limits::new(spec.duration, spec.requests);
                AnyWorkload::Combine(Combine::new(parts, limits))
            }
            WorkloadSpec::Phases(phases) => {
                let phases = (0..).zip(phases).map(|(index, phase)| {
                    let workload = phase.workload.as_ref();
                    let workload = workload.map(|workload| {
                        workload.build_at(site, seeds.part(index)).map_err(|e| {
                            e.within(workload.name()).within(format!("[{index}].workload"))
                        })
                    });
                    Ok(Phase {
                        duration: phase.duration,
                        requests: phase.requests,
                        measured: phase.measured,
                        workload: workload.transpose()?,
                    })
                });
                let phases = phases.collect::<Result<_, WorkloadError>>()?;
                AnyWorkload::Phases(Box::new(Phases::new(phases)))
            }
        })
    }
}

/// Returns the workload that runs in a phase.
fn workload_of(phases: &[PhaseSpec], index: usize) -> Option<&WorkloadSpec> {
    phases[..=index].iter().rev().find_map(|phase| phase.workload.as_deref())
}

fn check_phase(phases: &[PhaseSpec], index: usize, phase: &PhaseSpec) -> Result<(), WorkloadError> {
    limit::check(phase.duration, phase.requests)?;
    let Some(workload) = workload_of(phases, index) else {
        let right = "write what goes on in the first phase";
        return Err(WorkloadError::new("workload", "nothing", right));
    };
    let limited = phase.duration.is_some() || phase.requests.is_some();
    if index + 1 < phases.len() && !limited && !workload.ends() {
        let right = "write how long the phase lasts: another follows, and its workload never ends";
        return Err(WorkloadError::new("duration", "none", right));
    }
    Ok(())
}

#[cfg(test)]
mod compositions;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
