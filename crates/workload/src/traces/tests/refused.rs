//! Lines that do not parse are refused, and named with their place.

use super::super::TraceError;
use super::super::format::{Event, Format, TimeUnit};
use super::records;
use super::round_trips::head_of;

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
        (Format::Alibaba, "device_id,opcode,length,offset,timestamp", "first line"),
        (Format::Tencent, "1,2,3,2,4", "I/O type"),
        (Format::Disksim(TimeUnit::Ms), "1.0 0 8 8 g", "flags"),
        (Format::Disksim(TimeUnit::Ms), "1.0 0 40000000000000000 8 0", "block"),
        (Format::Blkparse(Event::Queue), "8,0 0 1 0.1 1 Q X 1 + 8 [a]", "RWBS"),
        (Format::Blkparse(Event::Queue), "8,0 0 1 0.1 1 Q R 1 - 8 [a]", "plus sign"),
        (Format::Blkparse(Event::Queue), "sda 0 1 0.1 1 Q R 1 + 8 [a]", "device"),
        (Format::FioIolog, "fio version 1 iolog", "version"),
        (Format::FioIolog, "fio version 3 iolog\n1 f wait 3", "action"),
        (Format::Csv(None), "at_ns,operation,offset,length,size", "column"),
        (Format::Csv(None), "at_ns,operation,offset,length,offset", "column"),
        (Format::Csv(None), "at_ns,operation,offset", "first line"),
        (Format::Csv(None), "at_ns,at,operation,offset,length", "first line"),
        (Format::Csv(Some(TimeUnit::S)), "at_ns,operation,offset,length", "column"),
        (Format::Csv(None), "at,operation,offset,length\n1,read,0,512", "at"),
        (Format::Csv(None), "at_ns,operation,offset,length\n1,reed,0,512", "operation"),
        (Format::Csv(None), "at_ns,operation,offset,length\n1,read,0,", "length"),
        (Format::Csv(None), "at_ns,operation,offset,length,fua\n1,read,0,512,1", "fua"),
        (Format::Csv(None), "at_ns,operation,offset,length,fua\n1,write,0,512,yes", "fua"),
        (Format::Csv(None), "at_ns,operation,offset,length\n1,read,0,512,9", "end of the line"),
    ] {
        match records(text.as_bytes(), format).unwrap_err() {
            TraceError::Field { field: named, .. } => assert_eq!(named, field, "{text}"),
            other => panic!("{text}: {other}"),
        }
    }
    let binary = records(b"\x1f\x8b\xff\xfe", Format::Msr).unwrap_err().to_string();
    assert!(binary.contains("compressed?"), "{binary}");
    let long = records(&vec![b'1'; 1 << 17], Format::Msr).unwrap_err().to_string();
    assert!(long.contains("64 KiB"), "{long}");
}

#[test]
fn each_line_is_a_request_or_refused() {
    let blkparse = Format::Blkparse(Event::Queue);
    let cases: [(Format, &[&str], &[&str]); 7] = [
        (
            Format::Msr,
            &[
                "1,h,0,Read,0,512,1",
                " 1 , h , 00 , Read , 0 , 512 , 1 ",
                "184467440737095516,h,0,Read,0,1,1",
                "1,h,0,Read,0,2199023255040,1",
            ],
            &[
                "1,,0,Read,0,512,1",
                "1,h,0,Read,+1,512,1",
                "18446744073709551615,h,0,Read,0,1,1",
                "1,h,0,Read,0,2199023255553,1",
                "1,h,0,Read,18446744073709551104,511,1",
            ],
        ),
        (
            Format::Spc,
            &["0,1,512,R,.5", "0,1,512,R,5.", "0,1,512,R,18446744073.709551615", "0,1,5,r,1,x,y z"],
            &[
                "0,1,512,R,.",
                "0,1,512,R,18446744073.709551616",
                "0,36028797018963968,512,R,1",
                "0,1,512,RW,1",
            ],
        ),
        (Format::Alibaba, &["1,r,1,1,1"], &["1,RW,1,1,1", "1,R,1,1"]),
        (
            Format::Tencent,
            &["1,2,3,1,4", "1,36028797018963966,1,1,4"],
            &["1,36028797018963967,1,1,4"],
        ),
        (
            Format::Disksim(TimeUnit::Ms),
            &["1.0 0 8 8 0x1", "1.0 0 8 8 1F", "\t1.0\t0 8   8 1"],
            &["1.0 0 8 8 1ffffffff", "1.0 0 8 8 1 2"],
        ),
        (
            blkparse,
            &[
                "8,0 0 1 0.1 1 Q RA 1 + 8 [a]",
                "8,0 0 1 0.1 1 Q FWS [a]",
                "8,0 0 1 0.1 1 Q FS [a]",
                "8,0 0 1 0.1 1 Q FFS",
                "8,0 0 1 0.1 1 G",
            ],
            &[
                "8,0 0 1 0.1 1 Q FX 1 + 8",
                "8,0 0 1 0.1 1 Q",
                "8,0 0 1 0.1 1 Q WZ 1 + 8",
                "8,0 0 1 0.1",
            ],
        ),
        (
            Format::FioIolog,
            &["3 f read 0 512", "3 f sync", "3 f add"],
            &["3 f read 0", "3 f add 1", "3 f sync x", "f read 0 1"],
        ),
    ];
    for (format, good, bad) in cases {
        let read =
            |line: &str| records(format!("{}\n{line}\n", head_of(format)).as_bytes(), format);
        for line in good {
            assert!(read(line).is_ok(), "{line}: {:?}", read(line));
        }
        for line in bad {
            let error = read(line).unwrap_err().to_string();
            assert!(error.starts_with("a.trace, line 2: "), "{line}: {error}");
        }
    }
}
