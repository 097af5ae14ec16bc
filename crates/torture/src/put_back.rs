//! Legs that are out and come back as an older image of themselves, as a remote leg does whose server was
//! restored from a snapshot while hemi was stopped. Nobody may take such a leg for what it was: no acknowledged
//! write is missing (P1, P3), reads stay single-valued (P2), and once it has been filled it is alike (P6).
//!
//! It is put back only where docs/promises.md says that hemi notices: every leg that is in has the newest
//! superblock, which says that this one is out, and the image is of the same leg, without that superblock.

use hemi_engine::format::{Membership, Superblock};
use hemi_engine::io::OutReason;
use hemi_engine::recovery;
use hemi_engine::settings::Settings;
use hemi_random::Rng;
use hemi_units::{MILLISECOND, SECOND};
use hemi_world::disk::{Cache, Disk};

use crate::plan::{Ending, Fault, OPERATIONS, Plan, PlannedFault, Start, Weather};
use crate::world::World;

/// One seed in this many puts legs back.
const WITH_PUT_BACK: u64 = 3;
/// The bound of the number of times in a seed.
const TIMES: u64 = 4;
/// The longest `out_after` that is waited for.
const OUT_AFTER_MAX: u64 = 3 * SECOND;
/// The longest that a leg may take to be out after that.
const SLACK: u64 = SECOND;

/// Adds legs that are put back to a plan.
pub(crate) fn add_put_backs(plan: &mut Plan) {
    let random = &mut Rng::new(plan.seed, 12);
    if !covers(plan.weather) || plan.is_of_scenes() || !random.one_in(WITH_PUT_BACK) {
        return;
    }
    for _ in 0..1 + random.below(TIMES) {
        let leg = random.below(plan.shape.legs as u64) as u8;
        let after = random.below(u64::from(OPERATIONS)) as u32;
        let before = after.saturating_sub(random.below(400) as u32);
        let ending = random.pick(&[Ending::Kill, Ending::PowerCut, Ending::Close]);
        let stays = random.pick(&[0, 50, 500]) * MILLISECOND;
        let fault = Fault::PutBack { ending, stays, settings: plan.settings };
        for (after, fault) in [(before, Fault::Image(leg)), (after, fault)] {
            plan.faults.push(PlannedFault { after, steps: random.below(40) as u32, fault });
        }
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

/// Returns true if nobody but the legs that are in decides what is out.
fn covers(weather: Weather) -> bool {
    !(weather.lies || weather.rot || weather.promotions || weather.removed)
}

impl World {
    /// Takes an image of a leg, its cache included.
    pub(crate) fn take_image(&mut self, leg: u8) {
        let mut image = self.disks[usize::from(leg)].clone();
        image.lose_cache(Cache::Kept, &mut self.random);
        image.heal();
        self.tell(|| format!("an image of leg {leg} is taken"));
        self.image = Some((leg, image));
    }

    /// Lets the leg of the last image fall silent until it is out, and for `stays` nanoseconds more. Then
    /// hemi ends, and the leg comes back as it was.
    pub(crate) fn put_back(&mut self, ending: Ending, stays: u64, settings: Settings) {
        let out_after = self.settings.out_after;
        let is_covered = out_after <= OUT_AFTER_MAX && covers(self.weather);
        let Some((leg, image)) = self.image.take().filter(|_| is_covered) else { return };
        if !self.may_hang_forever(leg) {
            return;
        }
        let end = self.now + 2 * out_after + SLACK;
        self.tell(|| format!("leg {leg} is silent until it is out"));
        let behaviour = &mut self.legs[usize::from(leg)];
        behaviour.frozen_until = behaviour.frozen_until.max(end + stays);
        let crashes = self.counts.crashes;
        let is_out = |world: &mut World| {
            let status = world.refresh_status();
            status.legs.iter().any(|l| l.leg == leg && l.out_reason.is_some())
        };
        while self.violation.is_none() && !is_out(self) && self.step(end) {}
        let end = self.now + stays;
        while self.violation.is_none() && self.step(end) {}
        if self.violation.is_none() && self.counts.crashes == crashes {
            self.older = Some((leg, image));
            self.restart(ending, Start::All, settings, true);
            self.older = None;
        }
    }

    /// Puts the leg back that is to be, if hemi promises to notice.
    pub(crate) fn suffer_put_back(&mut self) {
        let Some((leg, image)) = self.older.take() else { return };
        if self.is_noticed(leg, &image) {
            self.counts.put_back += 1;
            self.tell(|| format!("leg {leg} is put back to its image"));
            self.disks[usize::from(leg)].copy_from(&image);
        }
    }

    fn is_noticed(&self, leg: u8, image: &Disk) -> bool {
        let superblock = |disk: &Disk| recovery::newest_of(&disk.metadata).ok();
        let others: Vec<u8> = self.members().into_iter().filter(|&other| other != leg).collect();
        let Some(newest) = self.newest_among(&others) else { return false };
        let Some(own) = superblock(image) else { return false };
        let is_newest = |own: &Superblock| {
            own.generation == newest.generation && own.sequence == newest.sequence
        };
        let knows =
            |other: usize| superblock(&self.disks[other]).is_some_and(|own| is_newest(&own));
        let is_in = |other: &usize| newest.legs[*other].state == Membership::In;
        let there = newest.legs[usize::from(leg)];
        let is_out =
            matches!(there.state, Membership::Out(reason) if reason != OutReason::Detached);
        is_out
            && there.id == own.own_record().id
            && !is_newest(&own)
            && (0..self.disks.len()).filter(is_in).all(knows)
    }
}
