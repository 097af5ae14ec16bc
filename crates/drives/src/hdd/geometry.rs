//! Places of sectors: zones, heads, skews, and slots that hold no host sector.
//!
//! The host's sectors fill a zone track by track, all heads of a cylinder before the next
//! cylinder. Skews turn each track against the one before by the cost of switching, so that a
//! long transfer does not miss its next sector. Spare and defective sectors are holes: the
//! host's sectors slip past them.

use serde::{Deserialize, Serialize};

use super::rotation::Angle;
use crate::parameter::{ParameterError, require};
use hemi_units::{Rate, Size, Time};

/// Zones, heads and skews.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layout {
    /// Zones given one by one.
    Zones {
        /// Heads, that is, surfaces used.
        heads: u32,
        /// Zones from the outer edge, where sector 0 is, inwards.
        zones: Vec<Zone>,
        /// Order of the heads.
        #[serde(default)]
        head_order: HeadOrder,
        /// The host's sectors of 512 bytes; as many as fit if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        sectors: Option<u64>,
    },
    /// The figures of a data sheet: the zones shrink evenly from the outer to the inner rate.
    Rates {
        /// Capacity seen by the host.
        capacity: Size,
        /// Heads, that is, surfaces used.
        heads: u32,
        /// Rate while a track of the outermost zone passes.
        outer: Rate,
        /// Rate while a track of the innermost zone passes.
        inner: Rate,
        /// Number of zones, 1 to 1,000.
        zones: u32,
    },
}

/// The order of the heads within a cylinder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadOrder {
    /// Tracks from the first head to the last in every cylinder.
    #[default]
    Forward,
    /// Alternately forward and backward, starting forward in each zone, so that the next
    /// cylinder begins under the same head.
    SerpentineInZone,
    /// Alternately forward and backward, even cylinders forward.
    Serpentine,
}

/// A run of cylinders whose tracks have the same number of sectors.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// First cylinder; the one after the previous zone if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_cylinder: Option<u32>,
    /// Number of cylinders.
    pub cylinders: u32,
    /// Sectors of 512 bytes on a track.
    pub sectors_per_track: u32,
    /// Distance from a track's first sector to the next track's when the head is switched, in
    /// sectors; computed from the time of the switch if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track_skew: Option<f64>,
    /// The same if the next track is on the next cylinder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cylinder_skew: Option<f64>,
    /// Angle of the first sector, as a share of a revolution.
    #[serde(default)]
    pub first_angle: f64,
    /// Runs of sectors that hold nothing, as (first, count), counted from the zone's first
    /// sector, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<(u64, u64)>,
}

impl Layout {
    /// Returns an error if the layout is impossible.
    pub fn check(&self) -> Result<(), ParameterError> {
        match self {
            Layout::Zones { heads, zones, .. } => {
                require((1..=256).contains(heads), "layout.zones.heads", heads, "1 to 256")?;
                let count = zones.len();
                let right = (1..=10_000).contains(&count);
                require(right, "layout.zones.zones", count, "1 to 10,000 zones")?;
                let mut next = 0;
                for (i, zone) in zones.iter().enumerate() {
                    let first = zone.first_cylinder.unwrap_or(next);
                    let value = || format!("zone {i}, from cylinder {first}");
                    let right = first >= next
                        && (1..=10_000_000).contains(&zone.cylinders)
                        && first < 10_000_000;
                    require(
                        right,
                        "layout.zones.zones.cylinders",
                        value(),
                        "zones ascending without overlap, 1 to 10,000,000 cylinders each",
                    )?;
                    require(
                        (1..=1_000_000).contains(&zone.sectors_per_track),
                        "layout.zones.zones.sectors_per_track",
                        value(),
                        "1 to 1,000,000",
                    )?;
                    let all = u64::from(zone.cylinders)
                        * u64::from(*heads)
                        * u64::from(zone.sectors_per_track);
                    let mut free = 0;
                    for &(start, count) in &zone.holes {
                        let right = start >= free && count > 0 && start + count <= all;
                        require(
                            right,
                            "layout.zones.zones.holes",
                            format!("zone {i}, ({start}, {count})"),
                            "within the zone, ascending without overlap",
                        )?;
                        free = start + count;
                    }
                    let skews = [
                        ("layout.zones.zones.track_skew", zone.track_skew),
                        ("layout.zones.zones.cylinder_skew", zone.cylinder_skew),
                    ];
                    for (key, skew) in skews {
                        let Some(skew) = skew else { continue };
                        require((0.0..=1e6).contains(&skew), key, skew, "zero or more sectors")?;
                    }
                    next = first + zone.cylinders;
                }
                Ok(())
            }
            Layout::Rates { capacity, heads, outer, inner, zones } => {
                require((1..=256).contains(heads), "layout.rates.heads", heads, "1 to 256")?;
                require((1..=1000).contains(zones), "layout.rates.zones", zones, "1 to 1000")?;
                let (outer, inner) = (outer.0, inner.0);
                let right = inner >= 1_000_000 && inner <= outer && outer < 10_000_000_000;
                let value = format!("{inner} B/s");
                require(right, "layout.rates.inner", value, "at least 1 MB/s, at most outer")?;
                let size = capacity.0;
                let right = (100_000_000..=1_000_000_000_000_000).contains(&size);
                require(right, "layout.rates.capacity", size, "100 MB to 1000 TB")
            }
        }
    }

    /// Returns the number of heads.
    pub fn heads(&self) -> u32 {
        match self {
            Layout::Zones { heads, .. } | Layout::Rates { heads, .. } => *heads,
        }
    }

    /// Returns the zones, computed if only rates are known; `revolution` is in nanoseconds.
    fn zones(&self, revolution: f64) -> (Vec<Zone>, Option<u64>, HeadOrder) {
        match self {
            Layout::Zones { zones, sectors, head_order, .. } => {
                (zones.clone(), *sectors, *head_order)
            }
            Layout::Rates { capacity, heads, outer, inner, zones } => {
                let per_track = |rate: f64| libm::floor(rate * revolution / 1e9 / 512.0).max(1.0);
                let (outer, inner) = (outer.0 as f64, inner.0 as f64);
                let steps = f64::from((*zones).max(2) - 1);
                let sectors: Vec<u32> = (0..*zones)
                    .map(|i| per_track(outer + (inner - outer) * f64::from(i) / steps) as u32)
                    .collect();
                let wanted = capacity.0 / 512;
                let cylinder: u64 =
                    sectors.iter().map(|&count| u64::from(count) * u64::from(*heads)).sum();
                let cylinders = wanted.div_ceil(cylinder) as u32;
                let zone = |&sectors_per_track: &u32| Zone {
                    cylinders,
                    sectors_per_track,
                    ..Zone::default()
                };
                (sectors.iter().map(zone).collect(), Some(wanted), HeadOrder::Serpentine)
            }
        }
    }
}

/// The times from which skews are computed if a layout gives none.
#[derive(Clone, Copy, Debug)]
pub struct Switching {
    /// Time to switch to another head.
    pub head: Time,
    /// Time to move to the next cylinder.
    pub cylinder: Time,
}

/// The place at which an access to a track begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The cylinder, counted from the outer edge.
    pub cylinder: u32,
    /// The head.
    pub head: u16,
    /// The zone.
    pub zone: u16,
    /// Angle at which the sector begins.
    pub angle: Angle,
    /// The sector's slot on the track, holes included.
    pub slot: u32,
}

/// A part of a track, starting at one of its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Place of the first sector.
    pub place: Place,
    /// Number of host sectors on this track from here on, including the first.
    pub sectors: u64,
    /// Number of slots those take, including holes between them.
    pub slots: u32,
}

/// Bits of a revolution's fraction: 2⁴⁸ is fine enough that the sectors of a track add up.
const FINE: u32 = 48;

#[derive(Clone, Debug)]
struct ZoneMap {
    first_sector: u64,
    sectors: u64,
    first_cylinder: u32,
    sectors_per_track: u32,
    /// Width of a slot, in units of 2⁻⁴⁸ revolutions, as are the skews and the first angle.
    slot_width: u64,
    track_skew: u64,
    cylinder_skew: u64,
    first_angle: u64,
    /// For each hole: the index of the zone's first host sector behind it, and the slots of all
    /// holes up to and including it.
    holes: Vec<(u64, u64)>,
}

impl ZoneMap {
    /// Returns the slot of the zone's `index`th host sector and the number of holes before it.
    #[inline]
    fn slot(&self, index: u64) -> (u64, usize) {
        if self.holes.is_empty() {
            return (index, 0);
        }
        let before = self.holes.partition_point(|hole| hole.0 <= index);
        let slipped = if before == 0 { 0 } else { self.holes[before - 1].1 };
        (index + slipped, before)
    }
}

/// The map from sectors to places.
#[derive(Clone, Debug)]
pub struct Geometry {
    zones: Vec<ZoneMap>,
    /// First sector of each zone, for the search.
    starts: Vec<u64>,
    heads: u32,
    head_order: HeadOrder,
    sectors: u64,
    cylinders: u32,
}

impl Geometry {
    /// Builds the map of a checked layout on a disk with a revolution of `revolution`
    /// nanoseconds.
    pub fn new(layout: &Layout, revolution: f64, switching: Switching) -> Geometry {
        let heads = layout.heads();
        let (zones, limit, head_order) = layout.zones(revolution);
        let mut first_sector = 0;
        let mut next_cylinder = 0;
        let maps: Vec<ZoneMap> = zones
            .iter()
            .map(|zone| {
                let first_cylinder = zone.first_cylinder.unwrap_or(next_cylinder);
                next_cylinder = first_cylinder + zone.cylinders;
                let per_track = zone.sectors_per_track;
                let all = u64::from(zone.cylinders) * u64::from(heads) * u64::from(per_track);
                let mut skipped = 0;
                let holes: Vec<(u64, u64)> = zone
                    .holes
                    .iter()
                    .map(|&(start, count)| {
                        let from = start - skipped;
                        skipped += count;
                        (from, skipped)
                    })
                    .collect();
                let width = (1_u64 << FINE) as f64 / f64::from(per_track);
                // One sector more than the switch takes, so that the next one is not missed.
                let switch = |time: Time| {
                    libm::ceil(time.0 as f64 / revolution * f64::from(per_track)) + 1.0
                };
                let skew =
                    |given: Option<f64>, time: Time| given.unwrap_or_else(|| switch(time)) * width;
                let map = ZoneMap {
                    first_sector,
                    sectors: all - skipped,
                    first_cylinder,
                    sectors_per_track: per_track,
                    slot_width: libm::round(width) as u64,
                    track_skew: skew(zone.track_skew, switching.head) as u64,
                    cylinder_skew: skew(zone.cylinder_skew, switching.cylinder) as u64,
                    first_angle: (zone.first_angle * (1_u64 << FINE) as f64) as u64,
                    holes,
                };
                first_sector += map.sectors;
                map
            })
            .collect();
        let sectors = limit.unwrap_or(first_sector).min(first_sector);
        let starts = maps.iter().map(|zone| zone.first_sector).collect();
        Geometry { zones: maps, starts, heads, head_order, sectors, cylinders: next_cylinder }
    }

    /// Returns the number of host sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Returns the number of cylinders.
    pub fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Returns the number of zones.
    pub fn zones(&self) -> u16 {
        self.zones.len() as u16
    }

    /// Returns the number of sectors on a track of the zone.
    #[inline]
    pub fn sectors_per_track(&self, zone: u16) -> u32 {
        self.zones[usize::from(zone)].sectors_per_track
    }

    #[inline]
    fn zone_of(&self, sector: u64) -> usize {
        self.starts.partition_point(|&first| first <= sector) - 1
    }

    #[inline]
    fn place_of(&self, index: usize, slot: u64) -> Place {
        let zone = &self.zones[index];
        let per_track = u64::from(zone.sectors_per_track);
        let track = slot / per_track;
        let on_track = slot - track * per_track;
        // Tracks fit 32 bits, and a 32-bit division takes a quarter of the time.
        let (track, heads) = (track as u32, self.heads);
        let cylinder = track / heads;
        let turn = track - cylinder * heads;
        let switches = u64::from(turn) + u64::from(heads - 1) * u64::from(cylinder);
        let fine = zone
            .first_angle
            .wrapping_add(switches.wrapping_mul(zone.track_skew))
            .wrapping_add(u64::from(cylinder).wrapping_mul(zone.cylinder_skew))
            .wrapping_add(on_track.wrapping_mul(zone.slot_width));
        let back = match self.head_order {
            HeadOrder::Forward => false,
            HeadOrder::SerpentineInZone => cylinder % 2 == 1,
            HeadOrder::Serpentine => (zone.first_cylinder + cylinder) % 2 == 1,
        };
        Place {
            cylinder: zone.first_cylinder + cylinder,
            head: if back { heads - 1 - turn } else { turn } as u16,
            zone: index as u16,
            angle: (fine >> (FINE - 32)) as Angle,
            slot: on_track as u32,
        }
    }

    /// Returns the place of a sector, which must be on the disk.
    #[inline]
    pub fn place(&self, sector: u64) -> Place {
        let index = self.zone_of(sector);
        let (slot, _) = self.zones[index].slot(sector - self.zones[index].first_sector);
        self.place_of(index, slot)
    }

    /// Returns the rest of the track from `sector` on, at most `most` sectors (not zero).
    #[inline]
    pub fn stretch(&self, sector: u64, most: u64) -> Stretch {
        let index = self.zone_of(sector);
        let zone = &self.zones[index];
        let first = sector - zone.first_sector;
        let (slot, mut hole) = zone.slot(first);
        let place = self.place_of(index, slot);
        let room = u64::from(zone.sectors_per_track - place.slot);
        // Host sectors until the end of the track, before subtracting further holes.
        let slipped = slot - first;
        let mut sectors = room;
        while let Some(&(from, all)) = zone.holes.get(hole) {
            let taken = all - slipped;
            if from - first + (all - slipped) <= room {
                sectors = room - taken;
            } else {
                // The hole begins on this track and reaches over its end, or is on a later
                // track.
                sectors = sectors.min(from - first);
                break;
            }
            hole += 1;
        }
        let sectors = sectors.min(zone.sectors - first).min(most).max(1);
        let (last, _) = zone.slot(first + sectors - 1);
        Stretch { place, sectors, slots: (last - slot + 1) as u32 }
    }

    /// Returns the first host sector on the track of `sector`.
    pub fn track_start(&self, sector: u64) -> u64 {
        let index = self.zone_of(sector);
        let zone = &self.zones[index];
        let first = sector - zone.first_sector;
        let (slot, _) = zone.slot(first);
        let start = slot - slot % u64::from(zone.sectors_per_track);
        if zone.holes.is_empty() {
            return zone.first_sector + start;
        }
        // The first index whose slot is not before the track's start.
        let back = (slot - start).min(first);
        let (mut low, mut high) = (first - back, first);
        while low < high {
            let middle = (low + high) / 2;
            if zone.slot(middle).0 >= start {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        zone.first_sector + low
    }

    /// Returns one past the last host sector on the track of `sector`.
    pub fn track_end(&self, sector: u64) -> u64 {
        (sector + self.stretch(sector, u64::MAX).sectors).min(self.sectors)
    }

    /// Returns one past the last host sector on the cylinder of `sector`.
    pub fn cylinder_end(&self, sector: u64) -> u64 {
        let cylinder = self.place(sector).cylinder;
        let mut end = self.track_end(sector);
        while end < self.sectors && self.place(end).cylinder == cylinder {
            end = self.track_end(end);
        }
        end
    }

    /// Returns the angle that `slots` sectors of the zone take; 2³² is a revolution.
    #[inline]
    pub fn width(&self, zone: u16, slots: u32) -> u64 {
        let width = self.zones[usize::from(zone)].slot_width;
        (u64::from(slots) * width) >> (FINE - 32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Geometry, HeadOrder, Layout, Switching, Zone};
    use hemi_units::{Rate, Size, Time};

    const SWITCHING: Switching = Switching { head: Time(800_000), cylinder: Time(1_000_000) };

    fn zones(holes: Vec<(u64, u64)>, head_order: HeadOrder) -> Geometry {
        let zone = |cylinders, sectors_per_track, holes| Zone {
            cylinders,
            sectors_per_track,
            holes,
            track_skew: Some(3.0),
            cylinder_skew: Some(5.0),
            ..Zone::default()
        };
        let zones = vec![zone(4, 20, holes), zone(3, 15, Vec::new())];
        let layout = Layout::Zones { heads: 3, zones, head_order, sectors: None };
        layout.check().expect("a layout");
        Geometry::new(&layout, 8e6, SWITCHING)
    }

    #[test]
    fn sectors_follow_tracks_heads_cylinders_and_skews() {
        let map = zones(Vec::new(), HeadOrder::Forward);
        assert_eq!(map.sectors(), 4 * 3 * 20 + 3 * 3 * 15);
        let place = map.place(20 * 3 + 20 + 7);
        assert_eq!((place.cylinder, place.head, place.slot), (1, 1, 7));
        // Two switches of head in cylinder 0 and one in 1, one of cylinder, seven sectors.
        let sectors = f64::from(place.angle) / f64::from(u32::MAX) * 20.0;
        assert!((sectors - (3.0 * 3.0 + 5.0 + 7.0 - 20.0)).abs() < 1e-3, "{sectors}");
        let inner = map.place(240 + 15 * 3);
        assert_eq!((inner.cylinder, inner.head, inner.slot, inner.zone), (5, 0, 0, 1));
        let serpentine = zones(Vec::new(), HeadOrder::Serpentine);
        assert_eq!(serpentine.place(60).head, 2);
        assert_eq!(serpentine.place(60).cylinder, 1);
        assert_eq!(serpentine.track_end(0), 20);
        assert_eq!(serpentine.cylinder_end(61), 120);
    }

    #[test]
    fn rates_and_capacity_give_the_zones() {
        let layout = Layout::Rates {
            capacity: Size(1_000_000_000_000),
            heads: 6,
            outer: Rate(120_000_000),
            inner: Rate(60_000_000),
            zones: 20,
        };
        let map = Geometry::new(&layout, 60e9 / 7200.0, SWITCHING);
        assert_eq!(map.sectors(), 1_000_000_000_000 / 512);
        let (outer, inner) = (map.sectors_per_track(0), map.sectors_per_track(19));
        assert_eq!((outer, inner), (1953, 976));
        assert!(map.place(map.sectors() - 1).cylinder < map.cylinders());
    }

    proptest! {
        /// A stretch matches the places sector by sector: one track, ascending places, and the
        /// next sector is on another track.
        #[test]
        fn stretches_agree_with_places(
            gaps in proptest::collection::vec((0_u64..40, 1_u64..30), 0..6),
            sector in 0_u64..300,
        ) {
            let mut at = 0;
            let mut holes = Vec::new();
            for (gap, count) in gaps {
                let start: u64 = at + gap + u64::from(at > 0);
                if start + count > 240 {
                    break;
                }
                holes.push((start, count));
                at = start + count;
            }
            let map = zones(holes, HeadOrder::SerpentineInZone);
            prop_assume!(sector < map.sectors());
            let stretch = map.stretch(sector, u64::MAX);
            let here = map.place(sector);
            prop_assert_eq!(stretch.place, here);
            let last = map.place(sector + stretch.sectors - 1);
            prop_assert_eq!((last.cylinder, last.head), (here.cylinder, here.head));
            prop_assert_eq!(last.slot - here.slot + 1, stretch.slots);
            if sector + stretch.sectors < map.sectors() {
                let next = map.place(sector + stretch.sectors);
                prop_assert!((next.cylinder, next.head) != (here.cylinder, here.head));
            }
            let start = map.track_start(sector);
            prop_assert!(start <= sector);
            let first = map.place(start);
            prop_assert_eq!((first.cylinder, first.head), (here.cylinder, here.head));
            if start > 0 {
                let before = map.place(start - 1);
                prop_assert!((before.cylinder, before.head) != (here.cylinder, here.head));
            }
        }
    }
}
