//! The spindle: the place under the head at a given time.

/// A place on a track, as a share of a revolution: 2³² is a whole one. Arithmetic on it wraps.
pub type Angle = u32;

/// Nanoseconds by which a sector may be missed and is still taken. Times are whole nanoseconds,
/// and the sector after the last one read must not cost a revolution because of rounding. A
/// thousandth of the shortest possible sector.
const SLACK: u64 = 8;

/// A spindle at constant speed. The index mark of every surface passes the heads at time 0.
#[derive(Clone, Copy, Debug)]
pub struct Spindle {
    /// Time of a revolution, in nanoseconds × 2¹⁶.
    period: u64,
    /// Revolutions in a nanosecond × 2⁶⁴. Its rounding turns the disk by a millionth of a
    /// revolution in about a day, too little for any measurement.
    speed: u64,
    /// [`SLACK`] as an angle.
    slack: Angle,
    /// Angle of the index mark at time 0.
    start: Angle,
}

impl Spindle {
    /// Creates a spindle of the given speed.
    pub fn new(revolutions_per_minute: u32) -> Spindle {
        let rpm = u128::from(revolutions_per_minute);
        let speed = ((rpm << 64) / 60_000_000_000) as u64;
        Spindle {
            period: ((60_000_000_000_u128 << 16) / rpm) as u64,
            speed,
            slack: ((speed >> 16).wrapping_mul(SLACK) >> 16) as Angle,
            start: 0,
        }
    }

    /// Returns the spindle turned by an angle.
    #[must_use]
    pub fn turned(self, by: Angle) -> Spindle {
        Spindle { start: self.start.wrapping_add(by), ..self }
    }

    /// Returns the spindle made faster by `by` parts per billion, or slower if negative.
    #[must_use]
    pub fn faster(self, by: i32) -> Spindle {
        const WHOLE: i64 = 1_000_000_000;
        let factor = (WHOLE + i64::from(by)) as u128;
        Spindle {
            period: (u128::from(self.period) * WHOLE as u128 / factor) as u64,
            speed: (u128::from(self.speed) * factor / WHOLE as u128) as u64,
            ..self
        }
    }

    /// Returns the angle under the heads at `at`.
    #[inline]
    pub fn angle(&self, at: u64) -> Angle {
        self.start.wrapping_add((at.wrapping_mul(self.speed) >> 32) as Angle)
    }

    /// Returns the time to turn by an angle of up to a whole revolution (2³²), in nanoseconds.
    #[inline]
    pub fn time(&self, angle: u64) -> u64 {
        (angle * (self.period >> 12)) >> 36
    }

    /// Returns the time from `at` until `angle` is under the heads, in nanoseconds.
    #[inline]
    pub fn wait(&self, at: u64, angle: Angle) -> u64 {
        let ahead = angle.wrapping_sub(self.angle(at)).wrapping_add(self.slack);
        self.time(u64::from(ahead.saturating_sub(self.slack)))
    }

    /// Returns the angle by which it turns in `time` nanoseconds, or the largest angle if that
    /// is a revolution or more.
    #[inline]
    pub fn turn(&self, time: u64) -> Angle {
        if time >= self.revolution() {
            return Angle::MAX;
        }
        // Below 2⁶⁴, for a whole revolution is 2⁶⁴.
        (time.saturating_mul(self.speed) >> 32) as Angle
    }

    /// Returns an angle that exceeds the error of any comparison between times and angles, which
    /// is mostly the slack of [`Spindle::wait`].
    #[inline]
    pub fn margin(&self) -> Angle {
        4 * self.slack
    }

    /// Returns the time of a revolution in nanoseconds, fractions included.
    pub fn exact_revolution(&self) -> f64 {
        self.period as f64 / 65536.0
    }

    /// Returns the time of a revolution in whole nanoseconds.
    pub fn revolution(&self) -> u64 {
        self.period >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::Spindle;

    #[test]
    fn a_revolution_takes_what_it_takes_even_after_a_year() {
        for rpm in [5_400_u32, 7_200, 10_045, 15_000] {
            let spindle = Spindle::new(rpm);
            let period = 60e9 / f64::from(rpm);
            let year = 365 * 86_400 * 1_000_000_000_u64;
            for at in [0, 1, 123_456_789_012, year] {
                let turn = (u64::from(u32::MAX / 4) as f64, spindle.angle(at));
                // A quarter of a period later it has turned by a quarter.
                let later = spindle.angle(at + libm::round(period / 4.0) as u64);
                let turned = f64::from(later.wrapping_sub(turn.1));
                assert!((turned - turn.0).abs() < 3_000.0, "{rpm} {at} {turned}");
                // The angle under the head an instant ago comes again after a revolution.
                let wait = spindle.wait(at + 1_000, turn.1);
                assert!((wait as f64 - (period - 1_000.0)).abs() < 3.0, "{wait}");
            }
            assert!((spindle.time(1 << 31) as f64 - period / 2.0).abs() < 2.0);
        }
    }

    #[test]
    fn a_faster_spindle_gains_on_another_by_its_share() {
        let nominal = Spindle::new(7_200);
        let second = 1_000_000_000;
        for (by, share) in [(300_000, 0.000_3), (-300_000, -0.000_3), (0, 0.0)] {
            let other = nominal.faster(by);
            let gained = other.angle(second).wrapping_sub(nominal.angle(second)).cast_signed();
            let expected = 120.0 * share * 4_294_967_296.0;
            assert!((f64::from(gained) - expected).abs() < 2_000.0, "{by}: {gained}");
            let period = 60e9 / 7_200.0 / (1.0 + share);
            assert!((other.revolution() as f64 - period).abs() < 2.0);
        }
    }

    #[test]
    fn what_is_missed_by_nanoseconds_only_is_not_missed() {
        let spindle = Spindle::new(7_200);
        let here = spindle.angle(5_000_000);
        assert_eq!(spindle.wait(5_000_004, here), 0);
        assert!(spindle.wait(5_000_100, here) > 8_000_000);
    }
}
