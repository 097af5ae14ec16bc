//! Things at the path of a leg that is out. They do not keep the volume down.
//!
//! A leg that is out by the records of the others decides nothing, and the volume is served without it. So
//! whatever is at its path is passed over: a blank disk in its place, another volume's leg, a device that is
//! too short or read-only, a mount that has lost its server. A leg that is in is needed as ever.

use hemi_engine::format::{Membership, Standby, Superblock};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::{self, Opening, Problem, Refusal};

use super::candidate::{Candidate, State, Unfit};
use super::{is_path, present};
use crate::create::{Joined, unfit};
use crate::serve::ServeError;
use hemi_io::probe::hex;

/// Returns the candidates that are not the legs at whose paths they are, and by another's record those are out.
/// `refused` is the error for the case that one is needed after all.
pub(super) fn set_aside(
    refusal: &Refusal,
    candidates: &[Candidate],
    refused: impl Fn() -> String,
) -> Vec<(usize, Unfit)> {
    let known: Vec<(usize, Option<Superblock>)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(index, one)| Some((index, recovery::newest_of(one.metadata()?).ok())))
        .collect();
    let mut found = Vec::new();
    for (image, (index, own)) in known.iter().enumerate() {
        let is_detached = |problem: &Problem| matches!(problem, Problem::Stranger { image: of, detached: true } if *of == image);
        if refusal.problems.iter().any(is_detached) {
            found.push((*index, "it was detached from the volume".to_owned()));
            continue;
        }
        let is_out_elsewhere = known.iter().filter_map(|(_, other)| other.as_ref()).any(|other| {
            own.as_ref().is_none_or(|own| own.volume_id != other.volume_id)
                && out_slot(other, &candidates[*index]).is_some()
        });
        let problem = refusal.problems.iter().find_map(|problem| match problem {
            Problem::NotALeg { image: of, error } if *of == image => Some(error.to_string()),
            Problem::ForeignVolume { .. } => own
                .as_ref()
                .map(|own| format!("it is a leg of another volume, {:?}", own.name.as_str())),
            _ => None,
        });
        if let Some(why) = problem.filter(|_| is_out_elsewhere) {
            found.push((*index, why));
        }
    }
    let unfit = |(index, why)| {
        let error = ServeError::Refused(refused());
        (index, Unfit { why, error, passes: false })
    };
    found.into_iter().map(unfit).collect()
}

/// Sets aside the standbys of a volume of which a leg is there.
pub(super) fn set_aside_standbys(candidates: &mut [Candidate]) {
    let volumes: Vec<_> = present(candidates)
        .filter_map(|(.., bytes)| recovery::newest_of(bytes).ok())
        .map(|superblock| superblock.volume_id)
        .collect();
    for candidate in candidates {
        let standby = candidate.metadata().and_then(Standby::of);
        if standby.is_some_and(|standby| volumes.contains(&standby.volume_id)) {
            candidate.state = State::NoLeg("it is a standby");
        }
    }
}

/// Sets aside drives that are legs no more: another leg has their slot, a standby or one that an operator put
/// there. One that was detached is set aside here if a scan found it; if it was named, [`set_aside`] tells the
/// way back. Returns true if it set aside any and a leg remains.
pub(super) fn set_aside_strangers(refusal: &Refusal, candidates: &mut [Candidate]) -> bool {
    let present = candidates.iter_mut().filter(|candidate| candidate.is_present());
    let (strangers, others): (Vec<_>, Vec<_>) = present.enumerate().partition(|(index, one)| {
        let is_found = one.wanted.is_some();
        refusal.problems.iter().any(|problem| match problem {
            Problem::Stranger { image, detached } => image == index && (is_found || !detached),
            _ => false,
        })
    });
    if strangers.is_empty() || others.is_empty() {
        return false;
    }
    for (_, stranger) in strangers {
        stranger.state = State::NoLeg("it is a leg no more");
    }
    true
}

/// Sets aside legs that are out and cannot hold the volume. Returns true if it set aside any.
pub(super) fn set_aside_short(opening: &Opening, candidates: &mut [Candidate]) -> bool {
    let superblock = &opening.superblock;
    let to = Joined {
        volume: superblock.volume_id,
        layout: superblock.layout,
        block_bytes: superblock.block_bytes,
    };
    let mut is_any = false;
    let mut slots = opening.slots.iter();
    for candidate in candidates {
        let State::Present { leg, .. } = &candidate.state else { continue };
        let Some(slot) = slots.next() else { continue };
        if !matches!(superblock.legs[slot.index()].state, Membership::Out(_)) {
            continue;
        }
        let Some(why) = unfit(leg, &to) else { continue };
        let error = ServeError::Refused(format!("leg {}: {why}", candidate.config.label()));
        candidate.state = State::Unfit(Unfit { why, error, passes: false });
        is_any = true;
    }
    is_any
}

/// Returns the error of a candidate that could not be opened and that no other leg knows to be out.
pub(super) fn needed(candidates: &mut [Candidate]) -> Option<ServeError> {
    let superblocks: Vec<Superblock> =
        present(candidates).filter_map(|(.., bytes)| recovery::newest_of(bytes).ok()).collect();
    let is_needed = |one: &&mut Candidate| {
        matches!(one.state, State::Unfit(_))
            && superblocks.iter().all(|superblock| out_slot(superblock, one).is_none())
    };
    candidates.iter_mut().find(is_needed)?.take_error()
}

/// Checks that what was set aside is out by the volume that opens.
///
/// # Errors
/// The error of one that is needed.
pub(super) fn check(opening: &Opening, candidates: &mut [Candidate]) -> Result<(), ServeError> {
    let is_needed = |one: &&mut Candidate| {
        matches!(one.state, State::Unfit(_)) && out_slot(&opening.superblock, one).is_none()
    };
    candidates.iter_mut().find(is_needed).and_then(Candidate::take_error).map_or(Ok(()), Err)
}

/// Logs what was passed over, and the way back.
pub(super) fn tell(opening: &Opening, candidates: &[Candidate]) {
    for candidate in candidates {
        let label = candidate.config.label();
        if let State::NoLeg(why) = candidate.state {
            tracing::info!(drive = label, why, "left out: it is no leg of the volume");
        }
        let State::Unfit(Unfit { why, .. }) = &candidate.state else { continue };
        let Some((slot, reason)) = out_slot(&opening.superblock, candidate) else { continue };
        let way_back = match reason {
            OutReason::Detached => format!("hemi leg attach {label} --wipe fills it again"),
            _ => format!(
                "hemi leg replace {slot} {label} makes it that leg again; what it holds is destroyed only \
                 with --wipe"
            ),
        };
        tracing::warn!(
            leg = label,
            slot,
            why,
            way_back,
            "a leg that is out cannot be used: the volume is served without it"
        );
    }
}

/// Returns the slot of the leg that a candidate is named after, and the reason why it is out, if it is out by
/// this superblock.
fn out_slot(superblock: &Superblock, candidate: &Candidate) -> Option<(u8, OutReason)> {
    let legs = (0..).zip(superblock.legs.iter().zip(&superblock.descriptions));
    legs.into_iter().find_map(|(slot, (record, last))| {
        let Membership::Out(reason) = record.state else { return None };
        let is_named = match &candidate.wanted {
            Some(wanted) => *wanted == hex(record.id),
            None => is_path(&candidate.config, last.path().as_ref()),
        };
        let own = candidate.id().is_some_and(|id| id == hex(record.id));
        (is_named || own).then_some((slot, reason))
    })
}
