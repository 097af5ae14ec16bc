//! The ledger at a start: whether it counts, and what it says beyond the pages.
//!
//! It counts if the newest superblock relies on one, the machine has not been restarted since, and
//! the ledger is that of the superblock's opening, with every word sound and no leg older than the
//! ledger knows it. After a restart of the machine the pages decide: all that a flush was
//! answered for is on the legs they name. Nothing in between is guessed.

use alloc::vec::Vec;

use super::trace::traced;
use super::{LegImage, Opening, Problem};
use crate::format::ledger::{FoundLedger, LedgerError};
use crate::format::{Id, LedgerMark, Membership, RegionEntry, Stamp, Superblock};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::Mark;
use crate::planted::{self, Planted};

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
    /// Takes the region table from the ledger, if that decides. Takes the legs that are `older` than it
    /// knows, as a mask.
    pub(super) fn decide(&self, opening: &mut Opening, older: u8) -> Result<(), Problem> {
        let Some(mark) = self.relied_on(&opening.superblock) else {
            return Ok(());
        };
        // One that is out has no say.
        let legs = &opening.superblock.legs;
        let is_in = |leg: &LegIndex| legs[leg.index()].state == Membership::In;
        let older = slots().filter(is_in).find(|leg| older & leg.bit() != 0);
        match self.regions(&opening.superblock, mark, older) {
            Ok(regions) => {
                opening.marks.add(Mark::OpenedByLedger);
                opening.ledger = Some(LedgerState {
                    touched: regions.iter().map(|(_, touched)| *touched).collect(),
                    recorded: core::mem::take(&mut opening.table),
                    opening: mark.opening,
                });
                opening.table = regions.into_iter().map(|(entry, _)| entry).collect();
                Ok(())
            }
            Err(_) if self.accept_loss => {
                opening.marks.add(Mark::LedgerForgone);
                Ok(())
            }
            Err(error) => Err(Problem::Ledger { error }),
        }
    }

    /// Returns the superblock's mark of the ledger that counts, if one does.
    fn relied_on(&self, superblock: &Superblock) -> Option<LedgerMark> {
        superblock.ledger.filter(|mark| mark.boot == self.boot)
    }

    /// Returns the legs given that are older than the ledger knows them, as a mask: put back to an
    /// earlier state. None without a ledger that counts.
    pub(super) fn legs_older(
        &self,
        superblock: &Superblock,
        given: &[LegIndex],
        images: &[LegImage<'_>],
    ) -> u8 {
        let found = self.relied_on(superblock).map(|mark| self.found(superblock, mark));
        let Some(Ok(found)) = found else { return 0 };
        if planted::is(Planted::OlderLegTrusted) {
            return 0;
        }
        let objects = superblock.layout.page_count() + 2;
        let older = given.iter().zip(images).filter(|&(&leg, &image)| {
            let below = |object| traced(image, superblock, object) < found.durable(object, leg);
            let newest = Stamp::newest_of(image.bytes, superblock.volume_id);
            (0..objects).any(below) || !found.progress(leg).is_kept_by(newest)
        });
        older.fold(0, |mask, (leg, _)| mask | leg.bit())
    }

    /// Returns the ledger, if it is this superblock's.
    fn found(
        &self,
        superblock: &Superblock,
        mark: LedgerMark,
    ) -> Result<FoundLedger<'_>, Option<LedgerError>> {
        let bytes = self.ledger.ok_or(None)?;
        let found = FoundLedger::read(bytes, &superblock.layout, superblock.volume_id, self.boot)
            .map_err(Some)?;
        let is_its = mark.opening == found.opening() || mark.opening == found.next();
        if is_its { Ok(found) } else { Err(Some(LedgerError::Older)) }
    }

    /// Returns every region's entry by the ledger, and whether it is touched, if the ledger is valid
    /// for this superblock and no leg that has to be as it knows it is `older`.
    pub(super) fn regions(
        &self,
        superblock: &Superblock,
        mark: LedgerMark,
        older: Option<LegIndex>,
    ) -> Result<Vec<(RegionEntry, bool)>, Option<LedgerError>> {
        let found = self.found(superblock, mark)?;
        if let Some(leg) = older {
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
