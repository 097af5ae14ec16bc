//! The places of things on a leg.

use hemi_units::{Extent, SECTOR_BYTES};

use super::block::BLOCK_BYTES;
use super::page::ENTRIES_PER_PAGE;

/// The volume's size is a multiple of this many bytes, so that every leg can hold it
/// whatever its own block size.
pub const VOLUME_GRAIN: u64 = 4096;
/// Smallest region, in bytes.
pub const REGION_BYTES_MIN: u64 = 64 << 10;
/// Largest region, in bytes.
pub const REGION_BYTES_MAX: u64 = 1 << 30;
/// Most regions a volume can have.
pub const REGIONS_MAX: u64 = 1 << 24;
/// Largest volume, in bytes (16 PiB): the most regions of the largest size.
pub const VOLUME_BYTES_MAX: u64 = REGIONS_MAX * REGION_BYTES_MAX;
/// Smallest region chosen by default, in bytes.
const DEFAULT_REGION_BYTES_MIN: u64 = 1 << 20;
/// Most regions by default: half a megabyte of table per leg.
const DEFAULT_REGIONS_MAX: u64 = 1 << 18;

/// Bytes between the two superblock slots: far enough apart that one bad track, erase block
/// or misplaced `dd` seldom takes both.
const SUPERBLOCK_STRIDE: u64 = 64 << 10;
/// First byte of the lost lists.
const LOST_OFFSET: u64 = 128 << 10;
/// First byte of the stamps.
const STAMP_OFFSET: u64 = 192 << 10;
/// First byte of the region table.
const TABLE_OFFSET: u64 = 1 << 20;
/// The data area begins at a multiple of this many bytes: aligned to any medium's own grain.
const DATA_ALIGNMENT: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;
const PAGE_STRIDE: u64 = 2 * BLOCK;

/// The places of everything on every leg of a volume, a function of its size and region size.
///
/// Arguments named `slot` are 0 or 1: only the lowest bit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    volume_bytes: u64,
    region_bytes: u64,
    region_count: u32,
    /// Regions in each page but the last; as many as it has entries, in every real volume.
    regions_per_page: u32,
    page_count: u32,
    data_offset: u64,
}

/// The reason why there is no layout for a volume and region size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The volume's size is zero or not a multiple of [`VOLUME_GRAIN`].
    #[error("volume size {bytes} bytes is not a positive multiple of 4096")]
    VolumeSize {
        /// The size asked for.
        bytes: u64,
    },
    /// The volume is larger than [`VOLUME_BYTES_MAX`].
    #[error("volume size {bytes} bytes is more than the largest possible, 16 PiB")]
    VolumeTooLarge {
        /// The size asked for.
        bytes: u64,
    },
    /// The region size is not a power of two in range.
    #[error("region size {bytes} bytes is not a power of two from 64 KiB to 1 GiB")]
    RegionSize {
        /// The size asked for.
        bytes: u64,
    },
    /// More than [`REGIONS_MAX`] regions.
    #[error(
        "a volume of {volume_bytes} bytes has {regions} regions of {region_bytes} bytes, more \
         than 16777216; the region size must be at least {smallest_region_bytes} bytes"
    )]
    TooManyRegions {
        /// The volume's size.
        volume_bytes: u64,
        /// The region size asked for.
        region_bytes: u64,
        /// The number of regions that makes.
        regions: u64,
        /// The smallest region size that would do.
        smallest_region_bytes: u64,
    },
}

/// The smallest power of two, at least `smallest`, that cuts the volume into at most `most`
/// regions; [`REGION_BYTES_MAX`] if none in range does.
fn smallest_region(volume_bytes: u64, smallest: u64, most: u64) -> u64 {
    let mut region_bytes = smallest;
    while region_bytes < REGION_BYTES_MAX && volume_bytes.div_ceil(region_bytes) > most {
        region_bytes *= 2;
    }
    region_bytes
}

/// The region size for a volume when none is asked for: the smallest power of two of at
/// least 1 MiB that makes at most 262,144 regions (1 GiB where none does).
pub fn default_region_bytes(volume_bytes: u64) -> u64 {
    smallest_region(volume_bytes, DEFAULT_REGION_BYTES_MIN, DEFAULT_REGIONS_MAX)
}

impl Layout {
    /// The layout of a volume of `volume_bytes` in regions of `region_bytes`; the last region
    /// may be shorter.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn new(volume_bytes: u64, region_bytes: u64) -> Result<Layout, LayoutError> {
        if volume_bytes == 0 || !volume_bytes.is_multiple_of(VOLUME_GRAIN) {
            return Err(LayoutError::VolumeSize { bytes: volume_bytes });
        }
        if volume_bytes > VOLUME_BYTES_MAX {
            return Err(LayoutError::VolumeTooLarge { bytes: volume_bytes });
        }
        if !region_bytes.is_power_of_two()
            || !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region_bytes)
        {
            return Err(LayoutError::RegionSize { bytes: region_bytes });
        }
        let regions = volume_bytes.div_ceil(region_bytes);
        if regions > REGIONS_MAX {
            return Err(LayoutError::TooManyRegions {
                volume_bytes,
                region_bytes,
                regions,
                smallest_region_bytes: smallest_region(volume_bytes, REGION_BYTES_MIN, REGIONS_MAX),
            });
        }
        let pages = regions.div_ceil(ENTRIES_PER_PAGE as u64);
        let data_offset = (TABLE_OFFSET + pages * PAGE_STRIDE).next_multiple_of(DATA_ALIGNMENT);
        Ok(Layout {
            volume_bytes,
            region_bytes,
            // At most 2^24 of either.
            region_count: regions as u32,
            regions_per_page: ENTRIES_PER_PAGE as u32,
            page_count: pages as u32,
            data_offset,
        })
    }

    /// The volume's size in bytes.
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// The volume's size in sectors.
    pub fn volume_sectors(&self) -> u64 {
        self.volume_bytes / SECTOR_BYTES
    }

    /// The region size in bytes.
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// The region size in sectors.
    pub fn region_sectors(&self) -> u64 {
        self.region_bytes / SECTOR_BYTES
    }

    /// Returns the number of regions of the volume, at least one.
    pub fn region_count(&self) -> u32 {
        self.region_count
    }

    /// The region that holds a volume sector, which must be within the volume.
    pub fn region_of(&self, sector: u64) -> u32 {
        debug_assert!(sector < self.volume_sectors(), "sector {sector} is beyond the volume");
        (sector / self.region_sectors()) as u32
    }

    /// The volume sectors of a region; the last one ends with the volume.
    pub fn region_extent(&self, region: u32) -> Extent {
        let start = u64::from(region) * self.region_sectors();
        Extent { start, end: (start + self.region_sectors()).min(self.volume_sectors()) }
    }

    /// Returns the number of pages of the region table, at least one.
    pub fn page_count(&self) -> u32 {
        self.page_count
    }

    /// The page that holds a region's entry.
    pub fn page_of(&self, region: u32) -> u32 {
        region / self.regions_per_page
    }

    /// The first region of a page, and one past its last.
    pub fn page_regions(&self, page: u32) -> core::ops::Range<u32> {
        let start = page * self.regions_per_page;
        start..(start + self.regions_per_page).min(self.region_count)
    }

    /// Returns the same layout with only the first `regions` entries of each page in use, at
    /// least one: many pages in a small volume, for simulations. There are no more pages than
    /// the table has room for before the data area, so that nothing else moves.
    ///
    /// No superblock records it. A leg written like this opens with
    /// [`crate::recovery::assess_short_pages`] alone; the ordinary way in finds regions that no
    /// leg decides, and refuses.
    #[must_use]
    pub fn with_short_pages(self, regions: u32) -> Layout {
        // At most 2^17 pages.
        let pages_max = ((self.data_offset - TABLE_OFFSET) / PAGE_STRIDE) as u32;
        let least = self.region_count.div_ceil(pages_max);
        let regions_per_page = regions.clamp(least, ENTRIES_PER_PAGE as u32);
        let page_count = self.region_count.div_ceil(regions_per_page);
        Layout { regions_per_page, page_count, ..self }
    }

    /// First byte of a superblock slot. It depends on nothing, so that a leg can be
    /// recognised before its layout is known.
    pub const fn superblock_address(slot: u8) -> u64 {
        (slot & 1) as u64 * SUPERBLOCK_STRIDE
    }

    /// First byte of a lost-list slot.
    pub const fn lost_address(slot: u8) -> u64 {
        LOST_OFFSET + (slot & 1) as u64 * BLOCK
    }

    /// First byte of a stamp's slot, of [`super::stamp::SLOTS`].
    pub const fn stamp_address(slot: usize) -> u64 {
        STAMP_OFFSET + (slot % super::stamp::SLOTS) as u64 * BLOCK
    }

    /// First byte of a slot of a page of the region table.
    pub fn page_address(&self, page: u32, slot: u8) -> u64 {
        debug_assert!(page < self.page_count, "page {page} is beyond the region table");
        TABLE_OFFSET + u64::from(page) * PAGE_STRIDE + u64::from(slot & 1) * BLOCK
    }

    /// First byte of the data area, a multiple of 1 MiB, the same on every leg.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Returns the number of bytes that a leg must have.
    pub fn leg_bytes(&self) -> u64 {
        self.data_offset + self.volume_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    #[test]
    fn a_small_volume_is_laid_out_as_documented() {
        let layout = Layout::new(10 * GIB, default_region_bytes(10 * GIB)).unwrap();
        assert_eq!(layout.region_bytes(), 1 << 20);
        assert_eq!(layout.region_count(), 10240);
        assert_eq!(layout.page_count(), 6);
        assert_eq!(Layout::superblock_address(0), 0);
        assert_eq!(Layout::superblock_address(1), 65536);
        assert_eq!(Layout::lost_address(0), 131072);
        assert_eq!(Layout::lost_address(1), 135168);
        assert_eq!(layout.page_address(0, 0), 1 << 20);
        assert_eq!(layout.page_address(0, 1), (1 << 20) + 4096);
        assert_eq!(layout.page_address(5, 0), (1 << 20) + 5 * 8192);
        assert_eq!(layout.data_offset(), 2 << 20);
        assert_eq!(layout.leg_bytes(), (2 << 20) + 10 * GIB);
    }

    #[test]
    fn default_regions_grow_with_the_volume() {
        for (volume, region) in [
            (4096, 1 << 20),
            (256 * GIB, 1 << 20),
            (256 * GIB + 4096, 2 << 20),
            (16 * TIB, 64 << 20),
            (256 * TIB, GIB),
            (VOLUME_BYTES_MAX, GIB),
        ] {
            assert_eq!(default_region_bytes(volume), region, "{volume}");
            Layout::new(volume, region).unwrap();
        }
    }

    #[test]
    fn bad_sizes_are_named() {
        for bytes in [0, 512, 4095, 4097, u64::MAX] {
            assert_eq!(Layout::new(bytes, 1 << 20), Err(LayoutError::VolumeSize { bytes }));
        }
        let bytes = VOLUME_BYTES_MAX + 4096;
        assert_eq!(Layout::new(bytes, GIB), Err(LayoutError::VolumeTooLarge { bytes }));
        for bytes in [0, 4096, 32 << 10, 3 << 20, 2 * GIB] {
            assert_eq!(Layout::new(GIB, bytes), Err(LayoutError::RegionSize { bytes }));
        }
        let error = Layout::new(16 * TIB, 1 << 19).unwrap_err();
        let LayoutError::TooManyRegions { regions, smallest_region_bytes, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((regions, smallest_region_bytes), (1 << 25, 1 << 20));
        Layout::new(16 * TIB, smallest_region_bytes).unwrap();
    }

    #[test]
    fn short_pages_move_nothing_but_entries() {
        let whole = Layout::new(24 << 16, 1 << 16).unwrap();
        assert_eq!((whole.page_count(), whole.page_regions(0)), (1, 0..24));
        let short = whole.with_short_pages(5);
        assert_eq!((short.page_count(), short.page_regions(4)), (5, 20..24));
        assert_eq!((short.page_of(4), short.page_of(5)), (0, 1));
        assert_eq!(short.data_offset(), whole.data_offset());
        assert_eq!(whole.with_short_pages(u32::MAX), whole);
        // The table of a larger volume has no room for a page of every region.
        let large = Layout::new(10 * GIB, 1 << 20).unwrap().with_short_pages(0);
        assert!(large.page_address(large.page_count() - 1, 1) + BLOCK <= large.data_offset());
        assert_eq!(large.page_regions(large.page_count() - 1).end, large.region_count());
    }

    proptest! {
        #[test]
        fn areas_follow_each_other(
            volume in 1u64..=VOLUME_BYTES_MAX / VOLUME_GRAIN,
            shift in 16u32..=30,
            sector in any::<u64>(),
        ) {
            let Ok(layout) = Layout::new(volume * VOLUME_GRAIN, 1 << shift) else {
                return Ok(());
            };
            let last = layout.page_count() - 1;
            prop_assert!(Layout::lost_address(1) + BLOCK <= Layout::stamp_address(0));
            let stamp = Layout::stamp_address(super::super::stamp::SLOTS - 1);
            prop_assert!(stamp + BLOCK <= layout.page_address(0, 0));
            prop_assert!(layout.page_address(last, 1) + BLOCK <= layout.data_offset());
            prop_assert_eq!(layout.data_offset() % DATA_ALIGNMENT, 0);
            prop_assert_eq!(layout.page_of(layout.region_count() - 1), last);
            prop_assert_eq!(layout.page_regions(last).end, layout.region_count());
            let sector = sector % layout.volume_sectors();
            let extent = layout.region_extent(layout.region_of(sector));
            prop_assert!(extent.start <= sector && sector < extent.end);
            let end = layout.region_extent(layout.region_count() - 1).end;
            prop_assert_eq!(end, layout.volume_sectors());
        }
    }
}
