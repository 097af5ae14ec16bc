//! A readable note on a leg: an ISO 9660 image with one file, in bytes that the format of a leg leaves
//! unused.
//!
//! Programs that probe disks know file systems but not hemi. To them a leg looks blank and free to be
//! formatted. The image makes them find a file system labelled with the volume's name, and its file explains
//! the disk to whoever mounts it. It is written when a leg is formatted or joins, and hemi itself never reads
//! it. `docs/design/disk-format.md` gives its place, and decision 0015 the reasons. Section numbers below
//! refer to ECMA-119, which defines the format.

use std::io;

use hemi_engine::format::Id;
use hemi_text::Plain;

use crate::leg::OpenLeg;
use crate::probe::{Content, hex};

/// Offset of the image on a leg and on each member of a stripe. ISO 9660 leaves the first 32 KiB unused, and
/// the first superblock is there.
pub(crate) const OFFSET: u64 = 32 << 10;
/// The image's size in bytes. It ends before the second superblock, which is at 64 KiB.
pub(crate) const IMAGE_BYTES: usize = 16 << 10;
/// The prefix of the volume's name in the label.
const LABEL_PREFIX: &str = "HEMI_";
/// The label's size in bytes.
const LABEL_BYTES: usize = 32;

/// Size of a logical sector and block of ISO 9660, in bytes.
const SECTOR: usize = 2048;
// Sectors of the image's parts, counted from the leg's beginning.
const DESCRIPTOR: u32 = 16;
const TERMINATOR: u32 = 17;
const PATH_TABLE_LITTLE: u32 = 18;
const PATH_TABLE_BIG: u32 = 19;
const ROOT: u32 = 20;
const README: u32 = 21;
/// Sectors from the leg's beginning to the image's end.
const SECTORS: u32 = (OFFSET as usize / SECTOR + IMAGE_BYTES / SECTOR) as u32;

/// The volume that a leg belongs to.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Its name, perhaps empty.
    pub name: String,
    /// Its id.
    pub volume: Id,
}

impl Signature {
    /// Writes the image to a leg, or to each member of a stripe, without a flush. A leg whose data begins at
    /// its first byte gets none.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, leg: &OpenLeg) -> io::Result<()> {
        if leg.metadata_place().is_some() {
            return Ok(());
        }
        let image = self.image();
        match leg {
            OpenLeg::Nbd(_) => leg.write_at(OFFSET, &image),
            local => local.devices().iter().try_for_each(|one| one.write_at(OFFSET, &image)),
        }
    }

    /// Returns the label: the volume's name in the characters that ISO 9660 allows (§ 7.4.1).
    fn label(&self) -> String {
        let id = hex(self.volume);
        let name = if self.name.is_empty() { &id[..8] } else { &self.name };
        let plain = name.chars().map(|character| match character.to_ascii_uppercase() {
            plain @ ('A'..='Z' | '0'..='9') => plain,
            _ => '_',
        });
        LABEL_PREFIX.chars().chain(plain).take(LABEL_BYTES).collect()
    }

    fn readme(&self) -> String {
        let name = match self.name.as_str() {
            "" => String::new(),
            name => format!(" \"{}\"", Plain(name)),
        };
        format!(
            "This disk or file was made a leg of the hemi volume{name}\n\
             {}.\n\
             \n\
             It is not empty: a leg is one copy of the volume's data. Do not format it.\n\
             \"hemi inspect PATH\" tells whether it still is a leg, of which volume, and where\n\
             its data begins. See hemi(1).\n\
             \n\
             This image has no other purpose than to say so. It is not a part of the data.\n",
            hex(self.volume)
        )
    }

    /// Returns the image, to be written at [`OFFSET`].
    fn image(&self) -> Vec<u8> {
        let mut image = vec![0; IMAGE_BYTES];
        let readme = self.readme();
        let start = |sector: u32| (sector - DESCRIPTOR) as usize * SECTOR;
        let mut put = |sector: u32, bytes: &[u8]| {
            image[start(sector)..start(sector) + bytes.len()].copy_from_slice(bytes);
        };
        put(DESCRIPTOR, &self.descriptor());
        // The volume descriptor set terminator (§ 8.3).
        put(TERMINATOR, b"\xffCD001\x01");
        put(PATH_TABLE_LITTLE, &path_table(u32::to_le_bytes, u16::to_le_bytes));
        put(PATH_TABLE_BIG, &path_table(u32::to_be_bytes, u16::to_be_bytes));
        let mut root = Vec::new();
        // The directory itself, and its parent, which is the same.
        root.extend(directory_record(&[0], ROOT, SECTOR as u32, true));
        root.extend(directory_record(&[1], ROOT, SECTOR as u32, true));
        root.extend(directory_record(b"README.TXT;1", README, readme.len() as u32, false));
        put(ROOT, &root);
        put(README, readme.as_bytes());
        image
    }

    /// Returns the primary volume descriptor (§ 8.4).
    fn descriptor(&self) -> [u8; SECTOR] {
        let mut block = [0; SECTOR];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x01CD001\x01");
        put(8, &padded::<32>("HEMI"));
        put(40, &padded::<LABEL_BYTES>(&self.label()));
        put(80, &both_32(SECTORS));
        // One volume in a set of one.
        put(120, &both_16(1));
        put(124, &both_16(1));
        put(128, &both_16(SECTOR as u16));
        put(132, &both_32(PATH_TABLE_BYTES));
        put(140, &PATH_TABLE_LITTLE.to_le_bytes());
        put(148, &PATH_TABLE_BIG.to_be_bytes());
        put(156, &directory_record(&[0], ROOT, SECTOR as u32, true));
        // Volume set, publisher, data preparer and application, then the names of three files.
        put(190, &[b' '; 813 - 190]);
        put(574, &padded::<128>("HEMI"));
        // Four unspecified dates: zero digits and a zone of zero (§ 8.4.26.1).
        for date in 0..4 {
            put(813 + 17 * date, &[b'0'; 16]);
        }
        // The version of the file structure.
        put(881, &[1]);
        block
    }
}

/// Returns true if this is the content that [`Signature`] shows to other programs.
pub fn is_ours(content: &Content) -> bool {
    matches!(
        content,
        Content::Signature { format, label: Some(label) }
            if format == "iso9660" && label.starts_with(LABEL_PREFIX)
    )
}

/// Size in bytes of a path table that has only the root.
const PATH_TABLE_BYTES: u32 = 10;

/// Returns a path table (§ 9.4) in one byte order.
fn path_table(long: fn(u32) -> [u8; 4], short: fn(u16) -> [u8; 2]) -> [u8; 10] {
    let mut table = [0; PATH_TABLE_BYTES as usize];
    // The length of the name, which is one zero byte.
    table[0] = 1;
    table[2..6].copy_from_slice(&long(ROOT));
    table[6..8].copy_from_slice(&short(1));
    table
}

/// Returns a directory record (§ 9.1) without a date.
fn directory_record(name: &[u8], sector: u32, bytes: u32, is_directory: bool) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![0; length];
    record[0] = length as u8;
    record[2..10].copy_from_slice(&both_32(sector));
    record[10..18].copy_from_slice(&both_32(bytes));
    record[25] = u8::from(is_directory) << 1;
    record[28..32].copy_from_slice(&both_16(1));
    record[32] = name.len() as u8;
    record[33..33 + name.len()].copy_from_slice(name);
    record
}

fn both_32(value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_be_bytes());
    bytes
}

fn both_16(value: u16) -> [u8; 4] {
    let mut bytes = [0; 4];
    bytes[..2].copy_from_slice(&value.to_le_bytes());
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// Returns a text padded with blanks to `N` bytes.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use hemi_engine::format::{BLOCK_BYTES, Layout};

    use super::*;

    fn of(name: &str) -> Signature {
        Signature { name: name.into(), volume: [0xab; 16] }
    }

    #[test]
    fn it_lies_where_nothing_else_does() {
        let end = OFFSET + IMAGE_BYTES as u64;
        assert!(Layout::superblock_address(0) + BLOCK_BYTES as u64 <= OFFSET);
        assert!(end <= Layout::superblock_address(1));
        assert!(end <= Layout::lost_address(0) && end <= Layout::stamp_address(0));
        assert!(OFFSET.is_multiple_of(4096) && IMAGE_BYTES.is_multiple_of(4096));
        // A stripe's identity is in the first bytes of its members.
        assert!(crate::leg::stripe::IDENTITY_BYTES as u64 <= OFFSET);
        assert!(end <= crate::leg::stripe::DATA_OFFSET);
    }

    #[test]
    fn any_name_makes_a_label_and_a_file() {
        assert_eq!(of("db-1").label(), "HEMI_DB_1");
        assert_eq!(of("").label(), "HEMI_ABABABAB");
        assert_eq!(of("größe").label(), "HEMI_GR__E");
        let long = "n".repeat(64);
        assert_eq!(of(&long).label().len(), LABEL_BYTES);
        let text = of(&long).readme();
        assert!(text.contains(&long) && text.len() <= SECTOR, "{text}");
        assert!(of(&"\u{10ffff}".repeat(16)).readme().len() <= SECTOR);
        let image = of("db").image();
        assert_eq!(image.len(), IMAGE_BYTES);
        assert_eq!(&image[..6], b"\x01CD001");
        assert_eq!(&image[40..48], b"HEMI_DB ");
    }
}
