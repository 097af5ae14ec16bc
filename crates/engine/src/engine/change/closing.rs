//! Closing: what is owed is paid for as long as the operator wants, then a last superblock says that the
//! volume is closed, or at least that the pages say all that the ledger does. No write begins once that
//! superblock is asked for. Where no leg answers, the ledger stays.

use crate::command::CommandError;
use crate::engine::Engine;
use crate::engine::change::life::Closing;
use crate::engine::state::leg::Leg;
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::{Instant, SECOND};

/// After the drain's time is over, closing gives up on metadata after this.
const CLOSE_METADATA_TIME: u64 = 10 * SECOND;

impl<B: Buffers> Engine<B> {
    pub(super) fn begin_close(
        &mut self,
        token: u64,
        drain_until: Instant,
    ) -> Result<(), CommandError> {
        if let Some(closing) = self.life.closing() {
            // A second call shortens the drain.
            let drain_until = closing.drain_until.min(drain_until);
            self.life.close_with(Closing { drain_until, ..closing });
            return Err(CommandError::Busy);
        }
        if self.life.is_opening() && !planted::is(Planted::ServedUnopened) {
            // No superblock says yet that the volume is open, and now none will.
            self.refuse_backlog();
        }
        self.life.close_with(Closing { token, drain_until, marked: false });
        self.clock.tick_after(0);
        for (token, _) in self.life.take_early() {
            let result = Err(CommandError::Closing);
            self.outbox.command_done(token, result);
        }
        Ok(())
    }

    pub(super) fn pump_closing(&mut self, closing: Closing) {
        if self.requests.len() > 0 && self.clock.now() < closing.drain_until {
            return;
        }
        let hopeless = self.clock.now() >= closing.drain_until + CLOSE_METADATA_TIME;
        if !closing.marked {
            let over = self.clock.now() >= closing.drain_until;
            if self.is_worth_waiting_for() && !over {
                return;
            }
            self.regions.disarm_all();
            // A leg that is in by the superblock of one leg alone keeps that from opening.
            let changing = !self.changes.is_empty() && !planted::is(Planted::ClosedWhileChanging);
            if (!self.pages_are_current() || changing) && !hopeless {
                return;
            }
            if self.ask_for_last_superblock() {
                // It has as long as the pages had.
                let drain_until = self.clock.now();
                self.life.close_with(Closing { marked: true, drain_until, ..closing });
            } else {
                self.end_closing(closing);
            }
        } else if hopeless || self.last_superblock_is_durable() && self.pages_are_current() {
            self.end_closing(closing);
        }
    }

    fn end_closing(&mut self, closing: Closing) {
        if !self.relies_on_ledger() {
            self.regions.retire_ledger();
        }
        self.life.end();
        self.outbox.command_done(closing.token, Ok(()));
        self.outbox.closed();
    }

    /// Returns true if a leg that answers owes something, or decides a region that can still be cleaned.
    fn is_worth_waiting_for(&self) -> bool {
        self.legs_that_can_be_told().any(|leg| {
            !leg.debts.is_empty()
                || leg.load.writes() > 0
                || leg.stamps.is_flushing()
                || self.regions.healing_count(leg.index) > 0
                || self.regions.authority_count(leg.index) > 0
        })
    }

    /// Returns the legs that can be told that the volume is closed. One that is silent learns it from the others
    /// at the next start.
    fn legs_that_can_be_told(&self) -> impl Iterator<Item = &Leg> {
        self.legs.that_are_in().filter(|leg| leg.answers())
    }

    /// Returns true if every leg that can be told has the pages as they are. Returns false if none can be.
    fn pages_are_current(&self) -> bool {
        let mut legs = self.legs_that_can_be_told().peekable();
        legs.peek().is_some() && legs.all(|leg| self.regions.metadata().is_current(leg.index))
    }

    /// Asks for a superblock that relies on no ledger, and says that the volume is closed if no region is
    /// dirty. Returns false if that would say nothing new, or no leg has the pages as they are: the next
    /// start takes the newest of each.
    fn ask_for_last_superblock(&mut self) -> bool {
        let has_pages = |leg: &Leg| {
            let metadata = self.regions.metadata();
            metadata.is_current_but(leg.index, metadata.superblock())
        };
        let clean = self.regions.dirty_count() == 0;
        let says_more = clean || self.volume.ledger().is_some();
        if !says_more || !self.legs_that_can_be_told().any(has_pages) {
            return false;
        }
        self.regions.leave_to_pages();
        self.volume.close(clean);
        self.write_superblock();
        true
    }

    /// Returns true if every leg that can be told has the last superblock. One that is out is waited for as well:
    /// without it it is filled anew at the next start.
    fn last_superblock_is_durable(&mut self) -> bool {
        let newest = self.regions.metadata().newest(self.regions.metadata().superblock());
        let durable =
            self.legs_that_can_be_told().all(|leg| self.has_superblock(leg.index, newest));
        durable && self.legs_out_are_told(newest)
    }

    /// Returns true if the next start may go by the ledger, so that it has to stay: no leg that is in is known
    /// to have a superblock that relies on none.
    pub fn relies_on_ledger(&self) -> bool {
        let newest = self.regions.metadata().newest(self.regions.metadata().superblock());
        let mut told = self.volume.legs_in().filter(|&leg| self.has_superblock(leg, newest));
        self.regions.has_ledger() && (self.volume.ledger().is_some() || told.next().is_none())
    }
}
