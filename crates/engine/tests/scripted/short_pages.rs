//! Short pages, which simulations use, and the check that no ordinary start accepts such legs.

use hemi_engine::format::Layout;
use hemi_engine::format::create::NewVolume;
use hemi_engine::format::superblock::Name;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{self, LegImage, Outlived, Problem};

const REGIONS: u32 = 8;
const REGIONS_PER_PAGE: u32 = 3;

fn leg() -> Vec<u8> {
    let layout = Layout::new(u64::from(REGIONS) << 16, 1 << 16)
        .expect("a plain size")
        .with_short_pages(REGIONS_PER_PAGE);
    let volume = NewVolume {
        id: [1; 16],
        generation: [2; 16],
        legs: &[[3; 16]],
        name: Name::new("short").expect("a plain name"),
        layout,
        block_bytes: 512,
        created: 0,
    };
    let mut bytes = vec![0; layout.data_offset() as usize];
    volume.blocks(LegIndex(0), |address, block| write(&mut bytes, address, block));
    bytes
}

fn write(bytes: &mut [u8], address: u64, block: &[u8; 4096]) {
    bytes[address as usize..][..4096].copy_from_slice(block);
}

#[test]
fn short_pages_are_read_back_and_promoted() {
    let mut bytes = leg();
    let image = LegImage { bytes: &bytes };
    let opening = recovery::assess_short_pages(&[image], REGIONS_PER_PAGE).expect("it opens");
    assert_eq!(opening.table.len(), REGIONS as usize);
    assert_eq!(opening.objects.len(), 3 + 2, "three pages, the superblock, the lost list");

    let outlived = Outlived::default();
    let promotion = recovery::promote_short_pages(image, [4; 16], &outlived, REGIONS_PER_PAGE);
    let promotion = promotion.expect("it is a member");
    assert!(promotion.lacks.is_empty());
    for (address, block) in &promotion.writes {
        write(&mut bytes, *address, block);
    }
    let image = LegImage { bytes: &bytes };
    let opening = recovery::assess_short_pages(&[image], REGIONS_PER_PAGE).expect("it opens");
    assert_eq!(opening.superblock.generation, [4; 16]);
}

#[test]
fn a_leg_with_short_pages_is_refused_as_an_ordinary_one() {
    let bytes = leg();
    let refusal = recovery::assess(&[LegImage { bytes: &bytes }]).expect_err("it is not one");
    let undecided = REGIONS - REGIONS_PER_PAGE;
    let first = Problem::Undecided { region: REGIONS_PER_PAGE, count: undecided };
    assert_eq!(refusal.problems, [first]);
}
