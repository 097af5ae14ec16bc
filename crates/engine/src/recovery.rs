//! Recovery: from the metadata found on the legs to a state the engine can go on from, or a
//! refusal that says what is missing and which command decides.
//!
//! Generations and ancestry are compared first, sequences second. Only legs that are in by
//! the newest superblock have a say about regions. What may hide something that was
//! acknowledged (a damaged slot that could be the newest, an absent leg, two histories) is
//! refused; what was provably never durable (a write cut in two) is ignored.

mod growth;
mod history;
mod ledger;
mod problem;
mod promotion;
mod reader;
mod trace;

pub use growth::{Growth, GrowthError, LegWrite, grow, grown, largest};
pub use ledger::{LedgerState, Outlived};
pub use problem::{PROMOTE, Problem, Refusal};
pub use promotion::{LedgerWord, Promotion, promote, promote_outlived, promote_short_pages};

use alloc::vec;
use alloc::vec::Vec;

use crate::engine::ObjectState;
use crate::format::page::ENTRIES_PER_PAGE;
use crate::format::superblock::SuperblockError;
use crate::format::{BLOCK_BYTES, Block, Layout, Membership, RegionEntry, Superblock};
use crate::identifiers::LegIndex;
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use hemi_units::Extent;
use history::{legs_lacking, membership_problems, newest_history, renamed, superblocks_of};
use reader::Reader;

/// Bytes at the beginning of a leg that hold both superblock slots: read these first.
pub const HEAD_BYTES: u64 = 1 << 20;

/// One leg as found: its bytes from the beginning to the data area.
#[derive(Clone, Copy)]
pub struct LegImage<'a> {
    /// The beginning of the leg, at least [`metadata_bytes`] bytes.
    pub bytes: &'a [u8],
}

/// The state that the engine opens with.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The newest superblock.
    pub superblock: Superblock,
    /// The region table.
    pub table: Vec<RegionEntry>,
    /// Lost extents, sorted and disjoint.
    pub lost: Vec<Extent>,
    /// Per metadata object: pages, the superblock, the lost list.
    pub objects: Vec<ObjectState>,
    /// For each image given: the slot its leg has in the volume.
    pub slots: Vec<LegIndex>,
    /// True if the volume was closed cleanly.
    pub clean: bool,
    /// The legs that missed the close, or are out and were put back to an older state, and owe something
    /// for that, as a mask. What pages say for them does not hold.
    pub doubted: u8,
    /// The ledger's words beside the table, if the table is the ledger's.
    pub ledger: Option<LedgerState>,
    /// The rare paths that recovery took.
    pub marks: Marks,
}

impl Opening {
    /// Returns true if a region with this entry may have been written to since every whole leg had
    /// flushed it. By the pages alone that is any dirty one.
    pub(crate) fn is_touched(&self, region: u32, entry: RegionEntry) -> bool {
        let by_ledger = self.ledger.as_ref().map(|state| state.touched[region as usize]);
        by_ledger.unwrap_or_else(|| entry.is_dirty())
    }
}

/// Returns the bytes from the beginning of a leg that [`assess`] needs, told by its first
/// [`HEAD_BYTES`].
///
/// # Errors
/// Neither slot holds a superblock; the more telling of the two errors.
pub fn metadata_bytes(head: &[u8]) -> Result<u64, SuperblockError> {
    Ok(newest_of(head)?.layout.data_offset())
}

/// The newest valid superblock of one leg, told by its first [`HEAD_BYTES`].
///
/// # Errors
/// As [`metadata_bytes`].
pub fn newest_of(head: &[u8]) -> Result<Superblock, SuperblockError> {
    let both = [0u8, 1].map(|slot| {
        block_at(head, Layout::superblock_address(slot)).map_or_else(
            // Too short to hold the slot: blank only if it holds nothing else either.
            || Err(if is_blank(head) { SuperblockError::Blank } else { SuperblockError::NotHemi }),
            |block| Superblock::decode(block, slot),
        )
    });
    match both {
        [Ok(a), Ok(b)] => Ok(if a.sequence >= b.sequence { a } else { b }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(SuperblockError::Blank), Err(b)] => Err(b),
        [Err(a), Err(SuperblockError::Blank | SuperblockError::NotHemi)] => Err(a),
        [Err(_), Err(b)] => Err(b),
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn block_at(bytes: &[u8], address: u64) -> Option<&Block> {
    let start = usize::try_from(address).ok()?;
    bytes.get(start..start.checked_add(BLOCK_BYTES)?)?.try_into().ok()
}

/// Decides what a set of legs says of its volume, after a restart of the machine or on another
/// one: no ledger counts.
///
/// # Errors
/// Every [`Problem`] found.
pub fn assess(images: &[LegImage]) -> Result<Opening, Refusal> {
    assess_short_pages(images, ENTRIES_PER_PAGE as u32)
}

/// Does what [`assess`] does where a ledger may have outlived the hemi that served the volume.
///
/// # Errors
/// Every [`Problem`] found. A ledger that was relied on during this boot of the machine, and is
/// missing or not valid, is one.
pub fn assess_outlived(images: &[LegImage], outlived: &Outlived) -> Result<Opening, Refusal> {
    assess_outlived_short_pages(images, outlived, ENTRIES_PER_PAGE as u32)
}

/// Does what [`assess`] does for a simulated volume that uses only the first `regions` entries of
/// each page: see [`Layout::with_short_pages`]. Every volume that is kept uses them all.
///
/// # Errors
/// Those of [`assess`].
pub fn assess_short_pages(images: &[LegImage], regions: u32) -> Result<Opening, Refusal> {
    assess_outlived_short_pages(images, &Outlived::default(), regions)
}

/// Does what [`assess_outlived`] does for a volume as [`assess_short_pages`] takes it.
///
/// # Errors
/// Those of [`assess_outlived`].
pub fn assess_outlived_short_pages(
    images: &[LegImage],
    outlived: &Outlived,
    regions: u32,
) -> Result<Opening, Refusal> {
    let refuse = |problems: Vec<Problem>| Err(Refusal { problems });
    if images.is_empty() {
        return refuse(vec![Problem::NoLegs]);
    }
    let superblocks = superblocks_of(images).map_err(|problems| Refusal { problems })?;
    let newest =
        newest_history(&superblocks).map_err(|problem| Refusal { problems: vec![problem] })?;
    let mut superblock = superblocks[newest].clone();
    if let Some(problem) = renamed(&superblocks, newest) {
        return refuse(vec![problem]);
    }
    let problems = membership_problems(images, &superblocks, &superblock);
    if !problems.is_empty() {
        return refuse(problems);
    }
    superblock.layout = superblock.layout.with_short_pages(regions);
    let slots: Vec<LegIndex> = superblocks.iter().map(|s| s.leg).collect();
    let voters: Vec<usize> = (0..images.len())
        .filter(|&i| {
            superblock.legs[slots[i].index()].state == Membership::In
                || planted::is(Planted::OutLegVotes)
        })
        .collect();
    let mut marks = Marks::default();
    let generations = superblocks.iter().any(|own| own.generation != superblock.generation);
    marks.add_if(generations, Mark::RecoveryChoseGeneration);
    let lacking = legs_lacking(&superblock, &superblocks);
    let mut reader =
        Reader { images, slots: &slots, voters: &voters, superblock: &superblock, lacking, marks };
    let mut opening = reader.read()?;
    let older = outlived.legs_older(&superblock, &slots, images);
    if let Err(problem) = outlived.decide(&mut opening, older) {
        return refuse(vec![problem]);
    }
    doubt_who_is_older(&mut opening, lacking | older);
    match undecided(&opening) {
        None => Ok(opening),
        Some(problem) => refuse(vec![problem]),
    }
}

/// Takes from legs that may have been put back to an older state what another leg that is in has as
/// well, by the pages or by the ledger: they owe it.
///
/// A clean close is recorded on every leg that answers. A leg that lacks the record was silent then, or
/// has been put back since, and nothing tells which. After an unclean stop a leg that is in may lack the
/// newest superblock for another reason, and its pages tell what it has; one that is out is judged as
/// after a close. Once the volume is open nothing tells even that, so the doubt goes into the superblock
/// that says so: such a leg begins a new epoch, and no page of before speaks for it any more. Where legs
/// that may be older alone can decide a region, one of them does, and for that one the pages go on
/// speaking until they are rewritten.
fn doubt_who_is_older(opening: &mut Opening, mut older: u8) {
    let voters = voters(&opening.superblock);
    if opening.superblock.open || planted::is(Planted::MissedCloseTrusted) {
        older &= !voters;
    }
    if planted::is(Planted::OutLegPutBack) {
        older &= voters;
    }
    let mut alone = 0;
    let trusted = opening.ledger.is_some() && planted::is(Planted::OlderByPagesOnly);
    let recorded = opening.ledger.as_mut().map_or(&mut [][..], |ledger| &mut ledger.recorded);
    for entry in opening.table.iter_mut().filter(|_| !trusted).chain(recorded) {
        let others = entry.whole() & !older;
        // A leg that is out decides nothing, whole or not.
        let can_decide = if planted::is(Planted::OutLegVouches) { others } else { others & voters };
        let kept = if can_decide == 0 { first(entry.whole() & older & voters) } else { 0 };
        alone |= kept;
        if others | kept != entry.whole() {
            opening.doubted |= entry.whole() & older & !kept;
            *entry = entry.with_whole(others | kept);
            opening.marks.add(Mark::MissedClose);
        }
    }
    let superblock = &mut opening.superblock;
    let begins = opening.doubted & !alone;
    if begins == 0 || planted::is(Planted::DoubtForgotten) {
        return;
    }
    superblock.join_epoch += 1;
    for record in (0..).zip(&mut superblock.legs).filter(|(leg, _)| begins >> leg & 1 == 1) {
        record.1.join_epoch = superblock.join_epoch;
    }
}

/// Returns the first of the legs in a mask. Legs that may have been put back need not be alike.
fn first(legs: u8) -> u8 {
    if planted::is(Planted::OlderLegsAlike) { legs } else { legs & legs.wrapping_neg() }
}

/// Returns the legs that are in, as a mask.
fn voters(superblock: &Superblock) -> u8 {
    let legs = superblock.legs.iter().enumerate();
    legs.fold(0u8, |mask, (leg, record)| mask | u8::from(record.state == Membership::In) << leg)
}

/// Returns the regions that no leg that is in can decide, if there are any.
fn undecided(opening: &Opening) -> Option<Problem> {
    let voters = voters(&opening.superblock);
    let decided = |region: u32, entry: &RegionEntry| {
        let touched = opening.is_touched(region, *entry);
        let by = if touched { entry.authority().bit() } else { entry.whole() };
        by & voters != 0
    };
    let mut regions = (0..).zip(&opening.table).filter(|&(region, entry)| !decided(region, entry));
    let (region, _) = regions.next()?;
    Some(Problem::Undecided { region, count: 1 + regions.count() as u32 })
}
