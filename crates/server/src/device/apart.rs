//! A separate process that waits for the device's own requests.
//!
//! Three things wait in the kernel until requests of a block device have ended, and no signal interrupts them:
//! changing the settings of its queue, flushing it, and closing it. This process answers those requests. If a
//! thread of it waited and the process was killed, it could never end: the thread would wait for the next
//! server, and the next server for the locks of the legs. So a child waits. It holds nothing else, and it ends
//! when the next server answers.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{DeviceError, failed, hold};
use crate::this_program;

/// The hidden command of `hemi` that is the child.
pub const COMMAND: &str = "at-device";
/// The child's option for each setting, KEY=VALUE, of the queue in sysfs that is its argument.
pub const SET_OPTION: &str = "--set";

/// The child's answers about a device that it is to hold. An error of the system follows [`FAILED`] as its
/// number.
const HELD: &str = "held";
const GONE: &str = "gone";
const IN_USE: &str = "in use";
const FAILED: &str = "failed ";

/// Changes settings of a block device's queue, such as `("scheduler", "none")` of `ublkb0`. A failure is logged
/// and only costs speed.
pub(super) fn set(device: &str, settings: &[(&str, &str)]) {
    let queue = PathBuf::from(format!("/sys/block/{device}/queue"));
    // The kernel stops the queue for a value that stays the same, too.
    let changes: Vec<String> = settings
        .iter()
        .filter(|(key, value)| !is_set(&queue.join(key), value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if changes.is_empty() {
        return;
    }
    let mut command = Command::new(this_program::PATH);
    command.arg(COMMAND).arg(&queue);
    for change in changes {
        command.arg(SET_OPTION).arg(change);
    }
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let why = match ended {
        Ok(output) if output.status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(device, error = why, "the block device is not tuned");
}

/// Returns true if a file of sysfs has this value. A choice among several is in brackets.
fn is_set(path: &Path, value: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(path) else { return false };
    text.trim() == value || text.split_whitespace().any(|word| word == format!("[{value}]"))
}

/// A block device held exclusively, by the child, until this is dropped.
pub(super) struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // An error means that it has already been waited for.
        let _ = self.0.wait();
    }
}

/// Holds the block device exclusively, so that nobody else can mount it, and flushes everything written to it to
/// the legs. Returns `None` if it no longer exists.
///
/// # Errors
/// [`DeviceError::InUse`], or [`DeviceError::Failed`] if the device could not be opened or flushed.
pub(super) fn hold_flushed(path: &str) -> Result<Option<Held>, DeviceError> {
    let cannot_hold = || failed("cannot hold", path);
    let mut command = Command::new(this_program::PATH);
    command.arg(COMMAND).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().map_err(cannot_hold())?;
    let output = child.stdout.take();
    let held = Held(child);
    let mut answer = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut answer).map_err(cannot_hold())?;
    }
    let answer = answer.trim_end();
    let number = answer.strip_prefix(FAILED).and_then(|number| number.parse().ok());
    match (answer, number) {
        (HELD, _) => Ok(Some(held)),
        (GONE, _) => Ok(None),
        (IN_USE, _) => Err(DeviceError::InUse { path: path.to_owned() }),
        (_, Some(number)) => Err(cannot_hold()(io::Error::from_raw_os_error(number))),
        _ => Err(cannot_hold()(io::Error::other(format!("unexpected answer {answer:?}")))),
    }
}

/// The child's part: writes settings, given as KEY=VALUE, into the files of a queue in sysfs.
///
/// # Errors
/// Names the file that could not be written.
pub fn write_settings(queue: &Path, settings: &[String]) -> io::Result<()> {
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let path = queue.join(key);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{} = {value}: {error}", path.display()))
        };
        std::fs::write(&path, value).map_err(named)?;
    }
    Ok(())
}

/// The child's part: holds and flushes a block device, answers on standard output, and holds it until standard
/// input ends.
///
/// # Errors
/// Fails if the answer cannot be written.
pub fn hold_until_input_ends(path: &Path) -> io::Result<()> {
    let name = path.to_string_lossy();
    let held = hold(&name).and_then(|held| match held {
        Some(file) => file.sync_all().map(|()| Some(file)).map_err(failed("cannot flush", &name)),
        None => Ok(None),
    });
    let answer = match &held {
        Ok(Some(_)) => HELD.to_owned(),
        Ok(None) => GONE.to_owned(),
        Err(DeviceError::InUse { .. }) => IN_USE.to_owned(),
        Err(DeviceError::Failed { source, .. }) => {
            format!("{FAILED}{}", source.raw_os_error().unwrap_or(libc::EIO))
        }
        Err(_) => format!("{FAILED}{}", libc::EIO),
    };
    {
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    // The server closes it, or is killed.
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    drop(held);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_set_is_seen() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("scheduler");
        for (text, set) in
            [("none\n", true), ("[none] mq-deadline\n", true), ("none [kyber]\n", false)]
        {
            std::fs::write(&path, text).expect("a file");
            assert_eq!(is_set(&path, "none"), set, "{text}");
        }
        assert!(!is_set(&folder.path().join("no_such_key"), "none"));
    }

    #[test]
    fn settings_are_written_and_what_cannot_be_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let settings = ["scheduler=none".to_owned(), "nr_requests=127".to_owned()];
        write_settings(folder.path(), &settings).expect("a directory to write to");
        let read = |key| std::fs::read_to_string(folder.path().join(key)).expect("it was written");
        assert_eq!((read("scheduler").as_str(), read("nr_requests").as_str()), ("none", "127"));
        let missing = folder.path().join("missing");
        let error = write_settings(&missing, &settings).expect_err("no such directory");
        assert!(error.to_string().contains("missing/scheduler = none"), "{error}");
    }
}
