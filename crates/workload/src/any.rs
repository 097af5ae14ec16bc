//! A workload of any kind.

use hemi_units::Instant;

use super::bursts::Bursts;
use super::closed::Closed;
use super::combine::Combine;
use super::limit::Quota;
use super::open::Open;
use super::phases::Phases;
use super::replay::Replay;
use super::traces::load::Trace;
use super::{Demand, Issue, Workload};

/// A workload of any kind.
#[derive(Clone, Debug)]
pub enum AnyWorkload {
    /// A closed loop.
    Closed(Closed),
    /// An open loop.
    Open(Open),
    /// Checkpoint bursts.
    Bursts(Bursts),
    /// A replay.
    Replay(Replay),
    /// Several workloads at once.
    Combine(Combine),
    /// Several workloads, one after another.
    Phases(Box<Phases>),
}

macro_rules! each {
    ($self:expr, $workload:ident => $what:expr) => {
        match $self {
            AnyWorkload::Closed($workload) => $what,
            AnyWorkload::Open($workload) => $what,
            AnyWorkload::Bursts($workload) => $what,
            AnyWorkload::Replay($workload) => $what,
            AnyWorkload::Combine($workload) => $what,
            AnyWorkload::Phases($workload) => $what,
        }
    };
}

impl AnyWorkload {
    /// Begins at `at`, for example after the drives have been preconditioned. Must be called
    /// before anything is issued; without it a workload begins at time zero.
    pub fn begin(&mut self, at: Instant) {
        each!(self, workload => workload.begin(at));
    }

    /// Returns the workload's demand.
    pub fn demand(&self) -> Demand {
        each!(self, workload => workload.demand())
    }

    /// Returns the traces that it replays.
    fn traces(&self) -> Vec<&Trace> {
        match self {
            AnyWorkload::Replay(replay) => vec![replay.trace()],
            AnyWorkload::Combine(combine) => {
                combine.parts().iter().flat_map(AnyWorkload::traces).collect()
            }
            AnyWorkload::Phases(phases) => {
                phases.workloads().flat_map(AnyWorkload::traces).collect()
            }
            AnyWorkload::Closed(_) | AnyWorkload::Open(_) | AnyWorkload::Bursts(_) => Vec::new(),
        }
    }

    /// Returns what its traces are known to lack, each reason once.
    pub fn lacking(&self) -> Vec<String> {
        let mut lacking: Vec<String> = Vec::new();
        for what in self.traces().into_iter().flat_map(Trace::lacking) {
            if !lacking.contains(what) {
                lacking.push(what.clone());
            }
        }
        lacking
    }

    /// Caps the number of requests in flight at about `under_way`: requests that would wait for
    /// a slot anyway are not issued yet. The intended times stay the same, and a client that
    /// stalls when full keeps its own limit.
    pub fn cap(&mut self, under_way: u32) {
        match self {
            AnyWorkload::Open(open) => open.cap(under_way),
            AnyWorkload::Bursts(bursts) => bursts.cap(under_way),
            AnyWorkload::Replay(replay) => replay.cap(under_way),
            AnyWorkload::Combine(combine) => combine.cap(under_way),
            AnyWorkload::Phases(phases) => phases.cap(under_way),
            AnyWorkload::Closed(_) => {}
        }
    }

    /// Grants `quota`, within the workload's own limits. Requests held back for lack of a grant
    /// are issued with the next one.
    pub(super) fn grant(&mut self, quota: Quota) {
        each!(self, workload => workload.grant(quota));
    }
}

impl Workload for AnyWorkload {
    fn next_event(&self) -> Instant {
        each!(self, workload => workload.next_event())
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        each!(self, workload => workload.advance(now, issues));
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        each!(self, workload => workload.completed(now, tag, issues));
    }

    fn is_over(&self) -> bool {
        each!(self, workload => workload.is_over())
    }

    fn measured(&self, tag: u32) -> bool {
        each!(self, workload => workload.measured(tag))
    }

    fn phase(&self, tag: u32) -> usize {
        each!(self, workload => workload.phase(tag))
    }
}
