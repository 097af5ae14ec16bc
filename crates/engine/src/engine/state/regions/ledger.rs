//! The ledger beside the pages: a region's entry is stored there whenever it changes, and whatever is
//! done because of that comes after. So an authority that the ledger names may acknowledge what is
//! not to be durable before its page is.
//!
//! The pages follow: where a flush or a change of legs depends on one, at once, and otherwise within
//! seconds.

use super::Regions;
use super::active::Active;
use super::deciding::Candidates;
use super::metadata::{BlockWrite, ObjectId};
use crate::format::stamp::Progress;
use crate::format::{Id, Ledger, LedgerMark};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use crate::recovery::Opening;

/// The record that the next start of the volume goes by, in this boot of the machine. In any other boot it goes
/// by the pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordInForce {
    Pages,
    Ledger,
}

impl Regions {
    /// Returns true if a ledger is kept.
    pub(in crate::engine) fn has_ledger(&self) -> bool {
        self.ledger.is_some()
    }

    /// Returns true if the next start goes by the ledger, unless the machine is restarted before.
    pub(in crate::engine) fn goes_by_ledger(&self) -> bool {
        self.in_force == RecordInForce::Ledger
    }

    /// Takes over a ledger, complete before any superblock names the new opening.
    pub(super) fn begin_ledger(&mut self, ledger: Option<Ledger>, opening: &Opening) {
        self.ledger = ledger;
        let Some(ledger) = &mut self.ledger else { return };
        if let Some(found) = &opening.ledger {
            // It may have been the next one, in superblocks by now.
            ledger.store_opening(found.opening);
            self.in_force = RecordInForce::Ledger;
        }
        for (leg, record) in (0..LEGS_MAX as u8).map(LegIndex).zip(&opening.superblock.legs) {
            ledger.store_epoch(leg, record.join_epoch);
            if planted::is(Planted::FoundDurableUnknown) {
                continue;
            }
            for (object, state) in (0..).zip(&opening.objects) {
                ledger.store_durable(object, leg, state.durable[leg.index()]);
            }
        }
        for region in 0..self.count() {
            self.enter_in_ledger(region);
        }
    }

    /// Announces an opening. Returns what superblocks say of it; `None` without a ledger.
    pub(in crate::engine) fn announce_opening(&mut self, id: Id) -> Option<LedgerMark> {
        let ledger = self.kept_ledger()?;
        let half = id[..8].try_into().expect("an id has sixteen bytes");
        let opening = u64::from_le_bytes(half).max(1);
        ledger.store_next(opening);
        Some(LedgerMark { opening, boot: ledger.boot() })
    }

    /// Goes by the ledger from now on, if there is one: all superblocks name the opening that was announced.
    pub(in crate::engine) fn confirm_opening(&mut self, mark: Option<LedgerMark>) {
        if let (Some(ledger), Some(mark)) = (self.kept_ledger(), mark) {
            ledger.store_opening(mark.opening);
            self.in_force = RecordInForce::Ledger;
        }
    }

    /// Goes by the pages alone from now on: a superblock that relies on no ledger is asked for next.
    pub(in crate::engine) fn leave_to_pages(&mut self) {
        if !planted::is(Planted::ClosedByLedger) {
            self.in_force = RecordInForce::Pages;
        }
    }

    /// Removes the ledger: the next start finds a superblock that relies on none.
    ///
    /// # Panics
    /// If the next start goes by it.
    pub(in crate::engine) fn retire_ledger(&mut self) {
        assert!(!self.goes_by_ledger(), "a ledger that the next start goes by is not removed");
        if let Some(mut ledger) = self.ledger.take() {
            ledger.retire();
        }
    }

    /// Leaves the ledger as it is from now on: the engine has halted, and what it still concludes from the
    /// input at hand is not to be found by the next start.
    pub(in crate::engine) fn leave_ledger(&mut self) {
        self.ledger_is_left = true;
    }

    /// Returns the ledger, to store in; `None` without one, or if it is to stay as it is.
    fn kept_ledger(&mut self) -> Option<&mut Ledger> {
        let is_left = self.ledger_is_left && !planted::is(Planted::HaltEntersOn);
        self.ledger.as_mut().filter(|_| !is_left)
    }

    /// Stores the state of a region as it is now.
    pub(super) fn enter_in_ledger(&mut self, region: u32) {
        let (entry, touched) = (self.entry(region), self.is_touched(region));
        if let Some(ledger) = self.kept_ledger() {
            ledger.store(region, entry, touched);
        }
    }

    /// Notes that the bits of a slot are from now on those of the leg that joined in this epoch.
    pub(super) fn note_epoch(&mut self, leg: LegIndex, epoch: u64) {
        if let Some(ledger) = self.kept_ledger() {
            ledger.store_epoch(leg, epoch);
            ledger.store_progress(leg, &Progress::default());
        }
    }

    /// Notes how far a remote leg has come.
    pub(in crate::engine) fn note_progress(&mut self, leg: LegIndex, progress: &Progress) {
        if let Some(ledger) = self.kept_ledger() {
            ledger.store_progress(leg, progress);
        }
    }

    /// Nothing is known to be durable on a leg.
    pub(super) fn forget_durable(&mut self, leg: LegIndex) {
        let objects = self.metadata.lost_list() + 1;
        if let Some(ledger) = self.kept_ledger() {
            (0..objects).for_each(|object| ledger.store_durable(object, leg, 0));
        }
    }

    /// Returns the next metadata block to write to a leg, as [`super::metadata::Metadata::next_write`].
    pub(in crate::engine) fn next_metadata_write(
        &mut self,
        leg: LegIndex,
        withheld: Option<ObjectId>,
        marks: &mut Marks,
    ) -> Option<BlockWrite> {
        let write = self.metadata.next_write(leg, withheld, marks)?;
        Some(BlockWrite { moves: self.moves_made(), ..write })
    }

    /// A metadata write ended.
    pub(in crate::engine) fn complete_metadata(
        &mut self,
        leg: LegIndex,
        write: &BlockWrite,
        succeeded: bool,
    ) {
        self.metadata.complete(leg, write, succeeded);
        let durable = self.metadata.durable(write.object, leg);
        if let Some(ledger) = self.kept_ledger() {
            ledger.store_durable(write.object, leg, durable);
        }
    }

    /// Notes which pages do not say what the ledger does: they are to be written.
    pub(super) fn note_what_pages_lack(&mut self, opening: &Opening) {
        let Some(state) = &opening.ledger else { return };
        for region in 0..self.count() {
            if state.recorded[region as usize] != self.entry(region) {
                self.metadata.change(self.metadata.page_of(region));
            }
        }
    }

    /// Arms a region that the ledger says is armed, or cleans it if there is no room.
    pub(super) fn adopt_armed(&mut self, region: u32) {
        let entry = self.entry(region);
        let page = self.metadata.page_of(region);
        if self.armed.has_room() {
            let newest = self.metadata.newest(page);
            self.armed.note_sequence(page, entry.authority(), newest);
            self.armed.insert(region, true);
        } else {
            self.table[region as usize] = entry.cleaned();
            self.metadata.change(page);
        }
    }

    /// Returns true if writes may be sent to a touched region. Asks for the page that says it is
    /// dirty if none does durably. By the ledger, which voter's page says so does not matter: where authority
    /// moved because that page was late, the other leg's may be later still.
    pub(in crate::engine) fn intent_is_durable(
        &mut self,
        record: u32,
        among: &Candidates,
        marks: &mut Marks,
    ) -> bool {
        if self.goes_by_ledger() && self.active[record].is_recorded {
            return true;
        }
        let durable = if self.goes_by_ledger() && self.is_dirty_by_some_page(record, among) {
            marks.add_if(!self.is_authority_recorded(record), Mark::IntentOnAnotherLeg);
            true
        } else {
            self.authority_is_durable(record, among.legs)
        };
        self.active[record].is_recorded |= durable;
        durable
    }

    /// Returns true if the page of some voter says durably that a region is dirty.
    fn is_dirty_by_some_page(&self, record: u32, among: &Candidates) -> bool {
        let Active { region, dirty_sequence, .. } = self.active[record];
        let page = self.metadata.page_of(region);
        among.voters().any(|leg| self.metadata.durable(page, leg.index) >= dirty_sequence)
    }
}
