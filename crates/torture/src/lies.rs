//! Metadata writes that report success but are not where they should be, and the starts that
//! follow. The disk also keeps the metadata as it should be. A start is judged by comparing it with
//! a start from that:
//!
//! - it **survives** if both find the same: another leg that is in has the record, or the damaged
//!   record is known to be older than the one that decides;
//! - it may be **refused** if it names damage on a leg that has some;
//! - it cannot **notice** the loss of a record that no leg that is in was left with, if the older
//!   one in its place is valid: the format keeps a block's sequence nowhere else. Then what that
//!   record decides may be older, and nothing else: the regions of a page, the lost extents. A
//!   superblock decides which legs have a say, and so everything. It may also be refused for what
//!   follows.
//!
//! Any other outcome is a broken promise (P7), also where a record was lost that left damage.
//!
//! After the last two outcomes the operator restores the right metadata from a copy. After the
//! first, hemi goes on from the metadata as found, and the lost record counts no more: a record of
//! the same sequence may be written again with other contents.

use hemi_engine::format::ledger::LedgerError;
use hemi_engine::format::{Layout, LegRecord, Membership, RegionEntry, Superblock, lost, page};
use hemi_engine::recovery::{self, LegImage, Opening, Problem, Refusal};
use hemi_world::disk::Disk;

use crate::faults::Kind;
use crate::starts::describe;
use crate::world::World;
use hemi_random::Rng;

/// The fate of the next metadata write of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lie {
    pub(crate) kind: Kind,
    /// It lands on another block.
    pub(crate) elsewhere: bool,
}

/// Returns the address of a random metadata block other than the one at `address`.
pub(crate) fn another(disk: &Disk, address: u64, random: &mut Rng) -> u64 {
    let others: Vec<u64> = disk
        .metadata_blocks()
        .iter()
        .map(|block| u64::from(*block) * 4096)
        .filter(|other| *other != address)
        .collect();
    // Every leg is made with both slots of everything.
    others[random.below(others.len() as u64) as usize]
}

/// The fate of the newest record of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A leg has it.
    Kept,
    /// No leg has it, and older ones are in its place everywhere.
    Gone,
    /// No leg has it. Damage is in its place wherever it was.
    Damaged,
}

/// Returns the fate of each object's newest record: pages, the superblock, the lost list. It is
/// read from the bytes, because recovery itself is under test.
fn fates(actual: &[&[u8]], meant: &[&[u8]], superblock: &Superblock) -> Vec<Fate> {
    let (layout, volume) = (superblock.layout, superblock.volume_id);
    let fate = |read: &dyn Fn(&[u8], u8) -> Option<u64>| {
        let places = || (0..meant.len()).flat_map(|image| [0, 1].map(|slot| (image, slot)));
        let newest = places().filter_map(|(image, slot)| read(meant[image], slot)).max();
        if places().any(|(image, slot)| read(actual[image], slot) >= newest) {
            return Fate::Kept;
        }
        let mut had = places().filter(|&(image, slot)| read(meant[image], slot) == newest);
        let is_damaged = had.all(|(image, slot)| read(actual[image], slot).is_none());
        if is_damaged { Fate::Damaged } else { Fate::Gone }
    };
    let block = |image: &[u8], address: u64| -> [u8; 4096] {
        let start = address as usize;
        image[start..start + 4096].try_into().expect("metadata is whole blocks")
    };
    let mut found: Vec<Fate> = (0..layout.page_count())
        .map(|number| {
            fate(&|image, slot| {
                let address = layout.page_address(number, slot);
                let bytes = block(image, address);
                page::open(&bytes, number, address, volume).ok().map(|page| page.sequence())
            })
        })
        .collect();
    found.push(fate(&|image, slot| {
        let bytes = block(image, Layout::superblock_address(slot));
        Superblock::decode(&bytes, slot).ok().map(|found| found.sequence)
    }));
    found.push(fate(&|image, slot| {
        let address = Layout::lost_address(slot);
        let bytes = block(image, address);
        let sectors = layout.volume_sectors();
        lost::open(&bytes, address, volume, sectors).ok().map(|list| list.sequence())
    }));
    found
}

impl World {
    /// Judges the next start if metadata writes were lost or misdirected.
    pub(crate) fn judge_lies(&mut self) {
        if self.violation.is_some() || self.disks.iter().all(|disk| disk.meant().is_none()) {
            return;
        }
        let actual: Vec<&[u8]> = self.disks.iter().map(|disk| &disk.metadata[..]).collect();
        let meant: Vec<&[u8]> =
            self.disks.iter().map(|disk| disk.meant().unwrap_or(&disk.metadata)).collect();
        let assess = |images: &[&[u8]]| {
            let images: Vec<LegImage> = images.iter().map(|bytes| LegImage { bytes }).collect();
            self.assess_images(&images)
        };
        let Ok(honest) = assess(&meant) else {
            return self.broken("P7", "does not open from what was recorded".into());
        };
        let votes = |leg: &usize| {
            let slot = honest.slots[*leg].index();
            honest.superblock.legs[slot].state == Membership::In
        };
        let voters = |images: &[_]| -> Vec<_> {
            (0..images.len()).filter(votes).map(|leg| images[leg]).collect()
        };
        let fates = fates(&voters(&actual), &voters(&meant), &honest.superblock);
        let forgotten = without_superblock(&actual, &meant);
        match assess(&actual) {
            Ok(found) if is_same(&found, &honest, forgotten, &[]) => {
                self.tell(|| "what was lost or misdirected changes nothing".into());
                self.counts.lies_survived += 1;
                self.disks.iter_mut().for_each(Disk::forget_lost_records);
            }
            Err(refusal) if self.names_lies(&refusal) => {
                self.note_refusal(&refusal);
                self.counts.lies_refused += 1;
                self.end_lies();
            }
            Ok(found) if is_same(&found, &honest, forgotten, &fates) => {
                self.tell(|| "no leg has what was lost: nobody can notice".into());
                self.counts.lies_unnoticed += 1;
                self.end_lies();
            }
            Ok(_) => self.broken(
                "P7",
                "opens as it was, though a leg has what came then, or damage in its place".into(),
            ),
            Err(_) if fates.contains(&Fate::Gone) => {
                self.counts.lies_unnoticed += 1;
                self.end_lies();
            }
            Err(refusal) => {
                let text = describe(0..self.legs.len() as u8, &refusal);
                self.broken("P7", format!("refused for what no leg is without: {text}"));
            }
        }
    }

    /// Restores the metadata, as the operator does who finds it in a copy.
    fn end_lies(&mut self) {
        self.disks.iter_mut().for_each(Disk::end_lies);
    }

    /// Returns true if a refusal names damage, and only on legs that have some.
    fn names_lies(&self, refusal: &Refusal) -> bool {
        refusal.problems.iter().all(|problem| match problem {
            Problem::PageDamaged { image, .. }
            | Problem::SuperblockDamaged { image, .. }
            | Problem::NotALeg { image, .. } => self.disks[*image].meant().is_some(),
            Problem::PageLost { .. } | Problem::LostListDamaged => true,
            Problem::Ledger { error: Some(LedgerError::LegOlder { leg }) } => {
                self.disks[usize::from(*leg)].meant().is_some()
            }
            _ => false,
        })
    }
}

/// Returns the legs whose newest superblock was lost, as a mask.
fn without_superblock(actual: &[&[u8]], meant: &[&[u8]]) -> u8 {
    let newest = |image: &[u8]| recovery::newest_of(image).ok();
    let lost = actual.iter().zip(meant).filter(|(actual, meant)| newest(actual) != newest(meant));
    let legs = lost.filter_map(|(_, meant)| newest(meant));
    legs.fold(0, |mask, own| mask | own.leg.bit())
}

/// Returns true if a start has the same result as another, but for what records decide that are
/// gone. It may know fewer legs as whole: a leg that lacks the record of a clean close, or that it is
/// out, is doubted, and begins a new epoch. It may know none of a dirty region, which the authority
/// decides. If all legs that are whole by the other start have `forgotten` that record, one leg may
/// decide alone.
fn is_same(one: &Opening, other: &Opening, forgotten: u8, fates: &[Fate]) -> bool {
    let layout = other.superblock.layout;
    let pages = layout.page_count() as usize;
    let is_gone = |object: usize| fates.get(object) == Some(&Fate::Gone);
    if is_gone(pages) {
        return true;
    }
    let agrees = |(region, (one, other)): (usize, (&RegionEntry, &RegionEntry))| {
        let decided = one.whole() != 0 || one.is_dirty();
        let fewer = decided && one.whole() & !other.whole() == 0
            || one.whole().is_power_of_two() && other.whole() & !forgotten == 0;
        one == other
            || (one.with_whole(other.whole()) == *other && fewer)
            || is_gone(layout.page_of(region as u32) as usize)
    };
    let is_same_leg = |(one, other): (&LegRecord, &LegRecord)| {
        let newer = one.join_epoch >= other.join_epoch;
        newer && LegRecord { join_epoch: other.join_epoch, ..*one } == *other
    };
    one.table.iter().zip(&other.table).enumerate().all(agrees)
        && one.superblock.legs.iter().zip(&other.superblock.legs).all(is_same_leg)
        && (one.lost == other.lost || is_gone(pages + 1))
        && one.clean == other.clean
        && one.superblock.generation == other.superblock.generation
}

#[cfg(test)]
mod tests {
    use super::*;
    use hemi_engine::format::block;
    use hemi_engine::identifiers::LegIndex;
    use hemi_units::Extent;

    /// Returns the metadata of two legs, of two regions in a page each.
    fn two_legs() -> Vec<Vec<u8>> {
        let layout = Layout::new(1 << 17, 1 << 16).expect("a volume of two regions");
        let of_leg = |leg| {
            let mut disk = Disk::default();
            hemi_world::create::format(&mut disk, layout.with_short_pages(1), 2, leg, 1);
            disk.metadata
        };
        vec![of_leg(0), of_leg(1)]
    }

    fn opened(images: &[Vec<u8>]) -> Opening {
        let images: Vec<LegImage> = images.iter().map(|bytes| LegImage { bytes }).collect();
        recovery::assess_short_pages(&images, 1).expect("both legs are there")
    }

    fn slices(images: &[Vec<u8>]) -> Vec<&[u8]> {
        images.iter().map(Vec::as_slice).collect()
    }

    fn fates_of(actual: &[Vec<u8>], meant: &[Vec<u8>]) -> Vec<Fate> {
        fates(&slices(actual), &slices(meant), &opened(meant).superblock)
    }

    /// Writes a record of page 0 that says that region 0 is whole on leg 0 alone. Returns its address.
    fn record(images: &mut [Vec<u8>], legs: &[usize]) -> usize {
        let Superblock { layout, volume_id, generation, .. } = opened(images).superblock;
        let entry = opened(images).table[0].with_whole(1);
        let address = layout.page_address(0, 1);
        let mut block = block::blank();
        let header = page::PageHeader { page: 0, generation, join_epoch: 1 << 20 };
        page::encode(&mut block, address, volume_id, 100, &header, &[entry]);
        for &leg in legs {
            images[leg][address as usize..][..4096].copy_from_slice(&block[..]);
        }
        address as usize
    }

    #[test]
    fn a_record_that_no_leg_has_may_be_missed_and_nothing_else() {
        let before = two_legs();
        let mut meant = before.clone();
        record(&mut meant, &[0]);
        let (found, honest) = (opened(&before), opened(&meant));
        let fates = fates_of(&before, &meant);
        assert_eq!(fates, [Fate::Gone, Fate::Kept, Fate::Kept, Fate::Kept]);
        assert!(!is_same(&found, &honest, 0, &[]) && is_same(&found, &honest, 0, &fates));
        let other_page = honest.table[1].with_authority(LegIndex(1));
        let others = [
            Opening { table: vec![found.table[0], other_page], ..opened(&before) },
            Opening { lost: vec![Extent::new(0, 8)], ..opened(&before) },
            Opening { clean: !found.clean, ..opened(&before) },
        ];
        assert!(others.iter().all(|other| !is_same(other, &honest, 0, &fates)));
    }

    #[test]
    fn a_record_that_a_leg_has_or_that_left_damage_is_noticed() {
        let before = two_legs();
        let mut meant = before.clone();
        let address = record(&mut meant, &[0, 1]);
        let mut actual = meant.clone();
        actual[0].clone_from(&before[0]);
        let fates = fates_of(&actual, &meant);
        assert_eq!(fates[0], Fate::Kept, "the other leg has it");
        assert!(!is_same(&opened(&before), &opened(&meant), 0, &fates));
        let mut meant = before.clone();
        record(&mut meant, &[0]);
        let mut actual = meant.clone();
        actual[0][address..address + 4096].fill(0xA5);
        let fates = fates_of(&actual, &meant);
        assert_eq!(fates[0], Fate::Damaged);
        assert!(!is_same(&opened(&before), &opened(&meant), 0, &fates));
    }
}
