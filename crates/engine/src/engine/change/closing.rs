//! Closing: what is owed is paid for as long as the operator wants, then a superblock says that the
//! volume is closed.

use crate::command::CommandError;
use crate::engine::Engine;
use crate::engine::change::life::Closing;
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
        let over = self.clock.now() >= closing.drain_until;
        let hopeless = self.clock.now() >= closing.drain_until + CLOSE_METADATA_TIME;
        if !closing.marked {
            let owes = self.legs.that_are_in().any(|leg| {
                leg.answers()
                    && (!leg.debts.is_empty()
                        || leg.load.writes() > 0
                        || leg.stamps.is_flushing()
                        || self.regions.healing_count(leg.index) > 0)
            });
            let cleanable = self
                .legs
                .that_are_in()
                .any(|leg| leg.answers() && self.regions.authority_count(leg.index) > 0);
            if (owes || cleanable) && !over && !hopeless {
                return;
            }
            self.regions.disarm_all();
            let current = self
                .legs
                .that_are_in()
                .filter(|leg| leg.answers())
                .all(|leg| self.regions.metadata().is_current(leg.index));
            // A leg that is in by the superblock of one leg alone keeps that from opening.
            let changing = !self.changes.is_empty() && !planted::is(Planted::ClosedWhileChanging);
            if (!current || changing) && !hopeless {
                return;
            }
            // Without a ledger the pages decide: they do if all of them are up to date.
            let clean = self.regions.dirty_count() == 0;
            if clean || current && self.volume.ledger().is_some() {
                self.volume.close(clean);
                self.write_superblock(None);
            }
            self.life.close_with(Closing { marked: true, ..closing });
        }
        let object = self.regions.metadata().superblock();
        let newest = self.regions.metadata().newest(object);
        let durable = self
            .legs
            .that_are_in()
            .filter(|leg| leg.answers())
            .all(|leg| self.regions.metadata().durable(object, leg.index) >= newest);
        if durable || hopeless {
            if durable && self.volume.ledger().is_none() {
                self.regions.retire_ledger();
            }
            self.life.end();
            self.outbox.command_done(closing.token, Ok(()));
            self.outbox.closed();
        }
    }
}
