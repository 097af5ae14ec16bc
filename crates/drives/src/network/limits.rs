//! Costs of requests, and the times at which the volume's limits let them pass.

use hemi_units::{Instant, Operation, SECOND};

use super::bucket::Bucket;
use super::parameters::Parameters;
use crate::drive::Request;

/// The tokens a request takes from the buckets.
#[derive(Clone, Copy, Debug)]
struct Cost {
    requests: u64,
    bytes: u64,
}

/// A rate, and the burst credit, if any, that lets it be exceeded for a while.
#[derive(Clone, Debug)]
struct Limit {
    short: Bucket,
    credit: Option<Bucket>,
}

impl Limit {
    fn new(sustained: u64, burst: Option<(u64, u64)>, window: u64) -> Limit {
        let at_once = |rate: u64| {
            let tokens = u128::from(rate) * u128::from(window) / u128::from(SECOND);
            u64::try_from(tokens).unwrap_or(u64::MAX)
        };
        match burst {
            None => Limit { short: Bucket::new(sustained, at_once(sustained)), credit: None },
            Some((peak, credit)) => Limit {
                short: Bucket::new(peak, at_once(peak)),
                credit: Some(Bucket::new(sustained, credit)),
            },
        }
    }

    fn ready(&self, now: Instant, cost: u64) -> Instant {
        let ready = self.short.ready(now, cost);
        self.credit.as_ref().map_or(ready, |credit| ready.max(credit.ready(now, cost)))
    }

    fn take(&mut self, now: Instant, cost: u64) {
        self.short.take(now, cost);
        if let Some(credit) = &mut self.credit {
            credit.take(now, cost);
        }
    }
}

/// The volume's limits, and the run of sequential requests that the next one may join.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    requests: Limit,
    bytes: Limit,
    accounting_size: u64,
    merge_sequential: bool,
    /// Kind and end of the last request let pass.
    last: Option<(Operation, u64)>,
    /// Bytes that the last counted request still covers.
    covered: u64,
}

impl Limits {
    pub(super) fn new(parameters: &Parameters) -> Limits {
        let window = parameters.window.0;
        let iops = parameters.iops;
        let bandwidth = parameters.bandwidth;
        let bytes = bandwidth.peak.zip(bandwidth.credit).map(|(peak, credit)| (peak.0, credit.0));
        Limits {
            requests: Limit::new(iops.sustained, iops.peak.zip(iops.credit), window),
            bytes: Limit::new(bandwidth.sustained.0, bytes, window),
            accounting_size: parameters.accounting_size.0,
            merge_sequential: parameters.merge_sequential,
            last: None,
            covered: 0,
        }
    }

    fn cost(&self, request: &Request) -> Cost {
        let bytes = match request.operation {
            Operation::Flush => return Cost { requests: 0, bytes: 0 },
            Operation::Trim => return Cost { requests: 1, bytes: 0 },
            Operation::Read | Operation::Write { .. } => request.extent.bytes(),
        };
        let beyond = bytes.saturating_sub(self.covered_of(request));
        let requests = beyond.div_ceil(self.accounting_size);
        Cost { requests, bytes }
    }

    /// Returns the bytes of the request that an earlier counted request covers.
    fn covered_of(&self, request: &Request) -> u64 {
        let continues = self.last == Some((request.operation, request.extent.start));
        if self.merge_sequential && continues { self.covered } else { 0 }
    }

    /// Returns the time, not before `now`, at which the limits let the request pass.
    pub(super) fn ready(&self, now: Instant, request: &Request) -> Instant {
        let cost = self.cost(request);
        self.requests.ready(now, cost.requests).max(self.bytes.ready(now, cost.bytes))
    }

    /// Takes the request's tokens and lets it pass.
    pub(super) fn take(&mut self, now: Instant, request: &Request) {
        let cost = self.cost(request);
        if request.operation == Operation::Flush {
            return;
        }
        self.requests.take(now, cost.requests);
        self.bytes.take(now, cost.bytes);
        let room = self.covered_of(request) + cost.requests * self.accounting_size;
        self.covered = room.saturating_sub(request.extent.bytes());
        self.last = Some((request.operation, request.extent.end));
    }
}
