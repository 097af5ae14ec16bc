//! The pace of finite work, such as a drain, a rebuild or a scrub, and the time left.
//!
//! It is fed with the remaining work twice a second. The pace is an exponentially weighted mean: a pause of a
//! second does not make the time left explode, and yet it follows a drive that has become slower.

use std::time::{Duration, Instant};

/// Age at which work counts about a third as much as work done now.
const MEMORY: Duration = Duration::from_secs(30);
/// Shortest time of watching before a pace is reported.
const WATCHED_MIN: Duration = Duration::from_secs(1);
/// Longest time left that is reported.
const REMAINING_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The pace of one piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    begun: Instant,
    last: Instant,
    left: u64,
    done: u64,
    /// The most work left at any time since the start, which is all of it as far as is known.
    most: u64,
    steps: u32,
    /// The rates at which the remaining work shrinks and at which work is done, in bytes per second.
    falls: f64,
    works: f64,
}

impl Pace {
    /// Starts watching work of which `left` bytes are left and `done` bytes count as done so far.
    pub fn begin(now: Instant, left: u64, done: u64) -> Pace {
        let (begun, last, most) = (now, now, left);
        Pace { begun, last, left, done, most, steps: 0, falls: 0.0, works: 0.0 }
    }

    /// Records the work left and done by now.
    pub fn note(&mut self, now: Instant, left: u64, done: u64) {
        let seconds = now.saturating_duration_since(self.last).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        self.steps = self.steps.saturating_add(1);
        // It is a plain mean at first, since there is nothing to forget yet.
        let forgets = 1.0 - (-seconds / MEMORY.as_secs_f64()).exp();
        let share = forgets.max(1.0 / f64::from(self.steps));
        let falls = (self.left as f64 - left as f64) / seconds;
        let works = done.saturating_sub(self.done) as f64 / seconds;
        self.falls += share * (falls - self.falls);
        self.works += share * (works - self.works);
        (self.last, self.left, self.done) = (now, left, done);
        self.most = self.most.max(left);
    }

    /// Returns the work left, in bytes.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the bytes done per second; `None` while unknown.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.is_known().then_some(self.works as u64)
    }

    /// Returns the time until nothing is left at the current rate; `None` if it is unknown or the work is not
    /// shrinking.
    pub fn remaining(&self) -> Option<Duration> {
        if !self.is_known() || self.falls < 1.0 {
            return None;
        }
        let seconds = self.left as f64 / self.falls;
        (seconds < REMAINING_MAX.as_secs_f64()).then(|| Duration::from_secs_f64(seconds))
    }

    /// Returns the share done in thousandths, of `all` or of the most that was left if `all` is not known.
    pub fn permille(&self, all: Option<u64>) -> u16 {
        permille(self.most.max(self.left).max(all.unwrap_or(0)), self.left)
    }

    fn is_known(&self) -> bool {
        self.last.saturating_duration_since(self.begun) >= WATCHED_MIN
    }
}

/// Returns the share of `all` that is done if `left` is left, in thousandths. It is 1000 only at the end.
pub fn permille(all: u64, left: u64) -> u16 {
    let done = all.saturating_sub(left);
    let share = u128::from(done) * 1000 / u128::from(all.max(1));
    if left == 0 { 1000 } else { share.min(999) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(start: Instant, half_seconds: u32) -> Instant {
        start + Duration::from_millis(500) * half_seconds
    }

    #[test]
    fn a_steady_pace_tells_when_it_will_end() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 100 * MIB, 0);
        assert_eq!((pace.remaining(), pace.bytes_per_second()), (None, None));
        for step in 1..=20 {
            pace.note(at(start, step), (100 - u64::from(step)) * MIB, u64::from(step) * MIB);
        }
        assert_eq!(pace.bytes_per_second(), Some(2 * MIB));
        assert_eq!(pace.remaining(), Some(Duration::from_secs(40)));
        assert_eq!(pace.permille(None), 200);
        assert_eq!(pace.permille(Some(1000 * MIB)), 920);
    }

    #[test]
    fn what_does_not_get_less_has_no_end() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 10 * MIB, 0);
        for step in 1..=20 {
            pace.note(at(start, step), 10 * MIB + u64::from(step), u64::from(step) * MIB);
        }
        assert_eq!(pace.remaining(), None);
        assert_eq!(pace.bytes_per_second(), Some(2 * MIB), "though it works");
        assert_eq!(pace.permille(None), 0);
    }

    #[test]
    fn a_slower_pace_is_followed() {
        let start = Instant::now();
        let mut pace = Pace::begin(start, 1000 * MIB, 0);
        let mut left = 1000 * MIB;
        for step in 1..=40 {
            left -= 10 * MIB;
            pace.note(at(start, step), left, 0);
        }
        for step in 41..=400 {
            left -= MIB / 2;
            pace.note(at(start, step), left, 0);
        }
        let expected = (left / MIB) as f64;
        let remaining = pace.remaining().expect("it gets less").as_secs_f64();
        assert!((remaining - expected).abs() < expected / 20.0, "{remaining} of {expected}");
    }

    #[test]
    fn all_is_said_to_be_done_only_when_it_is() {
        assert_eq!(permille(10_000_000, 1), 999);
        assert_eq!(permille(10_000_000, 0), 1000);
        assert_eq!(permille(0, 0), 1000);
    }
}
