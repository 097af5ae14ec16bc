//! Several workloads at once.

use hemi_units::{Instant, Time};
use serde::Deserialize;

use super::any::AnyWorkload;
use super::limit::{Limits, Quota};
use super::spec::WorkloadSpec;
use super::{Demand, Issue, Workload};

/// Maximum number of parts, so that the tags of all their requests fit 32 bits.
pub(crate) const MOST_PARTS: usize = 64;

/// A `combine` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CombineSpec {
    /// Time for which requests are issued.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Number of requests issued by all parts together.
    #[serde(default)]
    pub requests: Option<u64>,
    /// The parts. Each has its own random numbers.
    pub parts: Vec<WorkloadSpec>,
}

/// Several running workloads.
#[derive(Clone, Debug)]
pub struct Combine {
    parts: Vec<AnyWorkload>,
    limits: Limits,
}

impl Combine {
    /// Combines these parts, beginning at time zero.
    pub(super) fn new(parts: Vec<AnyWorkload>, limits: Limits) -> Combine {
        let mut combine = Combine { parts, limits };
        combine.share();
        combine
    }

    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.parts.iter_mut().for_each(|part| part.begin(at));
        self.share();
    }

    /// Caps the requests in flight; see [`AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        self.parts.iter_mut().for_each(|part| part.cap(under_way));
    }

    /// Returns the parts.
    pub(super) fn parts(&self) -> &[AnyWorkload] {
        &self.parts
    }

    /// Returns the demand of all parts together.
    pub(super) fn demand(&self) -> Demand {
        self.parts.iter().map(AnyWorkload::demand).fold(Demand::default(), Demand::and)
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
        self.share();
    }

    /// Grants every part the quota of all of them together.
    fn share(&mut self) {
        let quota = self.limits.quota();
        self.parts.iter_mut().for_each(|part| part.grant(quota));
    }

    /// Lets one part act within the remaining quota, and makes the tags of its requests unique
    /// among the parts.
    fn with(
        &mut self,
        index: usize,
        issues: &mut Vec<Issue>,
        act: impl FnOnce(&mut AnyWorkload, &mut Vec<Issue>),
    ) {
        let count = self.parts.len() as u32;
        let before = issues.len();
        let quota = self.limits.quota();
        if quota.left != u64::MAX {
            self.parts[index].grant(quota);
        }
        act(&mut self.parts[index], issues);
        for issue in &mut issues[before..] {
            issue.tag = issue.tag * count + index as u32;
        }
        self.limits.spend((issues.len() - before) as u64);
        if self.limits.quota().left == 0 && quota.left > 0 {
            self.share();
        }
    }

    fn part_of(&self, tag: u32) -> (usize, u32) {
        let count = self.parts.len() as u32;
        ((tag % count) as usize, tag / count)
    }
}

impl Workload for Combine {
    fn next_event(&self) -> Instant {
        self.parts.iter().map(Workload::next_event).min().unwrap_or(Instant::NEVER)
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        for index in 0..self.parts.len() {
            if self.parts[index].next_event() <= now {
                self.with(index, issues, |part, issues| part.advance(now, issues));
            }
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        let (index, inner) = self.part_of(tag);
        self.with(index, issues, |part, issues| part.completed(now, inner, issues));
    }

    fn is_over(&self) -> bool {
        self.parts.iter().all(Workload::is_over)
    }

    fn measured(&self, tag: u32) -> bool {
        let (index, inner) = self.part_of(tag);
        self.parts[index].measured(inner)
    }

    fn phase(&self, tag: u32) -> usize {
        let (index, inner) = self.part_of(tag);
        self.parts[index].phase(inner)
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::Instant;

    use crate::Workload;
    use crate::testing::workload;

    #[test]
    fn the_last_request_of_one_part_is_the_last_of_all() {
        let access = "access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                      mix = { read_percent = 50 } }";
        let text = format!(
            "[combine]\nrequests = 3\n[[combine.parts]]\n[combine.parts.closed]\nthreads = 1\n\
             queue_depth = 1\n{access}\n[[combine.parts]]\n[combine.parts.closed]\nthreads = 1\n\
             queue_depth = 1\nthink_time = {{ fixed = \"1 s\" }}\n{access}"
        );
        let mut combine = workload(&text, 1 << 20).unwrap();
        let mut issues = Vec::new();
        combine.advance(Instant(0), &mut issues);
        let tags: Vec<u32> = issues.drain(..).map(|issue| issue.tag).collect();
        assert_eq!(tags, [0, 1]);
        combine.completed(Instant(5), 1, &mut issues);
        assert_eq!((issues.len(), combine.next_event()), (0, Instant(1_000_000_005)));
        combine.completed(Instant(6), 0, &mut issues);
        // The third request: the other part has no reason to wake up any more.
        assert_eq!((issues.len(), combine.next_event()), (1, Instant::NEVER));
        assert!(!combine.is_over());
        combine.completed(Instant(7), 0, &mut issues);
        assert!(combine.is_over() && issues.len() == 1);
    }
}
