//! The option that attaches a volume as a block device of its machine.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer as _;
use serde::de::value::Error;
use serde::{Deserialize, Serialize};

/// The kernel driver that makes the volume a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// No block device, unless `hemi attach` or an earlier start made one.
    #[default]
    None,
    /// The best driver that the kernel has.
    Auto,
    /// ublk (Linux 6.5).
    Ublk,
    /// The kernel's NBD client (Linux 5.14).
    Nbd,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

impl FromStr for DeviceKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceKind, Error> {
        DeviceKind::deserialize(text.into_deserializer())
    }
}
