//! Writes a new volume's metadata to its legs.
//!
//! The order makes a volume appear at once or not at all. Old superblocks are erased first,
//! durably, so that they never refer to a table that is gone. The new ones come last, after
//! everything they refer to is durable. The lost list and every page are written to both slots, so
//! from then on a slot is never blank, and a slot that is neither valid nor torn is damaged.

use std::io;

use hemi_engine::format::create::{FIRST_JOIN_EPOCH, NewVolume};
use hemi_engine::format::lost::{self, LostHeader};
use hemi_engine::format::page::{self, PageHeader};
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{
    BLOCK_BYTES, Block, Id, Layout, LegDescription, RegionEntry, Superblock, block,
};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};

use hemi_io::blocking::BlockingLeg;

/// Pages written at once, both slots of each: 1 MiB.
const PAGES_AT_ONCE: u32 = 128;

/// A volume about to be written.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) volume: Id,
    pub(super) generation: Id,
    pub(super) legs: Vec<Id>,
    pub(super) name: Name,
    pub(super) layout: Layout,
    pub(super) block_bytes: u32,
    pub(super) created: u64,
    /// The legs that are whole everywhere, one bit for each slot.
    pub(super) whole: u8,
    /// The legs' devices, by slot.
    pub(super) descriptions: [LegDescription; LEGS_MAX],
}

/// A write or flush that failed.
#[derive(Debug)]
pub(super) struct FormatError {
    /// The leg's slot.
    pub(super) leg: usize,
    pub(super) action: &'static str,
    pub(super) source: io::Error,
}

/// Writes everything to all legs, superblocks last.
pub(super) fn format(plan: &Plan, legs: &[&dyn BlockingLeg]) -> Result<(), FormatError> {
    for_each(legs, "erase the old superblocks of", |_, leg| erase_superblocks(leg))?;
    for_each(legs, "write the region table to", |_, leg| write_table(plan, leg))?;
    for_each(legs, "write the lost list to", |_, leg| write_lost(plan, leg))?;
    for_each(legs, "flush", |_, leg| leg.flush())?;
    // One slot is durable before the other is begun, as always from now on.
    for slot in 0..2 {
        for_each(legs, "write the superblock to", |index, leg| {
            write_superblock(plan, index, leg, slot)
        })?;
        for_each(legs, "flush", |_, leg| leg.flush())?;
    }
    Ok(())
}

fn for_each(
    legs: &[&dyn BlockingLeg],
    action: &'static str,
    mut work: impl FnMut(u8, &dyn BlockingLeg) -> io::Result<()>,
) -> Result<(), FormatError> {
    for (index, leg) in (0u8..).zip(legs) {
        work(index, *leg).map_err(|source| FormatError { leg: index.into(), action, source })?;
    }
    Ok(())
}

fn erase_superblocks(leg: &dyn BlockingLeg) -> io::Result<()> {
    for slot in 0..2 {
        leg.write_at(Layout::superblock_address(slot), &block::blank())?;
    }
    leg.flush()
}

fn write_table(plan: &Plan, leg: &dyn BlockingLeg) -> io::Result<()> {
    let entries = [RegionEntry::new(plan.whole, false, LegIndex(0)); page::ENTRIES_PER_PAGE];
    let pages = plan.layout.page_count();
    let mut bytes = Vec::with_capacity(PAGES_AT_ONCE as usize * 2 * BLOCK_BYTES);
    for start in (0..pages).step_by(PAGES_AT_ONCE as usize) {
        bytes.clear();
        for page in start..pages.min(start + PAGES_AT_ONCE) {
            let header =
                PageHeader { page, generation: plan.generation, join_epoch: FIRST_JOIN_EPOCH };
            let entries = &entries[..plan.layout.page_regions(page).len()];
            for slot in 0..2 {
                let mut block: Block = block::blank();
                let address = plan.layout.page_address(page, slot);
                page::encode(&mut block, address, plan.volume, sequence(slot), &header, entries);
                bytes.extend_from_slice(&block);
            }
        }
        leg.write_at(plan.layout.page_address(start, 0), &bytes)?;
    }
    Ok(())
}

fn write_lost(plan: &Plan, leg: &dyn BlockingLeg) -> io::Result<()> {
    let header = LostHeader { generation: plan.generation, join_epoch: FIRST_JOIN_EPOCH };
    for slot in 0..2 {
        let mut block = block::blank();
        let (address, sectors) = (Layout::lost_address(slot), plan.layout.volume_sectors());
        lost::encode(&mut block, address, plan.volume, sequence(slot), &header, &[], sectors)
            .map_err(io::Error::other)?;
        leg.write_at(address, &block)?;
    }
    Ok(())
}

fn write_superblock(plan: &Plan, index: u8, leg: &dyn BlockingLeg, slot: u8) -> io::Result<()> {
    let volume = NewVolume {
        id: plan.volume,
        generation: plan.generation,
        legs: &plan.legs,
        name: plan.name.clone(),
        layout: plan.layout,
        block_bytes: plan.block_bytes,
        created: plan.created,
    };
    let superblock = Superblock {
        sequence: sequence(slot),
        descriptions: plan.descriptions,
        ..volume.superblock(LegIndex(index))
    };
    let mut block = block::blank();
    superblock.encode(&mut block, slot);
    leg.write_at(Layout::superblock_address(slot), &block)
}

/// Returns the sequence of a slot: slot 0 is written first, slot 1 second and newest.
fn sequence(slot: u8) -> u64 {
    u64::from(slot) + 1
}
