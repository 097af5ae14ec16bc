//! The load in real time.
//!
//! One thread loops: it takes in the requests that the workload wants by now, issues those that may
//! go, submits them, and reaps those that are done. Shortly before a request's intended time it
//! polls the clock instead of sleeping (**spinning**), because a sleeper is woken tens of
//! microseconds late. Spinning costs processor time, which is counted.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use hemi_io::clock;
use hemi_units::{Extent, Instant, Operation, SECOND, SECTOR_BYTES};
use hemi_workload::{Issue, Workload};
use rustix::time::{ClockId, clock_gettime};

use crate::backend::{Backend, Request};
use crate::buffers::Buffers;
use crate::schedule::Schedule;
use crate::segments::{Filler, Outcome, Row};

/// The most requests issued before completions are reaped: enough to be submitted together, few
/// enough that the last is not delayed by the first.
const BATCH: usize = 64;
/// The longest sleep, in nanoseconds, which bounds how late a signal is noticed.
const LONGEST_SLEEP: u64 = SECOND / 10;
/// The longest that finished requests wait before they are handed to the account, in nanoseconds.
const OLDEST_ROWS: u64 = SECOND / 5;
/// The longest wait for requests in flight after the load was stopped, in nanoseconds.
pub const GRACE: u64 = 10 * SECOND;

/// Tells a load to stop, from another thread or a signal handler. Once means to stop issuing and
/// wait for requests in flight, twice to end at once.
#[derive(Debug, Default)]
pub struct Stop(AtomicU32);

impl Stop {
    /// Asks the load to stop, or a second time to end at once.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn asked(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The options of a load's run.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// The most requests in flight.
    pub queue_depth_cap: u32,
    /// The time before a request's intended time for which the engine spins, in nanoseconds.
    pub spin: u64,
    /// The time after which nothing is issued, in nanoseconds.
    pub limit: u64,
    /// The target's block, in bytes. Extents are rounded outwards to it.
    pub block: u32,
}

/// The reason why a load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The workload was over.
    Finished,
    /// It was told to stop.
    Stopped,
    /// It reached `run.limit`.
    Limit,
    /// The target went away.
    TargetGone,
}

/// The engine's own counts.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// The wall-clock time at which the load began: the zero of its requests' times.
    pub began: SystemTime,
    /// The time from the beginning until the last request was done or given up, in nanoseconds.
    pub time: u64,
    /// Requests issued.
    pub issued: u64,
    /// Requests seen to be done, successfully or not.
    pub ended: u64,
    /// Requests still in flight at the end.
    pub unfinished: u64,
    /// Requests that waited for the cap when the load was stopped, and were never issued.
    pub dropped: u64,
    /// Requests rounded outwards to whole blocks.
    pub rounded: u64,
    /// The number of requests in flight, summed over time, in requests × nanoseconds.
    pub presence: u128,
    /// The time spent spinning, in nanoseconds.
    pub spun: u64,
    /// The processor time of the engine's thread, in nanoseconds.
    pub thread_time: u64,
    /// The number of times the engine had to wait because the account was behind.
    pub waits: u64,
    /// The reason why it ended.
    pub ending: Ending,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    issue: Issue,
    due: u64,
    issued: u64,
}

/// A load in progress.
#[derive(Debug)]
pub struct Engine<W> {
    options: EngineOptions,
    schedule: Schedule<W>,
    backend: Backend,
    buffers: Buffers,
    filler: Filler,
    /// The time at which the load began, on the system's clock.
    begun: Instant,
    /// The requests in flight, by tag. Tags are as small as the queue is short.
    asked: Vec<Option<Asked>>,
    batch: Vec<u32>,
    done: Vec<(u32, Outcome)>,
    passed: u64,
    issued: u64,
    ended: u64,
    dropped: u64,
    rounded: u64,
    presence: u128,
    spun: u64,
    ending: Option<(Ending, u64)>,
}

impl<W: Workload> Engine<W> {
    /// Creates a load of `workload` on a target. It has not begun.
    pub fn new(
        options: EngineOptions,
        workload: W,
        backend: Backend,
        buffers: Buffers,
        filler: Filler,
    ) -> Engine<W> {
        Engine {
            schedule: Schedule::new(workload, options.queue_depth_cap),
            options,
            backend,
            buffers,
            filler,
            begun: Instant(0),
            asked: Vec::with_capacity(1 << 12),
            batch: Vec::with_capacity(BATCH),
            done: Vec::with_capacity(1 << 12),
            passed: 0,
            issued: 0,
            ended: 0,
            dropped: 0,
            rounded: 0,
            presence: 0,
            spun: 0,
            ending: None,
        }
    }

    /// Runs the load to its end on this thread, which must have created the backend.
    ///
    /// # Errors
    /// Fails with the ring's errors, which are permanent.
    pub fn run(mut self, stop: &Stop) -> io::Result<Totals> {
        // Without this the kernel may delay a wake-up by 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        let before = thread_time();
        self.begun = clock::now();
        let began = SystemTime::now();
        loop {
            let now = self.now();
            self.look_whether_to_end(now, stop);
            if self.schedule.is_over() || self.is_given_up(now, stop) {
                break;
            }
            self.schedule.advance(Instant(now));
            if self.issue(now) {
                self.backend.poll()?;
            } else {
                self.pass_time(now)?;
            }
            self.reap();
        }
        self.filler.hand_over();
        let time = self.passed;
        let unfinished = u64::from(self.schedule.under_way());
        self.backend.close();
        Ok(Totals {
            began,
            time,
            issued: self.issued,
            ended: self.ended,
            unfinished,
            dropped: self.dropped,
            rounded: self.rounded,
            presence: self.presence,
            spun: self.spun,
            thread_time: thread_time() - before,
            waits: self.filler.waits(),
            ending: self.ending.map_or(Ending::Finished, |(ending, _)| ending),
        })
    }

    fn now(&self) -> u64 {
        clock::now().since(self.begun)
    }

    /// Adds the requests in flight since the last call to the presence.
    fn pass(&mut self, now: u64) {
        let time = now - self.passed;
        self.presence += u128::from(self.issued - self.ended) * u128::from(time);
        self.passed = now;
    }

    fn look_whether_to_end(&mut self, now: u64, stop: &Stop) {
        if self.ending.is_some() {
            return;
        }
        let ending = if self.backend.is_gone() {
            Ending::TargetGone
        } else if stop.asked() > 0 {
            Ending::Stopped
        } else if now >= self.options.limit {
            Ending::Limit
        } else {
            return;
        };
        self.ending = Some((ending, now));
        self.dropped = self.schedule.stop();
    }

    fn is_given_up(&mut self, now: u64, stop: &Stop) -> bool {
        let given_up = self.ending.is_some_and(|(_, at)| now >= at + GRACE || stop.asked() > 1);
        if given_up {
            self.pass(now);
        }
        given_up
    }

    /// Queues the requests that may go. Returns true if there were any.
    fn issue(&mut self, now: u64) -> bool {
        while self.batch.len() < BATCH {
            let Some(ready) = self.schedule.take() else { break };
            let Issue { tag, operation, extent, .. } = ready.issue;
            let slot = tag as usize;
            if slot >= self.asked.len() {
                self.asked.resize(slot + 1, None);
            }
            self.asked[slot] = Some(Asked { issue: ready.issue, due: ready.due.0, issued: now });
            let (offset, length) = self.rounded(operation, extent);
            let data = match operation {
                Operation::Read => Some(self.buffers.read(length as usize)),
                Operation::Write { .. } => Some(self.buffers.write(length as usize)),
                Operation::Trim | Operation::Flush => None,
            };
            let at = self.begun + now;
            self.backend.submit(at, Request { tag, operation, offset, length, data });
            self.batch.push(tag);
        }
        if self.batch.is_empty() {
            return false;
        }
        // They leave with the system call that follows.
        let issued = self.now();
        self.pass(issued);
        for tag in self.batch.drain(..) {
            if let Some(asked) = &mut self.asked[tag as usize] {
                asked.issued = issued;
            }
            self.issued += 1;
        }
        true
    }

    /// Returns the offset and length in bytes of an extent, rounded outwards to whole blocks.
    fn rounded(&mut self, operation: Operation, extent: Extent) -> (u64, u64) {
        if operation == Operation::Flush {
            return (0, 0);
        }
        let block = u64::from(self.options.block);
        let (start, end) = (extent.start * SECTOR_BYTES, extent.end * SECTOR_BYTES);
        let (first, last) = (start / block * block, end.next_multiple_of(block));
        self.rounded += u64::from((first, last) != (start, end));
        (first, last - first)
    }

    /// Sleeps or spins, with nothing to issue, until there is or something is done.
    fn pass_time(&mut self, now: u64) -> io::Result<()> {
        let own = self.backend.deadline();
        let own = if own == Instant::NEVER { u64::MAX } else { own.since(self.begun) };
        let next = self.schedule.next_event().0.min(own).min(now + LONGEST_SLEEP);
        let left = next.saturating_sub(now);
        if left > self.options.spin {
            return self.backend.wait(left - self.options.spin);
        }
        if self.schedule.under_way() > 0 {
            self.backend.poll()?;
        } else {
            while self.now() < next {
                std::hint::spin_loop();
            }
        }
        self.spun += self.now() - now;
        Ok(())
    }

    /// Takes in the requests that are done.
    fn reap(&mut self) {
        let at = clock::now();
        self.backend.reap(at, &mut self.done);
        let now = at.since(self.begun);
        if !self.done.is_empty() {
            self.pass(now);
        }
        let mut done = std::mem::take(&mut self.done);
        for (tag, outcome) in done.drain(..) {
            let asked = self.asked.get_mut(tag as usize).and_then(Option::take);
            let Some(Asked { issue, due, issued }) = asked else { continue };
            let workload = self.schedule.workload();
            self.filler.push(Row {
                intended: issue.intended.0,
                due,
                issued,
                completed: now,
                start: issue.extent.start,
                // Longer requests are refused before the load begins.
                sectors: issue.extent.sectors() as u32,
                phase: workload.phase(tag) as u16,
                operation: issue.operation,
                outcome,
                measured: workload.measured(tag),
            });
            self.ended += 1;
            self.schedule.completed(Instant(now), tag);
        }
        self.done = done;
        if self.filler.oldest().is_some_and(|oldest| now - oldest > OLDEST_ROWS) {
            self.filler.hand_over();
        }
    }
}

/// Returns the processor time of this thread, in nanoseconds.
fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// Returns the processor time of the whole process, in nanoseconds.
pub fn process_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

#[cfg(test)]
mod tests;
