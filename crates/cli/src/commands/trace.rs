//! `hemi trace`: converts recorded and published request streams for other tools.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use hemi_workload::traces::convert;
use hemi_workload::traces::format::{Event, FormatSpec, TimeUnit};
use hemi_workload::traces::load::Trace;

use crate::failure::{Failure, Kind};

/// The first bytes of a recording by hemi.
const RECORDING: &[u8] = b"HEMICAP";

/// Convert request traces.
///
/// Reads recordings of hemi serve --record, and every format that hemi load and hemi sim replay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi trace convert db.capture db.iolog --to iolog
  hemi trace convert hm_1.csv hm_1.iolog --from msr --to iolog --file /dev/sdb
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
    /// The trace.
    #[arg(value_name = "IN")]
    from_path: PathBuf,

    /// The file to write; - for standard output.
    #[arg(value_name = "OUT")]
    to_path: PathBuf,

    /// Format to write: fio's iolog (version 3) or comma-separated values.
    #[arg(long, value_name = "FORMAT")]
    to: To,

    /// Format of the trace: hemi, msr, spc, alibaba, tencent, disksim, mqsim, blkparse,
    /// fio_iolog [default: hemi's own recordings are recognised].
    #[arg(long, value_name = "FORMAT", value_parser = named::<FormatSpec>)]
    from: Option<FormatSpec>,

    /// Time unit of a disksim trace: ms, us or ns.
    #[arg(long, value_name = "UNIT", value_parser = named::<TimeUnit>)]
    time_unit: Option<TimeUnit>,

    /// Events of a blkparse trace that are requests: Q (default) or D.
    #[arg(long, value_name = "EVENT", value_parser = named::<Event>)]
    event: Option<Event>,

    /// Convert only this volume of the trace; * merges all of them into one address space.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,

    /// Name of the file or device in an iolog.
    #[arg(long, value_name = "NAME", default_value = "volume", value_parser = file_name)]
    file: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    /// fio's iolog, version 3.
    Iolog,
    /// Comma-separated values.
    Csv,
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
    let path = &arguments.from_path;
    let usage = |what: String| {
        Failure::error(Kind::Usage, what, "hemi help trace convert lists the formats.")
    };
    let format = match arguments.from {
        Some(format) => format,
        None if !path.exists() => {
            let what = format!("there is no {}", path.display());
            return Err(Failure::error(Kind::Failed, what, "Check the path."));
        }
        None if is_recording(path) => FormatSpec::Hemi,
        None => {
            let what = "is no recording of hemi's; say what it is with --from";
            return Err(usage(format!("{} {what}", path.display())));
        }
    };
    if format == FormatSpec::Disksim && arguments.time_unit.is_none() {
        let what = "--from disksim needs --time-unit, which the trace does not tell";
        let way_out = "Give --time-unit ms for DiskSim's own traces, ns for MQSim's, or us.";
        return Err(Failure::error(Kind::Usage, what, way_out));
    }
    let format = format
        .with(arguments.time_unit, arguments.event)
        .map_err(|error| usage(error.to_string()))?;
    let trace = Trace::read(path, format, arguments.volume.as_deref())
        .map_err(|error| usage(error.to_string()))?;
    let writing = || format!("cannot write {}", arguments.to_path.display());
    let lost = if arguments.to_path.as_os_str() == "-" {
        write(arguments, &trace, std::io::stdout().lock())?
    } else {
        let file = File::create(&arguments.to_path).with_context(writing)?;
        write(arguments, &trace, file).with_context(writing)?
    };
    remark(&trace, lost);
    Ok(())
}

fn write(
    arguments: &ConvertArgs,
    trace: &Trace,
    into: impl std::io::Write,
) -> std::io::Result<u64> {
    let mut out = BufWriter::new(into);
    let lost = match arguments.to {
        To::Iolog => convert::to_iolog(trace, &arguments.file, &mut out)?,
        To::Csv => convert::to_csv(trace, &mut out).map(|()| 0)?,
    };
    out.flush()?;
    Ok(lost)
}

/// Reports what of the trace is missing from the result.
fn remark(trace: &Trace, fua_lost: u64) {
    if fua_lost > 0 {
        eprintln!("note: {fua_lost} writes with FUA are plain writes in an iolog");
    }
    if trace.dropped() > 0 {
        eprintln!("note: {} requests are missing: they were not recorded", trace.dropped());
    }
    if trace.empty() > 0 {
        eprintln!("note: {} requests of no bytes were left out", trace.empty());
    }
    if trace.rounded() > 0 {
        eprintln!("note: {} requests were rounded to whole sectors", trace.rounded());
    }
}

fn is_recording(path: &Path) -> bool {
    let mut begins = [0; RECORDING.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begins));
    read.is_ok() && begins == *RECORDING
}
