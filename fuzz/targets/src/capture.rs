//! Fuzz target for recordings of request streams.

use hemi_capture::{Reader, Writer};

/// Reads any bytes as a recording. A recording that is accepted reads back the same once it is
/// written again.
pub(crate) fn capture(input: &[u8]) {
    let mut reader = Reader::new(input);
    let Ok(head) = reader.head().cloned() else { return };
    let mut records = Vec::new();
    while let Ok(Some(record)) = reader.record() {
        assert!(record.start.checked_add(record.sectors).is_some());
        records.push(record);
    }
    let mut writer = Writer::new(Vec::new(), &head).expect("memory takes everything");
    for record in &records {
        writer.push(record, reader.dropped()).expect("memory takes everything");
    }
    let bytes = writer.finish(reader.dropped()).expect("memory takes everything");
    let mut again = Reader::new(&bytes[..]);
    for record in records {
        assert_eq!(again.record().expect("ours"), Some(record));
    }
    assert_eq!(again.record().expect("ours"), None);
    assert!(!again.is_cut());
}
