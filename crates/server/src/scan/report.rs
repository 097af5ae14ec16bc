//! The report of a scan, volume by volume.

use std::fmt;

use super::{FoundLeg, Member, Scan};
use hemi_units::Size;

/// A volume with the legs that a scan found.
#[derive(Clone, Debug)]
pub struct VolumeFound<'a> {
    /// The leg with the newest superblock.
    pub newest: &'a FoundLeg,
    /// All legs found, by slot.
    pub found: Vec<&'a FoundLeg>,
}

/// Groups the legs found by volume, ordered by name and id.
pub fn volumes(scan: &Scan) -> Vec<VolumeFound<'_>> {
    let mut ids: Vec<(&str, &str)> =
        scan.legs.iter().map(|leg| (leg.name.as_str(), leg.volume.as_str())).collect();
    ids.sort_unstable();
    ids.dedup();
    let of = |id: &str| {
        let mut found: Vec<&FoundLeg> = scan.legs.iter().filter(|leg| leg.volume == id).collect();
        found.sort_by_key(|leg| leg.leg);
        let newest = *found.iter().max_by_key(|leg| leg.sequence)?;
        Some(VolumeFound { newest, found })
    };
    ids.into_iter().filter_map(|(_, id)| of(id)).collect()
}

impl VolumeFound<'_> {
    /// Returns the legs found that are this member.
    fn places(&self, member: &Member) -> Vec<&FoundLeg> {
        self.found.iter().copied().filter(|leg| leg.id == member.id).collect()
    }
}

impl fmt::Display for VolumeFound<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = self.newest;
        let state = if newest.open { "served, or not closed" } else { "closed" };
        let size = Size(newest.size_bytes);
        writeln!(formatter, "volume {:?} {}  {size}, {state}", newest.name, newest.volume)?;
        for member in &newest.members {
            let out = match (member.detached, member.out) {
                (true, _) => ", detached",
                (_, true) => ", out",
                _ => "",
            };
            let places = self.places(member);
            if places.is_empty() && member.detached {
                continue;
            }
            if places.is_empty() {
                let last =
                    if member.last.is_empty() { "nothing is known of it" } else { &member.last };
                writeln!(formatter, "  leg {}{out}  not found; last seen as {last}", member.leg)?;
            }
            for place in places {
                writeln!(formatter, "  leg {}{out}  {}", member.leg, place.spec)?;
            }
        }
        let is_member = |leg: &&&FoundLeg| newest.members.iter().any(|member| member.id == leg.id);
        for leg in self.found.iter().filter(|leg| !is_member(leg)) {
            writeln!(formatter, "  {}  was leg {} once, and no longer is one", leg.spec, leg.leg)?;
        }
        Ok(())
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for volume in volumes(self) {
            volume.fmt(formatter)?;
        }
        for standby in &self.standbys {
            let (spec, name, volume) = (&standby.spec, &standby.name, &standby.volume);
            writeln!(formatter, "standby  {spec}, of volume {name:?} {volume}")?;
        }
        for doubt in self.doubts() {
            writeln!(formatter, "{doubt}")?;
        }
        let (places, legs) = (self.looked_at.len(), self.legs.len());
        let of = |count: usize, one: &'static str, many| if count == 1 { one } else { many };
        writeln!(
            formatter,
            "looked at {places} {}, found {legs} {}",
            of(places, "device or file", "devices and files"),
            of(legs, "leg", "legs")
        )
    }
}
