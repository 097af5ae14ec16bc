use std::io::Cursor;
use std::path::{Path, PathBuf};

use hemi_units::{Extent, Operation};
use proptest::prelude::*;

use super::format::{Event, Format, TimeUnit};
use super::load::{Beyond, Entry, Trace};
use super::{Reader, Record, TraceError};

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

#[test]
fn msr_is_read() {
    let trace = Trace::read(&sample("samples/msr.csv"), Format::Msr, Some("hm.1")).unwrap();
    let expected = [
        entry(0, READ, 749_016, 64),
        entry(1_026_003_800, WRITE, 607_390, 8),
        entry(2_332_061_600, WRITE, 16, 2),
    ];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn spc_is_read() {
    let trace = Trace::read(&sample("samples/spc.csv"), Format::Spc, Some("0")).unwrap();
    let expected = [
        entry(0, WRITE, 20_941_264, 16),
        entry(2_335_000, WRITE, 20_939_840, 16),
        entry(573_294_000, READ, 12, 6),
    ];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn alibaba_is_read() {
    let trace = Trace::read(&sample("samples/alibaba.csv"), Format::Alibaba, Some("725")).unwrap();
    // The second request begins and ends within sectors.
    let expected = [entry(0, READ, 115_449_856, 704), entry(187_000, WRITE, 115_449_856, 2)];
    assert_eq!((trace.entries(), trace.rounded()), (&expected[..], 1));
}

#[test]
fn tencent_is_read() {
    let trace = Trace::read(&sample("samples/tencent.csv"), Format::Tencent, Some("1063")).unwrap();
    let expected =
        [entry(0, READ, 12_910_952, 128), entry(1_000_000_000, READ, 1_904_106_400, 384)];
    assert_eq!(trace.entries(), &expected[..]);
    let all = Trace::read(&sample("samples/tencent.csv"), Format::Tencent, Some("*")).unwrap();
    assert_eq!(all.entries()[1], entry(0, WRITE, 6_338_688, 8));
}

#[test]
fn disksim_is_read_in_every_unit() {
    let path = sample("mqsim/tpcc-small.trace");
    let trace = Trace::read(&path, Format::Disksim(TimeUnit::Ns), Some("*")).unwrap();
    assert_eq!(trace.entries().len(), 6_999);
    assert_eq!(trace.entries()[0], entry(0, WRITE, 264_719_034, 16));
    let last = trace.entries().last().unwrap();
    assert_eq!((last.at, last.operation), (1_075_002_000 - 938_513_000, WRITE));
    let writes = trace.entries().iter().filter(|entry| entry.operation == WRITE).count();
    assert!((2_550..2_650).contains(&writes), "{writes}");

    for (unit, nanoseconds) in [(TimeUnit::Ms, 1_234_567), (TimeUnit::Us, 1_234), (TimeUnit::Ns, 1)]
    {
        let read = records(b"1.2345678 0 8 8 1\n", Format::Disksim(unit)).unwrap();
        assert_eq!(read[0].at, nanoseconds);
    }
}

#[test]
fn blkparse_is_read_by_either_event() {
    let path = sample("samples/blkparse.txt");
    let flush = |at| entry(at, Operation::Flush, 0, 0);
    let queued = Trace::read(&path, Format::Blkparse(Event::Queue), None).unwrap();
    let expected = [
        entry(0, READ, 223_490, 8),
        entry(1_000_250, WRITE, 512, 16),
        flush(2_000_000),
        entry(2_000_000, Operation::Write { fua: true }, 528, 8),
        flush(3_000_000),
        entry(4_000_000, Operation::Trim, 4096, 2048),
    ];
    assert_eq!(queued.entries(), &expected[..]);
    let dispatched = Trace::read(&path, Format::Blkparse(Event::Dispatch), Some("8,0")).unwrap();
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
    let two = Trace::read(&sample("samples/fio-v2.log"), Format::FioIolog, None).unwrap();
    let expected = [
        entry(0, READ, 16, 8),
        entry(250_000, WRITE, 0, 32),
        entry(1_000_000, Operation::Flush, 0, 0),
        entry(1_000_000, Operation::Trim, 2048, 128),
    ];
    assert_eq!(two.entries(), &expected[..]);
    let three = Trace::read(&sample("samples/fio-v3.log"), Format::FioIolog, None).unwrap();
    let expected = [
        entry(0, WRITE, 0, 32),
        entry(10_000, READ, 32, 32),
        entry(13_000, Operation::Flush, 0, 0),
    ];
    assert_eq!(three.entries(), &expected[..]);
}

#[test]
fn what_does_not_parse_is_named_with_its_place() {
    let good = "1,hm,0,Read,0,512,1\n";
    for (format, text, expected) in [
        (Format::Msr, "1,hm,0,Reed,0,512,1", "type is `Reed`: write Read or Write"),
        (Format::Msr, "1,hm,0,Read,-1,512,1", "offset is `-1`: write a whole number below 2^64"),
        (Format::Msr, "1,hm,0,Read,0", "size is ``: the line ends before this field"),
        (Format::Msr, "1,hm,0,Read,0,1,1,9", "end of the line is `9`: "),
        (Format::Msr, "1,hm,0,Read,18446744073709551615,1,1", "offset is `18446744073709551615`"),
        (Format::Msr, "\u{fffd}", "timestamp is `\u{fffd}`"),
    ] {
        let error = records(format!("{good}{text}\n").as_bytes(), format).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(&format!("a.trace, line 2: {expected}")), "{error}");
    }
    for (format, text, field) in [
        (Format::Spc, "0,1,512,X,0.5", "opcode"),
        (Format::Spc, "0,1,512,R,1e3", "timestamp"),
        (Format::Alibaba, "device_id,opcode,offset,length,timestamp", "device_id"),
        (Format::Tencent, "1,2,3,2,4", "I/O type"),
        (Format::Disksim(TimeUnit::Ms), "1.0 0 8 8 g", "flags"),
        (Format::Disksim(TimeUnit::Ms), "1.0 0 40000000000000000 8 0", "block"),
        (Format::Blkparse(Event::Queue), "8,0 0 1 0.1 1 Q X 1 + 8 [a]", "RWBS"),
        (Format::Blkparse(Event::Queue), "8,0 0 1 0.1 1 Q R 1 - 8 [a]", "plus sign"),
        (Format::Blkparse(Event::Queue), "sda 0 1 0.1 1 Q R 1 + 8 [a]", "device"),
        (Format::FioIolog, "fio version 1 iolog", "version"),
        (Format::FioIolog, "fio version 3 iolog\n1 f wait 3", "action"),
    ] {
        match records(text.as_bytes(), format).unwrap_err() {
            TraceError::Line { field: named, .. } => assert_eq!(named, field, "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
    let binary = records(b"\x1f\x8b\xff\xfe", Format::Msr).unwrap_err().to_string();
    assert!(binary.contains("compressed?"), "{binary}");
    let long = records(&vec![b'1'; 1 << 17], Format::Msr).unwrap_err().to_string();
    assert!(long.contains("64 KiB"), "{long}");
}

#[test]
fn volumes_are_chosen_by_name() {
    let path = sample("samples/msr.csv");
    let error = Trace::read(&path, Format::Msr, None).unwrap_err().to_string();
    assert!(error.contains("hm.1, hm.0") && error.contains("volume = \"hm.1\""), "{error}");
    let error = Trace::read(&path, Format::Msr, Some("hm.7")).unwrap_err().to_string();
    assert!(error.contains("`hm.7`") && error.contains("hm.0"), "{error}");
    let error = Trace::read(&sample("samples/none.csv"), Format::Msr, None).unwrap_err();
    assert!(error.to_string().contains("none.csv"), "{error}");
}

#[test]
fn what_lies_beyond_the_volume_is_refused_or_wrapped() {
    let text = "0 0 1000 8 1\n1 0 95 10 1\n2 0 3 8 0\n";
    let read = || {
        let format = Format::Disksim(TimeUnit::Ns);
        Trace::from_lines(Cursor::new(text), "a.trace", format, None).unwrap()
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
    let trace = Trace::from_lines(Cursor::new(text), "a.trace", format, None).unwrap();
    let expected = [entry(0, READ, 2, 8), entry(2_000, READ, 1, 8), entry(2_000, WRITE, 4, 8)];
    assert_eq!((trace.entries(), trace.empty()), (&expected[..], 1));
}

trait WriteIf {
    fn write_if(self, write: bool) -> Operation;
}

impl WriteIf for Operation {
    fn write_if(self, write: bool) -> Operation {
        if write { WRITE } else { self }
    }
}

const FORMATS: [Format; 8] = [
    Format::Msr,
    Format::Spc,
    Format::Alibaba,
    Format::Tencent,
    Format::Disksim(TimeUnit::Us),
    Format::Blkparse(Event::Queue),
    Format::Blkparse(Event::Dispatch),
    Format::FioIolog,
];

/// Returns a line in each format, with times in whole seconds, which all formats can express.
fn line_of(format: Format, seconds: u64, volume: u64, write: bool, extent: Extent) -> String {
    let (start, sectors) = (extent.start, extent.sectors());
    let (offset, length) = (start * 512, sectors * 512);
    let letter = if write { 'W' } else { 'R' };
    match format {
        Format::Msr => {
            let kind = if write { "Write" } else { "Read" };
            format!("{},h,{volume},{kind},{offset},{length},9", seconds * 10_000_000)
        }
        Format::Spc => format!("{volume},{start},{length},{letter},{seconds}.000000"),
        Format::Alibaba => {
            format!("{volume},{letter},{offset},{length},{}", seconds * 1_000_000)
        }
        Format::Tencent => format!("{seconds},{start},{sectors},{},{volume}", u8::from(write)),
        Format::Disksim(_) => {
            format!("{}.0 {volume} {start} {sectors} {}", seconds * 1_000_000, u8::from(!write))
        }
        Format::Blkparse(event) => {
            let action = if event == Event::Queue { 'Q' } else { 'D' };
            format!(
                "  8,{volume}  1 2  {seconds}.000000000 77  {action} {letter}S {start} + {sectors} [x]"
            )
        }
        Format::Hemi => unreachable!("not of lines"),
        Format::FioIolog => {
            let action = if write { "write" } else { "read" };
            format!("{} f{volume} {action} {offset} {length}", seconds * 1_000_000)
        }
    }
}

proptest! {
    #[test]
    fn lines_come_back_as_they_were_written(
        requests in prop::collection::vec(
            (0..1_000_000_000_u64, 0..4_u64, any::<bool>(), 0..(1_u64 << 40), 1..4096_u64), 1..40),
        end in prop::sample::select(vec!["\n", "\r\n", "\n\n"]),
    ) {
        for format in FORMATS {
            let mut text = String::new();
            if format == Format::FioIolog {
                text.push_str("fio version 3 iolog\n");
            }
            for &(seconds, volume, write, start, sectors) in &requests {
                let extent = Extent::new(start, sectors);
                text.push_str(&line_of(format, seconds, volume, write, extent));
                text.push_str(end);
            }
            let mut reader = Reader::new(Cursor::new(text), "a.trace", format);
            for &(seconds, volume, write, start, sectors) in &requests {
                let record = reader.next().unwrap().unwrap();
                prop_assert_eq!(record.at, seconds * 1_000_000_000);
                prop_assert_eq!(record.operation, READ.write_if(write));
                prop_assert_eq!(record.extent, Extent::new(start, sectors));
                prop_assert!(!record.rounded);
                let name = reader.volume(record.volume).unwrap();
                prop_assert!(name.ends_with(&volume.to_string()), "{}", name);
            }
            prop_assert!(reader.next().is_none());
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in FORMATS {
            for record in Reader::new(Cursor::new(&bytes), "a.trace", format).flatten() {
                prop_assert!(record.extent.start <= record.extent.end);
            }
        }
    }

    #[test]
    fn nor_does_what_is_nearly_a_trace(
        lines in prop::collection::vec("[-0-9,. RWDFQSadeirtx+]{0,60}", 0..8),
        version in prop::sample::select(vec!["fio version 2 iolog\n", "fio version 3 iolog\n", ""]),
    ) {
        let text = format!("{version}{}", lines.join("\n"));
        for format in FORMATS {
            // Nor does the loader, whatever the result.
            if let Ok(mut trace) = Trace::from_lines(Cursor::new(&text), "a", format, Some("*"))
                && trace.fit(1 << 20, Beyond::Wrap).is_ok()
            {
                prop_assert!(trace.end() <= 512 << 20);
            }
        }
    }

    #[test]
    fn bytes_are_rounded_outwards(offset in 0..(1_u64 << 50), length in 1..1_000_000_u64) {
        let text = format!("1,R,{offset},{length},1");
        let record = records(text.as_bytes(), Format::Alibaba).unwrap()[0];
        prop_assert!(record.extent.start * 512 <= offset && offset < (record.extent.start + 1) * 512);
        let end = offset + length;
        prop_assert!(record.extent.end * 512 >= end && end > (record.extent.end - 1) * 512);
        prop_assert_eq!(record.rounded, !offset.is_multiple_of(512) || !end.is_multiple_of(512));
    }
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
    let trace = Trace::from_lines(Cursor::new(&bytes), "a", Format::Hemi, Some("db")).unwrap();
    let expected = [
        entry(0, Operation::Write { fua: true }, 8, 16),
        entry(2000, Operation::Flush, 0, 0),
        entry(3000, Operation::Trim, 80, 8),
    ];
    assert_eq!(trace.entries(), &expected[..]);
    assert_eq!((trace.latencies(), trace.dropped()), (&[100, 300, 400][..], 5));
    // Text is not a recording.
    let error = Trace::from_lines(Cursor::new("1,2,3\n"), "a", Format::Hemi, None).unwrap_err();
    assert!(error.to_string().starts_with("a: "), "{error}");
}
