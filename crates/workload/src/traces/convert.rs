//! Conversion of traces for other tools.

use std::io::{self, BufRead, Write};
use std::path::Path;

use hemi_units::{MICROSECOND, Operation, SECTOR_BYTES};
use parquet_derive::ParquetRecordWriter;

use super::format::Format;
use super::load::{Trace, Wanted};
use super::{Reader, Record, TraceError};
use crate::table::{GROUP_ROWS, TableError, TableFile};

/// Key of the trace's format in a Parquet file's metadata.
pub const FORMAT_KEY: &str = "hemi.trace.format";
/// Key of what the trace is known to lack, a line for each reason, as in [`Reader::lacking`] but
/// without the file's name.
pub const LACKING_KEY: &str = "hemi.trace.lacking";

/// Writes an fio iolog, version 3, for a file named `file`. Returns the number of writes that
/// lost their FUA flag, which the format cannot express.
///
/// # Errors
/// Fails if the destination cannot be written.
pub fn to_iolog(trace: &Trace, file: &str, out: &mut impl Write) -> io::Result<u64> {
    let mut lost = 0;
    writeln!(out, "fio version 3 iolog\n0 {file} add\n0 {file} open")?;
    for entry in trace.entries() {
        let (at, offset) = (entry.at / MICROSECOND, entry.start * SECTOR_BYTES);
        let length = u64::from(entry.sectors) * SECTOR_BYTES;
        match entry.operation {
            Operation::Read => writeln!(out, "{at} {file} read {offset} {length}")?,
            Operation::Write { fua } => {
                lost += u64::from(fua);
                writeln!(out, "{at} {file} write {offset} {length}")?;
            }
            Operation::Trim => writeln!(out, "{at} {file} trim {offset} {length}")?,
            Operation::Flush => writeln!(out, "{at} {file} sync 0 0")?,
        }
    }
    let end = trace.entries().last().map_or(0, |entry| entry.at / MICROSECOND);
    writeln!(out, "{end} {file} close")?;
    Ok(lost)
}

/// Writes comma-separated values with a header line: times in nanoseconds from the first
/// request, places in bytes. The latency is empty if the trace has none. [`super::format::Format::Csv`]
/// reads them back.
///
/// # Errors
/// Fails if the destination cannot be written.
pub fn to_csv(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "at_ns,operation,fua,offset,length,latency_ns")?;
    for (index, entry) in trace.entries().iter().enumerate() {
        let fua = entry.operation == Operation::Write { fua: true };
        let (offset, length) =
            (entry.start * SECTOR_BYTES, u64::from(entry.sectors) * SECTOR_BYTES);
        let latency = trace.latencies().get(index).map_or(String::new(), u64::to_string);
        let (at, operation) = (entry.at, entry.operation.name());
        writeln!(out, "{at},{operation},{},{offset},{length},{latency}", u8::from(fua))?;
    }
    Ok(())
}

/// Writes a Parquet table of what the trace says: requests in its order and on its clock, of all
/// volumes unless one is named, also those of no bytes. Only a recording of hemi's is put in the
/// order of its times, the first at zero, for which it is read into memory. The file's metadata have
/// the format as [`FORMAT_KEY`], and what the trace lacks as [`LACKING_KEY`]. Returns that, too.
///
/// # Errors
/// Fails if the trace cannot be read or has no request, or if the file cannot be written.
pub fn to_parquet(
    mut reader: Reader<impl BufRead>,
    volume: Option<&str>,
    path: &Path,
) -> Result<Vec<String>, ConvertError> {
    let recording = reader.format() == Format::Hemi;
    let mut table = TableFile::create::<Row<'_>>(path)?;
    let mut wanted = Wanted::new(volume);
    let (mut records, mut is_empty) = (Vec::new(), true);
    while let Some(record) = reader.next() {
        let record = record?;
        if !wanted.has(record.volume, &reader) {
            continue;
        }
        is_empty = false;
        records.push(record);
        if records.len() == GROUP_ROWS && !recording {
            table.write(&rows(&records, &reader))?;
            records.clear();
        }
    }
    if is_empty {
        return Err(reader.nothing(volume).into());
    }
    if recording {
        records.sort_by_key(|record| record.at);
        let first = records[0].at;
        records.iter_mut().for_each(|record| record.at -= first);
    }
    for group in records.chunks(GROUP_ROWS) {
        table.write(&rows(group, &reader))?;
    }
    table.note(FORMAT_KEY, reader.format().name());
    table.note(LACKING_KEY, reader.lacks().join("\n"));
    table.finish()?;
    Ok(reader.lacking())
}

/// A row of the Parquet table.
#[derive(ParquetRecordWriter)]
struct Row<'a> {
    at_ns: u64,
    volume: &'a str,
    operation: &'static str,
    fua: bool,
    offset: u64,
    length: u64,
    rounded: bool,
    latency_ns: Option<u64>,
}

fn rows<'a, R: BufRead>(records: &[Record], reader: &'a Reader<R>) -> Vec<Row<'a>> {
    let row = |record: &Record| Row {
        at_ns: record.at,
        volume: reader.volume(record.volume).unwrap_or_default(),
        operation: record.operation.name(),
        fua: record.operation == Operation::Write { fua: true },
        offset: record.extent.start * SECTOR_BYTES,
        length: record.extent.bytes(),
        rounded: record.rounded,
        latency_ns: record.latency,
    };
    records.iter().map(row).collect()
}

/// The reason why a trace could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The table cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    use super::super::format::TimeUnit;
    use super::*;

    #[test]
    fn an_iolog_comes_back_and_csv_is_plain() {
        let text = "1,h,0,Write,4096,512,20\n11,h,0,Read,0,4096,30\n";
        let msr = Trace::from_reader(Reader::new(Cursor::new(text), "a", Format::Msr), None)
            .expect("a trace");
        let mut iolog = Vec::new();
        assert_eq!(to_iolog(&msr, "vol", &mut iolog).expect("memory"), 0);
        let again =
            Trace::from_reader(Reader::new(Cursor::new(iolog), "b", Format::FioIolog), None);
        assert_eq!(again.expect("an iolog").entries(), msr.entries());
        let mut csv = Vec::new();
        to_csv(&msr, &mut csv).expect("memory");
        let expected = "at_ns,operation,fua,offset,length,latency_ns\n\
                        0,write,0,4096,512,2000\n1000,read,0,0,4096,3000\n";
        assert_eq!(String::from_utf8(csv).expect("text"), expected);
        let disksim = Format::Disksim(TimeUnit::Us);
        let bare = Trace::from_reader(Reader::new(Cursor::new("5 0 1 8 1\n"), "c", disksim), None);
        let mut csv = Vec::new();
        to_csv(&bare.expect("a trace"), &mut csv).expect("memory");
        assert!(String::from_utf8(csv).expect("text").ends_with("0,read,0,512,4096,\n"));
    }

    /// Returns the rows of a table as text, and its notes.
    fn read_back(path: &Path) -> (Vec<String>, Vec<(String, Option<String>)>) {
        let file = std::fs::File::open(path).expect("it was written");
        let reader = SerializedFileReader::new(file).expect("a table");
        let notes = reader.metadata().file_metadata().key_value_metadata().expect("notes");
        let notes = notes.iter().map(|note| (note.key.clone(), note.value.clone())).collect();
        (reader.into_iter().map(|row| row.expect("a row").to_string()).collect(), notes)
    }

    #[test]
    fn a_table_keeps_order_clock_volumes_and_requests_of_no_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.parquet");
        let text = "50,h,1,Write,4096,700,20\n40,h,0,Read,0,0,30\n60,h,0,Read,512,512,1\n";
        let reader = || Reader::new(Cursor::new(text), "a", Format::Msr);
        to_parquet(reader(), None, &path).expect("a table");
        let row = |at, volume, operation, offset, length, rounded, latency| {
            format!(
                "{{at_ns: {at}, volume: \"{volume}\", operation: \"{operation}\", fua: false, \
                 offset: {offset}, length: {length}, rounded: {rounded}, latency_ns: {latency}}}"
            )
        };
        let rows = [
            row(5000, "h.1", "write", 4096, 1024, true, 2000),
            row(4000, "h.0", "read", 0, 0, false, 3000),
            row(6000, "h.0", "read", 512, 512, false, 100),
        ];
        let (found, notes) = read_back(&path);
        assert_eq!(found, rows);
        assert!(notes.contains(&(FORMAT_KEY.to_owned(), Some("msr".to_owned()))), "{notes:?}");
        to_parquet(reader(), Some("h.0"), &path).expect("a table");
        assert_eq!(read_back(&path).0, rows[1..]);
        let error = to_parquet(reader(), Some("h.2"), &path).expect_err("no such volume");
        assert!(error.to_string().contains("h.1, h.0"), "{error}");
        let wrong = Reader::new(Cursor::new("1,2\n"), "b", Format::Msr);
        let error = to_parquet(wrong, None, &path).expect_err("a bad line").to_string();
        assert!(error.starts_with("b, line 1: "), "{error}");
    }

    #[test]
    fn a_recording_goes_into_a_table_by_its_times() {
        use hemi_capture::{Head, Kind, Writer};
        let head = Head { volume_bytes: 1 << 30, block_bytes: 512, began: 0, name: "db".into() };
        let mut writer = Writer::new(Vec::new(), &head).expect("memory");
        for (at, kind, sectors) in [(3000, Kind::Flush, 0), (1000, Kind::Write, 8)] {
            let (fua, failed) = (kind == Kind::Write, false);
            let record =
                hemi_capture::Record { at, latency: 7, start: 0, sectors, kind, fua, failed };
            writer.push(&record, 0).expect("memory");
        }
        let mut bytes = writer.finish(5).expect("memory");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.parquet");
        to_parquet(Reader::new(&bytes[..], "a", Format::Hemi), None, &path).expect("a table");
        let (rows, notes) = read_back(&path);
        assert!(rows[0].starts_with("{at_ns: 0, volume: \"db\", operation: \"write\", fua: true"));
        assert!(rows[1].starts_with("{at_ns: 2000, volume: \"db\", operation: \"flush\""));
        let lacking = |lines: &[&str]| (LACKING_KEY.to_owned(), Some(lines.join("\n")));
        let dropped =
            "lacks 5 requests: the recorder could not keep up, and the real load was higher";
        assert!(notes.contains(&lacking(&[dropped])), "{notes:?}");
        bytes.pop();
        let said = to_parquet(Reader::new(&bytes[..], "a", Format::Hemi), None, &path);
        let said = said.expect("a table");
        assert!(said[0].starts_with("a has no end: hemi was killed"), "{said:?}");
        assert!(read_back(&path).1.contains(&lacking(&[&said[0][2..], dropped])));
    }
}
