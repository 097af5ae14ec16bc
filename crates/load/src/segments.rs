//! Finished requests on their way from the engine to the account, many at a time.
//!
//! A segment is a fixed number of rows that go back and forth between two threads. All segments are
//! allocated at the beginning. Where the account falls behind by all of them, the engine waits for
//! one, which shows as lateness and is counted. No row is ever dropped.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hemi_units::Operation;

/// The number of rows in a segment.
const ROWS: usize = 4096;
/// The number of segments.
const SEGMENTS: usize = 64;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// The medium failed.
    Media,
    /// The target had no space.
    NoSpace,
    /// The target went away.
    Gone,
    /// Any other error.
    Other,
}

/// A finished request. Times are nanoseconds since the run began.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The time it was intended for.
    pub intended: u64,
    /// The time since which it might have been issued ([`crate::schedule::Ready::due`]).
    pub due: u64,
    /// The time at which it was issued.
    pub issued: u64,
    /// The time at which it was seen to be done.
    pub completed: u64,
    /// The first sector.
    pub start: u64,
    /// The number of sectors, or zero for a flush.
    pub sectors: u32,
    /// The workload's phase.
    pub phase: u16,
    /// The operation.
    pub operation: Operation,
    /// The outcome.
    pub outcome: Outcome,
    /// It counts, and does not only prepare.
    pub measured: bool,
}

/// The engine's end.
#[derive(Debug)]
pub struct Filler {
    full: SyncSender<Vec<Row>>,
    empty: Receiver<Vec<Row>>,
    rows: Vec<Row>,
    /// The number of times the engine had to wait for a segment.
    waits: u64,
}

/// The account's end.
#[derive(Debug)]
pub struct Drain {
    full: Receiver<Vec<Row>>,
    empty: SyncSender<Vec<Row>>,
}

/// Creates both ends.
pub fn segments() -> (Filler, Drain) {
    let (full_in, full_out) = sync_channel(SEGMENTS);
    let (empty_in, empty_out) = sync_channel(SEGMENTS);
    for _ in 1..SEGMENTS {
        // The channel has room for all of them.
        let _ = empty_in.send(Vec::with_capacity(ROWS));
    }
    let rows = Vec::with_capacity(ROWS);
    (
        Filler { full: full_in, empty: empty_out, rows, waits: 0 },
        Drain { full: full_out, empty: empty_in },
    )
}

impl Filler {
    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
        if self.rows.len() == ROWS {
            self.hand_over();
        }
    }

    /// Returns the time at which the oldest row that has not been handed over was done.
    pub fn oldest(&self) -> Option<u64> {
        self.rows.first().map(|row| row.completed)
    }

    /// Hands over the rows collected so far.
    pub fn hand_over(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let next = self.empty.try_recv().or_else(|_| {
            self.waits += 1;
            self.empty.recv()
        });
        // An account that has ended (its file could not be written) takes no more rows. The run
        // ends for that reason at the next look.
        let Ok(next) = next else { return self.rows.clear() };
        let full = std::mem::replace(&mut self.rows, next);
        let _ = self.full.send(full);
    }

    /// Returns the number of times the account was behind by all segments.
    pub fn waits(&self) -> u64 {
        self.waits
    }
}

impl Drain {
    /// Takes the rows of each segment in order until the engine's end is dropped, or `take` fails.
    ///
    /// # Errors
    /// Fails with the first error of `take`.
    pub fn run<E>(self, mut take: impl FnMut(&[Row]) -> Result<(), E>) -> Result<(), E> {
        while let Ok(mut rows) = self.full.recv() {
            take(&rows)?;
            rows.clear();
            let _ = self.empty.send(rows);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_arrives_once_and_in_order_however_slow_the_account_is() {
        let (mut filler, drain) = segments();
        let count = (SEGMENTS * ROWS * 3 + 17) as u64;
        let reader = std::thread::spawn(move || {
            let mut next = 0;
            let ended = drain.run(|rows| {
                for row in rows {
                    assert_eq!(row.issued, next);
                    next += 1;
                }
                std::thread::yield_now();
                Ok::<(), ()>(())
            });
            (ended, next)
        });
        for issued in 0..count {
            filler.push(Row {
                intended: 0,
                due: 0,
                issued,
                completed: 0,
                start: 0,
                sectors: 0,
                phase: 0,
                operation: Operation::Flush,
                outcome: Outcome::Done,
                measured: true,
            });
        }
        filler.hand_over();
        assert_eq!(filler.oldest(), None);
        drop(filler);
        assert_eq!(reader.join().expect("no panic"), (Ok(()), count));
    }

    #[test]
    fn an_account_that_has_failed_does_not_hold_the_engine_up() {
        let (mut filler, drain) = segments();
        let reader = std::thread::spawn(move || drain.run(|_| Err(())));
        let row = Row {
            intended: 0,
            due: 0,
            issued: 0,
            completed: 0,
            start: 0,
            sectors: 0,
            phase: 0,
            operation: Operation::Read,
            outcome: Outcome::Done,
            measured: true,
        };
        for _ in 0..SEGMENTS * ROWS * 2 {
            filler.push(row);
        }
        drop(filler);
        assert_eq!(reader.join().expect("no panic"), Err(()));
    }
}
