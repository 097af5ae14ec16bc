//! The identity block at the beginning of external metadata. It marks the file as metadata and
//! names the disk it belongs to.

use std::path::Path;

use hemi_engine::recovery::HEAD_BYTES;

use super::ApartError;

/// First bytes of the identity block of external metadata.
pub const MAGIC: [u8; 8] = *b"HEMIMETA";
/// Version of the identity block's format.
pub const VERSION: u32 = 1;
/// Size of the identity block in bytes, including the checksum.
pub const IDENTITY_BYTES: usize = 4096;
/// Longest name of the data's device that an identity block keeps, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Longest serial number that it keeps, in bytes.
const SERIAL_BYTES_MAX: usize = 64;

/// The identity of external metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The byte of the leg at which its data begins.
    pub data_offset: u64,
    /// The size of the data's device in bytes when it became a leg. The device may grow.
    pub data_bytes: u64,
    /// The name of the data's device when it became a leg.
    pub name: String,
    /// Its serial number, empty if unknown.
    pub serial: String,
}

impl Identity {
    /// Returns the encoded block. Its fields with their sizes in bytes, little-endian, are
    /// magic (8), version (4), zero (4), data offset (8), data bytes (8), length of the name
    /// (2), length of the serial number (2), zeros up to byte 64, the name (1024), the serial
    /// number (64), zeros, and in the last 4 the CRC-32C of everything before it. A name or
    /// serial number that is too long is left out.
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut block = [0; IDENTITY_BYTES];
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.data_offset.to_le_bytes());
        block[24..32].copy_from_slice(&self.data_bytes.to_le_bytes());
        let mut put = |text: &str, most: usize, length_at: usize, at: usize| {
            let bytes = if text.len() <= most { text.as_bytes() } else { &[] };
            block[length_at..length_at + 2].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
            block[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(&self.name, NAME_BYTES_MAX, 32, 64);
        put(&self.serial, SERIAL_BYTES_MAX, 34, 64 + NAME_BYTES_MAX);
        let sum = crc32c::crc32c(&block[..IDENTITY_BYTES - 4]);
        block[IDENTITY_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// Decodes a block. `path` is for the error.
    ///
    /// # Errors
    /// Fails if the block is not an identity block, is damaged, or has another version.
    pub fn decode(block: &[u8; IDENTITY_BYTES], path: &Path) -> Result<Identity, ApartError> {
        let path = || path.to_path_buf();
        if block[0..8] != MAGIC {
            return Err(ApartError::NotMetadata { path: path() });
        }
        let word = |at: usize| u32::from_le_bytes(array(block, at));
        let long = |at: usize| u64::from_le_bytes(array(block, at));
        if word(8) != VERSION {
            return Err(ApartError::Version { path: path(), version: word(8) });
        }
        if word(IDENTITY_BYTES - 4) != crc32c::crc32c(&block[..IDENTITY_BYTES - 4]) {
            return Err(ApartError::Damaged { path: path(), what: "checksum" });
        }
        let text = |length_at: usize, most: usize, at: usize| {
            let length = usize::from(u16::from_le_bytes(array(block, length_at))).min(most);
            String::from_utf8_lossy(&block[at..at + length]).into_owned()
        };
        let identity = Identity {
            data_offset: long(16),
            data_bytes: long(24),
            name: text(32, NAME_BYTES_MAX, 64),
            serial: text(34, SERIAL_BYTES_MAX, 64 + NAME_BYTES_MAX),
        };
        let sound = identity.data_offset > HEAD_BYTES
            && identity.data_offset.is_multiple_of(HEAD_BYTES)
            && identity.data_offset.checked_add(identity.data_bytes).is_some();
        if !sound {
            return Err(ApartError::Damaged { path: path(), what: "numbers" });
        }
        Ok(identity)
    }
}

fn array<const N: usize>(block: &[u8; IDENTITY_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_identity_block_is_these_bytes() {
        let identity = Identity {
            data_offset: 0x30_0000,
            data_bytes: 0x12_3456_7000,
            name: "/dev/sdb".into(),
            serial: "S1".into(),
        };
        let block = identity.encode();
        let mut head: Vec<u8> = Vec::new();
        head.extend(b"HEMIMETA\x01\0\0\0\0\0\0\0\0\0\x30\0\0\0\0\0\0\x70\x56\x34\x12\0\0\0");
        head.extend(b"\x08\0\x02\0");
        assert_eq!(block[..36], head);
        assert_eq!(&block[64..72], b"/dev/sdb");
        assert_eq!(&block[1088..1090], b"S1");
        assert_eq!(Identity::decode(&block, Path::new("")).unwrap(), identity);
    }

    #[test]
    fn a_damaged_identity_is_named() {
        let identity = Identity {
            data_offset: 2 * MIB,
            data_bytes: MIB,
            name: "x".repeat(2000),
            serial: String::new(),
        };
        let good = identity.encode();
        let said = |change: &dyn Fn(&mut [u8; IDENTITY_BYTES])| {
            let mut block = good;
            change(&mut block);
            Identity::decode(&block, Path::new("/m")).unwrap_err().to_string()
        };
        assert!(said(&|block| block[40] ^= 1).contains("checksum"));
        assert!(said(&|block| block[8] = 7).contains("format 7"));
        assert!(said(&|block| block[0] = 0).contains("does not hold"));
        // A name that is too long is left out.
        assert_eq!(Identity::decode(&good, Path::new("")).unwrap().name, "");
        let odd = Identity { data_offset: MIB + 4096, ..identity };
        let error = Identity::decode(&odd.encode(), Path::new("/m")).unwrap_err();
        assert!(error.to_string().contains("numbers"), "{error}");
    }
}
