//! The account of a load: figures of all requests that ended, kept on a thread of its own beside
//! the engine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hemi_units::{Instant, SECTOR_BYTES};
use hemi_workload::figures::{Ended, Figures, Latencies, Moments, Upkeep};
use hemi_workload::table::TableError;

use crate::rows::RowsFile;
use crate::segments::{Outcome, Row};

/// The progress of a load, for an observer.
#[derive(Debug, Default)]
pub struct Progress {
    /// The time at which the last request accounted for was done, in nanoseconds since the load
    /// began.
    pub time: AtomicU64,
    /// The number of requests accounted for.
    pub ended: AtomicU64,
}

/// The figures of an interval that [`Figures`] does not keep.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Requests that failed in it.
    pub failed: u64,
    /// The highest lateness of a request that ended in it, in nanoseconds.
    pub lateness_max: u64,
    /// Its latencies: for each bucket that is not empty, the highest value in nanoseconds and the
    /// count.
    pub histogram: Vec<(u64, u64)>,
}

/// Failures of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The number of failures.
    pub count: u64,
    /// The time at which the first was seen, in nanoseconds since the load began.
    pub first: u64,
}

/// The account.
#[derive(Debug)]
pub struct Account {
    /// Latencies of requests that succeeded, from the intended time.
    pub figures: Figures,
    /// For each interval of [`Account::figures`], the figures that it lacks.
    pub beside: Vec<Beside>,
    /// The time from when a request might have been issued to when it was.
    pub lateness: Latencies,
    /// The time from when a request was issued to when it was seen to be done.
    pub service: Latencies,
    /// The time in flight of all requests together, in nanoseconds.
    pub stays: u128,
    /// Requests that succeeded.
    pub completed: u64,
    /// Requests that failed, by operation and outcome.
    pub failures: BTreeMap<(&'static str, Outcome), Failures>,
    present: Latencies,
    failed: u64,
    lateness_max: u64,
    file: Option<RowsFile>,
}

impl Account {
    /// Creates an empty account with intervals of `interval` nanoseconds. Every row is also written
    /// to `file`, if there is one.
    pub fn new(interval: u64, file: Option<RowsFile>) -> Account {
        Account {
            figures: Figures::new(Instant(0), interval),
            beside: Vec::new(),
            lateness: Latencies::default(),
            service: Latencies::default(),
            stays: 0,
            completed: 0,
            failures: BTreeMap::new(),
            present: Latencies::default(),
            failed: 0,
            lateness_max: 0,
            file,
        }
    }

    /// Adds rows, in the order of their ends.
    ///
    /// # Errors
    /// Fails if the rows' file cannot be written.
    pub fn take(&mut self, rows: &[Row], progress: &Progress) -> Result<(), TableError> {
        for row in rows {
            self.close_intervals(row.completed);
            self.row(row);
        }
        if let Some(last) = rows.last() {
            progress.time.store(last.completed, Ordering::Relaxed);
            progress.ended.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write(rows))
    }

    fn row(&mut self, row: &Row) {
        self.stays += u128::from(row.completed - row.issued);
        let late = row.issued.saturating_sub(row.due);
        self.lateness_max = self.lateness_max.max(late);
        if row.outcome != Outcome::Done {
            self.failed += 1;
            let key = (row.operation.name(), row.outcome);
            let first = Failures { count: 0, first: row.completed };
            self.failures.entry(key).or_insert(first).count += 1;
            return;
        }
        self.completed += 1;
        let latency = row.completed - row.intended;
        let bytes = u64::from(row.sectors) * SECTOR_BYTES;
        if row.measured {
            self.figures.begin(Instant(row.issued));
            self.lateness.record(late, 0);
            self.service.record(row.completed - row.issued, bytes);
        }
        self.present.record(latency, 0);
        let ended = Ended { operation: row.operation, bytes, latency, measured: row.measured };
        self.figures.record(Instant(row.completed), ended);
    }

    fn close_intervals(&mut self, now: u64) {
        while self.figures.interval_end().0 <= now {
            self.figures.next_interval((0, 0), Upkeep::default());
            self.close_interval();
        }
    }

    fn close_interval(&mut self) {
        let histogram = self.present.buckets();
        self.present.clear();
        let (failed, lateness_max) = (self.failed, self.lateness_max);
        (self.failed, self.lateness_max) = (0, 0);
        self.beside.push(Beside { failed, lateness_max, histogram });
    }

    /// Ends the account: closes the last interval, if anything was in it, and the file.
    ///
    /// # Errors
    /// Fails if the rows' file cannot be written.
    pub fn finish(&mut self) -> Result<(), TableError> {
        if self.failed > 0 || self.present.count() > 0 {
            self.figures.next_interval((0, 0), Upkeep::default());
            self.close_interval();
        }
        self.file.take().map_or(Ok(()), RowsFile::finish)
    }

    /// Returns the number of requests that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().map(|failures| failures.count).sum()
    }

    /// Returns the exact moments of the lateness.
    pub fn lateness_moments(&self) -> &Moments {
        self.lateness.moments()
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::Operation;

    use super::*;

    fn row(intended: u64, issued: u64, completed: u64) -> Row {
        Row {
            intended,
            due: intended,
            issued,
            completed,
            start: 8,
            sectors: 8,
            phase: 0,
            operation: Operation::Read,
            outcome: Outcome::Done,
            measured: true,
        }
    }

    #[test]
    fn latency_is_from_the_intended_time_and_failures_are_counted_apart() {
        let mut account = Account::new(1000, None);
        let bad = Row { outcome: Outcome::Media, ..row(900, 900, 1100) };
        let rows = [row(0, 10, 100), row(100, 150, 400), bad, row(2000, 2000, 2500)];
        account.take(&rows, &Progress::default()).expect("no file");
        account.finish().expect("no file");
        assert_eq!((account.completed, account.failed()), (3, 1));
        let media = account.failures[&("read", Outcome::Media)];
        assert_eq!(media, Failures { count: 1, first: 1100 });
        assert_eq!(account.figures.all.moments().max, 500);
        assert_eq!(account.lateness.moments().max, 50);
        assert_eq!(account.stays, 90 + 250 + 200 + 500);
        // Three intervals: two requests, a failure, one request.
        let counts: Vec<(u64, u64)> = (account.figures.intervals.iter().zip(&account.beside))
            .map(|(interval, beside)| (interval.latencies.count, beside.failed))
            .collect();
        assert_eq!(counts, [(2, 0), (0, 1), (1, 0)]);
        assert_eq!(account.beside[0].histogram.iter().map(|(_, count)| count).sum::<u64>(), 2);
        assert_eq!(account.beside[0].lateness_max, 50);
    }

    #[test]
    fn what_only_prepares_is_in_no_latency_but_in_the_intervals() {
        let mut account = Account::new(1000, None);
        let warm = Row { measured: false, ..row(0, 500, 600) };
        account.take(&[warm, row(700, 700, 900)], &Progress::default()).expect("no file");
        account.finish().expect("no file");
        assert_eq!((account.figures.all.count(), account.lateness.moments().max), (1, 0));
        assert_eq!(account.figures.intervals[0].latencies.count, 2);
        assert_eq!(account.figures.measured(), 200);
    }
}
