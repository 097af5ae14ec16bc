//! Workloads: the requests of clients and their times.
//!
//! A workload is a state machine on the virtual clock, like a drive. It returns the time of its
//! next request ([`Workload::next_event`]), issues the requests that are due
//! ([`Workload::advance`]) and is told of completions ([`Workload::completed`]), since the next
//! request of a closed loop waits for the one before.
//!
//! Specs ([`spec::WorkloadSpec`], a section of a TOML file) describe a workload and build it
//! ([`any::AnyWorkload`]). The kinds are [`closed`] and [`open`] loops, checkpoint [`bursts`],
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
pub mod table;
mod tags;
#[cfg(test)]
mod testing;
pub mod traces;

pub use run::RunSpec;

/// A request from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The workload's name for the request, passed back to [`Workload::completed`]. It may be
    /// reused after that.
    pub tag: u32,
    /// The operation.
    pub operation: Operation,
    /// The sectors of 512 bytes; empty for a flush.
    pub extent: Extent,
    /// Intended time of issue. Latency counts from here, so it includes time the request had to
    /// wait in the client because too many were outstanding.
    pub intended: Instant,
}

/// The demands of a workload, known before it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// True if the workload writes or trims.
    pub writes: bool,
    /// Longest request in sectors.
    pub longest_sectors: u64,
}

impl Demand {
    /// Combines the demands of two workloads.
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
    /// Returns the time of the next request that needs no completion, or [`Instant::NEVER`] if
    /// only a completion can cause one or the workload is over.
    fn next_event(&self) -> Instant;

    /// Appends the requests issued until `now`.
    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>);

    /// Handles the completion of a request and appends the requests it causes.
    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>);

    /// Returns true if all requests have been issued and are done.
    fn is_over(&self) -> bool;

    /// Returns true if the request with this tag is measured, false if it is warm-up. May be
    /// called from its issue until just before [`Workload::completed`] is called for it.
    fn measured(&self, _tag: u32) -> bool {
        true
    }

    /// Returns the phase, from 0, in which the request with this tag was issued, for a workload
    /// that has phases. May be called when [`Workload::measured`] may.
    fn phase(&self, _tag: u32) -> usize {
        0
    }
}
