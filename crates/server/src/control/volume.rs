//! What the control thread sees of the volume: a snapshot to read, requests to send.
//!
//! The reactor owns the volume. It publishes [`Snapshot`]s and answers [`Request`]s; nothing
//! here takes a lock that the data path could wait for.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use hemi_engine::io::Notice;
use hemi_engine::settings::Settings;
use hemi_engine::status::{RegionCounts, Status};
use hemi_stalls::PhaseSpec;
use serde::{Deserialize, Serialize};

use crate::config::device::DeviceKind;
use crate::create::Share;
use crate::grow::GrowTo;
use crate::ledger::LedgerStatus;
use crate::opening::GivenUp;
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::InjectionState;
use hemi_units::Time;

/// What does not change while a volume is served.
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
    /// The loss that this start accepted to go on without missing legs.
    pub given_up: Option<GivenUp>,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Legs are being opened.
    #[default]
    Opening,
    /// Clients are served.
    Serving,
    /// Stopping: clients are gone, debts are being paid.
    Closing,
    /// Closed.
    Closed,
    /// Closing for another program, which goes on with the clients.
    Upgrading,
}

/// The steps of an upgrade, in nanoseconds on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverTimes {
    /// The time at which clients began to wait.
    pub paused_at: u64,
    /// The time at which they were at rest.
    pub rested_at: u64,
    /// The time at which the volume was closed.
    pub closed_at: u64,
    /// The time at which the new program began.
    pub taken_at: u64,
}

/// A report of what a server took over from the program that it replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverReport {
    /// Upgrades since the first server began.
    pub upgrades: u64,
    /// Version of the program before.
    pub version: String,
    /// The number of clients that went on.
    pub connections: u64,
    /// The number of clients that were cut off.
    pub cut: u64,
    /// Time that clients waited; zero until they are served.
    pub pause_ns: u64,
    /// The times of the steps.
    #[serde(skip)]
    pub times: HandoverTimes,
    /// The reason why the program from before goes on, if the new one could not be run.
    #[serde(default)]
    pub fallback: Option<String>,
    /// The reason why the volume has not grown, if it was to grow.
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
    /// Turned away since start: over a limit, or a failed handshake.
    pub refused: u64,
}

/// Payload memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferUse {
    /// The budget, bytes.
    pub budget_bytes: u64,
    /// In use, bytes.
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
    /// When it was taken.
    pub taken: Instant,
    /// When the volume was opened.
    pub opened: Instant,
    /// Where it is in its life.
    pub phase: Phase,
    /// What does not change.
    pub identity: Arc<Identity>,
    /// The legs as configured.
    pub legs: Arc<Vec<LegIdentity>>,
    /// The volume's generation and those before it.
    pub generations: Vec<[u8; 16]>,
    /// The engine's figures.
    pub status: Status,
    /// Client connections.
    pub connections: Connections,
    /// Payload memory.
    pub buffers: BufferUse,
    /// Path of the block device that the volume is, if it is one.
    pub device: Option<String>,
    /// The faults in force, by slot. Of legs without any there is no entry.
    pub injected: Vec<(u8, InjectionState)>,
    /// The reasons why remote legs have no session, by slot, in plain text. Legs that have one, and
    /// local legs, have no entry.
    pub no_session: Vec<(u8, Arc<str>)>,
    /// A report of what was taken over from the program before.
    pub taken_over: Option<HandoverReport>,
}

impl Snapshot {
    /// A volume that is not open yet.
    pub fn opening(identity: Identity, legs: Vec<LegIdentity>) -> Snapshot {
        let now = Instant::now();
        Snapshot {
            taken: now,
            opened: now,
            phase: Phase::Opening,
            identity: Arc::new(identity),
            legs: Arc::new(legs),
            generations: Vec::new(),
            status: Status::default(),
            connections: Connections::default(),
            buffers: BufferUse::default(),
            device: None,
            injected: Vec::new(),
            no_session: Vec::new(),
            taken_over: None,
        }
    }
}

/// The regions of the volume, counted by their condition, in cells of equal size.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Their number.
    pub regions: u32,
    /// The cells, in the order of the volume.
    pub cells: Vec<RegionCounts>,
}

/// A notice of the engine, as the control thread hears of it.
#[derive(Clone, Copy, Debug)]
pub struct Noticed {
    /// The time of it, on the monotonic clock.
    pub at: hemi_units::Instant,
    /// The notice.
    pub notice: Notice,
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

/// A fault laid on one leg, for tests. A later one of the same kind replaces it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// No I/O completes for this long; then all do.
    Freeze {
        /// How long.
        duration: Time,
    },
    /// Every I/O completes this much later. Zero ends it.
    Delay {
        /// How much later.
        delay: Time,
    },
    /// Shares of the I/O complete later, phase after phase.
    Stall {
        /// One after another; only the last may have no end.
        phases: Vec<PhaseSpec>,
        /// What chance comes from.
        #[serde(default)]
        seed: u64,
    },
    /// A published schedule of stalls. Replaces, and is replaced by, [`Fault::Stall`].
    Experiment {
        /// [`hemi_stalls::Experiment::name`].
        name: String,
        /// Factor on the lengths of its phases.
        #[serde(default = "one")]
        time_scale: f64,
        /// What chance comes from.
        #[serde(default)]
        seed: u64,
    },
    /// I/O of a kind fails with EIO. A rate of zero ends it.
    Error {
        /// Which kind.
        operation: FaultyOperation,
        /// How many of them, 0 to 1.
        rate: f64,
    },
    /// All faults of the leg end.
    Clear,
}

fn one() -> f64 {
    1.0
}

/// What the control thread asks of the volume.
#[derive(Clone, Debug)]
pub enum Request {
    /// Put a new, empty leg into a free slot (the first one, if `leg` is none).
    Add {
        /// Slot.
        leg: Option<u8>,
        /// Where it is.
        config: LegConfig,
        /// Whether what is on it may be overwritten.
        wipe: bool,
        /// The share of its drive that stays unused.
        spare: Option<Share>,
    },
    /// Forget a leg that is out or detached.
    Remove {
        /// Slot.
        leg: u8,
    },
    /// Put a new leg into a slot whose leg is out, detached or gone.
    Replace {
        /// Slot.
        leg: u8,
        /// Where the new one is.
        config: LegConfig,
        /// Whether what is on it may be overwritten.
        wipe: bool,
        /// The share of its drive that stays unused.
        spare: Option<Share>,
    },
    /// Make a leg whole, close it, let go of it.
    Detach {
        /// Slot.
        leg: u8,
    },
    /// Take back a leg of this volume that was detached or gone.
    Attach {
        /// Where it is.
        config: LegConfig,
        /// Whether what was written to it since it was detached may be overwritten.
        wipe: bool,
    },
    /// Compare all legs, and rewrite what differs with `repair`.
    Scrub {
        /// Whether to rewrite.
        repair: bool,
    },
    /// Stop a running scrub.
    ScrubStop,
    /// Go on with other settings.
    Configure {
        /// All of the engine's.
        settings: Box<Settings>,
        /// The changes, each as `KEY=VALUE`.
        text: String,
    },
    /// Lay a fault on a leg.
    Inject {
        /// Slot.
        leg: u8,
        /// Which.
        fault: Fault,
    },
    /// Make the volume a block device of this machine.
    AttachDevice {
        /// The kernel's driver.
        driver: DeviceKind,
    },
    /// Make it none any more.
    DetachDevice,
    /// Read certificates, keys and lists of revoked certificates again, for clients to come.
    Reload,
    /// Close for another program, which goes on with the clients.
    Upgrade {
        /// The program. Default: the file that the running one was started from.
        binary: Option<PathBuf>,
        /// True if clients that cannot be handed over may be cut off.
        force: bool,
        /// The size that the volume is to grow to meanwhile.
        grow: Option<GrowTo>,
    },
    /// Close for the next start of the service, which goes on with the clients.
    HandOver,
    /// Drain for at most this long, close, end.
    Shutdown {
        /// How long to drain.
        drain: Time,
    },
}

impl fmt::Display for Request {
    /// As the log has it.
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
            Request::Attach { config, wipe } => {
                write!(formatter, "attach {}{}", config.path, wiping(wipe))
            }
            Request::Scrub { repair: true } => formatter.write_str("scrub and repair"),
            Request::Scrub { repair: false } => formatter.write_str("scrub"),
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

/// Why a request was refused, for the answer's status code and the command's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The request makes no sense.
    BadRequest,
    /// It names what does not exist.
    NotFound,
    /// It is not allowed by the configuration.
    Forbidden,
    /// It needs a token, and came without or with another one.
    Unauthorized,
    /// It would lose data, or guess.
    Unsafe,
    /// Not in this state: in use, busy.
    Conflict,
    /// The volume is closing.
    Closing,
    /// It was tried and failed.
    Failed,
}

/// A refusal: what happened and the way out, for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// What is wrong, naming the thing and its value.
    pub what: String,
    /// What to do about it.
    pub way_out: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(kind: RefusalKind, what: impl Into<String>, way_out: impl Into<String>) -> Refusal {
        Refusal { kind, what: what.into(), way_out: way_out.into() }
    }
}

/// The outcome of a request that will be done, or was refused.
pub type Outcome = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// A census that is being taken, or was refused.
pub type CensusOutcome = Pin<Box<dyn Future<Output = Result<Census, Refusal>> + Send>>;

/// The volume as the control thread sees it.
pub trait Volume: Send + Sync + 'static {
    /// The newest snapshot.
    fn snapshot(&self) -> Arc<Snapshot>;

    /// Sends a request. It is carried out even if the returned future is dropped.
    fn request(&self, request: Request) -> Outcome;

    /// Takes the notices that have come since the last call, oldest first. Returns how many more came
    /// for which there was no room.
    fn take_notices(&self, into: &mut Vec<Noticed>) -> u64 {
        let _ = into;
        0
    }

    /// Counts the regions in at most `cells` cells.
    fn census(&self, cells: usize) -> CensusOutcome {
        let _ = cells;
        Box::pin(async { Ok(Census::default()) })
    }
}
