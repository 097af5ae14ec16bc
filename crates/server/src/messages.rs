//! What other threads and the reactor say to each other.
//!
//! Control sends [`ReactorMessage`]s through a bounded channel and wakes the reactor; answers
//! come back through the [`ReplyTo`] each message carries. What everybody wants to see all
//! the time is not asked for: the reactor publishes a [`Snapshot`] several times a second.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use arc_swap::ArcSwap;
use hemi_core::command::{Command, CommandError};
use hemi_core::status::Status;
use hemi_core::units::LegIndex;

use crate::leg::{Injection, InjectionState, OpenLeg};
use crate::ring::{Capabilities, Waker};

/// Messages that may wait for the reactor.
pub const MESSAGES_MAX: usize = 64;
/// How often the reactor publishes a snapshot, in nanoseconds.
pub const SNAPSHOT_INTERVAL: u64 = 250_000_000;

/// Where an answer goes. Called on the reactor's thread: it must not block (a oneshot
/// channel's send does not).
pub type ReplyTo<T> = Box<dyn FnOnce(T) + Send>;

/// Why the reactor did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReactorError {
    /// The engine refused or failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// No leg in that slot.
    #[error("slot {0} holds no leg")]
    NoSuchLeg(u8),
    /// The slot is taken.
    #[error("slot {0} holds a leg already; remove it first")]
    SlotInUse(u8),
    /// Injection is off.
    #[error("this volume was not served with --allow-inject")]
    InjectionOff,
    /// The leg cannot be used in this volume.
    #[error("{leg}: {reason}")]
    LegUnfit {
        /// The leg.
        leg: String,
        /// Why.
        reason: String,
    },
    /// The reactor's queue is full.
    #[error("the volume is busy with other commands; try again")]
    Busy,
    /// The reactor has ended.
    #[error("the volume is no longer served")]
    Ended,
}

/// A wish for the reactor.
pub enum ReactorMessage {
    /// Run an engine command; answered when it is done, which can take long (scrub, close).
    Command {
        /// Which.
        command: Command,
        /// Its outcome.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Put an opened, formatted leg into an empty slot and let it join.
    Attach {
        /// Which slot.
        leg: LegIndex,
        /// The leg.
        opened: Box<OpenLeg>,
        /// The id its superblock carries.
        id: [u8; 16],
        /// Answered once it has durably joined; it drains afterwards.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Put a fault on a leg, where the volume allows it.
    Inject {
        /// Which leg.
        leg: LegIndex,
        /// What.
        injection: Injection,
        /// Whether it was put.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Publish a snapshot now.
    Refresh {
        /// The snapshot.
        reply: ReplyTo<Arc<Snapshot>>,
    },
    /// Close a client connection.
    Disconnect {
        /// [`ConnectionInfo::id`].
        connection: u64,
        /// Whether there was one.
        reply: ReplyTo<bool>,
    },
    /// Stop accepting, finish and drain for at most this many nanoseconds, close clean, end.
    Shutdown {
        /// Bound on draining.
        drain: u64,
    },
}

impl std::fmt::Debug for ReactorMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReactorMessage::Command { command, .. } => write!(f, "Command({command:?})"),
            ReactorMessage::Attach { leg, .. } => write!(f, "Attach({leg:?})"),
            ReactorMessage::Inject { leg, injection, .. } => {
                write!(f, "Inject({leg:?}, {injection:?})")
            }
            ReactorMessage::Refresh { .. } => write!(f, "Refresh"),
            ReactorMessage::Disconnect { connection, .. } => write!(f, "Disconnect({connection})"),
            ReactorMessage::Shutdown { drain } => write!(f, "Shutdown({drain} ns)"),
        }
    }
}

/// A leg as the reactor knows it, beside what [`Status`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LegInfo {
    /// Slot.
    pub leg: u8,
    /// As the operator named it.
    pub description: String,
    /// Faults in force, where the volume allows them.
    pub injected: Option<InjectionState>,
}

/// A client connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Number since start.
    pub id: u64,
    /// The listener's address and, for TCP, the client's.
    pub peer: String,
    /// Whether it uses TLS.
    pub tls: bool,
    /// Whether it is past the handshake.
    pub transmitting: bool,
    /// Requests in flight.
    pub in_flight: u32,
    /// Bytes of payload in flight.
    pub in_flight_bytes: u64,
    /// Requests answered.
    pub requests: u64,
    /// Seconds since it came.
    pub age: u64,
}

/// The state of the volume at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The engine's view.
    pub status: Status,
    /// The legs' names and faults.
    pub legs: Vec<LegInfo>,
    /// Client connections.
    pub connections: Vec<ConnectionInfo>,
    /// Addresses listened on.
    pub listeners: Vec<String>,
    /// Bytes of the buffer budget.
    pub buffer_bytes: u64,
    /// Bytes of it that are free.
    pub buffer_free_bytes: u64,
    /// What the kernel offers the reactor.
    pub capabilities: Capabilities,
    /// Loop turns since start.
    pub turns: u64,
    /// Whether the volume is closing.
    pub closing: bool,
}

/// Control's end of the line to the reactor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReactorHandle {
    messages: SyncSender<ReactorMessage>,
    waker: Waker,
    published: Arc<ArcSwap<Snapshot>>,
}

impl ReactorHandle {
    /// A handle on the reactor that reads `messages` and publishes into `published`.
    pub fn new(
        messages: SyncSender<ReactorMessage>,
        waker: Waker,
        published: Arc<ArcSwap<Snapshot>>,
    ) -> ReactorHandle {
        ReactorHandle { messages, waker, published }
    }

    /// Sends a message; does not block. A message that could not be sent is dropped, its
    /// reply with it.
    pub fn send(&self, message: ReactorMessage) -> Result<(), ReactorError> {
        match self.messages.try_send(message) {
            Ok(()) => {
                self.waker.wake();
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(ReactorError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(ReactorError::Ended),
        }
    }

    /// The latest snapshot, at most [`SNAPSHOT_INTERVAL`] old while the reactor runs.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load_full()
    }
}
