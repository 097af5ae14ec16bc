//! Checkpoints: periodic bursts of page writes, in addition to another workload.

use hemi_units::{Instant, Operation, Size, Time};
use serde::Deserialize;

use super::access::addresses::AddressesSpec;
use super::access::mix::MixSpec;
use super::access::sizes::SizesSpec;
use super::access::span::SpanSpec;
use super::access::{Access, AccessSpec, Stream};
use super::error::{WorkloadError, check_count, check_duration};
use super::limit::{self, Limits, Quota};
use super::seeds::Seeds;
use super::spec::WorkloadSpec;
use super::tags::{MOST_OUTSTANDING, Tags};
use super::{Demand, Issue, Workload};

/// A `bursts` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstsSpec {
    /// Time from the beginning to the first burst, and from one burst to the next.
    pub every: Time,
    /// Pages written by a burst. If it is not done when the next is due, the pages of the next
    /// are added.
    pub pages: u64,
    /// Size of a page, which is also the alignment.
    pub page: Size,
    /// Distribution of the pages.
    pub addresses: AddressesSpec,
    /// Part of the volume used; all of it if absent.
    #[serde(default)]
    pub span: Option<SpanSpec>,
    /// Maximum number of writes in flight. The checkpoint issues the next write when one is
    /// done, and the latency of a write counts from then. If absent, all are issued at once.
    #[serde(default)]
    pub outstanding: Option<u32>,
    /// True if a flush follows the pages of a burst.
    #[serde(default)]
    pub flush: bool,
    /// Time for which bursts are issued.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Total number of requests the bursts issue.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Workload that runs meanwhile: a closed loop, an open loop or a replay.
    #[serde(default)]
    pub over: Option<Box<WorkloadSpec>>,
}

/// Running bursts, without the workload beside them.
#[derive(Clone, Debug)]
pub struct Bursts {
    access: Access,
    stream: Stream,
    every: u64,
    pages: u64,
    outstanding: u32,
    /// True if a write's intended time is the completion of the one before, not the start of
    /// the burst.
    paced: bool,
    flush: bool,
    /// Start of the next burst.
    next: Instant,
    /// Start of the current burst.
    burst: Instant,
    /// Pages of the current burst still to issue.
    due: u64,
    /// True if the flush of the current burst is still to issue.
    flush_due: bool,
    limits: Limits,
    tags: Tags,
}

impl BurstsSpec {
    /// Builds the bursts on a volume of `volume_sectors` sectors, beginning at time zero,
    /// without the workload beside them.
    ///
    /// # Errors
    /// Fails if the spec is impossible on the volume, naming the key.
    pub fn build(&self, volume_sectors: u64, seeds: Seeds) -> Result<Bursts, WorkloadError> {
        check_duration("every", self.every.0)?;
        check_count("pages", self.pages, MOST_OUTSTANDING.into())?;
        let outstanding = self.outstanding.unwrap_or(MOST_OUTSTANDING);
        check_count("outstanding", outstanding.into(), MOST_OUTSTANDING.into())?;
        limit::check(self.duration, self.requests)?;
        let access = AccessSpec {
            addresses: self.addresses.clone(),
            span: self.span,
            alignment: None,
            sizes: SizesSpec::Fixed(self.page),
            mix: MixSpec {
                read_percent: 0.0,
                trim_percent: 0.0,
                fua_percent: 0.0,
                flush_every: None,
            },
        };
        let access = access.build(volume_sectors)?;
        Ok(Bursts {
            stream: access.stream(seeds, 0),
            access,
            every: self.every.0,
            pages: self.pages,
            outstanding,
            paced: self.outstanding.is_some(),
            flush: self.flush,
            next: Instant(self.every.0),
            burst: Instant(0),
            due: 0,
            flush_due: false,
            limits: Limits::new(self.duration, self.requests),
            tags: Tags::default(),
        })
    }
}

impl Bursts {
    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.next = at + self.every;
    }

    /// Caps the requests in flight; see [`super::any::AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        if !self.paced {
            self.outstanding = self.outstanding.min(under_way);
        }
    }

    /// Returns the demand of the bursts.
    pub(super) fn demand(&self) -> Demand {
        self.access.demand()
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
    }

    /// Issues as much of the current burst as is allowed.
    fn issue(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        let intended = if self.paced { now } else { self.burst };
        while self.due > 0 && self.may_issue() {
            self.due -= 1;
            self.limits.spend(1);
            let (operation, extent) = self.access.next(&mut self.stream);
            issues.push(Issue { tag: self.tags.take(), operation, extent, intended });
        }
        if self.flush_due && self.due == 0 && self.tags.outstanding() == 0 && self.may_issue() {
            self.flush_due = false;
            self.limits.spend(1);
            let (tag, operation) = (self.tags.take(), Operation::Flush);
            issues.push(Issue { tag, operation, extent: Default::default(), intended: now });
        }
    }

    /// Returns true if another request may be issued now. A burst that has begun runs to its
    /// end: only the number of requests stops it.
    fn may_issue(&self) -> bool {
        self.tags.outstanding() < self.outstanding && self.limits.quota().left > 0
    }

    /// Returns true if part of a burst is left that a grant would let through.
    fn pending(&self) -> bool {
        (self.due > 0 || self.flush_due && self.tags.outstanding() == 0) && self.may_issue()
    }
}

impl Workload for Bursts {
    fn next_event(&self) -> Instant {
        if self.pending() {
            return self.burst;
        }
        if self.limits.allow(self.next) { self.next } else { Instant::NEVER }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        self.issue(now, issues);
        while self.next <= now && self.limits.allow(self.next) {
            self.burst = self.next;
            self.next = self.next + self.every;
            self.due += self.pages;
            self.flush_due = self.flush;
            self.issue(now, issues);
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        self.tags.give(tag);
        self.issue(now, issues);
    }

    fn is_over(&self) -> bool {
        self.tags.outstanding() == 0 && self.next_event() == Instant::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::{Bursts, BurstsSpec};
    use crate::seeds::Seeds;
    use crate::testing::{Server, run};
    use hemi_units::Operation;

    fn bursts(text: &str) -> Bursts {
        let text = format!(
            "every = \"1 s\"\npages = 1000\npage = \"8 KiB\"\naddresses = \"uniform\"\n{text}"
        );
        let spec: BurstsSpec = toml::from_str(&text).unwrap();
        spec.build(1 << 20, Seeds::new(1)).unwrap()
    }

    #[test]
    fn all_pages_of_a_burst_come_at_once() {
        let mut server = Server::fixed(1_000_000);
        let log = run(&mut bursts("duration = \"3500 ms\""), &mut server);
        assert_eq!((log.len(), server.most_outstanding), (3000, 1000));
        for (index, done) in log.iter().enumerate() {
            let burst = (index as u64 / 1000 + 1) * 1_000_000_000;
            assert_eq!((done.issue.intended.0, done.at.0), (burst, burst + 1_000_000));
            assert_eq!(done.issue.extent.sectors(), 16);
            assert_eq!(done.issue.operation, Operation::Write { fua: false });
        }
    }

    #[test]
    fn a_burst_keeps_to_its_limit_and_is_flushed_at_its_end() {
        let mut server = Server::fixed(10_000_000);
        let text = "duration = \"2500 ms\"\noutstanding = 50\nflush = true";
        let log = run(&mut bursts(text), &mut server);
        assert_eq!((log.len(), server.most_outstanding), (2002, 50));
        assert!(log.iter().all(|done| done.at.since(done.issue.intended) == 10_000_000));
        // 20 rounds of 50, then the flush.
        assert_eq!(log[1000].issue.operation, Operation::Flush);
        assert_eq!(log[1000].issue.intended.0, 1_200_000_000);
        assert_eq!(log[1001].issue.intended.0, 2_000_000_000);
    }

    #[test]
    fn the_flush_waits_for_every_page() {
        let log = run(
            &mut bursts("duration = \"2500 ms\"\nflush = true"),
            &mut Server::random(1, 1_000_000),
        );
        let flushes: Vec<usize> =
            (0..log.len()).filter(|&i| log[i].issue.operation == Operation::Flush).collect();
        assert_eq!(flushes, [1000, 2001]);
        for flush in flushes {
            let pages = &log[flush - 1000..flush];
            assert_eq!(pages.iter().map(|done| done.at).max(), Some(log[flush].issue.intended));
        }
    }

    #[test]
    fn a_burst_too_slow_for_its_time_is_caught_up_with() {
        // 100 per second, where 1000 are due: three bursts take 30 s from the first.
        let mut server = Server::fixed(10_000_000);
        let log = run(&mut bursts("duration = \"3500 ms\"\noutstanding = 1"), &mut server);
        assert_eq!(log.len(), 3000);
        assert_eq!(log[2999].at.0, 31_000_000_000);
        let log = run(&mut bursts("requests = 1500"), &mut Server::fixed(1));
        assert_eq!(log.len(), 1500);
    }
}
