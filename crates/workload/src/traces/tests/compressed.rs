//! Compressed traces.

use std::io::{Cursor, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::format::Reading;
use super::super::{Reader, TraceError};
use super::sample;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn opened(bytes: Vec<u8>) -> Result<Reader<Box<dyn std::io::BufRead>>, TraceError> {
    Reader::of(Cursor::new(bytes), "it", Reading::default())
}

fn requests(bytes: Vec<u8>) -> Vec<String> {
    let reader = opened(bytes).unwrap();
    reader.map(|request| format!("{:?}", request.unwrap())).collect()
}

#[test]
fn gzip_is_read_as_its_content() {
    let plain = std::fs::read(sample("samples/msr.csv")).unwrap();
    let expected = requests(plain.clone());
    assert!(!expected.is_empty());
    assert_eq!(requests(gzip(&plain)), expected);
    // Parts that were compressed one by one, as logs are.
    let (first, second) = plain.split_at(plain.len() / 2);
    assert_eq!(requests([gzip(first), gzip(second)].concat()), expected);
}

#[test]
fn gzip_that_is_cut_off_is_an_error() {
    let mut cut = gzip(&std::fs::read(sample("samples/msr.csv")).unwrap());
    cut.truncate(cut.len() - 20);
    let failed = match opened(cut) {
        Ok(reader) => reader.filter_map(Result::err).next(),
        Err(error) => Some(error),
    };
    assert!(matches!(failed, Some(TraceError::Read { .. })), "{failed:?}");
}

#[test]
fn other_forms_and_nothing_are_named() {
    let said = |bytes: &[u8]| opened(bytes.into()).err().unwrap().to_string();
    assert_eq!(said(b""), "it is empty");
    assert_eq!(said(&gzip(b"")), "it is empty");
    let zstd = said(b"\x28\xb5\x2f\xfd\x00\x00\x00\x00");
    assert_eq!(zstd, "it is compressed: decompress it, as in `zstdcat it`");
    assert!(said(b"BZh91AY&SY").contains("bzcat it"));
    // A file shorter than a mark.
    assert!(said(b"BZ").contains("in no format"));
}
