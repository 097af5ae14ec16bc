//! Reasons why a volume is not, or cannot cease to be, a block device.

use std::io;

use crate::messages::ReactorError;

/// A reason why a volume is not, or cannot cease to be, a block device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The kernel has no ublk driver, or it is not loaded.
    #[error("this kernel offers no ublk (/dev/ublk-control: {0})")]
    NoUblk(io::Error),
    /// Its features do not suffice.
    #[error(
        "this kernel's ublk lacks what a device that outlives its server needs (features {found:#x}, \
         needed {needed:#x})"
    )]
    OldUblk {
        /// Its features.
        found: u64,
        /// The features that a device must have.
        needed: u64,
    },
    /// The kernel has no NBD client, or it is not loaded.
    #[error("this kernel offers no NBD client (netlink family \"nbd\": {0})")]
    NoNbd(io::Error),
    /// Its NBD client does not keep whose a device is.
    #[error("this kernel's NBD client does not keep which volume a device is ({path} is missing)")]
    OldNbd {
        /// The file that has it.
        path: String,
    },
    /// Neither driver can be used.
    #[error("no block device can be made: {ublk}; {nbd}")]
    NoDriver {
        /// Why ublk cannot.
        ublk: Box<DeviceError>,
        /// Why the NBD client cannot.
        nbd: Box<DeviceError>,
    },
    /// No right to make devices.
    #[error("not allowed to make block devices ({at}: {source})")]
    NotAllowed {
        /// The driver's door.
        at: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The volume is a block device of another process's.
    #[error("{path} is this volume already, served by process {server}")]
    Served {
        /// The device.
        path: String,
        /// Its server.
        server: i32,
    },
    /// Something of the server before does not end.
    #[error("{path} is still held by the server before this one, which does not end")]
    Predecessor {
        /// The device.
        path: String,
    },
    /// The device has another size than the volume.
    #[error("{path} has {device} bytes, the volume {volume}")]
    Size {
        /// The device.
        path: String,
        /// Its bytes.
        device: u64,
        /// The volume's.
        volume: u64,
    },
    /// Somebody uses the device.
    #[error("{path} is in use: it is mounted, or held by another program")]
    InUse {
        /// The device.
        path: String,
    },
    /// There is no device.
    #[error("volume {name:?} is no block device of this machine")]
    None {
        /// The volume.
        name: String,
    },
    /// A step failed.
    #[error("{doing} {path}: {source}")]
    Failed {
        /// The step.
        doing: &'static str,
        /// The device, or its node.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The event loop would not serve it.
    #[error("the block device is not served: {0}")]
    Reactor(#[from] ReactorError),
}

impl DeviceError {
    /// Returns what to do about it.
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
            DeviceError::InUse { .. } => "Unmount it first: findmnt and lsof show who has it.",
            DeviceError::None { .. } => "hemi attach makes it one.",
            DeviceError::Failed { .. } | DeviceError::Reactor(_) => "See the log; try again.",
        }
    }
}

/// Names a step, and the device it failed on.
pub(super) fn failed(doing: &'static str, path: &str) -> impl FnOnce(io::Error) -> DeviceError {
    let path = path.to_owned();
    move |source| DeviceError::Failed { doing, path, source }
}

/// Returns true if the system refused for want of rights.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}
