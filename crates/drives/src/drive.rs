//! What all drives have in common: requests in, completion times out.

use hemi_units::{Extent, Instant, Operation};

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The caller's name for it, given back in [`Completion`].
    pub tag: u64,
    /// What to do.
    pub operation: Operation,
    /// Where, in sectors of 512 bytes from the beginning of the drive; within
    /// [`Drive::sectors`]. Ignored for a flush.
    pub extent: Extent,
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// [`Request::tag`].
    pub tag: u64,
    /// When it was done.
    pub at: Instant,
}

/// What a drive has done so far. What a kind of drive does not do stays zero.
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
    /// Nanoseconds during which it had something to do.
    pub busy: u64,
    /// Movements of the arm.
    pub seeks: u64,
    /// Flash pages programmed for the host.
    pub pages_written: u64,
    /// Flash pages programmed because garbage was collected, wear levelled or a cache folded.
    pub pages_copied: u64,
    /// Flash blocks erased.
    pub erases: u64,
    /// Erases of the block erased least …
    pub erases_least: u64,
    /// … and most.
    pub erases_most: u64,
    /// Energy used, joules.
    pub energy: f64,
}

impl Counters {
    /// Flash pages programmed for each that the host wrote; 1 where it wrote none.
    pub fn write_amplification(&self) -> f64 {
        if self.pages_written == 0 {
            return 1.0;
        }
        (self.pages_written + self.pages_copied) as f64 / self.pages_written as f64
    }

    /// Counts a request of the host's.
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

    /// What was done since `earlier`, a copy of the same drive's counters. (Most and least
    /// erases are those of the whole life.)
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
            energy: self.energy - earlier.energy,
        }
    }
}

/// A drive on the virtual clock.
///
/// Time only goes forward: the caller advances the drive to `now` before it submits at `now`.
/// The drive takes any number of requests; those beyond its own queue wait in it in the order
/// they came, as they would in the host. Between [`Drive::advance`] calls nothing happens:
/// the caller asks [`Drive::next_event`] when something will.
pub trait Drive {
    /// How many sectors of 512 bytes it has.
    fn sectors(&self) -> u64;

    /// Takes a request at `now`.
    fn submit(&mut self, now: Instant, request: Request);

    /// When the drive next does something by itself (end a request, collect garbage, destage
    /// a cache); [`Instant::NEVER`] when nothing is under way. Not before the last `now`.
    fn next_event(&self) -> Instant;

    /// Lets happen what is due until `now`, in order, and appends the requests that are done.
    /// Each ends at [`Completion::at`], which is never later than `now`.
    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>);

    /// What it has done until the last `now`, energy at rest included.
    fn counters(&self) -> Counters;
}

/// Makes an enum whose every variant holds a drive a drive itself: one match, where a
/// `dyn Drive` would hide the model from the compiler.
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
        }
    };
}
