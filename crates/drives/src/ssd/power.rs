//! Energy used by the drive at rest and by each lane while it works.

use super::parameters::Parameters;

/// The energy used so far.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    idle: f64,
    /// Watts beyond idle while a command is in flight.
    active: f64,
    /// Watts of one lane beyond both, for reading and for writing.
    read: f64,
    write: f64,
    /// Lane-nanoseconds spent reading, and spent writing.
    reading: u64,
    writing: u64,
}

impl Meter {
    pub(super) fn new(of: &Parameters) -> Meter {
        let lanes = f64::from(of.lanes());
        let idle = of.power_idle.0;
        let active = of.power_active.map_or(0.0, |power| (power.0 - idle).max(0.0));
        let lane = |watts: f64| (watts - idle - active).max(0.0) / lanes;
        let (read, write) = (lane(of.power_read.0), lane(of.power_write.0));
        Meter { idle, active, read, write, reading: 0, writing: 0 }
    }

    /// Counts `nanoseconds` of a lane reading.
    #[inline]
    pub(super) fn reads(&mut self, nanoseconds: u64) {
        self.reading += nanoseconds;
    }

    /// Counts `nanoseconds` of a lane programming or erasing.
    #[inline]
    pub(super) fn writes(&mut self, nanoseconds: u64) {
        self.writing += nanoseconds;
    }

    /// Returns the joules used in the first `now` nanoseconds, of which the drive was busy for
    /// `busy`.
    pub(super) fn energy(&self, now: u64, busy: u64) -> f64 {
        let work = self.read * self.reading as f64 + self.write * self.writing as f64;
        (self.idle * now as f64 + self.active * busy as f64 + work) * 1e-9
    }
}
