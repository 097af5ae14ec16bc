//! Times in which a drive does not answer.

use hemi_units::Instant;

/// Freezes of one length: one, or one every so often for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// When the first begins.
    pub at: Instant,
    /// How long each lasts, in nanoseconds; above zero.
    pub length: u64,
    /// From the beginning of one to that of the next, in nanoseconds; more than `length`.
    /// `None` if there is one only.
    pub every: Option<u64>,
}

impl Freeze {
    /// When the freeze ends that `now` falls into. A freeze's end is no part of it.
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

    /// The first moment from `now` on at which the drive answers. Freezes that overlap, or meet,
    /// are one. (Some that repeat may leave no moment between them: then [`Instant::NEVER`].)
    pub(super) fn thaw(&self, now: Instant) -> Instant {
        let mut at = now;
        // More in a row than anybody means.
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
