//! Growth of a closed volume: its writes, its refusals, and the state after a power failure.

use hemi_engine::format::create::{self, NewVolume};
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{BLOCK_BYTES, Block, Layout, RegionEntry, Superblock, block};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{Growth, GrowthError, LegImage, Opening, assess, grow, largest};
use proptest::prelude::*;

const REGION: u64 = 1 << 20;
/// The number of regions in a page.
const PAGE: u64 = 1736;
const IDS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

/// The metadata of a leg.
type Leg = Vec<u8>;

fn created(regions: u64, entry: RegionEntry) -> [Leg; 2] {
    let layout = Layout::new(regions * REGION, REGION).unwrap();
    let volume = NewVolume {
        id: [7; 16],
        generation: [9; 16],
        legs: &IDS,
        name: Name::new("vol").unwrap(),
        layout,
        block_bytes: 512,
        created: 0,
    };
    [0, 1].map(|leg| {
        let mut bytes = vec![0; layout.data_offset() as usize];
        create::blocks(&volume.superblock(LegIndex(leg)), entry, |address, block| {
            write(&mut bytes, address, block);
        });
        bytes
    })
}

fn write(leg: &mut Leg, address: u64, block: &[u8]) {
    leg[address as usize..][..block.len()].copy_from_slice(block);
}

fn opened(legs: &[Leg; 2]) -> Opening {
    let images = [0, 1].map(|leg| LegImage { bytes: &legs[leg] });
    assess(&images).unwrap_or_else(|refusal| panic!("{}", refusal.describe(&["a", "b"])))
}

fn carry_out(growth: &Growth, legs: &mut [Leg; 2]) {
    for one in growth.steps.iter().flatten() {
        write(&mut legs[one.leg.index()], one.address, &one.block[..]);
    }
}

fn refusal(opening: &Opening, bytes: u64) -> GrowthError {
    grow(opening, bytes, 1).err().expect("it cannot grow so")
}

/// Changes a leg's superblock, in both slots.
fn rewrite(leg: &mut Leg, change: impl Fn(&mut Superblock)) {
    for slot in 0..2 {
        let address = Layout::superblock_address(slot);
        let block: &Block = leg[address as usize..][..BLOCK_BYTES].try_into().unwrap();
        let mut superblock = Superblock::decode(block, slot).unwrap();
        change(&mut superblock);
        let mut block = block::blank();
        superblock.encode(&mut block, slot);
        write(leg, address, &block);
    }
}

#[test]
fn new_regions_are_behind_the_old_ones() {
    let old = RegionEntry::new(0b10, false, LegIndex(0));
    let mut legs = created(10, old);
    let bytes = (2 * PAGE + 5) * REGION;
    let growth = grow(&opened(&legs), bytes, 0b01).unwrap();
    carry_out(&growth, &mut legs);
    let opening = opened(&legs);
    assert_eq!(opening.superblock.layout, growth.layout);
    assert_eq!(opening.superblock.layout.volume_bytes(), bytes);
    assert_eq!((opening.clean, opening.doubted), (true, 0));
    assert_eq!(opening.table[..10], [old; 10]);
    let new = RegionEntry::new(0b01, false, LegIndex(0));
    assert_eq!(opening.table[10..], vec![new; (2 * PAGE + 5 - 10) as usize]);
    // It grows a second time, from there.
    let growth = grow(&opening, bytes + 4096, 0b11).unwrap();
    carry_out(&growth, &mut legs);
    assert_eq!(opened(&legs).table.len() as u64, 2 * PAGE + 6);
}

/// Legs differ behind the end of a volume. Where its last region was short, not every leg that was
/// whole stays so.
#[test]
fn a_last_region_that_was_short_stays_whole_where_legs_are_alike() {
    let layout = Layout::new(REGION + 4096, REGION).unwrap();
    for (before, new, after) in [(0b11, 0b11, 0b11), (0b11, 0b10, 0b10), (0b10, 0b01, 0b10)] {
        let old = RegionEntry::new(before, false, LegIndex(0));
        let mut legs = created(2, old);
        for leg in &mut legs {
            rewrite(leg, |superblock| superblock.layout = layout);
        }
        let growth = grow(&opened(&legs), 3 * REGION, new).unwrap();
        carry_out(&growth, &mut legs);
        let whole: Vec<u8> = opened(&legs).table.iter().map(|entry| entry.whole()).collect();
        assert_eq!(whole, [before, after, new]);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let whole = RegionEntry::new(0b11, false, LegIndex(0));
    let legs = created(PAGE, whole);
    let opening = opened(&legs);
    let bytes = PAGE * REGION;
    assert_eq!(refusal(&opening, bytes), GrowthError::NotLarger { bytes, asked: bytes });
    assert!(matches!(refusal(&opening, bytes + 512), GrowthError::Layout(_)));
    // The table has a mebibyte: 128 pages.
    let most = 128 * PAGE * REGION;
    assert_eq!(largest(&opening.superblock.layout), most);
    let asked = most + 4096;
    assert_eq!(refusal(&opening, asked), GrowthError::NoRoom { asked, most });
    assert!(grow(&opening, most, 1).is_ok());

    let one = [LegImage { bytes: &legs[0] }];
    let opening = assess(&one);
    assert!(
        opening.is_err()
            || refusal(&opening.unwrap(), 2 * bytes) == GrowthError::Absent(LegIndex(1))
    );

    let mut open = legs.clone();
    for leg in &mut open {
        rewrite(leg, |superblock| superblock.open = true);
    }
    assert_eq!(refusal(&opened(&open), 2 * bytes), GrowthError::NotClosed);

    let mut missed = legs;
    rewrite(&mut missed[0], |superblock| superblock.sequence += 2);
    assert_eq!(refusal(&opened(&missed), 2 * bytes), GrowthError::Doubted(LegIndex(1)));
}

#[test]
fn the_largest_size_has_the_same_data_offset() {
    for (regions, region) in [(1, 1 << 16), (PAGE * 128, REGION), (262_144, 64 << 20), (3, 1 << 30)]
    {
        let layout = Layout::new(regions * region, region).unwrap();
        let most = largest(&layout);
        assert!(most >= layout.volume_bytes());
        assert_eq!(Layout::new(most, region).unwrap().data_offset(), layout.data_offset());
        if let Ok(larger) = Layout::new(most + 4096, region) {
            assert_ne!(larger.data_offset(), layout.data_offset(), "{regions} of {region}");
        }
    }
}

proptest! {
    /// Power is cut within a step: each of its blocks is written, not written, or written in part.
    #[test]
    fn a_power_cut_leaves_the_old_size_or_the_new_one(
        regions in 1_u64..2 * PAGE,
        more in 1_u64..2 * PAGE,
        step in 0_usize..5,
        fates in proptest::collection::vec(0_usize..=8, 64),
        old_whole in 1_u8..4,
        new_whole in 1_u8..4,
    ) {
        let old = RegionEntry::new(old_whole, false, LegIndex(0));
        let new = RegionEntry::new(new_whole, false, LegIndex(0));
        let mut legs = created(regions, old);
        let growth = grow(&opened(&legs), (regions + more) * REGION, new_whole).unwrap();
        for (index, writes) in growth.steps.iter().enumerate().take(step + 1) {
            for (one, sectors) in writes.iter().zip(fates.iter().cycle()) {
                let sectors = if index < step { 8 } else { *sectors };
                let bytes = &one.block[..sectors * 512];
                write(&mut legs[one.leg.index()], one.address, bytes);
            }
        }
        let opening = opened(&legs);
        let grown = opening.superblock.layout == growth.layout;
        prop_assert!(grown || opening.table.len() as u64 == regions);
        prop_assert!(grown || step < 3);
        prop_assert!(!grown || step >= 2);
        // A leg that does not know the new size is not trusted, unless it is the only whole one.
        let doubted = opening.doubted;
        for (region, entry) in opening.table.iter().enumerate() {
            let before = if (region as u64) < regions { old } else { new };
            let believed = before.whole() & !doubted;
            prop_assert!(entry.whole() == before.whole() || entry.whole() == believed);
            prop_assert!(entry.whole() != 0 && !entry.is_dirty());
        }
        // Where no leg is doubted, growth can go on by itself.
        if doubted == 0 && !grown {
            prop_assert!(grow(&opening, (regions + more) * REGION, new_whole).is_ok());
        }
    }
}
