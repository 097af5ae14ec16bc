//! Zones, heads, skews, spare and defective sectors of a DiskSim description.

use super::text::{Block, DescriptionError, Value};
use crate::hdd::geometry::{HeadOrder, Layout, Zone};

/// The most regions with spares of their own in a zone, far above any disk's.
const REGIONS_MAX: u64 = 200_000;

/// Converts the `dm_layout_g1` of the disk `model`.
pub(super) fn layout(model: &Block, layout: &Block) -> Result<Layout, DescriptionError> {
    let heads = model.whole("Number of data surfaces", (1, 256), None)?;
    let blocks = model.whole("Block count", (1, 1 << 40), None)?;
    let scheme = layout.whole("Sparing scheme used", (0, 10), Some(0))?;
    let range = layout.whole("Rangesize for sparing", (1, 1 << 20), Some(1))?;
    let head_order = match layout.whole("LBN-to-PBN mapping scheme", (0, 2), Some(0))? {
        0 => HeadOrder::Forward,
        1 => HeadOrder::SerpentineInZone,
        _ => HeadOrder::Serpentine,
    };
    let in_revolutions = match layout.get("Skew units") {
        None => false,
        Some((_, Value::Word(word))) if word == "sectors" || word == "revolutions" => {
            word == "revolutions"
        }
        Some(_) => return Err(layout.refuse("Skew units", "sectors or revolutions")),
    };
    let expected = "a list of `dm_layout_g1_zone`";
    let (_, Value::List(list)) = layout.need("Zones", expected)? else {
        return Err(layout.refuse("Zones", expected));
    };
    let mut zones: Vec<Zone> = Vec::with_capacity(list.len());
    for value in list {
        let Value::Block(block) = value else { return Err(layout.refuse("Zones", expected)) };
        let first = block.whole("First cylinder number", (0, 10_000_000), None)?;
        let last = block.whole("Last cylinder number", (first, 10_000_000), None)?;
        let per_track = block.whole("Blocks per track", (1, 1_000_000), None)?;
        let unit = if in_revolutions { per_track as f64 } else { 1.0 };
        let skew = |key: &str| Ok(block.number(key, (0.0, 1e6), None)? * unit);
        let spares = Spares {
            scheme,
            range,
            heads,
            per_track,
            cylinders: last - first + 1,
            spares: block.whole("Number of spares", (0, 1 << 32), Some(0))?,
            front: block.whole("Empty space at zone front", (0, 1 << 32), Some(0))?,
            slips: block.whole_list("slips")?,
        };
        if spares.regions() > REGIONS_MAX {
            let expected = format!("a zone with at most {REGIONS_MAX} spare regions");
            return Err(block.refuse("Last cylinder number", &expected));
        }
        let zone = Zone {
            first_cylinder: Some(first as u32),
            cylinders: (last - first + 1) as u32,
            sectors_per_track: per_track as u32,
            track_skew: Some(skew("Skew for track switch")?),
            cylinder_skew: Some(skew("Skew for cylinder switch")?),
            first_angle: skew("Offset of first block")? / per_track as f64,
            holes: spares.holes(),
        };
        zones.push(zone);
        let so_far = Layout::Zones {
            heads: heads as u32,
            zones: zones.split_off(zones.len() - 1),
            head_order,
            sectors: None,
        };
        if let Err(wrong) = so_far.check() {
            return Err(block.refuse("slips", &wrong.right));
        }
        if let Layout::Zones { zones: one, .. } = so_far {
            zones.extend(one);
        }
    }
    Ok(Layout::Zones { heads: heads as u32, zones, head_order, sectors: Some(blocks) })
}

/// A zone's spare sectors, and the defective ones that sectors slip past.
struct Spares {
    scheme: u64,
    range: u64,
    heads: u64,
    per_track: u64,
    cylinders: u64,
    spares: u64,
    front: u64,
    slips: Vec<u64>,
}

impl Spares {
    /// Returns the number of slots in the zone.
    fn all(&self) -> u64 {
        self.cylinders * self.heads * self.per_track
    }

    /// Returns the number of slots in a region with spares of its own.
    fn unit(&self) -> u64 {
        let cylinder = self.heads * self.per_track;
        match self.scheme {
            2 | 4 | 5 | 6 => cylinder,
            3 => self.per_track,
            8 => cylinder * self.range,
            _ => self.all(),
        }
    }

    /// Returns the number of regions with spares of their own.
    fn regions(&self) -> u64 {
        self.all().div_ceil(self.unit())
    }

    /// Returns the number of slots before the zone's first host sector. The empty space is
    /// counted without the spares of the regions in it.
    fn before_first(&self) -> u64 {
        let unit = self.unit();
        let used = unit.saturating_sub(self.spares);
        if matches!(self.scheme, 0 | 1 | 7 | 9 | 10) || used == 0 {
            return self.front;
        }
        (self.front / used).saturating_mul(unit).saturating_add(self.front % used)
    }

    /// Returns the place (a slot or a track, as slips are) before which `count` places from
    /// `start` on have no defect.
    fn end_of(&self, start: u64, count: u64) -> u64 {
        let from = self.slips.partition_point(|&slip| slip < start);
        let mut end = start + count;
        for &slip in &self.slips[from..] {
            if slip >= end {
                break;
            }
            end += 1;
        }
        end
    }

    /// Returns the runs of slots that hold no host sector.
    fn holes(mut self) -> Vec<(u64, u64)> {
        let (all, unit) = (self.all(), self.unit());
        self.slips.sort_unstable();
        self.slips.dedup();
        let at_front = matches!(self.scheme, 5 | 6);
        let mut holes: Vec<(u64, u64)> = Vec::new();
        if self.front > 0 {
            holes.push((0, self.before_first()));
        }
        match self.scheme {
            0 => {}
            // Whole tracks, numbered within the zone.
            1 => {
                let of = self.per_track;
                for &track in &self.slips {
                    holes.push((track.saturating_mul(of), of));
                }
                let tracks = all / of;
                let end = self.end_of(0, tracks.saturating_sub(self.spares)).min(tracks);
                holes.push((end * of, (tracks - end) * of));
            }
            _ => {
                holes.extend(self.slips.iter().map(|&slip| (slip, 1)));
                // Slips use up their unit's spares, unless they shift the rest of the zone.
                let to_end = matches!(self.scheme, 4 | 6 | 7 | 10);
                let mut start = 0;
                while start < all && self.spares > 0 {
                    let end = (start + unit).min(all);
                    let spares = self.spares.min(end - start);
                    if to_end || at_front {
                        let slips = self.slips.partition_point(|&slip| slip < end)
                            - self.slips.partition_point(|&slip| slip < start);
                        let used = if to_end { 0 } else { slips as u64 };
                        let left = spares.saturating_sub(used);
                        holes.push((if at_front { start } else { end - left }, left));
                    } else {
                        let used = self.end_of(start, end - start - spares).min(end);
                        holes.push((used, end - used));
                    }
                    start = end;
                }
            }
        }
        holes.retain(|&(start, count)| count > 0 && start < all);
        holes.sort_unstable();
        // Overlapping runs (a slip among the spares) are joined.
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(holes.len());
        for (start, count) in holes {
            let count = count.min(all - start);
            match joined.last_mut() {
                Some(last) if start <= last.0 + last.1 => {
                    last.1 = last.1.max(start + count - last.0);
                }
                _ => joined.push((start, count)),
            }
        }
        joined
    }
}
