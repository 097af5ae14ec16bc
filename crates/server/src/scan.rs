//! Scans this machine's devices for legs, by their content.
//!
//! A scan only reads and locks nothing. A device that does not answer delays it by at most [`PATIENCE`]. Each
//! device is read on a thread of its own, and all these threads are in a process of their own ([`apart`]),
//! because a process does not end while one of its reads hangs in the kernel.
//!
//! Only [`read_candidate`] knows where a leg's metadata is on a device.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hemi_engine::format::{Membership, Standby, Superblock, SuperblockError};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::newest_of;
use serde::{Deserialize, Serialize};

use crate::opening::volume_name;
use devices::Candidate;
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::stripe::{IDENTITY_BYTES, Identity as MemberIdentity, MAGIC};
use hemi_io::probe::{hex, superblock_at_end};
use hemi_units::Size;

pub mod apart;
mod choose;
mod devices;
mod report;
mod udev;

pub use choose::{Chosen, Contradiction, Missing, legs_of};
pub use report::{VolumeFound, volumes};
pub use udev::udev_properties;

/// Longest wait for the devices to answer, longer than a disk takes to spin up.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The legs of hemi volumes on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// All legs, each with the device by which to open it. A leg that is listed twice exists twice: as a disk
    /// and its copy, or as two paths to one disk.
    pub legs: Vec<FoundLeg>,
    /// All standbys.
    #[serde(default)]
    pub standbys: Vec<FoundStandby>,
    /// Devices and files that may hold a leg but could not be read.
    pub others: Vec<Other>,
    /// Devices and files that were scanned.
    pub looked_at: Vec<PathBuf>,
}

/// A leg, as described by its newest superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLeg {
    /// Its device, file or stripe.
    pub spec: LegSpec,
    /// The volume's name, or the beginning of its id if it has none.
    pub name: String,
    /// The volume's id in UUID notation.
    pub volume: String,
    /// The volume's size in bytes.
    pub size_bytes: u64,
    /// Its slot.
    pub leg: u8,
    /// Its id.
    pub id: String,
    /// The superblock's sequence.
    pub sequence: u64,
    /// True if it is being served or was not closed cleanly.
    pub open: bool,
    /// The volume's legs, as known to this one.
    pub members: Vec<Member>,
}

/// A standby, as described by its superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundStandby {
    /// Its device, file or stripe.
    pub spec: LegSpec,
    /// The name of the volume it waits for; empty if it has none.
    pub name: String,
    /// The id of that volume in UUID notation.
    pub volume: String,
}

/// A leg of a volume, as known to one of its legs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its slot.
    pub leg: u8,
    /// Its id.
    pub id: String,
    /// True if it is out.
    pub out: bool,
    /// True if it was detached.
    pub detached: bool,
    /// The path or NBD URI by which it was last opened; empty if unknown.
    pub path: String,
    /// Its device in words: path, model and serial number, as far as known.
    pub last: String,
}

/// A device or file that may hold a leg but could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// Its path.
    pub path: PathBuf,
    /// The kind of problem.
    pub state: OtherState,
    /// The problem, in words that follow the path.
    pub reason: String,
}

/// A reason why no leg could be read from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherState {
    /// It did not answer in time.
    Silent,
    /// It could not be opened or read.
    Unreadable,
    /// It belongs to a leg, but its metadata cannot be used.
    Unusable,
    /// It belongs to a stripe whose other devices were not found.
    IncompleteStripe,
}

/// The content read from a candidate.
#[derive(Clone, Debug)]
enum Reading {
    /// A leg.
    Leg(Box<FoundLeg>),
    /// A standby.
    Standby(FoundStandby),
    /// A part of a striped leg.
    Member(MemberIdentity),
    /// Content of hemi that cannot be used, or a candidate that could not be read.
    Other(OtherState, String),
    /// No content of hemi.
    Nothing,
}

/// Reads a candidate's superblock, or its identity as a member of a stripe.
fn read_candidate(spec: &LegSpec) -> Reading {
    let unreadable = |error: String| Reading::Other(OtherState::Unreadable, error);
    let leg = match crate::inspect::open(spec) {
        Ok(leg) => leg,
        Err(error) => return unreadable(error.to_string()),
    };
    let head = match leg.head() {
        Ok(head) => head,
        Err(error) => return unreadable(format!("cannot be read: {error}")),
    };
    if let (LegSpec::Path(path), Some(block)) = (spec, head.first_chunk::<IDENTITY_BYTES>())
        && block.starts_with(&MAGIC)
    {
        return match MemberIdentity::decode(block, path) {
            Ok(identity) => Reading::Member(identity),
            Err(error) => Reading::Other(OtherState::Unusable, error.to_string()),
        };
    }
    match newest_of(&head) {
        Ok(superblock) => Reading::Leg(Box::new(FoundLeg::new(spec.clone(), &superblock))),
        Err(SuperblockError::Standby) => match Standby::of(&head) {
            Some(standby) => Reading::Standby(FoundStandby {
                spec: spec.clone(),
                name: standby.name.as_str().to_owned(),
                volume: hex(standby.volume_id),
            }),
            None => Reading::Nothing,
        },
        Err(SuperblockError::Blank | SuperblockError::NotHemi) => read_end(spec, leg.size()),
        Err(error) => Reading::Other(OtherState::Unusable, error.to_string()),
    }
}

/// Reads the end of a candidate that has no leg at its beginning. It may be a disk with data that was adopted
/// as a leg.
fn read_end(spec: &LegSpec, size: u64) -> Reading {
    let LegSpec::Path(path) = spec else { return Reading::Nothing };
    match File::open(path).and_then(|file| superblock_at_end(&file, size)) {
        Ok(Some(superblock)) => {
            Reading::Leg(Box::new(FoundLeg::new(LegSpec::End(path.clone()), &superblock)))
        }
        Ok(None) => Reading::Nothing,
        Err(error) => Reading::Other(OtherState::Unreadable, format!("cannot be read: {error}")),
    }
}

impl FoundLeg {
    fn new(spec: LegSpec, superblock: &Superblock) -> FoundLeg {
        let members = superblock.legs.iter().zip(0u8..).filter_map(|(record, leg)| {
            let last = &superblock.descriptions[usize::from(leg)];
            (record.state != Membership::Empty).then(|| Member {
                leg,
                id: hex(record.id),
                out: record.state != Membership::In,
                detached: record.state == Membership::Out(OutReason::Detached),
                path: last.path().to_owned(),
                last: last.to_string(),
            })
        });
        FoundLeg {
            spec,
            name: volume_name(superblock),
            volume: hex(superblock.volume_id),
            size_bytes: superblock.layout.volume_bytes(),
            leg: superblock.leg.0,
            id: hex(superblock.own_record().id),
            sequence: superblock.sequence,
            open: superblock.open,
            members: members.collect(),
        }
    }

    /// Returns the name, id and size of the volume, as shown in messages.
    pub fn volume_text(&self) -> String {
        format!("{:?} ({}, {})", self.name, self.volume, Size(self.size_bytes))
    }
}

/// Scans the machine's block devices and `places`, except for the paths in `except`. May leave hanging
/// threads behind, see [`apart`].
fn look(places: &[PathBuf], except: &[PathBuf]) -> Scan {
    let mut scan = Scan::default();
    let mut candidates = devices::candidates(places, &mut scan.others);
    candidates.retain(|candidate| !except.contains(&candidate.path));
    scan.looked_at = candidates.iter().map(|candidate| candidate.path.clone()).collect();
    let specs = candidates.iter().map(|candidate| LegSpec::Path(candidate.path.clone()));
    let readings = read_all(specs.collect());
    let (mut legs, mut standbys, mut members) = (Vec::new(), Vec::new(), Vec::new());
    for (candidate, reading) in candidates.into_iter().zip(readings) {
        match reading {
            Reading::Leg(leg) => legs.push((candidate, leg)),
            Reading::Standby(standby) => standbys.push((candidate, standby)),
            Reading::Member(member) => members.push((candidate, member)),
            Reading::Other(state, reason) => {
                scan.others.push(Other { path: candidate.path, state, reason });
            }
            Reading::Nothing => {}
        }
    }
    devices::keep_uppermost(&mut legs, |leg| leg.id.clone());
    devices::keep_uppermost(&mut standbys, |standby| standby.volume.clone());
    devices::keep_uppermost(&mut members, |member| (member.stripe, member.member));
    scan.standbys = standbys.into_iter().map(|(_, standby)| standby).collect();
    scan.legs = legs.into_iter().map(|(_, leg)| *leg).collect();
    let stripes = stripes_of(members, &mut scan.others);
    for (spec, reading) in stripes.clone().into_iter().zip(read_all(stripes)) {
        match reading {
            Reading::Leg(leg) => scan.legs.push(*leg),
            Reading::Standby(standby) => scan.standbys.push(standby),
            Reading::Other(state, reason) => {
                let reason = format!("{reason} (of {spec})");
                let path = spec.paths()[0].clone();
                scan.others.push(Other { path, state, reason });
            }
            Reading::Member(_) | Reading::Nothing => {}
        }
    }
    scan
}

/// Reads candidates in parallel, for at most [`PATIENCE`].
fn read_all(specs: Vec<LegSpec>) -> Vec<Reading> {
    let silent = format!("did not answer within {} s", PATIENCE.as_secs());
    let mut readings = vec![Reading::Other(OtherState::Silent, silent); specs.len()];
    let (sender, answers) = mpsc::channel();
    for (index, spec) in specs.into_iter().enumerate() {
        let sender = sender.clone();
        let read = move || {
            // An error means that nobody waits for the answer any more.
            let _ = sender.send((index, read_candidate(&spec)));
        };
        if let Err(error) = std::thread::Builder::new().spawn(read) {
            let reason = format!("cannot be read: no thread for it: {error}");
            readings[index] = Reading::Other(OtherState::Unreadable, reason);
        }
    }
    drop(sender);
    let deadline = Instant::now() + PATIENCE;
    // The loop ends early once every thread has answered and ended.
    while let Ok((index, reading)) =
        answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        readings[index] = reading;
    }
    readings
}

/// Assembles stripes from their members. Stripes with missing or duplicate members go to `others`.
fn stripes_of(members: Vec<(Candidate, MemberIdentity)>, others: &mut Vec<Other>) -> Vec<LegSpec> {
    let mut stripes: BTreeMap<[u8; 16], Vec<(Candidate, MemberIdentity)>> = BTreeMap::new();
    for (candidate, member) in members {
        stripes.entry(member.stripe).or_default().push((candidate, member));
    }
    let mut specs = Vec::new();
    for mut found in stripes.into_values() {
        found.sort_by_key(|(_, member)| member.member);
        let (count, chunk) = (found[0].1.members, Size(found[0].1.chunk));
        let whole = found.iter().map(|(_, member)| member.member).eq(0..count);
        let paths = found.iter().map(|(candidate, _)| candidate.path.clone());
        if whole {
            specs.push(LegSpec::Stripe { paths: paths.collect(), chunk });
            continue;
        }
        let places = found.iter().map(|(_, member)| member.member.to_string());
        let places = places.collect::<Vec<_>>().join(", ");
        let state = OtherState::IncompleteStripe;
        others.extend(paths.map(|path| Other {
            path,
            state,
            reason: format!(
                "belongs to a stripe of {count} devices, of which those at the places {places} \
                 were found (from 0)"
            ),
        }));
    }
    specs
}

#[cfg(test)]
mod tests;
