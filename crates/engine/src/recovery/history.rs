//! Decides which of the legs given belong together, and which of them tells the newest of the set of
//! legs: volumes, generations and ancestry, before any region is looked at.

use alloc::vec::Vec;

use super::{LegImage, Problem, block_at, newest_of};
use crate::format::superblock::SuperblockError;
use crate::format::{Layout, Membership, Superblock};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::OutReason;

/// Returns true if history `a` includes `b`'s present: `a` is the same generation and not older, or
/// a later one that came out of it.
///
/// A later one that branched off before `b`'s present (`a` was promoted meanwhile) does so
/// only as long as `b` still counts `a`'s leg as in: once it is out, `b`'s leg goes on alone
/// without a generation of its own.
fn follows(a: &Superblock, b: &Superblock) -> bool {
    if a.generation == b.generation {
        return a.sequence >= b.sequence;
    }
    let Some(branch) = a.ancestry.find(b.generation) else { return false };
    let there = b.legs[a.leg.index()];
    let counts_it = there.state == Membership::In && there.id == a.own_record().id;
    b.sequence <= branch.sequence || counts_it
}

pub(super) fn superblocks_of(images: &[LegImage]) -> Result<Vec<Superblock>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut superblocks: Vec<Superblock> = Vec::new();
    for (image, leg) in images.iter().enumerate() {
        match newest_of(leg.bytes) {
            Ok(superblock) => superblocks.push(superblock),
            Err(error) => problems.push(Problem::NotALeg { image, error }),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for image in 0..superblocks.len() {
        let (first, this) = (&superblocks[0], &superblocks[image]);
        if this.volume_id != first.volume_id {
            let name = this.name.as_str().into();
            let expected = first.name.as_str().into();
            problems.push(Problem::ForeignVolume { image, name, expected });
        }
        for (other, before) in superblocks[..image].iter().enumerate() {
            let same = before.volume_id == this.volume_id
                && before.own_record().id == this.own_record().id;
            if same {
                problems.push(Problem::SameLeg { image: other, other: image });
            }
        }
    }
    if problems.is_empty() { Ok(superblocks) } else { Err(problems) }
}

/// The image whose superblock includes every other's history.
pub(super) fn newest_history(superblocks: &[Superblock]) -> Result<usize, Problem> {
    let leads = |i: usize| superblocks.iter().all(|other| follows(&superblocks[i], other));
    if let Some(newest) = (0..superblocks.len()).find(|&i| leads(i)) {
        return Ok(newest);
    }
    for image in 0..superblocks.len() {
        for other in image + 1..superblocks.len() {
            let (a, b) = (&superblocks[image], &superblocks[other]);
            if !follows(a, b) && !follows(b, a) {
                return Err(Problem::Fork { image, other });
            }
        }
    }
    // A cycle in the ancestries: no honest history makes one.
    Err(Problem::Fork { image: 0, other: superblocks.len() - 1 })
}

/// Returns the contradiction if a leg that counts itself in calls the volume by another name than the newest
/// superblock does. Names never change, so one of the two was tampered with.
pub(super) fn renamed(superblocks: &[Superblock], newest: usize) -> Option<Problem> {
    let name = &superblocks[newest].name;
    let differs = |own: &&Superblock| own.own_record().state == Membership::In && own.name != *name;
    let other = superblocks.iter().position(|own| differs(&own))?;
    let text = |image: usize| superblocks[image].name.as_str().into();
    Some(Problem::Renamed { image: newest, name: text(newest), other, other_name: text(other) })
}

/// Returns the legs given that lack the newest superblock, as a mask.
pub(super) fn legs_lacking(newest: &Superblock, superblocks: &[Superblock]) -> u8 {
    let has_it =
        |own: &Superblock| (own.generation, own.sequence) == (newest.generation, newest.sequence);
    let lacking = superblocks.iter().filter(|own| !has_it(own));
    lacking.fold(0, |mask, own| mask | own.leg.bit())
}

pub(super) fn membership_problems(
    images: &[LegImage],
    superblocks: &[Superblock],
    newest: &Superblock,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut given = 0u8;
    for (image, own) in superblocks.iter().enumerate() {
        let record = newest.legs[own.leg.index()];
        if record.id != own.own_record().id || record.state == Membership::Empty {
            problems.push(Problem::Stranger { image, detached: false });
            continue;
        }
        if record.state == Membership::Out(OutReason::Detached) {
            problems.push(Problem::Stranger { image, detached: true });
            continue;
        }
        given |= own.leg.bit();
        if record.state != Membership::In {
            continue;
        }
        for slot in 0..2 {
            let block = block_at(images[image].bytes, Layout::superblock_address(slot));
            let damaged = match block.map(|block| Superblock::decode(block, slot)) {
                Some(Err(SuperblockError::Damaged { newest: known })) => {
                    known.is_none_or(|known| known > newest.sequence)
                }
                Some(Err(SuperblockError::NotHemi)) => true,
                _ => false,
            };
            if damaged {
                problems.push(Problem::SuperblockDamaged { image, slot });
            }
        }
        let needed = newest.layout.data_offset();
        let found = images[image].bytes.len() as u64;
        if found < needed {
            problems.push(Problem::Truncated { image, needed, found });
        }
    }
    if newest.legs.iter().all(|record| record.state != Membership::In) {
        problems.push(Problem::NoneIn);
    }
    for leg in (0..LEGS_MAX as u8).map(LegIndex) {
        let missing = newest.legs[leg.index()].state == Membership::In && given & leg.bit() == 0;
        let explained = superblocks
            .iter()
            .zip(0..)
            .any(|(own, image)| own.leg == leg && problems.iter().any(|p| is_about(p, image)));
        if missing && !explained {
            let last = newest.descriptions[leg.index()];
            problems.push(Problem::Missing { leg, last });
        }
    }
    problems
}

fn is_about(problem: &Problem, image: usize) -> bool {
    matches!(problem, Problem::Stranger { image: i, .. } if *i == image)
}
