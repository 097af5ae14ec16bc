//! The volume as the control thread sees it: snapshots to read and requests to send.
//!
//! The reactor owns the volume. It publishes [`Snapshot`]s and answers [`Request`]s; nothing
//! here takes a lock that the data path could wait for.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hemi_engine::command::ScrubRepair;
use hemi_engine::io::Notice;
use hemi_engine::settings::Settings;
use hemi_engine::status::{RegionCounts, Status};
use hemi_stalls::PhaseSpec;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::standbys::{StandbyStatus, StandbyTurn};
use crate::config::device::DeviceKind;
use crate::create::Share;
use crate::differences::Known;
use crate::grow::GrowTo;
use crate::ledger::LedgerStatus;
use crate::opening::GivenUp;
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::InjectionState;
use hemi_units::{Extent, SECTOR_BYTES, Time};

/// The properties of a volume that do not change while it is served.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its random id.
    pub id: [u8; 16],
    /// Size in bytes.
    pub size_bytes: u64,
    /// Smallest request in bytes.
    pub block_bytes: u32,
    /// Region size in bytes.
    pub region_bytes: u64,
    /// The ledger.
    pub ledger: LedgerStatus,
    /// The loss that this start accepted in order to go on without missing legs.
    pub given_up: Option<GivenUp>,
}

/// The stages of a volume's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Legs are being opened.
    #[default]
    Opening,
    /// Clients are served.
    Serving,
    /// Stopping: clients are disconnected, debts are being paid.
    Closing,
    /// Closed.
    Closed,
    /// Closing for another program, which takes over the clients.
    Upgrading,
}

/// The steps of an upgrade, in nanoseconds on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverTimes {
    /// Time at which clients began to wait.
    pub paused_at: u64,
    /// Time at which no client request was in flight.
    pub rested_at: u64,
    /// Time at which the volume was closed.
    pub closed_at: u64,
    /// Time at which the new program began.
    pub taken_at: u64,
}

/// A report on the handover from the program that a server replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverReport {
    /// Upgrades since the first server began.
    pub upgrades: u64,
    /// Version of the previous program.
    pub version: String,
    /// Clients that were handed over.
    pub connections: u64,
    /// Clients that were disconnected.
    pub cut: u64,
    /// Time that clients waited; zero until they are served again.
    pub pause_ns: u64,
    /// The times of the steps.
    #[serde(skip)]
    pub times: HandoverTimes,
    /// The reason why the previous program goes on, if the new one could not be run.
    #[serde(default)]
    pub fallback: Option<String>,
    /// The reason why the volume was not grown, if it was to be.
    #[serde(default)]
    pub not_grown: Option<String>,
}

/// Client connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Open now.
    pub open: u64,
    /// Accepted since start.
    pub accepted: u64,
    /// Refused since start: over a limit, or with a failed handshake.
    pub refused: u64,
}

/// Payload memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferUse {
    /// The budget in bytes.
    pub budget_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// A leg as configured.
#[derive(Clone, Debug, Default)]
pub struct LegIdentity {
    /// Its slot.
    pub leg: u8,
    /// Its name, or its spec if it has none.
    pub name: String,
    /// Its spec.
    pub path: String,
}

/// The volume at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Time at which it was taken.
    pub taken: Instant,
    /// Time at which the volume was opened.
    pub opened: Instant,
    /// The stage of its life.
    pub phase: Phase,
    /// The properties that do not change.
    pub identity: Arc<Identity>,
    /// The legs as configured.
    pub legs: Arc<Vec<LegIdentity>>,
    /// The volume's generation and those before it.
    pub generations: Vec<[u8; 16]>,
    /// The ids of its legs, those that are out included.
    pub leg_ids: Vec<[u8; 16]>,
    /// The engine's figures.
    pub status: Status,
    /// The extents in which legs are known to differ.
    pub differences: Arc<Known>,
    /// Client connections.
    pub connections: Connections,
    /// Payload memory.
    pub buffers: BufferUse,
    /// Path of the block device through which the volume is attached, if any.
    pub device: Option<String>,
    /// The faults in force, by slot. Legs without faults have no entry.
    pub injected: Vec<(u8, InjectionState)>,
    /// The reasons why remote legs have no session, by slot. Local legs, and remote ones with a session, have
    /// no entry.
    pub no_session: Vec<(u8, Arc<str>)>,
    /// The handover from the previous program, if there was one.
    pub taken_over: Option<HandoverReport>,
}

impl Snapshot {
    /// Returns the snapshot of a volume that is not open yet.
    pub fn opening(identity: Identity, legs: Vec<LegIdentity>) -> Snapshot {
        let now = Instant::now();
        Snapshot {
            taken: now,
            opened: now,
            phase: Phase::Opening,
            identity: Arc::new(identity),
            legs: Arc::new(legs),
            generations: Vec::new(),
            leg_ids: Vec::new(),
            status: Status::default(),
            differences: Arc::default(),
            connections: Connections::default(),
            buffers: BufferUse::default(),
            device: None,
            injected: Vec::new(),
            no_session: Vec::new(),
            taken_over: None,
        }
    }
}

/// The regions of the volume, counted by condition, in cells of equal size.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// The number of regions.
    pub regions: u32,
    /// The cells, in volume order.
    pub cells: Vec<RegionCounts>,
}

/// A notice of the engine, as the control thread receives it.
#[derive(Clone, Copy, Debug)]
pub struct Noticed {
    /// Its time on the monotonic clock.
    pub at: hemi_units::Instant,
    /// The notice.
    pub notice: Notice,
    /// The system's error of an I/O that failed, if it gave one.
    pub errno: Option<Errno>,
}

/// A kind of leg I/O that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultyOperation {
    /// Reads.
    Read,
    /// Writes, zeroing and metadata included.
    Write,
    /// Flushes.
    Flush,
}

/// A fault injected into one leg, for tests. A later one of the same kind replaces it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// No I/O completes for this long; then all of it does.
    Freeze {
        /// Duration of the freeze.
        duration: Time,
    },
    /// Every I/O completes this much later. Zero ends the fault.
    Delay {
        /// The added latency.
        delay: Time,
    },
    /// A share of the I/O completes late, phase after phase.
    Stall {
        /// The phases in order. Only the last may have no end.
        phases: Vec<PhaseSpec>,
        /// Seed of the random choices.
        #[serde(default)]
        seed: u64,
    },
    /// A published schedule of stalls. It replaces, and is replaced by, [`Fault::Stall`].
    Experiment {
        /// The experiment's [`hemi_stalls::Experiment::name`].
        name: String,
        /// Factor applied to the length of each phase.
        #[serde(default = "one")]
        time_scale: f64,
        /// Seed of the random choices.
        #[serde(default)]
        seed: u64,
    },
    /// I/O of one kind fails with EIO. A rate of zero ends the fault.
    Error {
        /// The kind of I/O.
        operation: FaultyOperation,
        /// The share that fails, 0 to 1.
        rate: f64,
    },
    /// Ends all faults of the leg.
    Clear,
}

fn one() -> f64 {
    1.0
}

/// A request from the control thread to the volume.
#[derive(Clone, Debug)]
pub enum Request {
    /// Adds a new, empty leg in a free slot: the first one if `leg` is `None`.
    Add {
        /// The slot.
        leg: Option<u8>,
        /// The leg's configuration.
        config: LegConfig,
        /// True if the content of the device may be overwritten.
        wipe: bool,
        /// The share of its drive to leave unused.
        spare: Option<Share>,
    },
    /// Forgets a leg that is out or detached.
    Remove {
        /// The slot.
        leg: u8,
    },
    /// Puts a new leg in a slot whose leg is out, detached or gone.
    Replace {
        /// The slot.
        leg: u8,
        /// The new leg's configuration.
        config: LegConfig,
        /// True if the content of the device may be overwritten.
        wipe: bool,
        /// The share of its drive to leave unused.
        spare: Option<Share>,
    },
    /// Makes a leg whole, closes it and releases it.
    Detach {
        /// The slot.
        leg: u8,
    },
    /// Takes back a leg of this volume that was detached or gone.
    Attach {
        /// The leg's configuration.
        config: LegConfig,
        /// True if data written to it since it was detached may be overwritten.
        wipe: bool,
    },
    /// Makes a drive a standby, which takes the place of a leg that is out.
    AddStandby {
        /// The drive's configuration.
        config: LegConfig,
        /// True if the content of the device may be overwritten.
        wipe: bool,
    },
    /// Lets go of a standby, whose superblock is erased.
    RemoveStandby {
        /// Its name or spec.
        standby: String,
    },
    /// Compares all legs.
    Scrub {
        /// The extents to rewrite.
        repair: ScrubRepair,
        /// The part of the volume, in sectors. Default: all of it.
        part: Option<Extent>,
    },
    /// Writes all metadata of a leg again.
    RewriteMetadata {
        /// The slot.
        leg: u8,
    },
    /// Stops a running scrub.
    ScrubStop,
    /// Changes the engine's settings.
    Configure {
        /// All settings of the engine, with the changes applied.
        settings: Box<Settings>,
        /// The changes, each as `KEY=VALUE`.
        text: String,
    },
    /// Injects a fault into a leg.
    Inject {
        /// The slot.
        leg: u8,
        /// The fault.
        fault: Fault,
    },
    /// Attaches the volume as a block device of this machine.
    AttachDevice {
        /// The kernel's driver.
        driver: DeviceKind,
    },
    /// Detaches the block device.
    DetachDevice,
    /// Reloads certificates, keys and revocation lists, for clients that connect from now on.
    Reload,
    /// Closes the volume for another program, which takes over the clients.
    Upgrade {
        /// The program. Default: the file that the running one was started from.
        binary: Option<PathBuf>,
        /// True if clients that cannot be handed over may be disconnected.
        force: bool,
        /// The size to grow the volume to on the way.
        grow: Option<GrowTo>,
    },
    /// Closes the volume for the next start of the service, which takes over the clients.
    HandOver,
    /// Drains for a bounded time, closes the volume and ends.
    Shutdown {
        /// Time limit for draining.
        drain: Time,
    },
}

impl fmt::Display for Request {
    /// Writes the request as the log shows it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wiping = |wipe: &bool| if *wipe { ", wiping it" } else { "" };
        let sparing = |share: &Option<Share>| match share {
            Some(share) => format!(", sparing {share}"),
            None => String::new(),
        };
        match self {
            Request::Add { leg, config, wipe, spare } => {
                write!(formatter, "add {}", config.path)?;
                if let Some(leg) = leg {
                    write!(formatter, " in slot {leg}")?;
                }
                write!(formatter, "{}{}", wiping(wipe), sparing(spare))
            }
            Request::Remove { leg } => write!(formatter, "remove leg {leg}"),
            Request::Replace { leg, config, wipe, spare } => {
                let (path, wiped) = (&config.path, wiping(wipe));
                write!(formatter, "replace leg {leg} by {path}{wiped}{}", sparing(spare))
            }
            Request::Detach { leg } => write!(formatter, "detach leg {leg}"),
            Request::AddStandby { config, wipe } => {
                write!(formatter, "make {} a standby{}", config.path, wiping(wipe))
            }
            Request::RemoveStandby { standby } => {
                write!(formatter, "let go of the standby {standby}")
            }
            Request::Attach { config, wipe } => {
                write!(formatter, "attach {}{}", config.path, wiping(wipe))
            }
            Request::Scrub { repair, part } => {
                match repair {
                    ScrubRepair::Nothing => formatter.write_str("scrub")?,
                    ScrubRepair::Unreadable => {
                        formatter.write_str("scrub and rewrite what a leg cannot read")?;
                    }
                    ScrubRepair::From(leg) => {
                        write!(formatter, "scrub and rewrite what differs from leg {}", leg.0)?;
                    }
                }
                match part {
                    Some(part) => write!(
                        formatter,
                        ", {} bytes from byte {}",
                        part.bytes(),
                        part.start * SECTOR_BYTES
                    ),
                    None => Ok(()),
                }
            }
            Request::RewriteMetadata { leg } => {
                write!(formatter, "write the metadata of leg {leg} again")
            }
            Request::ScrubStop => formatter.write_str("stop the scrub"),
            Request::Configure { text, .. } => write!(formatter, "set {text}"),
            Request::Inject { leg, fault } => match fault {
                Fault::Freeze { duration } => write!(formatter, "freeze leg {leg} for {duration}"),
                Fault::Delay { delay } => write!(formatter, "delay leg {leg} by {delay}"),
                Fault::Stall { phases, seed } => {
                    write!(formatter, "stall requests of leg {leg}: ")?;
                    for (index, phase) in phases.iter().enumerate() {
                        write!(formatter, "{}{phase}", if index == 0 { "" } else { "; " })?;
                    }
                    write!(formatter, "; seed {seed}")
                }
                Fault::Experiment { name, time_scale, seed } => write!(
                    formatter,
                    "experiment {name} on leg {leg}, {time_scale} times its length, seed {seed}"
                ),
                Fault::Error { operation, rate } => {
                    let operation = match operation {
                        FaultyOperation::Read => "read",
                        FaultyOperation::Write => "write",
                        FaultyOperation::Flush => "flush",
                    };
                    write!(formatter, "fail {operation}s of leg {leg} at a rate of {rate}")
                }
                Fault::Clear => write!(formatter, "clear the faults of leg {leg}"),
            },
            Request::AttachDevice { .. } => formatter.write_str("attach the block device"),
            Request::DetachDevice => formatter.write_str("detach the block device"),
            Request::Reload => formatter.write_str("reload certificates"),
            Request::Upgrade { grow: Some(GrowTo::Max), .. } => {
                formatter.write_str("grow as far as the legs allow")
            }
            Request::Upgrade { grow: Some(GrowTo::Bytes(to)), .. } => {
                write!(formatter, "grow to {to} bytes")
            }
            Request::Upgrade { binary, force, .. } => {
                let cutting = if *force { ", cutting clients off if need be" } else { "" };
                match binary {
                    Some(binary) => write!(formatter, "upgrade to {}{cutting}", binary.display()),
                    None => write!(formatter, "upgrade{cutting}"),
                }
            }
            Request::HandOver => formatter.write_str("hand over to the next start"),
            Request::Shutdown { drain } => write!(formatter, "stop, draining for {drain}"),
        }
    }
}

/// The kind of a refusal, for the answer's status code and the command's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The request makes no sense.
    BadRequest,
    /// It names something that does not exist.
    NotFound,
    /// The configuration does not allow it.
    Forbidden,
    /// It needs a token, and came without one or with a wrong one.
    Unauthorized,
    /// It would lose data or need a guess.
    Unsafe,
    /// The current state does not allow it: something is in use or busy.
    Conflict,
    /// The volume is closing.
    Closing,
    /// It was tried and failed.
    Failed,
}

/// A refusal, with the way out, for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    /// The kind of refusal.
    pub kind: RefusalKind,
    /// The problem, naming the thing and its value.
    pub what: String,
    /// The way out.
    pub way_out: String,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(kind: RefusalKind, what: impl Into<String>, way_out: impl Into<String>) -> Refusal {
        Refusal { kind, what: what.into(), way_out: way_out.into() }
    }
}

/// A future that resolves once the request is done or refused.
pub type Outcome = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// A future that resolves once the census is taken or refused.
pub type CensusOutcome = Pin<Box<dyn Future<Output = Result<Census, Refusal>> + Send>>;

/// The volume as the control thread sees it.
pub trait Volume: Send + Sync + 'static {
    /// Returns the newest snapshot.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Sends a request, which is carried out even if the returned future is dropped.
    fn request(&self, request: Request) -> Outcome;

    /// Appends the notices since the last call, oldest first. Returns the number of notices that were dropped
    /// for lack of room.
    fn take_notices(&self, into: &mut Vec<Noticed>) -> u64 {
        let _ = into;
        0
    }

    /// Returns the standbys of the volume.
    fn standbys(&self) -> Arc<Vec<StandbyStatus>> {
        Arc::default()
    }

    /// Takes the turns of events with standbys since the last call, oldest first.
    fn take_standby_turns(&self) -> Vec<StandbyTurn> {
        Vec::new()
    }

    /// Counts the regions in at most `cells` cells.
    fn census(&self, cells: usize) -> CensusOutcome {
        let _ = cells;
        Box::pin(async { Ok(Census::default()) })
    }
}
