//! The way of requests to a target: through the ring, with the same code that drives a volume's
//! legs, or to no target at all.

use std::io;

use hemi_engine::identifiers::IoId;
use hemi_engine::io::{LegError, LegEvent, LegOperation};
use hemi_io::leg::{Leg, LegContext, LegOutcome, OpenLeg, ResolvedIo};
use hemi_io::memory::Span;
use hemi_io::ring::{Completion, Ring, Source};
use hemi_units::{Instant, Operation};

use crate::segments::Outcome;

/// The number of completions taken in at a time before the vector grows.
const COMPLETIONS: usize = 4096;
/// The only leg's owner number in the ring's tags.
const OWNER: u16 = 1;

/// A request, addressed in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The number the schedule knows it by.
    pub tag: u32,
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes, or zero for a flush.
    pub length: u64,
    /// For reads and writes, `length` bytes of memory.
    pub data: Option<Span>,
}

/// A target as the engine drives it.
#[derive(Debug)]
pub struct Backend {
    ring: Ring,
    /// The target. Without one, every request is done as soon as it is issued.
    leg: Option<Leg>,
    nowhere: Vec<u32>,
    completions: Vec<Completion>,
    outcomes: Vec<LegOutcome>,
    gone: bool,
}

impl Backend {
    /// Creates the backend of the target `opened`, or of none.
    ///
    /// # Errors
    /// What the leg's driver needs cannot be had.
    pub fn new(ring: Ring, opened: Option<OpenLeg>) -> io::Result<Backend> {
        let leg = opened.map(|opened| Leg::attach(opened, OWNER, false)).transpose()?;
        Ok(Backend {
            ring,
            leg,
            nowhere: Vec::with_capacity(COMPLETIONS),
            completions: Vec::with_capacity(COMPLETIONS),
            outcomes: Vec::with_capacity(COMPLETIONS),
            gone: false,
        })
    }

    /// Returns the ring, so that memory can be registered with it.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Queues a request. [`Backend::poll`] or [`Backend::wait`] submits it.
    pub fn submit(&mut self, now: Instant, request: Request) {
        let Some(leg) = &mut self.leg else { return self.nowhere.push(request.tag) };
        let operation = match request.operation {
            Operation::Read => LegOperation::Read,
            Operation::Write { fua } => LegOperation::Write { fua },
            Operation::Trim => LegOperation::WriteZeroes { may_unmap: true, fua: false },
            Operation::Flush => LegOperation::Flush,
        };
        let Request { tag, offset, length, data, .. } = request;
        let io = ResolvedIo { id: IoId(tag.into()), operation, offset, length, data };
        let outcomes = &mut self.outcomes;
        leg.submit(&mut LegContext { ring: &mut self.ring, now, owner: OWNER, outcomes }, io);
    }

    /// Submits queued requests without waiting.
    ///
    /// # Errors
    /// Fails with the ring's errors, which are permanent.
    pub fn poll(&mut self) -> io::Result<()> {
        if self.leg.is_some() { self.ring.poll() } else { Ok(()) }
    }

    /// Submits queued requests and sleeps until something is done, at most `nanoseconds`.
    ///
    /// # Errors
    /// Fails as [`Backend::poll`] does.
    pub fn wait(&mut self, nanoseconds: u64) -> io::Result<()> {
        if self.nowhere.is_empty() { self.ring.wait(Some(nanoseconds)) } else { Ok(()) }
    }

    /// Returns the time at which the target's own timers are due.
    pub fn deadline(&self) -> Instant {
        self.leg.as_ref().map_or(Instant::NEVER, Leg::deadline)
    }

    /// Appends the requests that are done, each with its outcome.
    pub fn reap(&mut self, now: Instant, done: &mut Vec<(u32, Outcome)>) {
        let Some(leg) = &mut self.leg else {
            return done.extend(self.nowhere.drain(..).map(|tag| (tag, Outcome::Done)));
        };
        self.ring.completions(&mut self.completions);
        let outcomes = &mut self.outcomes;
        let mut cx = LegContext { ring: &mut self.ring, now, owner: OWNER, outcomes };
        for completion in self.completions.drain(..) {
            match completion.tag.source {
                Source::Leg => leg.completion(&mut cx, completion),
                Source::Wake => cx.ring.arm_wake(),
                Source::Listener
                | Source::Device
                | Source::Guest
                | Source::Connection
                | Source::Nobody => {}
            }
        }
        if leg.deadline() <= now {
            leg.tick(&mut cx);
        }
        for outcome in self.outcomes.drain(..) {
            match outcome {
                LegOutcome::Done { id, result } => {
                    leg.settle(id);
                    // Tags are 32 bits.
                    done.push((id.0 as u32, outcome_of(result)));
                }
                LegOutcome::Event(LegEvent::Gone { .. }) => self.gone = true,
                LegOutcome::Event(LegEvent::Back)
                | LegOutcome::Progress(_)
                | LegOutcome::Failed(_) => {}
            }
        }
    }

    /// Returns true if the target has gone away: a device that vanished, or a session that ended.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Releases the target. Requests still in flight keep their memory forever.
    pub fn close(mut self) {
        if let Some(leg) = self.leg.take() {
            leg.detach(&mut self.ring);
        }
    }
}

fn outcome_of(result: Result<(), LegError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(LegError::Media) => Outcome::Media,
        Err(LegError::NoSpace) => Outcome::NoSpace,
        Err(LegError::Gone) => Outcome::Gone,
        Err(LegError::Other) => Outcome::Other,
    }
}
