//! Open loops: requests arrive at a rate, whether or not earlier ones are done.

use hemi_random::Rng;
use hemi_units::{Instant, Time};
use serde::Deserialize;

use super::access::{Access, AccessSpec, Stream};
use super::error::{WorkloadError, check_count};
use super::limit::{self, Limits, Quota};
use super::seeds::{Purpose, Seeds};
use super::tags::{MOST_OUTSTANDING, Tags};
use super::{Demand, Issue, Workload};

/// Highest rate, in requests per second: one per nanosecond.
const MOST_RATE: f64 = 1e9;

/// An `open` workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenSpec {
    /// Requests per second, including flushes.
    pub rate: f64,
    /// Distribution of the arrivals.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Maximum number of requests in flight.
    #[serde(default)]
    pub outstanding: Option<u32>,
    /// Treatment of requests beyond that.
    #[serde(default)]
    pub when_full: WhenFull,
    /// Time for which requests arrive. Requests that wait in the client at the end are still
    /// issued.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Number of requests that arrive.
    #[serde(default)]
    pub requests: Option<u64>,
    /// Access pattern.
    pub access: AccessSpec,
}

/// The distribution of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Poisson arrivals: exponentially distributed times between requests.
    #[default]
    Poisson,
    /// Constant time between requests.
    Fixed,
}

/// The treatment of requests that arrive while the most allowed are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// They wait in the client, first come, first served. Their latency counts from their
    /// arrival.
    #[default]
    Wait,
    /// The client stalls: the next request arrives when one is done. Its latency counts from
    /// then, and so do the times to later requests. While full, the loop is closed, as in
    /// benchmarks that limit their rate, and the offered load is below the rate.
    Stall,
}

/// A running open loop.
///
/// Requests that wait in the client are not stored. Only the time of the next one to issue is,
/// which is in the past while others wait behind it. So a backlog of any length costs nothing.
#[derive(Clone, Debug)]
pub struct Open {
    access: Access,
    requests: Stream,
    clock: Clock,
    outstanding: u32,
    when_full: WhenFull,
    limits: Limits,
    tags: Tags,
}

/// The arrival times, independent of what happens to the requests.
#[derive(Clone, Debug)]
struct Clock {
    arrivals: Arrivals,
    rng: Rng,
    begin: Instant,
    /// Mean time between requests, in nanoseconds.
    mean: f64,
    /// Number of requests that have arrived.
    count: u64,
    /// Nanoseconds from the beginning to the next arrival.
    next: f64,
}

impl OpenSpec {
    /// Builds the loop on a volume of `volume_sectors` sectors, beginning at time zero.
    ///
    /// # Errors
    /// Fails if the spec is impossible on the volume, naming the key.
    pub fn build(&self, volume_sectors: u64, seeds: Seeds) -> Result<Open, WorkloadError> {
        // Below one request in some 30 years no request would ever arrive.
        if !(1e-9..=MOST_RATE).contains(&self.rate) {
            let right = "write requests a second, above 0 and at most 1e9";
            return Err(WorkloadError::new("rate", self.rate, right));
        }
        let outstanding = self.outstanding.unwrap_or(MOST_OUTSTANDING);
        check_count("outstanding", outstanding.into(), MOST_OUTSTANDING.into())?;
        limit::check(self.duration, self.requests)?;
        let access = self.access.build(volume_sectors).map_err(|e| e.within("access"))?;
        Ok(Open {
            requests: access.stream(seeds, 0),
            access,
            clock: Clock::new(self.arrivals, seeds.stream(Purpose::Times, 0), 1e9 / self.rate),
            outstanding,
            when_full: self.when_full,
            limits: Limits::new(self.duration, self.requests),
            tags: Tags::default(),
        })
    }
}

impl Clock {
    fn new(arrivals: Arrivals, rng: Rng, mean: f64) -> Clock {
        let mut clock = Clock { arrivals, rng, begin: Instant(0), mean, count: 0, next: 0.0 };
        clock.step();
        clock
    }

    fn at(&self) -> Instant {
        self.begin + libm::round(self.next) as u64
    }

    /// Advances to the next arrival.
    fn step(&mut self) {
        self.count += 1;
        self.next = match self.arrivals {
            Arrivals::Poisson => self.next + self.rng.exponential(self.mean),
            // Not a running sum, whose rounding errors would accumulate.
            Arrivals::Fixed => self.count as f64 * self.mean,
        };
    }
}

impl Open {
    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.limits.begin(at);
        self.clock.begin = at;
    }

    /// Caps the requests in flight; see [`super::any::AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        if self.when_full == WhenFull::Wait {
            self.outstanding = self.outstanding.min(under_way);
        }
    }

    /// Returns the demand of the loop.
    pub(super) fn demand(&self) -> Demand {
        self.access.demand()
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.limits.grant(quota);
    }
}

impl Workload for Open {
    fn next_event(&self) -> Instant {
        let at = self.clock.at();
        if self.tags.outstanding() < self.outstanding && self.limits.allow(at) {
            at
        } else {
            Instant::NEVER
        }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        while self.next_event() <= now && self.next_event() != Instant::NEVER {
            let intended = self.clock.at();
            self.clock.step();
            self.limits.spend(1);
            let (operation, extent) = self.access.next(&mut self.requests);
            issues.push(Issue { tag: self.tags.take(), operation, extent, intended });
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        let stalled =
            self.tags.outstanding() == self.outstanding && self.when_full == WhenFull::Stall;
        self.tags.give(tag);
        if stalled {
            self.clock.begin = self.clock.begin + now.since(self.clock.at());
        }
        self.advance(now, issues);
    }

    fn is_over(&self) -> bool {
        self.tags.outstanding() == 0 && !self.limits.allow(self.clock.at())
    }
}

#[cfg(test)]
mod tests {
    use super::{Open, OpenSpec};
    use crate::seeds::Seeds;
    use crate::testing::{Done, Server, chi_square, run};

    fn open(text: &str) -> Open {
        let access = "[access]\naddresses = \"uniform\"\nsizes = \"4 KiB\"\n\
                      mix = { read_percent = 0, flush_every = 9 }\n";
        let spec: OpenSpec = toml::from_str(&format!("{text}\n{access}")).unwrap();
        spec.build(1 << 20, Seeds::new(1)).unwrap()
    }

    fn intended(log: &[Done]) -> Vec<u64> {
        let mut times: Vec<u64> = log.iter().map(|done| done.issue.intended.0).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn arrivals_are_poisson_whatever_the_completions_do() {
        let text = "rate = 1000\nduration = \"100 s\"";
        let fast = run(&mut open(text), &mut Server::random(1, 10_000));
        let slow =
            run(&mut open(&format!("{text}\noutstanding = 4")), &mut Server::random(2, 5_000_000));
        let times = intended(&fast);
        assert_eq!(times, intended(&slow));
        // The requests themselves are the same too.
        let extents = |log: &[Done]| {
            let mut all: Vec<_> = log.iter().map(|d| (d.issue.intended, d.issue.extent)).collect();
            all.sort();
            all
        };
        assert_eq!(extents(&fast), extents(&slow));

        // 100,000 expected, standard deviation 316.
        assert!(times.len().abs_diff(100_000) < 1_300, "{}", times.len());
        // The gaps' deciles: chi-square of 9 degrees of freedom, 99.9th percentile 27.9.
        let mut deciles = [0; 10];
        for pair in times.windows(2) {
            let survival = libm::exp(-((pair[1] - pair[0]) as f64) / 1e6);
            deciles[((1.0 - survival) * 10.0).min(9.0) as usize] += 1;
        }
        let expected = [(times.len() - 1) as f64 / 10.0; 10];
        assert!(chi_square(&deciles, &expected) < 27.9, "{deciles:?}");
        // Counts in windows of 10 ms: the variance of a Poisson count is its mean.
        let mut counts = vec![0_u32; 10_000];
        times.iter().for_each(|time| counts[(time / 10_000_000) as usize] += 1);
        let variance = counts.iter().map(|&n| (f64::from(n) - 10.0) * (f64::from(n) - 10.0));
        assert!((variance.sum::<f64>() / 10_000.0 / 10.0 - 1.0).abs() < 0.06);
    }

    #[test]
    fn a_fixed_rate_keeps_to_its_beat() {
        let text = "rate = 3\narrivals = \"fixed\"\nrequests = 3000";
        let times = intended(&run(&mut open(text), &mut Server::fixed(1)));
        assert_eq!(times.len(), 3000);
        assert_eq!(
            (times[0], times[2], times[2999]),
            (333_333_333, 1_000_000_000, 1_000_000_000_000)
        );
    }

    #[test]
    fn those_beyond_the_cap_wait_in_the_client_and_count_from_when_they_came() {
        // Four at a time of 10 ms each: 400 per second of the 1,000 that arrive.
        let text = "rate = 1000\narrivals = \"fixed\"\noutstanding = 4\nduration = \"1 s\"";
        let mut server = Server::fixed(10_000_000);
        let log = run(&mut open(text), &mut server);
        assert_eq!((log.len(), server.most_outstanding), (999, 4));
        let last = log.last().unwrap();
        // It arrived at 0.999 s and is one of the last four, done after 250 rounds.
        assert_eq!(last.issue.intended.0, 999_000_000);
        assert!(last.at.0 > 2_490_000_000 && last.at.since(last.issued) == 10_000_000);
        // First come, first served.
        assert!(log.windows(2).all(|pair| pair[0].issue.intended <= pair[1].issue.intended));
    }

    #[test]
    fn a_client_that_stalls_offers_less_and_nothing_waits() {
        let text = "rate = 1000\narrivals = \"fixed\"\noutstanding = 4\nwhen_full = \"stall\"\n\
                    duration = \"1 s\"";
        let mut server = Server::fixed(10_000_000);
        let log = run(&mut open(text), &mut server);
        assert_eq!(server.most_outstanding, 4);
        assert!(log.iter().all(|done| done.at.since(done.issue.intended) == 10_000_000));
        // The first four arrive at 1 to 4 ms, each later one 10 ms after another; 1 s is never
        // reached.
        assert_eq!(log[5].issue.intended.0, 12_000_000);
        assert_eq!(log.len(), 400);
        // If it is never full, it makes no difference.
        let text = text.replace("= 4", "= 40");
        assert_eq!(run(&mut open(&text), &mut server).len(), 999);
    }

    #[test]
    fn impossible_rates_are_named() {
        for rate in ["0.0", "-1.0", "nan", "2e9"] {
            let text = format!(
                "rate = {rate}\n[access]\naddresses = \"uniform\"\nsizes = \"4 KiB\"\n\
                 mix = {{ read_percent = 0 }}"
            );
            let spec: OpenSpec = toml::from_str(&text).unwrap();
            let error = spec.build(1 << 20, Seeds::new(1)).unwrap_err().to_string();
            assert!(error.starts_with("rate = "), "{error}");
        }
    }
}
