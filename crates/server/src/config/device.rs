//! The option that makes a volume a block device of its machine.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names the kernel's driver through which the volume is a block device: `none`, `auto` or `ublk`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// It is none, unless it was made one by `hemi attach` or an earlier start.
    #[default]
    None,
    /// The best that the kernel has.
    Auto,
    /// ublk (Linux 6.5).
    Ublk,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DeviceKind::None => "none",
            DeviceKind::Auto => "auto",
            DeviceKind::Ublk => "ublk",
        })
    }
}

impl FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceKind, String> {
        match text {
            "none" => Ok(DeviceKind::None),
            "auto" => Ok(DeviceKind::Auto),
            "ublk" => Ok(DeviceKind::Ublk),
            _ => Err(format!("`{text}` is none of \"none\", \"auto\" and \"ublk\"")),
        }
    }
}

impl Serialize for DeviceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
