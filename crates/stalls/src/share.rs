//! Shares of requests.

use hemi_random::Rng;

/// A share of requests, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    /// No request.
    pub const NONE: Share = Share(0);
    /// Every request.
    pub const ALL: Share = Share(WHOLE);

    /// Returns a share of `count` in a thousand, at most all.
    pub const fn per_mille(count: u32) -> Share {
        Share(if count >= 1000 { WHOLE } else { count * 1000 })
    }

    /// Converts `value`, from 0 to 1, to the nearest millionth. Returns `None` if it is not a
    /// share, or if it is above zero but would be rounded to none.
    pub fn of(value: f64) -> Option<Share> {
        if !(0.0..=1.0).contains(&value) {
            return None;
        }
        let share = Share((value * f64::from(WHOLE)).round() as u32);
        (share != Share::NONE || value == 0.0).then_some(share)
    }

    /// Returns the share as a number from 0 to 1.
    pub fn value(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Draws once; returns true as often as the share says.
    pub fn drawn(self, rng: &mut Rng) -> bool {
        rng.below(u64::from(WHOLE)) < u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn a_share_is_from_0_to_1() {
        assert_eq!(Share::of(0.0), Some(Share::NONE));
        assert_eq!(Share::of(1.0), Some(Share::ALL));
        assert_eq!(Share::of(0.001), Some(Share::per_mille(1)));
        assert_eq!(Share::of(0.001).map(Share::value), Some(0.001));
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY, 1e-9] {
            assert_eq!(Share::of(wrong), None, "{wrong}");
        }
    }
}
