//! Reads the region table, the superblocks' places and the list of lost extents from the legs
//! that have a say: of each object the newest copy, unless damage may hide a newer one.

use alloc::vec::Vec;

use super::{LegImage, Opening, Problem, Refusal, block_at};
use crate::engine::ObjectState;
use crate::format::superblock::SuperblockError;
use crate::format::{Layout, Membership, RegionEntry, Superblock};
use crate::format::{lost, page};
use crate::identifiers::LegIndex;
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// Reads the tables of the legs that have a say.
pub(super) struct Reader<'a> {
    pub images: &'a [LegImage<'a>],
    pub slots: &'a [LegIndex],
    pub voters: &'a [usize],
    pub superblock: &'a Superblock,
    /// The legs given that lack that superblock, as a mask.
    pub lacking: u8,
    pub marks: Marks,
}

/// One object's candidates.
struct Found<T> {
    best: Option<(u64, T)>,
    state: ObjectState,
    /// Images with a damaged slot, and the highest sequence it is known to have held.
    damaged: Vec<(usize, Option<u64>)>,
    /// The highest sequence in any slot whose write was cut in two; zero for none.
    torn: u64,
}

impl<T> Found<T> {
    /// Notes a write that was cut in two: it may be ignored, but not its sequence.
    fn note_torn(&mut self, newest: u64) {
        self.torn = self.torn.max(newest);
    }

    /// The state to go on with. Nothing may be written under the sequence of a write cut in
    /// two: cut in two as well, it could make one valid block of two halves.
    fn into_state(self) -> ObjectState {
        let mut state = self.state;
        if self.torn > state.sequence {
            state.sequence = self.torn + 1;
        }
        state
    }
}

impl<T> Default for Found<T> {
    fn default() -> Found<T> {
        Found { best: None, state: ObjectState::default(), damaged: Vec::new(), torn: 0 }
    }
}

impl Reader<'_> {
    pub(super) fn read(&mut self) -> Result<Opening, Refusal> {
        let layout = self.superblock.layout;
        let mut problems = Vec::new();
        let mut table = Vec::with_capacity(layout.region_count() as usize);
        let mut objects = Vec::with_capacity(layout.page_count() as usize + 2);
        for page in 0..layout.page_count() {
            match self.read_page(page, &mut table) {
                Ok(state) => objects.push(state),
                Err(found) => problems.extend(found),
            }
        }
        objects.push(self.superblock_state());
        let lost = match self.read_lost() {
            Ok((lost, state)) => {
                objects.push(state);
                lost
            }
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        };
        if !problems.is_empty() {
            return Err(Refusal { problems });
        }
        let clean = !self.superblock.open;
        let superblock = self.superblock.clone();
        let mut marks = core::mem::take(&mut self.marks);
        marks.add_if(!clean, Mark::OpenedUnclean);
        let slots = self.slots.to_vec();
        Ok(Opening {
            superblock,
            table,
            lost,
            objects,
            slots,
            clean,
            doubted: 0,
            ledger: None,
            marks,
        })
    }

    /// Returns true if a damaged slot may hide something newer than the best one found.
    fn may_hide<T>(&self, found: &Found<T>, image: usize, known: Option<u64>) -> bool {
        let best = found.best.as_ref().map_or(0, |(sequence, _)| *sequence);
        if known.is_some_and(|known| known <= best) || planted::is(Planted::DamageIgnored) {
            return false;
        }
        // A clean close brought every leg that has its record up to date: another one without damage
        // has it all.
        let missed = if planted::is(Planted::CloseVouchesForAll) { 0 } else { self.lacking };
        let is_damaged = |image: usize| found.damaged.iter().any(|&(other, _)| other == image);
        let intact = self.voters.iter().any(|&voter| {
            voter != image && missed & self.slots[voter].bit() == 0 && !is_damaged(voter)
        });
        let is_newer = known.is_some() && !planted::is(Planted::NewerDamageIgnored);
        self.superblock.open || !intact || is_newer
    }

    fn read_page(
        &mut self,
        page: u32,
        table: &mut Vec<RegionEntry>,
    ) -> Result<ObjectState, Vec<Problem>> {
        let layout = self.superblock.layout;
        let mut found: Found<page::Page> = Found::default();
        let mut problems = Vec::new();
        for &image in self.voters {
            for slot in 0..2u8 {
                let address = layout.page_address(page, slot);
                let Some(block) = block_at(self.images[image].bytes, address) else { continue };
                match page::open(block, page, address, self.superblock.volume_id) {
                    Ok(opened) => {
                        self.take(&mut found, image, slot, opened.sequence(), opened);
                    }
                    Err(page::PageError::Damaged { newest }) => {
                        found.damaged.push((image, newest));
                    }
                    Err(page::PageError::Torn { newest }) => found.note_torn(newest),
                    Err(page::PageError::Blank) => {}
                    Err(error) => problems.push(Problem::PageUnsupported { image, error }),
                }
            }
        }
        let regions = layout.page_regions(page);
        for &(image, known) in &found.damaged {
            if self.may_hide(&found, image, known) {
                let (first_region, end_region) = (regions.start, regions.end);
                problems.push(Problem::PageDamaged { image, page, first_region, end_region });
            } else {
                self.marks.add(Mark::DamageIgnored);
            }
        }
        let Some((_, best)) = &found.best else {
            problems.push(Problem::PageLost { page });
            return Err(problems);
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let known = self.known_legs(best.header().join_epoch);
        let mut old = false;
        let entries = best.entries().take(regions.len());
        table.extend(entries.map(|entry| {
            old |= entry.whole() & !known != 0;
            entry.with_whole(entry.whole() & known)
        }));
        self.marks.add_if(old, Mark::OldBitsIgnored);
        let sequences = self.voters.iter().map(|&v| found.state.durable[self.slots[v].index()]);
        let differ = sequences.clone().min() != sequences.max();
        self.marks.add_if(differ, Mark::RecoveryChose);
        self.marks.add_if(found.torn > 0, Mark::TornIgnored);
        Ok(found.into_state())
    }

    /// The legs a page written in `join_epoch` can speak of.
    fn known_legs(&self, join_epoch: u64) -> u8 {
        self.superblock.legs.iter().enumerate().fold(0, |mask, (leg, record)| {
            let known = record.state != Membership::Empty && record.join_epoch <= join_epoch;
            if known { mask | 1 << leg } else { mask }
        })
    }

    fn take<T>(&self, found: &mut Found<T>, image: usize, slot: u8, sequence: u64, value: T) {
        let leg = self.slots[image].index();
        if sequence > found.state.durable[leg] {
            found.state.durable[leg] = sequence;
            found.state.slot[leg] = slot;
        }
        let newer = |best: u64| sequence > best && !planted::is(Planted::OldSlotChosen);
        if found.best.as_ref().is_none_or(|(best, _)| newer(*best)) {
            found.best = Some((sequence, value));
        }
        found.state.sequence = found.state.sequence.max(sequence);
    }

    fn superblock_state(&self) -> ObjectState {
        let mut state = ObjectState { sequence: self.superblock.sequence, ..Default::default() };
        for (image, leg) in self.images.iter().zip(self.slots) {
            for slot in 0..2u8 {
                let block = block_at(image.bytes, Layout::superblock_address(slot));
                let own = match block.map(|block| Superblock::decode(block, slot)) {
                    Some(Ok(own)) => own,
                    Some(Err(
                        SuperblockError::Torn { newest }
                        | SuperblockError::Damaged { newest: Some(newest) },
                    )) => {
                        // The engine changes it at once, and so goes past this.
                        state.sequence = state.sequence.max(newest);
                        continue;
                    }
                    _ => continue,
                };
                if own.sequence > state.durable[leg.index()] {
                    state.durable[leg.index()] = own.sequence;
                    state.slot[leg.index()] = slot;
                }
                state.sequence = state.sequence.max(own.sequence);
            }
        }
        state
    }

    fn read_lost(&mut self) -> Result<(Vec<Extent>, ObjectState), Problem> {
        let volume_sectors = self.superblock.layout.volume_sectors();
        let mut found: Found<lost::LostList> = Found::default();
        for &image in self.voters {
            for slot in 0..2u8 {
                let address = Layout::lost_address(slot);
                let Some(block) = block_at(self.images[image].bytes, address) else { continue };
                match lost::open(block, address, self.superblock.volume_id, volume_sectors) {
                    Ok(list) => self.take(&mut found, image, slot, list.sequence(), list),
                    Err(lost::LostError::Torn { newest }) => found.note_torn(newest),
                    Err(lost::LostError::Blank) => {}
                    Err(lost::LostError::Damaged { newest }) => {
                        found.damaged.push((image, newest));
                    }
                    Err(_) => {
                        found.damaged.push((image, None));
                    }
                }
            }
        }
        self.marks.add_if(found.torn > 0, Mark::TornIgnored);
        let hidden = found.damaged.iter().any(|&(i, known)| self.may_hide(&found, i, known));
        match &found.best {
            Some((_, best)) if !hidden => Ok((best.extents().collect(), found.into_state())),
            _ => Err(Problem::LostListDamaged),
        }
    }
}
