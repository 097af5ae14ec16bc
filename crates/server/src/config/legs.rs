//! A leg in the configuration: its spec alone, or a table with more about it.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use super::units::Time;
use crate::leg::LegSpec;

/// One leg of the volume as configured.
///
/// In a file either the spec string alone or a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegConfig {
    /// Where its bytes are.
    #[serde(serialize_with = "as_text")]
    pub path: LegSpec,
    /// What status, logs and metrics call it. Default: the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Remote legs only: how long after a lost session the old session's writes are taken
    /// as still able to land, where the server cannot prove otherwise. Default: for ever
    /// (the extents stay stale until proof or restart of the server side).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Time>,
}

impl LegConfig {
    /// A leg with the defaults.
    pub fn new(path: LegSpec) -> LegConfig {
        LegConfig { path, name: None, quarantine: None }
    }

    /// What to call it: its name, else its spec.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.to_string())
    }

    /// Whether it is reached over a network or a socket, so that fencing applies.
    pub fn is_remote(&self) -> bool {
        matches!(self.path, LegSpec::Nbd { .. })
    }

    /// The local files or devices of the leg, none for a remote one.
    pub fn paths(&self) -> &[PathBuf] {
        match &self.path {
            LegSpec::File { path, .. } => std::slice::from_ref(path),
            LegSpec::Stripe { paths, .. } => paths,
            LegSpec::Nbd { .. } => &[],
        }
    }
}

fn as_text<S: Serializer>(spec: &LegSpec, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(spec)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LegSpec, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

impl<'de> Deserialize<'de> for LegConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LegConfig, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            #[serde(deserialize_with = "from_text")]
            path: LegSpec,
            name: Option<String>,
            quarantine: Option<Time>,
        }
        struct SpecOrTable;
        impl<'de> Visitor<'de> for SpecOrTable {
            type Value = LegConfig;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a leg: a path, `stripe:…`, `nbd://…`, or a table with `path`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<LegConfig, E> {
                text.parse().map(LegConfig::new).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LegConfig, A::Error> {
                let Table { path, name, quarantine } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LegConfig { path, name, quarantine })
            }
        }
        deserializer.deserialize_any(SpecOrTable)
    }
}
