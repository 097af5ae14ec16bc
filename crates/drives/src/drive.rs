//! The interface all drives share: requests in, completion times out.

use hemi_units::{Extent, Instant, Operation};
use serde::Serialize;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The caller's name for the request, returned in [`Completion`].
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
    /// The sectors of 512 bytes, counted from the beginning of the drive and within
    /// [`Drive::sectors`]. Ignored for a flush.
    pub extent: Extent,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Tag of the request, [`Request::tag`].
    pub tag: u64,
    /// Time of completion.
    pub at: Instant,
    /// Outcome. The models of single drives never fail; faults in front of them do.
    pub result: Result<(), Failure>,
}

impl Completion {
    /// Returns the completion of a request that succeeded.
    #[inline]
    pub fn done(tag: u64, at: Instant) -> Completion {
        Completion { tag, at, result: Ok(()) }
    }
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The medium could not read or write these sectors.
    Medium,
    /// The drive takes no writes any more.
    ReadOnly,
    /// The drive went away before it answered.
    Gone,
}

/// The connection of a drive that may go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It answers.
    Present,
    /// It does not answer now, but will return.
    Away,
    /// It does not answer any more.
    Dead,
}

/// Counts of failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
}

impl Failed {
    /// Counts a failed request.
    pub fn count(&mut self, operation: Operation) {
        match operation {
            Operation::Read => self.reads += 1,
            Operation::Write { .. } => self.writes += 1,
            Operation::Flush => self.flushes += 1,
            Operation::Trim => self.trims += 1,
        }
    }

    /// Returns the number of all failed requests.
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.trims
    }

    /// Returns the failures since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Failed) -> Failed {
        Failed {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            trims: self.trims - earlier.trims,
        }
    }
}

/// The work a drive has done so far. A counter that does not apply to a kind of drive stays
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Reads done.
    pub reads: u64,
    /// Writes done.
    pub writes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Nanoseconds during which the drive had work, its own upkeep included; of an array, the mean of
    /// its members.
    pub busy: u64,
    /// Movements of the arm.
    pub seeks: u64,
    /// Flash pages programmed for the host.
    pub pages_written: u64,
    /// Flash pages programmed because garbage was collected, wear levelled or a cache folded.
    pub pages_copied: u64,
    /// Flash blocks erased.
    pub erases: u64,
    /// Erases of the least erased block.
    pub erases_least: u64,
    /// Erases of the most erased block.
    pub erases_most: u64,
    /// Program/erase cycles that the flash is rated for; 0 without such a rating.
    pub rated_cycles: u32,
    /// Program/erase cycles of a block on average, over the drive's whole life, as a drive of full
    /// capacity has them.
    pub cycles: f64,
    /// Program/erase cycles of the most erased block, likewise.
    pub cycles_most: f64,
    /// Energy used, joules.
    pub energy: f64,
    /// Requests that failed.
    pub failed: Failed,
    /// Members of an array that it goes on without.
    pub members_out: u64,
}

impl Counters {
    /// Returns the flash pages programmed for each page the host wrote, or 1 if the host wrote
    /// none.
    pub fn write_amplification(&self) -> f64 {
        if self.pages_written == 0 {
            return 1.0;
        }
        (self.pages_written + self.pages_copied) as f64 / self.pages_written as f64
    }

    /// Counts a request from the host.
    pub fn count(&mut self, operation: Operation, extent: Extent) {
        match operation {
            Operation::Read => {
                self.reads += 1;
                self.read_bytes += extent.bytes();
            }
            Operation::Write { .. } => {
                self.writes += 1;
                self.written_bytes += extent.bytes();
            }
            Operation::Flush => self.flushes += 1,
            Operation::Trim => {}
        }
    }

    /// Returns the work done since `earlier`, a copy of the same drive's counters. The least
    /// and most erases, the cycles and the members that are out still cover the drive's whole
    /// life.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            read_bytes: self.read_bytes - earlier.read_bytes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            busy: self.busy - earlier.busy,
            seeks: self.seeks - earlier.seeks,
            pages_written: self.pages_written - earlier.pages_written,
            pages_copied: self.pages_copied - earlier.pages_copied,
            erases: self.erases - earlier.erases,
            erases_least: self.erases_least,
            erases_most: self.erases_most,
            rated_cycles: self.rated_cycles,
            cycles: self.cycles,
            cycles_most: self.cycles_most,
            energy: self.energy - earlier.energy,
            failed: self.failed.since(&earlier.failed),
            members_out: self.members_out,
        }
    }
}

/// A drive on the virtual clock.
///
/// Time only goes forward: the caller advances the drive to `now` before it submits at `now`.
/// The drive takes any number of requests; those beyond its own queue wait in order of arrival,
/// as they would in the host. Nothing happens between calls of [`Drive::advance`]: the caller
/// asks [`Drive::next_event`] for the time of the next event.
pub trait Drive {
    /// Returns the size in sectors of 512 bytes.
    fn sectors(&self) -> u64;

    /// Takes a request at `now`.
    fn submit(&mut self, now: Instant, request: Request);

    /// Returns the time of the drive's next event of its own (ending a request, collecting
    /// garbage, destaging a cache), or [`Instant::NEVER`] if none is pending. Never earlier
    /// than the last `now`.
    fn next_event(&self) -> Instant;

    /// Processes the events due until `now`, in order, and appends the completed requests.
    /// [`Completion::at`] is never later than `now`.
    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>);

    /// Returns the work done until the last `now`, including energy used at rest.
    fn counters(&self) -> Counters;

    /// Returns the presence at the last `now` of a drive that may go away; a change is an event of
    /// [`Drive::next_event`]. Returns `None` for a drive that never does.
    fn presence(&self) -> Option<Presence> {
        None
    }

    /// Returns [`Counters::cycles`], without counting anything.
    fn cycles(&self) -> f64 {
        0.0
    }
}

/// Implements `Drive` for an enum whose every variant holds a drive. A `match` lets the compiler
/// see the model, which a `dyn Drive` would hide.
#[macro_export]
macro_rules! drive_of_variants {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl $crate::drive::Drive for $name {
            fn sectors(&self) -> u64 {
                match self { $($name::$variant(drive) => drive.sectors()),+ }
            }

            fn submit(
                &mut self,
                now: ::hemi_units::Instant,
                request: $crate::drive::Request,
            ) {
                match self { $($name::$variant(drive) => drive.submit(now, request)),+ }
            }

            fn next_event(&self) -> ::hemi_units::Instant {
                match self { $($name::$variant(drive) => drive.next_event()),+ }
            }

            fn advance(
                &mut self,
                now: ::hemi_units::Instant,
                done: &mut Vec<$crate::drive::Completion>,
            ) {
                match self { $($name::$variant(drive) => drive.advance(now, done)),+ }
            }

            fn counters(&self) -> $crate::drive::Counters {
                match self { $($name::$variant(drive) => drive.counters()),+ }
            }

            fn presence(&self) -> Option<$crate::drive::Presence> {
                match self { $($name::$variant(drive) => drive.presence()),+ }
            }

            fn cycles(&self) -> f64 {
                match self { $($name::$variant(drive) => drive.cycles()),+ }
            }
        }
    };
}
