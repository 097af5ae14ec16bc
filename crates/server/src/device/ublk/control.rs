//! Commands to the kernel about whole devices, through `/dev/ublk-control`.
//!
//! They are io_uring commands of 128-byte entries, so they have a small ring of their own. One
//! thread uses it and may block: a start waits until the reactor takes requests, and reads the
//! partition table through it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::abi::{self, CONTROL_BYTES, DeviceInfo, Parameters};
use hemi_io::memory::{Mapping, Span};

/// The node through which devices are created.
pub(super) const CONTROL_PATH: &str = "/dev/ublk-control";
/// The device number of a command about no device, or about one that has no number yet.
const NO_DEVICE: u32 = u32::MAX;

/// The kernel's driver.
pub(super) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// Memory that commands read and write. It outlives a command that cannot be waited for.
    exchange: Mapping,
}

/// A plain structure that the kernel reads or writes.
///
/// # Safety
/// Any bytes must be a valid value of it, and it must have no padding.
unsafe trait Plain: Copy {}

// SAFETY: integers of all sizes in the kernel's layout, whose padding is made of named fields.
unsafe impl Plain for DeviceInfo {}
// SAFETY: as above.
unsafe impl Plain for Parameters {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// A command's arguments (`struct ublksrv_ctrl_cmd`).
#[derive(Default)]
struct Arguments {
    device: u32,
    length: u16,
    address: u64,
    data: u64,
}

impl Control {
    /// Opens the driver.
    ///
    /// # Errors
    /// Returns the system's error: no such driver, no permission to use it, or no io_uring.
    pub(super) fn open() -> io::Result<Control> {
        let file = File::options().read(true).write(true).open(CONTROL_PATH)?;
        let ring = IoUring::builder().dontfork().build(4)?;
        Ok(Control { file, ring, exchange: Mapping::new(size_of::<Parameters>(), false)? })
    }

    /// Returns the driver's features (`UBLK_F_…`).
    ///
    /// # Errors
    /// Returns the system's error. A driver before Linux 6.5 does not know the command.
    pub(super) fn features(&mut self) -> io::Result<u64> {
        let mut features = 0_u64;
        self.with_value(abi::GET_FEATURES, NO_DEVICE, &mut features)?;
        Ok(features)
    }

    /// Returns the driver's information on a device.
    ///
    /// # Errors
    /// Returns ENODEV if there is none of this number, or another error of the system.
    pub(super) fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        self.with_value(abi::GET_INFO, device, &mut info)?;
        Ok(info)
    }

    /// Returns a device's size in sectors of 512 bytes.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn sectors(&mut self, device: u32) -> io::Result<u64> {
        let length = size_of::<Parameters>() as u32;
        let mut parameters = Parameters { length, ..Parameters::default() };
        self.with_value(abi::GET_PARAMETERS, device, &mut parameters)?;
        Ok(parameters.device_sectors)
    }

    /// Creates a device with a number that the kernel chooses. Returns its information.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn add(&mut self, mut info: DeviceInfo) -> io::Result<DeviceInfo> {
        info.number = NO_DEVICE;
        self.with_value(abi::ADD, NO_DEVICE, &mut info)?;
        Ok(info)
    }

    /// Sets a device's limits before it is started.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn set_parameters(
        &mut self,
        device: u32,
        mut parameters: Parameters,
    ) -> io::Result<()> {
        self.with_value(abi::SET_PARAMETERS, device, &mut parameters)
    }

    /// Starts a device. Waits until the reactor takes requests.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn start(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::START, device, u64::from(std::process::id()))
    }

    /// Begins to take over a device whose server is gone.
    ///
    /// # Errors
    /// Returns EBUSY while a part of that server is left, or another error of the system.
    pub(super) fn start_recovery(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::START_RECOVERY, device, 0)
    }

    /// Ends the takeover. Unanswered requests come first, then new ones. Waits until the
    /// reactor takes them.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn end_recovery(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::END_RECOVERY, device, u64::from(std::process::id()))
    }

    /// Sets the size of a device in sectors of 512 bytes.
    ///
    /// # Errors
    /// Returns EOPNOTSUPP before Linux 6.16, or another error of the system.
    pub(super) fn update_size(&mut self, device: u32, sectors: u64) -> io::Result<()> {
        self.plain(abi::UPDATE_SIZE, device, sectors)
    }

    /// Removes the block device. Requests that still come fail.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn stop(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::STOP, device, 0)
    }

    /// Deletes a device. Waits until nobody has its character device open.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn delete(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::DELETE, device, 0)
    }

    /// Deletes a device once nobody has it open, without waiting for that.
    ///
    /// # Errors
    /// Returns EOPNOTSUPP before Linux 6.9, or another error of the system.
    pub(super) fn delete_later(&mut self, device: u32) -> io::Result<()> {
        self.plain(abi::DELETE_LATER, device, 0)
    }

    fn plain(&mut self, operation: u32, device: u32, data: u64) -> io::Result<()> {
        self.issue(operation, &Arguments { device, data, ..Arguments::default() })
    }

    /// Issues a command that reads or writes `value`.
    fn with_value<T: Plain>(
        &mut self,
        operation: u32,
        device: u32,
        value: &mut T,
    ) -> io::Result<()> {
        let span = self.exchange.span(0, size_of::<T>());
        // SAFETY: a plain structure may be seen as its bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast::<u8>(), size_of::<T>())
        };
        span.copy_from(bytes);
        let (length, address) = (span.length() as u16, span.address() as u64);
        self.issue(operation, &Arguments { device, length, address, data: 0 })?;
        bytes.copy_from_slice(&Span::to_vec(&span));
        Ok(())
    }

    fn issue(&mut self, operation: u32, arguments: &Arguments) -> io::Result<()> {
        let mut bytes = [0_u8; 80];
        bytes[0..4].copy_from_slice(&arguments.device.to_ne_bytes());
        // The field of the queue: none.
        bytes[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
        bytes[6..8].copy_from_slice(&arguments.length.to_ne_bytes());
        bytes[8..16].copy_from_slice(&arguments.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&arguments.data.to_ne_bytes());
        debug_assert!(CONTROL_BYTES <= bytes.len());
        let entry =
            opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), operation).cmd(bytes).build();
        // SAFETY: the file is open, and the memory of the command stays mapped forever.
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the ring of one command is full"))?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                Ok(_) | Err(_) => {}
            }
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    0.. => Ok(()),
                    errno => Err(io::Error::from_raw_os_error(-errno)),
                };
            }
        }
    }
}
