//! A run of a workload on a drive or volume, from the first request to the last.

use hemi_drives::drive::{Completion, Drive, Failed, Request};
use hemi_drives::server::Server;
use hemi_units::{Instant, Operation};

use crate::mirror::Mirror;
use crate::oracle::Oracle;
use crate::published::Published;
use hemi_workload::figures::{Ended, Figures, Little, Upkeep};
use hemi_workload::{Issue, Workload};

/// A drive or volume whose exposure and upkeep are recorded during a run.
pub trait Watched: Drive {
    /// Returns the acknowledged bytes that only one leg holds, and the age of the oldest in
    /// nanoseconds. Both are zero unless it is a mirror.
    fn exposure(&mut self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns the upkeep done so far; zero unless it is an engine.
    fn upkeep(&mut self) -> Upkeep {
        Upkeep::default()
    }
}

impl Watched for Server {}

impl<D: Drive> Watched for Mirror<D> {
    fn exposure(&mut self) -> (u64, u64) {
        Mirror::exposure(self)
    }

    fn upkeep(&mut self) -> Upkeep {
        Mirror::upkeep(self)
    }
}

impl<D: Drive> Watched for Published<D> {
    fn exposure(&mut self) -> (u64, u64) {
        self.delayed()
    }
}

impl<D: Drive> Watched for Oracle<D> {}

/// A request in flight.
#[derive(Clone, Copy)]
struct Asked {
    operation: Operation,
    bytes: u64,
    intended: Instant,
    issued: Instant,
    measured: bool,
}

/// A run in progress.
pub struct Run {
    start: Instant,
    now: Instant,
    /// Requests by tag; a workload's tags are small numbers.
    asked: Vec<Asked>,
    under_way: u64,
    requests: u64,
    failed: Failed,
    /// Number of requests in flight, integrated over time, in requests × nanoseconds.
    presence: u128,
    /// Total stay of completed requests in nanoseconds.
    stays: u128,
    issues: Vec<Issue>,
    done: Vec<Completion>,
    figures: Figures,
}

impl Run {
    /// Creates a run that begins at zero, with intervals of `interval` nanoseconds.
    pub fn new(interval: u64) -> Run {
        Run::starting(Instant(0), interval, Upkeep::default())
    }

    /// Creates a run that begins at `start`, on a volume that has served other runs and has
    /// `done` this upkeep.
    pub fn starting(start: Instant, interval: u64, done: Upkeep) -> Run {
        Run {
            start,
            now: start,
            asked: Vec::new(),
            under_way: 0,
            requests: 0,
            failed: Failed::default(),
            presence: 0,
            stays: 0,
            issues: Vec::with_capacity(256),
            done: Vec::with_capacity(256),
            figures: Figures::new(start, interval).after(done),
        }
    }

    /// Runs until the workload is over and all its requests are done, or until `end`.
    /// `progress` is called with the time at each interval and returns false to stop.
    pub fn until<D: Watched, W: Workload>(
        &mut self,
        end: Instant,
        drive: &mut D,
        workload: &mut W,
        mut progress: impl FnMut(Instant) -> bool,
    ) {
        loop {
            let over = workload.is_over() && self.under_way == 0;
            let now = if over {
                self.now
            } else {
                let stop = workload.next_event().min(self.figures.interval_end()).min(end);
                self.next_completion(stop, drive).max(self.now)
            };
            while self.figures.interval_end() <= now {
                let boundary = self.figures.interval_end();
                if boundary > self.now {
                    self.advance(boundary, drive, workload);
                }
                self.figures.next_interval(drive.exposure(), drive.upkeep());
                if !progress(boundary) {
                    return;
                }
            }
            if over || now >= end {
                self.pass(now);
                return;
            }
            self.advance(now, drive, workload);
        }
    }

    /// Lets the drive go on by itself until a request ends or `stop` comes. Returns that time.
    fn next_completion<D: Drive>(&mut self, stop: Instant, drive: &mut D) -> Instant {
        let mut now = self.now;
        while self.done.is_empty() {
            now = drive.next_event().max(now);
            if now >= stop {
                return stop;
            }
            drive.advance(now, &mut self.done);
        }
        now
    }

    /// Processes everything due at `now`: first completions, then issues.
    fn advance<D: Drive, W: Workload>(&mut self, now: Instant, drive: &mut D, workload: &mut W) {
        self.pass(now);
        drive.advance(now, &mut self.done);
        let mut done = std::mem::take(&mut self.done);
        for Completion { tag, at, result } in done.drain(..) {
            let asked = self.asked[tag as usize];
            self.under_way -= 1;
            self.stays += u128::from(at.since(asked.issued));
            let Asked { operation, bytes, measured, .. } = asked;
            if result.is_ok() {
                let latency = at.since(asked.intended);
                self.figures.record(at, Ended { operation, bytes, latency, measured });
            } else {
                self.failed.count(operation);
                self.figures.fail(at, measured);
            }
            workload.completed(now, tag as u32, &mut self.issues);
        }
        self.done = done;
        workload.advance(now, &mut self.issues);
        let mut issues = std::mem::take(&mut self.issues);
        for Issue { tag, operation, extent, intended } in issues.drain(..) {
            let slot = tag as usize;
            let bytes = extent.bytes();
            let measured = workload.measured(tag);
            if measured {
                self.figures.begin(now);
            }
            let asked = Asked { operation, bytes, intended, issued: now, measured };
            if slot >= self.asked.len() {
                self.asked.resize(slot + 1, asked);
            }
            self.asked[slot] = asked;
            self.under_way += 1;
            self.requests += 1;
            drive.submit(now, Request { tag: u64::from(tag), operation, extent });
        }
        self.issues = issues;
    }

    fn pass(&mut self, now: Instant) {
        self.presence += u128::from(self.under_way) * u128::from(now.since(self.now));
        self.now = now;
    }

    /// Returns the statistics so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of requests issued so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the requests that failed so far. They count in no latency.
    pub fn failed(&self) -> &Failed {
        &self.failed
    }

    /// Returns the number of requests in flight.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Returns Little's law over the whole run, including what is not measured. The two sides
    /// differ only by the requests still in flight.
    pub fn little(&self) -> Little {
        let time = self.now.since(self.start).max(1) as f64;
        Little { in_system: self.presence as f64 / time, rate_by_stay: self.stays as f64 / time }
    }
}
