//! What clients ask for, and when.
//!
//! A workload is a state machine on the virtual clock, like a drive: it says when it next
//! wants something ([`Workload::next_event`]), issues what is due ([`Workload::advance`]) and
//! is told what is done ([`Workload::completed`]), because a closed loop's next request waits
//! for the one before.
//!
//! Specs describe one ([`spec::WorkloadSpec`], a section of a TOML file) and build it
//! ([`any::AnyWorkload`]). The kinds: [`closed`] and [`open`] loops, checkpoint [`bursts`],
//! [`replay`] of [`traces`], several at once ([`combine`]) and one after another ([`phases`]).

use hemi_units::{Extent, Instant, Operation};

pub mod access;
pub mod any;
pub mod bursts;
pub mod closed;
pub mod combine;
mod dependencies;
pub mod error;
pub mod figures;
pub mod limit;
pub mod open;
pub mod phases;
pub mod replay;
pub mod report;
mod run;
pub mod seeds;
pub mod spec;
mod tags;
#[cfg(test)]
mod testing;
pub mod traces;

pub use run::RunSpec;

/// One request of a client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The workload's name for it, given back to [`Workload::completed`]. Free for another
    /// request from then on.
    pub tag: u32,
    /// What to do.
    pub operation: Operation,
    /// Where, in sectors of 512 bytes; empty for a flush.
    pub extent: Extent,
    /// When it was to be issued. Latency counts from here: a request that had to wait in the
    /// client (because as many as may be were outstanding) has waited all the same.
    pub intended: Instant,
}

/// What a workload will ask of whatever serves it, known before it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Whether anything is written or trimmed.
    pub writes: bool,
    /// The longest request, sectors.
    pub longest_sectors: u64,
}

impl Demand {
    /// What two workloads come to together.
    #[must_use]
    pub fn and(self, other: Demand) -> Demand {
        Demand {
            writes: self.writes || other.writes,
            longest_sectors: self.longest_sectors.max(other.longest_sectors),
        }
    }
}

/// A source of requests.
pub trait Workload {
    /// When the workload next issues something by itself; [`Instant::NEVER`] when only a
    /// completion can make it, or it is over.
    fn next_event(&self) -> Instant;

    /// Appends what is issued until `now`.
    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>);

    /// A request is done; appends what is issued because of it.
    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>);

    /// Whether everything has been issued and is done.
    fn is_over(&self) -> bool;

    /// Whether the request of this name is one to measure rather than warm-up. To be asked
    /// from when it was issued until just before [`Workload::completed`] is told of it.
    fn measured(&self, _tag: u32) -> bool {
        true
    }

    /// In which phase the request of this name was issued, from 0, for a workload that has
    /// phases; to be asked when [`Workload::measured`] may be.
    fn phase(&self, _tag: u32) -> usize {
        0
    }
}
