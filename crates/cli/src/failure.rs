//! The failure of a command: its message and its exit code.

use std::fmt;
use std::process::ExitCode;

use hemi_io::config::ConfigError;
use hemi_server::control::api::ErrorBody;
use hemi_server::control::volume::RefusalKind;

/// The kinds of failure, by exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command was carried out and failed.
    Failed = 1,
    /// The command line or the configuration is invalid.
    Usage = 2,
    /// The command was refused, because it could lose data or would have to guess.
    Refused = 3,
}

/// A failure with its exit code and the way out.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    pub(crate) way_out: String,
}

impl Failure {
    /// Returns a failure as an error.
    pub(crate) fn error(
        kind: Kind,
        what: impl Into<String>,
        way_out: impl Into<String>,
    ) -> anyhow::Error {
        Failure { kind, what: what.into(), way_out: way_out.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

impl From<ErrorBody> for Failure {
    fn from(body: ErrorBody) -> Failure {
        let kind = match body.error {
            RefusalKind::Unsafe => Kind::Refused,
            RefusalKind::BadRequest => Kind::Usage,
            RefusalKind::NotFound
            | RefusalKind::Forbidden
            | RefusalKind::Unauthorized
            | RefusalKind::Conflict
            | RefusalKind::Closing
            | RefusalKind::Failed => Kind::Failed,
        };
        Failure { kind, what: body.what, way_out: body.way_out }
    }
}

/// Prints the error and the hint on standard error, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let closed_pipe = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe);
    if closed_pipe {
        // The reader of the output has seen enough.
        return ExitCode::SUCCESS;
    }
    if crate::logging::to_journal() {
        // A line each, since the journal keeps lines.
        let severity = crate::logging::ERROR;
        eprintln!("<{severity}>error: {}", whole(error).replace('\n', &format!("\n<{severity}>")));
    } else {
        eprintln!("error: {}", whole(error));
    }
    if let Some(failure) = error.downcast_ref::<Failure>()
        && !failure.way_out.is_empty()
    {
        eprintln!("hint: {}", failure.way_out);
    }
    ExitCode::from(kind(error) as u8)
}

/// Returns the error and its causes, without repeats: many errors quote their cause already.
fn whole(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        let cause = cause.trim_end();
        if text.is_empty() {
            text.push_str(cause);
        } else if !text.contains(cause) {
            text.push_str(": ");
            text.push_str(cause);
        }
    }
    text
}

fn kind(error: &anyhow::Error) -> Kind {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.kind;
    }
    if error.downcast_ref::<ConfigError>().is_some() {
        return Kind::Usage;
    }
    Kind::Failed
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn every_cause_is_said_once() {
        let io = std::io::Error::other("no such thing");
        let error = Err::<(), _>(io).context("cannot read x").expect_err("it is one");
        assert_eq!(whole(&error), "cannot read x: no such thing");
        let path = std::path::Path::new("/nonexistent/x.toml");
        let error: anyhow::Error =
            hemi_server::config::Config::load(path, &[]).expect_err("it is not there").into();
        assert_eq!(whole(&error).matches("No such file").count(), 1, "{}", whole(&error));
        assert_eq!(kind(&error), Kind::Usage);
    }
}
