//! Systems that serve clients: one drive, or several under a policy.

use hemi_drives::any::AnyDrive;
use hemi_drives::drive::{Counters, Drive};
use hemi_drives::drive_of_variants;
use hemi_engine::settings::{FlushCopies, Policy, Settings};
use hemi_units::{SECTOR_BYTES, Size, Time};
use serde::Deserialize;

use crate::mirror::{LegCondition, Mirror, MirrorError, Shape};
use crate::oracle::Oracle;
use crate::published::{Published, Rule};
use crate::run::Watched;
use hemi_workload::figures::Upkeep;

/// The policy that turns several drives into one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// No mirror: only the first leg.
    Single,
    /// A plain mirror: every leg is waited for.
    All,
    /// Linux md's write-behind: the slow leg may lag by a number of writes; flushes wait for
    /// all.
    WriteBehind,
    /// The paper's wait rule with all of hemi's guarantees.
    Paper,
    /// The rule as published: an unbounded queue, no crash safety. Simulation only.
    PaperUnsafe,
    /// hemi's default.
    #[default]
    First,
    /// A lower bound: always the faster leg, nothing owed. Simulation only.
    Oracle,
}

/// `[system.engine]`: settings of the engine that differ from its defaults.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSpec {
    /// Exposure bound in bytes.
    pub exposure_bytes: Option<Size>,
    /// Exposure bound in age.
    pub exposure_age: Option<Time>,
    /// Lowest wait limit.
    pub wait_floor: Option<Time>,
    /// Highest wait limit.
    pub wait_ceiling: Option<Time>,
    /// Time after which a leg that does not answer is marked out.
    pub out_after: Option<Time>,
    /// For `paper`: wait limit of the other legs, per mille of the first completion.
    pub paper_wait_permille: Option<u32>,
    /// For `write-behind`: slot of the slow leg, from 0.
    pub slow_leg: Option<u8>,
    /// For `write-behind`: maximum number of writes that leg may owe.
    pub write_behind_limit: Option<u32>,
    /// Data I/O in flight per leg before writes become debt.
    pub leg_window: Option<u32>,
    /// Legs on which a flush must be durable; 8 for all.
    pub flush_copies: Option<u8>,
    /// Owed extents held exactly, per leg.
    pub owed_extents_max: Option<u32>,
    /// Memory for requests and debts.
    pub buffers: Option<Size>,
    /// Idle time for which a region stays touched.
    pub clean_after: Option<Time>,
    /// Dirty data up to which idle regions stay armed; 0 keeps none.
    pub resync_bytes: Option<Size>,
    /// Maximum number of regions that may be touched or armed.
    pub dirty_regions_max: Option<u32>,
    /// Size of a region: a power of two of at least 64 KiB.
    pub region_bytes: Option<Size>,
    /// True to keep a ledger, so that an acknowledgement need not wait for the page that names
    /// its authority. Default true, as for a served volume.
    pub ledger: Option<bool>,
}

/// `[system.published]`: settings of `paper-unsafe`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Wait limit of the other legs, per mille of the first leg's time. Default 1300.
    pub wait_permille: Option<u64>,
    /// True if a newer write replaces older ones in the delay queue. Default true.
    pub coalesces: Option<bool>,
}

/// Debts held exactly for each mebibyte of the exposure bound, as in the server. Small writes
/// that fill the bound are held one by one.
const OWED_EXTENTS_PER_MIB: u64 = 512;
/// Memory for requests and debts in addition to the exposure bound, in bytes.
const BUFFERS_BESIDE: u64 = 128 << 20;

impl EngineSpec {
    /// Returns the engine's settings under one of its own policies, for this many legs. Where `buffers`
    /// are given, they bound what a served volume's buffer budget bounds.
    pub fn settings(&self, policy: Policy, legs: usize) -> Settings {
        let base = Settings::default();
        let exposure_bytes = self.exposure_bytes.map_or(base.exposure_bytes, |size| size.0);
        let owed = (exposure_bytes >> 20) * OWED_EXTENTS_PER_MIB;
        let owed = owed.clamp(u64::from(base.owed_extents_max), 1 << 22) as u32;
        let copies = self.flush_copies.map_or(base.flush_copies, FlushCopies::Count);
        let time = |given: Option<Time>, usual: u64| given.map_or(usual, |time| time.0);
        let settings = Settings {
            policy,
            exposure_bytes,
            exposure_age: time(self.exposure_age, base.exposure_age),
            wait_floor: time(self.wait_floor, base.wait_floor),
            wait_ceiling: time(self.wait_ceiling, base.wait_ceiling),
            out_after: time(self.out_after, base.out_after),
            paper_wait_permille: self.paper_wait_permille.unwrap_or(base.paper_wait_permille),
            slow_leg: self.slow_leg.unwrap_or(base.slow_leg),
            write_behind_limit: self.write_behind_limit.unwrap_or(base.write_behind_limit),
            leg_window: self.leg_window.unwrap_or(base.leg_window),
            flush_copies: copies,
            owed_extents_max: self.owed_extents_max.unwrap_or(owed),
            clean_after: time(self.clean_after, base.clean_after),
            resync_bytes: self.resync_bytes.map_or(base.resync_bytes, |size| size.0),
            dirty_regions_max: self.dirty_regions_max.unwrap_or(base.dirty_regions_max),
            ..base
        };
        match self.buffers {
            Some(size) => settings.within_buffers(size.0, legs),
            None => settings,
        }
    }

    /// Returns the shape of the volume. `volume_bytes` of zero means as much as the smallest
    /// leg holds.
    pub fn shape(&self, volume_bytes: u64) -> Shape {
        let exposure = self.exposure_bytes.map_or(Settings::default().exposure_bytes, |s| s.0);
        Shape {
            volume_bytes,
            region_bytes: self.region_bytes.map(|size| size.0),
            buffer_bytes: self.buffers.map_or(exposure + BUFFERS_BESIDE, |size| size.0),
            ledger: self.ledger.unwrap_or(true),
        }
    }
}

/// The system that serves the requests of a run.
pub enum System {
    /// One drive.
    Single(AnyDrive),
    /// hemi's engine, under one of its policies.
    Mirror(Box<Mirror<AnyDrive>>),
    /// The published rule.
    Published(Published<AnyDrive>),
    /// The lower bound.
    Oracle(Oracle<AnyDrive>),
}

impl System {
    /// Creates a system of these drives. `volume_bytes` of zero means as much as they hold.
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub fn new(
        policy: PolicyName,
        mut drives: Vec<AnyDrive>,
        volume_bytes: u64,
        engine: &EngineSpec,
        rule: RuleSpec,
        seed: u64,
    ) -> Result<System, MirrorError> {
        let policy = match policy {
            PolicyName::Single => {
                drives.truncate(1);
                let drive = fitting(drives, volume_bytes)?.remove(0);
                return Ok(System::Single(drive));
            }
            PolicyName::PaperUnsafe => {
                let usual = Rule::default();
                let rule = Rule {
                    wait_permille: rule.wait_permille.unwrap_or(usual.wait_permille),
                    coalesces: rule.coalesces.unwrap_or(usual.coalesces),
                };
                let drives = fitting(drives, volume_bytes)?;
                return Ok(System::Published(Published::new(drives, rule)));
            }
            PolicyName::Oracle => {
                return Ok(System::Oracle(Oracle::new(fitting(drives, volume_bytes)?)));
            }
            PolicyName::All => Policy::All,
            PolicyName::WriteBehind => Policy::WriteBehind,
            PolicyName::Paper => Policy::Paper,
            PolicyName::First => Policy::First,
        };
        let settings = engine.settings(policy, drives.len());
        let mirror = Mirror::new(drives, engine.shape(volume_bytes), settings, seed)?;
        Ok(System::Mirror(Box::new(mirror)))
    }

    /// Returns the counters of each drive.
    pub fn leg_counters(&mut self, legs: usize) -> Vec<Counters> {
        let leg = |leg| match self {
            System::Single(drive) => drive.counters(),
            System::Mirror(mirror) => mirror.leg_counters(leg),
            System::Published(published) => published.leg_counters(leg),
            System::Oracle(oracle) => oracle.leg_counters(leg),
        };
        (0..legs).map(leg).collect()
    }

    /// Returns the condition of each leg; `None` without an engine.
    pub fn leg_conditions(&mut self, legs: usize) -> Vec<Option<LegCondition>> {
        let condition = |leg| match self {
            System::Mirror(mirror) => Some(mirror.leg_condition(leg)),
            _ => None,
        };
        (0..legs).map(condition).collect()
    }

    /// Returns additional figures of the system, by name.
    pub fn extra(&self) -> Vec<(&'static str, f64)> {
        match self {
            System::Published(published) => published.extra(),
            _ => Vec::new(),
        }
    }

    /// Returns the highest exposure by the engine's own account in bytes, or zero without an
    /// engine.
    pub fn exposure_peak(&mut self) -> u64 {
        match self {
            System::Mirror(mirror) => mirror.status().exposure_peak,
            _ => 0,
        }
    }
}

/// Returns the drives if each holds the volume, as a policy without metadata needs them.
fn fitting(drives: Vec<AnyDrive>, volume: u64) -> Result<Vec<AnyDrive>, MirrorError> {
    let smallest = drives.iter().map(|drive| drive.sectors() * SECTOR_BYTES).min();
    match smallest {
        None => Err(MirrorError::Legs(0)),
        Some(smallest) if volume > smallest => Err(MirrorError::Larger { volume, smallest }),
        Some(_) => Ok(drives),
    }
}

drive_of_variants!(System: Single, Mirror, Published, Oracle);

impl Watched for System {
    fn exposure(&mut self) -> (u64, u64) {
        match self {
            System::Single(_) => (0, 0),
            System::Mirror(mirror) => mirror.exposure(),
            System::Published(published) => published.exposure(),
            System::Oracle(oracle) => oracle.exposure(),
        }
    }

    fn upkeep(&mut self) -> Upkeep {
        match self {
            System::Mirror(mirror) => mirror.upkeep(),
            _ => Upkeep::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_bound_what_a_served_volumes_budget_bounds() {
        let given = |buffers| EngineSpec { buffers, ..EngineSpec::default() };
        let usual = given(None).settings(Policy::First, 2);
        assert_eq!((usual.copies_reserve, usual.leg_window_bytes), (64 << 20, 32 << 20));
        let small = given(Some(Size(64 << 20))).settings(Policy::First, 2);
        assert_eq!((small.copies_reserve, small.leg_window_bytes), (32 << 20, 8 << 20));
        let large = given(Some(Size(1 << 30))).settings(Policy::First, 2);
        assert_eq!((large.copies_reserve, large.leg_window_bytes), (64 << 20, 32 << 20));
    }
}
