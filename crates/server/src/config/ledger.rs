//! The place of a volume's ledger, as the configuration names it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names the ledger's place: `auto`, `none`, or a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LedgerPlace {
    /// In the run directory, if that is on tmpfs and outlives hemi's container, else nowhere.
    #[default]
    Auto,
    /// Nowhere.
    None,
    /// In this directory, which has to be on tmpfs.
    Directory(PathBuf),
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerPlace::Auto => formatter.write_str("auto"),
            LedgerPlace::None => formatter.write_str("none"),
            LedgerPlace::Directory(directory) => write!(formatter, "{}", directory.display()),
        }
    }
}

impl FromStr for LedgerPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<LedgerPlace, String> {
        match text {
            "auto" => Ok(LedgerPlace::Auto),
            "none" => Ok(LedgerPlace::None),
            _ if text.starts_with('/') => Ok(LedgerPlace::Directory(PathBuf::from(text))),
            _ => Err(format!(
                "`{text}` is neither \"auto\", \"none\" nor the absolute path of a directory"
            )),
        }
    }
}

impl Serialize for LedgerPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LedgerPlace {
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
            assert_eq!(
                text.parse::<LedgerPlace>().map(|place| place.to_string()).as_deref(),
                Ok(text)
            );
        }
        let error = "run/hemi".parse::<LedgerPlace>().expect_err("it is not absolute");
        assert!(error.contains("run/hemi"), "{error}");
    }
}
