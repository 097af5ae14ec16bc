//! Power and the state of the spindle.

use hemi_units::{Instant, SECOND};

use super::parameters::PowerStates;

/// Energy used so far and the state of the spindle.
#[derive(Clone, Debug)]
pub(super) struct Power {
    states: PowerStates,
    /// Time until which energy has been counted.
    counted: Instant,
    /// True while the arm works.
    working: bool,
    standing: bool,
    joules: f64,
}

impl Power {
    /// Creates the state of a disk that spins and is idle.
    pub(super) fn new(states: &PowerStates) -> Power {
        Power {
            states: states.clone(),
            counted: Instant(0),
            working: false,
            standing: false,
            joules: 0.0,
        }
    }

    /// Returns the energy used until `now`, in joules.
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

    /// Records that the arm begins to work or has become idle.
    pub(super) fn set_working(&mut self, now: Instant, working: bool) {
        if self.working != working {
            self.count(now);
            self.working = working;
        }
    }

    /// Returns the time at which the spindle stops if no request arrives after `idle_since`.
    pub(super) fn stops_at(&self, idle_since: Instant) -> Instant {
        match self.states.spin_down_after {
            Some(after) if !self.standing => idle_since + after.0,
            _ => Instant::NEVER,
        }
    }

    /// Stops the spindle.
    pub(super) fn stop(&mut self, now: Instant) {
        self.count(now);
        self.standing = true;
    }

    /// Starts the spindle if it stands and returns the time from which it can serve.
    pub(super) fn want(&mut self, now: Instant) -> Instant {
        if !self.standing {
            return now;
        }
        self.count(now);
        self.standing = false;
        now + self.states.spin_up.0
    }
}
