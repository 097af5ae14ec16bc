//! Quantities as people write them: `64MiB`, `10G`, `32 GB`, `20ms`, `8.9 ms`, `1m 30s`.

use std::borrow::ToOwned as _;
use std::fmt;
use std::format;
use std::str::FromStr;
use std::string::{String, ToString as _};
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::instant::SECOND;

/// A size in bytes, written as an integer (bytes) or with a unit.
///
/// `K`, `M`, `G`, `T`, `P` and `KiB`, `MiB`, … are powers of 1024, as storage tools have
/// it; `KB`, `MB`, … are powers of 1000. Shown in the largest binary unit that divides it, or in
/// a decimal unit if that takes fewer digits, so that what is printed can be read back without loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    /// Returns `count` KiB.
    pub const fn kib(count: u64) -> Size {
        Size(count << 10)
    }

    /// Returns `count` MiB.
    pub const fn mib(count: u64) -> Size {
        Size(count << 20)
    }

    /// Returns `count` GiB.
    pub const fn gib(count: u64) -> Size {
        Size(count << 30)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        const DECIMAL: [&str; 7] = ["", "KB", "MB", "GB", "TB", "PB", "EB"];
        let (binary, binary_unit) = in_units(self.0, 1024, BINARY);
        let (decimal, decimal_unit) = in_units(self.0, 1000, DECIMAL);
        let has_fewer_digits = decimal.checked_ilog10() < binary.checked_ilog10();
        formatter.pad(&if has_fewer_digits {
            format!("{decimal}{decimal_unit}")
        } else {
            format!("{binary}{binary_unit}")
        })
    }
}

/// Returns a size in the largest of the units that divides it, each `factor` times the one before.
fn in_units(bytes: u64, factor: u64, units: [&'static str; 7]) -> (u64, &'static str) {
    let mut count = bytes;
    let mut unit = 0;
    while count != 0 && count.is_multiple_of(factor) && unit + 1 < units.len() {
        count /= factor;
        unit += 1;
    }
    (count, units[unit])
}

/// An error in a quantity's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a size.
    #[error(
        "`{0}` is not a size: write a whole number of bytes, or a number with \
         K, M, G, T (powers of 1024), KiB, MiB, GiB … or KB, MB, GB … (powers of 1000)"
    )]
    Size(String),
    /// Not a duration.
    #[error(
        "`{0}` is not a duration: write a number with its unit, as in 500us, 8.9 ms, 5s, 1m 30s"
    )]
    Time(String),
    /// Not a rate.
    #[error("`{0}` is not a rate: write a size a second, as in \"100 MB/s\"")]
    Rate(String),
    /// Not a power.
    #[error("`{0}` is not a power: write a number and W or mW, as in \"6.8 W\"")]
    Power(String),
    /// Not a percentage.
    #[error("`{0}` is not a percentage: write a number and %, as in \"95 %\"")]
    Percent(String),
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Size, UnitError> {
        let trimmed = text.trim();
        // bytesize reads a bare `K` as 1000; for drives everybody means 1024.
        let binary = match trimmed.bytes().last().map(|byte| byte.to_ascii_uppercase()) {
            Some(b'K' | b'M' | b'G' | b'T' | b'P' | b'E') => format!("{trimmed}iB"),
            _ => trimmed.to_owned(),
        };
        if !trimmed.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(UnitError::Size(text.to_owned()));
        }
        binary
            .parse::<bytesize::ByteSize>()
            .map(|size| Size(size.as_u64()))
            .map_err(|_| UnitError::Size(text.to_owned()))
    }
}

/// A duration in nanoseconds, written with its units: `500us`, `20ms`, `8.9 ms`, `1m 30s`, `24 h`.
///
/// Several units may follow each other if all their numbers are whole. A number with a decimal point
/// has one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns `count` microseconds.
    pub const fn micros(count: u64) -> Time {
        Time(count * 1_000)
    }

    /// Returns `count` milliseconds.
    pub const fn millis(count: u64) -> Time {
        Time(count * 1_000_000)
    }

    /// Returns `count` seconds.
    pub const fn seconds(count: u64) -> Time {
        Time(count * 1_000_000_000)
    }

    /// Returns it as the standard library's type.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&humantime::format_duration(self.duration()).to_string())
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Time, UnitError> {
        let wrong = || UnitError::Time(text.to_owned());
        let plain = text.trim().replace("µs", "us");
        let whole = |text: &str| -> Result<u64, UnitError> {
            let duration = humantime::parse_duration(text).map_err(|_| wrong())?;
            u64::try_from(duration.as_nanos()).map_err(|_| wrong())
        };
        if !plain.contains('.') {
            return whole(&plain).map(Time);
        }
        let (number, unit) = number_and_unit(&plain).ok_or_else(wrong)?;
        if !unit.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(wrong());
        }
        let nanoseconds = (number * whole(&format!("1{unit}"))? as f64).round();
        // The largest double below 2^64 is the bound: what is not below it has no nanoseconds in 64 bits.
        if nanoseconds < u64::MAX as f64 { Ok(Time(nanoseconds as u64)) } else { Err(wrong()) }
    }
}

/// Splits `text` into its number and its unit. Returns `None` if it does not begin with a number.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start()))
}

/// Bytes a second, written as a size a second: `100 MB/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// Returns the nanoseconds that `bytes` take, rounded up. The rate must not be zero.
    pub fn time_of(self, bytes: u64) -> u64 {
        // Below 18 GB a division of 64 bits does, which takes a fraction of the time of one of 128.
        match bytes.checked_mul(SECOND) {
            Some(product) => product.div_ceil(self.0),
            None => (u128::from(bytes) * u128::from(SECOND)).div_ceil(u128::from(self.0)) as u64,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{}/s", Size(self.0)))
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Rate, UnitError> {
        let wrong = || UnitError::Rate(text.to_owned());
        let size = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
        let Size(bytes) = size.parse().map_err(|_| wrong())?;
        Ok(Rate(bytes))
    }
}

/// Watts, written with their unit: `6.8 W`, `250 mW`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Power(pub f64);

impl fmt::Display for Power {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{} W", self.0))
    }
}

impl FromStr for Power {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Power, UnitError> {
        match number_and_unit(text.trim()) {
            Some((number, "W")) => Ok(Power(number)),
            Some((number, "mW")) => Ok(Power(number / 1000.0)),
            _ => Err(UnitError::Power(text.to_owned())),
        }
    }
}

/// A percentage, written with its sign: `95%`, `99.9 %`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl Percent {
    /// Returns it as a share, 1 for 100 %.
    pub fn share(self) -> f64 {
        self.0 / 100.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{} %", self.0))
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Percent, UnitError> {
        match number_and_unit(text.trim()) {
            Some((number, "%")) => Ok(Percent(number)),
            _ => Err(UnitError::Percent(text.to_owned())),
        }
    }
}

/// Serialises through `Display`, deserialises through `FromStr`.
macro_rules! textual {
    ($type:ty, $expecting:literal, $from_integer:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                        formatter.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<$type, E> {
                        let from_integer: fn(u64) -> Option<$type> = $from_integer;
                        u64::try_from(integer)
                            .ok()
                            .and_then(from_integer)
                            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(integer), &self))
                    }
                    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<$type, E> {
                        let from_integer: fn(u64) -> Option<$type> = $from_integer;
                        from_integer(integer).ok_or_else(|| {
                            E::invalid_value(de::Unexpected::Unsigned(integer), &self)
                        })
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
    };
}

textual!(Size, "a size such as \"64MiB\" or a number of bytes", |bytes| Some(Size(bytes)));
textual!(Rate, "a rate in quotes, such as \"100 MB/s\"", |_| None);
textual!(Power, "a power in quotes, such as \"6.8 W\"", |_| None);
textual!(Percent, "a percentage in quotes, such as \"95 %\"", |_| None);
textual!(Time, "a duration with its unit such as \"20ms\" or \"5s\"", |count| {
    // Zero needs no unit; anything else without one is ambiguous.
    (count == 0).then_some(Time(0))
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    /// Examples of the grammar, which hemi-lab's reader is also held to.
    #[derive(serde::Deserialize)]
    struct Grammar {
        sizes: BTreeMap<String, u64>,
        not_sizes: Vec<String>,
        durations: BTreeMap<String, u64>,
        not_durations: Vec<String>,
    }

    #[test]
    fn quantities_are_read_as_the_grammar_has_them() {
        let grammar: Grammar =
            toml::from_str(include_str!("../data/grammar.toml")).expect("a table of examples");
        for (text, bytes) in &grammar.sizes {
            assert_eq!(text.parse(), Ok(Size(*bytes)), "{text}");
        }
        for text in grammar.not_sizes {
            assert_eq!(text.parse::<Size>(), Err(UnitError::Size(text)));
        }
        for (text, nanoseconds) in &grammar.durations {
            assert_eq!(text.parse(), Ok(Time(*nanoseconds)), "{text}");
        }
        for text in grammar.not_durations {
            assert_eq!(text.parse::<Time>(), Err(UnitError::Time(text)));
        }
    }

    #[test]
    fn sizes_and_times_print_what_they_parse() {
        for bytes in [0, 1, 511, 512, 1024, 65536, 3 << 29, 10 << 30, 16 << 40, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        for text in ["1PB", "64MiB", "500KiB", "512", "3GB", "1536MiB", "1000001"] {
            let size: Size = text.parse().expect("it is a size");
            assert_eq!(size.to_string(), text, "as it was written");
        }
        for nanos in [0, 1, 1500, 20_000_000, 5_000_000_000, 90_000_000_000, u64::MAX] {
            assert_eq!(Time(nanos).to_string().parse(), Ok(Time(nanos)));
        }
    }

    #[test]
    fn shares_are_read() {
        assert_eq!("95%".parse(), Ok(Percent(95.0)));
        assert_eq!(" 99.99 % ".parse(), Ok(Percent(99.99)));
        for text in ["95", "%", "-1%", "1 %%", "many"] {
            assert_eq!(text.parse::<Percent>(), Err(UnitError::Percent(text.to_owned())));
        }
    }

    #[test]
    fn rates_and_powers_are_read() {
        assert_eq!("100 MB/s".parse(), Ok(Rate(100_000_000)));
        assert_eq!("250 mW".parse(), Ok(Power(0.25)));
        assert_eq!(Rate(100_000_000).time_of(4096), 40_960);
        for wrong in ["100 MB", "MB/s", ""] {
            assert_eq!(wrong.parse::<Rate>(), Err(UnitError::Rate(wrong.to_owned())));
        }
        for wrong in ["6.8", "6.8 V", "W"] {
            assert_eq!(wrong.parse::<Power>(), Err(UnitError::Power(wrong.to_owned())));
        }
        assert_eq!(Rate(100_000_000).to_string().parse(), Ok(Rate(100_000_000)));
        assert_eq!(Power(6.8).to_string().parse(), Ok(Power(6.8)));
    }
}
