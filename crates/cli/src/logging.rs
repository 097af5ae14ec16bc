//! Log events on standard error.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text each.
    #[default]
    Text,
    /// A JSON object each.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Form of log events on standard error.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,

    /// Which events are logged: error, warn, info, debug or trace, for all or by module
    /// (info,hemi_server::leg=debug).
    #[arg(long, value_name = "FILTER", default_value = "info", env = "HEMI_LOG")]
    pub(crate) log: String,
}

/// Starts logging.
///
/// # Errors
///
/// Text naming the filter that is not understood.
pub(crate) fn start(arguments: &LogArgs) -> Result<(), String> {
    let filter = EnvFilter::try_new(&arguments.log)
        .map_err(|error| format!("--log {}: {error}", arguments.log))?;
    let events = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match arguments.log_format {
        LogFormat::Text => {
            events.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init()
        }
        LogFormat::Json => events.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging cannot start: {error}"))
}
