//! Picks the legs of one volume from a scan.

use std::path::PathBuf;

use super::{FoundLeg, FoundStandby, Other, OtherState, Scan};
use hemi_io::config::legs::{LegConfig, LegSpec};

/// The legs of the requested volume, according to a scan.
#[derive(Clone, Debug, Default)]
pub struct Chosen<'a> {
    /// The legs found.
    pub found: Vec<&'a FoundLeg>,
    /// The legs not found. Empty if none was found.
    pub missing: Vec<Missing>,
    /// The standbys found of the volume.
    pub standbys: Vec<&'a FoundStandby>,
}

/// A leg of the volume that is on no device of this machine.
#[derive(Clone, Debug)]
pub struct Missing {
    /// Its id.
    pub id: String,
    /// The name that messages use for it, or its URI if it is remote.
    pub config: LegConfig,
}

/// The reason why a scan leaves open which volume or which leg is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Contradiction(String);

/// Returns the legs of the volume with this name or id.
///
/// # Errors
/// Fails if two volumes have the name, or if a leg exists twice.
pub fn legs_of<'a>(scan: &'a Scan, wanted: &str) -> Result<Chosen<'a>, Contradiction> {
    let by_id: Vec<&FoundLeg> = scan.legs.iter().filter(|leg| is_id(wanted, &leg.volume)).collect();
    let found = if by_id.is_empty() {
        scan.legs.iter().filter(|leg| leg.name == wanted).collect()
    } else {
        by_id
    };
    if let Some((first, other)) = differing(&found, |leg| &leg.volume) {
        return Err(Contradiction(format!(
            "two volumes are called {wanted:?}: {} (leg {} on {}) and {} (leg {} on {}); name the \
             volume by its id",
            first.volume, first.leg, first.spec, other.volume, other.leg, other.spec
        )));
    }
    for (index, leg) in found.iter().enumerate() {
        if let Some(twice) = found[..index].iter().find(|earlier| earlier.id == leg.id) {
            return Err(Contradiction(format!(
                "leg {} of volume {:?} is there twice, as {} and as {}: if one is a copy of the \
                 other, take it away or wipe it; if both lead to one disk, set up multipath; or name \
                 the legs (--leg)",
                leg.leg, leg.name, twice.spec, leg.spec
            )));
        }
    }
    let newest = found.iter().max_by_key(|leg| leg.sequence);
    let members = newest.map_or(&[][..], |newest| &newest.members[..]);
    let is_found = |id: &str| found.iter().any(|leg| leg.id == id);
    let missing = members
        .iter()
        .filter(|member| !member.detached && !is_found(&member.id))
        .map(|member| {
            let path = member.path.parse().unwrap_or_else(|_| LegSpec::Path(PathBuf::new()));
            let name = match member.last.as_str() {
                "" => Some(member.leg.to_string()),
                _ if path.is_remote() => None,
                last => Some(format!("{} ({last})", member.leg)),
            };
            Missing { id: member.id.clone(), config: LegConfig { name, ..LegConfig::new(path) } }
        })
        .collect();
    let volume = newest.map(|newest| &newest.volume);
    let standbys = scan.standbys.iter().filter(|one| Some(&one.volume) == volume).collect();
    Ok(Chosen { found, missing, standbys })
}

/// Returns two legs that differ in `key`.
fn differing<'a>(
    found: &[&'a FoundLeg],
    key: impl Fn(&FoundLeg) -> &String,
) -> Option<(&'a FoundLeg, &'a FoundLeg)> {
    let first = found.first()?;
    let other = found.iter().find(|other| key(other) != key(first))?;
    Some((first, other))
}

/// Returns true if `wanted` is this id, with or without dashes.
fn is_id(wanted: &str, id: &str) -> bool {
    let digits = |text: &str| text.replace('-', "").to_ascii_lowercase();
    digits(wanted) == digits(id)
}

impl Scan {
    /// Returns a message that no leg of a volume was found, with all possible reasons.
    pub fn nothing_of(&self, wanted: &str) -> String {
        let mut lines = vec![format!(
            "no leg of a volume {wanted:?} was found; looked at {}; other places are named by --scan-in",
            self.places_text()
        )];
        let mut volumes: Vec<String> = self.legs.iter().map(FoundLeg::volume_text).collect();
        volumes.sort();
        volumes.dedup();
        if !volumes.is_empty() {
            lines.push(format!("found instead: volume {}", volumes.join(", volume ")));
        }
        lines.extend(self.doubts());
        lines.join("\n")
    }

    /// Names the devices and files that may hold a leg but could not be read. Leaves out those that could not
    /// be opened at all, such as an empty disc drive.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        let telling = |other: &&Other| other.state != OtherState::Unreadable;
        let lines = self.others.iter().filter(telling);
        lines.map(|other| format!("{}: {}", other.path.display(), other.reason))
    }

    fn places_text(&self) -> String {
        /// Maximum number of paths that are named. The others are counted.
        const NAMED_MAX: usize = 20;
        let named = self.looked_at.iter().take(NAMED_MAX);
        let mut paths: Vec<String> = named.map(|path| path.display().to_string()).collect();
        if paths.is_empty() {
            return "nothing: there is no block device that can be a leg".into();
        }
        if let Some(more) = self.looked_at.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
            paths.push(format!("and {more} more"));
        }
        paths.join(", ")
    }
}
