//! The stamps of a leg: what it has completed, what of that is durable, and the flush that makes it so.
//!
//! A leg counts the writes it completes. A flush covers those up to the stamp it began with.

use crate::engine::state::slab::NONE;
use hemi_units::Instant;

/// A leg's completed writes and its flushes.
pub(in crate::engine) struct Stamps {
    /// Counts completed writes.
    done: u64,
    /// The stamp up to which everything is durable.
    flushed: u64,
    /// The stamp of the flush in flight.
    flushing: Option<u64>,
    /// The I/O that this is. Others are of sessions that dropped, and say nothing of the leg now.
    io: u32,
    /// It was called late.
    is_late: bool,
    /// A flush covering this stamp is wanted.
    target: u64,
    /// The last flush failed: the leg makes nothing durable until one succeeds.
    failed: bool,
    /// Counts the flushes that failed.
    failures: u64,
    /// After a failed flush: when another may be tried for its own sake.
    retry_after: Instant,
    /// Earliest time of a flush that nobody waits for, while clients write.
    aside_after: Instant,
    /// The stamp up to which what was lost has been reported.
    loss_reported: u64,
    /// The flush that healed regions wait for must cover this stamp.
    healing: u64,
}

impl Stamps {
    /// Begins with nothing flushed of what there is up to this stamp.
    pub(in crate::engine) fn new(done: u64) -> Stamps {
        Stamps {
            done,
            flushed: 0,
            flushing: None,
            io: NONE,
            is_late: false,
            target: 0,
            failed: false,
            failures: 0,
            retry_after: Instant(0),
            aside_after: Instant(0),
            loss_reported: 0,
            healing: 0,
        }
    }

    /// Returns the stamp of the write that was completed last.
    pub(in crate::engine) fn done(&self) -> u64 {
        self.done
    }

    /// Returns the stamp up to which everything is durable.
    pub(in crate::engine) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Counts a completed write, or what is as good as one. Returns its stamp.
    pub(in crate::engine) fn complete_write(&mut self) -> u64 {
        self.done += 1;
        self.done
    }

    /// Asks for a flush that covers a stamp.
    pub(in crate::engine) fn want_flush(&mut self, stamp: u64) {
        self.target = self.target.max(stamp);
    }

    /// Returns true if a flush is wanted that covers a stamp.
    pub(in crate::engine) fn is_flush_wanted(&self, stamp: u64) -> bool {
        self.target >= stamp
    }

    /// Returns true if a flush is to be started.
    pub(in crate::engine) fn wants_flush(&self) -> bool {
        self.target > self.flushed && self.flushing.is_none()
    }

    /// Returns true if a flush is in flight.
    pub(in crate::engine) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// Returns true if the flush in flight, if there is one, covers everything.
    pub(in crate::engine) fn may_join_flush(&self) -> bool {
        self.flushing.is_none_or(|stamp| stamp >= self.done)
    }

    /// Begins a flush. Its I/O is named by [`Stamps::note_flush_io`].
    pub(in crate::engine) fn begin_flush(&mut self) {
        self.flushing = Some(self.done);
        self.is_late = false;
    }

    /// Notes the I/O of the flush that has begun.
    pub(in crate::engine) fn note_flush_io(&mut self, io: u32) {
        self.io = io;
    }

    /// Returns true if an I/O is the newest flush of this session.
    pub(in crate::engine) fn is_flush_io(&self, io: u32) -> bool {
        self.io == io
    }

    /// Ends the flush in flight. Returns the stamp it began with.
    pub(in crate::engine) fn end_flush(&mut self) -> Option<u64> {
        self.flushing.take()
    }

    /// Notes that everything up to a stamp is durable.
    pub(in crate::engine) fn note_flushed(&mut self, stamp: u64) {
        self.flushed = self.flushed.max(stamp);
        self.failed = false;
    }

    /// Notes that a flush has failed. None is tried for its own sake before a time.
    pub(in crate::engine) fn note_flush_failed(&mut self, retry_after: Instant) {
        self.failed = true;
        self.failures += 1;
        self.retry_after = retry_after;
        self.target = self.flushed;
    }

    /// Returns true if the last flush failed: the leg makes nothing durable until one succeeds.
    pub(in crate::engine) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns how many flushes have failed since the leg took its slot.
    pub(in crate::engine) fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns true if a flush may be tried again for its own sake.
    pub(in crate::engine) fn may_retry(&self, now: Instant) -> bool {
        now >= self.retry_after
    }

    /// Notes that the session has ended, and what was in flight with it.
    pub(in crate::engine) fn end_session(&mut self) {
        self.flushing = None;
        self.io = NONE;
    }

    /// Calls the flush in flight late. Returns true if it was called so before.
    pub(in crate::engine) fn call_late(&mut self) -> bool {
        core::mem::replace(&mut self.is_late, true)
    }

    /// Returns true if a flush is in flight and late.
    pub(in crate::engine) fn is_late(&self) -> bool {
        self.flushing.is_some() && self.is_late
    }

    /// Puts off flushes that nobody waits for.
    pub(in crate::engine) fn rest_until(&mut self, until: Instant) {
        self.aside_after = until;
    }

    /// Returns true if a flush that nobody waits for may be sent though clients write.
    pub(in crate::engine) fn has_rested(&self, now: Instant) -> bool {
        now >= self.aside_after
    }

    /// Returns the stamp up to which what was lost has been reported.
    pub(in crate::engine) fn loss_reported(&self) -> u64 {
        self.loss_reported
    }

    /// Notes that what was lost up to now has been reported.
    pub(in crate::engine) fn note_loss_reported(&mut self) {
        self.loss_reported = self.done;
    }

    /// Has healed regions wait for a flush that covers everything up to now.
    pub(in crate::engine) fn begin_healing(&mut self) {
        self.healing = self.done;
    }

    /// Returns the stamp that healed regions wait for.
    pub(in crate::engine) fn healing(&self) -> u64 {
        self.healing
    }
}
