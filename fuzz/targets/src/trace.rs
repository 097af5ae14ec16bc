//! Fuzz target for traces: every format in which they are published, and the recognition of formats.

use std::io::Cursor;

use hemi_workload::traces::format::{Event, Format, Reading, TimeUnit};
use hemi_workload::traces::load::Trace;
use hemi_workload::traces::{Reader, convert, detect};

/// Reads any bytes as a trace in every format. A trace that is accepted reads back the same once it is
/// written as comma-separated values.
pub(crate) fn trace(input: &[u8]) {
    let formats = [
        Format::Msr,
        Format::Spc,
        Format::Alibaba,
        Format::Tencent,
        Format::Disksim(TimeUnit::Ms),
        Format::Blkparse(Event::Queue),
        Format::Blkparse(Event::Dispatch),
        Format::FioIolog,
        Format::Csv(None),
        Format::Csv(Some(TimeUnit::Filetime)),
        Format::Vscsi,
        Format::Hemi,
    ];
    let _ = detect(input);
    for format in formats {
        let reader = Reader::new(input, "input", format);
        let Ok(trace) = Trace::from_reader(reader, Some("*")) else { continue };
        assert!(trace.end() > 0 || trace.entries().iter().all(|entry| entry.sectors == 0));
        let mut csv = Vec::new();
        convert::to_csv(&trace, &mut csv).expect("memory takes everything");
        let again = Reader::of(Cursor::new(csv), "ours", Reading::default())
            .and_then(|reader| Trace::from_reader(reader, None))
            .unwrap_or_else(|error| panic!("{format:?}: {error}"));
        assert_eq!(again.entries(), trace.entries(), "{format:?}");
        assert_eq!(again.latencies(), trace.latencies(), "{format:?}");
    }
}
