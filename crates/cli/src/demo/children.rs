//! Child processes that end with the demonstration, however it ends.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The longest wait for a server to answer.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The pause between two checks during a wait.
const POLL: Duration = Duration::from_millis(20);
/// The number of bytes of a log that an error shows.
const LOG_TAIL: usize = 2000;

/// A child process whose output goes to a log. It is killed when dropped.
pub(super) struct Background {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Background {
    /// Starts `command`, with its output in `folder`/`name`.log.
    pub(super) fn start(mut command: Command, folder: &Path, name: &str) -> Result<Background> {
        let log = folder.join(format!("{name}.log"));
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let errors =
            output.try_clone().with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Background { child, name: name.to_owned(), log })
    }

    /// Waits until the child accepts connections on a unix socket.
    pub(super) fn wait_for_socket(&mut self, socket: &Path, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = self.poll()? {
                bail!("{} ended with {status}:\n{}", self.name, self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("{} did not answer in {START_LIMIT:?}:\n{}", self.name, self.log_tail());
            }
            pause(POLL, stop)?;
        }
        Ok(())
    }

    /// Waits for the end and requires success within `limit`.
    pub(super) fn finish(&mut self, limit: Duration, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.poll()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("{} did not end in {limit:?}:\n{}", self.name, self.log_tail());
            }
            pause(POLL, stop)?;
        };
        if !status.success() {
            bail!("{} ended with {status}:\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Asks the child to end, as a service manager would.
    pub(super) fn terminate(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .with_context(|| format!("cannot stop {}", self.name))
    }

    fn poll(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot wait for {}", self.name))
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(LOG_TAIL)..];
        String::from_utf8_lossy(tail).into_owned()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Errors mean that the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end and returns its standard output. An error shows what it printed.
pub(super) fn output(mut command: Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    if !done.status.success() {
        bail!("{command:?} ended with {}:\n{}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    String::from_utf8(done.stdout)
        .with_context(|| format!("{program} printed something unreadable"))
}

/// Sleeps, unless the demonstration is interrupted.
pub(super) fn pause(time: Duration, stop: &AtomicBool) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(POLL));
    }
}
