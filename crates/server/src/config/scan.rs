//! The option that finds a volume's legs by scanning devices, wherever they are.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// The volume whose legs are searched for, and the places to search.
///
/// A configuration file gives either the volume alone or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanConfig {
    /// The volume's name or id.
    pub volume: String,
    /// Files, devices and directories to scan besides the machine's block devices. A directory
    /// stands for the files and devices directly in it.
    pub places: Vec<PathBuf>,
}

impl ScanConfig {
    /// Returns a scan for a volume on the machine's block devices.
    pub fn new(volume: impl Into<String>) -> ScanConfig {
        ScanConfig { volume: volume.into(), places: Vec::new() }
    }
}

impl Serialize for ScanConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Table<'a> {
            volume: &'a str,
            r#in: &'a [PathBuf],
        }
        if self.places.is_empty() {
            return serializer.serialize_str(&self.volume);
        }
        Table { volume: &self.volume, r#in: &self.places }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ScanConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ScanConfig, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            volume: String,
            #[serde(default)]
            r#in: Vec<PathBuf>,
        }
        struct VolumeOrTable;
        impl<'de> Visitor<'de> for VolumeOrTable {
            type Value = ScanConfig;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a volume's name or id, or a table with `volume` and `in`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ScanConfig, E> {
                Ok(ScanConfig::new(text))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScanConfig, A::Error> {
                let Table { volume, r#in } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ScanConfig { volume, places: r#in })
            }
        }
        deserializer.deserialize_any(VolumeOrTable)
    }
}
