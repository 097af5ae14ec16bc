//! Moves of authority: those that are wanted, and those that no durable page says anything of.
//!
//! A move that cannot go is tried again when what may stand in its way has changed: its region, the
//! flush of a leg, or the legs as a whole. An input tries a bounded number of them and looks at a bounded number of
//! records. What is left over is **due** soon after.

use alloc::vec::Vec;

use super::Regions;
use super::active::Undurable;
use super::bitmap::Bitmap;
use super::metadata::{BlockWrite, ObjectId};
use crate::engine::state::leg::Leg;
use crate::format::page;
use crate::identifiers::LegIndex;
use crate::marks::{Mark, Marks};
use hemi_units::{Instant, SECOND};

/// Moves of authority are in pages that are durable after this, if nobody asks before.
const RECORDED_AFTER: u64 = 5 * SECOND;

/// Sets of records, by slot.
pub(super) struct Moves {
    /// Records whose authority has to move.
    wanted: Bitmap,
    /// Records of those to be tried, since something has changed.
    due: Bitmap,
    /// Records of those where a flush may be all that is missing.
    for_flush: Bitmap,
    /// Records of those where operations waited for the move when it was tried last.
    awaited: Bitmap,
    /// Records of those whose authority lost its cache, or may have.
    suspect: Bitmap,
    /// The slot from which on the next is taken to be tried.
    next: u32,
    /// Moves made since open.
    made: u64,
    /// Records whose authority moved and not durably so yet.
    undurable: Bitmap,
    /// For each page, a number that no undurable move of its regions is below; [`u64::MAX`] if there is none.
    first_undurable: Vec<u64>,
    search: Search,
    /// The walk over undurable moves that asks for their pages.
    asking: Walk,
}

/// A walk over the slots of all records, a part at a time.
#[derive(Clone, Copy, Default)]
struct Walk {
    from: u32,
    /// Slots that are left to be passed.
    left: u32,
}

impl Walk {
    /// Begins to pass all slots, from where the walk is.
    fn begin(&mut self, slots: u32) {
        self.left = slots;
    }

    /// Goes on to the next slot of interest, which `next` finds at or after another. `None` at the end.
    fn step(&mut self, slots: u32, next: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        while self.left > 0 {
            let found = next(self.from);
            let passed = found.map_or(slots, |at| at + 1) - self.from;
            let is_within = passed <= self.left;
            self.left = self.left.saturating_sub(passed);
            self.from = if self.from + passed < slots { self.from + passed } else { 0 };
            if let Some(found) = found.filter(|_| is_within) {
                return Some(found);
            }
        }
        None
    }
}

/// The search for regions that have to move off legs. Each reason has a mask of legs.
#[derive(Clone, Copy, Default)]
struct Search {
    walk: Walk,
    gone: u8,
    frozen: u8,
    undurable: u8,
}

impl Moves {
    pub(super) fn new(records: u32, pages: ObjectId) -> Moves {
        let bitmap = || Bitmap::new(records);
        Moves {
            wanted: bitmap(),
            due: bitmap(),
            for_flush: bitmap(),
            awaited: bitmap(),
            suspect: bitmap(),
            next: 0,
            made: 0,
            undurable: bitmap(),
            first_undurable: alloc::vec![u64::MAX; pages as usize],
            search: Search::default(),
            asking: Walk::default(),
        }
    }

    /// A record is no longer in use.
    pub(super) fn forget(&mut self, record: u32) {
        for set in [
            &mut self.wanted,
            &mut self.due,
            &mut self.for_flush,
            &mut self.awaited,
            &mut self.suspect,
        ] {
            set.remove(record);
        }
    }

    /// Takes the next of a set after the one that was tried last.
    fn after_last(&mut self, set: impl Fn(&Moves) -> &Bitmap) -> Option<u32> {
        let found = set(self).next(self.next).or_else(|| set(self).next(0))?;
        self.next = found + 1;
        Some(found)
    }
}

impl Regions {
    /// Counts the moves of authority since open.
    pub(in crate::engine) fn moves_made(&self) -> u64 {
        self.moves.made
    }

    /// Counts the moves that are wanted.
    pub(in crate::engine) fn moves_wanted(&self) -> u64 {
        self.moves.wanted.count()
    }

    /// Asks for the region's authority to move off a leg that does not answer or failed.
    pub(in crate::engine) fn want_move(&mut self, record: u32) {
        self.moves.wanted.insert(record);
        self.moves.due.insert(record);
        self.note_suspect(record);
    }

    /// Does as [`Regions::want_move`], but a move that is wanted already waits on for what it waits for.
    pub(super) fn want_move_if_new(&mut self, record: u32) {
        if !self.moves.wanted.get(record) {
            self.want_move(record);
        }
    }

    /// Asks for the region's authority to move once, even off a leg that answers.
    pub(in crate::engine) fn force_move(&mut self, record: u32) {
        self.active[record].move_forced = true;
        self.want_move(record);
    }

    /// Notes that a region's authority lost its cache, or may have, or that it has everything again.
    pub(super) fn set_cache_lost(&mut self, record: u32, lost: bool) {
        self.active[record].cache_lost = lost;
        self.note_suspect(record);
    }

    fn note_suspect(&mut self, record: u32) {
        if self.active[record].cache_lost && self.moves.wanted.get(record) {
            self.moves.suspect.insert(record);
        } else {
            self.moves.suspect.remove(record);
        }
    }

    /// Returns the first record at or after a slot whose authority has to move and may have lost something.
    pub(in crate::engine) fn next_suspect(&self, from: u32) -> Option<u32> {
        self.moves.suspect.next(from)
    }

    /// Returns true if no authority may have lost what was acknowledged, but those that have been
    /// replaced, or have everything again and durably.
    pub(in crate::engine) fn no_authority_is_suspect(&self) -> bool {
        self.moves.suspect.count() == 0
    }

    /// Returns regions whose authority has to move, at most `most` of them.
    pub(in crate::engine) fn regions_to_move(&self, most: usize) -> impl Iterator<Item = u32> {
        let mut at = 0;
        let wanted = core::iter::from_fn(move || {
            let record = self.moves.wanted.next(at)?;
            at = record + 1;
            Some(self.active[record].region)
        });
        wanted.take(most)
    }

    /// Has a move tried again, if one is wanted: its region has changed.
    pub(super) fn wake_move(&mut self, record: u32) {
        if self.moves.wanted.get(record) {
            self.moves.due.insert(record);
        }
    }

    /// Has all moves tried again that are wanted.
    pub(in crate::engine) fn wake_moves(&mut self) {
        self.moves.due.insert_all(&self.moves.wanted);
    }

    /// Has those tried again that wait for a flush: a leg has flushed.
    pub(in crate::engine) fn wake_moves_for_flush(&mut self) {
        self.moves.due.insert_all(&self.moves.for_flush);
    }

    /// Counts the moves to be tried.
    pub(in crate::engine) fn moves_due(&self) -> u64 {
        self.moves.due.count()
    }

    /// Takes the next move to be tried.
    pub(in crate::engine) fn next_move(&mut self) -> Option<u32> {
        let record = self.moves.after_last(|moves| &moves.due)?;
        self.moves.due.remove(record);
        Some(record)
    }

    /// Returns the next move that operations wait for.
    pub(in crate::engine) fn next_awaited_move(&mut self) -> Option<u32> {
        self.moves.after_last(|moves| &moves.awaited)
    }

    /// Counts the moves that operations wait for.
    pub(in crate::engine) fn moves_awaited(&self) -> u64 {
        self.moves.awaited.count()
    }

    /// A move was tried and is made, or not needed any more.
    pub(super) fn end_move(&mut self, record: u32) {
        self.moves.forget(record);
        if self.active[record].touched {
            // Where its authority answers again, it may fall silent again.
            let region = self.active[record].region;
            self.unflushed.note_news(self.entry(region).authority());
        }
    }

    /// A move was tried and cannot be made yet.
    pub(super) fn put_off_move(&mut self, record: u32, for_flush: bool) {
        let is_awaited = self.waiters(record).next().is_some();
        let moves = &mut self.moves;
        moves.for_flush.set(record, for_flush);
        moves.awaited.set(record, is_awaited);
    }

    /// Asks for moves off a leg that stopped answering: of regions with somebody waiting when it is
    /// frozen, of all when its session is gone, and its cache maybe with it.
    pub(in crate::engine) fn want_moves_from(&mut self, leg: LegIndex, gone: bool) {
        let search = &mut self.moves.search;
        let mask = if gone { &mut search.gone } else { &mut search.frozen };
        *mask |= leg.bit();
        search.walk.begin(self.active.capacity() as u32);
    }

    /// Asks for moves off a silent leg where data depends on it that only a flush of it would make
    /// durable. Returns true if any does. (Writes newer than the flush in
    /// hand can make it wait longer than need be, never less.)
    pub(in crate::engine) fn move_undurable(&mut self, leg: LegIndex) -> bool {
        if self.unflushed.count(leg) == 0 {
            return false;
        }
        if self.unflushed.take_news(leg) {
            self.moves.search.undurable |= leg.bit();
            self.moves.search.walk.begin(self.active.capacity() as u32);
        }
        true
    }

    /// Looks at more records, at most `most`, for moves that are to be wanted. Returns how many it has
    /// looked at.
    pub(in crate::engine) fn search_moves(
        &mut self,
        most: usize,
        legs: &[Leg],
        marks: &mut Marks,
    ) -> usize {
        let slots = self.active.capacity() as u32;
        let mut looked_at = 0;
        while looked_at < most {
            let mut walk = self.moves.search.walk;
            let found = walk.step(slots, |from| self.active.first_from(from));
            self.moves.search.walk = walk;
            let Some(record) = found else { break };
            looked_at += 1;
            self.consider_wanting(record, legs, marks);
        }
        if self.moves.search.walk.left == 0 {
            self.moves.search = Search { walk: self.moves.search.walk, ..Search::default() };
        }
        looked_at
    }

    fn consider_wanting(&mut self, record: u32, legs: &[Leg], marks: &mut Marks) {
        let active = &self.active[record];
        if !active.touched {
            return;
        }
        let search = self.moves.search;
        let authority = self.entry(active.region).authority();
        let state = &legs[authority.index()];
        let is_among = |mask: u8| mask & authority.bit() != 0;
        let unflushed = active.last_done[authority.index()] > state.stamps.flushed();
        let depends = is_among(search.undurable) && unflushed;
        if depends {
            marks.add(Mark::FlushOffSilentLeg);
            if state.stamps.has_failed() && !active.cache_lost {
                self.note_cache_lost(record, legs);
            }
        }
        let in_use = self.active[record].operations > 0;
        if depends || is_among(search.gone) || is_among(search.frozen) && in_use {
            self.want_move_if_new(record);
        }
    }

    /// Notes that the authority of a region has moved: its page does not say so yet.
    pub(super) fn note_moved(&mut self, record: u32, now: Instant) {
        self.moves.made += 1;
        let number = self.moves.made;
        let active = &mut self.active[record];
        match &mut active.undurable {
            Some(undurable) => (undurable.last, undurable.moved) = (number, now),
            None => {
                let since = now;
                active.undurable =
                    Some(Undurable { first: number, last: number, since, moved: now });
                self.moves.undurable.insert(record);
                let page = self.metadata.page_of(active.region) as usize;
                let first = &mut self.moves.first_undurable[page];
                *first = number.min(*first);
            }
        }
    }

    /// A page is durable on a leg. Where it names that leg, recovery would choose it or one that took
    /// over later: moves up to the page's are durable.
    pub(in crate::engine) fn note_moves_recorded(
        &mut self,
        leg: LegIndex,
        write: &BlockWrite,
        marks: &mut Marks,
    ) {
        if self.moves.undurable.count() == 0 {
            return;
        }
        let regions = self.metadata.layout().page_regions(write.object);
        let mut left = u64::MAX;
        for (place, region) in regions.enumerate() {
            let Some(record) = self.slot(region) else { continue };
            let Some(undurable) = self.active[record].undurable else { continue };
            let entry = page::entry(self.metadata.image(write.image), place);
            let names = entry.is_dirty() && entry.authority() == leg;
            if names && undurable.last <= write.moves || self.is_moved_durably(record) {
                self.forget_moved(record);
                continue;
            }
            if names && undurable.first <= write.moves {
                marks.add(Mark::EarlierMoveDurable);
                let first = write.moves + 1;
                self.active[record].undurable = Some(Undurable { first, ..undurable });
            }
            left = left.min(self.active[record].undurable.map_or(u64::MAX, |moves| moves.first));
        }
        self.moves.first_undurable[write.object as usize] = left;
    }

    fn forget_moved(&mut self, record: u32) {
        self.active[record].undurable = None;
        self.moves.undurable.remove(record);
    }

    /// A region is clean: nobody decides it, and no move of its authority is waited for.
    pub(super) fn note_undecided(&mut self, record: u32) {
        if self.active[record].undurable.is_none() {
            return;
        }
        self.forget_moved(record);
        let page = self.metadata.page_of(self.active[record].region);
        let regions = self.metadata.layout().page_regions(page);
        let records = regions.filter_map(|region| self.slot(region));
        let first = records.filter_map(|other| self.active[other].undurable);
        let first = first.map(|moves| moves.first).min();
        self.moves.first_undurable[page as usize] = first.unwrap_or(u64::MAX);
    }

    fn is_moved_durably(&self, record: u32) -> bool {
        // It was durable when the region was cleaned, and nobody decides now.
        let is_clean = !self.entry(self.active[record].region).is_dirty();
        is_clean || self.is_authority_recorded(record)
    }

    /// Returns true if the moves of authority up to this number are durable, so that recovery would
    /// choose by them or by later ones. Has the pages asked for that are not. Later moves need not be: they
    /// went to legs on which everything was durable that a flush had been asked for.
    pub(in crate::engine) fn moves_are_durable(&mut self, until: u64) -> bool {
        let durable = self.moves.first_undurable.iter().all(|&first| first > until);
        if !durable {
            self.ask_for_moves();
        }
        durable
    }

    /// Has the pages of moves asked for that wait for them.
    pub(in crate::engine) fn ask_for_moves(&mut self) {
        self.moves.asking.begin(self.active.capacity() as u32);
    }

    /// Asks for more pages, of at most `most` moves: those up to a number, which somebody waits for, and
    /// those that have waited for long enough. Returns how many it has looked at.
    pub(in crate::engine) fn ask_for_pages(
        &mut self,
        most: usize,
        until: u64,
        legs: &[Leg],
        now: Instant,
    ) -> usize {
        let wait = if self.has_ledger() { RECORDED_AFTER } else { 0 };
        let slots = self.active.capacity() as u32;
        let mut looked_at = 0;
        while looked_at < most {
            let mut walk = self.moves.asking;
            let found = walk.step(slots, |from| self.moves.undurable.next(from));
            self.moves.asking = walk;
            let Some(record) = found else { break };
            looked_at += 1;
            let Some(moves) = self.active[record].undurable else { continue };
            if moves.first <= until || now.since(moves.since) >= wait {
                // Asks for the page again, or for the next move, if its leg fell silent.
                self.authority_is_durable(record, legs);
            }
        }
        looked_at
    }

    /// Returns true if there are moves to be tried, or records to be looked at for them.
    pub(in crate::engine) fn has_moves_to_look_at(&self) -> bool {
        let walks = [self.moves.search.walk, self.moves.asking];
        self.moves.due.count() > 0 || walks.iter().any(|walk| walk.left > 0)
    }

    /// Checks what is kept of moves against the records. Linear in these.
    ///
    /// # Panics
    /// On a broken invariant, naming the region.
    pub(in crate::engine) fn check_moves(&self, legs: &[Leg]) {
        let mut first_undurable = alloc::vec![u64::MAX; self.moves.first_undurable.len()];
        let mut unflushed = [0; crate::identifiers::LEGS_MAX];
        let records = (0..self.active.capacity() as u32).filter(|&at| self.active.is_used(at));
        for record in records {
            let active = &self.active[record];
            let region = active.region;
            let moves = &self.moves;
            let is_wanted = moves.wanted.get(record);
            let others = [&moves.due, &moves.for_flush, &moves.awaited];
            assert!(
                is_wanted || others.iter().all(|set| !set.get(record)),
                "region {region}: a move that is not wanted waits for something"
            );
            let is_suspect = active.cache_lost && is_wanted;
            assert_eq!(moves.suspect.get(record), is_suspect, "region {region}: suspect");
            let undurable = active.undurable;
            assert_eq!(moves.undurable.get(record), undurable.is_some(), "region {region}: moved");
            if let Some(undurable) = undurable {
                assert!(!self.is_moved_durably(record), "region {region}: its move is durable");
                let first = &mut first_undurable[self.metadata.page_of(region) as usize];
                *first = undurable.first.min(*first);
            }
            if active.touched {
                let leg = self.entry(region).authority().index();
                let is_unflushed = active.last_done[leg] > legs[leg].stamps.flushed();
                unflushed[leg] += u32::from(is_unflushed);
            }
        }
        assert_eq!(first_undurable, self.moves.first_undurable, "first undurable moves of pages");
        for leg in legs {
            assert_eq!(
                self.unflushed.count(leg.index),
                unflushed[leg.index.index()],
                "regions that {:?} decides and has not flushed",
                leg.index
            );
        }
    }
}
