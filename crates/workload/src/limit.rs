//! Limits on the duration and the requests of a workload.

use hemi_units::{Instant, Time};

use super::error::{WorkloadError, check_count, check_duration};

/// The requests that may still be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Time from which on no request may be intended.
    pub until: Instant,
    /// Number of requests, including flushes.
    pub left: u64,
}

impl Quota {
    /// A quota without limits.
    pub const ENDLESS: Quota = Quota { until: Instant::NEVER, left: u64::MAX };

    /// Returns the quota of a spec's `duration` and `requests` for a workload that begins at
    /// `begin`.
    pub fn of(begin: Instant, duration: Option<Time>, requests: Option<u64>) -> Quota {
        Quota {
            until: duration.map_or(Instant::NEVER, |Time(length)| begin + length),
            left: requests.unwrap_or(u64::MAX),
        }
    }

    /// Subtracts `issued` requests.
    pub(super) fn spend(&mut self, issued: u64) {
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(issued);
        }
    }
}

/// A workload's own limit and the grant of the workload around it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    duration: Option<Time>,
    requests: Option<u64>,
    own: Quota,
    granted: Quota,
}

impl Limits {
    /// Creates the limits of a spec, for a workload that begins at time zero.
    pub fn new(duration: Option<Time>, requests: Option<u64>) -> Limits {
        let own = Quota::of(Instant(0), duration, requests);
        Limits { duration, requests, own, granted: Quota::ENDLESS }
    }

    /// Restarts the limits at `at`.
    pub fn begin(&mut self, at: Instant) {
        self.own = Quota::of(at, self.duration, self.requests);
    }

    /// Grants `quota` from now on, within the workload's own limit.
    pub fn grant(&mut self, quota: Quota) {
        self.granted = quota;
    }

    /// Returns the tighter of the two.
    pub fn quota(&self) -> Quota {
        Quota {
            until: self.own.until.min(self.granted.until),
            left: self.own.left.min(self.granted.left),
        }
    }

    /// Returns true if a request intended for `at` may be issued.
    pub fn allow(&self, at: Instant) -> bool {
        let Quota { until, left } = self.quota();
        at < until && left > 0
    }

    /// Subtracts `issued` requests.
    pub fn spend(&mut self, issued: u64) {
        self.own.spend(issued);
        self.granted.spend(issued);
    }
}

/// Returns an error for a limit that lets nothing through.
pub(crate) fn check(duration: Option<Time>, requests: Option<u64>) -> Result<(), WorkloadError> {
    if let Some(Time(nanoseconds)) = duration {
        check_duration("duration", nanoseconds)?;
    }
    if let Some(requests) = requests {
        check_count("requests", requests, u64::MAX - 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Limits, Quota};
    use hemi_units::{Instant, Time};

    #[test]
    fn the_tighter_limit_holds() {
        let mut limits = Limits::new(Some(Time(100)), Some(3));
        limits.begin(Instant(1_000));
        assert!(limits.allow(Instant(1_099)) && !limits.allow(Instant(1_100)));
        limits.grant(Quota { until: Instant(1_050), left: 2 });
        assert!(!limits.allow(Instant(1_050)));
        limits.spend(2);
        assert!(!limits.allow(Instant(1_000)));
        limits.grant(Quota { until: Instant(5_000), left: 10 });
        assert_eq!(limits.quota(), Quota { until: Instant(1_100), left: 1 });
        limits.spend(1);
        assert!(!limits.allow(Instant(1_000)));
    }
}
