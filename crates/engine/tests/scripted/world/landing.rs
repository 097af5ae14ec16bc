//! The end of an I/O in flight, and of a cache: as a test says, or at random.

use hemi_engine::io::LegOperation;
use hemi_units::SECTOR_BYTES;
use hemi_world::disk::{Cache, Disk};

use super::{Pending, Random};

/// The way a write in flight at a crash lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    Whole,
    Not,
    /// The parts land, by sector number modulo eight, whose bit is set.
    Torn(u8),
}

impl Pending {
    /// Lands an I/O that ends with success.
    pub fn land(&self, disk: &mut Disk) {
        match self.io.operation {
            LegOperation::Write { fua } | LegOperation::WriteZeroes { fua, .. } => {
                disk.write(self.io.extent, Some(&self.data), fua, || true);
            }
            LegOperation::Flush => disk.flush(self.flush_mark),
            LegOperation::WriteMetadata | LegOperation::Read => self.land_parts(disk, || true),
        }
    }

    /// Lands a write that was in flight at a crash as `landing` says.
    pub fn land_as(&self, disk: &mut Disk, landing: Landing) {
        let mut part = 0..;
        self.land_parts(disk, || match landing {
            Landing::Whole => true,
            Landing::Not => false,
            Landing::Torn(parts) => parts >> (part.next().unwrap_or(0) % 8) & 1 == 1,
        });
    }

    /// Lands each sector or not, at random.
    pub fn land_partly(&self, disk: &mut Disk, random: &mut Random) {
        match random.below(4) {
            0 => self.land_parts(disk, || true),
            1 => self.land_parts(disk, || false),
            _ => self.land_parts(disk, || random.one_in(2)),
        }
    }

    /// Lands those sectors of an I/O that is cut off for which `lands` returns true. None of them
    /// is durable for that, except those of metadata.
    fn land_parts(&self, disk: &mut Disk, mut lands: impl FnMut() -> bool) {
        match self.io.operation {
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => {
                disk.write(self.io.extent, Some(&self.data), false, lands);
            }
            LegOperation::WriteMetadata => {
                let block = self.metadata.as_ref().expect("metadata writes carry bytes");
                let parts = (0..8).fold(0, |parts, part| parts | u8::from(lands()) << part);
                disk.write_metadata(self.io.extent.start * SECTOR_BYTES, block, parts);
            }
            LegOperation::Flush | LegOperation::Read => {}
        }
    }
}

/// Cuts a disk's power, and keeps of its cache what `cache` allows: with [`Cache::Any`], any of the
/// versions of each sector.
pub fn lose_cache(disk: &mut Disk, cache: Cache, random: &mut Random) {
    let any = |versions: u32| match versions {
        0 => 0,
        _ => random.below(u64::from(versions) + 1) as u32,
    };
    match cache {
        Cache::Kept => disk.settle_cache(|_, _| true),
        Cache::Dropped => disk.drop_cache(),
        Cache::Any => {
            let kept: Vec<u32> = disk.cached_versions().into_iter().map(any).collect();
            disk.settle_cache(|sector, nth| nth <= kept[sector]);
        }
    }
}
