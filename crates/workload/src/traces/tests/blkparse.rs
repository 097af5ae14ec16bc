//! The text of blkparse as blkparse 1.2.0 writes it.

use hemi_units::{Extent, Operation};

use super::super::format::{Event, Format, FormatSpec};
use super::super::{Record, detect};
use super::{READ, WRITE, records};

fn queued(text: &[u8]) -> Vec<Record> {
    records(text, Format::Blkparse(Event::Queue)).unwrap()
}

/// Returns times, operations and first sectors.
fn short(records: &[Record]) -> Vec<(u64, Operation, u64)> {
    records.iter().map(|record| (record.at, record.operation, record.extent.start)).collect()
}

const READ_LINE: &str = "  8,0    0        1     0.000000000  1200  Q   R 2048 + 8 [fio]\n";
const WRITE_LINE: &str = "  8,0    1        9     0.002000000  1400  Q  WS 4096 + 16 [fio]\n";
const BOTH: [(u64, Operation, u64); 2] = [(0, READ, 2048), (2_000_000, WRITE, 4096)];

#[test]
fn commands_passed_through_are_no_requests() {
    let text = "8,0 0 5 0.002000100 1300 Q R 36 [smartctl]\n\
                8,0 0 5 0.002000100 1300 D R 36 (12 00 00 00 24 00 ..) [smartctl]\n\
                8,0 0 6 0.002000200 1300 D R 512 [smartctl]\n\
                8,0 0 7 0.002000300 1300 D W 0 (35 00 ..) [smartctl]\n\
                8,0 0 8 0.002000400 1300 C W (35 00 ..) [0]\n\
                8,0 0 9 0.003000000 1300 D R 8 + 8 (     500) [fio]\n\
                8,0 0 9 0.004000000 1300 D FWS (     500) [fio]\n";
    for (event, expected) in [
        (Event::Queue, vec![]),
        (
            Event::Dispatch,
            // With -t, blkparse puts the time since the queueing before the process.
            vec![(3_000_000, READ, 8), (4_000_000, Operation::Flush, 0), (4_000_000, WRITE, 0)],
        ),
    ] {
        let read = records(text.as_bytes(), Format::Blkparse(event)).unwrap();
        assert_eq!(short(&read), expected);
    }
}

#[test]
fn names_of_input_files_stand_before_or_behind_the_events() {
    let names = "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n";
    let remark = "\ndiscarded traces containing low-level device driver specific data (only \
                  available in binary output)\n";
    for text in [
        format!("{names}{READ_LINE}{WRITE_LINE}"),
        format!("{READ_LINE}{WRITE_LINE}{names}"),
        format!("{READ_LINE}{WRITE_LINE}{names}{remark}"),
    ] {
        assert_eq!(short(&queued(text.as_bytes())), BOTH, "{text}");
        assert_eq!(detect(text.as_bytes()), Some(FormatSpec::Blkparse), "{text}");
    }
    // More names than lines that are looked at.
    let many = names.repeat(100);
    assert_eq!(detect(format!("{many}{READ_LINE}").as_bytes()), Some(FormatSpec::Blkparse));
}

/// 4096 bytes of names come first, then the events, then the other names.
#[test]
fn names_of_input_files_may_be_parted_by_the_events() {
    let nvme = READ_LINE.replace("  8,0  ", "259,0  ");
    for (line, device) in [(READ_LINE, "8,0"), (nvme.as_str(), "259,0")] {
        for (begin, end) in [
            ("Input file nvme0n1.blktrac", "e.1 added\n"),
            ("Input file nvme0n1.blktrace.1", "2 added\n"),
            ("Input file nvme0n1.blktrace.1 added", "\n"),
            ("Input fi", "le nvme0n1.blktrace.1 added\n"),
        ] {
            let name = "Input file nvme0n1.blktrace.9 added\n";
            let text = format!("{name}{begin}{line}{WRITE_LINE}{end}{name}");
            let read = queued(text.as_bytes());
            assert_eq!(short(&read), BOTH, "{text}");
            assert_eq!(detect(text.as_bytes()), Some(FormatSpec::Blkparse));
            let mut reader =
                super::Reader::new(text.as_bytes(), "a", Format::Blkparse(Event::Queue));
            while reader.next().is_some() {}
            assert_eq!(reader.volume(0), Some(device));
        }
    }
}

#[test]
fn names_of_processes_and_messages_may_have_any_bytes() {
    // The kernel cuts the name behind 15 bytes.
    let cut = b"  8,0    1        8     0.001000000  1400  Q   W 512 + 8 [Schl\xc3\xbcsselb\xc3\xbcn\xe2]\n";
    let message = b"  8,0    0        0     0.001200000     0  m   N echo\n  and more\xff\n\n";
    let parted = b"  8,0    0      -15     0.001500000  1600  Q FWS [two\nlines]\n";
    let text = [READ_LINE.as_bytes(), cut, message, parted, WRITE_LINE.as_bytes()].concat();
    let read = queued(&text);
    let flush = Operation::Flush;
    let times =
        [BOTH[0], (1_000_000, WRITE, 512), (1_500_000, flush, 0), (1_500_000, WRITE, 0), BOTH[1]];
    assert_eq!(short(&read), times);
    assert_eq!(detect(&text), Some(FormatSpec::Blkparse));
    // Any other format is text.
    assert_eq!(detect(b"1,R,0,512,1\n\xff\n"), None);
}

#[test]
fn an_event_before_the_first_is_at_the_beginning() {
    let text = "8,0 1 20 0.004 1200 Q W 8 + 8 [fio]\n\
                8,0 1 21 1266874889.708521616 1200 Q W 16 + 8 [fio]\n\
                8,0 1 22 1266874889.709551616 1200 Q W 24 + 8 [fio]\n\
                8,0 1 23 1266874889.709551617 1200 Q W 32 + 8 [fio]\n";
    let times: Vec<u64> = queued(text.as_bytes()).iter().map(|record| record.at).collect();
    assert_eq!(times, [4_000_000, 0, 0, 1_266_874_889_709_551_617]);
}

#[test]
fn a_summary_ends_the_events() {
    let of_processes = "a [b] c (1500)\n Reads Queued:           0,        0KiB\t Writes Queued: 1\n\
                        fio (1200, ...)\n Reads Queued:           0,        0KiB\t Writes Queued: 1\n\
                        \n";
    let of_processors = "CPU0 (sda):\n Reads Queued:           1,        4KiB\n\nTotal (sda):\n\n\
                         Throughput (R/W): 800KiB/s / 0KiB/s\nEvents (sda): 20 entries\n\
                         Skips: 0 forward (0 -   0.0%)\n";
    let name = "Input file sda.blktrace.0 added\n";
    for end in [
        of_processors.to_owned(),
        of_processes.to_owned(),
        format!("{of_processes}{of_processors}{name}"),
    ] {
        let text = format!("{READ_LINE}{WRITE_LINE}{end}");
        assert_eq!(short(&queued(text.as_bytes())), BOTH, "{text}");
        // Times begin anew: nothing of a second text is taken, and nothing is left out silently.
        let twice = format!("{text}{text}");
        let error = records(twice.as_bytes(), Format::Blkparse(Event::Queue)).unwrap_err();
        assert!(error.to_string().contains("give each text by itself"), "{error}");
    }
    // A trace without events.
    assert_eq!(queued(format!("{name}{of_processors}").as_bytes()), []);
}

#[test]
fn a_line_of_something_else_is_refused() {
    for text in
        ["sda 0 1 0.1 1 Q R 1 + 8 [a]", "Reads Queued: 1", "hello", "8,0 0 x 0.1 1 Q R 1 + 8"]
    {
        let text = format!("{READ_LINE}{text}\n");
        let error = records(text.as_bytes(), Format::Blkparse(Event::Queue)).unwrap_err();
        assert!(error.to_string().starts_with("a.trace, line 2: "), "{error}");
    }
    let record = queued(READ_LINE.as_bytes())[0];
    assert_eq!(record.extent, Extent::new(2048, 8));
}
