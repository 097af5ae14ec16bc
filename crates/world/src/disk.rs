//! The medium of a leg and its fault model.
//!
//! **Superblock, lost list and region table** (everything before the data area) are real bytes,
//! written by the engine and read back by recovery. A completed metadata write is durable, since
//! drivers write metadata with FUA. One in flight at a crash lands, does not land, or is torn: each
//! of its eight 512-byte sectors lands or not on its own. A sector can rot while hemi is not
//! running.
//!
//! In torture seeds of their own a metadata write can be **lost** or **misdirected**: it reports success,
//! but nothing of it lands, or it lands whole at another metadata block of the leg. The effect
//! shows at a start, when the leg is next read. Until then the disk knows what it should hold. A
//! later write to the place, or the same record on another leg that is in, makes it good. A block
//! at a wrong place does not check out (its address is in its checksum), and is refused where it
//! may hide something. The losses that cannot be noticed are listed below.
//!
//! **Data** is one version per 512-byte sector, with a volatile write cache. A write that completed
//! but was not covered by a flush that *started* later is kept, dropped or rolled back at a power
//! cut, sector by sector, to any version the sector had since the last flush. A write in flight at
//! a crash, or one that failed, lands sector by sector or not. A FUA write is durable for its own
//! sectors only. Sectors can be unreadable until they are rewritten.
//!
//! **Not survivable**: data that one leg alone holds (no other is fresh, or a crash has left the
//! region to its authority) and cannot read any more. So sectors become unreadable only while every
//! leg holds everything, and crashes make them readable.
//!
//! **Not survivable** either: a lost metadata write on the only leg that was given the record. The
//! slot beside it holds the record before, which is valid, and nothing shows that there was a newer
//! one. The torture counts such starts, and goes on from what should be there.
//!
//! **Not survivable** either, hence not injected: a disk that reports a flush as durable when it is
//! not; data sectors that silently change; metadata that rots on every leg at once.

use hemi_units::Extent;

use hemi_random::Rng;

/// The part of a volatile cache that survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Everything is kept.
    Kept,
    /// Nothing is kept.
    Dropped,
    /// Any subset is kept, each sector rolled back to any of its versions.
    Any,
}

#[derive(Clone, Copy)]
struct Cached {
    version: u64,
    sector: u32,
    /// The disk's count of completed writes at that time.
    mark: u32,
}

/// A simulated disk.
#[derive(Clone, Default)]
pub struct Disk {
    /// The bytes before the data area.
    pub metadata: Vec<u8>,
    /// The bytes they should be, once a metadata write was lost or misdirected.
    meant: Option<Vec<u8>>,
    /// The places where such writes should have landed, and what would be there without them.
    lied: Vec<(usize, Box<[u8; 4096]>)>,
    /// The 4 KiB metadata blocks that were ever written.
    touched: Vec<u32>,
    data_start: u64,
    current: Vec<u64>,
    durable: Vec<u64>,
    /// The count of completed writes at which a FUA write last made each sector durable.
    fixed: Vec<u32>,
    /// Writes not flushed yet, oldest first, from `log_start` on.
    log: Vec<Cached>,
    log_start: usize,
    completed: u32,
    /// The last completed write that the last flush covers.
    flushed: u32,
    /// The number of times each sector is in the log. Used only during power cuts, zero otherwise.
    counts: Vec<u32>,
    unreadable: Vec<Extent>,
}

impl Disk {
    /// Creates a disk as [`Disk::reset`] does.
    pub fn new(metadata_bytes: usize, sectors: usize, version: u64) -> Disk {
        let mut disk = Disk::default();
        disk.reset(metadata_bytes, sectors, version);
        disk
    }

    /// Makes this a disk of `sectors` data sectors behind `metadata_bytes` bytes, each sector at
    /// `version`. Keeps its memory.
    pub fn reset(&mut self, metadata_bytes: usize, sectors: usize, version: u64) {
        if self.metadata.len() == metadata_bytes {
            for block in self.touched.drain(..) {
                let start = block as usize * 4096;
                self.metadata[start..start + 4096].fill(0);
            }
        } else {
            self.metadata = vec![0; metadata_bytes];
            self.touched.clear();
        }
        self.meant = None;
        self.lied.clear();
        self.data_start = metadata_bytes as u64 / 512;
        for (array, value) in [(&mut self.current, version), (&mut self.durable, version)] {
            array.clear();
            array.resize(sectors, value);
        }
        for array in [&mut self.fixed, &mut self.counts] {
            array.clear();
            array.resize(sectors, 0);
        }
        self.log.clear();
        self.log_start = 0;
        (self.completed, self.flushed) = (0, 0);
        self.unreadable.clear();
    }

    /// Makes this a copy of another disk. Keeps its memory.
    pub fn copy_from(&mut self, other: &Disk) {
        self.reset(other.metadata.len(), 0, 0);
        for &block in &other.touched {
            let bytes = block as usize * 4096..block as usize * 4096 + 4096;
            self.metadata[bytes.clone()].copy_from_slice(&other.metadata[bytes]);
        }
        self.touched.clone_from(&other.touched);
        self.meant.clone_from(&other.meant);
        self.current.clone_from(&other.current);
        self.durable.clone_from(&other.durable);
        self.fixed.clone_from(&other.fixed);
        self.counts.clone_from(&other.counts);
        self.log.clone_from(&other.log);
        self.log_start = other.log_start;
        (self.completed, self.flushed) = (other.completed, other.flushed);
        self.unreadable.clone_from(&other.unreadable);
    }

    /// Returns the count of completed writes, which a flush submitted now covers.
    pub fn mark(&self) -> u32 {
        self.completed
    }

    /// Returns the version that each sector of the data area reads as.
    pub fn contents(&self) -> &[u64] {
        &self.current
    }

    /// Returns the sectors of the data area with a version that no flush covers yet, even if a
    /// write with FUA made it durable: a volume need not keep account of that.
    pub fn unflushed(&self) -> impl Iterator<Item = u64> {
        let in_log = self.log[self.log_start..].iter().map(|cached| u64::from(cached.sector));
        let fixed = (0..).zip(&self.fixed).filter(|(_, mark)| **mark > self.flushed);
        in_log.chain(fixed.map(|(sector, _)| sector))
    }

    fn local(&self, extent: Extent) -> std::ops::Range<usize> {
        (extent.start - self.data_start) as usize..(extent.end - self.data_start) as usize
    }

    /// Returns the versions of an extent of the leg.
    pub fn read(&self, extent: Extent) -> &[u64] {
        &self.current[self.local(extent)]
    }

    /// Lands a write: `versions` of its data, or zeros, on those sectors for which `lands` returns
    /// true.
    pub fn write(
        &mut self,
        extent: Extent,
        versions: Option<&[u64]>,
        fua: bool,
        mut lands: impl FnMut() -> bool,
    ) {
        self.completed += 1;
        if !self.unreadable.is_empty() {
            self.make_readable(extent);
        }
        for (index, sector) in self.local(extent).enumerate() {
            if !lands() {
                continue;
            }
            let version = versions.map_or(0, |v| v[index]);
            self.current[sector] = version;
            if fua {
                self.durable[sector] = version;
                self.fixed[sector] = self.completed;
            } else {
                let mark = self.completed;
                self.log.push(Cached { version, sector: sector as u32, mark });
            }
        }
    }

    /// Makes everything completed by `mark` durable.
    pub fn flush(&mut self, mark: u32) {
        self.flushed = self.flushed.max(mark);
        while let Some(&cached) = self.log.get(self.log_start).filter(|c| c.mark <= mark) {
            self.log_start += 1;
            let sector = cached.sector as usize;
            if self.fixed[sector] <= cached.mark {
                self.durable[sector] = cached.version;
            }
        }
        if self.log_start == self.log.len() {
            self.log.clear();
            self.log_start = 0;
        }
    }

    /// Cuts power, and keeps of the cache what `cache` allows.
    pub fn lose_cache(&mut self, cache: Cache, random: &mut Rng) {
        self.settle_cache(|_, nth| match cache {
            Cache::Kept => true,
            Cache::Dropped => false,
            // One of its versions since the last flush, or the one before, all equally likely.
            Cache::Any => random.one_in(u64::from(nth) + 1),
        });
    }

    /// Cuts power. `keeps` is called with each version in the cache, oldest first: its sector, and
    /// its number among that sector's, from 1 on. The last one kept is what the sector holds.
    pub fn settle_cache(&mut self, mut keeps: impl FnMut(usize, u32) -> bool) {
        let log = std::mem::take(&mut self.log);
        let unflushed = &log[self.log_start..];
        self.log_start = 0;
        for cached in unflushed {
            let sector = cached.sector as usize;
            if self.fixed[sector] > cached.mark {
                continue;
            }
            self.counts[sector] += 1;
            if keeps(sector, self.counts[sector]) {
                self.durable[sector] = cached.version;
            }
        }
        for cached in unflushed {
            let sector = cached.sector as usize;
            self.counts[sector] = 0;
            self.current[sector] = self.durable[sector];
        }
        self.log = log;
        self.log.clear();
    }

    /// Cuts power, and keeps nothing of the cache.
    pub fn drop_cache(&mut self) {
        self.settle_cache(|_, _| false);
    }

    /// Returns the number of versions of each sector that [`Disk::settle_cache`] asks for.
    pub fn cached_versions(&self) -> Vec<u32> {
        let mut counts = vec![0; self.current.len()];
        for cached in &self.log[self.log_start..] {
            let sector = cached.sector as usize;
            counts[sector] += u32::from(self.fixed[sector] <= cached.mark);
        }
        counts
    }

    /// Changes a sector of the data area without anybody's knowledge.
    pub fn corrupt(&mut self, sector: usize, version: u64) {
        self.log.drain(..self.log_start);
        self.log_start = 0;
        self.log.retain(|cached| cached.sector as usize != sector);
        (self.current[sector], self.durable[sector]) = (version, version);
    }

    /// Writes those sectors of a metadata block whose bit is set in `parts`.
    pub fn write_metadata(&mut self, address: u64, block: &[u8; 4096], parts: u8) {
        self.note_touched(address);
        let start = address as usize;
        let whole = [Some(&mut self.metadata), self.meant.as_mut()].into_iter().flatten();
        let places = whole.map(|image| &mut image[start..start + 4096]);
        let lied = self.lied.iter_mut().filter(|(place, _)| *place == start);
        for place in places.chain(lied.map(|(_, before)| &mut before[..])) {
            for part in (0..8).filter(|part| parts >> part & 1 == 1) {
                let (from, to) = (part * 512, part * 512 + 512);
                place[from..to].copy_from_slice(&block[from..to]);
            }
        }
    }

    /// Notes that a block is no longer as it was when the disk was made.
    fn note_touched(&mut self, address: u64) {
        let number = (address / 4096) as u32;
        if !self.touched.contains(&number) {
            self.touched.push(number);
        }
    }

    /// Accepts a metadata write without performing it. With `lands` it lands on that block instead.
    pub fn lie(&mut self, address: u64, block: &[u8; 4096], lands: Option<u64>) {
        let meant = self.meant.get_or_insert_with(|| self.metadata.clone());
        let start = address as usize;
        let place = &mut meant[start..start + 4096];
        if !self.lied.iter().any(|(other, _)| *other == start) {
            let mut before = Box::new([0; 4096]);
            before.copy_from_slice(place);
            self.lied.push((start, before));
        }
        place.copy_from_slice(block);
        if let Some(start) = lands.map(|address| address as usize) {
            self.metadata[start..start + 4096].copy_from_slice(block);
        }
        self.note_touched(address);
    }

    /// Returns what the metadata should be, if it differs from what it is.
    pub fn meant(&self) -> Option<&[u8]> {
        self.meant.as_deref().filter(|meant| **meant != self.metadata[..])
    }

    /// Forgets the records that were lost, because hemi has been started without them: they have
    /// never been, and their sequences are used again. Blocks that misdirected writes have
    /// overwritten stay damaged.
    pub fn forget_lost_records(&mut self) {
        for (start, before) in self.lied.drain(..) {
            if let Some(meant) = &mut self.meant {
                meant[start..start + 4096].copy_from_slice(&before[..]);
            }
        }
    }

    /// Restores the metadata to what it should be.
    pub fn end_lies(&mut self) {
        self.lied.clear();
        if let Some(meant) = self.meant.take() {
            self.metadata = meant;
        }
    }

    /// Returns the metadata blocks ever written, in order of their first write.
    pub fn metadata_blocks(&self) -> &[u32] {
        &self.touched
    }

    /// Makes sectors of the data area unreadable until they are rewritten.
    pub fn make_unreadable(&mut self, volume: Extent) {
        self.unreadable.push(self.of_volume(volume));
    }

    /// Returns the extent of the disk that holds an extent of the volume.
    pub fn of_volume(&self, volume: Extent) -> Extent {
        Extent { start: volume.start + self.data_start, end: volume.end + self.data_start }
    }

    /// Returns true if any sector cannot be read.
    pub fn has_unreadable(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Makes every sector readable.
    pub fn heal(&mut self) {
        self.unreadable.clear();
    }

    /// Returns true if a read of this extent fails.
    pub fn is_unreadable(&self, extent: Extent) -> bool {
        self.unreadable.iter().any(|bad| bad.overlaps(extent))
    }

    fn make_readable(&mut self, extent: Extent) {
        let bad = std::mem::take(&mut self.unreadable);
        for range in bad {
            let before = Extent { start: range.start, end: range.end.min(extent.start) };
            let after = Extent { start: range.start.max(extent.end), end: range.end };
            self.unreadable.extend([before, after].into_iter().filter(|part| !part.is_empty()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Disk};
    use hemi_random::Rng;
    use hemi_units::Extent;

    fn disk() -> Disk {
        Disk::new(4096, 8, 0)
    }

    #[test]
    fn what_was_flushed_survives_and_what_was_not_may_go() {
        let mut seen = [false; 3];
        for seed in 0..100 {
            let mut disk = disk();
            disk.write(Extent::new(8, 2), Some(&[1, 1]), false, || true);
            let mark = disk.mark();
            disk.write(Extent::new(9, 1), Some(&[2]), false, || true);
            disk.flush(mark);
            disk.write(Extent::new(9, 1), Some(&[3]), false, || true);
            disk.lose_cache(Cache::Any, &mut Rng::new(seed, 0));
            assert_eq!(disk.contents()[0], 1);
            seen[disk.contents()[1] as usize - 1] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn a_flush_does_not_undo_a_later_fua_write() {
        let mut disk = disk();
        disk.write(Extent::new(8, 1), Some(&[1]), false, || true);
        disk.write(Extent::new(8, 1), Some(&[2]), true, || true);
        disk.flush(disk.mark());
        disk.lose_cache(Cache::Dropped, &mut Rng::new(0, 0));
        assert_eq!(disk.contents()[0], 2);
    }

    #[test]
    fn what_is_kept_can_be_chosen_and_corruption_is_not_in_the_cache() {
        let mut disk = disk();
        for version in 1..=3 {
            disk.write(Extent::new(8, 3), Some(&[version; 3]), false, || true);
        }
        disk.write(Extent::new(9, 1), Some(&[4]), true, || true);
        disk.corrupt(2, 9);
        assert_eq!(disk.cached_versions()[..4], [3, 0, 0, 0]);
        disk.settle_cache(|sector, nth| (sector, nth) == (0, 2));
        assert_eq!(disk.contents()[..4], [2, 4, 9, 0]);
    }

    #[test]
    fn a_record_that_was_lost_before_a_start_has_never_been() {
        let mut disk = Disk::new(3 * 4096, 8, 0);
        for block in 0..3 {
            disk.write_metadata(block * 4096, &[1; 4096], 0xFF);
        }
        disk.lie(4096, &[2; 4096], None);
        assert_eq!(disk.meant().map(|meant| meant[4096]), Some(2));
        disk.forget_lost_records();
        assert_eq!(disk.meant(), None, "hemi has gone on from what is there");
        // One of a lost record, and of a place that is given another one as well.
        disk.lie(4096, &[3; 4096], Some(2 * 4096));
        disk.write_metadata(4096, &[4; 4096], 0x0F);
        disk.forget_lost_records();
        let meant = disk.meant().expect("the third block is damaged");
        assert_eq!((meant[4096], meant[2 * 4096 - 1], meant[2 * 4096]), (4, 1, 1));
        assert_eq!((disk.metadata[4096], disk.metadata[2 * 4096]), (4, 3));
    }

    #[test]
    fn rewriting_makes_readable() {
        let mut disk = disk();
        disk.make_unreadable(Extent::new(0, 4));
        disk.write(Extent::new(9, 2), Some(&[1, 1]), false, || true);
        assert!(disk.is_unreadable(Extent::new(8, 1)));
        assert!(!disk.is_unreadable(Extent::new(9, 2)));
        assert!(disk.is_unreadable(Extent::new(11, 1)));
    }
}
