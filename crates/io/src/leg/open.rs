//! Opened legs: the blocking view that create, inspect and recovery use.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hemi_engine::format::LegDescription;
use hemi_engine::io::LegTraits;
use hemi_engine::recovery::HEAD_BYTES;
use rustix::io::Errno;

use crate::config::legs::{LegConfig, LegSpec, LegTls};

use super::apart::{ApartError, MetadataPlace, OpenApart};
use super::describe;
use super::device::Device;
use super::nbd::{BlockingNbd, NbdError, NbdOptions};
use super::stripe::{OpenStripe, StripeError};

/// The options for opening files and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOptions {
    /// Bypasses the page cache (O_DIRECT). Off only on file systems that cannot do it. A flush
    /// makes data durable as before, but the leg then competes with everything else for memory.
    pub direct: bool,
    /// Leaves a new file sparse instead of reserving its space.
    pub sparse: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { direct: true, sparse: false }
    }
}

/// The purpose for which a leg is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading and writing it. The leg is locked, and the members of a stripe must belong
    /// together.
    Serve,
    /// Formatting it. The leg is locked. A missing file is created and a short one extended to
    /// `size` bytes. The members of a stripe need not belong together yet.
    Create {
        /// The least size of the leg in bytes. For a stripe, the sum over all members.
        size: u64,
        /// The byte of the leg at which its data begins, a multiple of 1 MiB.
        data_offset: u64,
    },
    /// Looking at it even if it is in use. The leg is opened read-only and not locked.
    Inspect,
}

/// An error in opening a leg.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path is neither a regular file nor a block device.
    #[error("{path:?} is {found}; a leg is a regular file or a block device")]
    NotStorage {
        /// Path of the leg.
        path: PathBuf,
        /// The kind of thing found there.
        found: &'static str,
    },
    /// Nothing exists at the path.
    #[error("there is no {path:?}; check the path")]
    Missing {
        /// Path of the leg.
        path: PathBuf,
    },
    /// Nothing exists at the path, which lies among the device nodes.
    #[error(
        "there is no device {path:?}, and a file created there would be in memory and gone at \
         the next boot; check the name (lsblk, ls -l /dev/disk/by-id), or name a file on \
         a disk"
    )]
    NoDevice {
        /// Path of the leg.
        path: PathBuf,
    },
    /// The user may not open it.
    #[error(
        "no permission to open {path:?}: {source}; run hemi as a user who may read and write \
         it, or change its owner or mode (a file may also be immutable: lsattr, chattr -i)"
    )]
    Permission {
        /// Path of the leg.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It can be read but not written.
    #[error("{path:?} cannot be written: {source}; {way_out}")]
    ReadOnly {
        /// Path of the leg.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
        /// Advice to the operator.
        way_out: &'static str,
    },
    /// Another hemi has locked it.
    #[error(
        "{path:?} is in use by another hemi{}; stop that one first",
        by.map_or(String::new(), |process| format!(" (process {process})"))
    )]
    InUse {
        /// Path of the leg.
        path: PathBuf,
        /// The process that holds the lock, if known.
        by: Option<u32>,
    },
    /// Locked by I/O of a hemi that has ended.
    #[error(
        "the last I/O of a hemi that has ended (process {by}) is still in flight on {path:?}: the \
         drive hangs, and the lock falls when it answers"
    )]
    StillWritten {
        /// Its path.
        path: PathBuf,
        /// The process.
        by: u32,
    },
    /// Mounted, or part of something.
    #[error(
        "{path:?} is {}; unmount it or stop what holds it",
        by.as_deref().unwrap_or("mounted or held exclusively by another program")
    )]
    Held {
        /// Path of the leg.
        path: PathBuf,
        /// The holder, if known.
        by: Option<String>,
    },
    /// The file system refused O_DIRECT.
    #[error(
        "{path:?} lies on {file_system}, which cannot bypass the page cache (O_DIRECT). Put \
         the leg on another file system, or set `direct = false` for it (slower, competes for \
         memory; flushes still reach the disk)"
    )]
    NoDirect {
        /// Path of the leg.
        path: PathBuf,
        /// The file system's name.
        file_system: String,
    },
    /// The device's blocks are larger than a page.
    #[error("{path:?} has blocks of {block} bytes; hemi handles up to 4096")]
    Block {
        /// Path of the leg.
        path: PathBuf,
        /// Size of a block in bytes.
        block: u32,
    },
    /// The file's space could not be reserved.
    #[error(
        "could not reserve {size} bytes for {path:?}: {source}; free some space, make the \
         volume smaller, or create it sparse (nothing reserved, writes can fail on a full disk)"
    )]
    Space {
        /// Path of the leg.
        path: PathBuf,
        /// Size wanted, in bytes.
        size: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file system cannot hold a file that large.
    #[error(
        "{path:?} cannot have {size} bytes: its file system cannot hold a file that large; make \
         the volume smaller"
    )]
    TooLarge {
        /// Path of the leg.
        path: PathBuf,
        /// Size wanted, in bytes.
        size: u64,
    },
    /// The members of a stripe do not fit together.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The external metadata of a leg was not found.
    #[error(transparent)]
    Apart(Box<ApartError>),
    /// Any other error of the system.
    #[error("could not open {path:?}: {source}")]
    Io {
        /// Path of the leg.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The NBD export cannot be used.
    #[error("the leg {spec}: {source}")]
    Nbd {
        /// The leg's name.
        spec: String,
        /// The reason.
        source: NbdError,
    },
}

impl From<ApartError> for OpenError {
    fn from(error: ApartError) -> OpenError {
        OpenError::Apart(Box::new(error))
    }
}

impl OpenError {
    /// Returns true if the leg is not there or does not answer: its path is gone, the drive behind it
    /// fails or hangs, or nobody serves the export. False for what the operator has to mend first, such
    /// as permissions, a lock or a mount.
    pub fn is_absence(&self) -> bool {
        match self {
            OpenError::Missing { .. } | OpenError::StillWritten { .. } => true,
            OpenError::Io { source, .. } => {
                const GONE: [Errno; 8] = [
                    Errno::NXIO,
                    Errno::NODEV,
                    Errno::NOMEDIUM,
                    Errno::IO,
                    Errno::REMOTEIO,
                    // The server behind a mounted file system is gone.
                    Errno::NOTCONN,
                    Errno::STALE,
                    Errno::TIMEDOUT,
                ];
                GONE.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
            }
            OpenError::Nbd { source, .. } => source.is_absence(),
            _ => false,
        }
    }

    pub(super) fn from_errno(path: &Path, errno: Errno) -> OpenError {
        let path = path.into();
        let source = errno.into();
        match errno {
            Errno::NOENT => OpenError::Missing { path },
            Errno::ACCESS | Errno::PERM => OpenError::Permission { path, source },
            Errno::ROFS => {
                let way_out = "its file system is mounted read-only: remount it for writing \
                               (mount -o remount,rw), or put the leg elsewhere";
                OpenError::ReadOnly { path, source, way_out }
            }
            _ => OpenError::Io { path, source },
        }
    }

    /// Returns the error for a block device that the kernel keeps read-only.
    pub(super) fn read_only_device(path: &Path) -> OpenError {
        OpenError::ReadOnly {
            path: path.into(),
            source: Errno::ROFS.into(),
            way_out: "the block device is read-only: make it writable (blockdev --setrw, a loop \
                      device attached without --read-only, the drive's own write protection), \
                      or use another",
        }
    }

    pub(super) fn no_direct(path: &Path, descriptor: &OwnedFd) -> OpenError {
        OpenError::NoDirect { path: path.into(), file_system: file_system(descriptor) }
    }
}

/// Returns the name of the file system a file lies on.
fn file_system(descriptor: &OwnedFd) -> String {
    let Ok(stat) = rustix::fs::fstatfs(descriptor) else {
        return "a file system".into();
    };
    let name = match stat.f_type as u32 {
        0x0000_EF53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683E => "Btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58F6 => "ramfs",
        0x0000_6969 => "NFS",
        0x6573_5546 => "a FUSE file system",
        0x794C_7630 => "overlayfs",
        0x2FC1_2FC1 => "ZFS",
        0xF2F5_2010 => "F2FS",
        0xFF53_4D42 => "CIFS",
        other => return format!("a file system of type {other:#x}"),
    };
    name.into()
}

/// An opened leg that the reactor has not taken yet.
#[derive(Debug)]
pub enum OpenLeg {
    /// One file or block device.
    File(Device),
    /// Several of them, striped.
    Stripe(OpenStripe),
    /// One file or block device whose data begins at its first byte and whose metadata lies
    /// elsewhere.
    Apart(OpenApart),
    /// An NBD export.
    Nbd(Box<BlockingNbd>),
}

impl OpenLeg {
    /// Opens the leg named by `spec`.
    pub fn open(
        spec: &LegSpec,
        options: FileOptions,
        purpose: Purpose,
    ) -> Result<OpenLeg, OpenError> {
        match spec {
            LegSpec::Path(path) => Device::open(path, options, purpose).map(OpenLeg::File),
            LegSpec::Stripe { paths, chunk } => {
                OpenStripe::open(paths, chunk.0, options, purpose).map(OpenLeg::Stripe)
            }
            LegSpec::End(_) | LegSpec::External { .. } => {
                OpenApart::open(spec, options, purpose).map(OpenLeg::Apart)
            }
            LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. } => {
                OpenLeg::open_nbd(spec, NbdOptions::default(), None, purpose)
            }
        }
    }

    /// Opens a leg as the configuration describes it.
    pub fn configured(config: &LegConfig, purpose: Purpose) -> Result<OpenLeg, OpenError> {
        if !config.path.is_remote() {
            let options = FileOptions { direct: config.direct, ..FileOptions::default() };
            return OpenLeg::open(&config.path, options, purpose);
        }
        let default = NbdOptions::default();
        let options = NbdOptions {
            connections: config.connections.unwrap_or(default.connections),
            quarantine: config.quarantine.map_or(default.quarantine, |time| time.duration()),
        };
        OpenLeg::open_nbd(&config.path, options, config.tls.as_ref(), purpose)
    }

    fn open_nbd(
        spec: &LegSpec,
        options: NbdOptions,
        tls: Option<&LegTls>,
        purpose: Purpose,
    ) -> Result<OpenLeg, OpenError> {
        match BlockingNbd::open(spec, options, tls, purpose) {
            Ok(export) => Ok(OpenLeg::Nbd(Box::new(export))),
            Err(source) => Err(OpenError::Nbd { spec: spec.to_string(), source }),
        }
    }

    /// Returns the time for which the last writes of a process may still land after it has
    /// ended: a remote leg's quarantine. `None` for local legs, whose lock covers that.
    pub fn quarantine(&self) -> Option<std::time::Duration> {
        match self {
            OpenLeg::File(_) | OpenLeg::Stripe(_) | OpenLeg::Apart(_) => None,
            OpenLeg::Nbd(export) => Some(export.quarantine()),
        }
    }

    /// Gives up the locks of the leg's files and devices for everyone who holds a copy of a
    /// descriptor. Only for a leg that has no I/O in flight and will get none.
    pub fn unlock(&self) {
        match self {
            OpenLeg::File(device) => device.unlock(),
            OpenLeg::Stripe(stripe) => stripe.unlock(),
            OpenLeg::Apart(apart) => apart.unlock(),
            // An export has no locks.
            OpenLeg::Nbd(_) => {}
        }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            OpenLeg::File(device) => device.size(),
            OpenLeg::Stripe(stripe) => stripe.size(),
            OpenLeg::Apart(apart) => apart.size(),
            OpenLeg::Nbd(export) => export.size(),
        }
    }

    /// Returns the smallest unit of reads and writes, in bytes.
    pub fn block(&self) -> u32 {
        match self {
            OpenLeg::File(device) => device.block(),
            OpenLeg::Stripe(stripe) => stripe.block(),
            OpenLeg::Apart(apart) => apart.block(),
            OpenLeg::Nbd(export) => export.block(),
        }
    }

    /// Returns true if ranges can be zeroed without being written.
    pub fn fast_zeroes(&self) -> bool {
        match self {
            OpenLeg::File(device) => device.fast_zeroes(),
            OpenLeg::Stripe(stripe) => stripe.fast_zeroes(),
            OpenLeg::Apart(apart) => apart.fast_zeroes(),
            OpenLeg::Nbd(export) => export.fast_zeroes(),
        }
    }

    /// Returns the traits the engine needs.
    pub fn traits(&self) -> LegTraits {
        let thin = match self {
            OpenLeg::File(device) => device.is_thin(),
            OpenLeg::Stripe(stripe) => stripe.is_thin(),
            OpenLeg::Apart(apart) => apart.is_thin(),
            // A client cannot tell whether the server has reserved space.
            OpenLeg::Nbd(_) => false,
        };
        let description = self.describe();
        LegTraits { present: true, fast_zeroes: self.fast_zeroes(), thin, description }
    }

    /// Returns the identity of the leg's device. The superblocks of all legs keep it.
    pub fn describe(&self) -> LegDescription {
        match self {
            OpenLeg::File(device) => describe::device(device),
            OpenLeg::Apart(apart) => apart.describe(),
            OpenLeg::Stripe(_) | OpenLeg::Nbd(_) => describe::spec(&self.description()),
        }
    }

    /// Returns the leg's name as the operator wrote it.
    pub fn description(&self) -> String {
        match self {
            OpenLeg::File(device) => device.path().display().to_string(),
            OpenLeg::Stripe(stripe) => stripe.description(),
            OpenLeg::Apart(apart) => apart.description(),
            OpenLeg::Nbd(export) => export.description().to_owned(),
        }
    }

    /// Reads the part of the leg that holds its superblocks, at most [`HEAD_BYTES`].
    ///
    /// # Errors
    /// The system's error.
    pub fn head(&self) -> io::Result<Vec<u8>> {
        // At most 1 MiB.
        let mut head = vec![0; HEAD_BYTES.min(self.size()) as usize];
        self.read_at(0, &mut head)?;
        Ok(head)
    }

    /// Reads `into.len()` bytes from `offset`. Any alignment is allowed.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            OpenLeg::File(device) => device.read_at(offset, into),
            OpenLeg::Stripe(stripe) => stripe.read_at(offset, into),
            OpenLeg::Apart(apart) => apart.read_at(offset, into),
            OpenLeg::Nbd(export) => export.read_at(offset, into),
        }
    }

    /// Writes `bytes` to `offset`, both multiples of [`OpenLeg::block`]. The data is durable
    /// after [`OpenLeg::flush`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            OpenLeg::File(device) => device.write_at(offset, bytes),
            OpenLeg::Stripe(stripe) => stripe.write_at(offset, bytes),
            OpenLeg::Apart(apart) => apart.write_at(offset, bytes),
            OpenLeg::Nbd(export) => export.write_at(offset, bytes),
        }
    }

    /// Makes everything written durable.
    pub fn flush(&self) -> io::Result<()> {
        match self {
            OpenLeg::File(device) => device.flush(),
            OpenLeg::Stripe(stripe) => stripe.flush(),
            OpenLeg::Apart(apart) => apart.flush(),
            OpenLeg::Nbd(export) => export.flush(),
        }
    }

    /// Marks the members of a stripe, or a leg and its external metadata, durably as belonging
    /// together. Does nothing for other legs. Create calls it once it is established that the
    /// operator wants to overwrite the leg.
    pub fn format(&mut self) -> io::Result<()> {
        match self {
            OpenLeg::File(_) | OpenLeg::Nbd(_) => Ok(()),
            OpenLeg::Stripe(stripe) => stripe.format(),
            OpenLeg::Apart(apart) => apart.format(),
        }
    }

    /// Returns the place of its metadata if that lies apart from its data.
    pub fn metadata_place(&self) -> Option<MetadataPlace> {
        match self {
            OpenLeg::Apart(apart) => Some(apart.metadata_place()),
            OpenLeg::File(_) | OpenLeg::Stripe(_) | OpenLeg::Nbd(_) => None,
        }
    }

    /// Returns the leg's files and devices, so that create can check their contents before a
    /// format. Empty for a remote leg.
    pub fn devices(&self) -> &[Device] {
        match self {
            OpenLeg::File(device) => std::slice::from_ref(device),
            OpenLeg::Stripe(stripe) => stripe.members(),
            OpenLeg::Apart(apart) => apart.devices(),
            OpenLeg::Nbd(_) => &[],
        }
    }
}
