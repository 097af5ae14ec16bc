//! Log events on standard error.

use anyhow::Result;
use clap::{Args, ValueEnum};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

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
    /// (info,hemi_server::leg=debug).
    #[arg(long, value_name = "FILTER", default_value = "info", env = "HEMI_LOG")]
    pub(crate) log: String,
}

/// Events that may wait for standard error to take them; beyond, they are dropped.
const EVENTS_WAITING_MAX: usize = 8192;

/// Logging, as long as it is kept. What waits is written when it is dropped.
#[must_use]
pub(crate) struct Logging {
    _writer: WorkerGuard,
}

/// Starts logging. A thread of its own writes: a terminal that is paused or a pipe nobody
/// reads must not hold up the volume.
///
/// # Errors
///
/// A [`Failure`] that names the filter that is not understood.
pub(crate) fn start(arguments: &LogArgs) -> Result<Logging> {
    let refuse =
        |what: String| Failure::error(Kind::Usage, what, "Write for example info or debug.");
    let filter = EnvFilter::try_new(&arguments.log)
        .map_err(|error| refuse(format!("--log {}: {error}", arguments.log)))?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(EVENTS_WAITING_MAX)
        .finish(std::io::stderr());
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
