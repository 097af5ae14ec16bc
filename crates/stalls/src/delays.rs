//! Delays of stalled requests.

use std::fmt;
use std::str::FromStr;

use hemi_random::Rng;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// Longest delay in nanoseconds: one hour. Longer draws are limited to it.
pub const DELAY_MAX: u64 = 3_600_000_000_000;
/// Largest `sigma` of a log-normal distribution.
const SIGMA_MAX: f64 = 3.0;

/// A distribution of delays, over times in nanoseconds or over a type with its own text form.
///
/// Its text form is `500ms` (constant), `20ms..2s` (uniform) or `200ms~0.8` (log-normal, with
/// this median and this standard deviation of the logarithm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delays<T = u64> {
    /// A constant delay.
    Fixed(T),
    /// Uniform from `least` to `most`, both included.
    Between {
        /// Shortest delay.
        least: T,
        /// Longest delay.
        most: T,
    },
    /// Log-normal.
    LogNormal {
        /// Median delay.
        median: T,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl<T> Delays<T> {
    /// Returns the same distribution over another type of time.
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> Delays<U> {
        match self {
            Delays::Fixed(delay) => Delays::Fixed(to(delay)),
            Delays::Between { least, most } => Delays::Between { least: to(least), most: to(most) },
            Delays::LogNormal { median, sigma } => Delays::LogNormal { median: to(median), sigma },
        }
    }
}

impl Delays {
    /// Returns the error in the distribution and the allowed values, if there is one.
    pub(crate) fn problem(self) -> Option<(String, String)> {
        let most = match self {
            Delays::Fixed(delay) => delay,
            Delays::Between { least, most } if least > most => {
                return Some((
                    "the range of delays is upside down".to_owned(),
                    "write the shorter one first, as in 20ms..2s".to_owned(),
                ));
            }
            Delays::Between { most, .. } => most,
            Delays::LogNormal { sigma, .. } if !(0.0..=SIGMA_MAX).contains(&sigma) => {
                return Some((
                    format!("a sigma of {sigma} is out of range"),
                    format!("use 0 to {SIGMA_MAX}, as in 200ms~0.8"),
                ));
            }
            Delays::LogNormal { median, .. } => median,
        };
        let out_of_range = most == 0 || most > DELAY_MAX;
        out_of_range.then(|| {
            let seconds = most as f64 / 1e9;
            (
                format!("a delay of {seconds} s is out of range"),
                "use more than 0, at most 1h".to_owned(),
            )
        })
    }

    /// Draws a delay in nanoseconds.
    pub(crate) fn draw(self, rng: &mut Rng) -> u64 {
        let delay = match self {
            Delays::Fixed(delay) => delay,
            Delays::Between { least, most } => least + rng.below(most - least + 1),
            Delays::LogNormal { median, sigma } => rng.log_normal(median as f64, sigma) as u64,
        };
        delay.min(DELAY_MAX)
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Delays<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Delays<T>, String> {
        let time = |text: &str| text.trim().parse::<T>().map_err(|error| error.to_string());
        if let Some((least, most)) = text.split_once("..") {
            return Ok(Delays::Between { least: time(least)?, most: time(most)? });
        }
        if let Some((median, sigma)) = text.split_once('~') {
            let sigma = sigma.trim();
            let sigma = sigma
                .parse()
                .map_err(|_| format!("the sigma `{sigma}` is not a number, as in 200ms~0.8"))?;
            return Ok(Delays::LogNormal { median: time(median)?, sigma });
        }
        time(text).map(Delays::Fixed)
    }
}

impl<T: fmt::Display> fmt::Display for Delays<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delays::Fixed(delay) => write!(formatter, "{delay}"),
            Delays::Between { least, most } => write!(formatter, "{least}..{most}"),
            Delays::LogNormal { median, sigma } => write!(formatter, "{median}~{sigma}"),
        }
    }
}

impl<T: fmt::Display> Serialize for Delays<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Delays<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Delays<T>, D::Error> {
        struct Text<T>(std::marker::PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
            type Value = Delays<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("delays in quotes: \"500ms\", \"20ms..2s\" or \"200ms~0.8\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Delays<T>, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_shown() {
        for (text, delays) in [
            ("500", Delays::Fixed(500)),
            ("20..2000", Delays::Between { least: 20, most: 2000 }),
            ("200~0.8", Delays::LogNormal { median: 200, sigma: 0.8 }),
        ] {
            assert_eq!(text.parse::<Delays<u64>>(), Ok(delays));
            assert_eq!(delays.to_string(), text);
        }
        for wrong in ["", "..", "20..", "..20", "20~", "~0.8", "20~wide", "-1"] {
            assert!(wrong.parse::<Delays<u64>>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn impossible_delays_are_named() {
        for (wrong, part) in [
            (Delays::Fixed(0), "0 s"),
            (Delays::Fixed(DELAY_MAX + 1_000_000_000), "3601 s"),
            (Delays::Between { least: 2, most: 1 }, "upside down"),
            (Delays::LogNormal { median: 1, sigma: -1.0 }, "sigma of -1"),
            (Delays::LogNormal { median: 1, sigma: f64::NAN }, "sigma of NaN"),
        ] {
            let (what, _) = wrong.problem().expect("it is wrong");
            assert!(what.contains(part), "{what}");
        }
    }

    #[test]
    fn draws_follow_the_distribution() {
        let mut rng = Rng::new(1, 0);
        assert_eq!(Delays::Fixed(7).draw(&mut rng), 7);
        let between = Delays::Between { least: 10, most: 12 };
        let mut seen = [0; 3];
        for _ in 0..3000 {
            seen[between.draw(&mut rng) as usize - 10] += 1;
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        let spread = Delays::LogNormal { median: 1_000_000, sigma: 1.0 };
        let longer = (0..10_000).filter(|_| spread.draw(&mut rng) > 1_000_000).count();
        assert!((4700..5300).contains(&longer), "{longer} of 10000 beyond the median");
        let wild = Delays::LogNormal { median: DELAY_MAX, sigma: 3.0 };
        assert!((0..1000).all(|_| wild.draw(&mut rng) <= DELAY_MAX));
    }
}
