//! Sizes of requests.

use std::fmt;

use hemi_random::Rng;
use hemi_units::{SECTOR_BYTES, Size};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::error::{WorkloadError, check_count, check_length};

/// Maximum number of sizes in a range or a list, since all are kept in a table.
const MOST_SIZES: u64 = 65_536;

/// The sizes of requests: `"4 KiB"`, `{ from = "10 KiB", to = "500 KiB", step = "10 KiB" }` or
/// `[{ size = "4 KiB", weight = 60 }, …]`. All are multiples of 512 B.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizesSpec {
    /// Always the same size.
    Fixed(Size),
    /// All steps of a range with equal frequency.
    Range(RangeSpec),
    /// Each size with a frequency given by its weight.
    Weighted(Vec<WeightedSize>),
}

/// A range of sizes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeSpec {
    /// The smallest.
    pub from: Size,
    /// The largest; a whole number of steps above the smallest.
    pub to: Size,
    /// Difference between one size and the next.
    pub step: Size,
}

/// One size of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedSize {
    /// The size.
    pub size: Size,
    /// Relative frequency: its share of the sum of the list's weights.
    pub weight: u32,
}

/// A request's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSize {
    /// Size in sectors.
    pub sectors: u64,
    /// Size in units of the alignment, rounded up.
    pub units: u64,
}

/// The sizes to draw from.
#[derive(Clone, Debug)]
pub struct Sizes {
    table: Vec<RequestSize>,
    /// Sums of the weights up to and including each entry; empty if all are equally frequent.
    cumulative: Vec<u64>,
}

/// Converts a size to sectors; `key` names it in errors.
pub(crate) fn sectors_of(key: &str, bytes: u64) -> Result<u64, WorkloadError> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
        let value = format!("{bytes} B");
        return Err(WorkloadError::new(key, value, "write a multiple of 512 B above zero"));
    }
    Ok(bytes / SECTOR_BYTES)
}

impl SizesSpec {
    /// Returns the sizes before alignment.
    pub(crate) fn in_sectors(&self) -> Result<Sizes, WorkloadError> {
        let mut sizes = Sizes { table: Vec::new(), cumulative: Vec::new() };
        match self {
            SizesSpec::Fixed(Size(bytes)) => sizes.push(sectors_of("sizes", *bytes)?),
            SizesSpec::Range(range) => {
                let from = sectors_of("sizes.from", range.from.0)?;
                let to = sectors_of("sizes.to", range.to.0)?;
                let step = sectors_of("sizes.step", range.step.0)?;
                if to < from || !(to - from).is_multiple_of(step) {
                    let right = "write a whole number of steps above `from`";
                    return Err(WorkloadError::new("sizes.to", format!("{} B", range.to.0), right));
                }
                let steps = (to - from) / step;
                if steps >= MOST_SIZES {
                    let right = format!("write a range of at most {MOST_SIZES} sizes");
                    let value = format!("{} B", range.step.0);
                    return Err(WorkloadError::new("sizes.step", value, right));
                }
                (0..=steps).for_each(|index| sizes.push(from + index * step));
            }
            SizesSpec::Weighted(list) => {
                check_length("sizes", list.len(), MOST_SIZES)?;
                let mut sum = 0;
                for (index, entry) in list.iter().enumerate() {
                    let key = format!("sizes[{index}].weight");
                    check_count(&key, entry.weight.into(), u32::MAX.into())?;
                    sum += u64::from(entry.weight);
                    sizes.push(sectors_of(&format!("sizes[{index}].size"), entry.size.0)?);
                    sizes.cumulative.push(sum);
                }
            }
        }
        Ok(sizes)
    }
}

impl Sizes {
    fn push(&mut self, sectors: u64) {
        self.table.push(RequestSize { sectors, units: sectors });
    }

    /// Returns the smallest size in sectors.
    pub(crate) fn smallest(&self) -> u64 {
        self.table.iter().map(|size| size.sectors).min().unwrap_or(1)
    }

    /// Returns the largest size in sectors.
    pub(crate) fn longest_sectors(&self) -> u64 {
        self.table.iter().map(|size| size.sectors).max().unwrap_or(1)
    }

    /// Returns the largest size in units of the alignment.
    pub(crate) fn largest_units(&self) -> u64 {
        self.table.iter().map(|size| size.units).max().unwrap_or(1)
    }

    /// Returns the sizes with their lengths in units of `unit` sectors.
    pub(crate) fn aligned(mut self, unit: u64) -> Sizes {
        for size in &mut self.table {
            size.units = size.sectors.div_ceil(unit);
        }
        self
    }

    /// Draws a size.
    pub(crate) fn next(&self, rng: &mut Rng) -> RequestSize {
        if let [only] = self.table[..] {
            return only;
        }
        let index = match self.cumulative.last() {
            None => rng.below(self.table.len() as u64) as usize,
            Some(&sum) => {
                let drawn = rng.below(sum);
                self.cumulative.partition_point(|&up_to| up_to <= drawn)
            }
        };
        self.table[index]
    }
}

impl<'de> Deserialize<'de> for SizesSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SizesSpec, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = SizesSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size, as in \"4 KiB\", a range { from = \"10 KiB\", to = \"500 KiB\", \
                     step = \"10 KiB\" } or a list [{ size = \"4 KiB\", weight = 60 }, …]",
                )
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SizesSpec, E> {
                text.parse().map(SizesSpec::Fixed).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SizesSpec, A::Error> {
                RangeSpec::deserialize(MapAccessDeserializer::new(map)).map(SizesSpec::Range)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<SizesSpec, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(SizesSpec::Weighted)
            }
        }

        deserializer.deserialize_any(Any)
    }
}
