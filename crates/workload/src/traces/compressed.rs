//! Compressed traces: gzip is decompressed here, and other forms are named with the way out.

use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::TraceError;

/// Bytes that show how a file is compressed.
const MARK_BYTES: usize = 6;
const GZIP: &[u8] = b"\x1f\x8b";
/// The first bytes of other forms, and the command that decompresses each to standard output.
const OTHERS: [(&[u8], &str); 4] = [
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
    (b"\xfd7zXZ\x00", "xzcat"),
    (b"BZh", "bzcat"),
    (b"PK\x03\x04", "unzip -p"),
];

/// Returns the content of a source, decompressed if it is compressed by gzip.
///
/// # Errors
/// Fails if the source cannot be read, or is compressed in another way.
pub(super) fn plain(
    mut source: impl Read + 'static,
    file: &str,
) -> Result<Box<dyn Read>, TraceError> {
    let mut begin = Vec::with_capacity(MARK_BYTES);
    if let Err(error) = source.by_ref().take(MARK_BYTES as u64).read_to_end(&mut begin) {
        return Err(TraceError::Read { file: file.into(), error });
    }
    if let Some((_, command)) = OTHERS.iter().find(|(mark, _)| begin.starts_with(mark)) {
        return Err(TraceError::Compressed { file: file.into(), command });
    }
    let is_gzip = begin.starts_with(GZIP);
    let whole = Cursor::new(begin).chain(source);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}
