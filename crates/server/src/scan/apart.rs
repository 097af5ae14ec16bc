//! Scans in a separate process.
//!
//! A read of a drive that hangs cannot be interrupted, and a process with such a read does not end, whatever
//! signal it gets. So a child reads the devices and reports its result, and nobody waits for its end. A
//! device that did not answer is not tried again while the child that reads it exists.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Other, OtherState, Scan};
use crate::this_program;

/// The hidden command of `hemi` that scans and prints the result.
pub const COMMAND: &str = "look-for-legs";
/// The option for each place to scan besides the block devices.
pub const PLACE_OPTION: &str = "--in";
/// The option for each device to leave out.
pub const EXCEPT_OPTION: &str = "--except";

/// The reason why nothing was scanned.
#[derive(Debug, thiserror::Error)]
#[error("the machine could not be scanned for legs: {0}")]
pub struct ScanError(String);

/// A scanner that can be used repeatedly.
#[derive(Debug)]
pub struct Scanner {
    places: Vec<PathBuf>,
    hanging: Vec<Hanging>,
}

/// A child that has answered but not ended, with the devices it is waiting for.
#[derive(Debug)]
struct Hanging {
    child: Child,
    silent: Vec<Other>,
}

impl Scanner {
    /// Returns a scanner of the machine's block devices and of `places`.
    pub fn new(places: &[PathBuf]) -> Scanner {
        Scanner { places: places.to_vec(), hanging: Vec::new() }
    }

    /// Scans. Waits for at most [`PATIENCE`](super::PATIENCE), or twice as long if there are stripes.
    ///
    /// # Errors
    /// [`ScanError`] if the child could not be started or did not report its result.
    pub fn scan(&mut self) -> Result<Scan, ScanError> {
        self.hanging.retain_mut(|hanging| matches!(hanging.child.try_wait(), Ok(None)));
        let silent: Vec<Other> =
            self.hanging.iter().flat_map(|hanging| hanging.silent.clone()).collect();
        let mut command = Command::new(this_program::PATH);
        command.arg(COMMAND);
        for place in &self.places {
            command.arg(PLACE_OPTION).arg(place);
        }
        for other in &silent {
            command.arg(EXCEPT_OPTION).arg(&other.path);
        }
        // A hanging child keeps its files open, so it must not hold a pipe that somebody reads to its end.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| ScanError(error.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // Reading to the end of the output would wait for hanging threads.
            BufReader::new(output).read_line(&mut line).map_err(|e| ScanError(e.to_string()))?;
        }
        let mut scan: Scan = serde_json::from_str(&line).map_err(|error| {
            let ended = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            ScanError(format!("{ended}; its answer was invalid: {error}"))
        })?;
        let now_silent: Vec<Other> =
            scan.others.iter().filter(|it| it.state == OtherState::Silent).cloned().collect();
        if now_silent.is_empty() {
            // The child is about to end. An error means that it has already been waited for.
            let _ = child.wait();
        } else {
            self.hanging.push(Hanging { child, silent: now_silent });
        }
        scan.others.extend(silent);
        Ok(scan)
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        for Hanging { mut child, .. } in self.hanging.drain(..) {
            // The child ends when its device answers. A thread that may block waits for it.
            let wait = move || {
                let _ = child.kill();
                let _ = child.wait();
            };
            let _ = std::thread::Builder::new().name("hemi-scan".into()).spawn(wait);
        }
    }
}

/// The child's part: scans in this process and writes one line of JSON to standard output.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn answer(places: &[PathBuf], except: &[PathBuf]) -> io::Result<()> {
    let line = serde_json::to_string(&super::look(places, except))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
