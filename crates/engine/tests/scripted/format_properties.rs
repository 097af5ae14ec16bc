//! Properties that must hold of every block, whatever its contents and whatever happens to it.

use hemi_engine::format::LedgerMark;
use hemi_engine::format::block::{self, BlockState, Kind};
use hemi_engine::format::lost::{self, LOST_EXTENTS_MAX, LostError, LostHeader};
use hemi_engine::format::page::{self, ENTRIES_PER_PAGE, PageError, PageHeader};
use hemi_engine::format::superblock::{ANCESTRY_MAX, Ancestor, Ancestry, Name, NameError};
use hemi_engine::format::{
    Block, Id, Layout, LegDescription, LegRecord, Membership, RegionEntry, Superblock,
    SuperblockError,
};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::OutReason;
use hemi_units::Extent;
use proptest::prelude::*;

const VOLUME: Id = [7; 16];
const GENERATION: Id = [9; 16];
const ADDRESS: u64 = 1 << 20;

fn arbitrary_block() -> impl Strategy<Value = Box<Block>> {
    prop::collection::vec(any::<u8>(), 4096)
        .prop_map(|bytes| Box::new(bytes.try_into().expect("4096 bytes")))
}

fn membership() -> impl Strategy<Value = Membership> {
    prop_oneof![
        Just(Membership::In),
        Just(Membership::Out(OutReason::Unresponsive)),
        Just(Membership::Out(OutReason::Removed)),
        Just(Membership::Out(OutReason::WriteErrors)),
        Just(Membership::Out(OutReason::Detached)),
        Just(Membership::Out(OutReason::Joining)),
    ]
}

fn ancestry() -> impl Strategy<Value = Ancestry> {
    prop::collection::vec((any::<[u8; 15]>(), any::<u64>()), 0..=ANCESTRY_MAX + 3).prop_map(
        |past| {
            let mut ancestry = Ancestry::default();
            for (random, sequence) in past {
                let mut generation = [1; 16];
                generation[1..].copy_from_slice(&random);
                ancestry.push(Ancestor { generation, sequence }, &[]);
            }
            ancestry
        },
    )
}

fn superblock() -> impl Strategy<Value = Superblock> {
    let legs = prop::collection::vec((prop::option::of(membership()), 0u64..=100), 8);
    let ledger = prop::option::of((1..=u64::MAX, 1..=u8::MAX));
    let open = (any::<bool>(), ledger);
    let scalars = (any::<u64>(), 0..block::SEQUENCE_END, open, any::<bool>(), 0u8..8);
    let sizes = (1u64..1 << 36, 16u32..=30);
    let text = || "\\PC{0,40}";
    let description = (text(), text(), text())
        .prop_map(|(path, model, serial)| LegDescription::new(&path, &model, &serial));
    let descriptions = prop::array::uniform8(description);
    ("\\PC{0,16}", legs, scalars, sizes, ancestry(), descriptions).prop_filter_map(
        "sizes without a layout",
        |(
            name,
            records,
            (created, sequence, (open, ledger), large, leg),
            (volume, shift),
            ancestry,
            descriptions,
        )| {
            let layout = Layout::new(volume * 4096, 1 << shift).ok()?;
            let mut legs = [LegRecord::default(); 8];
            for (slot, (state, join_epoch)) in records.into_iter().enumerate() {
                let own = (slot == usize::from(leg)).then_some(Membership::In);
                if let Some(state) = own.or(state) {
                    legs[slot] = LegRecord { id: [slot as u8 + 1; 16], join_epoch, state };
                }
            }
            Some(Superblock {
                volume_id: VOLUME,
                name: Name::new(&name).ok()?,
                layout,
                block_bytes: if large { 4096 } else { 512 },
                created,
                leg: LegIndex(leg),
                sequence,
                generation: GENERATION,
                ancestry,
                open,
                ledger: ledger
                    .filter(|_| open)
                    .map(|(opening, boot)| LedgerMark { opening, boot: [boot; 16] }),
                join_epoch: 100,
                legs,
                descriptions,
            })
        },
    )
}

fn plain_superblock() -> Superblock {
    let mut legs = [LegRecord::default(); 8];
    legs[0] = LegRecord { id: [1; 16], join_epoch: 0, state: Membership::In };
    legs[1] = LegRecord { id: [2; 16], join_epoch: 0, state: Membership::In };
    Superblock {
        volume_id: VOLUME,
        name: Name::default(),
        layout: Layout::new(1 << 30, 1 << 20).expect("a plain size"),
        block_bytes: 512,
        created: 0,
        leg: LegIndex(0),
        sequence: 1,
        generation: GENERATION,
        ancestry: Ancestry::default(),
        open: false,
        ledger: None,
        join_epoch: 0,
        legs,
        descriptions: Default::default(),
    }
}

/// Decodes a sealed superblock with some bytes changed and sealed again: intact, but wrong.
fn forged(offset: usize, bytes: &[u8]) -> Result<Superblock, SuperblockError> {
    let mut block = block::blank();
    plain_superblock().encode(&mut block, 0);
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
    block::seal(&mut block, Kind::SUPERBLOCK, 0, Id::default(), 1);
    Superblock::decode(&block, 0)
}

proptest! {
    #[test]
    fn superblocks_come_back(superblock in superblock(), slot in 0u8..2) {
        let mut block = block::blank();
        superblock.encode(&mut block, slot);
        prop_assert_eq!(Superblock::decode(&block, slot), Ok(superblock));
    }

    #[test]
    fn pages_come_back(
        entries in prop::collection::vec(0u16..1 << 12, 0..=ENTRIES_PER_PAGE),
        page in any::<u32>(), sequence in 1..block::SEQUENCE_END, address in any::<u64>(),
        join_epoch in any::<u64>(), volume in any::<Id>(), generation in any::<Id>(),
    ) {
        let header = PageHeader { page, generation, join_epoch };
        let entries: Vec<_> = entries.into_iter().map(RegionEntry).collect();
        let mut block = [0xEE; 4096];
        page::encode(&mut block, address, volume, sequence, &header, &entries);
        let opened = page::open(&block, page, address, volume).expect("just sealed");
        prop_assert_eq!(opened.sequence(), sequence);
        prop_assert_eq!(opened.header(), header);
        let zeros = std::iter::repeat(RegionEntry::default());
        prop_assert!(opened.entries().eq(entries.into_iter().chain(zeros).take(ENTRIES_PER_PAGE)));
    }

    #[test]
    fn lost_lists_come_back(
        gaps in prop::collection::vec((0u64..1000, 1u64..1000), 0..=LOST_EXTENTS_MAX),
        sequence in 1..block::SEQUENCE_END, slack in 0u64..3,
    ) {
        let mut end = 0;
        let extents: Vec<_> = gaps.into_iter().map(|(gap, sectors)| {
            let extent = Extent::new(end + gap, sectors);
            end = extent.end;
            extent
        }).collect();
        let header = LostHeader { generation: GENERATION, join_epoch: 3 };
        let mut block = [0xEE; 4096];
        lost::encode(&mut block, ADDRESS, VOLUME, sequence, &header, &extents, end + slack)
            .expect("sorted, disjoint, few");
        let list = lost::open(&block, ADDRESS, VOLUME, end + slack).expect("just sealed");
        prop_assert_eq!((list.sequence(), list.header()), (sequence, header));
        prop_assert_eq!(list.is_empty(), extents.is_empty());
        prop_assert!(list.extents().eq(extents.iter().copied()));
        if end > 0 {
            // A smaller volume than the list was written for.
            let error = lost::open(&block, ADDRESS, VOLUME, end - 1).err();
            prop_assert!(matches!(error, Some(LostError::BadExtent { .. })), "{:?}", error);
        }
    }

    #[test]
    fn a_flipped_bit_is_damage(
        mut block in arbitrary_block(), sequence in 1..block::SEQUENCE_END, bit in 0usize..4096 * 8,
    ) {
        block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, sequence);
        block[bit / 8] ^= 1 << (bit % 8);
        let state = block::open(&block, Kind::PAGE, ADDRESS, VOLUME);
        prop_assert_eq!(state, BlockState::Damaged { newest: Some(sequence) });
    }

    #[test]
    fn a_block_that_says_it_was_never_written_is_damage(mut block in arbitrary_block()) {
        block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, 0);
        let state = block::open(&block, Kind::PAGE, ADDRESS, VOLUME);
        prop_assert_eq!(state, BlockState::Damaged { newest: None });
    }

    #[test]
    fn a_mix_of_two_writes_is_torn_or_one_of_them(
        mut old in arbitrary_block(), mut new in arbitrary_block(),
        sequence in 1..block::SEQUENCE_END - 1, landed in any::<u8>(),
    ) {
        block::seal(&mut old, Kind::PAGE, ADDRESS, VOLUME, sequence);
        block::seal(&mut new, Kind::PAGE, ADDRESS, VOLUME, sequence + 1);
        for sector in (0..8).filter(|sector| landed & 1 << sector != 0) {
            let bytes = sector * 512..(sector + 1) * 512;
            old[bytes.clone()].copy_from_slice(&new[bytes]);
        }
        let expected = match landed {
            0 => BlockState::Valid { sequence },
            0xFF => BlockState::Valid { sequence: sequence + 1 },
            _ => BlockState::Torn { newest: sequence + 1 },
        };
        prop_assert_eq!(block::open(&old, Kind::PAGE, ADDRESS, VOLUME), expected);
    }

    #[test]
    fn sectors_do_not_change_places(a in 0usize..8, b in 0usize..8, mut block in arbitrary_block()) {
        prop_assume!(a != b);
        block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, 5);
        let moved: [u8; 512] = block[a * 512..(a + 1) * 512].try_into().expect("a sector");
        block[b * 512..(b + 1) * 512].copy_from_slice(&moved);
        let state = block::open(&block, Kind::PAGE, ADDRESS, VOLUME);
        prop_assert_eq!(state, BlockState::Damaged { newest: Some(5) });
    }

    /// The checksum is no obstacle here: the payload itself is judged.
    #[test]
    fn sealed_nonsense_never_panics(mut block in arbitrary_block(), keep in 0usize..200) {
        let mut genuine = block::blank();
        plain_superblock().encode(&mut genuine, 0);
        block[..keep].copy_from_slice(&genuine[..keep]);
        block::seal(&mut block, Kind::SUPERBLOCK, 0, Id::default(), 1);
        let _ = Superblock::decode(&block, 0);
        block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, 1);
        let _ = page::open(&block, 0, ADDRESS, VOLUME);
        block::seal(&mut block, Kind::LOST, ADDRESS, VOLUME, 1);
        let _ = lost::open(&block, ADDRESS, VOLUME, 1 << 40).map(|list| list.extents().count());
    }

    #[test]
    fn plain_nonsense_is_not_hemi(block in arbitrary_block()) {
        prop_assert_eq!(Superblock::decode(&block, 0), Err(SuperblockError::NotHemi));
        let error = page::open(&block, 0, ADDRESS, VOLUME).err();
        prop_assert_eq!(error, Some(PageError::Damaged { newest: None }));
    }

    #[test]
    fn region_entries_hold_what_they_are_given(whole in any::<u8>(), dirty in any::<bool>(), leg in 0u8..8) {
        let entry = RegionEntry::new(whole, dirty, LegIndex(leg));
        prop_assert_eq!((entry.whole(), entry.is_dirty(), entry.authority()), (whole, dirty, LegIndex(leg)));
        prop_assert!(entry.is_supported());
        for slot in (0..9).map(LegIndex) {
            prop_assert_eq!(entry.is_whole(slot), slot.0 < 8 && whole & slot.bit() != 0);
        }
        prop_assert_eq!(entry.with_whole(!whole).whole(), !whole);
        prop_assert_eq!(entry.with_whole(!whole).with_whole(whole), entry);
        prop_assert_eq!(entry.with_authority(LegIndex(leg)), RegionEntry::new(whole, true, LegIndex(leg)));
        prop_assert_eq!(entry.cleaned(), RegionEntry::new(whole, false, LegIndex(0)));
    }
}

#[test]
fn blank_is_blank_and_one_bit_is_not() {
    let mut block = block::blank();
    assert_eq!(block::open(&block, Kind::PAGE, ADDRESS, VOLUME), BlockState::Blank);
    assert_eq!(Superblock::decode(&block, 0), Err(SuperblockError::Blank));
    block[4000] = 1;
    let damaged = BlockState::Damaged { newest: None };
    assert_eq!(block::open(&block, Kind::PAGE, ADDRESS, VOLUME), damaged);
}

#[test]
fn a_rotted_superblock_is_still_recognised() {
    let mut block = block::blank();
    plain_superblock().encode(&mut block, 0);
    block[0] ^= 1;
    let damaged = SuperblockError::Damaged { newest: Some(1) };
    assert_eq!(Superblock::decode(&block, 0), Err(damaged));
}

/// Every sector of a superblock carries the volume's id, as its checksum does not cover it.
#[test]
fn superblocks_of_two_volumes_do_not_mix() {
    let (mut block, mut other) = (block::blank(), block::blank());
    plain_superblock().encode(&mut block, 0);
    Superblock { volume_id: [8; 16], ..plain_superblock() }.encode(&mut other, 0);
    for sector in [0, 1, 3, 4, 5, 6] {
        let mut mixed = block;
        let bytes = sector * 512..(sector + 1) * 512;
        mixed[bytes.clone()].copy_from_slice(&other[bytes]);
        let damaged = SuperblockError::Damaged { newest: Some(1) };
        assert_eq!(Superblock::decode(&mixed, 0), Err(damaged), "sector {sector}");
    }
}

#[test]
fn wrong_superblock_fields_are_named() {
    let field = |field, value| Err(SuperblockError::Field { field, value });
    let leg = |leg, problem| Err(SuperblockError::Leg { leg, problem });
    assert!(forged(0, b"H").is_ok(), "unchanged");
    assert_eq!(forged(0, b"X"), Err(SuperblockError::NotHemi));
    assert_eq!(forged(24, &[2]), Err(SuperblockError::Version { found: 2 }));
    assert_eq!(forged(33, &[1]), Err(SuperblockError::Features { unknown: 256 }));
    assert_eq!(forged(28, &[1]), field("the block size", 513));
    assert!(matches!(forged(40, &[1]), Err(SuperblockError::Layout(_))));
    assert_eq!(forged(56, &[1]), field("the data offset", (2 << 20) + 1));
    assert_eq!(forged(64, &[0; 16]), field("the generation", 0));
    assert_eq!(forged(96, &[8]), field("the leg's slot", 8));
    assert_eq!(forged(96, &[2]), leg(2, "no leg, though this superblock is that leg's"));
    assert_eq!(forged(97, &[2]), field("the open mark", 2));
    assert_eq!(forged(98, &[65]), field("the number of past generations", 65));
    assert_eq!(forged(98, &[1]), field("a past generation", 0));
    assert_eq!(forged(99, &[65]), Err(NameError::TooLong { bytes: 65 }.into()));
    assert_eq!(forged(99, &[1]), Err(NameError::Control { position: 0 }.into()));
    assert_eq!(forged(99, &[1, 0, 0, 0, 0, 0xFF]), Err(NameError::NotUtf8 { position: 0 }.into()));
    let record = |slot: usize| 512 + 24 + 32 * slot;
    assert_eq!(forged(record(1), &[0; 16]), leg(1, "no id"));
    assert_eq!(forged(record(1), &[1; 16]), leg(0, "the id of another leg"));
    assert_eq!(forged(record(1) + 16, &[1]), leg(1, "a join epoch beyond the volume's"));
    assert_eq!(forged(record(1) + 24, &[0]), leg(1, "an id or epoch but no leg"));
    assert_eq!(forged(record(1) + 24, &[3]), leg(1, "a state that does not exist"));
    assert_eq!(forged(record(1) + 24, &[2, 6]), leg(1, "a state that does not exist"));
}

#[test]
fn wrong_pages_are_named() {
    let header = PageHeader { page: 4, generation: GENERATION, join_epoch: 0 };
    let mut block = block::blank();
    let entries = [RegionEntry(0), RegionEntry(0x1003)];
    page::encode(&mut block, ADDRESS, VOLUME, 1, &header, &entries);
    let error = page::open(&block, 5, ADDRESS, VOLUME).err();
    assert_eq!(error, Some(PageError::WrongPage { expected: 5, found: 4 }));
    let error = page::open(&block, 4, ADDRESS, VOLUME).err();
    assert_eq!(error, Some(PageError::Unsupported { page: 4, index: 1, entry: 0x1003 }));
}

#[test]
fn wrong_lost_lists_are_refused_before_they_are_written() {
    let header = LostHeader { generation: GENERATION, join_epoch: 0 };
    let mut block = block::blank();
    let mut encode =
        |extents: &[Extent]| lost::encode(&mut block, ADDRESS, VOLUME, 1, &header, extents, 1000);
    let bad = |index, start, end| Err(LostError::BadExtent { index, start, end });
    assert_eq!(encode(&[Extent::new(0, 1), Extent::new(1, 999)]), Ok(()));
    assert_eq!(encode(&[Extent::new(5, 0)]), bad(0, 5, 5));
    assert_eq!(encode(&[Extent { start: 5, end: 3 }]), bad(0, 5, 3));
    assert_eq!(encode(&[Extent::new(5, 5), Extent::new(9, 5)]), bad(1, 9, 14));
    assert_eq!(encode(&[Extent::new(999, 2)]), bad(0, 999, 1001));
    let many = vec![Extent::new(0, 1); LOST_EXTENTS_MAX + 1];
    assert_eq!(encode(&many), Err(LostError::TooMany { count: LOST_EXTENTS_MAX + 1 }));
}

#[test]
fn names_are_checked() {
    assert_eq!(Name::new("").map(|name| name.as_str().len()), Ok(0));
    assert_eq!(Name::new(&"ä".repeat(32)).map(|name| name.as_str().len()), Ok(64));
    assert_eq!(Name::new(&"ä".repeat(33)), Err(NameError::TooLong { bytes: 66 }));
    assert_eq!(Name::new("a\x1b[2J"), Err(NameError::Control { position: 1 }));
}

#[test]
fn the_oldest_ancestor_falls_off() {
    let mut ancestry = Ancestry::default();
    for sequence in 1..=ANCESTRY_MAX as u64 + 1 {
        ancestry.push(Ancestor { generation: [sequence as u8; 16], sequence }, &[]);
    }
    assert_eq!(ancestry.as_slice().len(), ANCESTRY_MAX);
    assert_eq!(ancestry.as_slice()[0].sequence, ANCESTRY_MAX as u64 + 1);
    assert_eq!(ancestry.find([1; 16]), None);
    assert_eq!(ancestry.find([2; 16]), Some(Ancestor { generation: [2; 16], sequence: 2 }));
}

/// A counter that goes on from a drive's value must not overflow.
#[test]
fn sequences_at_the_end_of_the_range_are_damage() {
    let mut block = block::blank();
    for (sequence, state) in [
        (block::SEQUENCE_END - 1, BlockState::Valid { sequence: block::SEQUENCE_END - 1 }),
        (block::SEQUENCE_END, BlockState::Damaged { newest: None }),
        (u64::MAX, BlockState::Damaged { newest: None }),
    ] {
        block::seal(&mut block, Kind::PAGE, ADDRESS, VOLUME, sequence);
        assert_eq!(block::open(&block, Kind::PAGE, ADDRESS, VOLUME), state);
    }
}
