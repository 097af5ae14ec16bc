//! The engine's vocabulary with its driver: requests in, leg I/O and replies out.
//!
//! A driver (the io_uring server, the simulator) turns client traffic into [`Request`]s,
//! performs every [`LegIo`] it is handed, in any order, and reports each exactly once.

use crate::format::LegDescription;
use crate::identifiers::{BufferAt, BufferId, IoId, LegIndex};
use hemi_units::Extent;

/// Payload buffers, owned by the driver, counted by the engine.
///
/// The engine holds a reference to a buffer for as long as any leg I/O or any debt uses it,
/// so a buffer whose write a frozen leg still holds is never reused under that write.
///
/// Debts are paid from buffers of their own. The driver leaves part of the budget to that
/// ([`ClientShare`]): if clients held all of it, debts would not be paid, and clients that are held back
/// for them not be served.
pub trait Buffers {
    /// A buffer of at least `sectors` sectors with one reference, or `None` when the buffer
    /// budget is spent. Content is unspecified.
    fn allocate(&mut self, sectors: u32) -> Option<BufferId>;
    /// Adds a reference.
    fn retain(&mut self, buffer: BufferId);
    /// Drops a reference; the last one frees the buffer.
    fn release(&mut self, buffer: BufferId);
    /// Copies `sectors` sectors between two places that do not overlap.
    fn copy(&mut self, from: BufferAt, to: BufferAt, sectors: u32);
    /// Fills `sectors` sectors with zeros.
    fn zero(&mut self, at: BufferAt, sectors: u32);
    /// Returns true if two places hold the same `sectors` sectors (scrub).
    fn equal(&self, a: BufferAt, b: BufferAt, sectors: u32) -> bool;
    /// Returns true if `sectors` sectors are zeros. A driver that does not keep content returns false.
    fn is_zero(&self, at: BufferAt, sectors: u32) -> bool;
    /// Bytes still free in the budget.
    fn free_bytes(&self) -> u64;
}

/// The parts of a buffer budget that clients may hold, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ClientShare {
    /// The most that they may hold in all: three quarters. The rest is the engine's, for drains, repairs
    /// and debts, so that work that frees buffers never waits for one.
    pub most: u64,
    /// Three quarters of that, which are common and given out in order. The last quarter is for small
    /// requests of clients that hold nothing.
    pub common: u64,
}

impl ClientShare {
    /// Bytes of the longest request that is small.
    pub const SMALL_BYTES_MAX: u64 = 64 << 10;

    /// Returns the shares of a budget in bytes.
    pub const fn of(budget: u64) -> ClientShare {
        let most = budget / 4 * 3;
        ClientShare { most, common: most / 4 * 3 }
    }
}

/// The operation of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the extent into the request's buffer.
    Read,
    /// Write the request's buffer to the extent.
    Write,
    /// Make the extent read as zeros. `may_unmap` allows deallocation.
    WriteZeroes {
        /// True if legs may deallocate the extent.
        may_unmap: bool,
    },
    /// Write zeros that may unmap, where every leg does that fast; otherwise nothing.
    Discard,
    /// Make every write acknowledged before it durable.
    Flush,
}

/// One client request. Extents are within the volume and aligned to the volume's block
/// size: the driver has checked.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The driver's name for it, given back in [`Reply`].
    pub token: u64,
    /// The operation.
    pub operation: Operation,
    /// The extent. Ignored for [`Operation::Flush`].
    pub extent: Extent,
    /// The payload's buffer for `Read` and `Write`. The engine takes over the caller's
    /// reference; a read's comes back with the reply.
    pub buffer: Option<BufferId>,
    /// Durable before it is acknowledged.
    pub fua: bool,
    /// The client connection that sent it (flush errors are reported to each one).
    pub connection: u32,
}

/// The reason why a client request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum RequestError {
    /// No leg could read or write it.
    Io,
    /// No space on a leg that had to take it.
    NoSpace,
    /// The volume is closing.
    ShuttingDown,
}

/// The answer to a [`Request`].
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// [`Request::token`].
    pub token: u64,
    /// Outcome.
    pub result: Result<(), RequestError>,
    /// For reads that succeeded: the buffer that holds the data, one reference, now the
    /// driver's. It can be another than the request's: one given up on a frozen leg
    /// stays with that leg.
    pub buffer: Option<BufferId>,
}

/// The driver's knowledge of a leg when the volume opens, or the leg joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegTraits {
    /// The driver has the device.
    pub present: bool,
    /// It makes ranges read as zeros without writing them.
    pub fast_zeroes: bool,
    /// Its space is taken as it is written: zeros that are copied to it may take none.
    pub thin: bool,
    /// The device in words, kept in the superblocks of all legs. Empty keeps what they say.
    pub description: LegDescription,
}

/// An operation of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegOperation {
    /// Read into the buffer.
    Read,
    /// Write from the buffer; with `fua`, durable on completion.
    Write {
        /// Durable on completion.
        fua: bool,
    },
    /// Make the range read as zeros; with `fua`, durable on completion.
    WriteZeroes {
        /// True if the leg may deallocate.
        may_unmap: bool,
        /// Durable on completion.
        fua: bool,
    },
    /// Make everything that completed before this was submitted durable.
    Flush,
    /// Write one metadata page, durable on completion. The bytes are those of
    /// [`crate::engine::Engine::metadata_bytes`] at the moment the action is taken.
    WriteMetadata,
}

/// One I/O for a leg.
#[derive(Clone, Copy, Debug)]
pub struct LegIo {
    /// The leg.
    pub leg: LegIndex,
    /// The I/O's name, given back at completion.
    pub id: IoId,
    /// The operation.
    pub operation: LegOperation,
    /// The extent on the leg, in sectors from its beginning (data offset included). Empty for
    /// a flush.
    pub extent: Extent,
    /// Payload of `Read` and `Write`.
    pub buffer: Option<BufferAt>,
}

/// The reason why a leg I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum LegError {
    /// The medium could not read or write this range (EIO, EILSEQ, ENODATA).
    Media,
    /// No space (thin or file-backed leg).
    NoSpace,
    /// The device or session went away before this I/O; it will never land (its content is
    /// old or new, per sector).
    Gone,
    /// Any other error; treated like [`LegError::Media`] and shown in status.
    Other,
}

/// An event of a leg apart from its I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegEvent {
    /// It does not answer for a known reason: a session dropped, a device vanished.
    /// `removed` means it will not come back by itself. I/O in flight is completed by the
    /// driver only when it can no longer land (fenced, or quarantine over).
    Gone {
        /// True if it is gone for good.
        removed: bool,
    },
    /// It answers again. Anything completed since its last successful flush may be lost.
    Back,
}

/// Something worth a log line, in the order it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An I/O outlived the leg's wait limit (nanoseconds).
    Frozen {
        /// The leg.
        leg: LegIndex,
        /// The limit passed.
        limit: u64,
    },
    /// It answers again after this many nanoseconds.
    Thawed {
        /// The leg.
        leg: LegIndex,
        /// Time it was frozen, in nanoseconds.
        duration: u64,
    },
    /// It owes more than it can pay at once.
    Lagging {
        /// The leg.
        leg: LegIndex,
    },
    /// It owes nothing old any more.
    CaughtUp {
        /// The leg.
        leg: LegIndex,
    },
    /// The leg is durably excluded until it has drained.
    Out {
        /// The leg.
        leg: LegIndex,
        /// The reason.
        reason: OutReason,
    },
    /// The leg has drained, is whole and in again.
    In {
        /// The leg.
        leg: LegIndex,
    },
    /// A leg I/O failed.
    LegError {
        /// The leg.
        leg: LegIndex,
        /// The error.
        error: LegError,
        /// First sector on the leg.
        sector: u64,
    },
    /// No leg holds the newest data of this extent any more: it answers EIO until rewritten.
    Lost {
        /// The extent, in volume sectors.
        extent: Extent,
    },
    /// The engine has stopped for good, as after a kill: this leg is gone for good, and regions that
    /// it decides had not been compared with another leg since the volume was opened.
    Halted {
        /// The leg.
        leg: LegIndex,
        /// The number of regions.
        regions: u32,
    },
    /// An extent that a leg could not read, or in which it differed, was rewritten from another leg.
    Repaired {
        /// The leg repaired.
        leg: LegIndex,
        /// True if it differed.
        differed: bool,
        /// The extent, in volume sectors.
        extent: Extent,
    },
    /// Writers are held back: exposure is past half its bound.
    Throttling,
    /// Exposure fell well below half its bound.
    ThrottlingEnded,
    /// Every leg is whole and the volume clean.
    Converged,
    /// Scrub found a difference (already rechecked under a range lock).
    Mismatch {
        /// The leg that differs: from the one that is to be right, or else from the authority or
        /// the first leg. It need not be the wrong one.
        leg: LegIndex,
        /// The extent, in volume sectors.
        extent: Extent,
    },
}

/// The reason why a leg was marked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

/// An action that the engine hands its driver.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Perform this I/O.
    Leg(LegIo),
    /// Answer this client.
    Reply(Reply),
    /// A command finished.
    CommandDone {
        /// The command's token.
        token: u64,
        /// Outcome.
        result: Result<(), crate::command::CommandError>,
    },
    /// Log this.
    Notice(Notice),
    /// All legs are flushed, clean and closed: the driver may let go of them.
    Closed,
}
