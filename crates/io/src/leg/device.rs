//! One regular file or block device: opening, locking, alignment, and blocking I/O.
//!
//! The lock lies on the open file description that carries the I/O. Every I/O in flight holds
//! that description too, so when hemi is killed, the lock falls only after the last I/O has
//! ended: a successor that gets the lock cannot be overtaken by its predecessor's writes.

mod holders;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use self::holders::{holder, mounted_elsewhere};
use super::open::{FileOptions, OpenError, Purpose};
use crate::memory::{Mapping, PAGE_BYTES, Span};
use crate::probe::{Storage, folder_of};
use crate::process::{is_dead, is_udev};

/// Granularity of blocking I/O, in bytes.
const BOUNCE_BYTES: usize = 1 << 20;
/// Longest wait for a lock held by a dead process or by udev.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for a block device with no known holder.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// Pause between the first attempts at the lock, before its owner is looked up.
const LOCK_RETRY_FIRST: Duration = Duration::from_millis(1);
/// Time before the owner of a lock is looked up. The lookup takes 10 ms, and a process that has
/// just been killed has usually gone by then.
const LOCK_UNASKED: Duration = Duration::from_millis(50);
/// The unit that the size of a new regular file is rounded up to.
const FILE_ROUND_BYTES: u64 = PAGE_BYTES as u64;

/// The kind of file behind a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
}

/// An open, locked file or block device.
#[derive(Debug)]
pub struct Device {
    pub(super) descriptor: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) kind: DeviceKind,
    pub(super) size: u64,
    pub(super) block: u32,
    /// True if holes can be punched (`punch`) and ranges zeroed (`zero_range`) without being
    /// written.
    pub(super) punch: bool,
    pub(super) zero_range: bool,
}

impl Device {
    /// Opens `path` for `purpose` and locks it unless it is only inspected.
    pub fn open(path: &Path, options: FileOptions, purpose: Purpose) -> Result<Device, OpenError> {
        let existing = match rustix::fs::stat(path) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) if matches!(purpose, Purpose::Create { .. }) => {
                if is_among_devices(path) {
                    return Err(OpenError::NoDevice { path: path.into() });
                }
                None
            }
            Err(errno) => return Err(OpenError::from_errno(path, errno)),
        };
        let kind = match existing.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile) => DeviceKind::Regular,
            Some(FileType::BlockDevice) => DeviceKind::Block,
            Some(other) => {
                let found = match other {
                    FileType::Directory => "a directory",
                    FileType::CharacterDevice => "a character device",
                    FileType::Fifo => "a pipe",
                    FileType::Socket => "a socket",
                    _ => "something else",
                };
                return Err(OpenError::NotStorage { path: path.into(), found });
            }
        };
        if kind == DeviceKind::Block && purpose != Purpose::Inspect && is_read_only(path) {
            // The kernel would open it for writing and then refuse each write.
            return Err(OpenError::read_only_device(path));
        }
        let descriptor = claim(path, kind, existing.is_none(), options, purpose)?;
        if purpose != Purpose::Inspect {
            lock(path, &descriptor)?;
        }
        if let (DeviceKind::Regular, Purpose::Create { size, .. }) = (kind, purpose) {
            extend(path, existing.is_none(), &descriptor, size, options)?;
        }
        let size = rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::End(0))
            .map_err(|errno| OpenError::from_errno(path, errno))?;
        let mut device = Device {
            descriptor,
            path: path.into(),
            kind,
            size,
            block: 512,
            punch: false,
            zero_range: false,
        };
        device.block = device.logical_block(options.direct)?;
        if device.block as usize > PAGE_BYTES {
            return Err(OpenError::Block { path: path.into(), block: device.block });
        }
        device.probe_zeroes(purpose);
        Ok(device)
    }

    /// Gives up the lock (see [`OpenLeg::unlock`](super::OpenLeg::unlock)).
    pub(super) fn unlock(&self) {
        // A file that was only inspected is not locked, which is no error. There is no other.
        let _ = rustix::fs::flock(&self.descriptor, FlockOperation::Unlock);
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the smallest unit of reads and writes in bytes, mostly 512 or 4096.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Returns the path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if this is a regular file whose space is not all reserved.
    pub fn is_thin(&self) -> bool {
        // In units of 512 bytes, whatever the file system's block.
        let allocated = rustix::fs::fstat(&self.descriptor).map(|stat| stat.st_blocks as u64 * 512);
        self.kind == DeviceKind::Regular && allocated.is_ok_and(|bytes| bytes < self.size)
    }

    /// Returns true if ranges can be zeroed without being written.
    pub fn fast_zeroes(&self) -> bool {
        self.punch || self.zero_range
    }

    /// Returns the alignment of direct I/O in bytes. For a device that is its logical block,
    /// for a file the value of statx (Linux 6.1) or else the one found by trying.
    fn logical_block(&self, direct: bool) -> Result<u32, OpenError> {
        let error = |errno| OpenError::from_errno(&self.path, errno);
        if self.kind == DeviceKind::Block {
            return rustix::fs::ioctl_blksszget(&self.descriptor).map_err(error);
        }
        if !direct {
            return Ok(512);
        }
        let flags = rustix::fs::AtFlags::EMPTY_PATH;
        let mask = rustix::fs::StatxFlags::DIOALIGN;
        if let Ok(stat) = rustix::fs::statx(&self.descriptor, "", flags, mask) {
            let known = stat.stx_mask & mask.bits() != 0;
            if known && stat.stx_dio_offset_align > 0 {
                return Ok(stat.stx_dio_offset_align.max(512));
            }
            if known {
                return Err(OpenError::no_direct(&self.path, &self.descriptor));
            }
        }
        let probe = bounce(512, |span| match read_once(&self.descriptor, 0, span.slice(0, 512)) {
            Ok(_) => Ok(512),
            Err(Errno::INVAL) => Ok(PAGE_BYTES as u32),
            Err(errno) => Err(errno),
        });
        probe.map_err(error)
    }

    /// Finds out how zeros can be made. For a file it punches a hole past the end, which
    /// changes nothing and shows whether the file system can. For a device it reads the queue
    /// limits.
    fn probe_zeroes(&mut self, purpose: Purpose) {
        if purpose == Purpose::Inspect {
            return;
        }
        match self.kind {
            DeviceKind::Regular => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let end = self.size.next_multiple_of(FILE_ROUND_BYTES);
                self.punch =
                    rustix::fs::fallocate(&self.descriptor, flags, end, FILE_ROUND_BYTES).is_ok();
                // A file system that can punch holes can mostly zero a range too. The first
                // refusal turns it off.
                self.zero_range = self.punch;
            }
            DeviceKind::Block => {
                let fast = queue_limit(&self.descriptor, "write_zeroes_max_bytes")
                    .is_some_and(|bytes| bytes > 0);
                (self.punch, self.zero_range) = (fast, fast);
            }
        }
    }

    /// Reads `into.len()` bytes from `offset`. Any alignment is allowed. Reading past the end
    /// is an error.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let block = u64::from(self.block.max(512));
        let mut done = 0;
        while done < into.len() {
            let position = offset + done as u64;
            let start = position / block * block;
            let skip = (position - start) as usize;
            let wanted = (skip + into.len() - done).next_multiple_of(block as usize);
            let length = wanted.min(BOUNCE_BYTES);
            done += bounce(length, |span| {
                let read = read_full(&self.descriptor, start, span)?;
                if read <= skip {
                    return Err(Errno::NXIO);
                }
                let count = (read - skip).min(into.len() - done);
                // SAFETY: the span is of this thread's bounce buffer, which only this call uses.
                let found = unsafe { span.bytes() };
                into[done..done + count].copy_from_slice(&found[skip..skip + count]);
                Ok(count)
            })
            .map_err(|errno| match errno {
                Errno::NXIO => io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!(
                        "{} ends before byte {}",
                        self.path.display(),
                        offset + into.len() as u64
                    ),
                ),
                errno => errno.into(),
            })?;
        }
        Ok(())
    }

    /// Reads like [`Device::read_at`], past what the page cache has of another path to the same storage.
    pub fn read_fresh(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let all = std::num::NonZeroU64::new(into.len() as u64);
        // A file system that does not know the advice has no cache to empty.
        let _ = rustix::fs::fadvise(&self.descriptor, offset, all, rustix::fs::Advice::DontNeed);
        self.read_at(offset, into)
    }

    /// Returns the place of its bytes, if the system tells.
    pub fn storage(&self) -> Option<Storage> {
        let file = std::fs::File::from(self.descriptor.try_clone().ok()?);
        Storage::of(&file.metadata().ok()?)
    }

    /// Writes `bytes` to `offset`. Both must be multiples of [`Device::block`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let block = u64::from(self.block);
        if !offset.is_multiple_of(block) || !(bytes.len() as u64).is_multiple_of(block) {
            let message = format!(
                "{} bytes at {offset} of {} are not aligned to its {block}-byte blocks",
                bytes.len(),
                self.path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        for (index, part) in bytes.chunks(BOUNCE_BYTES).enumerate() {
            let position = offset + (index * BOUNCE_BYTES) as u64;
            bounce(part.len(), |span| {
                span.copy_from(part);
                write_full(&self.descriptor, position, span)
            })?;
        }
        Ok(())
    }

    /// Makes everything written durable, including the file's size.
    pub fn flush(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }
}

/// Returns true if a file created at `path` would lie in memory among the device nodes: in
/// `/dev` or below it, but not on a file system mounted there, such as `/dev/shm`.
fn is_among_devices(path: &Path) -> bool {
    const DEVICES: &str = "/dev";
    let Ok(folder) = folder_of(path).canonicalize() else { return false };
    let number = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    folder.starts_with(DEVICES) && number(&folder) == number(Path::new(DEVICES))
}

/// Opens the file or device. Distinguishes a block device in use by another hemi from a mounted
/// one, and waits for a hemi that has ended but whose last I/O has not.
fn claim(
    path: &Path,
    kind: DeviceKind,
    create: bool,
    options: FileOptions,
    purpose: Purpose,
) -> Result<OwnedFd, OpenError> {
    let begun = std::time::Instant::now();
    loop {
        let error = match open_descriptor(path, kind, create, options, purpose) {
            Err(error @ OpenError::Held { .. }) => error,
            other => return other,
        };
        let plain = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        match plain.ok().and_then(|descriptor| lock_owner(&descriptor)) {
            Some(process) if lets_go(process) && begun.elapsed() <= LOCK_WAIT_MAX => {
                std::thread::sleep(LOCK_RETRY);
            }
            Some(process) => return Err(in_use(path, Some(process))),
            // Its lock has fallen and the device is being let go of, unless somebody else
            // holds it.
            None if begun.elapsed() <= RELEASE_WAIT_MAX && holder(path).is_none() => {
                std::thread::sleep(LOCK_RETRY);
            }
            None => {
                return Err(match error {
                    OpenError::Held { path, by: None } => {
                        let by = mounted_elsewhere(&path);
                        OpenError::Held { path, by }
                    }
                    error => error,
                });
            }
        }
    }
}

fn open_descriptor(
    path: &Path,
    kind: DeviceKind,
    create: bool,
    options: FileOptions,
    purpose: Purpose,
) -> Result<OwnedFd, OpenError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if purpose == Purpose::Inspect { OFlags::RDONLY } else { OFlags::RDWR };
    if options.direct {
        flags |= OFlags::DIRECT;
    }
    if kind == DeviceKind::Block && purpose != Purpose::Inspect {
        // Claims it exclusively against mounts, md, dm and swap.
        flags |= OFlags::EXCL;
    }
    if create {
        flags |= OFlags::CREATE | OFlags::EXCL;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags, mode) {
        Ok(descriptor) => Ok(descriptor),
        Err(Errno::BUSY) => Err(OpenError::Held { path: path.into(), by: holder(path) }),
        // The file system may have created the file before it refused O_DIRECT.
        Err(Errno::INVAL) if options.direct => {
            let plain = flags - OFlags::DIRECT - OFlags::CREATE - OFlags::EXCL;
            match rustix::fs::open(path, plain, mode) {
                Ok(descriptor) => {
                    let error = OpenError::no_direct(path, &descriptor);
                    if create {
                        let _ = rustix::fs::unlink(path);
                    }
                    Err(error)
                }
                Err(_) => Err(OpenError::from_errno(path, Errno::INVAL)),
            }
        }
        Err(errno) => Err(OpenError::from_errno(path, errno)),
    }
}

/// Returns true if a process that holds a lock will soon let go of it by itself.
fn lets_go(process: u32) -> bool {
    is_dead(process) || is_udev(process)
}

/// Returns the error of a leg whose lock somebody holds. I/O of a process that has ended holds it if the
/// drive hangs.
fn in_use(path: &Path, by: Option<u32>) -> OpenError {
    match by.filter(|process| is_dead(*process)) {
        Some(by) => OpenError::StillWritten { path: path.into(), by },
        None => OpenError::InUse { path: path.into(), by },
    }
}

/// Takes the exclusive lock on this very open file description. A holder that is dead still
/// has I/O in the kernel, which mostly ends in milliseconds: that is waited for, and so is udev.
fn lock(path: &Path, descriptor: &OwnedFd) -> Result<(), OpenError> {
    let begun = std::time::Instant::now();
    loop {
        match rustix::fs::flock(descriptor, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_UNASKED => {
                std::thread::sleep(LOCK_RETRY_FIRST);
            }
            Err(Errno::WOULDBLOCK) => {
                let by = lock_owner(descriptor);
                let waits = by.is_none_or(lets_go);
                if !waits || begun.elapsed() > LOCK_WAIT_MAX {
                    return Err(in_use(path, by));
                }
                std::thread::sleep(LOCK_RETRY);
            }
            Err(errno) => return Err(OpenError::from_errno(path, errno)),
        }
    }
}

/// Extends a file to at least `size` bytes and reserves the space unless it is to be sparse.
fn extend(
    path: &Path,
    created: bool,
    descriptor: &OwnedFd,
    size: u64,
    options: FileOptions,
) -> Result<(), OpenError> {
    let error = |errno| OpenError::from_errno(path, errno);
    let current = rustix::fs::fstat(descriptor).map_err(error)?.st_size as u64;
    let wanted = size.next_multiple_of(FILE_ROUND_BYTES);
    if current >= wanted {
        return Ok(());
    }
    if !options.sparse {
        // Free space is checked first: a reservation that fails half-way would fill the disk
        // under everybody else for that moment.
        let space = rustix::fs::fstatvfs(descriptor).map_err(error)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < wanted - current {
            if created {
                let _ = rustix::fs::unlink(path);
            }
            let source = Errno::NOSPC.into();
            return Err(OpenError::Space { path: path.into(), size: wanted, source });
        }
    }
    if let Err(errno) = rustix::fs::ftruncate(descriptor, wanted) {
        if created {
            let _ = rustix::fs::unlink(path);
        }
        return Err(match errno {
            Errno::FBIG => OpenError::TooLarge { path: path.into(), size: wanted },
            errno => error(errno),
        });
    }
    if options.sparse {
        return Ok(());
    }
    match rustix::fs::fallocate(descriptor, FallocateFlags::empty(), 0, wanted) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => {
            // Leave nothing half done behind.
            let _ = rustix::fs::ftruncate(descriptor, current);
            if created {
                let _ = rustix::fs::unlink(path);
            }
            Err(OpenError::Space { path: path.into(), size: wanted, source: errno.into() })
        }
    }
}

/// Reads a number from the queue limits of a block device or of the disk it is a partition of.
fn queue_limit(descriptor: &OwnedFd, name: &str) -> Option<u64> {
    let stat = rustix::fs::fstat(descriptor).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    ["queue", "../queue"]
        .iter()
        .find_map(|folder| std::fs::read_to_string(base.join(folder).join(name)).ok())
        .and_then(|text| text.trim().parse().ok())
}

/// Returns true if the kernel marks a block device, or the disk it is a partition of, as
/// read-only.
fn is_read_only(path: &Path) -> bool {
    let Ok(stat) = rustix::fs::stat(path) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let disk = base.join("partition").exists().then(|| base.join("../ro"));
    std::iter::once(base.join("ro"))
        .chain(disk)
        .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == "1"))
}

/// Returns the process that holds the lock of a file, as far as the system knows it.
fn lock_owner(descriptor: &OwnedFd) -> Option<u32> {
    let stat = rustix::fs::fstat(descriptor).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let inode = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks
        .lines()
        .filter(|line| line.contains("FLOCK") && line.contains(&inode))
        .find_map(|line| line.split_whitespace().nth(4)?.parse().ok())
}

/// Runs `use_it` with `length` bytes of aligned memory. Each thread has its own, so a drive
/// that hangs delays nobody else's I/O.
fn bounce<T>(length: usize, use_it: impl FnOnce(Span) -> Result<T, Errno>) -> Result<T, Errno> {
    thread_local! {
        static BOUNCE: RefCell<Option<Mapping>> = const { RefCell::new(None) };
    }
    BOUNCE.with_borrow_mut(|bounce| {
        if bounce.is_none() {
            *bounce = Mapping::new(BOUNCE_BYTES, false).ok();
        }
        let mapping = bounce.as_ref().ok_or(Errno::NOMEM)?;
        use_it(mapping.span(0, length))
    })
}

fn read_once(descriptor: impl AsFd, offset: u64, mut span: Span) -> Result<usize, Errno> {
    loop {
        // SAFETY: the span is of this thread's bounce buffer, which only this call uses.
        match rustix::io::pread(&descriptor, unsafe { span.bytes_mut() }, offset) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Reads until the span is full or the file ends.
fn read_full(descriptor: impl AsFd, offset: u64, span: Span) -> Result<usize, Errno> {
    let mut done = 0;
    while done < span.length() {
        let rest = span.slice(done, span.length() - done);
        match read_once(&descriptor, offset + done as u64, rest)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

fn write_full(descriptor: impl AsFd, offset: u64, span: Span) -> Result<(), Errno> {
    let mut done = 0;
    while done < span.length() {
        let rest = span.slice(done, span.length() - done);
        // SAFETY: the span is of this thread's bounce buffer, which only this call uses.
        match rustix::io::pwrite(&descriptor, unsafe { rest.bytes() }, offset + done as u64) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
