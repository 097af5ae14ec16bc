//! `hemi trace`: converts recorded and published request streams for other tools.

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use hemi_workload::traces::convert::{self, ConvertError};
use hemi_workload::traces::format::{Event, FormatSpec, Reading, TimeUnit};
use hemi_workload::traces::load::Trace;
use hemi_workload::traces::{Reader, TraceError};

use crate::failure::{Failure, Kind};

/// Convert request traces.
///
/// Reads recordings of hemi serve --record, and every format that hemi load and hemi sim replay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi trace convert db.capture db.iolog --to iolog
  hemi trace convert hm_1.csv hm_1.iolog --to iolog --file /dev/sdb
  hemi trace convert db.capture db.csv --to csv")]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Convert(ConvertArgs),
}

/// Write a trace in another format.
///
/// Requests are sorted by time, and the first is at zero. The trace is read into memory.
#[derive(Debug, Args)]
struct ConvertArgs {
    /// The trace, plain or compressed by gzip; - for standard input.
    #[arg(value_name = "IN")]
    from_path: PathBuf,

    /// The file to write; - for standard output.
    #[arg(value_name = "OUT")]
    to_path: PathBuf,

    /// Format to write.
    #[arg(long, value_name = "FORMAT")]
    to: To,

    #[command(flatten)]
    reading: ReadingArgs,

    /// Convert only this volume of the trace; * merges all of them into one address space.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,

    /// Name of the file or device in an iolog.
    #[arg(long, value_name = "NAME", default_value = "volume", value_parser = file_name)]
    file: String,
}

/// The way to read a trace, for every command that reads one.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReadingArgs {
    /// Format of the trace: hemi, csv, msr, spc, alibaba, tencent, disksim, mqsim, blkparse,
    /// fio_iolog or vscsi [default: recognised by its beginning].
    #[arg(long, value_name = "FORMAT", value_parser = named::<FormatSpec>)]
    from: Option<FormatSpec>,

    /// Time unit of a disksim trace, or of the column `at` of a csv trace: s, ms, us, ns or
    /// filetime (100 ns).
    #[arg(long, value_name = "UNIT", value_parser = named::<TimeUnit>)]
    time_unit: Option<TimeUnit>,

    /// Events of a blkparse trace that are requests: Q (default) or D.
    #[arg(long, value_name = "EVENT", value_parser = named::<Event>)]
    event: Option<Event>,
}

impl ReadingArgs {
    /// Opens a trace; `-` is standard input.
    ///
    /// # Errors
    /// Fails with [`Kind::Failed`] if there is no such file, and with [`Kind::Usage`] if its format
    /// is not known.
    pub(crate) fn open(self, path: &Path) -> Result<Reader<Box<dyn BufRead>>> {
        let reading = Reading { format: self.from, time_unit: self.time_unit, event: self.event };
        let opened = if path.as_os_str() == "-" {
            Reader::of(std::io::stdin(), "standard input", reading)
        } else if path.exists() {
            Reader::open(path, reading)
        } else {
            let what = format!("{} does not exist", path.display());
            return Err(Failure::error(Kind::Failed, what, "Check the path."));
        };
        opened.map_err(|error| {
            let what = error.to_string();
            let way_out = match error {
                TraceError::Unknown { .. } => {
                    "Give --from FORMAT, or put the names of a csv trace's columns before it."
                }
                TraceError::FirstLine { .. } => {
                    "tail -n +2 FILE prints what is behind it; - reads standard input."
                }
                TraceError::Compressed { .. } => {
                    "Pipe the output into this command, with - as the trace."
                }
                TraceError::Setting { .. } => "Give --time-unit or --event as it says.",
                _ => "Give a file that can be read.",
            };
            Failure::error(Kind::Usage, what, way_out)
        })
    }
}

/// Returns the error for a trace that cannot be read.
pub(crate) fn refused(error: &TraceError) -> anyhow::Error {
    let way_out = match error {
        TraceError::Volumes { .. } => "Give --volume NAME, or --volume '*'.",
        _ => "hemi help trace convert lists the formats.",
    };
    Failure::error(Kind::Usage, error.to_string(), way_out)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    /// fio's iolog, version 3.
    Iolog,
    /// Comma-separated values.
    Csv,
    /// A Parquet table, with every volume, the trace's order and its clock.
    Parquet,
}

/// Parses a value by the name it has in specs.
fn named<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let value = serde_json::Value::String(text.to_owned());
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// Parses a name that an iolog can have: its lines are split at spaces.
fn file_name(text: &str) -> Result<String, String> {
    match text.chars().find(|character| character.is_whitespace() || character.is_control()) {
        Some(character) => Err(format!("{character:?} cannot stand in an iolog's file name")),
        None if text.is_empty() => Err("the name is empty".into()),
        None => Ok(text.to_owned()),
    }
}

pub(crate) fn run(arguments: &TraceArgs) -> Result<()> {
    match &arguments.command {
        TraceCommand::Convert(arguments) => convert(arguments),
    }
}

fn convert(arguments: &ConvertArgs) -> Result<()> {
    let reader = arguments.reading.open(&arguments.from_path)?;
    match arguments.to {
        To::Parquet => to_parquet(arguments, reader),
        To::Csv => to_text(arguments, reader, |trace, out| convert::to_csv(trace, out).map(|()| 0)),
        To::Iolog => {
            to_text(arguments, reader, |trace, out| convert::to_iolog(trace, &arguments.file, out))
        }
    }
}

fn to_parquet(arguments: &ConvertArgs, reader: Reader<Box<dyn BufRead>>) -> Result<()> {
    let path = &arguments.to_path;
    if path.as_os_str() == "-" {
        let what = "a Parquet table cannot go to standard output";
        return Err(Failure::error(Kind::Usage, what, "Name a file."));
    }
    let written = convert::to_parquet(reader, arguments.volume.as_deref(), path);
    let lacking = written.map_err(|error| match error {
        ConvertError::Trace(error) => refused(&error),
        ConvertError::Table(error) => anyhow::Error::new(error).context("cannot write the table"),
    })?;
    warn(&lacking);
    Ok(())
}

/// Writes a trace with `write`, which returns the number of writes that lost their FUA flag.
fn to_text(
    arguments: &ConvertArgs,
    reader: Reader<Box<dyn BufRead>>,
    write: impl FnOnce(&Trace, &mut BufWriter<Box<dyn Write>>) -> std::io::Result<u64>,
) -> Result<()> {
    let trace =
        Trace::from_reader(reader, arguments.volume.as_deref()).map_err(|error| refused(&error))?;
    let writing = || format!("cannot write {}", arguments.to_path.display());
    let into: Box<dyn Write> = if arguments.to_path.as_os_str() == "-" {
        Box::new(std::io::stdout().lock())
    } else {
        Box::new(File::create(&arguments.to_path).with_context(writing)?)
    };
    let mut out = BufWriter::new(into);
    let lost = write(&trace, &mut out).with_context(writing)?;
    out.flush().with_context(writing)?;
    remark(&trace, lost);
    Ok(())
}

/// Reports what of the trace is missing from the result.
fn remark(trace: &Trace, fua_lost: u64) {
    warn(trace.lacking());
    let notes = [
        (
            fua_lost,
            "write with FUA is a plain write",
            "writes with FUA are plain writes",
            " in an iolog",
        ),
        (trace.empty(), "request of no bytes was", "requests of no bytes were", " left out"),
        (trace.rounded(), "request was", "requests were", " rounded to whole sectors"),
    ];
    for (count, one, many, rest) in notes {
        match count {
            0 => {}
            1 => eprintln!("note: 1 {one}{rest}"),
            _ => eprintln!("note: {count} {many}{rest}"),
        }
    }
}

/// Prints what a trace lacks on standard error.
pub(crate) fn warn(lacking: &[String]) {
    lacking.iter().for_each(|what| eprintln!("warning: {what}"));
}
