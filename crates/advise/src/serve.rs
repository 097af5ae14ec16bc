//! A load served by a system, in virtual time.

use std::sync::Arc;

use hemi_drives::any::AnyDrive;
use hemi_drives::array::Array;
use hemi_drives::drive::{Counters, Drive};
use hemi_drives::folded::Folded;
use hemi_drives::preset::{Precondition, Preset, PresetError};
use hemi_simulate::mirror::MirrorError;
use hemi_simulate::run::Run;
use hemi_simulate::stock::Stock;
use hemi_simulate::system::{EngineSpec, PolicyName, RuleSpec, System};
use hemi_units::{Instant, SECOND, SECTOR_BYTES, Size};

use crate::arrivals::Arrivals;
use crate::freezes::Placed;
use crate::load::Load;
use crate::units::Unit;

/// States of flash that are made of one preset. Drives of a system are not in the same state, so
/// they do not collect garbage at the same moments.
const STATES: u64 = 2;
/// Time after the last arrival at which a run ends, besides a thousand times the load's own.
const PATIENCE: u64 = 24 * 3600 * SECOND;
/// Intervals of a run; nothing is made of them.
const INTERVALS: u64 = 64;

/// The reason why a system cannot serve a load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Preset(#[from] PresetError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
}

/// The conditions of all runs.
pub(crate) struct Bench<'a> {
    pub(crate) load: &'a Load,
    pub(crate) stock: &'a Stock,
    pub(crate) state: Precondition,
    pub(crate) seed: u64,
    /// Bytes of the volume.
    pub(crate) volume: u64,
    /// Bound of the exposure.
    pub(crate) exposure: Option<Size>,
}

/// The answers of a system.
pub(crate) struct Served {
    /// Latency of each request in nanoseconds.
    pub(crate) latencies: Vec<u64>,
    /// Work of each unit.
    pub(crate) counters: Vec<Counters>,
    /// Nanoseconds from the first arrival to the last answer.
    pub(crate) time: u64,
    /// Highest exposure in bytes.
    pub(crate) exposure_peak: u64,
}

impl Bench<'_> {
    /// Returns the flash that the unit in `slot` is made from: presets as scaled, and seeds.
    pub(crate) fn flash(&self, unit: &Unit, slot: u64) -> Vec<(Preset, u64)> {
        let preset = unit.drive.simulated();
        let states = (0..u64::from(unit.count)).map(|member| self.state_seed(slot + member));
        let mut seeds: Vec<u64> = states.collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds.into_iter().map(|seed| (preset.clone(), seed)).collect()
    }

    /// Brings flash into the state, for later use.
    pub(crate) fn prepare(&self, preset: &Preset, seed: u64) -> Result<(), PresetError> {
        self.stock.of(preset, self.state, seed).map(drop)
    }

    fn state_seed(&self, slot: u64) -> u64 {
        self.seed.wrapping_add(1 + slot % STATES)
    }

    /// Creates the unit in `slot`. `freezes` are those of its first drive.
    fn unit(
        &self,
        unit: &Unit,
        slot: u64,
        freezes: Option<&Placed>,
    ) -> Result<AnyDrive, PresetError> {
        let preset = unit.drive.simulated();
        let of = |member: u64| {
            let drive = self.stock.of(&preset, self.state, self.state_seed(slot + member))?;
            Ok::<_, PresetError>(match freezes {
                Some(placed) if member == 0 => placed.before(drive),
                _ => drive,
            })
        };
        let drive = match unit.array() {
            None => of(0)?,
            Some(parameters) => {
                let members = (0..u64::from(unit.count)).map(of);
                let members = members.collect::<Result<Vec<_>, _>>()?;
                let array = Array::new(&parameters, members).map_err(|error| {
                    PresetError::Impossible { name: unit.name(), reason: error.to_string() }
                })?;
                AnyDrive::Array(Box::new(array))
            }
        };
        let sectors = unit.capacity() / SECTOR_BYTES;
        if drive.sectors() >= sectors || unit.drive.preset.flash_scale()? * unit.drive.scale == 1 {
            return Ok(drive);
        }
        Ok(AnyDrive::Folded(Box::new(Folded::new(drive, sectors))))
    }

    /// Serves the load from these units under a policy; `freezes` are those of one drive of the
    /// unit in the slot.
    pub(crate) fn serve(
        &self,
        units: &[&Unit],
        policy: PolicyName,
        freezes: Option<(usize, &Placed)>,
    ) -> Result<Served, ServeError> {
        let mut drives = Vec::new();
        for (slot, unit) in units.iter().enumerate() {
            let own = freezes.filter(|(frozen, _)| *frozen == slot).map(|(_, placed)| placed);
            drives.push(self.unit(unit, slot as u64, own)?);
        }
        let before: Vec<Counters> = drives.iter().map(Drive::counters).collect();
        let engine = EngineSpec { exposure_bytes: self.exposure, ..EngineSpec::default() };
        let rule = RuleSpec::default();
        let mut system = System::new(policy, drives, self.volume, &engine, rule, self.seed)?;
        let mut arrivals = Arrivals::new(Arc::clone(&self.load.entries));
        let duration = self.load.duration;
        let mut run = Run::new((duration / INTERVALS).max(SECOND));
        let end = duration.saturating_mul(1000).saturating_add(PATIENCE);
        run.until(Instant(end), &mut system, &mut arrivals, |_| true);
        let counters = system.leg_counters(units.len());
        let counters =
            counters.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
        let time = run.now().0.max(1);
        let exposure_peak = system.exposure_peak();
        Ok(Served { latencies: arrivals.into_latencies(run.now()), counters, time, exposure_peak })
    }
}
