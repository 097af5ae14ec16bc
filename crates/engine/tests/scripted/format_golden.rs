//! Format version 1, byte for byte, forever.
//!
//! The fixtures were written by `fixtures/make-format-v1.py`, which shares no code with hemi. If
//! one of these tests fails, the format has changed. That takes a new version number, and code that
//! still reads these.

use hemi_engine::format::block::{self, BlockState, Kind};
use hemi_engine::format::lost::{self, LostHeader};
use hemi_engine::format::page::{self, PageHeader};
use hemi_engine::format::superblock::{Ancestor, Ancestry, Name};
use hemi_engine::format::{
    Block, Layout, LegDescription, LegRecord, Membership, RegionEntry, Stamp, Superblock,
    SuperblockError,
};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::OutReason;
use hemi_units::Extent;

const SUPERBLOCK: &Block = include_bytes!("../fixtures/format-v1-superblock.bin");
const DESCRIBED: &Block = include_bytes!("../fixtures/format-v1-superblock-described.bin");
const PAGE: &Block = include_bytes!("../fixtures/format-v1-page.bin");
const LOST: &Block = include_bytes!("../fixtures/format-v1-lost.bin");
const STAMP: &Block = include_bytes!("../fixtures/format-v1-stamp.bin");

const VOLUME: [u8; 16] = [
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F,
];
const GENERATION: [u8; 16] = [
    0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4A, 0x4B, 0x4C, 0x4D, 0x4E, 0x4F,
];

fn layout() -> Layout {
    Layout::new(10 << 30, 1 << 20).expect("a plain size")
}

fn superblock() -> Superblock {
    let states = [
        Membership::In,
        Membership::In,
        Membership::Out(OutReason::Unresponsive),
        Membership::Out(OutReason::Removed),
        Membership::Out(OutReason::WriteErrors),
        Membership::Out(OutReason::Detached),
        Membership::Out(OutReason::Joining),
    ];
    let mut legs = [LegRecord::default(); 8];
    for (slot, state) in states.into_iter().enumerate() {
        legs[slot] = LegRecord { id: [0xA0 + slot as u8; 16], join_epoch: slot as u64, state };
    }
    let mut ancestry = Ancestry::default();
    for i in (0..20).rev() {
        ancestry.push(Ancestor { generation: [0xC0 + i; 16], sequence: 900 - u64::from(i) }, &[]);
    }
    Superblock {
        volume_id: VOLUME,
        name: Name::new("Größe").expect("a short name"),
        layout: layout(),
        block_bytes: 4096,
        created: 1_700_000_000,
        leg: LegIndex(1),
        sequence: 1001,
        generation: GENERATION,
        ancestry,
        open: true,
        ledger: None,
        join_epoch: 7,
        legs,
        descriptions: Default::default(),
    }
}

#[test]
fn superblock_bytes() {
    let mut block = block::blank();
    superblock().encode(&mut block, 1);
    assert!(block == *SUPERBLOCK);
    assert_eq!(Superblock::decode(SUPERBLOCK, 1), Ok(superblock()));
}

#[test]
fn descriptions_of_the_legs_are_in_sectors_2_and_7() {
    let mut described = superblock();
    let disk = ("/dev/disk/by-id/ata-ST4000VN008_ZGY1", "ST4000VN008-2DR1", "ZGY1");
    described.descriptions[0] = LegDescription::new(disk.0, disk.1, disk.2);
    let path = format!("/srv/{}.img", "x".repeat(120));
    described.descriptions[1] = LegDescription::new(&path, "", "");
    described.descriptions[4] = LegDescription::new("nbd://storage/db", "", "");
    let mut block = block::blank();
    described.encode(&mut block, 1);
    assert!(block == *DESCRIBED);
    assert_eq!(Superblock::decode(DESCRIBED, 1), Ok(described));
}

#[test]
fn superblock_of_the_other_slot_is_misplaced() {
    let error = Superblock::decode(SUPERBLOCK, 0);
    assert_eq!(error, Err(SuperblockError::Damaged { newest: None }));
}

#[test]
fn page_bytes() {
    let address = layout().page_address(3, 1);
    let header = PageHeader { page: 3, generation: GENERATION, join_epoch: 7 };
    let entry = |i: u16| RegionEntry::new(i as u8, i % 2 == 1, LegIndex((i % 8) as u8));
    let entries: Vec<_> = (0..page::ENTRIES_PER_PAGE as u16).map(entry).collect();
    let mut block = block::blank();
    page::encode(&mut block, address, VOLUME, 0x0102_0304_0506_0708, &header, &entries);
    assert!(block == *PAGE);

    let page = page::open(PAGE, 3, address, VOLUME).expect("the fixture is valid");
    assert_eq!(page.sequence(), 0x0102_0304_0506_0708);
    assert_eq!(page.header(), header);
    assert!(page.entries().eq(entries));
}

#[test]
fn lost_bytes() {
    let address = Layout::lost_address(1);
    let header = LostHeader { generation: GENERATION, join_epoch: 7 };
    let extents: Vec<_> = (0..246).map(|i| Extent::new(100 * i, 1 + i % 99)).collect();
    let sectors = layout().volume_sectors();
    let mut block = block::blank();
    lost::encode(&mut block, address, VOLUME, 5, &header, &extents, sectors).expect("it fits");
    assert!(block == *LOST);

    let list = lost::open(LOST, address, VOLUME, sectors).expect("the fixture is valid");
    assert_eq!((list.sequence(), list.header(), list.len()), (5, header, 246));
    assert!(list.extents().eq(extents));
}

#[test]
fn stamp_bytes() {
    let stamp = Stamp { writer: GENERATION, number: 77 };
    let slot = stamp.slot(13);
    assert_eq!(slot, 11);
    let mut block = block::blank();
    stamp.encode(&mut block, slot, VOLUME);
    assert!(block == *STAMP);
    assert_eq!(Stamp::decode(STAMP, slot, VOLUME), Some(stamp));
    assert_eq!(Stamp::decode(STAMP, slot - 1, VOLUME), None, "it is misplaced");
}

#[test]
fn the_kind_and_volume_are_part_of_the_certificate() {
    let address = layout().page_address(3, 1);
    assert_eq!(
        block::open(PAGE, Kind::PAGE, address, VOLUME),
        BlockState::Valid { sequence: 0x0102_0304_0506_0708 }
    );
    let damaged = BlockState::Damaged { newest: None };
    assert_eq!(block::open(PAGE, Kind::LOST, address, VOLUME), damaged);
    assert_eq!(block::open(PAGE, Kind::PAGE, address, GENERATION), damaged);
    assert_eq!(block::open(PAGE, Kind::PAGE, address - 4096, VOLUME), damaged);
}
