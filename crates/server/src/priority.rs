//! The scheduling priority of the reactor.
//!
//! A write waits for the reactor twice: before its I/O starts, and before it is acknowledged. The reactor
//! sleeps most of the time. While other processes keep every processor busy, the kernel may let one of them
//! finish its time slice before it wakes the reactor: up to a scheduler tick of 1 to 10 ms, as long as a
//! disk's seek. So the reactor's thread asks to go first, as the kernel's own block threads do. A priority
//! set by `nice` or by systemd's `Nice=` is kept.

use rustix::process::{getpriority_process, setpriority_process};

/// Half of the priority that the kernel gives its own threads for urgent work.
const NICE: i32 = -10;

/// Raises the calling thread's priority if nobody has chosen one and hemi is allowed to. Linux keeps a
/// priority for each thread, although it calls it the process's.
pub(crate) fn raise() {
    if getpriority_process(None) == Ok(0)
        && let Err(error) = setpriority_process(None, NICE)
    {
        tracing::debug!(%error, "the event loop runs at the usual priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the final priority of a thread that begins at `nice` and calls `raise`; `None` if it cannot
    /// begin at `nice`.
    fn raised_from(nice: i32) -> Option<i32> {
        let thread = std::thread::spawn(move || {
            setpriority_process(None, nice).ok()?;
            raise();
            getpriority_process(None).ok()
        });
        thread.join().expect("it does not panic")
    }

    #[test]
    fn a_priority_that_was_chosen_is_kept() {
        let before = getpriority_process(None).expect("a thread has one");
        assert_eq!(raised_from(before.max(0) + 5), Some(before.max(0) + 5));
        // Without the right to raise it, the priority stays 0.
        if before <= 0
            && let Some(raised) = raised_from(0)
        {
            assert!(raised == NICE || raised == 0);
        }
        assert_eq!(getpriority_process(None), Ok(before), "other threads keep theirs");
    }
}
