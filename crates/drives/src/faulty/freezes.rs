//! Freezes: times in which a drive does not answer.

use hemi_units::Instant;

use super::spell::Spell;

/// All freezes of a drive.
#[derive(Clone, Debug)]
pub(super) struct Freezes(Vec<Spell>);

impl Freezes {
    pub(super) fn new(freezes: Vec<Spell>) -> Freezes {
        Freezes(freezes)
    }

    /// Returns the first time from `now` on at which the drive answers. Freezes that overlap or
    /// meet count as one. If repeated freezes leave no gap between them, returns
    /// [`Instant::NEVER`].
    pub(super) fn thaw(&self, now: Instant) -> Instant {
        let mut at = now;
        // More freezes in a row than any schedule needs.
        for _ in 0..100_000 {
            let ends = self.0.iter().filter_map(|freeze| match freeze.at(at) {
                (Some(_), end) => Some(end),
                (None, _) => None,
            });
            match ends.max() {
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

    fn freeze(at: u64, length: u64, every: Option<u64>) -> Spell {
        Spell { at: Instant(at), length: Some(length), every }
    }

    #[test]
    fn freezes_end_and_come_again() {
        let once = Freezes::new(vec![freeze(10, 5, None)]);
        let every = Freezes::new(vec![freeze(10, 5, Some(20))]);
        for (now, one, again) in [(9, 9, 9), (10, 15, 15), (14, 15, 15), (15, 15, 15), (30, 30, 35)]
        {
            assert_eq!(once.thaw(Instant(now)), Instant(one), "at {now}");
            assert_eq!(every.thaw(Instant(now)), Instant(again), "at {now}");
        }
    }

    #[test]
    fn freezes_that_meet_are_one() {
        let freezes =
            Freezes::new(vec![freeze(20, 5, None), freeze(10, 5, None), freeze(14, 6, None)]);
        assert_eq!(freezes.thaw(Instant(11)), Instant(25));
        let always = [0, 5].map(|at| freeze(at, 5, Some(10)));
        assert_eq!(Freezes::new(always.to_vec()).thaw(Instant(3)), Instant::NEVER);
    }
}
