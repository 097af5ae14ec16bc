//! Lateness of the other legs of a mirror, relative to the first leg that has a write.

/// Ratios counted for each leg: later than this many times the first leg's time.
const STEPS: [u64; 3] = [2, 10, 30];
/// Ratio from which on a write belongs to a run of late writes.
const RUN: u64 = 10;
/// The published limit, per mille of the first leg's time.
const PUBLISHED_PERMILLE: u64 = 1300;

macro_rules! names {
    ($($leg:literal),*) => {
        [$([
            concat!("later_2x_leg_", $leg),
            concat!("later_10x_leg_", $leg),
            concat!("later_30x_leg_", $leg),
            concat!("ratio_max_leg_", $leg),
        ]),*]
    };
}

/// Names of each leg's figures.
const NAMES: [[&str; 4]; 8] = names!("0", "1", "2", "3", "4", "5", "6", "7");

#[derive(Clone, Copy, Debug, Default)]
struct Leg {
    later: [u64; 3],
    /// Largest ratio.
    most: f64,
}

/// The statistics of lateness. Only writes given to every leg count: a write in a delay queue
/// was not timed on its leg.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lateness {
    /// Wait limit of the other legs, per mille of the first leg's time.
    limit_permille: u64,
    legs: Vec<Leg>,
    /// All writes, and the writes that every leg was given and has completed.
    writes: u64,
    timed: u64,
    /// Writes of `timed` within the limit in force, and within the published one.
    in_limit: u64,
    in_published: u64,
    /// Late writes of `timed` in order of completion, the runs of them, the longest run, and the
    /// current run.
    late: u64,
    runs: u64,
    longest: u64,
    run: u64,
}

impl Lateness {
    pub(crate) fn new(legs: usize, limit_permille: u64) -> Lateness {
        Lateness { limit_permille, legs: vec![Leg::default(); legs], ..Lateness::default() }
    }

    /// Counts a write.
    pub(crate) fn write(&mut self) {
        self.writes += 1;
    }

    /// Records that a leg has a write after `taken` nanoseconds; the first leg had it after
    /// `first`.
    pub(crate) fn leg(&mut self, leg: usize, taken: u64, first: u64) {
        let first = first.max(1);
        let state = &mut self.legs[leg];
        for (count, step) in state.later.iter_mut().zip(STEPS) {
            *count += u64::from(taken > first.saturating_mul(step));
        }
        state.most = state.most.max(taken as f64 / first as f64);
    }

    /// Records that the last leg has a write.
    pub(crate) fn last(&mut self, taken: u64, first: u64) {
        let within = |permille: u64| {
            u128::from(taken) * 1000 <= u128::from(first.max(1)) * u128::from(permille)
        };
        self.timed += 1;
        self.in_limit += u64::from(within(self.limit_permille));
        self.in_published += u64::from(within(PUBLISHED_PERMILLE));
        if within(RUN * 1000) {
            self.run = 0;
            return;
        }
        self.late += 1;
        self.runs += u64::from(self.run == 0);
        self.run += 1;
        self.longest = self.longest.max(self.run);
    }

    /// Returns the figures by name: shares of the timed writes (`diverted`: of all writes), the
    /// largest ratio of each leg's time to the first's, and the runs of writes that a leg had
    /// more than ten times as late as the first: their number, the longest, and the number
    /// expected if the same number of late writes were independent.
    pub(crate) fn figures(&self) -> Vec<(&'static str, f64)> {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let late = share(self.late, self.timed);
        let mut figures = vec![
            ("within_limit", share(self.in_limit, self.timed)),
            ("within_published_limit", share(self.in_published, self.timed)),
            ("diverted", share(self.writes - self.timed, self.writes)),
            ("late_runs", self.runs as f64),
            ("late_longest", self.longest as f64),
            ("late_runs_by_chance", self.timed as f64 * late * (1.0 - late)),
        ];
        for (leg, names) in self.legs.iter().zip(NAMES) {
            for (name, count) in names.into_iter().zip(leg.later) {
                figures.push((name, share(count, self.timed)));
            }
            figures.push((names[3], leg.most));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::Lateness;

    fn of(lateness: &Lateness, name: &str) -> f64 {
        lateness.figures().iter().find(|(named, _)| *named == name).unwrap().1
    }

    #[test]
    fn ratios_and_runs_are_counted() {
        let mut lateness = Lateness::new(2, 1500);
        // One of ten writes is not given to all legs; leg 1 is late 1.2, 1.4, 40, 11, 2, 10,
        // 12, 1 and 1 times.
        for _ in 0..10 {
            lateness.write();
        }
        for tenths in [12, 14, 400, 110, 20, 100, 120, 10, 10] {
            lateness.leg(0, 1000, 1000);
            lateness.leg(1, tenths * 100, 1000);
            lateness.last(tenths * 100, 1000);
        }
        let expected = [
            ("within_limit", 4.0 / 9.0),
            ("within_published_limit", 3.0 / 9.0),
            ("diverted", 0.1),
            ("later_2x_leg_1", 4.0 / 9.0),
            ("later_10x_leg_1", 3.0 / 9.0),
            ("later_30x_leg_1", 1.0 / 9.0),
            ("ratio_max_leg_1", 40.0),
            ("later_2x_leg_0", 0.0),
            ("ratio_max_leg_0", 1.0),
            ("late_runs", 2.0),
            ("late_longest", 2.0),
            ("late_runs_by_chance", 2.0),
        ];
        for (name, value) in expected {
            assert!((of(&lateness, name) - value).abs() < 1e-9, "{name}: {}", of(&lateness, name));
        }
    }

    #[test]
    fn without_writes_nothing_is_undefined() {
        assert!(Lateness::new(2, 1300).figures().iter().all(|(_, value)| *value == 0.0));
    }
}
