//! Watts, and the spindle's rest.

use hemi_units::{Instant, SECOND};

use super::parameters::PowerStates;

/// Energy used, and whether the spindle turns.
#[derive(Clone, Debug)]
pub(super) struct Power {
    states: PowerStates,
    /// Until when energy has been counted.
    counted: Instant,
    /// When the arm began to work.
    working: bool,
    standing: bool,
    joules: f64,
}

impl Power {
    /// A disk that spins and has nothing to do.
    pub(super) fn new(states: &PowerStates) -> Power {
        Power {
            states: states.clone(),
            counted: Instant(0),
            working: false,
            standing: false,
            joules: 0.0,
        }
    }

    /// Energy until `now`, joules.
    pub(super) fn joules(&self, now: Instant) -> f64 {
        let watts = match (self.standing, self.working) {
            (true, _) => self.states.standby.0,
            (false, true) => self.states.active.0,
            (false, false) => self.states.idle.0,
        };
        self.joules + watts * now.since(self.counted) as f64 / SECOND as f64
    }

    fn count(&mut self, now: Instant) {
        self.joules = self.joules(now);
        self.counted = self.counted.max(now);
    }

    /// The arm begins to work, or has nothing more to do.
    pub(super) fn set_working(&mut self, now: Instant, working: bool) {
        if self.working != working {
            self.count(now);
            self.working = working;
        }
    }

    /// When the spindle stops if nothing has come since `idle_since`.
    pub(super) fn stops_at(&self, idle_since: Instant) -> Instant {
        match self.states.spin_down_after {
            Some(after) if !self.standing => idle_since + after.0,
            _ => Instant::NEVER,
        }
    }

    /// The spindle stops.
    pub(super) fn stop(&mut self, now: Instant) {
        self.count(now);
        self.standing = true;
    }

    /// The spindle is wanted; until when it cannot serve.
    pub(super) fn want(&mut self, now: Instant) -> Instant {
        if !self.standing {
            return now;
        }
        self.count(now);
        self.standing = false;
        now + self.states.spin_up.0
    }
}
