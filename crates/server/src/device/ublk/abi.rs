//! The kernel's interface to block devices served from user space, as far as hemi uses it:
//! `include/uapi/linux/ublk_cmd.h` of Linux 6.12, and `Documentation/block/ublk.rst`.

use hemi_engine::io::Operation;
use hemi_units::Extent;

/// Returns the ioctl number of type 'u' as `_IOC` builds it: direction (2 bits), size (14),
/// type, number.
const fn command(direction: u32, size: u32, number: u32) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;
/// Size of `struct ublksrv_ctrl_cmd` in bytes.
pub(super) const CONTROL_BYTES: usize = 32;
/// Size of `struct ublksrv_io_cmd` in bytes.
const IO_BYTES: u32 = 16;

/// `UBLK_U_CMD_ADD_DEV`.
pub(super) const ADD: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x04);
/// `UBLK_U_CMD_DEL_DEV`.
pub(super) const DELETE: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x05);
/// `UBLK_U_CMD_UPDATE_SIZE` (Linux 6.16).
pub(super) const UPDATE_SIZE: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x15);
/// `UBLK_U_CMD_DEL_DEV_ASYNC` (Linux 6.9).
pub(super) const DELETE_LATER: u32 = command(READ, CONTROL_BYTES as u32, 0x14);
/// `UBLK_U_CMD_START_DEV`.
pub(super) const START: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x06);
/// `UBLK_U_CMD_STOP_DEV`.
pub(super) const STOP: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x07);
/// `UBLK_U_CMD_SET_PARAMS`.
pub(super) const SET_PARAMETERS: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x08);
/// `UBLK_U_CMD_GET_PARAMS`.
pub(super) const GET_PARAMETERS: u32 = command(READ, CONTROL_BYTES as u32, 0x09);
/// `UBLK_U_CMD_START_USER_RECOVERY`.
pub(super) const START_RECOVERY: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x10);
/// `UBLK_U_CMD_END_USER_RECOVERY`.
pub(super) const END_RECOVERY: u32 = command(READ_WRITE, CONTROL_BYTES as u32, 0x11);
/// `UBLK_U_CMD_GET_DEV_INFO`.
pub(super) const GET_INFO: u32 = command(READ, CONTROL_BYTES as u32, 0x02);
/// `UBLK_U_CMD_GET_FEATURES`.
pub(super) const GET_FEATURES: u32 = command(READ, CONTROL_BYTES as u32, 0x13);

/// `UBLK_U_IO_FETCH_REQ`: fetches requests for one tag from now on.
pub(crate) const FETCH: u32 = command(READ_WRITE, IO_BYTES, 0x20);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: ends a tag's request and fetches the next.
pub(crate) const COMMIT_AND_FETCH: u32 = command(READ_WRITE, IO_BYTES, 0x21);

/// `UBLK_F_USER_RECOVERY`: the device outlives its server.
pub(super) const USER_RECOVERY: u64 = 1 << 3;
/// `UBLK_F_USER_RECOVERY_REISSUE`: requests that a server left unanswered go to the next.
pub(super) const REISSUE: u64 = 1 << 4;
/// `UBLK_F_CMD_IOCTL_ENCODE`: commands are ioctl numbers.
pub(super) const IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_F_UPDATE_SIZE`: a device can be given another size.
pub(super) const RESIZABLE: u64 = 1 << 10;
/// `UBLK_F_USER_COPY`: payload is read and written through the character device.
pub(super) const USER_COPY: u64 = 1 << 7;

/// `UBLK_S_DEV_DEAD`: never started or stopped.
pub(super) const STATE_DEAD: u16 = 0;
/// `UBLK_S_DEV_LIVE`.
pub(super) const STATE_LIVE: u16 = 1;
/// `UBLK_S_DEV_QUIESCED`: its server is gone and requests wait for the next.
pub(super) const STATE_QUIESCED: u16 = 2;

/// Offset at which queue 0's request descriptors are mapped (`UBLKSRV_CMD_BUF_OFFSET`).
pub(super) const DESCRIPTORS_OFFSET: u64 = 0;
/// Size of a request descriptor (`struct ublksrv_io_desc`) in bytes.
pub(super) const DESCRIPTOR_BYTES: usize = 24;
/// Offset of the payload of queue 0's tag 0 in the character device (`UBLKSRV_IO_BUF_OFFSET`).
const PAYLOAD_OFFSET: u64 = 0x8000_0000;
/// Number of bits of an offset within one tag's payload (`UBLK_TAG_OFF`).
const PAYLOAD_BITS: u32 = 25;

/// Returns the offset of a tag's payload in the character device.
pub(super) const fn payload_at(tag: u16) -> u64 {
    PAYLOAD_OFFSET + ((tag as u64) << PAYLOAD_BITS)
}

/// A request as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    /// Operation (bits 0 to 7) and flags.
    pub(crate) word: u32,
    /// Number of sectors of 512 bytes.
    pub(crate) sectors: u32,
    /// First sector.
    pub(crate) start: u64,
}

impl Descriptor {
    /// Returns its operation (`UBLK_IO_OP_…`), or `None` if hemi's device does not offer it.
    pub(crate) fn operation(&self) -> Option<Operation> {
        Some(match self.word & 0xFF {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes { may_unmap: !self.keeps_allocation() },
            _ => return None,
        })
    }

    /// Returns its range, which is empty for a flush.
    pub(crate) fn extent(&self) -> Extent {
        match self.sectors {
            0 => Extent::default(),
            sectors => Extent::new(self.start, u64::from(sectors)),
        }
    }

    /// Returns true if it has to be durable when answered (`UBLK_IO_F_FUA`).
    pub(crate) fn is_fua(&self) -> bool {
        self.word >> 13 & 1 == 1
    }

    /// Returns true if zeros must stay allocated (`UBLK_IO_F_NOUNMAP`).
    fn keeps_allocation(&self) -> bool {
        self.word >> 15 & 1 == 1
    }
}

/// Returns a `struct ublksrv_io_cmd` for queue 0. `result` is the number of bytes done or a
/// negated errno. FETCH has none.
pub(crate) fn io_command(tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&result.to_ne_bytes());
    bytes
}

/// A device as the kernel knows it (`struct ublksrv_ctrl_dev_info`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) queue_depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) io_bytes_max: u32,
    pub(super) number: u32,
    pub(super) server: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// A field for the server that the kernel does not use. hemi puts the volume's id here.
    pub(super) volume: u64,
    pub(super) owner_user: u32,
    pub(super) owner_group: u32,
    pub(super) reserved: [u64; 2],
}

/// A device's limits (`struct ublk_params` without the parts for zoned devices).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) length: u32,
    pub(super) types: u32,
    pub(super) attributes: u32,
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) device_sectors: u64,
    pub(super) virt_boundary_mask: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) write_zeroes_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
    pub(super) pad: u32,
}

/// `UBLK_PARAM_TYPE_BASIC` and `UBLK_PARAM_TYPE_DISCARD`.
pub(super) const PARAMETER_TYPES: u32 = 1 | 2;
/// `UBLK_ATTR_VOLATILE_CACHE` and `UBLK_ATTR_FUA`.
pub(super) const ATTRIBUTES: u32 = 1 << 2 | 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_layout() {
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(std::mem::offset_of!(DeviceInfo, volume), 32);
        assert_eq!(std::mem::offset_of!(Parameters, device_sectors), 24);
        assert_eq!(std::mem::offset_of!(Parameters, discard_segments_max), 56);
        // _IOWR('u', 0x04, struct ublksrv_ctrl_cmd), _IOR('u', 0x13, …), _IOWR('u', 0x21, …).
        assert_eq!((ADD, GET_FEATURES), (0xC020_7504, 0x8020_7513));
        assert_eq!(COMMIT_AND_FETCH, 0xC010_7521);
        assert_eq!(payload_at(3), 0x8600_0000);
    }

    #[test]
    fn a_command_names_its_tag_and_result() {
        assert_eq!(io_command(0x0102, -5)[..8], [0, 0, 2, 1, 0xFB, 0xFF, 0xFF, 0xFF]);
    }

    #[test]
    fn a_descriptor_tells_operation_and_flags() {
        let fua = Descriptor { word: 1 | 1 << 13, sectors: 8, start: 0 };
        assert_eq!((fua.operation(), fua.is_fua()), (Some(Operation::Write), true));
        let zeroes = Descriptor { word: 5 | 1 << 15, sectors: 8, start: 0 };
        assert_eq!(zeroes.operation(), Some(Operation::WriteZeroes { may_unmap: false }));
        let flush = Descriptor { word: 2, sectors: 0, start: u64::MAX };
        assert_eq!(
            (flush.operation(), flush.extent()),
            (Some(Operation::Flush), Extent::default())
        );
        assert_eq!(Descriptor { word: 15, sectors: 0, start: 0 }.operation(), None);
    }
}
