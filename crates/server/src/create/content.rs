//! The content of a disk to be adopted, and the end of that content.
//!
//! The metadata of an adopted leg may only go where there is no content. The end of the content is known for
//! formats whose own superblock gives their size. A blank end of the disk is no proof. Everything here only
//! reads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hemi_engine::format::Layout;

use super::CreateError;
use super::largest::{Room, largest_volume};
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::apart;
use hemi_io::probe::{Content, Kind, Probe};
use hemi_units::Size;

/// Bytes at the beginning of a disk by which formats are recognised.
const HEAD_BYTES: usize = 128 << 10;

/// A format whose superblock was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    format: Format,
    /// One past its last byte, if the format tells.
    end: Option<u64>,
}

/// The formats recognised here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// ext2, ext3 or ext4.
    Ext,
    Xfs,
    Btrfs {
        /// The id that btrfs has given the disk.
        device: u64,
    },
    Swap,
    Lvm,
    Luks,
    /// A partition table with a copy in the disk's last sectors.
    Gpt,
    /// A DOS partition table.
    Dos,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Ext => "an ext2, ext3 or ext4 file system",
            Format::Xfs => "an XFS file system",
            Format::Btrfs { .. } => "a btrfs file system",
            Format::Swap => "swap space",
            Format::Lvm => "a physical volume of LVM",
            Format::Luks => "a LUKS container",
            Format::Gpt => "a partition table (gpt)",
            Format::Dos => "a partition table (dos)",
        }
    }

    fn is_table(self) -> bool {
        matches!(self, Format::Gpt | Format::Dos)
    }

    /// Returns true if `wipefs` uses this name for it.
    fn is_called(self, name: &str) -> bool {
        match self {
            Format::Ext => matches!(name, "ext2" | "ext3" | "ext4" | "ext4dev" | "jbd"),
            Format::Xfs => name == "xfs",
            Format::Btrfs { .. } => name == "btrfs",
            Format::Swap => matches!(name, "swap" | "swsuspend"),
            Format::Lvm => name == "LVM2_member",
            Format::Luks => name == "crypto_LUKS",
            Format::Gpt => matches!(name, "gpt" | "PMBR" | "dos"),
            Format::Dos => name == "dos",
        }
    }

    /// Returns instructions for making room at the disk's end, so that the format ends at or before `end`.
    fn shrink(self, probe: &Probe, end: u64) -> String {
        let (path, kib) = (probe.path.display(), end / 1024);
        match self {
            Format::Ext => {
                // resize2fs truncates a regular file after the file system.
                let whole = match probe.kind {
                    Kind::File => format!(" && truncate -s {} {path}", probe.size),
                    _ => String::new(),
                };
                format!("Make room: e2fsck -f {path} && resize2fs {path} {kib}K{whole}")
            }
            Format::Xfs => {
                "XFS cannot shrink: name a place for the metadata with --metadata PATH".into()
            }
            Format::Btrfs { device } => format!(
                "Make room while it is mounted: btrfs filesystem resize {device}:{kib}K MOUNTPOINT"
            ),
            Format::Swap => "Recreate it smaller (mkswap), or name --metadata PATH".into(),
            Format::Lvm => {
                format!("Make room: pvresize --setphysicalvolumesize {kib}K {path}")
            }
            Format::Luks | Format::Gpt | Format::Dos => {
                "Name a place for the metadata with --metadata PATH".into()
            }
        }
    }
}

/// Refuses a disk that cannot be adopted unchanged into a volume of this layout.
pub(super) fn check(probe: &Probe, spec: &LegSpec, layout: &Layout) -> Result<(), CreateError> {
    let path = &probe.path;
    let refuse = |reason: String| Err(CreateError::Adopt { path: path.clone(), reason });
    let contents = probe.known_contents()?;
    if let Some(leg) = contents.iter().find(|one| one.is_hemi()) {
        return refuse(held_by_hemi(probe, leg));
    }
    let read = |source| CreateError::Read { path: path.display().to_string(), source };
    let mut head = vec![0; HEAD_BYTES.min(usize::try_from(probe.size).unwrap_or(HEAD_BYTES))];
    let file = File::open(path).map_err(read)?;
    file.read_exact_at(&mut head, 0).map_err(read)?;
    let found = recognise(&head, probe.size);
    let judged = match spec {
        LegSpec::End(_) => at_end(probe, found.as_ref(), &contents, layout),
        _ => external(probe, found.as_ref(), &contents, layout),
    };
    judged.or_else(refuse)
}

fn held_by_hemi(probe: &Probe, leg: &Content) -> String {
    let path = probe.path.display();
    match leg {
        Content::Hemi { at_end: true, .. } => {
            let mebibyte = apart::end_of(probe.size) / (1 << 20) - 1;
            format!(
                "it is {leg}: hemi serve --leg end:{path} serves it. If that volume is not needed \
                 any more, make hemi forget it, and try again: dd if=/dev/zero of={path} bs=1M \
                 seek={mebibyte} count=1 conv=notrunc"
            )
        }
        _ => format!("it is {leg}: hemi serve --leg {path} serves it, or hemi leg add --wipe"),
    }
}

/// Checks that the metadata can go to the end of the disk.
fn at_end(
    probe: &Probe,
    found: Option<&Found>,
    contents: &[Content],
    layout: &Layout,
) -> Result<(), String> {
    let path = probe.path.display();
    let table = contents.iter().find(|one| one.is_partition_table());
    if table.is_some() || found.is_some_and(|found| found.format.is_table()) {
        let what = table.map_or_else(
            || found.map_or("a partition table", |found| found.format.name()).to_owned(),
            ToString::to_string,
        );
        return Err(format!(
            "it holds {what}, and the end of a disk with partitions is not hemi's to write. Adopt \
             one of its partitions by itself, or name a place for the metadata with --metadata PATH"
        ));
    }
    let known = |one: &&Content| match one {
        Content::Signature { format, .. } => found.is_some_and(|it| it.format.is_called(format)),
        _ => false,
    };
    let strange = contents.iter().find(|one| !known(one));
    let Some(&Found { format, end }) = found else {
        return Err(match strange {
            Some(strange) => format!(
                "it holds {strange}, and hemi does not know where that ends. Name a place for the \
                 metadata with --metadata PATH"
            ),
            None => format!(
                "nothing on it is known to hemi, so the end of its data is unknown. Name a place for \
                 the metadata with --metadata PATH; an empty disk is a leg without \
                 --adopt (--leg end:{path})"
            ),
        });
    };
    if let Some(strange) = strange {
        return Err(format!(
            "besides {} it holds {strange}, and hemi does not know where that ends. Remove what is \
             not needed (wipefs), or name a place for the metadata with --metadata PATH",
            format.name()
        ));
    }
    let room = layout.volume_bytes();
    let Some(end) = end else {
        return Err(format!(
            "it holds {}, which takes all of the disk. {}",
            format.name(),
            format.shrink(probe, room)
        ));
    };
    check_end(probe, format, end)?;
    if end <= room {
        return Ok(());
    }
    let most = Room { leg: apart::end_of(probe.size), ..Room::ANY };
    let most = largest_volume(most, Some(layout.region_bytes())).unwrap_or(0);
    if end <= most {
        return Err(format!(
            "it holds {} of {}, more than the volume of {}. Leave out --size, or make it larger",
            format.name(),
            Size(end),
            Size(room)
        ));
    }
    Err(format!(
        "it holds {} that ends at byte {end}, and hemi's metadata needs the space from byte \
         {room} on. {}",
        format.name(),
        format.shrink(probe, room)
    ))
}

/// Checks that everything on the disk is in the volume, for metadata that is elsewhere.
fn external(
    probe: &Probe,
    found: Option<&Found>,
    contents: &[Content],
    layout: &Layout,
) -> Result<(), String> {
    let alone = |format: Format| {
        contents.iter().all(|one| match one {
            Content::Signature { format: name, .. } => format.is_called(name),
            _ => false,
        })
    };
    // Content with an unknown end may reach the end of the disk.
    let end = match found {
        Some(Found { format, end: Some(end) }) if alone(*format) => {
            check_end(probe, *format, *end)?;
            *end
        }
        _ => probe.size,
    };
    let room = layout.volume_bytes();
    if end <= room {
        return Ok(());
    }
    if room + 4096 > probe.size {
        return Err(format!(
            "its content may reach its last byte, {end}, and a volume is a multiple of 4096 \
             bytes: the last {} would be missing. Make the disk or partition larger by {} bytes",
            probe.size - room,
            4096 - probe.size % 4096
        ));
    }
    Err(format!(
        "its content may reach byte {end}, beyond the volume of {}. Leave out --size, or make \
         it larger",
        Size(room)
    ))
}

/// Refuses a format that ends beyond its disk: it is damaged or truncated.
fn check_end(probe: &Probe, format: Format, end: u64) -> Result<(), String> {
    if end <= probe.size {
        return Ok(());
    }
    Err(format!(
        "it holds {} of {end} bytes, but has only {}: check it first, without hemi",
        format.name(),
        probe.size
    ))
}

/// Finds the format of a disk of `size` bytes by its beginning.
fn recognise(head: &[u8], size: u64) -> Option<Found> {
    let head = Head(head);
    // Partition tables come first: other signatures may lie in the gap after one.
    let found = [gpt, xfs, ext, btrfs, lvm, luks, swap].iter().find_map(|one| one(&head, size));
    // The first sector of a file system can look like a DOS table.
    found.or_else(|| dos(&head))
}

/// The beginning of a disk. Reads beyond its end return nothing.
struct Head<'a>(&'a [u8]);

impl Head<'_> {
    fn has(&self, at: usize, magic: &[u8]) -> bool {
        self.0.get(at..at + magic.len()) == Some(magic)
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn little_16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn little_32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn little_64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn big_32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_be_bytes)
    }

    fn big_64(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_be_bytes)
    }
}

/// Recognises ext2, ext3 and ext4. `s_blocks_count` has two halves; the upper one counts only with a feature
/// flag.
fn ext(head: &Head<'_>, _: u64) -> Option<Found> {
    const AT: usize = 1024;
    const INCOMPAT_64BIT: u32 = 0x80;
    if !head.has(AT + 0x38, &[0x53, 0xef]) {
        return None;
    }
    let log_block = head.little_32(AT + 0x18)?;
    let low = u64::from(head.little_32(AT + 0x04)?);
    let wide = head.little_32(AT + 0x60)? & INCOMPAT_64BIT != 0;
    let high = if wide { u64::from(head.little_32(AT + 0x150)?) } else { 0 };
    let blocks = high << 32 | low;
    // 64 KiB is the largest possible block size.
    let end = (log_block <= 6).then(|| blocks.checked_mul(1024 << log_block)).flatten();
    end.map(|end| Found { format: Format::Ext, end: Some(end) })
}

fn xfs(head: &Head<'_>, _: u64) -> Option<Found> {
    if !head.has(0, b"XFSB") {
        return None;
    }
    let end = u64::from(head.big_32(4)?).checked_mul(head.big_64(8)?)?;
    Some(Found { format: Format::Xfs, end: Some(end) })
}

/// Recognises btrfs. The size of this disk is in the superblock's device item.
fn btrfs(head: &Head<'_>, _: u64) -> Option<Found> {
    const AT: usize = 64 << 10;
    const ITEM: usize = AT + 0xc9;
    if !head.has(AT + 0x40, b"_BHRfS_M") {
        return None;
    }
    let device = head.little_64(ITEM)?;
    Some(Found { format: Format::Btrfs { device }, end: Some(head.little_64(ITEM + 8)?) })
}

/// Recognises LVM by the label in one of the first four sectors. The size follows the physical volume's id.
fn lvm(head: &Head<'_>, _: u64) -> Option<Found> {
    let label = (0..4)
        .map(|sector| sector * 512)
        .find(|&at| head.has(at, b"LABELONE") && head.has(at + 24, b"LVM2 001"))?;
    let header = label + usize::try_from(head.little_32(label + 20)?).ok()?;
    Some(Found { format: Format::Lvm, end: Some(head.little_64(header.checked_add(32)?)?) })
}

fn luks(head: &Head<'_>, _: u64) -> Option<Found> {
    head.has(0, b"LUKS\xba\xbe").then_some(Found { format: Format::Luks, end: None })
}

/// Recognises swap with 4096-byte pages, as on most machines, and no other.
fn swap(head: &Head<'_>, _: u64) -> Option<Found> {
    if !head.has(4086, b"SWAPSPACE2") || head.little_32(1024)? != 1 {
        return None;
    }
    let end = (u64::from(head.little_32(1028)?) + 1) * 4096;
    Some(Found { format: Format::Swap, end: Some(end) })
}

/// Recognises a GPT by its header in the second sector, whatever the sector size. Its copy is in the last
/// sector.
fn gpt(head: &Head<'_>, size: u64) -> Option<Found> {
    let found = [512, 4096].iter().any(|&at| head.has(at, b"EFI PART"));
    found.then_some(Found { format: Format::Gpt, end: Some(size) })
}

/// Recognises a DOS table by four entries with sane flags, at least one of them in use.
fn dos(head: &Head<'_>) -> Option<Found> {
    if head.little_16(510)? != 0xaa55 {
        return None;
    }
    let mut end = 0;
    for entry in (0..4).map(|entry| 446 + 16 * entry) {
        let [flag] = head.array(entry)?;
        let [kind] = head.array(entry + 4)?;
        if flag & 0x7f != 0 {
            return None;
        }
        if kind != 0 {
            let sectors = u64::from(head.little_32(entry + 12)?);
            end = end.max((u64::from(head.little_32(entry + 8)?) + sectors) * 512);
        }
    }
    (end > 0).then_some(Found { format: Format::Dos, end: Some(end) })
}

#[cfg(test)]
mod tests;
