//! Fail-slow: a drive whose requests take longer by a factor.
//!
//! A drive that is slow for all requests is slow inside, in its *service time*: it runs on a clock
//! of its own, which goes slower than the host's by the factor. Every seek, sense, program, transfer
//! and collection takes that much longer, its rates fall by the factor, and its queue grows. What
//! it does is the same.
//!
//! A drive that is slow for its reads (or its writes) alone holds back the *answers* of these: each
//! is late by a multiple of the time that the drive had the request. The others keep their speed,
//! which one clock for the whole drive would not allow.

use hemi_units::{Instant, Operation};

use super::spell::Spell;

/// Steps in which a factor rises.
const STEPS: u64 = 100;
/// Factors are counted in thousandths.
const ONE: u64 = 1000;
/// Largest factor.
pub const FACTOR_MAX: f64 = 1_000_000.0;

/// The requests that are slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affected {
    /// All, since the drive itself is slow.
    #[default]
    All,
    /// Reads.
    Reads,
    /// Writes, and all other requests that are not reads.
    Writes,
}

/// A time in which a drive is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    /// The time.
    pub spell: Spell,
    /// Factor on the time a request takes, from 1 to [`FACTOR_MAX`].
    pub factor: f64,
    /// Nanoseconds over which it rises evenly from 1; 0 for at once.
    pub over: u64,
    /// The requests.
    pub affected: Affected,
}

impl Slow {
    /// Returns the factor at `now`, in thousandths, and the time at which it changes.
    fn at(&self, now: Instant) -> (u64, Instant) {
        let (Some(start), end) = self.spell.at(now) else { return (ONE, self.spell.at(now).1) };
        let whole = (self.factor.clamp(1.0, FACTOR_MAX) * ONE as f64) as u64;
        let since = now.since(start);
        if since >= self.over {
            return (whole, end);
        }
        let (over, since) = (u128::from(self.over), u128::from(since));
        let step = (since * u128::from(STEPS) / over) as u64;
        let next = (over * u128::from(step + 1)).div_ceil(u128::from(STEPS)) as u64;
        (ONE + (whole - ONE) * step / STEPS, end.min(start + next))
    }

    fn affects(&self, operation: Operation) -> bool {
        match self.affected {
            Affected::All => false,
            Affected::Reads => operation == Operation::Read,
            Affected::Writes => operation != Operation::Read,
        }
    }
}

/// Returns the product of the factors, in thousandths, and the time at which it changes.
fn product(slows: impl Iterator<Item = (u64, Instant)>) -> (u64, Instant) {
    let most = FACTOR_MAX as u64 * ONE;
    slows.fold((ONE, Instant::NEVER), |(all, until), (factor, change)| {
        let both = u128::from(all) * u128::from(factor) / u128::from(ONE);
        ((both.min(u128::from(most))) as u64, until.min(change))
    })
}

/// Returns the nanoseconds by which the answer of a request is late that the drive had for `time`
/// nanoseconds until `now`.
pub(super) fn lateness(slows: &[Slow], operation: Operation, time: u64, now: Instant) -> u64 {
    let own = slows.iter().filter(|slow| slow.affects(operation));
    let (factor, _) = product(own.map(|slow| slow.at(now)));
    (u128::from(time) * u128::from(factor - ONE) / u128::from(ONE)) as u64
}

/// The clock of a drive that is slow for all requests, or the host's own if it is not.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    slows: Vec<Slow>,
    /// The last change of the factor, on the host's clock and on this one.
    since: (Instant, Instant),
    /// Factor since then, in thousandths.
    factor: u64,
    /// Time of the next change, on the host's clock.
    until: Instant,
}

impl Clock {
    pub(super) fn new(slows: impl Iterator<Item = Slow>) -> Clock {
        let slows: Vec<Slow> = slows.filter(|slow| slow.affected == Affected::All).collect();
        let (factor, until) = product(slows.iter().map(|slow| slow.at(Instant(0))));
        Clock { slows, since: (Instant(0), Instant(0)), factor, until }
    }

    /// Returns the time of the next change of the factor, on the host's clock.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Changes the factor at [`Clock::until`].
    pub(super) fn turn(&mut self) {
        let now = self.until;
        self.since = (now, self.own(now));
        (self.factor, self.until) = product(self.slows.iter().map(|slow| slow.at(now)));
    }

    /// Returns what the host's `now` is on this clock.
    pub(super) fn own(&self, now: Instant) -> Instant {
        let passed = u128::from(now.since(self.since.0)) * u128::from(ONE);
        self.since.1 + (passed / u128::from(self.factor)) as u64
    }

    /// Returns the first time on the host's clock at which this one shows `own`, if the factor
    /// stays as it is.
    pub(super) fn of_host(&self, own: Instant) -> Instant {
        if own == Instant::NEVER {
            return own;
        }
        let passed = u128::from(own.since(self.since.1)) * u128::from(self.factor);
        self.since.0 + u64::try_from(passed.div_ceil(u128::from(ONE))).unwrap_or(u64::MAX)
    }

    /// Returns the part by which the time of the host exceeds the time on this clock.
    pub(super) fn excess(&self) -> f64 {
        (self.factor - ONE) as f64 / ONE as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow(at: u64, factor: f64, over: u64, length: Option<u64>) -> Slow {
        let spell = Spell { at: Instant(at), length, every: None };
        Slow { spell, factor, over, affected: Affected::All }
    }

    #[test]
    fn a_factor_rises_evenly_and_ends_at_once() {
        let slow = slow(1000, 5.0, 100_000, Some(200_000));
        let at = |now| slow.at(Instant(now)).0;
        assert_eq!((at(0), at(999), at(1000)), (1000, 1000, 1000));
        assert_eq!((at(26_000), at(51_000), at(100_999)), (2000, 3000, 4960));
        assert_eq!((at(101_000), at(200_999), at(201_000)), (5000, 5000, 1000));
        assert_eq!(slow.at(Instant(1000)).1, Instant(2000), "a hundredth of the rise");
    }

    #[test]
    fn factors_multiply_within_bounds() {
        let two = [slow(0, 3.0, 0, None), slow(0, 2.5, 0, None)];
        assert_eq!(product(two.iter().map(|slow| slow.at(Instant(0)))), (7500, Instant::NEVER));
        let wild = [slow(0, 1e6, 0, None), slow(0, 1e6, 0, None)];
        assert_eq!(product(wild.iter().map(|slow| slow.at(Instant(0)))).0, 1_000_000_000);
    }

    proptest! {
        /// The clock never goes back, and the two directions fit each other.
        #[test]
        fn the_clock_can_be_read_both_ways(
            slows in prop::collection::vec((0_u64..1000, 1.0_f64..50.0, 0_u64..300, 301_u64..500), 0..4),
            steps in prop::collection::vec(1_u64..200, 1..50),
        ) {
            let slows = slows.into_iter().map(|(at, factor, over, length)| slow(at, factor, over, Some(length)));
            let mut clock = Clock::new(slows);
            let (mut now, mut own) = (Instant(0), Instant(0));
            for step in steps {
                now = now + step;
                while clock.until() <= now {
                    clock.turn();
                }
                let reads = clock.own(now);
                prop_assert!(reads >= own && reads <= now);
                own = reads;
                let back = clock.of_host(own + 1);
                prop_assert!(back > now && clock.own(back) > own, "the first time it shows it");
                prop_assert!(clock.own(back - 1) <= own);
            }
        }
    }
}
