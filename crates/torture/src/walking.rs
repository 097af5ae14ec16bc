//! Scrubs that repair beside a detach, from [`ENDINGS_FROM`](crate::wider::ENDINGS_FROM) on. A detach that
//! reports done leaves nothing in flight to its leg: what lands later would change an image that the operator
//! may already have mounted (P8).

use hemi_engine::io::LegOperation;
use hemi_random::Rng;
use hemi_units::{MILLISECOND, SECOND};

use crate::operators::Change;
use crate::plan::{Fault, OPERATIONS, Plan, PlannedFault};
use crate::world::World;

/// One seed in this many has detaches beside repairs.
const WITH_REPAIRS: u64 = 6;

/// Adds detaches of legs that a scrub repairs.
pub(crate) fn add_repairs(plan: &mut Plan) {
    let random = &mut Rng::new(plan.seed, 10);
    // Starts with promotions and rot are judged on the assumption that no leg has just joined.
    let judges_starts = plan.weather.lies || plan.weather.promotions || plan.weather.rot;
    if judges_starts || plan.is_of_scenes() || !random.one_in(WITH_REPAIRS) {
        return;
    }
    (plan.weather.errors, plan.weather.members, plan.weather.scrub) = (true, true, true);
    for _ in 0..1 + random.below(5) {
        let leg = random.below(plan.shape.legs as u64) as u8;
        let after = random.below(u64::from(OPERATIONS)) as u32;
        let mut add = |steps: u32, fault| {
            plan.faults.push(PlannedFault { after, steps, fault });
        };
        let start = random.below(plan.shape.volume_bytes / 512);
        add(0, Fault::Unreadable { leg, start, sectors: 1 + random.below(2000) });
        add(0, Fault::Latency(leg, random.pick(&[1, 5, 15]) * MILLISECOND));
        let steps = 1 + random.below(40) as u32;
        let (first, second) = (Fault::Scrub(true), Fault::Members(leg));
        let (first, second) = if random.one_in(2) { (first, second) } else { (second, first) };
        add(1, first);
        add(1 + steps, second);
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

impl World {
    /// Checks that nothing is being written to a leg whose detach reports done. A leg that was silent
    /// meanwhile, or whose session has dropped, is given up as it is.
    pub(crate) fn check_nothing_in_flight(&mut self, change: &Change) {
        let leg = change.leg;
        let gone = self.legs[usize::from(leg)].is_gone;
        if !self.kept.retires || gone || change.was_silent || !change.was_in {
            return;
        }
        let here = || self.ios.iter().filter(|io| io.live && io.io.leg.0 == leg);
        let is_late = here().any(|io| io.zombie || io.stuck || self.now.since(io.since) > SECOND);
        let writes = |operation| {
            matches!(operation, LegOperation::Write { .. } | LegOperation::WriteZeroes { .. })
        };
        let write = here().find(|io| writes(io.io.operation)).map(|io| io.io.extent);
        if let Some(extent) = write.filter(|_| !is_late) {
            let text = format!("leg {leg} is detached while {extent:?} is being written to it");
            self.broken("P8", text);
        }
    }
}
