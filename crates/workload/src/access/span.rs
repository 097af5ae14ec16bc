//! The part of the volume a workload uses.

use std::fmt;

use hemi_units::{Extent, SECTOR_BYTES, Size};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::error::WorkloadError;

/// The part used: `"8 GB"` for the first 8 GB, or `{ from = "100 GB", length = "8 GB" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanSpec {
    /// Start, a multiple of 512 B.
    pub from: Size,
    /// Length, a multiple of 512 B.
    pub length: Size,
}

impl SpanSpec {
    /// Returns the sectors of `span`, or all `volume_sectors` if it is absent.
    pub(crate) fn of(
        span: Option<&SpanSpec>,
        volume_sectors: u64,
    ) -> Result<Extent, WorkloadError> {
        let Some(span) = span else {
            return Ok(Extent::new(0, volume_sectors));
        };
        for (key, Size(bytes)) in [("span.from", span.from), ("span.length", span.length)] {
            if bytes % SECTOR_BYTES != 0 {
                let value = format!("{bytes} B");
                return Err(WorkloadError::new(key, value, "write a multiple of 512 B"));
            }
        }
        let (start, count) = (span.from.0 / SECTOR_BYTES, span.length.0 / SECTOR_BYTES);
        if count == 0 || start + count > volume_sectors {
            let end = u128::from(span.from.0) + u128::from(span.length.0);
            return Err(WorkloadError::new(
                "span",
                format!("{} B to {end} B", span.from.0),
                format!("write a part of the volume's {} B", volume_sectors * SECTOR_BYTES),
            ));
        }
        Ok(Extent::new(start, count))
    }
}

impl<'de> Deserialize<'de> for SpanSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SpanSpec, D::Error> {
        /// The long form.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Part {
            #[serde(default)]
            from: Size,
            length: Size,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = SpanSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, as in \"8 GB\", or { from = \"100 GB\", length = \"8 GB\" }")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SpanSpec, E> {
                let length = text.parse().map_err(E::custom)?;
                Ok(SpanSpec { from: Size(0), length })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SpanSpec, A::Error> {
                let Part { from, length } = Part::deserialize(MapAccessDeserializer::new(map))?;
                Ok(SpanSpec { from, length })
            }
        }

        deserializer.deserialize_any(Either)
    }
}
