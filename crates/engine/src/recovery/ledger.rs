//! The ledger at a start: whether it counts, and what it says beyond the pages.
//!
//! It counts if the newest superblock relies on one, the machine has not been restarted since, and
//! the ledger is that of the superblock's opening, with every word sound and no leg older than the
//! ledger knows it. After a restart of the machine the pages decide: all that a flush was
//! answered for is on the legs they name. Nothing in between is guessed.

use alloc::vec::Vec;

use super::{LegImage, Opening, Problem};
use crate::format::ledger::{FoundLedger, LedgerError};
use crate::format::{Id, Membership, RegionEntry, Stamp, Superblock};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::Mark;

/// Holds what has outlived the hemi that served the volume before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlived<'a> {
    /// This boot of the machine; zeros if it cannot be known, as for legs on another machine.
    pub boot: Id,
    /// The bytes of the ledger, if there is one.
    pub ledger: Option<&'a [u8]>,
    /// The operator accepts to lose what the ledger alone could tell: by the pages, then.
    pub accept_loss: bool,
}

/// Tells what the ledger says beside the region table, which is the ledger's, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerState {
    /// True for each region that may have been written to since every whole leg had flushed it.
    pub touched: Vec<bool>,
    /// Each region's entry by the pages.
    pub recorded: Vec<RegionEntry>,
    /// The opening by the newest superblock.
    pub opening: u64,
}

impl Outlived<'_> {
    /// Takes the region table from the ledger, if that decides.
    pub(super) fn decide(
        &self,
        opening: &mut Opening,
        images: &[LegImage<'_>],
    ) -> Result<(), Problem> {
        let Some(mark) = opening.superblock.ledger.filter(|mark| mark.boot == self.boot) else {
            return Ok(());
        };
        match self.valid(opening, images, mark.opening) {
            Ok((table, state)) => {
                opening.marks.add(Mark::OpenedByLedger);
                opening.table = table;
                opening.ledger = Some(state);
                Ok(())
            }
            Err(_) if self.accept_loss => {
                opening.marks.add(Mark::LedgerForgone);
                Ok(())
            }
            Err(error) => Err(Problem::Ledger { error }),
        }
    }

    fn valid(
        &self,
        opening: &Opening,
        images: &[LegImage<'_>],
        named: u64,
    ) -> Result<(Vec<RegionEntry>, LedgerState), Option<LedgerError>> {
        let volume = opening.superblock.volume_id;
        let legs = &opening.superblock.legs;
        let is_in = |leg: LegIndex| legs[leg.index()].state == Membership::In;
        let regions = self.regions(&opening.superblock, named, |found| {
            let older = |leg: &LegIndex| {
                let below = |(object, state): (u32, &super::ObjectState)| {
                    state.traced[leg.index()] < found.durable(object, *leg)
                };
                let went_back = |(slot, image): (&LegIndex, &LegImage<'_>)| {
                    let newest = || Stamp::newest_of(image.bytes, volume);
                    slot == leg && !found.progress(*leg).is_kept_by(newest())
                };
                (0..).zip(&opening.objects).any(below)
                    || opening.slots.iter().zip(images).any(went_back)
            };
            slots().filter(|leg| is_in(*leg)).find(older)
        })?;
        let state = LedgerState {
            touched: regions.iter().map(|(_, touched)| *touched).collect(),
            recorded: opening.table.clone(),
            opening: named,
        };
        Ok((regions.into_iter().map(|(entry, _)| entry).collect(), state))
    }

    /// Returns every region's entry by the ledger, and whether it is touched, if the ledger is valid
    /// for this superblock, which names the opening `named`. `older` finds a leg that is older than
    /// the ledger knows it.
    pub(super) fn regions(
        &self,
        superblock: &Superblock,
        named: u64,
        older: impl FnOnce(&FoundLedger<'_>) -> Option<LegIndex>,
    ) -> Result<Vec<(RegionEntry, bool)>, Option<LedgerError>> {
        let bytes = self.ledger.ok_or(None)?;
        let found = FoundLedger::read(bytes, &superblock.layout, superblock.volume_id, self.boot)
            .map_err(Some)?;
        if named != found.opening() && named != found.next() {
            return Err(Some(LedgerError::Older));
        }
        if let Some(leg) = older(&found) {
            return Err(Some(LedgerError::LegOlder { leg: leg.0 }));
        }
        let known = slots().fold(0u8, |mask, leg| {
            let record = &superblock.legs[leg.index()];
            let same = record.state != Membership::Empty && record.join_epoch == found.epoch(leg);
            mask | if same { leg.bit() } else { 0 }
        });
        let mut regions = found.regions().map_err(Some)?;
        for (entry, _) in &mut regions {
            *entry = entry.with_whole(entry.whole() & known);
        }
        Ok(regions)
    }
}

fn slots() -> impl Iterator<Item = LegIndex> {
    (0..LEGS_MAX as u8).map(LegIndex)
}
