//! Log events on standard error.

use std::io::{self, Write};
use std::os::linux::fs::MetadataExt as _;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing::{Level, Metadata};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::failure::{Failure, Kind};

/// Format of log events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Format of log events on standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,

    /// Least severe level to log: error, warn, info, debug or trace, for all or by module
    /// (info,hemi_io::leg=debug).
    #[arg(long, value_name = "FILTER", default_value = "info", env = "HEMI_LOG")]
    pub(crate) log: String,
}

/// The number of events that may wait for standard error. Further ones are dropped.
const EVENTS_WAITING_MAX: usize = 8192;

/// Logging, until it is dropped. Events still waiting are then written.
#[must_use]
pub(crate) struct Logging {
    _writer: WorkerGuard,
}

/// Starts logging. A thread of its own writes, so that a paused terminal, or a pipe that nobody
/// reads, does not hold up the volume.
///
/// # Errors
///
/// Fails with a [`Failure`] that names the filter that is not understood.
pub(crate) fn start(arguments: &LogArgs) -> Result<Logging> {
    let refuse =
        |what: String| Failure::error(Kind::Usage, what, "Write for example info or debug.");
    let filter = EnvFilter::try_new(&arguments.log)
        .map_err(|error| refuse(format!("--log {}: {error}", arguments.log)))?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(EVENTS_WAITING_MAX)
        .finish(std::io::stderr());
    let writer = Events { writer, to_journal: to_journal() };
    let events = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match arguments.log_format {
        LogFormat::Text => {
            events.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
        }
        LogFormat::Json => events.json().flatten_event(true).try_init(),
    };
    match started {
        Ok(()) => Ok(Logging { _writer: guard }),
        Err(error) => Err(refuse(format!("logging cannot start: {error}"))),
    }
}

/// The severity that the journal gets with an error that ends a command.
pub(crate) const ERROR: u8 = 3;

/// Returns true if standard error goes to systemd's journal, which takes a line's severity from
/// its beginning (sd-daemon(3)).
pub(crate) fn to_journal() -> bool {
    let told = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stream = std::fs::metadata("/proc/self/fd/2");
    stream.is_ok_and(|stream| told == format!("{}:{}", stream.st_dev(), stream.st_ino()))
}

/// The destination of events.
struct Events {
    writer: NonBlocking,
    to_journal: bool,
}

impl<'a> MakeWriter<'a> for Events {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event { writer: self.writer.clone(), severity: None }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Event {
        let severity = self.to_journal.then(|| severity(*event.level()));
        Event { writer: self.writer.clone(), severity }
    }
}

/// An event, with its severity in front of it if it goes to the journal.
struct Event {
    writer: NonBlocking,
    severity: Option<u8>,
}

impl Write for Event {
    /// Passes the whole event on in one piece, because the writer may drop a piece.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.severity {
            None => self.writer.write(event),
            Some(severity) => {
                let mut whole = format!("<{severity}>").into_bytes();
                whole.extend_from_slice(event);
                self.writer.write_all(&whole).map(|()| event.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Returns a level as syslog numbers it.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
