//! The JSON of the control API: the answer of `GET /v1/status` and the bodies of requests.
//!
//! `docs/control-api.md` is its reference. Times end in `_ns` (nanoseconds), sizes in `_bytes`. Fields are
//! added but never renamed. Readers must ignore fields they do not know.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hemi_engine::settings::{ExposureMode, Policy};
use hemi_engine::status::LegState;
use serde::{Deserialize, Serialize};

use super::health::{Condition, Health, Summary};
use super::hidden::HiddenStall;
use super::standbys::StandbyStatus;
use super::usage::ProcessStatus;
use super::volume::{BufferUse, Connections, Fault, HandoverReport, Phase, RefusalKind};
use crate::config::device::DeviceKind;
use crate::create::Share;
use crate::drive::DriveStatus;
use crate::fail_slow::Verdict;
use crate::grow::GrowTo;
use crate::ledger::LedgerStatus;
use crate::opening::GivenUp;
use hemi_io::config::legs::LegConfig;
use hemi_units::Time;

/// A latency distribution. Quantiles are bucket ends, so they are at most 25 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of samples.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 % quantile.
    pub p99_ns: u64,
    /// 99.9 % quantile.
    pub p999_ns: u64,
    /// The maximum (in `recent`: the end of its bucket).
    pub max_ns: u64,
}

/// Latencies over the last seconds and since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Latency over the last [`VolumeStatus::recent_ns`].
    pub recent: Latency,
    /// Latency since the volume was opened.
    pub total: Latency,
}

/// One leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegStatus {
    /// The leg's slot.
    pub leg: u8,
    /// Its name, or its spec if it has none.
    pub name: String,
    /// Its spec.
    pub path: String,
    /// Condition.
    pub state: LegState,
    /// Time since it entered that state; `null` if it has been in it since the volume was opened.
    pub state_age_ns: Option<u64>,
    /// The reason why it is out, if it is.
    pub out_reason: Option<OutReason>,
    /// True if it is steadily slower than the fastest leg.
    pub slow: bool,
    /// Acknowledged bytes it lacks.
    pub owed_bytes: u64,
    /// The part of `owed_bytes` that is owed as whole regions.
    pub owed_region_bytes: u64,
    /// Age of the oldest exact debt.
    pub owed_age_ns: u64,
    /// I/O in flight.
    pub in_flight: u32,
    /// True if its oldest I/O in flight is late by more than a second, although it does not count as frozen:
    /// no other leg could take over.
    #[serde(default)]
    pub stalled: bool,
    /// Wait limit of a 4 KiB read.
    pub read_wait_limit_ns: u64,
    /// Wait limit of a 4 KiB write.
    pub write_wait_limit_ns: u64,
    /// Read latencies.
    pub reads: Latencies,
    /// Write latencies.
    pub writes: Latencies,
    /// Flush latencies.
    pub flushes: Latencies,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Times it froze.
    pub freezes: u64,
    /// Total time frozen.
    pub frozen_ns: u64,
    /// Longest freeze.
    pub longest_freeze_ns: u64,
    /// Drain I/Os.
    pub drain_ios: u64,
    /// Bytes drained.
    pub drained_bytes: u64,
    /// Bytes it owed after an unclean stop and was found to hold.
    pub compared_bytes: u64,
    /// Metadata pages written.
    pub metadata_writes: u64,
    /// I/O errors.
    pub errors: u64,
    /// Dirty regions for which this leg is the authority.
    pub authority_regions: u32,
    /// The metadata that the leg was found to have lost, in words; `null` if none is known to be lost.
    #[serde(default)]
    pub metadata_lost: Option<String>,
    /// Estimated time until it owes nothing, at the current rate; `null` if it owes nothing, if the rate is
    /// unknown, or if the debt is not shrinking.
    #[serde(default)]
    pub remaining_ns: Option<u64>,
    /// Rate at which its debt is paid, in bytes per second; `null` if it owes nothing or the rate is unknown.
    #[serde(default)]
    pub drain_bytes_per_s: Option<u64>,
    /// Progress of its rebuild, in thousandths; `null` if it owes no whole regions.
    #[serde(default)]
    pub progress_permille: Option<u16>,
    /// The faults injected into it, if any.
    #[serde(default)]
    pub injected: Option<Injected>,
    /// The reason why a remote leg has no session; `null` while it has one. hemi keeps trying to reconnect.
    #[serde(default)]
    pub no_session: Option<String>,
    /// The drive behind it that most needs attention; `null` until it has been looked up.
    #[serde(default)]
    pub drive: Option<DriveStatus>,
    /// All drives behind it.
    #[serde(default)]
    pub drives: Vec<DriveStatus>,
    /// The verdict that it is slower than its kind should be, or than it used to be.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// The faults injected into a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Remaining time of the freeze.
    pub frozen_for_ns: u64,
    /// Delay added to every I/O.
    pub delay_ns: u64,
    /// Reads that fail, per thousand.
    pub read_errors_permille: u16,
    /// Writes that fail, per thousand.
    pub write_errors_permille: u16,
    /// Flushes that fail, per thousand.
    pub flush_errors_permille: u16,
    /// I/Os being held back.
    pub held: u64,
    /// Stalls of single requests.
    pub stalls: Option<InjectedStalls>,
}

/// A schedule of stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedStalls {
    /// Seed of the random choices.
    pub seed: u64,
    /// The current phase, counted from 1; `null` once the last one is over.
    pub phase: Option<u64>,
    /// The number of phases.
    pub phases: u64,
    /// Remaining time of the current phase; `null` if it has no end.
    pub phase_left_ns: Option<u64>,
    /// Reads since the schedule began.
    pub reads: StallCount,
    /// Writes and all other requests since the schedule began.
    pub writes: StallCount,
}

/// Counts of requests while a schedule of stalls was in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallCount {
    /// All requests.
    pub seen: u64,
    /// Requests that stalled.
    pub stalled: u64,
}

impl From<hemi_io::leg::InjectionState> for Injected {
    fn from(state: hemi_io::leg::InjectionState) -> Injected {
        Injected {
            frozen_for_ns: state.frozen_for,
            delay_ns: state.delay,
            read_errors_permille: state.reads,
            write_errors_permille: state.writes,
            flush_errors_permille: state.flushes,
            held: state.held as u64,
            stalls: state.stalls.map(Into::into),
        }
    }
}

impl From<hemi_stalls::Progress> for InjectedStalls {
    fn from(progress: hemi_stalls::Progress) -> InjectedStalls {
        let count =
            |count: hemi_stalls::Count| StallCount { seen: count.seen, stalled: count.stalled };
        InjectedStalls {
            seed: progress.seed,
            phase: progress.phase.map(|index| index as u64 + 1),
            phases: progress.phases as u64,
            phase_left_ns: progress.left,
            reads: count(progress.reads),
            writes: count(progress.writes),
        }
    }
}

/// The reason why a leg is out, as in [`hemi_engine::io::OutReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutReason {
    /// Dead for longer than `out_after`.
    Unresponsive,
    /// Its device is gone.
    Removed,
    /// It fails writes.
    WriteErrors,
    /// The operator detached it.
    Detached,
    /// It joined and has not drained yet.
    Joining,
}

impl From<hemi_engine::io::OutReason> for OutReason {
    fn from(reason: hemi_engine::io::OutReason) -> OutReason {
        match reason {
            hemi_engine::io::OutReason::Unresponsive => OutReason::Unresponsive,
            hemi_engine::io::OutReason::Removed => OutReason::Removed,
            hemi_engine::io::OutReason::WriteErrors => OutReason::WriteErrors,
            hemi_engine::io::OutReason::Detached => OutReason::Detached,
            hemi_engine::io::OutReason::Joining => OutReason::Joining,
        }
    }
}

/// Acknowledged data held by one leg only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposure {
    /// Bytes exposed now.
    pub bytes: u64,
    /// Age of the oldest exposed write.
    pub age_ns: u64,
    /// The highest number of exposed bytes since the volume was opened.
    pub peak_bytes: u64,
    /// Bound on the bytes.
    pub bound_bytes: u64,
    /// Bound on the age.
    pub bound_age_ns: u64,
    /// The action at the bound.
    pub mode: ExposureMode,
    /// True while writers are held back.
    pub throttling: bool,
}

/// The volume as clients see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Connections.
    pub connections: Connections,
    /// Requests in flight.
    pub requests: u32,
    /// Requests that failed.
    pub failed: u64,
    /// Bytes read since the volume was opened.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes written since the volume was opened.
    #[serde(default)]
    pub written_bytes: u64,
    /// Reads.
    pub reads: Latencies,
    /// Writes of data.
    pub writes: Latencies,
    /// Write-zeroes and trims.
    #[serde(default)]
    pub zeroes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
}

/// The engine's counters since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Dirty regions now.
    pub dirty_regions: u32,
    /// The armed ones among the dirty regions: not written since every whole leg flushed them.
    pub armed_regions: u32,
    /// Regions made dirty.
    pub regions_dirtied: u64,
    /// Regions cleaned.
    pub regions_cleaned: u64,
    /// Regions whose authority moved.
    pub authority_moves: u64,
    /// Reads hedged.
    pub hedges: u64,
    /// Hedges that answered first.
    pub hedges_won: u64,
    /// Bad extents rewritten.
    pub repairs: u64,
}

/// The last or running scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// True while one runs.
    pub running: bool,
    /// Bytes compared so far by the running one.
    pub compared_bytes: u64,
    /// Bytes the running one will compare in total.
    pub total_bytes: u64,
    /// Bytes found to differ by the running or last one.
    pub mismatched_bytes: u64,
    /// Bytes of the pieces that a leg could not read in the running or last one.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// Bytes that are known to differ now: found by a scrub, by this server or one before it, and neither
    /// repaired nor written since.
    #[serde(default)]
    pub different_bytes: u64,
    /// Progress of the running one, in thousandths; `null` if none runs.
    #[serde(default)]
    pub permille: Option<u16>,
    /// Estimated time until the running one ends; `null` if none runs or the time is unknown.
    #[serde(default)]
    pub remaining_ns: Option<u64>,
    /// Bytes per second that the running one compares; `null` if none runs or the rate is unknown.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// The last one that ended, even if before this start of hemi; `null` if none is known.
    #[serde(default)]
    pub last: Option<LastScrub>,
}

/// A scrub that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrub {
    /// Time at which it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// Bytes found to differ.
    pub mismatched_bytes: u64,
    /// Bytes of the pieces that a leg could not read.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// True if it was to rewrite what it found.
    pub repaired: bool,
    /// Its duration.
    pub took_ns: u64,
    /// True if it was stopped early.
    pub stopped: bool,
}

/// A condition of the volume, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// The promise that does not hold in full meanwhile, `P1` to `P8`.
    pub promise: String,
    /// The condition.
    pub condition: Condition,
    /// The same in a few words, for a table.
    pub brief: String,
    /// The data at risk, and the event that would lose it.
    pub text: String,
    /// Advice for the operator; `null` if nothing needs to be done.
    #[serde(default)]
    pub advice: Option<String>,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Version of hemi.
    pub version: String,
    /// The volume's name.
    pub name: String,
    /// Its id in UUID notation.
    pub id: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Smallest request, in bytes.
    pub block_bytes: u32,
    /// Region size.
    pub region_bytes: u64,
    /// The ledger's file, or the reason why there is none.
    #[serde(default)]
    pub ledger: LedgerStatus,
    /// The block device through which it is attached; `null` if there is none.
    #[serde(default)]
    pub device: Option<String>,
    /// The loss that this start accepted in order to go on without missing legs; `null` if there was none.
    #[serde(default)]
    pub given_up: Option<GivenUp>,
    /// The configuration file it was started from; `null` if there was none.
    #[serde(default)]
    pub config_file: Option<PathBuf>,
    /// The stage of its life.
    pub phase: Phase,
    /// Health in one word.
    pub health: Health,
    /// The missing legs that an open waits for, in words; `null` if it waits for none.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Acknowledgement rule.
    pub policy: Policy,
    /// Time since it was opened.
    pub uptime_ns: u64,
    /// Age of these figures.
    pub age_ns: u64,
    /// The span that the `recent` latencies cover.
    pub recent_ns: u64,
    /// True if `health` is `degraded`.
    pub degraded: bool,
    /// True if all legs are whole and no difference between them is known.
    pub converged: bool,
    /// Bytes on one leg only: the exposed ones, regions that all other legs owe, and everything while one leg
    /// alone is in. With three legs or more it is an upper bound.
    #[serde(default)]
    pub one_copy_bytes: u64,
    /// The part of `one_copy_bytes` in regions that legs owe; 0 while one leg alone is in.
    #[serde(default)]
    pub one_copy_region_bytes: u64,
    /// Acknowledged bytes that no leg holds any more. Reads of them fail until they are rewritten.
    pub lost_bytes: u64,
    /// Every slot in use.
    pub legs: Vec<LegStatus>,
    /// The drives that wait to take the place of a leg.
    #[serde(default)]
    pub standbys: Vec<StandbyStatus>,
    /// Acknowledged data held by one leg only.
    pub exposure: Exposure,
    /// The volume as clients see it.
    pub clients: ClientStatus,
    /// The engine's counters.
    pub engine: EngineCounters,
    /// The last or running scrub.
    pub scrub: ScrubStatus,
    /// Payload memory.
    pub buffers: BufferUse,
    /// The handover from the program that this one replaced; `null` if it replaced none.
    #[serde(default)]
    pub taken_over: Option<HandoverReport>,
    /// Conditions that an operator should know, in words, worst first.
    pub risks: Vec<Risk>,
    /// Time of this answer, in milliseconds since 1970.
    #[serde(default)]
    pub at_ms: u64,
    /// Stall time hidden from clients.
    #[serde(default)]
    pub hidden: HiddenStall,
    /// This process's own resource usage.
    #[serde(default)]
    pub process: ProcessStatus,
    /// The worst condition in one sentence, or that all is well.
    #[serde(default)]
    pub summary: Summary,
}

/// `POST /v1/legs/add`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddLeg {
    /// The slot. Default: the first free one.
    #[serde(default)]
    pub leg: Option<u8>,
    /// The new leg: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// True if the content of the device may be overwritten.
    #[serde(default)]
    pub wipe: bool,
    /// The share of its drive to leave unused, such as `20%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Share>,
}

/// `POST /v1/legs/replace`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceLeg {
    /// Slot.
    pub leg: u8,
    /// The new leg: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// True if the content of the device may be overwritten.
    #[serde(default)]
    pub wipe: bool,
    /// The share of its drive to leave unused, such as `20%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Share>,
}

/// `POST /v1/legs/attach`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachLeg {
    /// The leg: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// True if data written to it since it was detached may be overwritten.
    #[serde(default)]
    pub wipe: bool,
}

/// `POST /v1/standbys/add`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddStandby {
    /// The drive: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// True if the content of the device may be overwritten.
    #[serde(default)]
    pub wipe: bool,
}

/// `POST /v1/standbys/remove`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveStandby {
    /// The standby's name or spec.
    pub standby: String,
}

/// `POST /v1/legs/remove` and `/v1/legs/detach`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneLeg {
    /// Slot.
    pub leg: u8,
}

/// `POST /v1/reload`, `/v1/device/attach` and `/v1/device/detach`: no parameters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Empty {}

/// `POST /v1/device/attach`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachDevice {
    /// The kernel's driver. Default: the best available.
    pub driver: DeviceKind,
}

/// `POST /v1/scrub`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scrub {
    /// True to rewrite what a leg cannot read, and what differs from the leg `from`.
    pub repair: bool,
    /// The slot of the leg that is right. Default: differences are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u8>,
    /// The first byte of the part to compare. Default: the first of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_bytes: Option<u64>,
    /// The length of the part to compare. Default: up to the end of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_bytes: Option<u64>,
    /// True to stop the running scrub instead.
    pub stop: bool,
}

/// `POST /v1/set`: one key or several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Set {
    /// The key, as in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its value: text, a number, or true or false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// Several keys with their values. All of them change, or none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, serde_json::Value>,
}

/// `POST /v1/inject`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inject {
    /// Slot.
    pub leg: u8,
    /// The fault.
    pub fault: Fault,
}

/// `POST /v1/shutdown`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// Time limit for draining. Default: `drain_on_stop`.
    pub drain: Option<Time>,
}

/// `POST /v1/upgrade`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upgrade {
    /// The program that takes over. Default: the file that the running one was started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<PathBuf>,
    /// True if clients that cannot be handed over may be disconnected.
    pub force: bool,
}

/// `POST /v1/grow`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grow {
    /// The new size. Default: as large as the legs allow.
    pub to: GrowTo,
    /// True if clients that cannot be handed over may be disconnected.
    pub force: bool,
}

/// The body of every answer with a status code of 400 or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The reason, in one word.
    pub error: RefusalKind,
    /// The problem, naming the thing and its value.
    pub what: String,
    /// The way out.
    pub way_out: String,
}
