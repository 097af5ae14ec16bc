//! A workload of any kind.

use hemi_units::Instant;

use super::bursts::Bursts;
use super::closed::Closed;
use super::combine::Combine;
use super::limit::Quota;
use super::open::Open;
use super::phases::Phases;
use super::replay::Replay;
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
    /// Several at once.
    Combine(Combine),
    /// Several one after another.
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
    /// Begins at `at`, as when the drives were preconditioned before. Nothing may have been
    /// issued yet; without it, a workload begins at time zero.
    pub fn begin(&mut self, at: Instant) {
        each!(self, workload => workload.begin(at));
    }

    /// What it will ask for.
    pub fn demand(&self) -> Demand {
        each!(self, workload => workload.demand())
    }

    /// At most so many of its requests will be under way at a time, or a little more: what
    /// would wait for that anyway it need not issue yet. Nothing else changes: requests are
    /// intended for the same times, and a client that stalls when full stalls at its own
    /// limit.
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

    /// From now on this much may be issued, within the workload's own limits. What it had to
    /// leave for want of a grant it issues with the next.
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
