//! Loads shared by the tests of drives.

use hemi_units::{Extent, Instant, Operation};

use crate::drive::{Completion, Drive, Failure, Request};

/// The submission and completion times of one request, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) submitted: Instant,
    pub(crate) done: Instant,
    pub(crate) result: Result<(), Failure>,
}

/// Submits each request at its time and runs the drive until it is empty. Panics if a request
/// ends twice, early, never or out of time order.
pub(crate) fn open_loop(
    drive: &mut impl Drive,
    load: &[(Instant, Operation, Extent)],
) -> Vec<Life> {
    let mut lives = Lives::new(load.len());
    for (tag, &(at, operation, extent)) in load.iter().enumerate() {
        lives.advance(drive, at);
        lives.submit(drive, at, tag, operation, extent);
    }
    lives.drain(drive);
    lives.take()
}

/// Keeps `depth` requests in flight until all of `load` are done.
pub(crate) fn closed_loop(
    drive: &mut impl Drive,
    depth: usize,
    load: &[(Operation, Extent)],
) -> Vec<Life> {
    let mut lives = Lives::new(load.len());
    let mut issued = 0;
    let mut now = Instant(0);
    while lives.done < load.len() {
        while issued < load.len() && issued - lives.done < depth {
            let (operation, extent) = load[issued];
            lives.submit(drive, now, issued, operation, extent);
            issued += 1;
        }
        let next = drive.next_event();
        assert_ne!(next, Instant::NEVER, "{} of {} done", lives.done, load.len());
        assert!(next >= now);
        now = next;
        lives.advance(drive, now);
    }
    lives.take()
}

/// Returns the seconds from the first submission to the last completion.
pub(crate) fn makespan(lives: &[Life]) -> f64 {
    let first = lives.iter().map(|life| life.submitted).min().unwrap();
    let last = lives.iter().map(|life| life.done).max().unwrap();
    last.since(first) as f64 / 1e9
}

struct Lives {
    lives: Vec<Option<Life>>,
    last: Instant,
    done: usize,
    completions: Vec<Completion>,
}

impl Lives {
    fn new(count: usize) -> Lives {
        Lives { lives: vec![None; count], last: Instant(0), done: 0, completions: Vec::new() }
    }

    fn submit(
        &mut self,
        drive: &mut impl Drive,
        at: Instant,
        tag: usize,
        operation: Operation,
        extent: Extent,
    ) {
        let unknown = Life { submitted: at, done: Instant::NEVER, result: Ok(()) };
        assert_eq!(self.lives[tag].replace(unknown), None);
        drive.submit(at, Request { tag: tag as u64, operation, extent });
        assert!(drive.next_event() >= at);
    }

    fn advance(&mut self, drive: &mut impl Drive, now: Instant) {
        drive.advance(now, &mut self.completions);
        for completion in self.completions.drain(..) {
            let life = self.lives[completion.tag as usize].as_mut().expect("was submitted");
            assert_eq!(life.done, Instant::NEVER, "request {} ended twice", completion.tag);
            assert!(completion.at >= life.submitted && completion.at <= now);
            assert!(completion.at >= self.last, "completions go back in time");
            self.last = completion.at;
            life.done = completion.at;
            life.result = completion.result;
            self.done += 1;
        }
        assert!(drive.next_event() > now, "an event at {now:?} was left undone");
    }

    fn drain(&mut self, drive: &mut impl Drive) {
        while self.done < self.lives.len() {
            let next = drive.next_event();
            assert_ne!(next, Instant::NEVER, "{} of {} done", self.done, self.lives.len());
            self.advance(drive, next);
        }
    }

    fn take(self) -> Vec<Life> {
        self.lives.into_iter().map(|life| life.expect("was submitted")).collect()
    }
}
