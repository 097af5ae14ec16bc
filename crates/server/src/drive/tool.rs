//! Runs a program that queries a drive, with a timeout and a bound on its output.
//!
//! A drive that does not answer leaves the program in the kernel, where no signal reaches it. So its end is
//! not waited for: the program is handed back, and the drive is not queried again before it is gone. The
//! standard library starts programs without copying this process (`posix_spawn`), whose memory is locked and
//! registered with the ring.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum number of bytes of output that are read.
pub(super) const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Longest time that a program may take.
pub(super) const TIME_MAX: Duration = Duration::from_secs(60);
/// Interval between two looks at the program and at `stop`.
const STEP: Duration = Duration::from_millis(50);
/// Time that a killed program is given to end.
const KILL_WAIT: Duration = Duration::from_secs(1);
/// Directories of administrators' programs, besides the search path.
const DIRECTORIES: [&str; 3] = ["", "/usr/sbin/", "/sbin/"];

/// The reason why a program gave no answer.
#[derive(Debug)]
pub(super) enum ToolError {
    /// The program is not installed.
    Missing,
    /// It did not end in time. Holds the program if it cannot be killed.
    Late(Option<Child>),
    /// It wrote more than [`OUTPUT_BYTES_MAX`].
    TooLong,
    /// The thread is to stop.
    Stopped,
    /// Any other failure.
    Failed(io::Error),
}

/// Runs a program and returns its output and its exit code (255 after a signal).
pub(super) fn run(
    program: &str,
    arguments: &[&str],
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(Vec<u8>, u8), ToolError> {
    let mut child = start(program, arguments)?;
    let deadline = Instant::now() + patience;
    let read = read_all(&mut child, deadline, stop);
    let ended = read.and_then(|output| {
        // Its output has ended, so it is about to end.
        match wait(&mut child, deadline, stop)? {
            Some(code) => Ok((output, code)),
            None => Err(ToolError::Late(None)),
        }
    });
    match ended {
        Ok(done) => Ok(done),
        Err(error) => {
            let _ = child.kill();
            let is_gone = matches!(
                wait(&mut child, Instant::now() + KILL_WAIT, &AtomicBool::new(false)),
                Ok(Some(_))
            );
            Err(match error {
                ToolError::Late(_) if !is_gone => ToolError::Late(Some(child)),
                other => other,
            })
        }
    }
}

fn start(program: &str, arguments: &[&str]) -> Result<Child, ToolError> {
    for directory in DIRECTORIES {
        let mut command = Command::new(format!("{directory}{program}"));
        command.args(arguments).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(ToolError::Failed),
        }
    }
    Err(ToolError::Missing)
}

fn read_all(child: &mut Child, deadline: Instant, stop: &AtomicBool) -> Result<Vec<u8>, ToolError> {
    let Some(mut pipe) = child.stdout.take() else {
        return Err(ToolError::Failed(io::Error::other("it has no output")));
    };
    let mut output = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        if stop.load(Ordering::Acquire) {
            return Err(ToolError::Stopped);
        }
        if Instant::now() >= deadline {
            return Err(ToolError::Late(None));
        }
        let step = Timespec { tv_sec: 0, tv_nsec: STEP.as_nanos() as i64 };
        let ready = poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&step));
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(ToolError::Failed(errno.into())),
        }
        match pipe.read(&mut piece) {
            Ok(0) => return Ok(output),
            Ok(length) if output.len() + length > OUTPUT_BYTES_MAX => {
                return Err(ToolError::TooLong);
            }
            Ok(length) => output.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ToolError::Failed(error)),
        }
    }
}

/// Waits for a program until the deadline. Returns its exit code, or `None` if it is still running.
fn wait(child: &mut Child, deadline: Instant, stop: &AtomicBool) -> Result<Option<u8>, ToolError> {
    loop {
        if let Some(status) = child.try_wait().map_err(ToolError::Failed)? {
            return Ok(Some(status.code().and_then(|code| code.try_into().ok()).unwrap_or(255)));
        }
        if stop.load(Ordering::Acquire) {
            return Err(ToolError::Stopped);
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(STEP.min(deadline.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static GOES_ON: AtomicBool = AtomicBool::new(false);

    #[test]
    fn output_and_code_are_told() {
        let done = run("sh", &["-c", "echo hello; exit 4"], TIME_MAX, &GOES_ON);
        assert_eq!(done.expect("it ends"), (b"hello\n".to_vec(), 4));
        let killed = run("sh", &["-c", "kill -9 $$"], TIME_MAX, &GOES_ON);
        assert_eq!(killed.expect("it ends"), (Vec::new(), 255));
    }

    #[test]
    fn a_program_that_hangs_is_killed_in_time() {
        let begun = Instant::now();
        let late = run("sleep", &["1000"], Duration::from_millis(200), &GOES_ON);
        assert!(matches!(late, Err(ToolError::Late(None))), "{late:?}");
        assert!(begun.elapsed() < Duration::from_secs(30));
        // This program closes its output before it ends.
        let late =
            run("sh", &["-c", "exec >&-; exec sleep 1000"], Duration::from_millis(200), &GOES_ON);
        assert!(matches!(late, Err(ToolError::Late(None))), "{late:?}");
    }

    #[test]
    fn endless_output_is_cut_off_and_a_stop_is_obeyed() {
        let endless = run("cat", &["/dev/zero"], TIME_MAX, &GOES_ON);
        assert!(matches!(endless, Err(ToolError::TooLong)), "{endless:?}");
        let stopped = run("sleep", &["1000"], TIME_MAX, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(ToolError::Stopped)), "{stopped:?}");
        let missing = run("hemi-no-such-program", &[], TIME_MAX, &GOES_ON);
        assert!(matches!(missing, Err(ToolError::Missing)), "{missing:?}");
    }
}
