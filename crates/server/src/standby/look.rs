//! One look at a drive. It may block on a drive that hangs, so it has a thread of its own.

use hemi_engine::format::{Membership, Standby, Superblock};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::newest_of;

use crate::create::{Joined, unfit, write_standby};
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::{OpenLeg, Purpose};

/// The facts of the volume that a look needs.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) to: Joined,
    /// The present generation and those before it.
    pub(super) generations: Vec<[u8; 16]>,
    /// The ids of the legs that the volume has.
    pub(super) leg_ids: Vec<[u8; 16]>,
    /// The slots that have legs, as a mask.
    pub(super) slots: u8,
}

/// The outcome of a look.
#[derive(Debug)]
pub(super) enum Found {
    /// A standby, open and locked.
    Standby(OpenLeg),
    /// A leg whose slot was taken. It has become a standby. The number is the slot it had.
    Returned(OpenLeg, u8),
    /// Neither, for this reason in words.
    Not(String),
}

/// Looks at a drive, which is opened and locked unless it is `held` already. A leg that the volume no longer
/// has becomes a standby. Blocks.
pub(super) fn look(config: &LegConfig, held: Option<OpenLeg>, known: &Known) -> Found {
    let opened = held.map_or_else(|| OpenLeg::configured(config, Purpose::Serve), Ok);
    let leg = match opened {
        Ok(leg) => leg,
        Err(error) => return Found::Not(error.to_string()),
    };
    let head = match leg.head() {
        Ok(head) => head,
        Err(error) => return Found::Not(format!("its superblock cannot be read: {error}")),
    };
    if let Some(standby) = Standby::of(&head) {
        if standby.volume_id != known.to.volume {
            let name = standby.name.as_str();
            return Found::Not(format!("it is a standby of another volume, {name:?}"));
        }
        return match unfit(&leg, &known.to) {
            None => Found::Standby(leg),
            Some(why) => Found::Not(why),
        };
    }
    let superblock = match newest_of(&head) {
        Ok(superblock) => superblock,
        Err(error) => return Found::Not(error.to_string()),
    };
    if let Some(why) = why_kept(&superblock, known).or_else(|| unfit(&leg, &known.to)) {
        return Found::Not(why);
    }
    let standby = Standby { volume_id: superblock.volume_id, name: superblock.name.clone() };
    match write_standby(&leg, &standby) {
        Ok(()) => Found::Returned(leg, superblock.leg.0),
        Err(error) => Found::Not(format!("its superblock cannot be written: {error}")),
    }
}

/// Returns the reason why a leg does not become a standby, if there is one.
fn why_kept(superblock: &Superblock, known: &Known) -> Option<String> {
    let own = superblock.own_record();
    if superblock.volume_id != known.to.volume {
        let name = superblock.name.as_str();
        return Some(format!("it is a leg of another volume, {name:?}"));
    }
    if known.leg_ids.contains(&own.id) {
        return Some("it is a leg of the volume".to_owned());
    }
    if known.slots & superblock.leg.bit() == 0 {
        return Some("it was removed from the volume".to_owned());
    }
    if own.state == Membership::Out(OutReason::Detached) {
        return Some("it was detached from the volume, and may have been used since".to_owned());
    }
    (!known.generations.contains(&superblock.generation))
        .then(|| "it was used without the other legs, and may hold what they do not".to_owned())
}

#[cfg(test)]
mod tests {
    use hemi_engine::format::Layout;
    use hemi_engine::format::LegRecord;
    use hemi_engine::format::create::NewVolume;
    use hemi_engine::format::superblock::Name;
    use hemi_engine::identifiers::LegIndex;

    use super::*;

    fn superblock() -> Superblock {
        let volume = NewVolume {
            id: [7; 16],
            generation: [5; 16],
            legs: &[[1; 16], [2; 16]],
            name: Name::default(),
            layout: Layout::new(64 << 20, 1 << 20).expect("a layout"),
            block_bytes: 4096,
            created: 0,
        };
        volume.superblock(LegIndex(1))
    }

    fn known() -> Known {
        let layout = superblock().layout;
        let to = Joined { volume: [7; 16], layout, block_bytes: 4096 };
        Known {
            to,
            generations: vec![[6; 16], [5; 16]],
            leg_ids: vec![[1; 16], [9; 16]],
            slots: 0b11,
        }
    }

    #[test]
    fn only_a_leg_that_was_replaced_is_overwritten() {
        assert_eq!(why_kept(&superblock(), &known()), None, "its slot was taken");
        let kept = |change: &dyn Fn(&mut Superblock), known: Known| {
            let mut superblock = superblock();
            change(&mut superblock);
            why_kept(&superblock, &known).unwrap_or_default()
        };
        let is_in = Known { leg_ids: vec![[2; 16]], ..known() };
        assert_eq!(kept(&|_| (), is_in), "it is a leg of the volume");
        let other = kept(&|superblock| superblock.volume_id = [8; 16], known());
        assert!(other.contains("another volume"), "{other}");
        let removed = Known { leg_ids: vec![[1; 16]], slots: 0b01, ..known() };
        assert_eq!(kept(&|_| (), removed), "it was removed from the volume");
        let detached = |superblock: &mut Superblock| {
            superblock.legs[1] =
                LegRecord { state: Membership::Out(OutReason::Detached), ..superblock.legs[1] };
        };
        assert!(kept(&detached, known()).contains("detached"));
        let fork = kept(&|superblock| superblock.generation = [4; 16], known());
        assert!(fork.contains("without the other legs"), "{fork}");
    }
}
