//! The volume as a disk of a virtual machine (vhost-user-blk).
//!
//! The machine's monitor (the *front end*, for example qemu) connects to a unix socket, shares
//! the guest's memory and hands over the guest's queues. Requests then go between guest and
//! hemi without the monitor. A thread that may block negotiates the connection (`session.rs`,
//! with the `vhost` crate). The reactor serves the requests (`export/guest/`). A region of
//! memory that the front end keeps (`inflight.rs`) lists the requests that were in flight when
//! a server died. The guest's requests wait until the front end has found the next server, and
//! nothing in the guest sees an error.
//!
//! The guest and the front end are trusted with the disk and nothing else. `memory.rs` and
//! `queue.rs` check all of their input.

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

/// Maximum number of queues of a disk. One reactor serves them all.
pub const QUEUES_MAX: u16 = 64;
/// Maximum number of entries of a queue.
pub const QUEUE_SIZE_MAX: u16 = 256;
/// Maximum number of descriptors of a chain: a request's segments, its header and its status.
pub const CHAIN_MAX: usize = abi::SEGMENTS_MAX as usize + 2;
/// Maximum payload of one request in bytes.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// A violation of a queue's rules by a guest or front end, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// The file of its memory was truncated.
    #[error("the file of its memory was cut short")]
    CutShort,
    /// A descriptor has an address outside of guest memory.
    #[error("a descriptor leaves guest memory (address {address:#x})")]
    NoMemory { address: u64 },
    /// The guest offers more chains than the queue has entries.
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
    /// A chain has too many descriptors, or no end.
    #[error("a chain has more than {CHAIN_MAX} descriptors")]
    Long,
    /// An indirect descriptor has an invalid table, or was not negotiated.
    #[error("an indirect descriptor of {length} bytes is invalid or was not negotiated")]
    Indirect { length: u32 },
    /// A descriptor that the device reads comes after one that it writes.
    #[error("a chain has a descriptor to read after one to write")]
    Order,
    /// The header is missing or too short.
    #[error("a request's header has {bytes} bytes")]
    NoHeader { bytes: u64 },
    /// There is no space for the status.
    #[error("a request has no room for its status")]
    NoStatus,
    /// No server can have left such an inflight region.
    #[error("the inflight region names request {head}, which the queue does not have")]
    Inflight { head: u16 },
}
