//! Closed loops: each thread keeps a number of requests in flight and issues the next as soon
//! as one is done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_random::Rng;
use hemi_units::{Instant, Time};
use serde::Deserialize;

use super::access::{Access, AccessSpec, Stream};
use super::error::{WorkloadError, check_count, check_duration};
use super::limit::{self, Limits, Quota};
use super::seeds::{Purpose, Seeds};
use super::tags::MOST_OUTSTANDING;
use super::{Demand, Issue, Workload};

/// A `closed` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedSpec {
    /// Number of threads. Each has its own random numbers.
    pub threads: u32,
    /// Requests each thread keeps in flight.
    pub queue_depth: u32,
    /// Time a thread waits between the end of a request and the next in its slot.
    #[serde(default)]
    pub think_time: Option<ThinkTime>,
    /// Time for which requests are issued.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Number of requests issued by all threads together.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Access pattern of each thread.
    pub access: AccessSpec,
}

/// The think time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ThinkTime {
    /// A constant time.
    Fixed(Time),
    /// An exponentially distributed time with this mean.
    Exponential(Time),
}

/// Running closed loops.
#[derive(Clone, Debug)]
pub struct Closed {
    access: Access,
    threads: Vec<Thread>,
    queue_depth: u32,
    think_time: Option<ThinkTime>,
    limits: Limits,
    /// Free tags, each with the time from which its next request may be issued.
    ready: BinaryHeap<Reverse<(Instant, u32)>>,
}

#[derive(Clone, Debug)]
struct Thread {
    requests: Stream,
    times: Rng,
}

impl ClosedSpec {
    /// Builds the loops on a volume of `volume_sectors` sectors, beginning at time zero.
    ///
    /// # Errors
    /// Fails if the spec is impossible on the volume, naming the key.
    pub fn build(&self, volume_sectors: u64, seeds: Seeds) -> Result<Closed, WorkloadError> {
        let most = u64::from(MOST_OUTSTANDING);
        check_count("threads", self.threads.into(), most)?;
        check_count("queue_depth", self.queue_depth.into(), most / u64::from(self.threads))?;
        limit::check(self.duration, self.requests)?;
        if let Some(ThinkTime::Fixed(Time(length)) | ThinkTime::Exponential(Time(length))) =
            self.think_time
        {
            check_duration("think_time", length)?;
        }
        let access = self.access.build(volume_sectors).map_err(|e| e.within("access"))?;
        let threads = (0..u64::from(self.threads))
            .map(|thread| Thread {
                requests: access.stream(seeds, thread),
                times: seeds.stream(Purpose::Times, thread),
            })
            .collect();
        let mut closed = Closed {
            access,
            threads,
            queue_depth: self.queue_depth,
            think_time: self.think_time,
            limits: Limits::new(self.duration, self.requests),
            ready: BinaryHeap::with_capacity(self.threads as usize * self.queue_depth as usize),
        };
        closed.begin(Instant(0));
        Ok(closed)
    }
}

impl Closed {
    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.ready.clear();
        self.ready.extend((0..self.places()).map(|tag| Reverse((at, tag))));
    }

    /// Returns the demand of the loops.
    pub(super) fn demand(&self) -> Demand {
        self.access.demand()
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
    }

    fn places(&self) -> u32 {
        self.threads.len() as u32 * self.queue_depth
    }

    fn issue(&mut self, intended: Instant, tag: u32) -> Issue {
        self.limits.spend(1);
        let thread = &mut self.threads[(tag / self.queue_depth) as usize];
        let (operation, extent) = self.access.next(&mut thread.requests);
        Issue { tag, operation, extent, intended }
    }
}

impl Workload for Closed {
    fn next_event(&self) -> Instant {
        match self.ready.peek() {
            Some(&Reverse((at, _))) if self.limits.allow(at) => at,
            _ => Instant::NEVER,
        }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        while let Some(&Reverse((at, tag))) = self.ready.peek() {
            if at > now || !self.limits.allow(at) {
                return;
            }
            self.ready.pop();
            let issue = self.issue(at, tag);
            issues.push(issue);
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        let at = match self.think_time {
            None if self.limits.allow(now) => {
                let issue = self.issue(now, tag);
                issues.push(issue);
                return;
            }
            None => now,
            Some(ThinkTime::Fixed(Time(length))) => now + length,
            Some(ThinkTime::Exponential(Time(mean))) => {
                let thread = &mut self.threads[(tag / self.queue_depth) as usize];
                now + libm::round(thread.times.exponential(mean as f64)) as u64
            }
        };
        self.ready.push(Reverse((at, tag)));
    }

    fn is_over(&self) -> bool {
        self.ready.len() == self.places() as usize && self.next_event() == Instant::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::ClosedSpec;
    use crate::Workload;
    use crate::seeds::Seeds;
    use crate::testing::{Server, requests_of_thread, run};

    fn spec(text: &str) -> ClosedSpec {
        let access = "[access]\naddresses = \"uniform\"\nsizes = \"4 KiB\"\n\
                      mix = { read_percent = 70 }\n";
        toml::from_str(&format!("{text}\n{access}")).unwrap()
    }

    #[test]
    fn as_many_are_under_way_as_threads_times_depth_and_never_more() {
        let mut closed = spec("threads = 3\nqueue_depth = 5\nrequests = 20_000")
            .build(1 << 20, Seeds::new(1))
            .unwrap();
        let mut server = Server::random(9, 1_000_000);
        let log = run(&mut closed, &mut server);
        assert_eq!(log.len(), 20_000);
        assert_eq!(server.most_outstanding, 15);
        assert!(closed.is_over());
        for thread in 0..3 {
            let own = log.iter().filter(|done| done.issue.tag / 5 == thread);
            assert!((6_000..7_400).contains(&own.count()));
        }
        // Without a think time the queue is always full except at the end.
        let end = log.iter().map(|done| done.at).max().unwrap();
        let busy: u64 = log.iter().map(|done| done.at.since(done.issue.intended)).sum();
        assert!(busy as f64 > 14.9 * end.0 as f64);
    }

    #[test]
    fn another_thread_changes_nothing_for_the_others() {
        let log_of = |threads: u32, seed| {
            let text = format!("threads = {threads}\nqueue_depth = 2\nduration = \"1 s\"");
            let mut closed = spec(&text).build(1 << 20, Seeds::new(1)).unwrap();
            run(&mut closed, &mut Server::random(seed, 1_000_000))
        };
        let (two, three) = (log_of(2, 5), log_of(3, 6));
        for thread in 0..2 {
            // The order of issue does not depend on the order of the completions.
            let of_two = requests_of_thread(&two, thread, 2);
            let of_three = requests_of_thread(&three, thread, 2);
            let both = of_two.len().min(of_three.len());
            assert!(both > 500);
            assert_eq!(of_two[..both], of_three[..both]);
        }
    }

    #[test]
    fn threads_think() {
        for (think, service, expected) in [
            ("{ fixed = \"3 ms\" }", 1_000_000, 250.0),
            ("{ exponential = \"3 ms\" }", 1_000_000, 250.0),
        ] {
            let text =
                format!("threads = 4\nqueue_depth = 1\nthink_time = {think}\nduration = \"50 s\"");
            let mut closed = spec(&text).build(1 << 20, Seeds::new(1)).unwrap();
            let log = run(&mut closed, &mut Server::fixed(service));
            let each_second = log.len() as f64 / 50.0 / 4.0;
            assert!((each_second / expected - 1.0).abs() < 0.03, "{think}: {each_second}");
            assert!(log.iter().all(|done| done.at.since(done.issue.intended) == service));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let log_of = |seed| {
            let mut closed = spec("threads = 2\nqueue_depth = 8\nrequests = 5000")
                .build(1 << 20, Seeds::new(seed))
                .unwrap();
            run(&mut closed, &mut Server::random(3, 1_000_000))
        };
        assert_eq!(log_of(1), log_of(1));
        assert_ne!(log_of(1), log_of(2));
    }

    #[test]
    fn what_cannot_be_is_named() {
        let error = |text: &str| spec(text).build(1 << 20, Seeds::new(1)).unwrap_err().to_string();
        assert!(error("threads = 0\nqueue_depth = 1").starts_with("threads = 0: "));
        assert!(error("threads = 2\nqueue_depth = 9999999").starts_with("queue_depth = 9999999: "));
        assert!(
            error("threads = 1\nqueue_depth = 1\nduration = \"0 s\"").starts_with("duration = ")
        );
    }
}
