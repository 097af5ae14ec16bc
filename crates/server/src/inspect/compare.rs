//! A comparison of what several legs' superblocks say of each other.

use std::collections::BTreeSet;
use std::fmt;

use hemi_engine::format::{Membership, Superblock};
use serde::Serialize;

use super::{InspectError, LedgerReport, LegReport, inspect, ledger, short};
use crate::config::place::Place;

/// A report on several legs and how they relate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The legs as named.
    pub legs: Vec<LegReport>,
    /// The ledger of each volume that they are legs of.
    pub ledgers: Vec<LedgerReport>,
    /// Findings about them together, in sentences; empty for a single leg that names no other.
    pub together: Vec<String>,
}

/// Inspects legs, compares them, and looks for their volumes' ledgers in `place`.
///
/// # Errors
/// The error of the first leg that could not be opened.
pub fn inspect_all(specs: &[String], place: &Place) -> Result<Inspection, InspectError> {
    let legs: Vec<_> = specs.iter().map(|spec| inspect(spec)).collect::<Result<_, _>>()?;
    let ledgers = ledger::inspect(&legs, place);
    let together = compare(&legs);
    Ok(Inspection { legs, ledgers, together })
}

/// A leg that has a superblock.
struct Known<'a> {
    path: &'a str,
    superblock: &'a Superblock,
}

pub(super) fn compare(legs: &[LegReport]) -> Vec<String> {
    let known: Vec<Known<'_>> = legs
        .iter()
        .filter_map(|leg| {
            let superblock = leg.decoded.as_ref()?;
            Some(Known { path: &leg.path, superblock })
        })
        .collect();
    let mut sentences = Vec::new();
    for (index, leg) in known.iter().enumerate() {
        for other in &known[..index] {
            sentences.extend(pair(other, leg));
        }
    }
    let volumes: BTreeSet<_> = known.iter().map(|leg| leg.superblock.volume_id).collect();
    for volume in volumes {
        let members: Vec<_> =
            known.iter().filter(|leg| leg.superblock.volume_id == volume).collect();
        sentences.extend(missing(&members));
        sentences.extend(said_of_each_other(&members));
    }
    sentences
}

/// Describes how the histories of two legs differ; `None` if they share one.
fn pair(one: &Known<'_>, other: &Known<'_>) -> Option<String> {
    let (a, b) = (one.superblock, other.superblock);
    let paths = format!("{} and {}", one.path, other.path);
    if a.volume_id != b.volume_id {
        return Some(format!("{paths} are legs of different volumes"));
    }
    if a.own_record().id == b.own_record().id {
        return Some(format!(
            "{paths} are the same leg: one is a copy of the other and must not be served beside it"
        ));
    }
    if a.leg == b.leg {
        return Some(format!("{paths} both say that they are leg {}", a.leg.0));
    }
    if a.generation == b.generation {
        return None;
    }
    let (a_is_past, b_is_past) =
        (b.ancestry.find(a.generation).is_some(), a.ancestry.find(b.generation).is_some());
    Some(match (a_is_past, b_is_past) {
        (true, false) => format!(
            "{} is older: it stopped in generation {}, from which {} went on",
            one.path,
            short(a.generation),
            other.path
        ),
        (false, true) => format!(
            "{} is older: it stopped in generation {}, from which {} went on",
            other.path,
            short(b.generation),
            one.path
        ),
        _ => format!(
            "{paths} have forked: each was served without the other (generations {} and {})",
            short(a.generation),
            short(b.generation)
        ),
    })
}

/// Names the legs that the newest superblock lists and that are not among these.
fn missing(members: &[&Known<'_>]) -> Option<String> {
    let newest = members.iter().max_by_key(|leg| leg.superblock.sequence)?;
    let here: BTreeSet<_> = members.iter().map(|leg| leg.superblock.own_record().id).collect();
    let absent: Vec<_> = newest
        .superblock
        .legs
        .iter()
        .zip(0u8..)
        .filter(|(record, _)| record.state != Membership::Empty && !here.contains(&record.id))
        .map(|(record, leg)| {
            let state = if record.state == Membership::In { "in" } else { "out" };
            format!("leg {leg} ({state}, id {})", short(record.id))
        })
        .collect();
    if absent.is_empty() {
        return None;
    }
    Some(format!("not among these, by {}: {}", newest.path, absent.join(", ")))
}

/// Names legs that others mark out although they count themselves in, or that others do not know.
fn said_of_each_other(members: &[&Known<'_>]) -> Vec<String> {
    let mut sentences = Vec::new();
    for leg in members {
        let id = leg.superblock.own_record().id;
        for other in members {
            let record = other.superblock.legs.iter().find(|record| record.id == id);
            match record.map(|record| record.state) {
                Some(Membership::Out(_)) if leg.superblock.own_record().state == Membership::In => {
                    sentences.push(format!("{} marks {} out", other.path, leg.path));
                }
                None => sentences.push(format!("{} does not know {}", other.path, leg.path)),
                _ => {}
            }
        }
    }
    sentences
}

impl fmt::Display for Inspection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for leg in &self.legs {
            writeln!(formatter, "{leg}")?;
        }
        for ledger in &self.ledgers {
            writeln!(formatter, "{ledger}")?;
        }
        for sentence in &self.together {
            writeln!(formatter, "{sentence}")?;
        }
        Ok(())
    }
}
