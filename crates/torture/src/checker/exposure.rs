//! P5: the data that one leg alone may hold. The bound is checked after every step. At intervals
//! the disks themselves are examined, to check that the engine counts everything.

use hemi_engine::io::Operation;
use hemi_engine::settings::{ExposureMode, Policy};
use hemi_engine::status::LegState;
use hemi_units::{Instant, SECOND, SECTOR_BYTES};
use hemi_world::disk::Disk;
use hemi_world::register::Asked;

use crate::world::World;

/// The disks are examined once in this many steps.
const LOOK_EVERY: u64 = 3001;

/// Returns true if a leg in this state is in.
pub(crate) fn is_in(state: LegState) -> bool {
    !matches!(state, LegState::Out | LegState::Empty)
}

/// The state of the check.
#[derive(Default)]
pub struct Exposure {
    /// A leg has just been marked out.
    pub(crate) leg_is_out: bool,
    /// After a leg went out, the bytes that may be exposed despite the bound …
    ceiling: u64,
    /// … and the last request sent by then.
    let_in: u32,
    /// Examinations of the disks that had something to compare.
    pub(crate) looks: u64,
}

impl Exposure {
    pub(crate) fn reset(&mut self) {
        *self = Exposure::default();
    }
}

impl World {
    /// Checks P5 after every step.
    pub(crate) fn check_exposure(&mut self) {
        let Some(engine) = &self.engine else { return };
        let exposed = engine.exposure_bytes();
        if self.throttles() {
            self.check_bound(exposed);
        }
        if self.counts.steps.is_multiple_of(LOOK_EVERY) {
            self.look_at_disks(exposed);
            self.check_age();
        }
    }

    /// Checks the exposure against its bound.
    ///
    /// When a leg goes out, a leg that stays may from then on be the only one to hold what the
    /// other had: data written before, and the writes in flight. The bound applies to what is let
    /// in, so an excess may from then on only shrink. (With one leg left nothing counts, and a leg
    /// that comes in lacks nothing that was let in without regard to it.)
    fn check_bound(&mut self, exposed: u64) {
        let bound = self.settings.exposure_bytes;
        if std::mem::take(&mut self.exposure.leg_is_out) {
            let stay = self.refresh_status().legs.iter().filter(|leg| is_in(leg.state)).count();
            // Two legs may each be the only one to hold a part of a write, or one leg where only
            // two stay.
            let times = [0, 0, 1].get(stay).copied().unwrap_or(2);
            self.exposure.let_in = self.next_request() - 1;
            self.exposure.ceiling = exposed + times * self.bytes_being_written();
        }
        let ceiling = self.exposure.ceiling.max(bound);
        if exposed > ceiling {
            self.broken("P5", format!("{exposed} bytes exposed, the bound is {bound}"));
        }
        if ceiling > bound && self.bytes_being_written() == 0 {
            self.exposure.ceiling = exposed;
        }
    }

    /// Returns the bytes of writes in flight that were sent before the last leg went out.
    fn bytes_being_written(&self) -> u64 {
        let let_in = self.exposure.let_in;
        let counts = |asked: &Asked| {
            asked.id <= let_in && !matches!(asked.operation, Operation::Read | Operation::Flush)
        };
        let under_way = self.requests.iter().filter(|p| p.live && counts(&p.asked));
        under_way.map(|pending| pending.asked.extent.bytes()).sum()
    }

    pub(crate) fn throttles(&self) -> bool {
        self.settings.exposure_mode == ExposureMode::Throttle
            && matches!(self.settings.policy, Policy::First | Policy::Paper)
    }

    /// Returns true if lost caches and failed writes may be detected later than they happen.
    pub(crate) fn deceives(&self) -> bool {
        self.weather.gone || self.weather.requests_may_fail()
    }

    /// Counts the acknowledged sectors that one leg alone holds, and compares them with what the
    /// engine reports: its exposure, and the regions owed as a whole, which it shows separately.
    fn look_at_disks(&mut self, exposed: u64) {
        if self.deceives() {
            return;
        }
        let status = self.refresh_status();
        let in_legs: Vec<usize> = status
            .legs
            .iter()
            .filter(|leg| is_in(leg.state))
            .map(|leg| usize::from(leg.leg))
            .collect();
        let said = exposed + status.legs.iter().map(|leg| leg.owed_region_bytes).sum::<u64>();
        // Parts of whole regions that are being paid right now are in neither number.
        let in_flight = self.ios.iter().filter(|i| i.live).map(|i| i.io.extent.bytes());
        let said = said + in_flight.sum::<u64>();
        if in_legs.len() < 2 {
            return;
        }
        let mut alone = 0;
        for sector in 0..self.sectors() as usize {
            let Some(version) = self.register.certain_version(sector) else { continue };
            let holders =
                in_legs.iter().filter(|&&leg| self.disks[leg].contents()[sector] == version);
            alone += u64::from(holders.count() == 1);
        }
        self.exposure.looks += 1;
        if alone * SECTOR_BYTES > said {
            let bytes = alone * SECTOR_BYTES;
            self.broken("P5", format!("one leg alone holds {bytes} bytes, hemi says {said}"));
        }
    }

    /// Returns true if a leg whose I/Os take `longest` nanoseconds may be unable to pay the bound
    /// in bytes within the bound in age. Half of its I/Os may serve clients, and half of the others
    /// may be reads.
    fn pays_too_slowly(&self, longest: u64) -> bool {
        let settings = &self.settings;
        let at_once = u64::from(settings.leg_window) * u64::from(settings.drain_bytes);
        let payable =
            u128::from(at_once) * u128::from(settings.exposure_age) / u128::from(longest.max(1));
        payable < 4 * u128::from(settings.exposure_bytes)
    }

    /// Returns true if a leg whose I/Os take `longest` nanoseconds may owe for longer than the
    /// bound in age. A leg that may exceed the wait ceiling counts as frozen again and again: it
    /// does not answer.
    pub(crate) fn may_owe_for_long(&self, longest: u64) -> bool {
        longest >= self.settings.wait_ceiling || self.pays_too_slowly(longest)
    }

    /// Checks that nothing stays exposed for long while every leg has answered for long. With three
    /// or more legs this is not promised while one owes whole regions: it may lack what another has
    /// owed for long, and the age shown is then that of the other's debt.
    fn check_age(&mut self) {
        let bound = self.settings.exposure_age;
        let quiet = self.legs.iter().map(|leg| leg.disturbed.max(leg.frozen_until)).max();
        let calm_since = quiet.unwrap_or(Instant(0));
        let calm = self.now.since(calm_since) >= 2 * bound + SECOND && self.hung_leg().is_none();
        let is_late = self.legs.iter().any(|leg| self.may_owe_for_long(leg.longest()));
        // A debt whose only copy is unreadable is retried every two seconds.
        let unreadable = self.legs.iter().any(|leg| leg.read_errors > 0)
            || self.disks.iter().any(Disk::has_unreadable);
        if !self.throttles() || !calm || is_late || unreadable {
            return;
        }
        let status = self.refresh_status();
        let age = status.exposure_age;
        let in_legs = || status.legs.iter().filter(|leg| is_in(leg.state));
        let hidden = in_legs().count() > 2 && in_legs().any(|leg| leg.owed_region_bytes > 0);
        if age > bound && !hidden {
            let legs: Vec<_> =
                status.legs.iter().map(|l| (l.leg, l.state, l.owed_bytes, l.owed_age)).collect();
            let text = format!("exposed for {age} ns, the bound is {bound}; legs {legs:?}");
            self.broken("P5", text);
        }
    }
}
