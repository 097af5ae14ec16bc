use proptest::prelude::*;

use super::*;

/// Returns the beginning of a disk with these bytes at these offsets.
fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut head = vec![0; HEAD_BYTES];
    for (at, bytes) in parts {
        head[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    head
}

fn found(parts: &[(usize, &[u8])]) -> Option<(Format, Option<u64>)> {
    recognise(&head(parts), 1 << 40).map(|found| (found.format, found.end))
}

const EXT_MAGIC: (usize, &[u8]) = (1024 + 0x38, &[0x53, 0xef]);

#[test]
fn the_end_of_each_format_is_read() {
    let ext = |count: u32, log: u32| {
        found(&[EXT_MAGIC, (1028, &count.to_le_bytes()), (1048, &log.to_le_bytes())])
    };
    assert_eq!(ext(1000, 0), Some((Format::Ext, Some(1_024_000))));
    assert_eq!(ext(1000, 2), Some((Format::Ext, Some(4_096_000))));
    // The upper half without the feature means something else.
    let upper: (usize, &[u8]) = (1024 + 0x150, &[1]);
    let blocks: (usize, &[u8]) = (1028, &[5]);
    assert_eq!(found(&[EXT_MAGIC, upper, blocks]), Some((Format::Ext, Some(5120))));
    let wide: (usize, &[u8]) = (1024 + 0x60, &[0x80]);
    let end = Some(((1 << 32) + 5) * 1024);
    assert_eq!(found(&[EXT_MAGIC, upper, blocks, wide]), Some((Format::Ext, end)));

    let xfs = found(&[(0, b"XFSB"), (6, &[0x10]), (13, &[1, 0, 2])]);
    assert_eq!(xfs, Some((Format::Xfs, Some(0x1_0002 * 4096))));

    let item = (64 << 10) + 0xc9;
    let btrfs = found(&[
        ((64 << 10) + 0x40, b"_BHRfS_M"),
        (item, &[2]),
        (item + 8, &0x12_3456_7000_u64.to_le_bytes()),
    ]);
    assert_eq!(btrfs, Some((Format::Btrfs { device: 2 }, Some(0x12_3456_7000))));

    let swap = found(&[(4086, b"SWAPSPACE2"), (1024, &[1]), (1028, &[0xff])]);
    assert_eq!(swap, Some((Format::Swap, Some(256 * 4096))));

    let lvm = found(&[
        (512, b"LABELONE"),
        (532, &[32]),
        (536, b"LVM2 001"),
        (544 + 32, &(5_u64 << 30).to_le_bytes()),
    ]);
    assert_eq!(lvm, Some((Format::Lvm, Some(5 << 30))));

    assert_eq!(found(&[(0, b"LUKS\xba\xbe\0\x02")]), Some((Format::Luks, None)));

    let mut table = [0; 66];
    table[4] = 0x83;
    table[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    table[12..16].copy_from_slice(&4096_u32.to_le_bytes());
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(found(&[(446, &table)]), Some((Format::Dos, Some(6144 * 512))));
    // With its protective entry, it is a GPT.
    for sector in [512, 4096] {
        let gpt = found(&[(446, &table), (sector, b"EFI PART")]);
        assert_eq!(gpt, Some((Format::Gpt, Some(1 << 40))));
    }
    // The boot sector of a file system is no partition table.
    table[0] = 0x45;
    assert_eq!(found(&[(446, &table)]), None);
    assert_eq!(found(&[]), None);
}

#[test]
fn nonsense_is_not_believed_and_nothing_panics() {
    // Blocks of 2^1031 bytes are not valid.
    assert_eq!(found(&[EXT_MAGIC, (1028, &[1]), (1049, &[4])]), None);
    let most = [0xff; 8];
    assert_eq!(found(&[(0, b"XFSB"), (4, &most[..4]), (8, &most)]), None);
    let far = [(0, &b"LABELONE"[..]), (24, b"LVM2 001"), (20, &most[..4])];
    assert_eq!(found(&far), None);
    for length in 0..5000 {
        let mut short = vec![0xff; length];
        recognise(&short, 1 << 40);
        if let Some(start) = short.get_mut(..4) {
            start.copy_from_slice(b"XFSB");
        }
        recognise(&short, 1 << 40);
    }
}

#[test]
fn the_way_to_make_room_is_a_command() {
    let mut probe = Probe {
        path: "/dev/sdb".into(),
        kind: Kind::File,
        size: 110 << 30,
        identity: None,
        uses: Vec::new(),
    };
    let end = 100 << 30;
    // resize2fs leaves the file too short for the metadata, so it is extended again.
    assert!(Format::Ext.shrink(&probe, end).ends_with("K && truncate -s 118111600640 /dev/sdb"));
    probe.kind = Kind::Block;
    assert_eq!(
        Format::Ext.shrink(&probe, end),
        "Make room: e2fsck -f /dev/sdb && resize2fs /dev/sdb 104857600K"
    );
    assert!(Format::Btrfs { device: 1 }.shrink(&probe, end).contains("resize 1:104857600K"));
    assert!(
        Format::Lvm.shrink(&probe, end).contains("pvresize --setphysicalvolumesize 104857600K")
    );
    for format in [Format::Xfs, Format::Luks, Format::Swap] {
        assert!(format.shrink(&probe, end).contains("--metadata PATH"));
    }
}

proptest! {
    /// Arbitrary bytes after a magic number cause no overflow.
    #[test]
    fn any_bytes_behind_a_magic_are_borne(
        which in 0..9_usize, length in 0..HEAD_BYTES, noise in prop::collection::vec(any::<u8>(), 4096),
    ) {
        let mut head: Vec<u8> = noise.iter().copied().cycle().take(HEAD_BYTES).collect();
        let magics: [(usize, &[u8]); 9] = [
            EXT_MAGIC,
            (0, b"XFSB"),
            ((64 << 10) + 0x40, b"_BHRfS_M"),
            (0, b"LABELONE"),
            (24, b"LVM2 001"),
            (0, b"LUKS\xba\xbe"),
            (4086, b"SWAPSPACE2"),
            (512, b"EFI PART"),
            (510, &[0x55, 0xaa]),
        ];
        let (at, magic) = magics[which];
        head[at..at + magic.len()].copy_from_slice(magic);
        if which == 3 {
            let (at, magic) = magics[4];
            head[at..at + magic.len()].copy_from_slice(magic);
        }
        let whole = recognise(&head, 1 << 40);
        // A part of the head gives the same result as the whole.
        head.truncate(length);
        if let Some(found) = recognise(&head, 1 << 40) {
            prop_assert!(whole.is_some(), "{found:?}");
        }
    }
}
