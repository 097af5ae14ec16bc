//! Lines of column names, and byte order marks.

use std::io::Cursor;

use super::super::format::{Format, FormatSpec, Reading, TimeUnit};
use super::super::{Reader, detect};
use super::records;

fn said(text: &str) -> String {
    let opened = Reader::of(Cursor::new(text.to_owned()), "it", Reading::default());
    opened.err().expect("it is refused").to_string()
}

#[test]
fn names_of_columns_are_passed_over() {
    for (format, spec, names, request) in [
        (
            Format::Msr,
            FormatSpec::Msr,
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            "128166372003061629,made,0,Read,383496192,32768,413",
        ),
        (
            Format::Alibaba,
            FormatSpec::Alibaba,
            "device_id,opcode,offset,length,timestamp",
            "1,W,8192,16384,1577808144360767",
        ),
        (
            Format::Tencent,
            FormatSpec::Tencent,
            "Timestamp,Offset,Size,IOType,VolumeID",
            "1538323200,128,128,0,1",
        ),
        (Format::Spc, FormatSpec::Spc, "# ASU, LBA, Size, Opcode, Timestamp", "0,1,512,R,0.5"),
    ] {
        let bare = records(format!("{request}\n{request}\n").as_bytes(), format).unwrap();
        for text in [
            format!("{names}\n{request}\n{request}\n"),
            format!("\u{feff}{names}\r\n{request}\r\n{request}\r\n"),
            format!("\u{feff}{request}\n{request}\n"),
        ] {
            assert_eq!(detect(text.as_bytes()), Some(spec), "{text}");
            assert_eq!(records(text.as_bytes(), format).unwrap(), bare, "{text}");
        }
        // In the first line only.
        let late = format!("{request}\n{names}\n{request}\n");
        assert!(records(late.as_bytes(), format).is_err());
        assert_eq!(detect(late.as_bytes()), None);
    }
}

#[test]
fn columns_in_another_order_are_refused() {
    // Read in the usual order, these numbers would be requests, too.
    let text = "timestamp,size,offset,io_type,volume\n1538323200,128,4096,0,1\n";
    let said = said(text);
    assert!(said.starts_with("it: its first line is `timestamp,size,"), "{said}");
    assert!(said.contains("are like tencent: remove this line if the columns are"), "{said}");
    let error = records(text.as_bytes(), Format::Tencent).unwrap_err().to_string();
    assert!(error.starts_with("a.trace, line 1: first line is `timestamp,size,"), "{error}");
}

#[test]
fn a_first_line_that_is_not_understood_is_quoted() {
    let like = said("$ blkparse -i sda\n8,0 0 1 0.1 1 Q R 8 + 8 [a]\n");
    let expected = "it: its first line is `$ blkparse -i sda`, and those behind it are like blkparse: \
                    remove this line";
    assert_eq!(like, expected);
    let unknown = said("when,where,how much\n12:00,8,12\n");
    assert!(unknown.contains("recognised (it begins with `when,where,how much`): "), "{unknown}");
    // Not whatever is no text, and not all of a long line.
    assert!(!said("\u{1}\u{2}\n").contains("begins"));
    assert!(said(&"long ".repeat(1000)).len() < 400);
}

#[test]
fn a_mark_does_not_hide_the_beginning_of_other_formats() {
    let log = "\u{feff}fio version 3 iolog\n1 f read 0 512\n";
    assert_eq!(detect(log.as_bytes()), Some(FormatSpec::FioIolog));
    assert_eq!(records(log.as_bytes(), Format::FioIolog).unwrap().len(), 1);
    let csv = "\u{feff}at,operation,offset,length\n1,read,0,512\n";
    assert_eq!(detect(csv.as_bytes()), Some(FormatSpec::Csv));
    assert_eq!(records(csv.as_bytes(), Format::Csv(Some(TimeUnit::S))).unwrap().len(), 1);
}
