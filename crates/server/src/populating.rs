//! Allocates the buffers' pages while the volume is already served.
//!
//! Registering buffers allocates all their pages. That takes as long as writing to that much
//! memory, 50 ms to a second for the default budget, and at first only a few pages are needed.
//! So a thread beside the reactor has the kernel allocate them, and the reactor registers each
//! mapping that is ready. I/O until then works all the same, except that the kernel pins its
//! pages each time.

use std::io;
use std::time::{Duration, Instant};

use crate::messages::{ReactorError, ReactorHandle, ReactorMessage};
use hemi_io::memory::Span;

/// Bytes per step. Page faults of the reactor wait for at most one step.
const STEP_BYTES: usize = 2 << 20;
/// Longest pause after a step.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// Pause while the reactor's queue is full.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// Starts the thread. `spans` are the arena's whole mappings in order.
pub(crate) fn spawn(spans: Vec<Span>, reactor: ReactorHandle) {
    let thread = std::thread::Builder::new().name("hemi-pages".into());
    if let Err(error) = thread.spawn(move || populate_all(&spans, &reactor)) {
        tracing::warn!(%error, "buffers are not registered: each I/O pins its pages");
    }
}

fn populate_all(spans: &[Span], reactor: &ReactorHandle) {
    for (mapping, span) in spans.iter().enumerate() {
        let starts = (0..span.length()).step_by(STEP_BYTES);
        let mut steps =
            starts.map(|start| span.slice(start, STEP_BYTES.min(span.length() - start)));
        if let Err(error) = steps.try_for_each(populate_gently) {
            // Registration allocates the others, or fails with the reason.
            tracing::debug!(%error, "not all pages of the buffers could be allocated in advance");
        }
        while let Err(ReactorError::Busy) = reactor.send(ReactorMessage::Populated { mapping }) {
            std::thread::sleep(BUSY_WAIT);
        }
    }
}

/// Allocates the pages of a step and then pauses for as long as that took. Clients that
/// reconnect after a start must not wait until all pages are allocated.
fn populate_gently(step: Span) -> io::Result<()> {
    let begun = Instant::now();
    step.populate()?;
    std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use arc_swap::ArcSwap;

    use super::*;
    use crate::control::volume::{Identity, Snapshot};
    use hemi_io::memory::Mapping;
    use hemi_io::ring::Ring;

    #[test]
    fn mappings_are_announced_in_order_and_keep_their_content() {
        let ring = Ring::new().expect("there is a ring");
        // This channel has no space for the second message until the first has been read.
        let (messages, inbox) = sync_channel(1);
        let published =
            Arc::new(ArcSwap::from_pointee(Snapshot::opening(Identity::default(), Vec::new())));
        let reactor = ReactorHandle::new(messages, ring.waker(), published);
        let mappings = [5 << 20, 4096].map(|length| Mapping::new(length, true).expect("memory"));
        let spans: Vec<Span> = mappings.iter().map(Mapping::whole).collect();
        let written = spans[0].slice(3 << 20, 512);
        written.copy_from(&[7; 512]);
        spawn(spans, reactor);
        for expected in 0..2 {
            match inbox.recv().expect("the thread announces it") {
                ReactorMessage::Populated { mapping } => assert_eq!(mapping, expected),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(written.to_vec(), [7; 512]);
        assert!(inbox.recv().is_err(), "the thread has ended");
    }
}
