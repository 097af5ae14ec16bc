//! Recognises the format of a trace by its beginning.
//!
//! Some formats begin with a mark of their own. Of the others, every line of the beginning has to
//! parse in one format, and in one only.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use super::format::{Event, Format, FormatSpec, Reading, TimeUnit};
use super::{Reader, Said, State, TraceError, Volumes, blkparse, compressed, csv, parse, vscsi};

/// Bytes that are looked at.
const BEGIN_BYTES: usize = 1 << 16;
/// Lines that have to parse.
const LINES: usize = 32;

/// The formats without a mark of their own. Settings do not matter here.
const BY_LINES: [(FormatSpec, Format); 6] = [
    (FormatSpec::Msr, Format::Msr),
    (FormatSpec::Spc, Format::Spc),
    (FormatSpec::Alibaba, Format::Alibaba),
    (FormatSpec::Tencent, Format::Tencent),
    (FormatSpec::Disksim, Format::Disksim(TimeUnit::Ns)),
    (FormatSpec::Blkparse, Format::Blkparse(Event::Queue)),
];

/// Returns the format of a trace that begins with these bytes, or `None` if they fit no format or
/// several. The last line counts only if it is whole.
pub fn detect(begin: &[u8]) -> Option<FormatSpec> {
    if hemi_capture::is_recording(begin) {
        return Some(FormatSpec::Hemi);
    }
    if vscsi::is_one(begin) {
        return Some(FormatSpec::Vscsi);
    }
    let end = begin.iter().rposition(|&byte| byte == b'\n').map_or(begin.len(), |at| at + 1);
    let text = String::from_utf8_lossy(&begin[..end]);
    let is_utf8 = matches!(text, Cow::Borrowed(_));
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).take(LINES).collect();
    let first = *lines.first()?;
    if first.starts_with("fio version ") {
        return Some(FormatSpec::FioIolog);
    }
    if blkparse::is_input_file(first) {
        return Some(FormatSpec::Blkparse);
    }
    if csv::is_header(first) {
        return Some(FormatSpec::Csv);
    }
    let formats = BY_LINES.iter().filter(|(_, format)| is_utf8 || format.has_any_bytes());
    let mut fitting = formats.filter(|(_, format)| fits(*format, &lines));
    let (spec, _) = fitting.next()?;
    fitting.next().is_none().then_some(*spec)
}

/// Returns true if all lines parse, and there is one before the end of the trace.
fn fits(format: Format, lines: &[&str]) -> bool {
    let (mut state, mut volumes) = (State::default(), Volumes::default());
    for (before, line) in lines.iter().enumerate() {
        match parse(format, &mut state, &mut volumes, line) {
            Ok(Said::End) => return before > 0,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

impl Reader<Box<dyn BufRead>> {
    /// Opens a file, also one compressed by gzip, and recognises its format if none is given.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is compressed in another way, if its format is not
    /// recognised, or if a setting is missing or does not belong to the format.
    pub fn open(path: &Path, reading: Reading) -> Result<Self, TraceError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(source) => Reader::of(source, file, reading),
            Err(error) => Err(TraceError::Read { file, error }),
        }
    }

    /// Reads any source, also one compressed by gzip, and recognises its format if none is given.
    /// Errors call it `file`.
    ///
    /// # Errors
    /// Fails as [`Reader::open`] does.
    pub fn of(
        source: impl Read + 'static,
        file: impl Into<String>,
        reading: Reading,
    ) -> Result<Self, TraceError> {
        let file = file.into();
        let mut source = BufReader::with_capacity(BEGIN_BYTES, compressed::plain(source, &file)?);
        let (spec, source): (_, Box<dyn BufRead>) = match reading.format {
            Some(spec) => (spec, Box::new(source)),
            None => {
                let begin = match begin_of(&mut source) {
                    Ok(begin) => begin,
                    Err(error) => return Err(TraceError::Read { file, error }),
                };
                match detect(&begin) {
                    Some(spec) => (spec, Box::new(Cursor::new(begin).chain(source))),
                    None if begin.is_empty() => return Err(TraceError::Empty { file }),
                    None => return Err(TraceError::Unknown { file }),
                }
            }
        };
        match spec.with(reading.time_unit, reading.event) {
            Ok(format) => Ok(Reader::new(source, file, format)),
            Err(error) => Err(TraceError::Setting { file, error }),
        }
    }
}

fn begin_of(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    source.take(BEGIN_BYTES as u64).read_to_end(&mut begin)?;
    Ok(begin)
}
