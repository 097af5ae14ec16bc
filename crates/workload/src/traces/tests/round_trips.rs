//! Random traces: what is written comes back, and no bytes make a reader panic.

use std::io::Cursor;

use hemi_units::{Extent, Operation};
use proptest::prelude::*;

use super::super::format::{Event, Format, Reading, TimeUnit};
use super::super::load::{Beyond, Trace};
use super::super::{Reader, convert};
use super::{READ, WRITE, entry, records};

trait WriteIf {
    fn write_if(self, write: bool) -> Operation;
}

impl WriteIf for Operation {
    fn write_if(self, write: bool) -> Operation {
        if write { WRITE } else { self }
    }
}

const FORMATS: [Format; 10] = [
    Format::Msr,
    Format::Spc,
    Format::Alibaba,
    Format::Tencent,
    Format::Disksim(TimeUnit::Us),
    Format::Blkparse(Event::Queue),
    Format::Blkparse(Event::Dispatch),
    Format::FioIolog,
    Format::Csv(None),
    Format::Csv(Some(TimeUnit::Filetime)),
];

/// Returns the line with which a trace of the format begins.
pub(super) fn head_of(format: Format) -> &'static str {
    match format {
        Format::FioIolog => "fio version 3 iolog",
        Format::Csv(None) => "at_ns,operation,fua,offset,length,latency_ns,volume",
        Format::Csv(Some(_)) => "volume,at,operation,length,offset",
        _ => "",
    }
}

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
        Format::Hemi | Format::Vscsi => unreachable!("not of lines"),
        Format::Csv(None) => {
            let action = if write { "write" } else { "read" };
            format!("{},{action},0,{offset},{length},7,v{volume}", seconds * 1_000_000_000)
        }
        Format::Csv(Some(_)) => {
            let action = if write { "write" } else { "read" };
            format!("v{volume},{}.00,{action},{length},{offset}", seconds * 10_000_000)
        }
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
            let mut text = format!("{}\n", head_of(format));
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
        version in prop::sample::select(vec!["fio version 2 iolog\n", "fio version 3 iolog\n",
            "at_ns,operation,fua,offset,length,latency_ns\n", ""]),
    ) {
        let text = format!("{version}{}", lines.join("\n"));
        for format in FORMATS {
            // Nor does the loader, whatever the result.
            if let Ok(mut trace) = Trace::from_reader(Reader::new(Cursor::new(&text), "a", format), Some("*"))
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

proptest! {
    #[test]
    fn csv_comes_back_as_it_was_written(
        requests in prop::collection::vec(
            (any::<u64>(), 0..5_u8, 0..(1_u64 << 54), 1..=u32::MAX, any::<u64>()), 1..40),
        latencies in any::<bool>(),
    ) {
        let operations = [
            READ, WRITE, Operation::Write { fua: true }, Operation::Trim, Operation::Flush,
        ];
        let mut text = "at_ns,operation,fua,offset,length,latency_ns\n".to_owned();
        let mut expected = Vec::new();
        for (at, kind, start, sectors, latency) in requests {
            let operation = operations[usize::from(kind)];
            let (name, fua) = [("read", 0), ("write", 0), ("write", 1), ("trim", 0), ("flush", 0)]
                [usize::from(kind)];
            let (start, sectors) = if kind == 4 { (0, 0) } else { (start, sectors) };
            let latency = if latencies { latency.to_string() } else { String::new() };
            let (offset, length) = (start * 512, u64::from(sectors) * 512);
            text.push_str(&format!("{at},{name},{fua},{offset},{length},{latency}\n"));
            expected.push((at, entry(at, operation, start, sectors), latency));
        }
        expected.sort_by_key(|(at, ..)| *at);
        let begin = expected[0].0;
        let read = |text: &str| {
            let bytes = Cursor::new(text.to_owned());
            let reader = Reader::of(bytes, "a.csv", Reading::default()).unwrap();
            Trace::from_reader(reader, None).unwrap()
        };
        let trace = read(&text);
        prop_assert_eq!(trace.entries().len(), expected.len());
        for (index, (entry, (at, mut wanted, latency))) in
            trace.entries().iter().zip(expected).enumerate()
        {
            wanted.at = at - begin;
            prop_assert_eq!(*entry, wanted);
            if latencies {
                prop_assert_eq!(trace.latencies()[index].to_string(), latency);
            }
        }
        prop_assert_eq!(trace.latencies().is_empty(), !latencies);
        let mut written = Vec::new();
        convert::to_csv(&trace, &mut written).unwrap();
        let again = read(std::str::from_utf8(&written).unwrap());
        prop_assert_eq!(again.entries(), trace.entries());
        prop_assert_eq!(again.latencies(), trace.latencies());
    }
}
