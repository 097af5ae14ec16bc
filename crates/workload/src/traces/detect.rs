//! Recognises the format of a trace by its beginning.
//!
//! Some formats begin with a mark of their own. Of the others, every line of the beginning has to
//! parse in one format, and in one only.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use super::fields::Wrong;
use super::format::{Event, Format, FormatSpec, Reading, TimeUnit};
use super::{
    Reader, Said, State, TraceError, Volumes, blkparse, compressed, csv, header, parse, vscsi,
    without_mark,
};

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
    let lines = lines_of(&text);
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
    by_lines(&lines, is_utf8).map(|(spec, _)| spec)
}

fn lines_of(text: &str) -> Vec<&str> {
    let lines = without_mark(text).lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).take(LINES).collect()
}

/// Returns the only format in which all lines parse.
fn by_lines(lines: &[&str], is_utf8: bool) -> Option<(FormatSpec, Format)> {
    let formats = BY_LINES.into_iter().filter(|(_, format)| is_utf8 || format.has_any_bytes());
    let mut fitting = formats.filter(|(_, format)| fits(*format, lines));
    let found = fitting.next()?;
    fitting.next().is_none().then_some(found)
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

/// Returns the reason why the format of a trace that begins with these bytes is not recognised.
fn unknown(file: String, begin: &[u8]) -> TraceError {
    let text = String::from_utf8_lossy(begin);
    let lines = lines_of(&text);
    let first = lines.first().map_or("", |first| first);
    let Wrong { value: quoted, .. } = Wrong::new("", first, "");
    let like = lines.get(1..).filter(|rest| !rest.is_empty()).and_then(|rest| by_lines(rest, true));
    if let Some((_, format)) = like {
        let right = header::columns(format).map_or("remove this line", |columns| columns.right);
        return TraceError::FirstLine { file, first: quoted, like: format.name(), right };
    }
    let is_text = !quoted.contains(|letter: char| letter.is_control() || letter == '\u{fffd}');
    let begins = is_text.then(|| format!(" (it begins with `{quoted}`)"));
    TraceError::Unknown { file, begins: begins.unwrap_or_default() }
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
                    None => return Err(unknown(file, &begin)),
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
