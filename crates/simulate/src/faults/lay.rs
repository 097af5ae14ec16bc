//! Puts faults in front of drives.

use std::collections::BTreeMap;

use hemi_drives::any::AnyDrive;
use hemi_drives::array::Array;
use hemi_drives::drive::Drive;
use hemi_drives::faulty::{Bad, EndOfLife, Errors, Faults, Faulty};
use hemi_random::Rng;
use hemi_stalls::Stalls;
use hemi_units::{Extent, Instant, SECTOR_BYTES};

use super::{BadSpec, Fault, FaultError, FaultSpec};

/// Puts the faults of this leg in front of its drive. They must have been
/// [checked](super::check).
///
/// # Errors
/// Fails if a fault does not fit the drive; the error names the fault.
pub(crate) fn lay(
    faults: &[FaultSpec],
    leg: usize,
    mut drive: AnyDrive,
    seed: u64,
) -> Result<AnyDrive, FaultError> {
    // Members first: their array is then behind the faults of the leg as a whole.
    let of_leg = (1..).zip(faults).filter(|(_, spec)| spec.leg == leg);
    // Each member with the first fault that names it.
    let mut members = BTreeMap::new();
    for (number, member) in of_leg.filter_map(|(number, spec)| Some((number, spec.member?))) {
        members.entry(member).or_insert(number);
    }
    for (member, number) in members {
        let array = array_of(&mut drive, member)
            .map_err(|wrong| FaultError::new(number, format!("leg {leg}: {wrong}")))?;
        let own = array.members_mut()[member].clone();
        let of_member = gathered(faults, leg, Some(member), &own, seed)?;
        array.replace_member(member, behind(of_member, own));
    }
    let of_leg = gathered(faults, leg, None, &drive, seed)?;
    Ok(behind(of_leg, drive))
}

fn behind(faults: Faults, drive: AnyDrive) -> AnyDrive {
    if faults.is_empty() {
        return drive;
    }
    AnyDrive::Faulty(Box::new(Faulty::new(drive, faults)))
}

/// Returns the array that a drive is, if it has this member.
fn array_of(drive: &mut AnyDrive, member: usize) -> Result<&mut Array<AnyDrive>, String> {
    let AnyDrive::Array(array) = drive else {
        return Err(format!("member = {member}: it is not an array"));
    };
    let last = array.members_mut().len() - 1;
    if member > last {
        return Err(format!("member = {member}: the members are 0 to {last}"));
    }
    Ok(array)
}

/// Returns the faults of a leg, or of a member of it.
fn gathered(
    specs: &[FaultSpec],
    leg: usize,
    member: Option<usize>,
    drive: &AnyDrive,
    seed: u64,
) -> Result<Faults, FaultError> {
    let mut faults = Faults::default();
    for (number, spec) in (1..).zip(specs) {
        if (spec.leg, spec.member) != (leg, member) {
            continue;
        }
        let wrong = |what: String| FaultError::new(number, format!("leg {leg}: {what}"));
        // Faults of one run draw independently of each other.
        let seed = spec.seed.unwrap_or(seed ^ ((number as u64) << 48));
        let at = Instant(spec.at.0);
        match spec.fault() {
            Ok(Fault::Freeze(spell)) => faults.freezes.push(spell),
            Ok(Fault::Stalls(schedule)) => faults.stalls.push(Stalls::new(schedule, seed, at)),
            Ok(Fault::Slow(slow)) => faults.slow.push(slow),
            Ok(Fault::Absence(absence)) => faults.absences.push(absence),
            Ok(Fault::Bad { sectors, error_after }) => {
                let bad = bad_sectors(&sectors, drive.sectors(), at, error_after, seed);
                faults.bad.extend(bad.map_err(wrong)?);
            }
            Ok(Fault::Errors { spell, reads, writes, error_after }) => {
                let rng = Rng::new(seed, 0xe44);
                faults.errors.push(Errors { spell, reads, writes, error_after, rng });
            }
            Ok(Fault::Worn { used, read_only, fails_after, error_after }) => {
                if faults.end.is_some() {
                    return Err(wrong("worn is given twice".to_owned()));
                }
                let counters = drive.counters();
                if counters.rated_cycles == 0 {
                    return Err(wrong(
                        "worn: it has no flash of known endurance: `rated_cycles` in the \
                         parameters of its preset"
                            .to_owned(),
                    ));
                }
                let rated = f64::from(counters.rated_cycles);
                let before = used * rated - counters.cycles;
                let end = EndOfLife::new(before, read_only * rated, fails_after, error_after);
                faults.end = Some(end);
            }
            Err(wrong) => unreachable!("the spec was checked: {wrong}"),
        }
    }
    Ok(faults)
}

/// Returns the sectors of a drive that go bad.
fn bad_sectors(
    spec: &BadSpec,
    sectors: u64,
    at: Instant,
    error_after: u64,
    seed: u64,
) -> Result<Vec<Bad>, String> {
    let bytes = sectors * SECTOR_BYTES;
    match spec {
        BadSpec::Given(ranges) => {
            let bad = |range: &super::RangeSpec| {
                let (from, length) = (range.from.0, range.length.0);
                if from.saturating_add(length) > bytes {
                    let (from, length) = (range.from, range.length);
                    return Err(format!("bad: {length} from {from} on: it has {bytes} bytes"));
                }
                let extent = Extent::new(from / SECTOR_BYTES, length / SECTOR_BYTES);
                Ok(Bad { at, extent, error_after })
            };
            ranges.iter().map(bad).collect()
        }
        BadSpec::Scattered(spec) => {
            let space = spec.span.map_or(sectors, |span| sectors.min(span.0 / SECTOR_BYTES));
            let length = spec.length.0 / SECTOR_BYTES;
            if length > space {
                let (length, space) = (spec.length, space * SECTOR_BYTES);
                return Err(format!("bad: length = {length}: longer than the span, {space} bytes"));
            }
            let shape = (spec.ranges, length, space);
            Ok(Bad::scattered(shape, at, spec.over.0, error_after, seed))
        }
    }
}
