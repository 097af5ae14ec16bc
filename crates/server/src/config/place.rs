//! The place of files that hemi keeps for a volume, as configured.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The place of the ledger or of state kept over restarts: `auto`, `none` or a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The usual directory if it can be used, else none.
    #[default]
    Auto,
    /// No place: nothing is kept.
    None,
    /// This directory.
    Directory(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Auto => formatter.write_str("auto"),
            Place::None => formatter.write_str("none"),
            Place::Directory(directory) => write!(formatter, "{}", directory.display()),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text {
            "auto" => Ok(Place::Auto),
            "none" => Ok(Place::None),
            _ if text.starts_with('/') => Ok(Place::Directory(PathBuf::from(text))),
            _ => Err(format!(
                "`{text}` is neither \"auto\", \"none\" nor the absolute path of a directory"
            )),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_is_written() {
        for text in ["auto", "none", "/run/hemi"] {
            assert_eq!(text.parse::<Place>().map(|place| place.to_string()).as_deref(), Ok(text));
        }
        let error = "run/hemi".parse::<Place>().expect_err("it is not absolute");
        assert!(error.contains("run/hemi"), "{error}");
    }
}
