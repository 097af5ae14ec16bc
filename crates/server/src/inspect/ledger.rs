//! The ledger beside the legs: its content, its validity, and the use that the next start makes of it.
//!
//! It is read without a lock, also while hemi serves the volume. If its parts do not agree then, it is
//! reported as changing, not as damaged.

use hemi_units::prose::counted;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use hemi_engine::format::ledger::{FoundLedger, LedgerError, boot_of};
use hemi_engine::format::{Id, Membership, Superblock};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::{LegImage, Opening, Outlived, Problem, Refusal, assess_outlived};
use serde::Serialize;

use super::report::{in_use_line, line};
use super::{LegReport, read_metadata};
use crate::config::place::Place;
use crate::ledger::{LedgerFileError, boot_id, look};
use hemi_io::probe::hex;
use hemi_units::Size;

/// The state in which a ledger's file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerFound {
    /// It does not exist.
    Absent,
    /// It belongs to the volume, and every record in it is sound.
    Sound,
    /// It is in use, and the parts that were read do not agree.
    Changing,
    /// Some of its content is not what was stored.
    Damaged,
    /// It is not a ledger of this volume and this version of hemi.
    Foreign,
    /// Another user could have written it.
    Untrusted,
    /// It could not be read.
    Unreadable,
}

/// The regions for which a leg is the authority by the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerAuthority {
    /// The leg.
    pub leg: u8,
    /// Dirty regions for which it is the authority, touched or armed.
    pub regions: u64,
    /// The touched ones: they may have been written since every whole leg flushed them.
    pub touched: u64,
}

/// The content of a sound ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerContent {
    /// True if it is of this boot of the machine. A ledger of another boot no longer counts.
    pub of_this_boot: bool,
    /// Dirty regions by their authority.
    pub authorities: Vec<LedgerAuthority>,
}

/// The use that the next start of the volume makes of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum NextStart {
    /// The volume is being served.
    Served,
    /// It goes on by the ledger.
    ByLedger {
        /// Bytes compared on each leg that is not the authority for them.
        compares_bytes: u64,
    },
    /// It goes by the legs alone.
    ByLegs {
        /// True if the legs relied on a ledger that ended with an earlier boot of the machine: writes that
        /// were acknowledged but not flushed then may be lost.
        restarted: bool,
        /// Bytes compared on each leg that is not the authority for them.
        compares_bytes: u64,
    },
    /// It is refused.
    Refused {
        /// The reason.
        reason: String,
        /// True if it goes by the legs instead with `--accept-loss`.
        accept_loss: bool,
    },
    /// These legs do not tell.
    Unknown {
        /// The reason.
        reason: String,
    },
}

/// The report on a volume's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerReport {
    /// The volume's id.
    pub volume: String,
    /// Its name, possibly empty.
    pub name: String,
    /// The paths where a ledger was looked for.
    pub looked_at: Vec<PathBuf>,
    /// The file; `null` if there is none.
    pub path: Option<PathBuf>,
    /// The state in which it was found.
    pub state: LedgerFound,
    /// The problem with it, if any.
    pub problem: Option<String>,
    /// True if a running hemi holds it.
    pub in_use: bool,
    /// The process that holds it, if the system tells.
    pub used_by: Option<u32>,
    /// Its content, if it is sound.
    pub content: Option<LedgerContent>,
    /// The use that the next start makes of it.
    pub next_start: NextStart,
}

/// Inspects the ledgers of the volumes that these legs belong to.
pub(super) fn inspect(legs: &[LegReport], place: &Place) -> Vec<LedgerReport> {
    let superblocks = legs.iter().filter_map(|leg| leg.decoded.as_ref());
    let volumes: BTreeSet<Id> = superblocks.map(|superblock| superblock.volume_id).collect();
    volumes.into_iter().filter_map(|volume| inspect_one(volume, legs, place)).collect()
}

fn inspect_one(volume: Id, legs: &[LegReport], place: &Place) -> Option<LedgerReport> {
    let of_volume = |leg: &&LegReport| {
        leg.decoded.as_ref().is_some_and(|superblock| superblock.volume_id == volume)
    };
    let members: Vec<&LegReport> = legs.iter().filter(of_volume).collect();
    let superblocks = members.iter().filter_map(|leg| leg.decoded.as_ref());
    let newest = superblocks.max_by_key(|superblock| superblock.sequence)?;
    let looked = look(place, volume);
    let (path, content) = match looked.found {
        None => (None, Ok(None)),
        Some((path, Ok(bytes))) => (Some(path), Ok(Some(bytes))),
        Some((path, Err(error))) => (Some(path), Err(error)),
    };
    let boot = boot_id();
    let this_boot = boot.as_ref().copied().unwrap_or_default();
    let read = Content::of(newest, &content, this_boot);
    let in_use = looked.in_use;
    let torn = matches!(read.state, LedgerFound::Damaged | LedgerFound::Foreign);
    let served = in_use || members.iter().any(|leg| leg.in_use);
    let next_start = match (&boot, &content) {
        _ if served => NextStart::Served,
        (Err(error), _) => NextStart::Unknown { reason: error.to_string() },
        (Ok(boot), Err(error)) if newest.ledger.is_some_and(|mark| mark.boot == *boot) => {
            NextStart::Refused { reason: error.to_string(), accept_loss: false }
        }
        (Ok(boot), content) => {
            let bytes = content.as_ref().ok().and_then(|bytes| bytes.as_deref());
            next_start(&members, newest, *boot, bytes)
        }
    };
    Some(LedgerReport {
        volume: hex(volume),
        name: newest.name.as_str().into(),
        looked_at: looked.paths,
        path,
        state: if in_use && torn { LedgerFound::Changing } else { read.state },
        problem: read.problem.filter(|_| !(in_use && torn)),
        in_use,
        used_by: looked.used_by,
        content: read.content,
        next_start,
    })
}

/// A ledger as judged by its bytes alone.
struct Content {
    state: LedgerFound,
    problem: Option<String>,
    content: Option<LedgerContent>,
}

impl Content {
    fn of(
        superblock: &Superblock,
        found: &Result<Option<Vec<u8>>, LedgerFileError>,
        this_boot: Id,
    ) -> Content {
        let bad = |state, problem: String| Content { state, problem: Some(problem), content: None };
        let bytes = match found {
            Ok(None) => {
                return Content { state: LedgerFound::Absent, problem: None, content: None };
            }
            Ok(Some(bytes)) => bytes,
            Err(error @ LedgerFileError::Foreign { .. }) => {
                return bad(LedgerFound::Untrusted, error.to_string());
            }
            Err(error) => return bad(LedgerFound::Unreadable, error.to_string()),
        };
        let Some(boot) = boot_of(bytes) else {
            return bad(LedgerFound::Foreign, LedgerError::Foreign.to_string());
        };
        let (layout, volume) = (&superblock.layout, superblock.volume_id);
        let regions =
            FoundLedger::read(bytes, layout, volume, boot).and_then(|found| found.regions());
        match regions {
            Ok(regions) => {
                let mut authorities: Vec<LedgerAuthority> = Vec::new();
                for (entry, touched) in regions.into_iter().filter(|(entry, _)| entry.is_dirty()) {
                    let leg = entry.authority().0;
                    let place = authorities.partition_point(|known| known.leg < leg);
                    if authorities.get(place).is_none_or(|known| known.leg != leg) {
                        authorities.insert(place, LedgerAuthority { leg, regions: 0, touched: 0 });
                    }
                    authorities[place].regions += 1;
                    authorities[place].touched += u64::from(touched);
                }
                let content = LedgerContent { of_this_boot: boot == this_boot, authorities };
                Content { state: LedgerFound::Sound, problem: None, content: Some(content) }
            }
            Err(error @ LedgerError::Foreign) => bad(LedgerFound::Foreign, error.to_string()),
            Err(error) => bad(LedgerFound::Damaged, error.to_string()),
        }
    }
}

/// Lets recovery decide as a start would, from these legs and these bytes of a ledger. Detached legs are left
/// out, as recovery requires. Of a volume that was closed only the superblocks count, so its tables, which
/// may be large, are not read into memory.
fn next_start(
    members: &[&LegReport],
    newest: &Superblock,
    boot: Id,
    ledger: Option<&[u8]>,
) -> NextStart {
    let is_detached = |leg: &LegReport| {
        let own = leg.decoded.as_ref().map(|superblock| superblock.own_record().state);
        own == Some(Membership::Out(OutReason::Detached))
    };
    let members: Vec<&LegReport> =
        members.iter().filter(|leg| !is_detached(leg)).copied().collect();
    if members.is_empty() {
        return NextStart::Unknown { reason: "they are detached from the volume".into() };
    }
    if !newest.open {
        return closed(&members, newest);
    }
    let metadata: Vec<Vec<u8>> =
        members.iter().map(|leg| read_metadata(&leg.path, &newest.layout)).collect();
    let images: Vec<LegImage<'_>> = metadata.iter().map(|bytes| LegImage { bytes }).collect();
    match assess_outlived(&images, &Outlived { boot, ledger, accept_loss: false }) {
        Ok(opening) => {
            let compares_bytes = compared(&opening);
            let restarted = opening.superblock.ledger.is_some_and(|mark| mark.boot != boot);
            match opening.ledger {
                Some(_) => NextStart::ByLedger { compares_bytes },
                None => NextStart::ByLegs { restarted, compares_bytes },
            }
        }
        Err(refusal) => {
            let reason = words(&refusal, &members);
            let by_ledger = |problem: &Problem| matches!(problem, Problem::Ledger { .. });
            if refusal.problems.iter().all(by_ledger) {
                NextStart::Refused { reason, accept_loss: true }
            } else {
                NextStart::Unknown { reason }
            }
        }
    }
}

/// Returns the use that a start makes of legs that were closed: all legs that are in must be present.
fn closed(members: &[&LegReport], newest: &Superblock) -> NextStart {
    let is_here = |id: Id| {
        let own = |leg: &&LegReport| leg.decoded.as_ref().map(|own| own.own_record().id);
        members.iter().any(|leg| own(leg) == Some(id))
    };
    let mut missing = newest.legs.iter().zip(0u8..);
    match missing.find(|(leg, _)| leg.state == Membership::In && !is_here(leg.id)) {
        Some((_, leg)) => NextStart::Unknown { reason: format!("leg {leg} is not among them") },
        None => NextStart::ByLegs { restarted: false, compares_bytes: 0 },
    }
}

/// Returns the number of bytes that a start with this opening compares.
fn compared(opening: &Opening) -> u64 {
    let superblock = &opening.superblock;
    let is_in = superblock.legs.iter().filter(|record| record.state == Membership::In).count();
    if is_in < 2 {
        return 0;
    }
    let touched = |region: u32| match &opening.ledger {
        Some(state) => state.touched[region as usize],
        None => opening.table[region as usize].is_dirty(),
    };
    let regions = (0..superblock.layout.region_count()).filter(|region| touched(*region));
    regions.map(|region| superblock.layout.region_extent(region).bytes()).sum()
}

fn words(refusal: &Refusal, members: &[&LegReport]) -> String {
    let names: Vec<&str> = members.iter().map(|leg| leg.path.as_str()).collect();
    refusal.describe(&names).replace('\n', "; ")
}

impl Display for LedgerReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => writeln!(f, "ledger of volume {}", self.volume)?,
            name => writeln!(f, "ledger of volume {name:?}")?,
        }
        match &self.path {
            Some(path) => line(f, "file", format_args!("{}", path.display()))?,
            None => {
                let places: Vec<String> =
                    self.looked_at.iter().map(|path| path.display().to_string()).collect();
                line(f, "file", format_args!("none at {}", places.join(", nor at ")))?;
            }
        }
        in_use_line(f, self.in_use, self.used_by)?;
        match (self.state, &self.problem) {
            (LedgerFound::Absent, _) => {}
            (LedgerFound::Changing, _) => {
                line(f, "state", format_args!("changing: it was written to while it was read"))?;
            }
            (_, Some(problem)) => line(f, "STATE", format_args!("{problem}"))?,
            (_, None) => {}
        }
        if let Some(content) = &self.content {
            content.write(f)?;
        }
        line(f, "next start", format_args!("{}", self.next_start))
    }
}

impl LedgerContent {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let boot = if self.of_this_boot {
            "sound, of this boot of the machine"
        } else {
            "sound, of another boot of the machine: it no longer counts"
        };
        line(f, "state", format_args!("{boot}"))?;
        if self.authorities.is_empty() {
            line(f, "dirty", format_args!("nothing"))?;
        }
        for (index, authority) in self.authorities.iter().enumerate() {
            let subject = if index == 0 { "dirty" } else { "" };
            let LedgerAuthority { leg, regions, touched } = authority;
            line(
                f,
                subject,
                format_args!(
                    "leg {leg} decides {}, {touched} of them touched",
                    counted(*regions, "region")
                ),
            )?;
        }
        Ok(())
    }
}

impl Display for NextStart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let compares = |bytes: &u64| match bytes {
            0 => "compares nothing".to_owned(),
            bytes => format!("compares {}", Size(*bytes)),
        };
        match self {
            NextStart::Served => f.write_str("not yet: the volume is being served"),
            NextStart::ByLedger { compares_bytes } => {
                write!(f, "goes on with the ledger, and {}", compares(compares_bytes))
            }
            NextStart::ByLegs { restarted: false, compares_bytes } => {
                let compares = compares(compares_bytes);
                write!(f, "goes by the legs, which rely on no ledger, and {compares}")
            }
            NextStart::ByLegs { restarted: true, compares_bytes } => write!(
                f,
                "goes by the legs, since the machine was restarted, and {}; acknowledged writes \
                 that were not flushed before may be lost",
                compares(compares_bytes)
            ),
            NextStart::Refused { reason, accept_loss } => {
                let without = if *accept_loss { " without --accept-loss" } else { "" };
                write!(f, "is refused{without}: {reason}")
            }
            NextStart::Unknown { reason } => {
                write!(f, "cannot be told from these legs: {reason}")
            }
        }
    }
}
