//! What other threads ask of the reactor.
//!
//! Messages go through a bounded channel, and the reactor is woken; answers come back through
//! the [`ReplyTo`] each message carries. What everybody wants to see all the time is not asked
//! for: the reactor publishes a [`Snapshot`] several times a second, and at once when a leg or
//! the volume changes its state.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use arc_swap::ArcSwap;
use hemi_engine::command::{Command, CommandError};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::status::RegionCounts;

use crate::control::volume::{Census, Snapshot};
use crate::device::{KernelSocket, OpenDevice};
use crate::export::Gate;
pub use crate::reactor::UpgradeWish;
use crate::vhost::GuestMessage;
use hemi_io::leg::{Injection, OpenLeg};
use hemi_io::ring::Waker;

/// Messages that may wait for the reactor.
pub const MESSAGES_MAX: usize = 64;
/// How often the reactor publishes a snapshot, in nanoseconds.
pub const SNAPSHOT_INTERVAL: u64 = 250_000_000;
/// Shortest time between two snapshots where something changed in between, in nanoseconds.
pub const SNAPSHOT_GAP_MIN: u64 = 20_000_000;

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
    /// Injection is off.
    #[error("this volume was not served with --allow-inject")]
    InjectionOff,
    /// A leg could not be attached.
    #[error("the leg could not be attached: {0}")]
    Attach(String),
    /// A leg does not answer and has I/O in flight, so that no other program could open it.
    #[error("leg {0} does not answer and has I/O under way; another program could not open it")]
    LegSilent(u8),
    /// Clients use TLS, and would be cut off.
    #[error("clients use TLS ({0}); no other program can go on with their connections")]
    WouldCut(u64),
    /// The clients' requests are not answered.
    #[error("the clients' requests were not answered within {} ms", .0 / 1_000_000)]
    NotAtRest(u64),
    /// The requests of a block device could not be mapped.
    #[error("cannot map the requests of {0}: {1}")]
    Requests(String, String),
    /// The reactor's queue is full.
    #[error("the volume is busy with other commands; try again")]
    Busy,
    /// The reactor has ended.
    #[error("the volume is no longer served")]
    Ended,
}

/// A wish for the reactor.
pub enum ReactorMessage {
    /// Run an engine command; answered when it is done, which can take long (scrub, detach).
    Command {
        /// Which.
        command: Command,
        /// Its outcome.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Put an opened, formatted leg into a slot that is empty or whose leg is out and gone,
    /// and let it join.
    Attach {
        /// Which slot.
        leg: LegIndex,
        /// The leg.
        opened: Box<OpenLeg>,
        /// What status calls it.
        name: String,
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
    /// Clients of each configured export come through these gates from now on.
    SetGates {
        /// One for each export, where it has TLS.
        gates: Vec<Option<Arc<Gate>>>,
        /// Answered at once.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Serve a block device as well.
    AttachDevice {
        /// The device, opened.
        opened: Box<OpenDevice>,
        /// The reply, sent at once. The device's requests are taken from the end of the turn on.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Serve the kernel's NBD client as well.
    ServeKernel {
        /// The socket and its device.
        socket: Box<KernelSocket>,
        /// The reply, sent at once. The client's requests are taken from the end of the turn on.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Tell when the connection of the kernel's NBD client that a predecessor had ends.
    WatchKernel {
        /// The sender that is told then.
        ended: SyncSender<()>,
        /// The reply, sent at once: [`ReactorError::Busy`] if another sender is told already,
        /// [`ReactorError::Attach`] if there is no such connection.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Carry out an order of the connection to a virtual machine.
    Guest(GuestMessage),
    /// Say when the block device has ended, after the kernel was asked to stop it.
    AwaitDeviceEnd {
        /// Answered then; at once if there is none.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// A mapping of the buffers has all its pages: register it.
    Populated {
        /// Which, in the order of [`hemi_io::arena::Arena::memory_mut`].
        mapping: usize,
    },
    /// Count the regions by their condition, in so many cells of equal size as there are counts.
    Census {
        /// The cells, with all counts zero.
        cells: Vec<RegionCounts>,
        /// The reply, sent once all are counted: [`ReactorError::Busy`] if others are being counted.
        reply: ReplyTo<Result<Census, ReactorError>>,
    },
    /// Bring the clients to rest, close the volume and give both to another program.
    Upgrade {
        /// The wishes of the operator.
        wish: UpgradeWish,
        /// The reply, sent once the clients are at rest, with no way back, or with the reason why
        /// nothing has changed.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Stop accepting, finish and drain for at most this many nanoseconds, close clean, end.
    /// A second one shortens the first's time.
    Shutdown {
        /// Bound on draining.
        drain: u64,
        /// Answered when the volume is closed.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
}

impl std::fmt::Debug for ReactorMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReactorMessage::Command { command, .. } => write!(f, "Command({command:?})"),
            ReactorMessage::Attach { leg, name, .. } => write!(f, "Attach({leg:?}, {name})"),
            ReactorMessage::Inject { leg, injection, .. } => {
                write!(f, "Inject({leg:?}, {injection:?})")
            }
            ReactorMessage::SetGates { gates, .. } => write!(f, "SetGates({})", gates.len()),
            ReactorMessage::AttachDevice { opened, .. } => write!(f, "AttachDevice({opened:?})"),
            ReactorMessage::ServeKernel { socket, .. } => write!(f, "ServeKernel({socket:?})"),
            ReactorMessage::WatchKernel { .. } => write!(f, "WatchKernel"),
            ReactorMessage::Guest(message) => write!(f, "{message:?}"),
            ReactorMessage::AwaitDeviceEnd { .. } => write!(f, "AwaitDeviceEnd"),
            ReactorMessage::Census { cells, .. } => write!(f, "Census({})", cells.len()),
            ReactorMessage::Upgrade { wish, .. } => write!(f, "Upgrade({wish:?})"),
            ReactorMessage::Populated { mapping } => write!(f, "Populated({mapping})"),
            ReactorMessage::Shutdown { drain, .. } => write!(f, "Shutdown({drain} ns)"),
        }
    }
}

/// Other threads' end of the line to the reactor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReactorHandle {
    messages: SyncSender<ReactorMessage>,
    waker: Waker,
    published: Arc<ArcSwap<Snapshot>>,
}

impl ReactorHandle {
    /// A handle on the reactor that reads `messages` and publishes into `published`.
    pub(crate) fn new(
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

    /// Sends a message and blocks until it is answered; not for the reactor's thread.
    ///
    /// # Errors
    /// The reactor's answer; [`ReactorError::Busy`] or [`ReactorError::Ended`] if it gives none.
    pub fn wait_for(
        &self,
        make: impl FnOnce(ReplyTo<Result<(), ReactorError>>) -> ReactorMessage,
    ) -> Result<(), ReactorError> {
        let (reply, answer) = reply_and_answer();
        self.send(make(reply))?;
        answer()
    }

    /// Waits like [`ReactorHandle::wait_for`], and also while the queue is full.
    ///
    /// # Errors
    /// The reactor's answer; [`ReactorError::Ended`] if it gives none.
    pub(crate) fn wait_in_line<T: Send + 'static>(
        &self,
        make: impl FnOnce(ReplyTo<Result<T, ReactorError>>) -> ReactorMessage,
    ) -> Result<T, ReactorError> {
        let (reply, answer) = reply_and_answer();
        self.messages.send(make(reply)).map_err(|_| ReactorError::Ended)?;
        self.waker.wake();
        answer()
    }

    /// The latest snapshot, at most [`SNAPSHOT_INTERVAL`] old while the reactor runs.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load_full()
    }
}

/// Returns a reply for a message, and a function that waits for it.
fn reply_and_answer<T: Send + 'static>()
-> (ReplyTo<Result<T, ReactorError>>, impl FnOnce() -> Result<T, ReactorError>) {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let reply: ReplyTo<_> = Box::new(move |result| {
        // There is room for the one answer.
        let _ = sender.try_send(result);
    });
    // The reply was dropped: the reactor has ended.
    (reply, move || receiver.recv().unwrap_or(Err(ReactorError::Ended)))
}
