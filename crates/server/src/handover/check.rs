//! Asks another program whether it can continue, before anything changes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::state::FORMAT;
use crate::this_program;

/// Longest time for the program to answer.
pub const CHECK_TIME: Duration = Duration::from_secs(10);
/// Pause between two checks for its end.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time for the rest of its output to arrive after it has ended.
const PIPE_TIME: Duration = Duration::from_secs(1);
/// Maximum size of its answer or error message in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// The suffix that the kernel appends to the path of a program whose file has been replaced.
const DELETED: &str = " (deleted)";

/// The answer of a program to `--check-upgrade`. It also means that the command line and configuration are
/// valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckAnswer {
    /// Version of the program.
    pub version: String,
    /// The newest format of a handover that it reads. It reads all older ones.
    pub reads: u32,
}

impl CheckAnswer {
    /// Returns this program's answer.
    pub fn own() -> CheckAnswer {
        CheckAnswer { version: env!("CARGO_PKG_VERSION").to_owned(), reads: FORMAT }
    }
}

/// A reason not to hand the volume to a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The path of the running program is unknown.
    #[error("the path of the running program cannot be found: {0}")]
    NoPath(std::io::Error),
    /// The program cannot be run.
    #[error("{} cannot be run: {source}", binary.display())]
    Run { binary: PathBuf, source: std::io::Error },
    /// The program did not answer in time.
    #[error("{} did not answer within {} s", binary.display(), CHECK_TIME.as_secs())]
    Silent { binary: PathBuf },
    /// The program refused.
    #[error("{} refuses: {reason}", binary.display())]
    Refused { binary: PathBuf, reason: String },
    /// The program does not read the format that this one writes.
    #[error(
        "{} (hemi {version}) reads hand-overs up to format {reads}; this program writes {FORMAT}",
        binary.display()
    )]
    Format { binary: PathBuf, version: String, reads: u32 },
}

/// Returns the path of the running program, or of the file that has replaced it.
pub(crate) fn own_binary() -> Result<PathBuf, CheckError> {
    let link = std::fs::read_link(this_program::PATH).map_err(CheckError::NoPath)?;
    let replaced = link.to_str().and_then(|path| path.strip_suffix(DELETED));
    Ok(match replaced {
        Some(path) if !link.exists() => PathBuf::from(path),
        _ => link,
    })
}

/// Asks `binary`, with the arguments of this process. Blocks for at most [`CHECK_TIME`].
pub(crate) fn check(binary: &Path) -> Result<CheckAnswer, CheckError> {
    let failed = |source| CheckError::Run { binary: binary.into(), source };
    let mut child = Command::new(binary)
        .args(std::env::args_os().skip(1))
        .arg("--check-upgrade")
        .env_remove("NOTIFY_SOCKET")
        .env_remove(super::DESCRIPTOR)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // Both pipes are read meanwhile. A program that writes more than a pipe holds would never
    // end.
    let output = read_aside(child.stdout.take());
    let complaint = read_aside(child.stderr.take());
    let status = wait(&mut child).map_err(failed)?;
    let Some(status) = status else {
        return Err(CheckError::Silent { binary: binary.into() });
    };
    let refused = |reason: &str| {
        let reason = hemi_text::Plain(reason.trim()).to_string();
        CheckError::Refused { binary: binary.into(), reason }
    };
    if !status.success() {
        let complaint = complaint.recv_timeout(PIPE_TIME).unwrap_or_default();
        return Err(refused(&format!("{} ({status})", one_line(&complaint))));
    }
    let answer = output.recv_timeout(PIPE_TIME).unwrap_or_default();
    let answer: CheckAnswer = serde_json::from_str(answer.trim())
        .map_err(|_| refused("its answer is not that of a hemi that can be upgraded to"))?;
    if answer.reads < FORMAT {
        let CheckAnswer { version, reads } = answer;
        return Err(CheckError::Format { binary: binary.into(), version, reads });
    }
    Ok(answer)
}

/// Returns a program's error message as one line, without the frame that points at a position
/// in a file.
fn one_line(complaint: &str) -> String {
    let is_frame = |letter: char| "|^-~ 0123456789".contains(letter);
    let lines = complaint.lines().map(str::trim).filter(|line| !line.chars().all(is_frame));
    lines.collect::<Vec<_>>().join("; ")
}

/// Reads a pipe on a thread of its own.
fn read_aside(
    pipe: Option<impl std::io::Read + Send + 'static>,
) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let read = move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // After an error the bytes read so far have to suffice.
            let _ = pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    };
    // Without a thread the channel closes, which counts as no answer.
    let _ = std::thread::Builder::new().name("hemi-check".into()).spawn(read);
    receiver
}

/// Waits until the program ends. Kills it and returns `None` if it does not.
fn wait(child: &mut Child) -> std::io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + CHECK_TIME;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_hemi_is_refused() {
        let refusal = |path: &str| check(Path::new(path)).expect_err("it is no hemi").to_string();
        assert!(refusal("/bin/true").contains("not that of a hemi"), "{}", refusal("/bin/true"));
        assert!(refusal("/bin/false").contains("refuses"), "{}", refusal("/bin/false"));
        assert!(refusal("/no/such").contains("cannot be run"), "{}", refusal("/no/such"));
    }

    #[test]
    fn a_complaint_is_one_line() {
        let complaint = "error: x.toml: line 4\n  |\n4 | key = 1\n  | ^^^\nunknown field `key`\n\n";
        assert_eq!(one_line(complaint), "error: x.toml: line 4; 4 | key = 1; unknown field `key`");
    }

    #[test]
    fn the_running_program_is_found() {
        assert_eq!(own_binary().expect("/proc is there"), std::env::current_exe().expect("it is"));
    }
}
