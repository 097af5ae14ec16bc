//! Promotion: one leg is made to decide alone, and what it knows it lacks is said to be lost.
//!
//! Its pages may not know where it is behind: a region is touched under another leg, or taken over
//! by one, without a write to this leg's pages. A ledger that is valid for the leg names these
//! regions.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::ledger::Outlived;
use super::{LegImage, Problem, Refusal, block_at, newest_of};
use crate::format::ledger::LedgerError;
use crate::format::superblock::{Ancestor, SuperblockError};
use crate::format::{BLOCK_BYTES, Block, Id, Layout, Membership, RegionEntry, Superblock};
use crate::format::{lost, page};
use crate::identifiers::LegIndex;
use crate::io::OutReason;
use crate::planted::{self, Planted};
use hemi_units::Extent;

/// The consequences of promoting a leg, and the blocks that do it.
pub struct Promotion {
    /// The superblock it will have.
    pub superblock: Superblock,
    /// Extents that the leg's own metadata knows it lacks, but for those the ledger calls complete: lost
    /// from now on, EIO until rewritten.
    pub lacks: Vec<Extent>,
    /// Regions beside these in which it may lack the newest writes, sorted and joined: another leg
    /// decided them, or by the ledger this one is behind.
    pub uncertain: Vec<Extent>,
    /// Number of these regions.
    pub uncertain_regions: u32,
    /// Use that was made of the ledger.
    pub ledger: LedgerWord,
    /// Blocks to write, in this order, each made durable before the next: byte address and
    /// content. The superblock comes last.
    pub writes: Vec<(u64, Box<Block>)>,
}

/// Tells whether a promotion has gone by the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerWord {
    /// The leg relied on none.
    NoneReliedOn,
    /// It relied on one of an earlier boot of the machine, which ended then.
    OfAnotherBoot,
    /// It relied on one, which was read.
    Read,
    /// It relied on one, which is missing (`None`) or not valid for this leg: what only that could
    /// tell is not known.
    Unknown(Option<LedgerError>),
}

/// Makes one leg decide alone: every other leg is out, with its bits forgotten, and what this
/// leg knows it lacks is lost. A new generation begins, so that the others can only come back
/// as legs that drain from it.
///
/// `generation` is random.
///
/// # Errors
/// The leg has no valid superblock, or is itself not a member.
pub fn promote(image: LegImage, generation: Id) -> Result<Promotion, Refusal> {
    promote_outlived(image, generation, &Outlived::default())
}

/// Does what [`promote`] does where a ledger may have outlived the hemi that served the volume. One
/// that is missing or not valid is no reason to refuse: see [`Promotion::ledger`].
///
/// # Errors
/// Those of [`promote`].
pub fn promote_outlived(
    image: LegImage,
    generation: Id,
    outlived: &Outlived,
) -> Result<Promotion, Refusal> {
    promote_short_pages(image, generation, outlived, page::ENTRIES_PER_PAGE as u32)
}

/// Does what [`promote_outlived`] does for a simulated volume that uses only the first `regions` entries of
/// each page: see [`Layout::with_short_pages`]. Every volume that is kept uses them all.
///
/// # Errors
/// Those of [`promote`].
pub fn promote_short_pages(
    image: LegImage,
    generation: Id,
    outlived: &Outlived,
    regions: u32,
) -> Result<Promotion, Refusal> {
    let refuse = |problem| Err(Refusal { problems: vec![problem] });
    let old = match newest_of(image.bytes) {
        Ok(old) => Superblock { layout: old.layout.with_short_pages(regions), ..old },
        Err(error) => return refuse(Problem::NotALeg { image: 0, error }),
    };
    let layout = old.layout;
    let found = image.bytes.len() as u64;
    if found < layout.data_offset() {
        let needed = layout.data_offset();
        return refuse(Problem::Truncated { image: 0, needed, found });
    }
    let mut superblock = old.clone();
    let past = Ancestor { generation: old.generation, sequence: old.sequence };
    superblock.ancestry.push(past, &[]);
    superblock.generation = generation;
    superblock.open = false;
    superblock.ledger = None;
    superblock.join_epoch += 1;
    for (leg, record) in superblock.legs.iter_mut().enumerate() {
        if leg == old.leg.index() {
            record.state = Membership::In;
        } else if record.state != Membership::Empty {
            record.join_epoch = superblock.join_epoch;
            if record.state != Membership::Out(OutReason::Detached) {
                record.state = Membership::Out(OutReason::Removed);
            }
        }
    }
    let (ledger, by_ledger) = ask_ledger(image, &old, outlived);
    let mut promotion = Promotion {
        superblock,
        lacks: Vec::new(),
        uncertain: Vec::new(),
        uncertain_regions: 0,
        ledger,
        writes: Vec::new(),
    };
    // Until its table says so the leg decides nothing, so that a promotion cut short can
    // only be run again: lacks first, the table next, membership last.
    let highest = sequences_of_superblock(image).max(old.sequence);
    let newest_slot = slot_of_newest(image);
    let mut undecided = promotion.superblock.clone();
    undecided.legs[old.leg.index()].state = Membership::Out(OutReason::Removed);
    // So that it can be run again with the ledger.
    (undecided.open, undecided.ledger) = (old.open, old.ledger);
    promotion.write_superblock(&undecided, highest + 1, 1 - newest_slot);
    promotion.write_superblock(&undecided, highest + 2, newest_slot);
    let pages = promote_table(image, &old, by_ledger.as_deref(), &mut promotion);
    promote_lost(image, &old, &mut promotion);
    promotion.writes.extend(pages);
    let decided = promotion.superblock.clone();
    promotion.write_superblock(&decided, highest + 3, 1 - newest_slot);
    promotion.write_superblock(&decided, highest + 4, newest_slot);
    promotion.superblock.sequence = highest + 4;
    Ok(promotion)
}

impl Promotion {
    fn write_superblock(&mut self, superblock: &Superblock, sequence: u64, slot: u8) {
        let mut block = Box::new([0; BLOCK_BYTES]);
        Superblock { sequence, ..superblock.clone() }.encode(&mut block, slot);
        self.writes.push((Layout::superblock_address(slot), block));
    }
}

/// Returns what becomes of the ledger's word, and that word: every region's entry, and whether it is
/// touched.
fn ask_ledger(
    image: LegImage,
    old: &Superblock,
    outlived: &Outlived,
) -> (LedgerWord, Option<Vec<(RegionEntry, bool)>>) {
    let Some(mark) = old.ledger else { return (LedgerWord::NoneReliedOn, None) };
    if mark.boot != outlived.boot {
        return (LedgerWord::OfAnotherBoot, None);
    }
    let older = outlived.legs_older(old, &[old.leg], &[image]) != 0;
    match outlived.regions(old, mark, older.then_some(old.leg)) {
        Ok(regions) => (LedgerWord::Read, Some(regions)),
        Err(error) => (LedgerWord::Unknown(error), None),
    }
}

/// Knowledge of a region on the leg that is promoted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has everything.
    Holds,
    /// It may lack the newest writes.
    Uncertain,
    /// It lacks something.
    Lacks,
}

/// Judges a region by its entry in the leg's page, and by the ledger if that tells.
///
/// The ledger says where the leg is complete, and never that it lacks something: a leg that has caught
/// up, and flushed, becomes whole later. What it holds then may be all that is left of a flush of
/// several copies, and is not given up. One that is still joining has been relied on by no flush, and
/// where it is not recorded whole it may hold what was on the drive before.
fn known_of(
    leg: LegIndex,
    joining: bool,
    page: Option<RegionEntry>,
    ledger: Option<(RegionEntry, bool)>,
) -> Known {
    let by_page = match page {
        Some(entry) if joining && !entry.is_whole(leg) => Known::Lacks,
        Some(entry) if entry.is_dirty() && entry.authority() != leg => Known::Uncertain,
        Some(entry) if entry.is_dirty() || entry.is_whole(leg) => Known::Holds,
        _ => Known::Lacks,
    };
    let is_complete = |(entry, touched): (RegionEntry, bool)| match touched {
        true => entry.authority() == leg,
        false => entry.is_whole(leg),
    };
    match ledger.map(is_complete) {
        None => by_page,
        Some(true) => Known::Holds,
        Some(false) if by_page == Known::Lacks => Known::Lacks,
        Some(false) => Known::Uncertain,
    }
}

fn slot_of_newest(image: LegImage) -> u8 {
    let sequence = |slot: u8| {
        block_at(image.bytes, Layout::superblock_address(slot))
            .and_then(|block| Superblock::decode(block, slot).ok())
            .map_or(0, |superblock| superblock.sequence)
    };
    u8::from(sequence(1) > sequence(0))
}

fn sequences_of_superblock(image: LegImage) -> u64 {
    (0..2u8)
        .filter_map(|slot| {
            let block = block_at(image.bytes, Layout::superblock_address(slot))?;
            match Superblock::decode(block, slot) {
                Ok(superblock) => Some(superblock.sequence),
                Err(SuperblockError::Damaged { newest }) => newest,
                Err(SuperblockError::Torn { newest }) => Some(newest),
                Err(_) => None,
            }
        })
        .max()
        .unwrap_or(0)
}

fn promote_table(
    image: LegImage,
    old: &Superblock,
    by_ledger: Option<&[(RegionEntry, bool)]>,
    promotion: &mut Promotion,
) -> Vec<(u64, Box<Block>)> {
    let mut writes = Vec::new();
    let layout = old.layout;
    let leg = old.leg;
    let joining = old.own_record().state == Membership::Out(OutReason::Joining)
        && !planted::is(Planted::JoiningHolds);
    for page in 0..layout.page_count() {
        let mut best: Option<page::Page> = None;
        let mut highest = 0;
        for slot in 0..2u8 {
            let address = layout.page_address(page, slot);
            let Some(block) = block_at(image.bytes, address) else { continue };
            match page::open(block, page, address, old.volume_id) {
                Ok(opened) => {
                    highest = highest.max(opened.sequence());
                    if best.is_none_or(|b| opened.sequence() > b.sequence()) {
                        best = Some(opened);
                    }
                }
                Err(page::PageError::Damaged { newest: Some(known) }) => {
                    highest = highest.max(known);
                }
                Err(page::PageError::Torn { newest }) if !planted::is(Planted::TornPageReused) => {
                    highest = highest.max(newest);
                }
                Err(_) => {}
            }
        }
        let regions = layout.page_regions(page);
        let mut entries = Vec::with_capacity(regions.len());
        let mut old_entries = best.as_ref().map(|b| b.entries());
        let own_epoch = old.own_record().join_epoch;
        let speaks = best.is_some_and(|b| b.header().join_epoch >= own_epoch);
        for region in regions {
            let entry = old_entries.as_mut().and_then(|e| e.next()).filter(|_| speaks);
            let by_ledger = by_ledger.map(|regions| regions[region as usize]);
            let extent = layout.region_extent(region);
            match known_of(leg, joining, entry, by_ledger) {
                Known::Holds => {}
                Known::Uncertain => {
                    promotion.uncertain_regions += 1;
                    push_joined(&mut promotion.uncertain, extent);
                }
                Known::Lacks => push_joined(&mut promotion.lacks, extent),
            }
            entries.push(RegionEntry::new(leg.bit(), false, LegIndex(0)));
        }
        let header = page::PageHeader {
            page,
            generation: promotion.superblock.generation,
            join_epoch: promotion.superblock.join_epoch,
        };
        for (step, slot) in [(1u64, 0u8), (2, 1)] {
            let address = layout.page_address(page, slot);
            let mut block = Box::new([0; BLOCK_BYTES]);
            page::encode(&mut block, address, old.volume_id, highest + step, &header, &entries);
            writes.push((address, block));
        }
    }
    writes
}

fn push_joined(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end == extent.start => last.end = extent.end,
        _ => extents.push(extent),
    }
}

/// Adds what the leg lacks to what was lost already.
fn promote_lost(image: LegImage, old: &Superblock, promotion: &mut Promotion) {
    let volume_sectors = old.layout.volume_sectors();
    let mut highest = 0;
    let mut known: Option<(u64, Vec<Extent>)> = None;
    for slot in 0..2u8 {
        let address = Layout::lost_address(slot);
        let Some(block) = block_at(image.bytes, address) else { continue };
        match lost::open(block, address, old.volume_id, volume_sectors) {
            Ok(list) => {
                highest = highest.max(list.sequence());
                if known.as_ref().is_none_or(|(sequence, _)| list.sequence() > *sequence) {
                    known = Some((list.sequence(), list.extents().collect()));
                }
            }
            Err(
                lost::LostError::Damaged { newest: Some(n) } | lost::LostError::Torn { newest: n },
            ) => {
                highest = highest.max(n);
            }
            Err(_) => {}
        }
    }
    let mut all = promotion.lacks.clone();
    all.extend(known.map(|(_, extents)| extents).unwrap_or_default());
    let merged = merge_bounded(all);
    let header = lost::LostHeader {
        generation: promotion.superblock.generation,
        join_epoch: promotion.superblock.join_epoch,
    };
    for (step, slot) in [(1u64, 0u8), (2, 1)] {
        let address = Layout::lost_address(slot);
        let mut block = Box::new([0; BLOCK_BYTES]);
        lost::encode(
            &mut block,
            address,
            old.volume_id,
            highest + step,
            &header,
            &merged,
            volume_sectors,
        )
        .expect("the list is sorted, disjoint and bounded just above");
        promotion.writes.push((address, block));
    }
    promotion.lacks = merged;
}

/// Sorts and joins extents; when they are too many for a block the nearest become one.
fn merge_bounded(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if extent.start <= last.end => last.end = last.end.max(extent.end),
            _ => merged.push(extent),
        }
    }
    while merged.len() > lost::LOST_EXTENTS_MAX {
        let nearest =
            (0..merged.len() - 1).min_by_key(|&i| merged[i + 1].start - merged[i].end).unwrap_or(0);
        merged[nearest].end = merged[nearest + 1].end;
        merged.remove(nearest + 1);
    }
    merged
}
