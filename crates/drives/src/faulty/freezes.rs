//! Freezes: times in which a drive does not answer.

use hemi_units::Instant;

/// A single freeze, or freezes of one length that repeat forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Start of the first freeze.
    pub at: Instant,
    /// Length of each, in nanoseconds; above zero.
    pub length: u64,
    /// Time from the start of one to the start of the next, in nanoseconds; more than `length`.
    /// `None` for a single freeze.
    pub every: Option<u64>,
}

impl Freeze {
    /// Returns the end of the freeze that contains `now`. The end itself is not part of the
    /// freeze.
    fn end(&self, now: Instant) -> Option<Instant> {
        if now < self.at {
            return None;
        }
        let since = now.since(self.at);
        let begun = self.every.map_or(0, |every| since - since % every);
        (since - begun < self.length).then(|| self.at + begun + self.length)
    }
}

/// All freezes of a drive.
#[derive(Clone, Debug)]
pub(super) struct Freezes(Vec<Freeze>);

impl Freezes {
    pub(super) fn new(freezes: Vec<Freeze>) -> Freezes {
        Freezes(freezes)
    }

    /// Returns the first time from `now` on at which the drive answers. Freezes that overlap or
    /// meet count as one. If repeated freezes leave no gap between them, returns
    /// [`Instant::NEVER`].
    pub(super) fn thaw(&self, now: Instant) -> Instant {
        let mut at = now;
        // More freezes in a row than any schedule needs.
        for _ in 0..100_000 {
            match self.0.iter().filter_map(|freeze| freeze.end(at)).max() {
                Some(end) => at = end,
                None => return at,
            }
        }
        Instant::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freezes_end_and_come_again() {
        let once = Freezes::new(vec![Freeze { at: Instant(10), length: 5, every: None }]);
        let every = Freezes::new(vec![Freeze { at: Instant(10), length: 5, every: Some(20) }]);
        for (now, one, again) in [(9, 9, 9), (10, 15, 15), (14, 15, 15), (15, 15, 15), (30, 30, 35)]
        {
            assert_eq!(once.thaw(Instant(now)), Instant(one), "at {now}");
            assert_eq!(every.thaw(Instant(now)), Instant(again), "at {now}");
        }
    }

    #[test]
    fn freezes_that_meet_are_one() {
        let freeze = |at, length| Freeze { at: Instant(at), length, every: None };
        let freezes = Freezes::new(vec![freeze(20, 5), freeze(10, 5), freeze(14, 6)]);
        assert_eq!(freezes.thaw(Instant(11)), Instant(25));
        let always = [0, 5].map(|at| Freeze { at: Instant(at), length: 5, every: Some(10) });
        assert_eq!(Freezes::new(always.to_vec()).thaw(Instant(3)), Instant::NEVER);
    }
}
