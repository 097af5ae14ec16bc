//! Seek times.

use serde::{Deserialize, Serialize};

use crate::parameter::{ParameterError, require};
use hemi_units::Time;

/// Seek time by distance.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SeekCurve {
    /// Measured: distances in cylinders, ascending, each with its time. Straight lines join the
    /// points, and the last line continues.
    Points(Vec<(u32, Time)>),
    /// a + b·√d for short distances, c + e·d from `knee` cylinders on. Acceleration limits
    /// short seeks, the arm's greatest speed long ones (Ruemmler and Wilkes 1994).
    SquareRootThenLinear {
        /// Constant a of the first formula.
        a: Time,
        /// b, multiplied by the root of the distance in cylinders.
        b: Time,
        /// Distance in cylinders from which on the second formula holds.
        knee: u32,
        /// Constant c of the second formula.
        c: Time,
        /// e, in nanoseconds for each cylinder.
        e: f64,
    },
    /// The figures of a data sheet: one cylinder, and the mean over uniformly distributed pairs
    /// of cylinders. Both together give the whole stroke of a curve t₁ + (t_F − t₁)·√(d/D),
    /// whose mean is t₁ + 8/15·(t_F − t₁).
    DataSheet {
        /// Time for one cylinder.
        track_to_track: Time,
        /// Mean time of random seeks.
        average: Time,
    },
}

impl SeekCurve {
    /// Returns an error if the curve is impossible.
    pub fn check(&self) -> Result<(), ParameterError> {
        match self {
            SeekCurve::Points(points) => {
                let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let right = points.len() >= 2 && ascending && points[0].0 > 0;
                require(
                    right,
                    "seek.points",
                    format!("a list of {} points", points.len()),
                    "at least two, their distances above 0 and ascending",
                )
            }
            SeekCurve::SquareRootThenLinear { e, .. } => require(
                *e >= 0.0 && e.is_finite(),
                "seek.square-root-then-linear.e",
                e,
                "zero or more nanoseconds",
            ),
            SeekCurve::DataSheet { track_to_track, average } => require(
                track_to_track < average,
                "seek.data-sheet.average",
                format!("{} ns", average.0),
                "more than track_to_track",
            ),
        }
    }

    /// Returns the time in nanoseconds for a distance of at least one cylinder on a disk of
    /// `cylinders` cylinders.
    pub fn time(&self, distance: u32, cylinders: u32) -> u64 {
        let d = f64::from(distance);
        let time = match self {
            SeekCurve::Points(points) => {
                let upper = points.partition_point(|point| point.0 < distance);
                let upper = upper.clamp(1, points.len() - 1);
                let ((d0, t0), (d1, t1)) = (points[upper - 1], points[upper]);
                let (t0, t1) = (t0.0 as f64, t1.0 as f64);
                t0 + (t1 - t0) * (d - f64::from(d0)) / f64::from(d1 - d0)
            }
            SeekCurve::SquareRootThenLinear { a, b, knee, c, e } => {
                if distance < *knee {
                    a.0 as f64 + b.0 as f64 * libm::sqrt(d)
                } else {
                    c.0 as f64 + e * d
                }
            }
            SeekCurve::DataSheet { track_to_track, average } => {
                let (one, mean) = (track_to_track.0 as f64, average.0 as f64);
                one + (mean - one) * 15.0 / 8.0 * libm::sqrt(d / f64::from(cylinders.max(1)))
            }
        };
        libm::round(time.max(0.0)) as u64
    }
}

/// Longest distance that is looked up exactly.
const EXACT: u32 = 1 << 14;

/// The curve as a table. Short distances are exact. Longer ones lie on straight lines over so
/// few cylinders that the error is nanoseconds.
#[derive(Clone, Debug)]
pub struct SeekTable {
    exact: Vec<u32>,
    coarse: Vec<u32>,
    shift: u32,
    /// For each step of time, the distance from which on every seek takes at least that long;
    /// see [`SeekTable::reach`].
    reach: Vec<u32>,
}

/// Nanoseconds in a step of [`SeekTable::reach`], as a power of two: 66 µs.
const STEP: u32 = 16;

impl SeekTable {
    /// Builds the table for a disk of `cylinders` cylinders.
    pub fn new(curve: &SeekCurve, cylinders: u32) -> SeekTable {
        let time = |distance: u32| {
            if distance == 0 {
                return 0;
            }
            curve.time(distance, cylinders).min(u64::from(u32::MAX)) as u32
        };
        let exact: Vec<u32> = (0..=cylinders.min(EXACT)).map(time).collect();
        let mut shift = 0;
        while cylinders >> shift > EXACT {
            shift += 1;
        }
        let coarse: Vec<u32> = if cylinders > EXACT {
            (0..=(cylinders >> shift) + 1).map(|step| time(step << shift)).collect()
        } else {
            Vec::new()
        };
        let mut table = SeekTable { exact, coarse, shift, reach: Vec::new() };
        // The longest distance within each step. Measured curves are not quite monotonic, so a
        // shorter time may reach further.
        for distance in 0..=cylinders {
            let step = (table.time(distance) >> STEP) as usize;
            if table.reach.len() <= step {
                table.reach.resize(step + 1, 0);
            }
            table.reach[step] = table.reach[step].max(distance + 1);
        }
        for step in 1..table.reach.len() {
            table.reach[step] = table.reach[step].max(table.reach[step - 1]);
        }
        table
    }

    /// Returns the time for a distance, in nanoseconds; zero for distance zero.
    #[inline]
    pub fn time(&self, distance: u32) -> u32 {
        if let Some(&time) = self.exact.get(distance as usize) {
            return time;
        }
        let step = (distance >> self.shift) as usize;
        match (self.coarse.get(step), self.coarse.get(step + 1)) {
            (Some(&low), Some(&high)) => {
                let part = i64::from(distance & ((1 << self.shift) - 1));
                let rise = (i64::from(high) - i64::from(low)) * part;
                (i64::from(low) + (rise >> self.shift)) as u32
            }
            _ => self.coarse.last().or(self.exact.last()).copied().unwrap_or(0),
        }
    }

    /// Returns a distance from which on every seek takes at least `time` nanoseconds.
    #[inline]
    pub fn reach(&self, time: u64) -> u32 {
        let step = usize::try_from(time >> STEP).unwrap_or(usize::MAX);
        self.reach.get(step).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{SeekCurve, SeekTable};
    use hemi_units::Time;

    fn milliseconds(ms: f64) -> Time {
        Time(libm::round(ms * 1e6) as u64)
    }

    #[test]
    fn points_are_met_and_joined_by_lines() {
        let curve = SeekCurve::Points(vec![
            (1, milliseconds(1.0)),
            (3, milliseconds(2.0)),
            (100, milliseconds(4.0)),
        ]);
        let table = SeekTable::new(&curve, 200);
        assert_eq!((table.time(0), table.time(1), table.time(3)), (0, 1_000_000, 2_000_000));
        assert_eq!(table.time(2), 1_500_000);
        assert_eq!(table.time(197), 6_000_000);
    }

    #[test]
    fn the_mean_over_random_pairs_is_the_data_sheets() {
        let curve =
            SeekCurve::DataSheet { track_to_track: milliseconds(0.8), average: milliseconds(8.5) };
        for cylinders in [5_000_u32, 300_000] {
            let table = SeekTable::new(&curve, cylinders);
            let mut rng = hemi_random::Rng::new(5, 0);
            let n = 200_000;
            let mut sum = 0.0;
            for _ in 0..n {
                let a = rng.below(u64::from(cylinders)) as u32;
                let b = rng.below(u64::from(cylinders)) as u32;
                sum += f64::from(table.time(a.abs_diff(b)));
            }
            assert!((sum / f64::from(n) / 8.5e6 - 1.0).abs() < 0.01, "{}", sum / f64::from(n));
        }
    }

    #[test]
    fn the_table_follows_the_curve() {
        let curve = SeekCurve::SquareRootThenLinear {
            a: milliseconds(0.5),
            b: milliseconds(0.02),
            knee: 40_000,
            c: milliseconds(3.0),
            e: 37.5,
        };
        let cylinders = 250_000;
        let table = SeekTable::new(&curve, cylinders);
        for distance in (1..cylinders).rev() {
            let (exact, from_table) = (curve.time(distance, cylinders), table.time(distance));
            assert!(exact.abs_diff(u64::from(from_table)) < 2_000, "{distance}");
        }
    }

    #[test]
    fn what_is_out_of_reach_takes_longer() {
        let points: Vec<(u32, Time)> = (1..200)
            .map(|i| (i * 50, milliseconds(0.5 + f64::from(i) / 20.0 + f64::from(i % 7) / 30.0)))
            .collect();
        let curve = SeekCurve::Points(points);
        let table = SeekTable::new(&curve, 10_000);
        for step in 0..1_500 {
            let time = step * 10_000;
            let reach = table.reach(time);
            for distance in (reach..=10_000).step_by(7) {
                assert!(u64::from(table.time(distance)) >= time, "{time} {reach} {distance}");
            }
        }
        // The distances within reach include few that take longer.
        assert!(table.reach(3_000_000) < 3_000, "{}", table.reach(3_000_000));
    }
}
