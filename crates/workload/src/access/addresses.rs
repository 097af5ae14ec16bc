//! Addresses of requests.
//!
//! All numbers here are in units of the alignment, counted from the beginning of the span.

use std::fmt;

use hemi_random::Rng;
use hemi_random::zipf::Zipf;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::super::error::{WorkloadError, check_length, check_percent};
use super::scatter::Scatter;

/// Maximum number of zones, since every request searches them.
const MOST_ZONES: u64 = 1024;

/// The distribution of addresses.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressesSpec {
    /// Uniform over the span.
    Uniform,
    /// One after another. Each thread starts at its own place (the first at the beginning, the
    /// second half-way, then the quarters, and so on) and wraps at the end.
    Sequential,
    /// `{ zipf = { skew = 0.99 } }`: the probability of the k-th most popular place falls as
    /// k^(−skew). Popular places are scattered over the span, in the same way for every seed.
    Zipf {
        /// Above 0, at most 10.
        skew: f64,
    },
    /// `{ hot_cold = { accesses = 80, space = 20 } }`: that percentage of the requests goes to
    /// that percentage of the span, from its beginning.
    HotCold(ZoneSpec),
    /// `{ zoned = [{ accesses = 50, space = 5 }, …] }`: the same for any number of zones,
    /// starting at the beginning of the span. Both percentages add up to 100.
    Zoned(Vec<ZoneSpec>),
}

/// All forms of `addresses`, for messages.
const FORMS: &str = "\"uniform\", \"sequential\", { zipf = { skew = 0.99 } }, \
                     { hot_cold = { accesses = 80, space = 20 } } or \
                     { zoned = [{ accesses = 50, space = 5 }, …] }";

fn unknown<E: Error>(name: &str) -> E {
    E::custom(format_args!("unknown variant `{name}`, expected {FORMS}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZipfSpec {
    skew: f64,
}

impl<'de> Deserialize<'de> for AddressesSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AddressesSpec, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = AddressesSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORMS)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<AddressesSpec, E> {
                let right = match name {
                    "uniform" => return Ok(AddressesSpec::Uniform),
                    "sequential" => return Ok(AddressesSpec::Sequential),
                    "zipf" => "{ zipf = { skew = 0.99 } }",
                    "hot_cold" => "{ hot_cold = { accesses = 80, space = 20 } }",
                    "zoned" => {
                        "{ zoned = [{ accesses = 50, space = 5 }, { accesses = 50, space = 95 }] }"
                    }
                    _ => return Err(unknown(name)),
                };
                Err(E::custom(format_args!("`{name}` needs figures: write addresses = {right}")))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AddressesSpec, A::Error> {
                let spec = match map.next_key::<String>()?.as_deref() {
                    Some("zipf") => {
                        AddressesSpec::Zipf { skew: map.next_value::<ZipfSpec>()?.skew }
                    }
                    Some("hot_cold") => AddressesSpec::HotCold(map.next_value()?),
                    Some("zoned") => AddressesSpec::Zoned(map.next_value()?),
                    Some(name) => {
                        return Err(unknown(name));
                    }
                    None => return Err(A::Error::invalid_length(0, &self)),
                };
                match map.next_key::<String>()? {
                    Some(_) => Err(A::Error::invalid_length(2, &self)),
                    None => Ok(spec),
                }
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// A share of the requests and the share of the span they go to.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneSpec {
    /// Percent of the requests.
    pub accesses: f64,
    /// Percent of the span.
    pub space: f64,
}

/// A zone in units.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// Upper end of the draws from [0, 1) that belong to this zone and to no earlier one.
    up_to: f64,
    start: u64,
    end: u64,
}

/// A distribution over a number of units.
#[derive(Clone, Debug)]
pub struct Addresses {
    units: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Sequential,
    Zipf(Box<(Zipf, Scatter)>),
    Zoned(Vec<Zone>),
}

impl AddressesSpec {
    /// Builds the distribution over `units` units, for requests of at most `largest` units.
    pub(crate) fn build(&self, units: u64, largest: u64) -> Result<Addresses, WorkloadError> {
        let kind = match self {
            AddressesSpec::Uniform => Kind::Uniform,
            AddressesSpec::Sequential => Kind::Sequential,
            AddressesSpec::Zipf { skew } => {
                if *skew <= 0.0 || *skew > 10.0 || skew.is_nan() {
                    let right = "write a number above 0, at most 10; 0.99 is customary";
                    return Err(WorkloadError::new("addresses.zipf.skew", skew, right));
                }
                Kind::Zipf(Box::new((Zipf::new(units, *skew), Scatter::new(units))))
            }
            AddressesSpec::HotCold(hot) => {
                check_percent("addresses.hot_cold.accesses", hot.accesses)?;
                check_percent("addresses.hot_cold.space", hot.space)?;
                let cold = ZoneSpec { accesses: 100.0 - hot.accesses, space: 100.0 - hot.space };
                Kind::Zoned(zones("addresses.hot_cold", &[*hot, cold], units, largest)?)
            }
            AddressesSpec::Zoned(list) => {
                Kind::Zoned(zones("addresses.zoned", list, units, largest)?)
            }
        };
        Ok(Addresses { units, kind })
    }
}

/// Builds the zones of a list.
fn zones(
    key: &str,
    list: &[ZoneSpec],
    units: u64,
    largest: u64,
) -> Result<Vec<Zone>, WorkloadError> {
    check_length(key, list.len(), MOST_ZONES)?;
    for (index, zone) in list.iter().enumerate() {
        check_percent(&format!("{key}[{index}].accesses"), zone.accesses)?;
        check_percent(&format!("{key}[{index}].space"), zone.space)?;
    }
    for (name, sum) in [
        ("accesses", list.iter().map(|zone| zone.accesses).sum::<f64>()),
        ("space", list.iter().map(|zone| zone.space).sum::<f64>()),
    ] {
        if (sum - 100.0).abs() > 1e-6 {
            let value = format!("{sum} in all");
            let key = format!("{key}.{name}");
            return Err(WorkloadError::new(&key, value, "write percentages that add up to 100"));
        }
    }
    let mut zones: Vec<Zone> = Vec::with_capacity(list.len());
    let (mut accesses, mut space, mut start) = (0.0, 0.0, 0);
    for (index, zone) in list.iter().enumerate() {
        accesses += zone.accesses / 100.0;
        space += zone.space / 100.0;
        let last = index + 1 == list.len();
        let end = if last { units } else { (libm::round(space * units as f64) as u64).min(units) };
        // Requests begin in the zone and must end within the span.
        let begins_end = end.min(units - largest + 1);
        if zone.accesses > 0.0 {
            if begins_end <= start {
                return Err(WorkloadError::new(
                    &format!("{key}[{index}].space"),
                    zone.space,
                    format!(
                        "no request of {largest} units can begin in its {} units of the \
                             span's {units}: write a larger percentage",
                        end - start
                    ),
                ));
            }
            zones.push(Zone { up_to: accesses, start, end });
        }
        start = end;
    }
    // Whatever the rounding of the sum, a draw finds a zone.
    if let Some(last) = zones.last_mut() {
        last.up_to = 1.0;
    }
    Ok(zones)
}

impl Addresses {
    /// Returns the unit at which a thread's sequential stream begins.
    pub(crate) fn first(&self, thread: u64) -> u64 {
        // The bits of the thread's number, mirrored at the binary point: 0, 1/2, 1/4, 3/4. A
        // thread's place does not depend on the number of threads.
        ((u128::from(thread.reverse_bits()) * u128::from(self.units)) >> 64) as u64
    }

    /// Draws the unit at which a request of `length` units begins.
    pub(crate) fn next(&self, rng: &mut Rng, cursor: &mut u64, length: u64) -> u64 {
        // Where a request may begin; the sizes have been checked to fit.
        let begins = self.units - length + 1;
        match &self.kind {
            Kind::Uniform => rng.below(begins),
            Kind::Sequential => {
                let unit = if *cursor < begins { *cursor } else { 0 };
                *cursor = unit + length;
                unit
            }
            Kind::Zipf(zipf) => {
                let (zipf, scatter) = &**zipf;
                let unit = scatter.of(zipf.draw(rng));
                // Too close to the end for this size: wrap around.
                if unit < begins { unit } else { unit % begins }
            }
            Kind::Zoned(zones) => {
                let drawn = rng.unit();
                let zone = zones.iter().find(|zone| drawn < zone.up_to).unwrap_or(&zones[0]);
                zone.start + rng.below(zone.end.min(begins) - zone.start)
            }
        }
    }
}
