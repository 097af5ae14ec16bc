//! How many of all requests.

/// A share of requests, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    /// No request.
    pub const NONE: Share = Share(0);
    /// Every request.
    pub const ALL: Share = Share(WHOLE);

    /// So many of a thousand, at most all.
    pub const fn per_mille(count: u32) -> Share {
        Share(if count >= 1000 { WHOLE } else { count * 1000 })
    }

    /// The share that `value` is, from 0 to 1, to the nearest millionth. `None` for what is no
    /// share, and for one above zero that is nearer to none than to a millionth.
    pub fn of(value: f64) -> Option<Share> {
        if !(0.0..=1.0).contains(&value) {
            return None;
        }
        let share = Share((value * f64::from(WHOLE)).round() as u32);
        (share != Share::NONE || value == 0.0).then_some(share)
    }

    /// From 0 to 1.
    pub fn value(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Whether a draw below one million falls into it.
    pub(crate) fn holds(self, draw: u64) -> bool {
        draw < u64::from(self.0)
    }

    /// The bound of the draws that [`Share::holds`] judges.
    pub(crate) const DRAWS: u64 = WHOLE as u64;
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
