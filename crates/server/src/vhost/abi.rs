//! Constants and layouts of virtio 1.2: split virtqueues, block devices, and their configuration.

/// The ring has an index at which the other side wants a notification
/// (`VIRTIO_RING_F_EVENT_IDX`).
pub(super) const EVENT_INDEX: u64 = 1 << 29;
/// A descriptor may lead to a table of descriptors (`VIRTIO_RING_F_INDIRECT_DESC`).
pub(super) const INDIRECT: u64 = 1 << 28;
/// The device follows virtio 1 (`VIRTIO_F_VERSION_1`).
pub(super) const VERSION_1: u64 = 1 << 32;
/// Protocol features can be negotiated (`VHOST_USER_F_PROTOCOL_FEATURES`).
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;

const SIZE_MAX: u64 = 1 << 1;
const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLOCK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const QUEUES: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// Another descriptor follows.
pub(super) const DESCRIPTOR_NEXT: u16 = 1;
/// The device writes into it.
pub(super) const DESCRIPTOR_WRITE: u16 = 2;
/// It holds a table of descriptors.
pub(super) const DESCRIPTOR_INDIRECT: u16 = 4;
/// Size of a descriptor in bytes.
pub(super) const DESCRIPTOR_BYTES: u64 = 16;

/// Kinds of requests.
pub(super) const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
pub(super) const FLUSH_CACHE: u32 = 4;
pub(super) const IDENTIFY: u32 = 8;
pub(super) const DISCARD_RANGE: u32 = 11;
pub(super) const WRITE_ZEROES_RANGE: u32 = 13;
/// Size of a request's header in bytes: kind, reserved, sector.
pub(super) const HEADER_BYTES: u64 = 16;
/// Size of the range of a discard or zeroing in bytes: sector, sectors, flags.
pub(super) const RANGE_BYTES: u64 = 16;
/// The range may be deallocated.
pub(super) const RANGE_UNMAP: u32 = 1;
/// Size of a device's identity in bytes.
pub(super) const IDENTITY_BYTES: usize = 20;

/// The request was done.
pub(crate) const STATUS_OK: u8 = 0;
/// The request failed.
pub(crate) const STATUS_ERROR: u8 = 1;
/// The device has no such request.
pub(crate) const STATUS_UNSUPPORTED: u8 = 2;

/// Maximum number of segments of payload in one request.
pub const SEGMENTS_MAX: u32 = 126;
/// Maximum size of a segment in bytes. With [`SEGMENTS_MAX`] a request has less than 32 MiB.
pub const SEGMENT_BYTES_MAX: u32 = 256 << 10;
/// Maximum length of one discard or zeroing in bytes.
pub const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Size of a block device's configuration in bytes.
const CONFIGURATION_BYTES: usize = 60;

/// A disk as its guest sees it.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// Its name. The guest sees the first 20 bytes as the serial number.
    pub(crate) name: String,
    /// The name of its socket in logs, by which a volume's disks differ.
    pub(crate) socket: String,
    /// The number of its sectors of 512 bytes.
    pub(crate) sectors: u64,
    /// The smallest request in bytes.
    pub(crate) block_bytes: u32,
    /// True if writes are refused.
    pub(crate) read_only: bool,
    /// Maximum number of queues.
    pub(crate) queues: u16,
}

impl Disk {
    /// Returns the offered features.
    pub(super) fn features(&self) -> u64 {
        let always = VERSION_1 | EVENT_INDEX | INDIRECT | PROTOCOL_FEATURES;
        let disk = SIZE_MAX | SEG_MAX | BLOCK_SIZE | FLUSH | TOPOLOGY | QUEUES;
        let rest = if self.read_only { READ_ONLY } else { DISCARD | WRITE_ZEROES };
        always | disk | rest
    }

    /// Returns `length` bytes of the configuration from `offset`. Bytes beyond its end are zero.
    pub(super) fn configuration(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut all = [0; CONFIGURATION_BYTES];
        let mut put = |at: usize, bytes: &[u8]| all[at..at + bytes.len()].copy_from_slice(bytes);
        let blocks_per_page = (4096 / self.block_bytes.clamp(1, 4096)) as u16;
        let range = ((RANGE_BYTES_MAX >> 9) as u32).to_le_bytes();
        put(0, &self.sectors.to_le_bytes());
        put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
        put(12, &SEGMENTS_MAX.to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        // Topology: the blocks of a physical block as a power of two, the first of them, and
        // the minimum and the best size of an I/O in blocks.
        put(24, &[blocks_per_page.trailing_zeros() as u8, 0]);
        put(26, &blocks_per_page.to_le_bytes());
        put(28, &u32::from(blocks_per_page).to_le_bytes());
        // The cache is write-back and stays so.
        put(32, &[1]);
        put(34, &self.queues.to_le_bytes());
        if !self.read_only {
            // One range per request, aligned to a page.
            put(36, &range);
            put(40, &1_u32.to_le_bytes());
            put(44, &u32::from(blocks_per_page * (self.block_bytes >> 9) as u16).to_le_bytes());
            put(48, &range);
            put(52, &1_u32.to_le_bytes());
            put(56, &[1]);
        }
        (offset..offset + length).map(|at| all.get(at).copied().unwrap_or(0)).collect()
    }

    /// Returns the identity: the beginning of the name, padded with zeros.
    pub(crate) fn identity(&self) -> [u8; IDENTITY_BYTES] {
        let name = self.name.as_bytes();
        std::array::from_fn(|at| name.get(at).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_every_field_in_its_place() {
        let disk = Disk {
            name: "db".into(),
            socket: "vhost:/s".into(),
            sectors: 0x1122_3344_5566,
            block_bytes: 512,
            read_only: false,
            queues: 0x40,
        };
        let expected: [u8; CONFIGURATION_BYTES] = [
            0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, // capacity
            0, 0, 4, 0, 126, 0, 0, 0, // size_max, seg_max
            0, 0, 0, 0, 0, 2, 0, 0, // geometry, blk_size
            3, 0, 8, 0, 8, 0, 0, 0, // topology
            1, 0, 0x40, 0, // writeback, queues
            0, 0, 0x20, 0, 1, 0, 0, 0, 8, 0, 0, 0, // discard
            0, 0, 0x20, 0, 1, 0, 0, 0, 1, 0, 0, 0, // write zeroes
        ];
        assert_eq!(disk.configuration(0, CONFIGURATION_BYTES), expected);
        assert_eq!(disk.configuration(20, 4), [0, 2, 0, 0]);
        assert_eq!(disk.configuration(59, 3), [0, 0, 0], "beyond the end");
        let read_only = Disk { read_only: true, ..disk };
        assert_eq!(read_only.features() >> 5 & 1, 1);
        assert_eq!(read_only.features() & (DISCARD | WRITE_ZEROES), 0);
        assert_eq!(read_only.configuration(36, 24), [0; 24]);
    }
}
