//! The volume as a disk of a virtual machine (vhost-user-blk).
//!
//! The machine's monitor (qemu: the *front end*) connects to a unix socket, shares the guest's memory and
//! hands over the guest's queues; requests then go between guest and hemi without the monitor. What a
//! connection is set up with is negotiated on a thread that may wait (`session.rs`, by the `vhost` crate);
//! requests are the reactor's (`export/guest.rs`). A region of memory that the front end keeps
//! (`inflight.rs`) says what was under way when a server died: the guest's requests wait until the front
//! end has found the next one, and nothing in the guest sees an error.
//!
//! The guest is trusted with its disk and nothing else, and so is the front end: `memory.rs` and
//! `queue.rs` check everything that they say.

mod abi;
mod eventfd;
mod fault;
mod inflight;
mod listener;
mod memory;
mod queue;
mod request;
mod session;

pub(crate) use abi::{Disk, STATUS_ERROR, STATUS_OK};
pub use abi::{RANGE_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
pub use fault::MAPPINGS_MAX;
pub(crate) use inflight::InflightQueue;
pub use listener::MESSAGE_PATIENCE;
pub(crate) use listener::{GuestListener, Listening};
pub use memory::REGIONS_MAX;
pub(crate) use memory::{GuestMemory, Segment};
pub(crate) use queue::{QueuePlaces, SplitQueue};
pub(crate) use request::{Asked, lengths, parse};
pub use session::GuestMessage;
pub(crate) use session::{GuestOrder, OpenQueue};

/// Queues of a disk at most; all of them are the one reactor's.
pub const QUEUES_MAX: u16 = 64;
/// Entries of a queue at most.
pub const QUEUE_SIZE_MAX: u16 = 256;
/// Descriptors of a chain at most: a request's segments, its header and its status.
pub const CHAIN_MAX: usize = abi::SEGMENTS_MAX as usize + 2;
/// Payload of one request at most.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// A guest or front end broke the rules of a queue: its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// The file of its memory was cut short.
    #[error("the file of its memory was cut short")]
    CutShort,
    /// A descriptor names an address without memory.
    #[error("a descriptor leaves guest memory (address {address:#x})")]
    NoMemory { address: u64 },
    /// More is offered than there are entries.
    #[error("{entries} entries are offered in a queue of {size}")]
    Ahead { entries: u16, size: u16 },
    /// A chain begins outside of the table.
    #[error("a chain begins at descriptor {head} of {size}")]
    Head { head: u16, size: u16 },
    /// A chain is offered again before it was given back.
    #[error("the chain at descriptor {head} is offered while it is in flight")]
    InFlight { head: u16 },
    /// A chain leads outside of its table.
    #[error("a chain leads to descriptor {next} of {size}")]
    Next { next: u32, size: u32 },
    /// A chain has no end, or one that is too far.
    #[error("a chain has more than {CHAIN_MAX} descriptors")]
    Long,
    /// A table that a descriptor leads to is none.
    #[error("an indirect descriptor of {length} bytes is none that was agreed on")]
    Indirect { length: u32 },
    /// What the device reads comes after what it writes.
    #[error("a chain has a descriptor to read behind one to write")]
    Order,
    /// The header is not there.
    #[error("a request's header has {bytes} bytes")]
    NoHeader { bytes: u64 },
    /// There is no place for the answer.
    #[error("a request has no room for its status")]
    NoStatus,
    /// The inflight region is none that a server leaves.
    #[error("the inflight region names request {head}, which the queue does not have")]
    Inflight { head: u16 },
}
