//! The option that sets how often the drives' health is read.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use hemi_units::Time;

/// Shortest interval, since drives answer such commands between requests.
pub const SMART_MIN: Time = Time::seconds(60);
/// Longest interval.
pub const SMART_MAX: Time = Time::seconds(86_400);

/// The interval at which the drives' health is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmartPolling {
    /// Never.
    Off,
    /// Polling at this interval, from [`SMART_MIN`] to [`SMART_MAX`].
    Every(Time),
}

impl Default for SmartPolling {
    fn default() -> SmartPolling {
        SmartPolling::Every(Time::seconds(600))
    }
}

impl fmt::Display for SmartPolling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SmartPolling::Off => formatter.write_str("off"),
            SmartPolling::Every(pause) => pause.fmt(formatter),
        }
    }
}

impl FromStr for SmartPolling {
    type Err = String;

    fn from_str(text: &str) -> Result<SmartPolling, String> {
        if text == "off" {
            return Ok(SmartPolling::Off);
        }
        let pause: Time = text
            .parse()
            .map_err(|_| format!("`{text}` is neither \"off\" nor a duration such as \"10m\""))?;
        match (SMART_MIN..=SMART_MAX).contains(&pause) {
            true => Ok(SmartPolling::Every(pause)),
            false => Err(format!(
                "{pause} is out of range: allowed are {SMART_MIN} to {SMART_MAX}, or \"off\""
            )),
        }
    }
}

impl Serialize for SmartPolling {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SmartPolling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_it_is_written() {
        for text in ["off", "10m", "1m", "1day"] {
            assert_eq!(text.parse::<SmartPolling>().map(|it| it.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("10min".parse(), Ok(SmartPolling::default()));
        for (text, says) in
            [("often", "neither"), ("1s", "out of range"), ("2days", "out of range")]
        {
            let error = text.parse::<SmartPolling>().expect_err("it is refused");
            assert!(error.contains(says), "{error}");
        }
    }
}
