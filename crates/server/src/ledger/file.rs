//! A ledger's file: opened without trust in whoever may have put it there, locked,
//! preallocated.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hemi_engine::format::{Layout, ledger_bytes};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use super::LedgerFileError;
use hemi_units::Size;

/// Type of a tmpfs in `statfs` (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;
/// Type of a ramfs in `statfs`.
const RAMFS: i64 = 0x8584_58f6;
/// Mode of a ledger. Nobody else may write it, since its content is acted upon.
const MODE: u32 = 0o600;
/// Bits of a mode that let every user write (`OTHERS_WRITE`) and that let only owners remove
/// (`STICKY`).
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Largest ledger in bytes: 64 MiB of words for 2^24 regions, and its header.
const BYTES_MAX: u64 = 128 << 20;

/// A ledger's file, locked against a second hemi.
#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    file: File,
    /// The name of a new file until it is complete.
    temporary: Option<PathBuf>,
}

impl LedgerFile {
    /// Opens and locks the file at `path`. Returns `None` if there is none.
    pub(super) fn open(path: &Path) -> Result<Option<LedgerFile>, LedgerFileError> {
        let Some((file, metadata)) = opened(path, options().open(path))? else { return Ok(None) };
        lock(path, &file)?;
        // The previous holder of the lock may have removed or replaced it.
        if !is_at(path, &metadata) {
            return Err(LedgerFileError::InUse { path: path.to_owned() });
        }
        Ok(Some(LedgerFile { path: path.to_owned(), file, temporary: None }))
    }

    /// Creates a ledger for a volume, all zeros. It takes the place of an older one when it is
    /// mapped.
    pub(super) fn create(path: &Path, layout: &Layout) -> Result<LedgerFile, LedgerFileError> {
        let directory = path.parent().unwrap_or(Path::new("."));
        // If this fails, the steps below fail too and report it.
        let _ = std::fs::create_dir_all(directory);
        check_directory(directory)?;
        // The lock on the older ledger is held until the new one has its place. A ledger left
        // by an earlier hemi is not locked.
        let _older = LedgerFile::open(path)?;
        let temporary = path.with_extension("ledger.new");
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&temporary, "cannot be replaced", error));
            }
            _ => {}
        }
        let file = options()
            .create_new(true)
            .mode(MODE)
            .open(&temporary)
            .map_err(|source| failed(&temporary, "cannot be created", source))?;
        let created = LedgerFile { path: path.to_owned(), file, temporary: Some(temporary) };
        lock(path, &created.file)?;
        let bytes = ledger_bytes(layout) as u64;
        rustix::fs::fallocate(&created.file, FallocateFlags::empty(), 0, bytes).map_err(
            |errno| {
                let bytes = Size(bytes);
                LedgerFileError::NoRoom { path: path.to_owned(), bytes, source: errno.into() }
            },
        )?;
        Ok(created)
    }

    /// Reads the file at `path` without locking or changing it. Returns `None` if there is
    /// none. A ledger in use changes while it is read.
    pub(super) fn look(path: &Path) -> Result<Option<Vec<u8>>, LedgerFileError> {
        // Opening anything but a regular file must not block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
        Ok(match opened(path, file)? {
            None => None,
            Some((file, _)) => Some(read(path, &file)?),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the whole file.
    pub(super) fn read(&self) -> Result<Vec<u8>, LedgerFileError> {
        read(&self.path, &self.file)
    }

    /// Returns its descriptor for mapping.
    pub(super) fn descriptor(&self) -> &File {
        &self.file
    }

    /// Gives a new file its final name, in place of an older one.
    pub(super) fn name(&mut self) -> Result<(), LedgerFileError> {
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.path)
                .map_err(|source| failed(&self.path, "cannot be given its name", source))?;
            self.temporary = None;
        }
        Ok(())
    }

    /// Removes the file unless another has taken its place.
    pub(super) fn remove(&self) -> io::Result<()> {
        match self.file.metadata() {
            Ok(own) if is_at(&self.path, &own) => std::fs::remove_file(&self.path),
            _ => Ok(()),
        }
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // A failure is of no consequence: the next start replaces the file.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// Accepts a file that was opened at `path` if there is one and it is this user's.
fn opened(
    path: &Path,
    file: io::Result<File>,
) -> Result<Option<(File, Metadata)>, LedgerFileError> {
    let foreign = || LedgerFileError::Foreign { path: path.to_owned() };
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // The path is a symbolic link.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(foreign());
        }
        Err(source) => return Err(failed(path, "cannot be opened", source)),
    };
    let metadata = file.metadata().map_err(|source| failed(path, "cannot be looked at", source))?;
    if is_own(&metadata) { Ok(Some((file, metadata))) } else { Err(foreign()) }
}

fn read(path: &Path, file: &File) -> Result<Vec<u8>, LedgerFileError> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|source| failed(path, "cannot be read", source))?;
    Ok(bytes)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

pub(super) fn failed(path: &Path, what: &'static str, source: io::Error) -> LedgerFileError {
    LedgerFileError::File { path: path.to_owned(), what, source }
}

/// Returns true if nobody but this user can have written the file.
fn is_own(metadata: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    metadata.is_file() && metadata.uid() == user && metadata.mode() & 0o022 == 0
}

fn lock(path: &Path, file: &File) -> Result<(), LedgerFileError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LedgerFileError::InUse { path: path.to_owned() }),
        Err(errno) => Err(failed(path, "cannot be locked", errno.into())),
    }
}

/// Returns true if this is the file at `path`.
fn is_at(path: &Path, metadata: &Metadata) -> bool {
    let here = std::fs::symlink_metadata(path);
    here.is_ok_and(|here| (here.dev(), here.ino()) == (metadata.dev(), metadata.ino()))
}

/// Checks that an existing directory may hold ledgers: it is on tmpfs, and no other user may
/// replace its files.
///
/// # Errors
/// Returns [`LedgerFileError::NotTmpfs`] or [`LedgerFileError::OpenToAll`], or
/// [`LedgerFileError::File`] if the directory cannot be examined.
pub fn check_directory(directory: &Path) -> Result<(), LedgerFileError> {
    let found = rustix::fs::statfs(directory)
        .map_err(|errno| failed(directory, "its directory cannot be used", errno.into()))?;
    if found.f_type as i64 != TMPFS && found.f_type as i64 != RAMFS {
        return Err(LedgerFileError::NotTmpfs { directory: directory.to_owned() });
    }
    let metadata = std::fs::metadata(directory)
        .map_err(|source| failed(directory, "its directory cannot be used", source))?;
    if metadata.mode() & OTHERS_WRITE != 0 && metadata.mode() & STICKY == 0 {
        return Err(LedgerFileError::OpenToAll { directory: directory.to_owned() });
    }
    Ok(())
}
