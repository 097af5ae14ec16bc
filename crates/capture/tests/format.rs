//! The bytes of a recording, and the readable part of a truncated or damaged one.

use hemi_capture::{CaptureError, Head, Kind, Reader, Record, Writer};
use proptest::prelude::*;

fn head() -> Head {
    Head {
        volume_bytes: 1 << 30,
        block_bytes: 4096,
        began: 1_700_000_000_000_000_000,
        name: "db".into(),
    }
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, bool, u64), CaptureError> {
    let mut reader = Reader::new(bytes);
    assert_eq!(*reader.head()?, head());
    let mut records = Vec::new();
    while let Some(record) = reader.record()? {
        records.push(record);
    }
    Ok((records, reader.is_cut(), reader.dropped()))
}

const WRITE: Record = Record {
    at: 1_000_000,
    latency: 300,
    start: 8,
    sectors: 16,
    kind: Kind::Write,
    fua: true,
    failed: false,
};
const FLUSH: Record = Record {
    at: 999_000,
    latency: 70_000,
    start: 0,
    sectors: 0,
    kind: Kind::Flush,
    fua: false,
    failed: true,
};

/// The format's own bytes, written by hand from docs/design/capture-format.md. **Never change
/// them**: recordings are kept.
#[test]
fn the_bytes_are_those_of_the_page() {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    writer.push(&WRITE, 0).unwrap();
    writer.push(&FLUSH, 0).unwrap();
    let bytes = writer.finish(7).unwrap();
    let beginning = 40 + 8 + 8 + 4 + 4 + 2;
    assert_eq!(&bytes[..8], b"HEMICAP\x01");
    assert_eq!(&bytes[12..24], &[26, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&bytes[40..48], &(1_u64 << 30).to_le_bytes());
    assert_eq!(&bytes[beginning - 2..beginning], b"db");
    let records = &bytes[beginning..];
    // Payload, kind, records, number of the block, dropped.
    assert_eq!(&records[12..24], &[14, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(&records[24..40], &[1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    let payload = [
        // A write with FUA; 2,000,000 is the zigzag of 1,000,000; 300; 16 is that of 8; 16.
        9, 0x80, 0x89, 0x7A, 0xAC, 0x02, 16, 16,
        // A flush that failed; 1,999 is the zigzag of -1,000; 70,000.
        20, 0xCF, 0x0F, 0xF0, 0xA2, 0x04,
    ];
    assert_eq!(&records[40..40 + payload.len()], &payload);
    let end = &records[40 + payload.len()..];
    assert_eq!((end.len(), &end[16..20]), (40, &[2, 0, 0, 0][..]));
    assert_eq!(crc32c(&bytes[12..beginning]), bytes[8..12]);
    assert_eq!(read(&bytes).unwrap(), (vec![WRITE, FLUSH], false, 7));
}

/// Computes CRC-32C bit by bit.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

#[test]
fn a_recording_is_good_up_to_its_last_whole_block_wherever_it_is_cut() {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    for _ in 0..3 {
        writer.push(&WRITE, 0).unwrap();
        writer.push(&FLUSH, 0).unwrap();
        writer.flush(0).unwrap();
    }
    let bytes = writer.finish(0).unwrap();
    let beginning = 66;
    let block = (bytes.len() - beginning - 40) / 3;
    for length in 0..bytes.len() {
        let cut = read(&bytes[..length]);
        if length < beginning {
            assert!(matches!(cut, Err(CaptureError::NotOne)));
            continue;
        }
        let (records, is_cut, _) = cut.unwrap();
        assert!(is_cut);
        assert_eq!(records.len(), (length - beginning) / block * 2);
    }
}

#[test]
fn damage_before_the_end_is_an_error_and_never_a_wrong_record() {
    let mut writer = Writer::new(Vec::new(), &head()).unwrap();
    for at in 0..200 {
        writer.push(&Record { at, ..WRITE }, 0).unwrap();
        if at % 20 == 0 {
            writer.flush(0).unwrap();
        }
    }
    let bytes = writer.finish(0).unwrap();
    let (whole, ..) = read(&bytes).unwrap();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x10;
        let mut reader = Reader::new(&damaged[..]);
        let mut count = 0;
        let last = loop {
            match reader.record() {
                Ok(Some(record)) => assert_eq!(record, whole[count], "damage at {position}"),
                last => break last,
            }
            count += 1;
        };
        assert!(last.is_err() || reader.is_cut(), "{position}");
    }
}

proptest! {
    #[test]
    fn records_come_back(records in prop::collection::vec(
        (0..u64::MAX, any::<u64>(), 0..1_u64 << 50, 0..1_u64 << 32, 0..5_u8, any::<bool>()), 0..5000)
    ) {
        let records: Vec<Record> = records.into_iter().map(|(at, latency, start, sectors, kind, fua)| {
            let kind = [Kind::Read, Kind::Write, Kind::Trim, Kind::WriteZeroes, Kind::Flush][usize::from(kind)];
            let (start, sectors) = if kind == Kind::Flush { (0, 0) } else { (start, sectors) };
            Record { at, latency, start, sectors, kind, fua, failed: !fua }
        }).collect();
        let mut writer = Writer::new(Vec::new(), &head()).unwrap();
        for record in &records {
            writer.push(record, 3).unwrap();
        }
        let bytes = writer.finish(3).unwrap();
        let (read, cut, dropped) = read(&bytes).unwrap();
        prop_assert_eq!(read, records);
        prop_assert!(!cut && dropped == 3);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = Reader::new(&bytes[..]);
        while let Ok(Some(_)) = reader.record() {}
    }
}
