//! Fuzz target for the metadata of a whole volume on two or three legs, which recovery and
//! promotion read.
//!
//! An input is a script. Each step writes one well-sealed block with fields from the input, or
//! corrupts one, in a slot of a leg's superblock, region table or lost list.

use hemi_engine::format::block::{self, BLOCK_BYTES, Kind};
use hemi_engine::format::lost::{self, LostHeader};
use hemi_engine::format::page::{self, PageHeader};
use hemi_engine::format::superblock::{Ancestor, Ancestry, Name};
use hemi_engine::format::{Block, Id, Layout, LegRecord, Membership, RegionEntry, Superblock};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::{self, LegImage, Opening};
use hemi_units::Extent;

const VOLUME: Id = [7; 16];
const VOLUME_BYTES: u64 = 4 << 20;
const REGION_BYTES: u64 = 64 << 10;

/// Checks that recovery opens the volume in a consistent state or names the problem, whatever is on
/// the legs. The same holds for a promotion of any leg. Its result in turn opens or is refused.
pub(crate) fn recovery(input: &[u8]) {
    let mut script = Script(input);
    let count = 2 + usize::from(script.byte() % 2);
    let layout = Layout::new(VOLUME_BYTES, REGION_BYTES).expect("a plain size");
    let size = usize::try_from(layout.data_offset()).expect("small");
    let mut legs = vec![vec![0u8; size]; count];
    for (leg, bytes) in legs.iter_mut().enumerate() {
        fresh(bytes, leg, count, layout);
    }
    while !script.0.is_empty() {
        step(&mut script, &mut legs, layout);
    }
    let images: Vec<LegImage> = legs.iter().map(|bytes| LegImage { bytes }).collect();
    let names = ["a", "b", "c"];
    match recovery::assess(&images) {
        Ok(opening) => check(&opening, layout),
        Err(refusal) => {
            assert!(!refusal.problems.is_empty());
            assert!(!refusal.describe(&names).is_empty());
        }
    }
    for bytes in &mut legs {
        promote(bytes, &names);
    }
}

fn promote(bytes: &mut [u8], names: &[&str]) {
    let promotion = match recovery::promote(LegImage { bytes }, [0x77; 16]) {
        Ok(promotion) => promotion,
        Err(refusal) => {
            assert!(!refusal.describe(names).is_empty());
            return;
        }
    };
    for (address, block) in &promotion.writes {
        put(bytes, *address, block);
    }
    let layout = promotion.superblock.layout;
    match recovery::assess(&[LegImage { bytes }]) {
        Ok(opening) => {
            assert_eq!(opening.superblock.generation, promotion.superblock.generation);
            check(&opening, layout);
        }
        Err(refusal) => panic!("promoted, yet: {}", refusal.describe(names)),
    }
}

/// Checks the properties that the engine relies on.
fn check(opening: &Opening, layout: Layout) {
    assert_eq!(opening.superblock.layout, layout);
    assert_eq!(opening.table.len(), layout.region_count() as usize);
    assert_eq!(opening.objects.len(), layout.page_count() as usize + 2);
    assert!(opening.table.iter().all(|entry| entry.is_supported()));
    assert!(opening.superblock.legs.iter().any(|record| record.state == Membership::In));
    let decides = |leg: usize| opening.superblock.legs[leg].state == Membership::In;
    for (region, entry) in opening.table.iter().enumerate() {
        let whole = (0..LEGS_MAX).any(|leg| entry.whole() >> leg & 1 == 1 && decides(leg));
        let decided = if entry.is_dirty() { decides(entry.authority().index()) } else { whole };
        assert!(decided, "nobody decides region {region}: {entry:?}");
    }
    let sectors = layout.volume_sectors();
    assert!(opening.lost.windows(2).all(|pair| pair[0].end <= pair[1].start));
    assert!(opening.lost.iter().all(|extent| extent.start < extent.end && extent.end <= sectors));
}

/// Writes a leg of a volume that was just created.
fn fresh(bytes: &mut [u8], leg: usize, count: usize, layout: Layout) {
    let mut block = block::blank();
    superblock(leg, count, layout).encode(&mut block, 0);
    put(bytes, Layout::superblock_address(0), &block);
    let whole = (1u8 << count) - 1;
    let header = PageHeader { page: 0, generation: [1; 16], join_epoch: 0 };
    let address = layout.page_address(0, 0);
    let entry = RegionEntry::new(whole, false, LegIndex(0));
    let entries = vec![entry; layout.region_count() as usize];
    page::encode(&mut block, address, VOLUME, 1, &header, &entries);
    put(bytes, address, &block);
    let header = LostHeader { generation: [1; 16], join_epoch: 0 };
    let address = Layout::lost_address(0);
    lost::encode(&mut block, address, VOLUME, 1, &header, &[], layout.volume_sectors())
        .expect("an empty list");
    put(bytes, address, &block);
}

fn superblock(leg: usize, count: usize, layout: Layout) -> Superblock {
    let mut legs = [LegRecord::default(); LEGS_MAX];
    for (slot, record) in legs.iter_mut().enumerate().take(count) {
        *record = LegRecord { id: [slot as u8 + 1; 16], join_epoch: 0, state: Membership::In };
    }
    Superblock {
        volume_id: VOLUME,
        name: Name::new("vol").expect("a short name"),
        layout,
        block_bytes: 512,
        created: 0,
        leg: LegIndex(leg as u8),
        sequence: 1,
        generation: [1; 16],
        ancestry: Ancestry::default(),
        open: false,
        ledger: None,
        join_epoch: 0,
        legs,
        descriptions: Default::default(),
    }
}

/// Changes one block.
fn step(script: &mut Script, legs: &mut [Vec<u8>], layout: Layout) {
    let count = legs.len();
    let leg = usize::from(script.byte()) % count;
    let (what, slot) = (script.byte(), script.byte() & 1);
    let (kind, volume, address) = match what % 3 {
        0 => (Kind::SUPERBLOCK, Id::default(), Layout::superblock_address(slot)),
        1 => (Kind::PAGE, VOLUME, layout.page_address(0, slot)),
        _ => (Kind::LOST, VOLUME, Layout::lost_address(slot)),
    };
    let bytes = &mut legs[leg];
    let mut block = get(bytes, address);
    match what / 3 % 6 {
        0 => block = block::blank(),
        // Rot: some bytes change, but not the checksum.
        1 => {
            let at = usize::from(script.short()) % BLOCK_BYTES;
            block[at] ^= script.byte() | 1;
        }
        // A torn write: the rest is the other slot's, or was never written.
        2 => {
            let from = 512 * (1 + usize::from(script.byte() % 7));
            let mut newer = block;
            block::seal(&mut newer, kind, address, volume, script.sequence());
            block[..from].copy_from_slice(&newer[..from]);
        }
        // Any bytes, with the right checksum.
        3 => {
            let at = usize::from(script.short()) % BLOCK_BYTES;
            let length = usize::from(script.byte()).min(BLOCK_BYTES - at);
            for byte in &mut block[at..at + length] {
                *byte = script.byte();
            }
            block::seal(&mut block, kind, address, volume, script.sequence());
        }
        _ => match what % 3 {
            0 => {
                let superblock = script.superblock(leg, count, layout);
                // Others are never written. The bytes of step 3 stand for them.
                if superblock.check().is_ok() {
                    superblock.encode(&mut block, slot);
                }
            }
            1 => {
                let header =
                    PageHeader { page: 0, generation: script.id(), join_epoch: script.sequence() };
                let sequence = script.sequence();
                let entries: Vec<_> =
                    (0..layout.region_count()).map(|_| RegionEntry(script.short())).collect();
                page::encode(&mut block, address, volume, sequence, &header, &entries);
            }
            _ => {
                let header = LostHeader { generation: script.id(), join_epoch: script.sequence() };
                let start = u64::from(script.short());
                let extent = Extent { start, end: start + u64::from(script.byte()) };
                let sequence = script.sequence();
                let sectors = layout.volume_sectors();
                // A list that cannot be encoded leaves the block damaged.
                let _ = lost::encode(
                    &mut block,
                    address,
                    volume,
                    sequence,
                    &header,
                    &[extent],
                    sectors,
                );
            }
        },
    }
    put(bytes, address, &block);
}

fn get(bytes: &[u8], address: u64) -> Block {
    let mut block = block::blank();
    let start = usize::try_from(address).expect("small");
    block.copy_from_slice(&bytes[start..start + BLOCK_BYTES]);
    block
}

fn put(bytes: &mut [u8], address: u64, block: &Block) {
    let start = usize::try_from(address).expect("small");
    bytes[start..start + BLOCK_BYTES].copy_from_slice(block);
}

/// The rest of an input, followed by zeros.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns a sequence or an epoch, mostly small, at times at the end of the range.
    fn sequence(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => u64::from(self.short()) << 48,
            small => u64::from(small),
        }
    }

    fn id(&mut self) -> Id {
        [self.byte() % 4 + 1; 16]
    }

    fn membership(&mut self) -> Membership {
        match self.byte() % 8 {
            0 => Membership::Empty,
            1 => Membership::Out(OutReason::Unresponsive),
            2 => Membership::Out(OutReason::Removed),
            3 => Membership::Out(OutReason::WriteErrors),
            4 => Membership::Out(OutReason::Detached),
            5 => Membership::Out(OutReason::Joining),
            _ => Membership::In,
        }
    }

    /// Returns a superblock that this leg could have been given.
    fn superblock(&mut self, leg: usize, count: usize, layout: Layout) -> Superblock {
        let mut made = superblock(leg, count, layout);
        made.sequence = self.sequence();
        made.generation = self.id();
        made.open = self.byte() & 1 == 1;
        made.join_epoch = self.sequence();
        for _ in 0..self.byte() % 4 {
            let ancestor = Ancestor { generation: self.id(), sequence: self.sequence() };
            made.ancestry.push(ancestor, &[]);
        }
        for record in made.legs.iter_mut().take(count) {
            record.state = self.membership();
            let (epoch, filled) = (self.sequence(), record.state != Membership::Empty);
            record.join_epoch = if filled { epoch.min(made.join_epoch) } else { 0 };
            record.id = if filled { record.id } else { Id::default() };
        }
        made
    }
}
