//! Scans in a separate process.
//!
//! A read of a drive that hangs cannot be interrupted, and a process with such a read does not end,
//! whatever signal it gets. So a child reads the devices, reports its result, and is then left to itself. A
//! device that did not answer is not tried again while the child that reads it exists.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Other, OtherState, Scan};

/// The hidden command of `hemi` that scans and prints what it finds.
pub const COMMAND: &str = "look-for-legs";
/// Its option for each place to look at besides the block devices.
pub const PLACE_OPTION: &str = "--in";
/// Its option for each device to leave alone.
pub const EXCEPT_OPTION: &str = "--except";
/// This very program, even if its file was replaced or removed.
const SELF: &str = "/proc/self/exe";

/// A reason why nothing was scanned.
#[derive(Debug, thiserror::Error)]
#[error("the machine could not be scanned for legs: {0}")]
pub struct ScanError(String);

/// A scanner, which can be used again and again.
#[derive(Debug)]
pub struct Scanner {
    places: Vec<PathBuf>,
    hanging: Vec<Hanging>,
}

/// A child that has answered but not ended, with the devices that it waits for.
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

    /// Scans. Waits for [`PATIENCE`](super::PATIENCE) at most, twice as long if there are stripes.
    ///
    /// # Errors
    /// [`ScanError`]: the child could not be started, or did not report its result.
    pub fn scan(&mut self) -> Result<Scan, ScanError> {
        self.hanging.retain_mut(|hanging| matches!(hanging.child.try_wait(), Ok(None)));
        let silent: Vec<Other> =
            self.hanging.iter().flat_map(|hanging| hanging.silent.clone()).collect();
        let mut command = Command::new(SELF);
        command.arg(COMMAND);
        for place in &self.places {
            command.arg(PLACE_OPTION).arg(place);
        }
        for other in &silent {
            command.arg(EXCEPT_OPTION).arg(&other.path);
        }
        // A child that hangs keeps its files open, so it must not hold a pipe that somebody reads to its end.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| ScanError(error.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // A read to the end of the output would wait for threads that hang.
            BufReader::new(output).read_line(&mut line).map_err(|e| ScanError(e.to_string()))?;
        }
        let mut scan: Scan = serde_json::from_str(&line).map_err(|error| {
            let ended = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            ScanError(format!("{ended}; its answer was no good: {error}"))
        })?;
        let now_silent: Vec<Other> =
            scan.others.iter().filter(|it| it.state == OtherState::Silent).cloned().collect();
        if now_silent.is_empty() {
            // It is about to end. An error means that it has been waited for already.
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
            // It ends when its device answers. A thread that may wait does so.
            let wait = move || {
                let _ = child.kill();
                let _ = child.wait();
            };
            let _ = std::thread::Builder::new().name("hemi-scan".into()).spawn(wait);
        }
    }
}

/// Does the child's part: scans in this process, and writes one line of JSON to standard output.
///
/// # Errors
/// A write to standard output failed.
pub fn answer(places: &[PathBuf], except: &[PathBuf]) -> io::Result<()> {
    let line = serde_json::to_string(&super::look(places, except))?;
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
