//! A server for the tests of workloads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};

use super::{Issue, Workload};

/// A server that serves every request immediately, each for its own time.
pub(crate) struct Server {
    rng: Rng,
    mean: u64,
    random: bool,
    under_way: BinaryHeap<Reverse<(Instant, u32)>>,
    issued: Vec<Option<(u64, Done)>>,
    count: u64,
    pub(crate) most_outstanding: usize,
    /// True if completions come before issues at the same time.
    pub(crate) completions_first: bool,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) issue: Issue,
    pub(crate) measured: bool,
    pub(crate) phase: usize,
    /// Time at which it reached the server.
    pub(crate) issued: Instant,
    pub(crate) at: Instant,
}

impl Server {
    /// Creates a server with exponential service times.
    pub(crate) fn random(seed: u64, mean: u64) -> Server {
        Server { random: true, ..Server::with(seed, mean) }
    }

    /// Creates a server with a fixed service time.
    pub(crate) fn fixed(time: u64) -> Server {
        Server::with(0, time)
    }

    fn with(seed: u64, mean: u64) -> Server {
        Server {
            rng: Rng::new(seed, 0),
            mean,
            random: false,
            under_way: BinaryHeap::new(),
            issued: Vec::new(),
            count: 0,
            most_outstanding: 0,
            completions_first: false,
        }
    }

    fn take(&mut self, now: Instant, workload: &impl Workload, issues: &mut Vec<Issue>) {
        for issue in issues.drain(..) {
            assert!(issue.intended <= now, "issued before its time");
            assert_eq!(issue.extent.is_empty(), issue.operation == Operation::Flush);
            let index = issue.tag as usize;
            if self.issued.len() <= index {
                self.issued.resize(index + 1, None);
            }
            assert!(self.issued[index].is_none(), "{} is outstanding already", issue.tag);
            let measured = workload.measured(issue.tag);
            let phase = workload.phase(issue.tag);
            let done = Done { issue, measured, phase, issued: now, at: Instant::NEVER };
            self.issued[index] = Some((self.count, done));
            self.count += 1;
            let time = match self.random {
                true => libm::round(self.rng.exponential(self.mean as f64)) as u64,
                false => self.mean,
            };
            self.under_way.push(Reverse((now + time, issue.tag)));
        }
        self.most_outstanding = self.most_outstanding.max(self.under_way.len());
    }
}

/// Runs a workload to its end and returns its requests in the order of issue.
pub(crate) fn run(workload: &mut impl Workload, server: &mut Server) -> Vec<Done> {
    let (mut log, mut issues, mut now) = (Vec::new(), Vec::new(), Instant(0));
    while !workload.is_over() || workload.next_event() != Instant::NEVER {
        let done = server.under_way.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let own = workload.next_event();
        assert!(done.min(own) != Instant::NEVER, "not over, but nothing will happen");
        assert!(done.min(own) >= now, "time goes back");
        now = done.min(own);
        if own < done || own == done && !server.completions_first {
            workload.advance(now, &mut issues);
            assert!(workload.next_event() > now, "the workload is not done with its time");
        } else {
            let Some(Reverse((at, tag))) = server.under_way.pop() else { unreachable!() };
            let (number, done) = server.issued[tag as usize].take().unwrap();
            assert_eq!(done.measured, workload.measured(tag));
            log.push((number, Done { at, ..done }));
            workload.completed(at, tag, &mut issues);
        }
        server.take(now, workload, &mut issues);
    }
    assert!(server.under_way.is_empty(), "over with requests in flight");
    log.sort_by_key(|(number, _)| *number);
    log.into_iter().map(|(_, done)| done).collect()
}

/// Returns the requests of one thread of a closed loop, in order of issue.
pub(crate) fn requests_of_thread(
    log: &[Done],
    thread: u32,
    depth: u32,
) -> Vec<(Operation, Extent)> {
    let own = log.iter().filter(|done| done.issue.tag / depth == thread);
    own.map(|done| (done.issue.operation, done.issue.extent)).collect()
}

/// Returns the chi-square statistic of counts against expected counts.
pub(crate) fn chi_square(counts: &[u64], expected: &[f64]) -> f64 {
    counts.iter().zip(expected).map(|(&n, e)| (n as f64 - e) * (n as f64 - e) / e).sum()
}

/// Builds the workload of a spec.
pub(crate) fn workload(
    text: &str,
    volume_sectors: u64,
) -> Result<super::any::AnyWorkload, super::error::WorkloadError> {
    let spec: super::spec::WorkloadSpec = toml::from_str(text).expect("a spec");
    spec.build(volume_sectors, 1, std::path::Path::new(env!("CARGO_MANIFEST_DIR")))
}
