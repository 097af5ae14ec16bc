//! Prepares a leg's storage for formatting: destroys its content, and finds out whether it is known
//! to read as zeros.
//!
//! It works on handles of its own, through the page cache, while the leg is held open and locked.
//! Everything is flushed before the leg is written to.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use hemi_engine::format::{BLOCK_BYTES, Layout, block};

use super::candidate::{Candidate, Member};
use hemi_io::blocking::BlockingLeg;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::{apart, stripe};
use hemi_io::probe::{Kind, reads_as_zeros};

/// Maximum number of bytes zeroed by one call, which cannot be interrupted.
const ZERO_AT_ONCE: u64 = 1 << 30;
/// Maximum number of zero bytes written at once if the system cannot zero a range itself.
const WRITE_AT_ONCE: u64 = 1 << 20;
/// Bytes zeroed at either end of the data of a device whose content may be destroyed, where other
/// formats have their signatures.
const WIPE_BYTES: u64 = 1 << 20;

/// Destroys content that may be destroyed, and zeroes the data area if `zero`. Returns true if it
/// is known to read as zeros.
pub(super) fn prepare(
    candidate: &Candidate,
    leg: &dyn BlockingLeg,
    layout: &Layout,
    zero: bool,
) -> io::Result<bool> {
    if candidate.members.is_empty() {
        return prepare_remote(candidate, leg, layout, zero);
    }
    let mut is_zero = !candidate.adopted;
    for (number, member) in candidate.members.iter().enumerate() {
        if candidate.adopted && number == 0 {
            continue;
        }
        let storage = Storage::open(member)?;
        let Areas { head, tail, data } = Areas::of(candidate, number, layout);
        if member.wipe {
            storage.wipe(head, tail)?;
        }
        if !data.is_empty() && !storage.is_zero(data.start, data.end) {
            if zero {
                storage.zero_data(data.start, data.end)?;
            } else {
                is_zero = false;
            }
        }
    }
    Ok(is_zero)
}

/// The areas of a leg's member, in bytes.
struct Areas {
    /// Bytes for metadata at its beginning.
    head: u64,
    /// Bytes for metadata at its end.
    tail: u64,
    /// The range of bytes for data.
    data: Range<u64>,
}

impl Areas {
    fn of(candidate: &Candidate, member: usize, layout: &Layout) -> Areas {
        match candidate.spec {
            // The offset of the volume's first byte on a member depends on the chunk, so the whole
            // member counts.
            LegSpec::Stripe { .. } => Areas {
                head: stripe::DATA_OFFSET + layout.data_offset(),
                tail: 0,
                data: stripe::DATA_OFFSET..candidate.share(member, layout),
            },
            LegSpec::End(_) => {
                Areas { head: 0, tail: layout.data_offset(), data: 0..layout.volume_bytes() }
            }
            LegSpec::External { .. } if member == 0 => {
                Areas { head: 0, tail: 0, data: 0..layout.volume_bytes() }
            }
            LegSpec::External { .. } => {
                Areas { head: apart::METADATA_OFFSET + layout.data_offset(), tail: 0, data: 0..0 }
            }
            LegSpec::Path(_) | LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. } => Areas {
                head: layout.data_offset(),
                tail: 0,
                data: layout.data_offset()..layout.leg_bytes(),
            },
        }
    }
}

/// Prepares a remote leg. Only bytes written here are known to be zero.
fn prepare_remote(
    candidate: &Candidate,
    leg: &dyn BlockingLeg,
    layout: &Layout,
    zero: bool,
) -> io::Result<bool> {
    if candidate.wipe_remote || zero {
        for slot in 0..2 {
            leg.write_at(Layout::superblock_address(slot), &block::blank())?;
        }
        leg.flush()?;
    }
    if zero {
        write_zeros(layout.data_offset(), layout.leg_bytes(), |at, zeros| leg.write_at(at, zeros))?;
        leg.flush()?;
    } else if candidate.wipe_remote {
        let end = leg.size() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let head = (layout.data_offset() + WIPE_BYTES).min(end);
        write_zeros(0, head, |at, zeros| leg.write_at(at, zeros))?;
        write_zeros(end - WIPE_BYTES.min(end), end, |at, zeros| leg.write_at(at, zeros))?;
        leg.flush()?;
    }
    Ok(zero)
}

/// Blanks a leg's metadata, so that nothing left there is ever taken for the volume's.
pub(super) fn blank_metadata(leg: &dyn BlockingLeg, layout: &Layout) -> io::Result<()> {
    write_zeros(0, layout.data_offset(), |at, zeros| leg.write_at(at, zeros))?;
    leg.flush()
}

/// Has the kernel reread the partition tables of devices that were wiped. If it cannot, the names
/// of the partitions stay without meaning until the next boot.
pub(super) fn forget_partitions(candidates: &[Candidate]) {
    let members = candidates.iter().flat_map(|candidate| &candidate.members);
    for member in members.filter(|member| member.wipe && member.probe.kind == Kind::Block) {
        reread_partitions(&member.path);
    }
}

fn reread_partitions(path: &Path) {
    for program in ["blockdev", "/usr/sbin/blockdev", "/sbin/blockdev"] {
        let mut command = Command::new(program);
        command.arg("--rereadpt").arg(path).stdin(Stdio::null());
        if command.output().is_ok() {
            return;
        }
    }
}

/// A file or device, open for writing.
struct Storage {
    file: File,
    size: u64,
    device: bool,
}

impl Storage {
    fn open(member: &Member) -> io::Result<Storage> {
        let file = File::options().read(true).write(true).open(&member.path)?;
        let size = rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(Storage { file, size, device: member.probe.kind == Kind::Block })
    }

    /// Destroys the content so that nothing recognises it any more. A file is zeroed as a whole. Of
    /// a device, the first `head` and the last `tail` bytes and both ends of the rest are zeroed.
    fn wipe(&self, head: u64, tail: u64) -> io::Result<()> {
        self.erase_superblocks()?;
        if self.device {
            self.zero(0, (head + WIPE_BYTES).min(self.size))?;
            // Metadata at the end begins at a whole mebibyte, so it may reach one mebibyte further.
            let tail = (tail + 2 * WIPE_BYTES).min(self.size);
            self.zero(self.size - tail, self.size)?;
        } else {
            self.zero(0, self.size)?;
        }
        self.file.sync_all()
    }

    fn zero_data(&self, start: u64, end: u64) -> io::Result<()> {
        self.erase_superblocks()?;
        self.zero(start, end)?;
        self.file.sync_all()
    }

    /// Erases superblocks first: a crash before the end of create must not leave a superblock or a
    /// stripe's identity that refers to half-destroyed content.
    fn erase_superblocks(&self) -> io::Result<()> {
        let heads = [Some(0), apart::head_at_end(self.size)];
        for head in heads.into_iter().flatten() {
            for slot in 0..2 {
                let address = head + Layout::superblock_address(slot);
                if address + BLOCK_BYTES as u64 <= self.size {
                    self.file.write_all_at(&block::blank(), address)?;
                }
            }
        }
        self.file.sync_all()
    }

    /// Returns true if a range of a regular file is known to read as zeros: a hole, or preallocated
    /// and never written.
    fn is_zero(&self, start: u64, end: u64) -> bool {
        !self.device && reads_as_zeros(&self.file, start, end)
    }

    fn zero(&self, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let bytes = ZERO_AT_ONCE.min(end - at);
            match rustix::fs::fallocate(&self.file, FallocateFlags::ZERO_RANGE, at, bytes) {
                Ok(()) => at += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    return write_zeros(at, end, |at, zeros| self.file.write_all_at(zeros, at));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

pub(super) fn write_zeros(
    start: u64,
    end: u64,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let zeros = vec![0; WRITE_AT_ONCE as usize];
    let mut at = start;
    while at < end {
        let bytes = WRITE_AT_ONCE.min(end - at);
        write(at, &zeros[..bytes as usize])?;
        at += bytes;
    }
    Ok(())
}
