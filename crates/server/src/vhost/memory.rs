//! A guest's memory, shared by its front end and addressed by the guest's addresses.
//!
//! Every address and length here comes from the guest or its front end. Only bytes within a
//! region are accessed. They are copied and never borrowed, because the guest may change them
//! at any time.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::ptr::NonNull;

use super::Broken;
use super::fault::SharedMapping;
use hemi_io::memory::Span;

/// Maximum number of regions of a guest's memory, which is the number of files that one message
/// carries.
pub const REGIONS_MAX: usize = 32;
/// In-memory file systems: tmpfs and hugetlbfs. Pages of other file systems come from drives or
/// other processes, and the reactor would wait for them.
const FILE_SYSTEMS: [i64; 2] = [0x0102_1994, 0x9584_58F6];

/// A part of guest memory as the front end describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionAt {
    /// First address in the guest.
    pub(super) guest: u64,
    /// The same byte's address in the front end. Messages give the addresses of rings this way.
    pub(super) front_end: u64,
    /// Length in bytes.
    pub(super) length: u64,
    /// Its first byte in the file.
    pub(super) offset: u64,
}

#[derive(Debug)]
struct Region {
    at: RegionAt,
    mapping: SharedMapping,
}

/// A run of guest memory from a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// First address in the guest.
    pub(crate) address: u64,
    /// Length in bytes.
    pub(crate) length: u32,
    /// True if the device writes into it.
    pub(crate) writable: bool,
}

/// All of a guest's memory.
#[derive(Debug, Default)]
pub(crate) struct GuestMemory {
    regions: Vec<Region>,
}

impl GuestMemory {
    /// Maps the regions of a front end's table.
    ///
    /// # Errors
    /// Returns a message that names the invalid region.
    pub(super) fn map(table: &[(RegionAt, File)]) -> Result<GuestMemory, String> {
        if table.len() > REGIONS_MAX {
            return Err(format!("{} regions of memory; at most {REGIONS_MAX}", table.len()));
        }
        let mut memory = GuestMemory::default();
        for (at, file) in table {
            let name = format!("the region of memory at {:#x}", at.guest);
            let overlaps = |other: &Region| {
                at.guest < other.at.guest + other.at.length && other.at.guest < at.guest + at.length
            };
            let ends =
                [at.guest, at.front_end, at.offset].map(|start| start.checked_add(at.length));
            let [Some(_), Some(_), Some(end)] = ends else {
                return Err(format!("{name} of {} bytes has no end", at.length));
            };
            if at.length == 0 || memory.regions.iter().any(overlaps) {
                return Err(format!("{name} of {} bytes is empty, or overlaps another", at.length));
            }
            let mapping = map(file, end).map_err(|reason| format!("{name} {reason}"))?;
            memory.regions.push(Region { at: *at, mapping });
        }
        Ok(memory)
    }

    /// Returns true if a region's file was truncated.
    pub(crate) fn is_broken(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_broken())
    }

    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.at.length).sum()
    }

    /// Finds `address` in a region. Returns its place in memory and the number of bytes left in
    /// the region. `start` returns a region's first address in the address space of `address`.
    fn find(&self, address: u64, start: impl Fn(&RegionAt) -> u64) -> Option<(NonNull<u8>, u64)> {
        self.regions.iter().find_map(|region| {
            let inside = address.checked_sub(start(&region.at))?;
            let left = region.at.length.checked_sub(inside).filter(|left| *left > 0)?;
            // SAFETY: `inside` is less than the region's length, and offset and length together
            // are within the mapping, as `map` has checked.
            let at = unsafe { region.mapping.base().add((region.at.offset + inside) as usize) };
            Some((at, left))
        })
    }

    /// Finds `length` bytes of a ring in one region by the front end's address.
    pub(super) fn ring(&self, address: u64, length: u64) -> Option<NonNull<u8>> {
        let (at, left) = self.find(address, |region| region.front_end)?;
        (length <= left).then_some(at)
    }

    /// Returns true if all of a segment is in guest memory.
    pub(super) fn contains(&self, segment: &Segment) -> bool {
        let mut pieces = Pieces::new(self, segment, 0, u64::MAX);
        pieces.by_ref().for_each(drop);
        pieces.left == 0
    }

    /// Copies payload from guest memory into all of `into`, beginning `skip` bytes into the
    /// segments.
    ///
    /// # Errors
    /// Returns [`Broken`] if the segments are shorter than that or no longer in guest memory.
    pub(crate) fn copy_in(
        &self,
        segments: &[Segment],
        skip: u64,
        into: Span,
    ) -> Result<(), Broken> {
        self.copy(segments, skip, into.length(), |guest, done, length| {
            let into = into.slice(done, length).address();
            // SAFETY: the source is in a region and the target in the span, both for `length`
            // bytes. They do not overlap, because no region is memory of ours alone.
            unsafe { std::ptr::copy_nonoverlapping(guest.as_ptr(), into, length) };
        })
    }

    /// Copies all of `from` into guest memory, beginning `skip` bytes into the segments.
    ///
    /// # Errors
    /// Returns those of [`GuestMemory::copy_in`].
    pub(crate) fn copy_out(
        &self,
        segments: &[Segment],
        skip: u64,
        from: Span,
    ) -> Result<(), Broken> {
        self.copy(segments, skip, from.length(), |guest, done, length| {
            let from = from.slice(done, length).address();
            // SAFETY: as in `copy_in`, in the other direction.
            unsafe { std::ptr::copy_nonoverlapping(from, guest.as_ptr(), length) };
        })
    }

    /// Reads bytes from guest memory, beginning `skip` bytes into the segments.
    ///
    /// # Errors
    /// Returns those of [`GuestMemory::copy_in`].
    pub(super) fn read<const N: usize>(
        &self,
        segments: &[Segment],
        skip: u64,
    ) -> Result<[u8; N], Broken> {
        let mut bytes = [0; N];
        let into = bytes.as_mut_ptr();
        self.copy(segments, skip, N, |guest, done, length| {
            // SAFETY: `done + length` is at most N, and the bytes are this function's own.
            unsafe { std::ptr::copy_nonoverlapping(guest.as_ptr(), into.add(done), length) };
        })?;
        Ok(bytes)
    }

    /// Writes bytes into guest memory, beginning `skip` bytes into the segments.
    ///
    /// # Errors
    /// Returns those of [`GuestMemory::copy_in`].
    pub(crate) fn write(
        &self,
        segments: &[Segment],
        skip: u64,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        self.copy(segments, skip, bytes.len(), |guest, done, length| {
            let from = bytes[done..done + length].as_ptr();
            // SAFETY: the target is in a region for `length` bytes.
            unsafe { std::ptr::copy_nonoverlapping(from, guest.as_ptr(), length) };
        })
    }

    /// Walks `length` bytes of the segments, beginning `skip` bytes into them, in runs that
    /// each lie in one region.
    fn copy(
        &self,
        segments: &[Segment],
        mut skip: u64,
        length: usize,
        mut each: impl FnMut(NonNull<u8>, usize, usize),
    ) -> Result<(), Broken> {
        let mut done = 0;
        for segment in segments {
            if done == length {
                break;
            }
            if skip >= u64::from(segment.length) {
                skip -= u64::from(segment.length);
                continue;
            }
            for (guest, piece) in Pieces::new(self, segment, skip, (length - done) as u64) {
                each(guest, done, piece);
                done += piece;
            }
            skip = 0;
        }
        if self.is_broken() {
            return Err(Broken::CutShort);
        }
        if done == length { Ok(()) } else { Err(Broken::NoMemory { address: 0 }) }
    }
}

/// An iterator over the runs of a segment that each lie in one region. It ends early at an
/// address without memory.
struct Pieces<'a> {
    memory: &'a GuestMemory,
    address: u64,
    left: u64,
}

impl<'a> Pieces<'a> {
    /// Returns an iterator that begins `skip` bytes into the segment, which is longer, and ends
    /// after at most `most` bytes.
    fn new(memory: &'a GuestMemory, segment: &Segment, skip: u64, most: u64) -> Pieces<'a> {
        let left = (u64::from(segment.length) - skip).min(most);
        Pieces { memory, address: segment.address.saturating_add(skip), left }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (NonNull<u8>, usize);

    fn next(&mut self) -> Option<(NonNull<u8>, usize)> {
        if self.left == 0 {
            return None;
        }
        let (at, there) = self.memory.find(self.address, |region| region.guest)?;
        let length = there.min(self.left);
        self.address = self.address.checked_add(length)?;
        self.left -= length;
        Some((at, length as usize))
    }
}

/// Maps the first `length` bytes of a memory file.
///
/// # Errors
/// Returns a message that names the error.
pub(super) fn map(file: &File, length: u64) -> Result<SharedMapping, String> {
    let failed = |error: std::io::Error| format!("cannot be used: {error}");
    let metadata = file.metadata().map_err(failed)?;
    let system = rustix::fs::fstatfs(file).map_err(|error| failed(error.into()))?;
    #[allow(clippy::unnecessary_cast)] // The field's type differs between machines.
    let in_memory = FILE_SYSTEMS.contains(&(system.f_type as i64));
    // Device nodes lie on a tmpfs too.
    if !(in_memory && metadata.is_file()) {
        return Err("is not in memory: share it from a memfd, /dev/shm or hugetlbfs".into());
    }
    if metadata.len() < length {
        return Err(format!("ends at byte {length} of a file of {}", metadata.len()));
    }
    let page = usize::try_from(metadata.blksize()).unwrap_or(0).max(hemi_io::memory::PAGE_BYTES);
    let length = usize::try_from(length).map_err(|_| "is too large".to_owned())?;
    SharedMapping::new(file, length, page.next_power_of_two()).map_err(failed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hemi_io::memory::Mapping;

    /// Returns memory of these regions (guest address, length), and its files. The front end's address of
    /// each region is 2^40 above the guest's.
    pub(crate) fn memory(regions: &[(u64, u64)]) -> (GuestMemory, Vec<File>) {
        let table: Vec<(RegionAt, File)> = regions
            .iter()
            .map(|&(guest, length)| {
                let file = tempfile::tempfile_in("/dev/shm").unwrap();
                file.set_len(length + 4096).unwrap();
                (
                    RegionAt {
                        guest,
                        front_end: guest.wrapping_add(1 << 40),
                        length,
                        offset: 4096,
                    },
                    file,
                )
            })
            .collect();
        let files = table.iter().map(|(_, file)| file.try_clone().unwrap()).collect();
        (GuestMemory::map(&table).unwrap(), files)
    }

    fn segment(address: u64, length: u32) -> Segment {
        Segment { address, length, writable: true }
    }

    #[test]
    fn bytes_are_gathered_over_segments_and_regions() {
        let (memory, _files) = memory(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x9000, 0x1000)]);
        let segments = [segment(0x9FF0, 16), segment(0x1FFC, 8), segment(0x9000, 3)];
        memory.write(&segments, 0, b"0123456789abcdefABCDEFGHxyz").unwrap();
        assert_eq!(&memory.read::<12>(&segments, 14).unwrap(), b"efABCDEFGHxy");
        assert_eq!(&memory.read::<4>(&[segment(0x2000, 4)], 0).unwrap(), b"EFGH");
        let mapping = Mapping::new(27, false).unwrap();
        let span = mapping.span(0, 27);
        memory.copy_in(&segments, 0, span).unwrap();
        assert_eq!(&span.to_vec(), b"0123456789abcdefABCDEFGHxyz");
        span.slice(0, 4).copy_from(b"9876");
        memory.copy_out(&segments, 13, span.slice(0, 4)).unwrap();
        assert_eq!(&memory.read::<6>(&segments, 12).unwrap(), b"c9876B");
    }

    #[test]
    fn nothing_outside_of_the_regions_is_found() {
        let (memory, _files) =
            memory(&[(0x1000, 0x1000), (0x2000, 0x1000), (u64::MAX - 0xFFF, 0xFFF)]);
        for (address, length) in [
            (0xFFF, 1),
            (0x0, 0x1001),
            (0x3000, 1),
            (0x2FFF, 2),
            (0x1000, 0x2001),
            (u64::MAX, 1),
            (u64::MAX - 4, 8),
            (u64::MAX - 0xFFF, u32::MAX),
        ] {
            let outside = segment(address, length);
            assert!(!memory.contains(&outside), "{outside:?}");
        }
        for (address, length) in [(0x1000, 0x2000), (0x1FFF, 2), (u64::MAX - 8, 8)] {
            assert!(memory.contains(&segment(address, length)), "{address:#x} {length}");
        }
        assert!(memory.read::<2>(&[segment(0x2FFF, 2)], 0).is_err());
        assert!(memory.read::<4>(&[segment(0x1000, 3)], 0).is_err(), "the segments are shorter");
        let front_end = 1 << 40;
        assert!(memory.ring(front_end + 0x1000, 0x1000).is_some());
        assert!(memory.ring(front_end + 0x1001, 0x1000).is_none(), "it leaves its region");
        assert!(memory.ring(0x1000, 1).is_none(), "a guest's address is none of the front end's");
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(0x2000).unwrap();
        let at = RegionAt { guest: 0, front_end: 0, length: 0x1000, offset: 0 };
        let refused = |table: &[RegionAt], part: &str| {
            let table: Vec<_> = table.iter().map(|at| (*at, file.try_clone().unwrap())).collect();
            let error = GuestMemory::map(&table).expect_err(part);
            assert!(error.contains(part), "{error}");
        };
        refused(&[at, RegionAt { guest: 0xFFF, ..at }], "overlaps another");
        refused(&[RegionAt { length: 0, ..at }], "empty");
        refused(&[RegionAt { length: 0x2001, ..at }], "ends at byte 8193 of a file of 8192");
        refused(&[RegionAt { offset: u64::MAX, ..at }], "has no end");
        refused(&[RegionAt { guest: u64::MAX - 5, ..at }], "has no end");
        refused(&[at; REGIONS_MAX + 1], "at most 32");
        let on_disk = File::open("/proc/self/exe").unwrap();
        let error = GuestMemory::map(&[(at, on_disk)]).expect_err("it is on a disk");
        assert!(error.contains("is not in memory"), "{error}");
    }
}
