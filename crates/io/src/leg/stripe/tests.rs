use proptest::prelude::*;

use super::*;

fn paths(folder: &tempfile::TempDir, count: usize) -> Vec<PathBuf> {
    (0..count).map(|member| folder.path().join(format!("member{member}"))).collect()
}

fn open(paths: &[PathBuf], chunk: u64, purpose: Purpose) -> Result<OpenStripe, OpenError> {
    OpenStripe::open(paths, chunk, FileOptions::default(), purpose)
}

fn formatted(paths: &[PathBuf], chunk: u64) {
    open(paths, chunk, Purpose::Create { size: 4 << 20, data_offset: 2 << 20 })
        .unwrap()
        .format()
        .unwrap();
}

#[test]
fn a_formatted_stripe_reads_back_across_its_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let paths = paths(&folder, 3);
    formatted(&paths, 64 << 10);
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|byte| (byte % 253) as u8).collect();
    {
        let stripe = open(&paths, 64 << 10, Purpose::Serve).unwrap();
        assert!(stripe.size() >= 4 << 20);
        stripe.write_at(32 << 10, &bytes).unwrap();
        stripe.flush().unwrap();
    }
    let stripe = open(&paths, 64 << 10, Purpose::Inspect).unwrap();
    let mut back = vec![0; bytes.len()];
    stripe.read_at(32 << 10, &mut back).unwrap();
    assert!(back == bytes);
    let raw = std::fs::read(&paths[1]).unwrap();
    let second_chunk = &bytes[32 << 10..96 << 10];
    assert!(&raw[DATA_OFFSET as usize..][..64 << 10] == second_chunk);
}

#[test]
fn members_that_do_not_fit_together_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let good = paths(&folder, 3);
    formatted(&good, 64 << 10);
    let other_folder = tempfile::tempdir().unwrap();
    let other = paths(&other_folder, 3);
    formatted(&other, 64 << 10);
    let blank = folder.path().join("blank");
    std::fs::write(&blank, vec![0; 8 << 20]).unwrap();
    let pick = |indices: [usize; 3]| indices.map(|index| good[index].clone()).to_vec();
    let mut foreign = good.clone();
    foreign[2] = other[2].clone();
    let mut unformatted = good.clone();
    unformatted[1] = blank;
    for (paths, chunk, reason) in [
        (pick([0, 2, 1]), 64 << 10, "swap the paths"),
        (good[..2].to_vec(), 64 << 10, "has 3 members, 2 are named"),
        (foreign, 64 << 10, "another stripe"),
        (unformatted, 64 << 10, "not a member of a stripe yet"),
        (good.clone(), 128 << 10, "chunk=64K"),
    ] {
        let error = open(&paths, chunk, Purpose::Serve).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    std::fs::OpenOptions::new().write(true).open(&good[2]).unwrap().set_len(1 << 20).unwrap();
    let error = open(&good, 64 << 10, Purpose::Serve).unwrap_err().to_string();
    assert!(error.contains("its stripe needs"), "{error}");
}

#[test]
fn a_damaged_identity_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = paths(&folder, 2);
    formatted(&paths, 4 << 10);
    let mut raw = std::fs::read(&paths[1]).unwrap();
    raw[41] ^= 1;
    std::fs::write(&paths[1], &raw).unwrap();
    let error = open(&paths, 4 << 10, Purpose::Serve).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    raw[8] = 9;
    std::fs::write(&paths[1], &raw).unwrap();
    let error = open(&paths, 4 << 10, Purpose::Serve).unwrap_err().to_string();
    assert!(error.contains("stripe format 9"), "{error}");
}

#[test]
fn the_identity_block_is_these_bytes() {
    let identity = Identity {
        stripe: *b"0123456789abcdef",
        member: 1,
        members: 2,
        chunk: 0x1_0000,
        data: 0x12_3456_0000,
    };
    let block = identity.encode();
    let mut head: Vec<u8> = Vec::new();
    head.extend(b"HEMISTRP\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0");
    head.extend(b"0123456789abcdef\0\0\x01\0\0\0\0\0\0\0\x56\x34\x12\0\0\0");
    assert_eq!(block[..56], head);
    assert!(block[56..4092].iter().all(|byte| *byte == 0));
    assert_eq!(Identity::decode(&block, Path::new("")).unwrap(), identity);
}

proptest! {
    /// Pieces tile the extent, stay within their chunk and agree with the definition byte by
    /// byte at their ends. Ranges hold the same bytes.
    #[test]
    fn pieces_and_ranges_hold_every_byte_once(
        members in 2_u64..5, shift in 12_u32..17, offset in 0_u64..1_000_000, length in 1_u64..600_000,
    ) {
        let chunk = 1 << shift;
        let layout = Layout { members, chunk, data: 1 << 30 };
        let place = |byte: u64| {
            let number = byte / chunk;
            ((number % members) as u8, DATA_OFFSET + number / members * chunk + byte % chunk)
        };
        let mut at = 0;
        let mut per_member = vec![0; members as usize];
        for piece in layout.pieces(offset, length) {
            prop_assert_eq!(piece.at, at);
            prop_assert_eq!((piece.device, piece.offset), place(offset + at));
            let last = place(offset + at + piece.length - 1);
            prop_assert_eq!((piece.device, piece.offset + piece.length - 1), last);
            per_member[usize::from(piece.device)] += piece.length;
            at += piece.length;
        }
        prop_assert_eq!(at, length);
        let mut of_ranges = vec![0; members as usize];
        for range in layout.ranges(offset, length) {
            of_ranges[usize::from(range.device)] += range.length;
            let first = layout.pieces(offset, length).find(|piece| piece.device == range.device);
            prop_assert_eq!(first.map(|piece| piece.offset), Some(range.offset));
        }
        prop_assert_eq!(per_member, of_ranges);
    }
}
