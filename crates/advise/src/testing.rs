//! Small traces for tests.

use std::io::Cursor;

use hemi_workload::traces::Reader;
use hemi_workload::traces::format::{Format, TimeUnit};
use hemi_workload::traces::load::Trace;

/// Returns a trace of requests: nanoseconds, first sector, sectors, and `R` or `W`.
pub(crate) fn trace(requests: &[(u64, u64, u32, &str)]) -> Trace {
    let line = |(at, start, count, kind): &(u64, u64, u32, &str)| {
        format!("{at} 0 {start} {count} {}\n", u8::from(*kind == "R"))
    };
    let lines: String = requests.iter().map(line).collect();
    let format = Format::Disksim(TimeUnit::Ns);
    let reader = Reader::new(Cursor::new(lines), "test.trace", format);
    Trace::from_reader(reader, None).unwrap()
}
