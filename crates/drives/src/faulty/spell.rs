//! Times in which a fault is in force.

use hemi_units::Instant;

/// A span of time, once or again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// Start of the first.
    pub at: Instant,
    /// Length of each, in nanoseconds, above zero; `None` for no end.
    pub length: Option<u64>,
    /// Time from the start of one to the start of the next, in nanoseconds; more than `length`.
    /// `None` for a single one.
    pub every: Option<u64>,
}

impl Spell {
    /// Returns the start of the spell that contains `now`, if there is one, and the time at which
    /// that changes. The end of a spell is not part of it.
    pub(super) fn at(&self, now: Instant) -> (Option<Instant>, Instant) {
        if now < self.at {
            return (None, self.at);
        }
        let since = now.since(self.at);
        let start = self.at + self.every.map_or(0, |every| since - since % every);
        let Some(length) = self.length else { return (Some(start), Instant::NEVER) };
        let end = start + length;
        if now < end {
            return (Some(start), end);
        }
        (None, self.every.map_or(Instant::NEVER, |every| start + every))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_begins_ends_and_comes_again() {
        let again = Spell { at: Instant(10), length: Some(5), every: Some(20) };
        let once = Spell { every: None, ..again };
        let endless = Spell { length: None, ..once };
        let never = Instant::NEVER;
        for (now, of_again, of_once, of_endless) in [
            (9, (None, Instant(10)), (None, Instant(10)), (None, Instant(10))),
            (10, (Some(10), Instant(15)), (Some(10), Instant(15)), (Some(10), never)),
            (14, (Some(10), Instant(15)), (Some(10), Instant(15)), (Some(10), never)),
            (15, (None, Instant(30)), (None, never), (Some(10), never)),
            (30, (Some(30), Instant(35)), (None, never), (Some(10), never)),
        ] {
            let now = Instant(now);
            let expected = |(start, change): (Option<u64>, Instant)| (start.map(Instant), change);
            assert_eq!(again.at(now), expected(of_again), "{now:?}");
            assert_eq!(once.at(now), expected(of_once), "{now:?}");
            assert_eq!(endless.at(now), expected(of_endless), "{now:?}");
        }
    }
}
