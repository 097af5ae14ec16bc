//! The JSON of the control API: what `GET /v1/status` answers and what requests carry.
//!
//! `docs/control-api.md` is its reference. Times end in `_ns` (nanoseconds), sizes in
//! `_bytes`. Fields are added, not renamed: readers must ignore those they do not know.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hemi_engine::settings::{ExposureMode, Policy};
use hemi_engine::status::LegState;
use serde::{Deserialize, Serialize};

use super::hidden::HiddenStall;
use super::summary::Summary;
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

/// A latency distribution. Quantiles are at most 25 % high (bucket ends).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 % quantile.
    pub p99_ns: u64,
    /// 99.9 % quantile.
    pub p999_ns: u64,
    /// The longest (`recent`: its bucket's end).
    pub max_ns: u64,
}

/// A latency since the volume was opened and over the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Over the last [`VolumeStatus::recent_ns`].
    pub recent: Latency,
    /// Since the volume was opened.
    pub total: Latency,
}

/// One leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegStatus {
    /// Slot.
    pub leg: u8,
    /// Its name, or its spec if it has none.
    pub name: String,
    /// Its spec.
    pub path: String,
    /// Condition.
    pub state: LegState,
    /// How long it has been in that condition; `null` if since the volume was opened.
    pub state_age_ns: Option<u64>,
    /// Why it is out, if it is.
    pub out_reason: Option<OutReason>,
    /// Whether it is steadily later than the fastest leg.
    pub slow: bool,
    /// Acknowledged bytes it lacks.
    pub owed_bytes: u64,
    /// Of these, bytes owed as whole regions.
    pub owed_region_bytes: u64,
    /// Age of the oldest exact debt.
    pub owed_age_ns: u64,
    /// I/O in flight.
    pub in_flight: u32,
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
    /// Dirty regions whose authority it is.
    pub authority_regions: u32,
    /// Time until it owes nothing, if that goes on as it has; `null` if it owes nothing, or if it is
    /// not known or does not get less.
    #[serde(default)]
    pub remaining_ns: Option<u64>,
    /// Bytes of what it owes that are paid a second; `null` if it owes nothing, or if it is not known.
    #[serde(default)]
    pub drain_bytes_per_s: Option<u64>,
    /// The part of a rebuild that is done; `null` if it owes no whole regions.
    #[serde(default)]
    pub progress_permille: Option<u16>,
    /// Injected faults, if there are any.
    #[serde(default)]
    pub injected: Option<Injected>,
    /// The reason why a remote leg has no session, unless it has one. It is tried again all the time.
    #[serde(default)]
    pub no_session: Option<String>,
    /// The drive behind it that needs attention first; `null` until it has been looked up.
    #[serde(default)]
    pub drive: Option<DriveStatus>,
    /// Every drive behind it.
    #[serde(default)]
    pub drives: Vec<DriveStatus>,
    /// The judgement that it is slower than its kind should be, or than it was.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// The faults injected into a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// How long the freeze still lasts.
    pub frozen_for_ns: u64,
    /// What every I/O is delayed by.
    pub delay_ns: u64,
    /// Reads that fail, of a thousand.
    pub read_errors_permille: u16,
    /// Writes that fail, of a thousand.
    pub write_errors_permille: u16,
    /// Flushes that fail, of a thousand.
    pub flush_errors_permille: u16,
    /// I/O being held back.
    pub held: u64,
    /// Stalls of single requests.
    pub stalls: Option<InjectedStalls>,
}

/// A schedule of stalls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedStalls {
    /// What chance comes from.
    pub seed: u64,
    /// The phase in force, from 1; `null` once the last is over.
    pub phase: Option<u64>,
    /// How many there are.
    pub phases: u64,
    /// How long the phase still lasts; `null` without an end.
    pub phase_left_ns: Option<u64>,
    /// Reads since the schedule began.
    pub reads: StallCount,
    /// Writes and all else since then.
    pub writes: StallCount,
}

/// Requests while a schedule of stalls was in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallCount {
    /// All.
    pub seen: u64,
    /// Those that stalled.
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

/// Why a leg is out, as in [`hemi_engine::io::OutReason`].
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
    /// Now.
    pub bytes: u64,
    /// Age of the oldest.
    pub age_ns: u64,
    /// The most since the volume was opened.
    pub peak_bytes: u64,
    /// Bound on the bytes.
    pub bound_bytes: u64,
    /// Bound on the age.
    pub bound_age_ns: u64,
    /// What happens at the bound.
    pub mode: ExposureMode,
    /// Whether writers are being held back.
    pub throttling: bool,
}

/// What clients see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Connections.
    pub connections: Connections,
    /// Requests under way.
    pub requests: u32,
    /// Requests that failed.
    pub failed: u64,
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

/// What the engine did since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Dirty regions now.
    pub dirty_regions: u32,
    /// Armed regions of these: dirty, and nothing written there since every whole leg had flushed it.
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
    /// Whether one runs.
    pub running: bool,
    /// Bytes compared by the running one.
    pub compared_bytes: u64,
    /// Bytes it will compare.
    pub total_bytes: u64,
    /// Bytes found different by the last or running one.
    pub mismatched_bytes: u64,
    /// The part of the running one that is done; `null` if none runs.
    #[serde(default)]
    pub permille: Option<u16>,
    /// Time until the running one ends, if it goes on so; `null` if none runs, or if it is not known.
    #[serde(default)]
    pub remaining_ns: Option<u64>,
    /// Bytes that the running one compares a second; `null` if none runs, or if it is not known.
    #[serde(default)]
    pub bytes_per_s: Option<u64>,
    /// The last one that has ended, before this start of hemi as well; `null` if none is known.
    #[serde(default)]
    pub last: Option<LastScrub>,
}

/// A scrub that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrub {
    /// The time of its end, in milliseconds since 1970.
    pub at_ms: u64,
    /// Bytes found different.
    pub mismatched_bytes: u64,
    /// True if it rewrote extents that differed.
    pub repaired: bool,
    /// Time that it took.
    pub took_ns: u64,
    /// True if it was stopped before its end.
    pub stopped: bool,
}

/// A promise that does not hold in full at the moment, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    /// Which: `P1` to `P8`.
    pub promise: String,
    /// What is at risk, and what would make it so.
    pub text: String,
}

/// Health in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Every leg is in and answers.
    Healthy,
    /// Clients are served, with less than all legs.
    Degraded,
    /// Clients are not served.
    #[default]
    NotServing,
}

/// `GET /v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Version of hemi.
    pub version: String,
    /// The volume's name.
    pub name: String,
    /// Its id, as a UUID is written.
    pub id: String,
    /// Its size.
    pub size_bytes: u64,
    /// Smallest request.
    pub block_bytes: u32,
    /// Region size.
    pub region_bytes: u64,
    /// The ledger's file, or the reason why there is none.
    #[serde(default)]
    pub ledger: LedgerStatus,
    /// The block device that it is; `null` if it is none.
    #[serde(default)]
    pub device: Option<String>,
    /// The loss that this start accepted to go on without missing legs; `null` if there was none.
    #[serde(default)]
    pub given_up: Option<GivenUp>,
    /// The configuration file that it was started from; `null` if there was none.
    #[serde(default)]
    pub config_file: Option<PathBuf>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Health in one word.
    pub health: Health,
    /// Acknowledgement rule.
    pub policy: Policy,
    /// Time since it was opened.
    pub uptime_ns: u64,
    /// Age of these figures.
    pub age_ns: u64,
    /// Span of the `recent` latencies.
    pub recent_ns: u64,
    /// Whether only one leg is in.
    pub degraded: bool,
    /// Whether every leg is whole and identical.
    pub converged: bool,
    /// Acknowledged bytes no leg holds any more: reads fail until they are rewritten.
    pub lost_bytes: u64,
    /// Every slot in use.
    pub legs: Vec<LegStatus>,
    /// Acknowledged data held by one leg only.
    pub exposure: Exposure,
    /// What clients see.
    pub clients: ClientStatus,
    /// What the engine did.
    pub engine: EngineCounters,
    /// Scrub.
    pub scrub: ScrubStatus,
    /// Payload memory.
    pub buffers: BufferUse,
    /// A report of what was taken over from the program that this one replaced; `null` if it replaced none.
    #[serde(default)]
    pub taken_over: Option<HandoverReport>,
    /// Promises that do not hold in full now, in words.
    pub risks: Vec<Risk>,
    /// The time of this answer, unix milliseconds.
    #[serde(default)]
    pub at_ms: u64,
    /// Stall hidden from clients.
    #[serde(default)]
    pub hidden: HiddenStall,
    /// The process's own use of the machine.
    #[serde(default)]
    pub process: ProcessStatus,
    /// All of it in one sentence.
    #[serde(default)]
    pub summary: Summary,
}

/// `POST /v1/legs/add`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddLeg {
    /// Slot; the first free one without it.
    #[serde(default)]
    pub leg: Option<u8>,
    /// The new leg: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// Whether what is on it may be overwritten.
    #[serde(default)]
    pub wipe: bool,
    /// The share of its drive that stays unused, as `20%`.
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
    /// Whether what is on it may be overwritten.
    #[serde(default)]
    pub wipe: bool,
    /// The share of its drive that stays unused, as `20%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<Share>,
}

/// `POST /v1/legs/attach`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachLeg {
    /// The leg: a spec or a table as in the configuration.
    pub config: LegConfig,
    /// Whether what was written to it since it was detached may be overwritten.
    #[serde(default)]
    pub wipe: bool,
}

/// `POST /v1/legs/remove` and `/v1/legs/detach`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneLeg {
    /// Slot.
    pub leg: u8,
}

/// `POST /v1/reload`, `/v1/device/attach` and `/v1/device/detach`: nothing is to be said.
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
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scrub {
    /// Whether to rewrite what differs.
    pub repair: bool,
    /// Stop the running scrub instead.
    pub stop: bool,
}

/// `POST /v1/set`: one key, or several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Set {
    /// The key, as in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its value: text, a number, or true or false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
    /// Several keys with their values. They change together, or not at all.
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
    /// How long to drain; `drain_on_stop` without it.
    pub drain: Option<Time>,
}

/// `POST /v1/upgrade`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upgrade {
    /// The program that goes on. Default: the file that the running one was started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary: Option<PathBuf>,
    /// True if clients that cannot be handed over may be cut off.
    pub force: bool,
}

/// `POST /v1/grow`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grow {
    /// The size. Default: as large as the legs allow.
    pub to: GrowTo,
    /// True if clients that cannot be handed over may be cut off.
    pub force: bool,
}

/// Every answer with a status code of 400 or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Why, in one word.
    pub error: RefusalKind,
    /// What is wrong, naming the thing and its value.
    pub what: String,
    /// What to do about it.
    pub way_out: String,
}
