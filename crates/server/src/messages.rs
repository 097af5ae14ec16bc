//! Messages from other threads to the reactor.
//!
//! Messages go through a bounded channel, and the sender wakes the reactor. Answers come back through the
//! [`ReplyTo`] that each message carries. Figures that everybody reads all the time are not requested: the
//! reactor publishes a [`Snapshot`] several times a second, and at once when a leg or the volume changes its
//! state.

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

/// Maximum number of messages that wait for the reactor.
pub const MESSAGES_MAX: usize = 64;
/// Interval at which the reactor publishes snapshots, in nanoseconds.
pub const SNAPSHOT_INTERVAL: u64 = 250_000_000;
/// Shortest time between two snapshots if something changed in between, in nanoseconds.
pub const SNAPSHOT_GAP_MIN: u64 = 20_000_000;

/// The receiver of an answer. It is called on the reactor's thread and must not block (the send of a oneshot
/// channel does not).
pub type ReplyTo<T> = Box<dyn FnOnce(T) + Send>;

/// The reason why the reactor did not carry out a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReactorError {
    /// The engine refused or failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The slot holds no leg.
    #[error("slot {0} holds no leg")]
    NoSuchLeg(u8),
    /// Injection is off.
    #[error("this volume was not served with --allow-inject")]
    InjectionOff,
    /// A leg could not be attached.
    #[error("the leg could not be attached: {0}")]
    Attach(String),
    /// A leg does not answer and has I/O in flight, so no other program could open it.
    #[error("leg {0} does not answer and has I/O in flight; another program could not open it")]
    LegSilent(u8),
    /// Clients use TLS and would be disconnected.
    #[error("clients use TLS ({0}); no other program can go on with their connections")]
    WouldCut(u64),
    /// The clients' requests were not answered in time.
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

/// A message to the reactor.
pub enum ReactorMessage {
    /// Runs an engine command. The reply comes when the command is done, which can take long (scrub, detach).
    Command {
        /// The command.
        command: Command,
        /// Receives its outcome.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Puts an opened, formatted leg into a slot that is empty, or whose leg is out and gone, and lets it
    /// join.
    Attach {
        /// The slot.
        leg: LegIndex,
        /// The leg.
        opened: Box<OpenLeg>,
        /// The name that status shows.
        name: String,
        /// The id in its superblock.
        id: [u8; 16],
        /// Receives the outcome once the leg has durably joined. It drains afterwards.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Injects a fault into a leg, if the volume allows it.
    Inject {
        /// The slot.
        leg: LegIndex,
        /// The fault.
        injection: Injection,
        /// Receives the outcome at once.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Sets the gates through which clients of each configured export come from now on.
    SetGates {
        /// One entry for each export; `None` for an export without TLS.
        gates: Vec<Option<Arc<Gate>>>,
        /// Receives the outcome at once.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Serves a block device as well.
    AttachDevice {
        /// The device, opened.
        opened: Box<OpenDevice>,
        /// Receives the outcome at once. The device's requests are taken from the end of the turn on.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Serves the kernel's NBD client as well.
    ServeKernel {
        /// The socket and its device.
        socket: Box<KernelSocket>,
        /// Receives the outcome at once. The client's requests are taken from the end of the turn on.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Reports the end of the connection that the kernel's NBD client had to a predecessor.
    WatchKernel {
        /// Receives a message when the connection ends.
        ended: SyncSender<()>,
        /// Receives the outcome at once: [`ReactorError::Busy`] if another sender is waiting already,
        /// [`ReactorError::Attach`] if there is no such connection.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Carries out an order of the connection to a virtual machine.
    Guest(GuestMessage),
    /// Waits for the end of the block device, after the kernel was asked to stop it.
    AwaitDeviceEnd {
        /// Receives the outcome when it has ended, or at once if there is no block device.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Registers a mapping of the buffers, now that all its pages are populated.
    Populated {
        /// Its index, in the order of [`hemi_io::arena::Arena::memory_mut`].
        mapping: usize,
    },
    /// Counts the regions by condition, in `cells.len()` cells of equal size.
    Census {
        /// The cells, with all counts zero.
        cells: Vec<RegionCounts>,
        /// Receives the counts once all are made, or [`ReactorError::Busy`] if another census is being taken.
        reply: ReplyTo<Result<Census, ReactorError>>,
    },
    /// Waits until no client request is in flight, closes the volume and hands both to another program.
    Upgrade {
        /// The operator's wishes.
        wish: UpgradeWish,
        /// Receives the outcome once no client request is in flight and there is no way back, or the reason
        /// why nothing has changed.
        reply: ReplyTo<Result<(), ReactorError>>,
    },
    /// Stops accepting clients, finishes their requests, drains, closes the volume clean and ends. A second
    /// one can only shorten the time left.
    Shutdown {
        /// Time limit for draining, in nanoseconds.
        drain: u64,
        /// Receives the outcome when the volume is closed.
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

/// The sending side of the reactor's channel, for other threads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReactorHandle {
    messages: SyncSender<ReactorMessage>,
    waker: Waker,
    published: Arc<ArcSwap<Snapshot>>,
}

impl ReactorHandle {
    /// Returns a handle on the reactor that reads `messages` and publishes into `published`.
    pub(crate) fn new(
        messages: SyncSender<ReactorMessage>,
        waker: Waker,
        published: Arc<ArcSwap<Snapshot>>,
    ) -> ReactorHandle {
        ReactorHandle { messages, waker, published }
    }

    /// Sends a message without blocking. A message that cannot be sent is dropped, and its reply with it.
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

    /// Sends a message and blocks until it is answered. Not for the reactor's thread.
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

    /// Like [`ReactorHandle::wait_for`], but waits while the queue is full.
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

    /// Returns the latest snapshot, at most [`SNAPSHOT_INTERVAL`] old while the reactor runs.
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
