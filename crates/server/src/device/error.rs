//! Errors in making a volume a block device, and in removing the device.

use std::io;

use crate::messages::ReactorError;

/// An error in making a volume a block device, or in removing the device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has no ublk driver, or it is not loaded.
    #[error("this kernel offers no ublk (/dev/ublk-control: {0})")]
    NoUblk(io::Error),
    /// The ublk driver lacks features.
    #[error(
        "this kernel's ublk lacks what a device that outlives its server needs (features {found:#x}, \
         needed {needed:#x})"
    )]
    OldUblk {
        /// The features it has.
        found: u64,
        /// The features that a device must have.
        needed: u64,
    },
    /// The kernel has no NBD client, or it is not loaded.
    #[error("this kernel offers no NBD client (netlink family \"nbd\": {0})")]
    NoNbd(io::Error),
    /// The kernel's NBD client does not record the volume of a device.
    #[error("this kernel's NBD client does not record the volume of a device ({path} is missing)")]
    OldNbd {
        /// The file that would contain it.
        path: String,
    },
    /// Neither driver can be used.
    #[error("no block device can be made: {ublk}; {nbd}")]
    NoDriver {
        /// The reason why ublk cannot be used.
        ublk: Box<DeviceError>,
        /// The reason why the NBD client cannot be used.
        nbd: Box<DeviceError>,
    },
    /// The process may not create devices.
    #[error("not allowed to make block devices ({at}: {source})")]
    NotAllowed {
        /// The driver's entry point.
        at: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The volume is already a block device, and another process serves it.
    #[error("{path} is already this volume's block device, served by process {server}")]
    Served {
        /// Path of the device.
        path: String,
        /// Process id of its server.
        server: i32,
    },
    /// The previous server still holds the device.
    #[error("{path} is still held by the previous server, which has not ended")]
    Predecessor {
        /// Path of the device.
        path: String,
    },
    /// The device and the volume differ in size.
    #[error("{path} has {device} bytes, the volume {volume}")]
    Size {
        /// Path of the device.
        path: String,
        /// Size of the device in bytes.
        device: u64,
        /// Size of the volume in bytes.
        volume: u64,
    },
    /// Somebody uses the device.
    #[error("{path} is in use: it is mounted, or held by another program")]
    InUse {
        /// Path of the device.
        path: String,
    },
    /// There is no device.
    #[error("volume {name:?} is no block device of this machine")]
    None {
        /// Name of the volume.
        name: String,
    },
    /// A step failed.
    #[error("{doing} {path}: {source}")]
    Failed {
        /// The step.
        doing: &'static str,
        /// Path of the device or of its node.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The event loop refused to serve the device.
    #[error("the block device is not served: {0}")]
    Reactor(#[from] ReactorError),
}

impl DeviceError {
    /// Returns advice on resolving it.
    pub fn way_out(&self) -> &'static str {
        match self {
            DeviceError::NoUblk(_) => {
                "Load it with `modprobe ublk_drv`: it needs Linux 6.5 or later, built with \
                 CONFIG_BLK_DEV_UBLK. docs/mounting.md has other ways to a device."
            }
            DeviceError::OldUblk { .. } => {
                "Use Linux 6.5 or later. docs/mounting.md has other ways to a device."
            }
            DeviceError::NoNbd(_) => {
                "Load it with `modprobe nbd`: it needs a kernel built with CONFIG_BLK_DEV_NBD. \
                 docs/mounting.md has other ways to a device."
            }
            DeviceError::OldNbd { .. } => {
                "Use Linux 5.14 or later. docs/mounting.md has other ways to a device."
            }
            DeviceError::NoDriver { .. } => {
                "Load one: `modprobe ublk_drv` (Linux 6.5 or later), or else `modprobe nbd`. \
                 docs/mounting.md has other ways to a device."
            }
            DeviceError::NotAllowed { .. } => {
                "It takes root (CAP_SYS_ADMIN); in a container the device cgroup has to allow it, too."
            }
            DeviceError::Served { .. } => "Stop that one first.",
            DeviceError::Predecessor { .. } => {
                "It ends when the drive that it waits for answers, or is taken away."
            }
            DeviceError::Size { .. } => {
                "Unmount it, and remove it with hemi detach-device; the next start makes it anew."
            }
            DeviceError::InUse { .. } => {
                "Unmount it first: findmnt and lsof show who has it, and \
                 `grep hemi/ /proc/*/mounts` in which container it is mounted."
            }
            DeviceError::None { .. } => "hemi attach makes it one.",
            DeviceError::Failed { .. } | DeviceError::Reactor(_) => "See the log; try again.",
        }
    }
}

/// Returns a function that adds the step, and the device it failed on, to an error.
pub(super) fn failed(doing: &'static str, path: &str) -> impl FnOnce(io::Error) -> DeviceError {
    let path = path.to_owned();
    move |source| DeviceError::Failed { doing, path, source }
}

/// Returns true if the system refused for lack of permission.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}
