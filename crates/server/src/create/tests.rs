//! A crash at any moment of a create leaves either no volume or a complete one.

use std::cell::{Cell, RefCell};
use std::io;

use hemi_engine::format::layout::default_region_bytes;
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{BLOCK_BYTES, Id, Layout, Superblock, block};
use hemi_units::SECTOR_BYTES;
use proptest::prelude::*;

use super::format::{Plan, format};
use crate::inspect::{SlotState, inspect_leg};
use hemi_io::blocking::BlockingLeg;
use hemi_io::leg::apart::places_at_end;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Steps until the power is cut, shared by all legs.
#[derive(Debug)]
struct Power(Cell<u32>);

impl Power {
    fn step(&self) -> io::Result<()> {
        match self.0.get().checked_sub(1) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(io::Error::other("the power is gone")),
        }
    }
}

/// A drive with a volatile cache.
#[derive(Debug)]
struct Drive<'a> {
    durable: RefCell<Vec<u8>>,
    cached: RefCell<Vec<(u64, Vec<u8>)>>,
    power: &'a Power,
}

impl<'a> Drive<'a> {
    fn new(content: Vec<u8>, power: &'a Power) -> Drive<'a> {
        Drive { durable: RefCell::new(content), cached: RefCell::default(), power }
    }

    /// Returns the medium after a power cut: of each cached write, any subset of its sectors.
    fn after_power_cut(self, mut random: u64) -> Drive<'a> {
        let mut medium = self.durable.borrow_mut();
        for (offset, bytes) in self.cached.take() {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if random >> 63 == 1 {
                    let at = offset as usize + index * SECTOR;
                    medium[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        drop(medium);
        self
    }
}

impl BlockingLeg for Drive<'_> {
    fn size(&self) -> u64 {
        self.durable.borrow().len() as u64
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        into.copy_from_slice(&self.durable.borrow()[offset..offset + into.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // The write during which power is cut is in the cache as well.
        self.cached.borrow_mut().push((offset, bytes.into()));
        self.power.step()
    }
    fn flush(&self) -> io::Result<()> {
        self.power.step()?;
        for (offset, bytes) in self.cached.take() {
            let offset = offset as usize;
            self.durable.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

fn plan(volume: Id, size: u64) -> Plan {
    Plan {
        volume,
        generation: [volume[0] + 1; 16],
        legs: vec![[1; 16], [2; 16]],
        name: Name::new("test").expect("a short name"),
        layout: Layout::new(size, default_region_bytes(size)).expect("a plain size"),
        block_bytes: 512,
        created: 1_700_000_000,
        whole: 0b11,
        descriptions: Default::default(),
    }
}

/// Formats two drives and cuts the power after `steps` writes and flushes.
fn format_until(
    steps: u32,
    plan: &Plan,
    contents: [Vec<u8>; 2],
    random: u64,
) -> (bool, [Vec<u8>; 2]) {
    let power = Power(Cell::new(steps));
    let drives = contents.map(|content| Drive::new(content, &power));
    let legs: Vec<&dyn BlockingLeg> = drives.iter().map(|drive| drive as _).collect();
    let done = format(plan, &legs).is_ok();
    (done, drives.map(|drive| drive.after_power_cut(random).durable.into_inner()))
}

/// A drive whose data begins at its first byte, with the metadata at its end.
#[derive(Debug)]
struct AtEnd<'a> {
    drive: Drive<'a>,
    data_offset: u64,
}

impl AtEnd<'_> {
    fn places(&self, offset: u64, length: usize) -> Vec<(u64, u64)> {
        places_at_end(self.drive.size(), self.data_offset, offset, length as u64)
    }
}

impl BlockingLeg for AtEnd<'_> {
    fn size(&self) -> u64 {
        self.drive.size()
    }
    fn read_at(&self, offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        for (place, length) in self.places(offset, into.len()) {
            let (part, rest) = into.split_at_mut(length as usize);
            self.drive.read_at(place, part)?;
            into = rest;
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        for (place, length) in self.places(offset, bytes.len()) {
            let (part, rest) = bytes.split_at(length as usize);
            self.drive.write_at(place, part)?;
            bytes = rest;
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.drive.flush()
    }
}

/// Returns the volume on a drive, after a check of everything that its superblock refers to.
fn volume_on(content: Vec<u8>) -> Option<Id> {
    let power = Power(Cell::new(0));
    let drive = Drive::new(content, &power);
    let report = inspect_leg("drive", &drive, &[]);
    report.superblock.as_ref()?;
    let table = report.table.expect("there is a superblock");
    assert_eq!(table.slots.valid, 2 * table.pages, "{table:?}");
    assert!(table.dirty.count() == 0 && table.not_whole.is_empty(), "{table:?}");
    let lost = report.lost.expect("there is a superblock");
    assert!(lost.slots.iter().all(|slot| slot.state == SlotState::Valid), "{lost:?}");
    superblock_of(&drive)
}

/// Writes and flushes of one create on two legs whose table takes one write: two erasures and a flush, the
/// table, two lost lists, a flush, and twice a superblock and a flush.
const STEPS: u32 = 2 * (3 + 1 + 2 + 1 + 4);
const OLD: Id = [0x10; 16];
const NEW: Id = [0x20; 16];

proptest! {
    #[test]
    fn a_crash_leaves_nothing_or_a_volume(
        steps in 0..=STEPS, random in any::<u64>(), over_another in any::<bool>(),
    ) {
        let new = plan(NEW, 64 << 20);
        let blank = vec![0; new.layout.data_offset() as usize];
        let mut contents = [blank.clone(), blank];
        if over_another {
            // An earlier volume has another size, so that the tables overlap.
            let (done, formatted) = format_until(STEPS, &plan(OLD, 96 << 20), contents, 0);
            prop_assert!(done);
            contents = formatted;
        }
        let (done, contents) = format_until(steps, &new, contents, random);
        prop_assert_eq!(done, steps == STEPS);
        for content in contents {
            let found = volume_on(content);
            if done {
                prop_assert_eq!(found, Some(NEW));
            } else {
                prop_assert!(found != Some(OLD) || over_another);
            }
        }
    }
}

proptest! {
    /// An adopted disk keeps its content whenever the power fails, and holds no volume or a complete one.
    #[test]
    fn a_crash_leaves_an_adopted_disk_as_it_was(
        steps in 0..=STEPS, random in any::<u64>(), ragged in 0..3_usize,
    ) {
        let plan = Plan { whole: 1, ..plan(NEW, 1 << 20) };
        let data_offset = plan.layout.data_offset();
        let data: Vec<u8> = (0..1_u32 << 20).map(|byte| (byte % 251) as u8).collect();
        let mut disk = data.clone();
        // The file system has left some bytes after the data.
        disk.resize(data.len() + data_offset as usize, 0x5a);
        disk.resize(disk.len() + ragged * 4096, 0xa5);
        let power = Power(Cell::new(steps));
        let adopted = AtEnd { drive: Drive::new(disk, &power), data_offset };
        let other = Drive::new(vec![0; data_offset as usize], &power);
        let done = format(&plan, &[&adopted, &other]).is_ok();
        prop_assert_eq!(done, steps == STEPS);
        let drive = adopted.drive.after_power_cut(random);
        prop_assert!(drive.durable.borrow().starts_with(&data), "the data was touched");
        let after = AtEnd { drive, data_offset };
        let found = superblock_of(&after);
        if done {
            prop_assert_eq!(found, Some(NEW));
        } else {
            prop_assert!(found.is_none() || found == Some(NEW));
        }
    }
}

/// Returns the volume that a leg's superblock names.
fn superblock_of(leg: &dyn BlockingLeg) -> Option<Id> {
    let mut block = block::blank();
    (0..2).find_map(|slot| {
        leg.read_at(Layout::superblock_address(slot), &mut block).expect("memory can be read");
        Superblock::decode(&block, slot).ok().map(|superblock| superblock.volume_id)
    })
}

#[test]
fn what_is_written_is_what_was_planned() {
    let plan = plan(NEW, 96 << 20);
    let blank = vec![0; plan.layout.data_offset() as usize];
    let (done, contents) = format_until(STEPS, &plan, [blank.clone(), blank], 0);
    assert!(done);
    for (leg, content) in (0u8..).zip(contents) {
        for slot in 0..2u8 {
            let at = Layout::superblock_address(slot) as usize;
            let block = content[at..at + BLOCK_BYTES].try_into().expect("a block");
            let superblock = Superblock::decode(&block, slot).expect("just written");
            assert_eq!(superblock.leg.0, leg);
            assert_eq!(superblock.sequence, u64::from(slot) + 1);
            assert_eq!(superblock.name, plan.name);
            assert_eq!(superblock.layout, plan.layout);
            assert_eq!(superblock.own_record().id, plan.legs[usize::from(leg)]);
            assert!(!superblock.open);
        }
    }
}
