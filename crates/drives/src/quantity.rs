//! Quantities as data sheets have them: `8.9 ms`, `32 GB`, `100 MB/s`, `6.8 W`.
//!
//! In a preset every quantity carries its unit, so that nobody has to guess whether a `4` is
//! milliseconds. Sizes are decimal (`GB`) or binary (`GiB`) as they are written.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use hemi_engine::units::{MICROSECOND, MILLISECOND, SECOND};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl hemi_stalls::Duration for Time {
    fn nanoseconds(self) -> u64 {
        self.0
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// Watts.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Power(pub f64);

/// Why a quantity was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a duration.
    #[error(
        "`{0}` is not a duration: write a number and ns, us, ms, s, min or h, as in \"8.9 ms\""
    )]
    Time(String),
    /// Not a size.
    #[error(
        "`{0}` is not a size: write a number and B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, \
         GiB, TiB (powers of 1024), as in \"32 GB\""
    )]
    Size(String),
    /// Not a rate.
    #[error("`{0}` is not a rate: write a size a second, as in \"100 MB/s\"")]
    Rate(String),
    /// Not a power.
    #[error("`{0}` is not a power: write a number and W or mW, as in \"6.8 W\"")]
    Power(String),
}

/// The number and the unit of `text`; `None` where there is no number, or not one that can be
/// a quantity.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

impl FromStr for Time {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Time, QuantityError> {
        let wrong = || QuantityError::Time(text.to_owned());
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let nanoseconds = match unit {
            "ns" => 1,
            "us" | "µs" => MICROSECOND,
            "ms" => MILLISECOND,
            "s" => SECOND,
            "min" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return Err(wrong()),
        };
        Ok(Time(libm::round(number * nanoseconds as f64) as u64))
    }
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Size, QuantityError> {
        let wrong = || QuantityError::Size(text.to_owned());
        let (_, unit) = split(text).ok_or_else(wrong)?;
        // bytesize also knows bare numbers and `K`, which data sheets use for either.
        if !unit.ends_with('B') {
            return Err(wrong());
        }
        text.parse::<bytesize::ByteSize>().map(|size| Size(size.as_u64())).map_err(|_| wrong())
    }
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Rate, QuantityError> {
        let wrong = || QuantityError::Rate(text.to_owned());
        let size = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
        let Size(bytes) = size.parse().map_err(|_| wrong())?;
        Ok(Rate(bytes))
    }
}

impl FromStr for Power {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Power, QuantityError> {
        match split(text) {
            Some((number, "W")) => Ok(Power(number)),
            Some((number, "mW")) => Ok(Power(number / 1000.0)),
            _ => Err(QuantityError::Power(text.to_owned())),
        }
    }
}

impl Rate {
    /// How long so many bytes take, nanoseconds, rounded up. The rate must not be zero.
    pub fn time_of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(self.0)) as u64
    }
}

/// Takes a text and reads it as a `T`; says `expected` of anything else.
struct Quoted<T> {
    expected: &'static str,
    quantity: PhantomData<T>,
}

impl<T: FromStr<Err = QuantityError>> Visitor<'_> for Quoted<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! deserialize {
    ($($quantity:ty: $expected:literal),*) => {$(
        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$quantity, D::Error> {
                deserializer.deserialize_str(Quoted { expected: $expected, quantity: PhantomData })
            }
        }
    )*};
}

deserialize!(
    Time: "a duration in quotes, as in \"8.9 ms\"",
    Size: "a size in quotes, as in \"32 GB\"",
    Rate: "a rate in quotes, as in \"100 MB/s\"",
    Power: "a power in quotes, as in \"6.8 W\""
);

#[cfg(test)]
mod tests {
    use super::{Power, QuantityError, Rate, Size, Time};

    #[test]
    fn quantities_are_read_with_their_units() {
        assert_eq!("8.9 ms".parse(), Ok(Time(8_900_000)));
        assert_eq!("75us".parse(), Ok(Time(75_000)));
        assert_eq!("2 min".parse(), Ok(Time(120_000_000_000)));
        assert_eq!("24 h".parse(), Ok(Time(86_400_000_000_000)));
        assert_eq!("32 GB".parse(), Ok(Size(32_000_000_000)));
        assert_eq!("4 KiB".parse(), Ok(Size(4096)));
        assert_eq!("1.5 MiB".parse(), Ok(Size(1_572_864)));
        assert_eq!("100 MB/s".parse(), Ok(Rate(100_000_000)));
        assert_eq!("6.8 W".parse(), Ok(Power(6.8)));
        assert_eq!(Rate(100_000_000).time_of(4096), 40_960);
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for wrong in ["8.9", "ms", "-1 ms", "8.9 mss", "1.2.3 ms", ""] {
            assert_eq!(wrong.parse::<Time>(), Err(QuantityError::Time(wrong.to_owned())));
        }
        for wrong in ["32", "32 G", "GB", "4 pages"] {
            assert_eq!(wrong.parse::<Size>(), Err(QuantityError::Size(wrong.to_owned())));
        }
        assert!("100 MB".parse::<Rate>().is_err() && "MB/s".parse::<Rate>().is_err());
        assert!("6.8 V".parse::<Power>().is_err());
    }
}
