//! Requests in flight in an array, and the parts they consist of.

use std::collections::VecDeque;

use hemi_units::{Extent, Operation};

use super::layout::{Piece, Run};
use super::slab::NONE;
use crate::drive::Failure;

/// A request from the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) tag: u64,
    pub(super) operation: Operation,
    pub(super) extent: Extent,
    /// Number of parts it still waits for.
    pub(super) left: u32,
    /// Sector up to which a write is in the cache.
    pub(super) reached: u64,
    /// Outcome so far: the first failure of a part that nothing could stand in for.
    pub(super) result: Result<(), Failure>,
}

/// The owner of a request to a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A request from the host.
    Job(u32),
    /// A write to a row.
    Row(u32),
    /// A segment read ahead.
    Segment(u32),
    /// Data that is computed from the other members'.
    Recovery(u32),
    /// A request from the host that asks a member the array needs for its presence.
    Probe(u32),
    /// The cache.
    Cache,
    /// Nothing: sectors that could not be read are written again.
    Repair,
}

/// A request to a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberIo {
    pub(super) member: usize,
    pub(super) operation: Operation,
    pub(super) extent: Extent,
    pub(super) owner: Owner,
    /// Copies that could not be read before this one.
    pub(super) tries: u32,
    /// The copy among them whose sectors are bad and are written again, or [`NONE`].
    pub(super) repairs: u32,
}

impl MemberIo {
    /// Creates a request that is tried for the first time.
    pub(super) fn new(
        member: usize,
        operation: Operation,
        extent: Extent,
        owner: Owner,
    ) -> MemberIo {
        MemberIo { member, operation, extent, owner, tries: 0, repairs: NONE }
    }
}

/// A write to a row: reads the blocks it needs, computes the parity, writes.
#[derive(Clone, Debug)]
pub(super) struct RowWrite {
    pub(super) row: u64,
    /// The owner: a request or the cache.
    pub(super) owner: Owner,
    /// Parts of the row to write.
    pub(super) runs: Vec<Run>,
    /// Pieces to write to the members in the end.
    pub(super) writes: Vec<Piece>,
    /// Bytes for the parity engine.
    pub(super) parity_bytes: u64,
    /// Requests to members that are still in flight.
    pub(super) left: u32,
    pub(super) writing: bool,
    pub(super) result: Result<(), Failure>,
    /// The next write to the same row, which waits for this one.
    pub(super) next: u32,
}

impl RowWrite {
    pub(super) fn blank() -> RowWrite {
        RowWrite {
            row: 0,
            owner: Owner::Cache,
            runs: Vec::new(),
            writes: Vec::new(),
            parity_bytes: 0,
            left: 0,
            writing: false,
            result: Ok(()),
            next: NONE,
        }
    }
}

/// Requests that wait for the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    /// Writes that wait for room, in order of arrival.
    pub(super) writes: VecDeque<u32>,
    /// Flushes, each with the epoch it waits for.
    pub(super) flushes: VecDeque<(u64, u32)>,
}
