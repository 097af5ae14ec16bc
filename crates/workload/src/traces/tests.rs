mod blkparse;
mod compressed;
mod header;
mod refused;
mod round_trips;
mod vscsi;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use hemi_units::Operation;

use super::format::{Event, Format, FormatSpec, Reading, TimeUnit};
use super::load::{Beyond, Entry, Trace};
use super::{Reader, Record, TraceError, detect};

const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write { fua: false };

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/traces").join(name)
}

fn entry(at: u64, operation: Operation, start: u64, sectors: u32) -> Entry {
    Entry { at, start, sectors, operation }
}

fn records(text: &[u8], format: Format) -> Result<Vec<Record>, TraceError> {
    Reader::new(Cursor::new(text), "a.trace", format).collect()
}

/// Reads a file whose format is known.
fn trace_of(path: &Path, format: Format, volume: Option<&str>) -> Result<Trace, TraceError> {
    let bytes = std::fs::read(path).unwrap();
    Trace::from_reader(Reader::new(Cursor::new(bytes), path.display().to_string(), format), volume)
}

#[test]
fn msr_is_read() {
    let trace = trace_of(&sample("samples/msr.csv"), Format::Msr, Some("hm.1")).unwrap();
    let expected = [
        entry(0, READ, 749_016, 64),
        entry(1_026_003_800, WRITE, 607_390, 8),
        entry(2_332_061_600, WRITE, 16, 2),
    ];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn spc_is_read() {
    let trace = trace_of(&sample("samples/spc.csv"), Format::Spc, Some("0")).unwrap();
    let expected = [
        entry(0, WRITE, 20_941_264, 16),
        entry(2_335_000, WRITE, 20_939_840, 16),
        entry(573_294_000, READ, 12, 6),
    ];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn alibaba_is_read() {
    let trace = trace_of(&sample("samples/alibaba.csv"), Format::Alibaba, Some("725")).unwrap();
    // The second request begins and ends within sectors.
    let expected = [entry(0, READ, 115_449_856, 704), entry(187_000, WRITE, 115_449_856, 2)];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn tencent_is_read() {
    let trace = trace_of(&sample("samples/tencent.csv"), Format::Tencent, Some("1063")).unwrap();
    let expected =
        [entry(0, READ, 12_910_952, 128), entry(1_000_000_000, READ, 1_904_106_400, 384)];
    assert_eq!(trace.entries(), &expected[..]);
    let all = trace_of(&sample("samples/tencent.csv"), Format::Tencent, Some("*")).unwrap();
    assert_eq!(all.entries()[1], entry(0, WRITE, 6_338_688, 8));
}

#[test]
fn disksim_is_read_in_every_unit() {
    let path = sample("mqsim/tpcc-small.trace");
    let trace = trace_of(&path, Format::Disksim(TimeUnit::Ns), Some("*")).unwrap();
    assert_eq!(trace.entries().len(), 6_999);
    assert_eq!(trace.entries()[0], entry(0, WRITE, 264_719_034, 16));
    let last = trace.entries().last().unwrap();
    assert_eq!((last.at, last.operation), (1_075_002_000 - 938_513_000, WRITE));
    let writes = trace.entries().iter().filter(|entry| entry.operation == WRITE).count();
    assert!((2_550..2_650).contains(&writes), "{writes}");

    for (unit, nanoseconds) in [
        (TimeUnit::S, 1_234_567_800),
        (TimeUnit::Ms, 1_234_567),
        (TimeUnit::Us, 1_234),
        (TimeUnit::Filetime, 123),
        (TimeUnit::Ns, 1),
    ] {
        let read = records(b"1.2345678 0 8 8 1\n", Format::Disksim(unit)).unwrap();
        assert_eq!(read[0].at, nanoseconds);
    }
}

#[test]
fn blkparse_is_read_by_either_event() {
    let path = sample("samples/blkparse.txt");
    let flush = |at| entry(at, Operation::Flush, 0, 0);
    let queued = trace_of(&path, Format::Blkparse(Event::Queue), None).unwrap();
    let expected = [
        entry(0, READ, 223_490, 8),
        entry(1_000_250, WRITE, 512, 16),
        flush(2_000_000),
        entry(2_000_000, Operation::Write { fua: true }, 528, 8),
        flush(3_000_000),
        entry(4_000_000, Operation::Trim, 4096, 2048),
    ];
    assert_eq!(queued.entries(), &expected[..]);
    let dispatched = trace_of(&path, Format::Blkparse(Event::Dispatch), Some("8,0")).unwrap();
    let times: Vec<u64> = dispatched.entries().iter().map(|entry| entry.at).collect();
    assert_eq!(times, [0, 999_250, 4_095_000]);
}

#[test]
fn flushes_are_flushes_however_they_are_lettered() {
    for (letters, flushes) in [("F", 1), ("FS", 1), ("FF", 1), ("FFS", 1), ("FN", 1), ("N", 0)] {
        let text = format!("8,0 0 1 0.1 1 D {letters} [kworker/0:1H]");
        let read = records(text.as_bytes(), Format::Blkparse(Event::Dispatch)).unwrap();
        assert_eq!(read.len(), flushes, "{letters}");
        assert!(read.iter().all(|record| record.operation == Operation::Flush));
    }
    let text = "8,0 0 1 0.1 1 D RA 8 + 8 [a]\n8,0 0 2 0.1 1 D DS 8 + 8 [a]\n";
    let read = records(text.as_bytes(), Format::Blkparse(Event::Dispatch)).unwrap();
    assert_eq!((read[0].operation, read[1].operation), (READ, Operation::Trim));
}

#[test]
fn fio_logs_are_read() {
    let two = trace_of(&sample("samples/fio-v2.log"), Format::FioIolog, None).unwrap();
    let expected = [
        entry(0, READ, 16, 8),
        entry(250_000, WRITE, 0, 32),
        entry(1_000_000, Operation::Flush, 0, 0),
        entry(1_000_000, Operation::Trim, 2048, 128),
    ];
    assert_eq!(two.entries(), &expected[..]);
    let three = trace_of(&sample("samples/fio-v3.log"), Format::FioIolog, None).unwrap();
    let expected = [
        entry(0, WRITE, 0, 32),
        entry(10_000, READ, 32, 32),
        entry(13_000, Operation::Flush, 0, 0),
    ];
    assert_eq!(three.entries(), &expected[..]);
}

#[test]
fn volumes_are_chosen_by_name() {
    let path = sample("samples/msr.csv");
    let error = trace_of(&path, Format::Msr, None).unwrap_err().to_string();
    assert!(error.contains("hm.1, hm.0") && error.contains("volume = \"hm.1\""), "{error}");
    let error = trace_of(&path, Format::Msr, Some("hm.7")).unwrap_err().to_string();
    assert!(error.contains("`hm.7`") && error.contains("hm.0"), "{error}");
    let error = Reader::open(&sample("samples/none.csv"), Reading::default()).err().unwrap();
    assert!(error.to_string().contains("none.csv"), "{error}");
}

#[test]
fn what_lies_beyond_the_volume_is_refused_or_wrapped() {
    let text = "0 0 1000 8 1\n1 0 95 10 1\n2 0 3 8 0\n";
    let read = || {
        let format = Format::Disksim(TimeUnit::Ns);
        Trace::from_reader(Reader::new(Cursor::new(text), "a.trace", format), None).unwrap()
    };
    let error = read().fit(100, Beyond::Refuse).unwrap_err().to_string();
    assert!(error.contains("up to 516096 B") && error.contains("51200 B"), "{error}");
    let mut trace = read();
    trace.fit(100, Beyond::Wrap).unwrap();
    let starts: Vec<u64> = trace.entries().iter().map(|entry| entry.start).collect();
    assert_eq!((starts, trace.wrapped()), (vec![0, 90, 3], 2));
    let error = read().fit(9, Beyond::Wrap).unwrap_err().to_string();
    assert!(error.contains("a request of 5120 B"), "{error}");
    read().fit(1008, Beyond::Refuse).unwrap();
}

#[test]
fn requests_out_of_order_are_put_in_order() {
    let text = "7 0 1 8 1\n5 0 2 8 1\n6 0 3 0 1\n7 0 4 8 0\n";
    let format = Format::Disksim(TimeUnit::Us);
    let trace =
        Trace::from_reader(Reader::new(Cursor::new(text), "a.trace", format), None).unwrap();
    let expected = [entry(0, READ, 2, 8), entry(2_000, READ, 1, 8), entry(2_000, WRITE, 4, 8)];
    assert_eq!((trace.entries(), trace.empty()), (&expected[..], 1));
}

#[test]
fn a_recording_of_hemis_is_a_trace_with_latencies() {
    use hemi_capture::{Head, Kind, Record, Writer};
    let head = Head { volume_bytes: 1 << 30, block_bytes: 512, began: 0, name: "db".into() };
    let mut writer = Writer::new(Vec::new(), &head).unwrap();
    let record = |at, kind, start, sectors| Record {
        at,
        latency: at / 10,
        start,
        sectors,
        kind,
        fua: true,
        failed: false,
    };
    // The records are in the order of the answers.
    for record in [
        record(3000, Kind::Flush, 0, 0),
        record(1000, Kind::Write, 8, 16),
        record(4000, Kind::WriteZeroes, 80, 8),
    ] {
        writer.push(&record, 0).unwrap();
    }
    let bytes = writer.finish(5).unwrap();
    let trace = Trace::from_reader(Reader::new(Cursor::new(&bytes), "a", Format::Hemi), Some("db"))
        .unwrap();
    let expected = [
        entry(0, Operation::Write { fua: true }, 8, 16),
        entry(2000, Operation::Flush, 0, 0),
        entry(3000, Operation::Trim, 80, 8),
    ];
    assert_eq!(trace.entries(), &expected[..]);
    assert_eq!(trace.latencies(), [100, 300, 400]);
    assert!(trace.lacking()[0].starts_with("a lacks 5 requests: "), "{:?}", trace.lacking());
    // Without its last block.
    let cut = &bytes[..bytes.len() - 1];
    let trace = Trace::from_reader(Reader::new(cut, "a", Format::Hemi), None).unwrap();
    assert_eq!(trace.entries().len(), 3);
    assert!(
        trace.lacking()[0].starts_with("a has no end: hemi was killed"),
        "{:?}",
        trace.lacking()
    );
    // Without all of its records.
    let cut = &bytes[..70];
    let error = Trace::from_reader(Reader::new(cut, "a", Format::Hemi), None).unwrap_err();
    assert!(
        error.to_string().contains("has no request: it has no end: hemi was killed"),
        "{error}"
    );
    // Text is not a recording.
    let error = Trace::from_reader(Reader::new(Cursor::new("1,2,3\n"), "a", Format::Hemi), None)
        .unwrap_err();
    assert!(error.to_string().starts_with("a: "), "{error}");
}

#[test]
fn the_samples_are_recognised() {
    for (name, format) in [
        ("samples/msr.csv", FormatSpec::Msr),
        ("samples/spc.csv", FormatSpec::Spc),
        ("samples/alibaba.csv", FormatSpec::Alibaba),
        ("samples/tencent.csv", FormatSpec::Tencent),
        ("samples/blkparse.txt", FormatSpec::Blkparse),
        ("samples/fio-v2.log", FormatSpec::FioIolog),
        ("samples/fio-v3.log", FormatSpec::FioIolog),
        ("mqsim/tpcc-small.trace", FormatSpec::Disksim),
    ] {
        assert_eq!(detect(&std::fs::read(sample(name)).unwrap()), Some(format), "{name}");
    }
    for text in ["", "\n", "hello", "1,2,3", "\u{1f}\u{8b}", "CPU0 (sda):\n", "1,R,0,512,1\n1,Q\n"]
    {
        assert_eq!(detect(text.as_bytes()), None, "{text}");
    }
    // A line that is cut off does not count.
    assert_eq!(detect(b"1,R,0,512,1\n1,R,0,5"), Some(FormatSpec::Alibaba));
    let path = sample("samples/spc.csv");
    assert_eq!(Reader::open(&path, Reading::default()).unwrap().format(), Format::Spc);
    let open = |path: &Path, reading| Reader::open(path, reading).err().unwrap().to_string();
    let with_unit = Reading { time_unit: Some(TimeUnit::Ms), ..Reading::default() };
    assert!(open(&path, with_unit).contains("spc.csv: time_unit = ms: leave it out"));
    let disksim = open(&sample("mqsim/tpcc-small.trace"), Reading::default());
    assert!(disksim.contains("time_unit = none"), "{disksim}");
    let readme = open(&sample("README.md"), Reading::default());
    assert!(readme.contains("in no format") && readme.contains("vscsi"), "{readme}");
}
