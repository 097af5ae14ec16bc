//! The last 24 hours in memory: steps of one second for the last 15 minutes, and of ten seconds for the rest.

use std::collections::VecDeque;

use super::row::{Merged, Row};

/// Length of a fine step in milliseconds.
pub(crate) const FINE_MS: u64 = 1_000;
/// Length of a coarse step in milliseconds.
pub(crate) const COARSE_MS: u64 = 10_000;
/// Number of fine steps kept: 15 minutes.
pub(crate) const FINE_ROWS: usize = 900;
/// Number of coarse steps kept: 24 hours.
pub(crate) const COARSE_ROWS: usize = 8_640;

/// A resolution of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Steps of one second.
    Fine,
    /// Steps of ten seconds.
    Coarse,
}

impl Resolution {
    /// Returns the length of a step in milliseconds.
    pub(crate) fn step_ms(self) -> u64 {
        match self {
            Resolution::Fine => FINE_MS,
            Resolution::Coarse => COARSE_MS,
        }
    }

    /// Returns the span over which steps of this length are kept, in milliseconds.
    pub(crate) fn span_ms(self) -> u64 {
        match self {
            Resolution::Fine => FINE_MS * FINE_ROWS as u64,
            Resolution::Coarse => COARSE_MS * COARSE_ROWS as u64,
        }
    }
}

/// The steps kept, oldest first. All memory is reserved at the start and touched only as it is used.
#[derive(Debug)]
pub(crate) struct Rings {
    fine: VecDeque<Row>,
    coarse: VecDeque<Row>,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings {
            fine: VecDeque::with_capacity(FINE_ROWS),
            coarse: VecDeque::with_capacity(COARSE_ROWS),
        }
    }
}

/// A stretch of the history in steps of equal length.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// The beginning of the first step, in milliseconds since 1970.
    pub(crate) from_ms: u64,
    /// Length of a step in milliseconds.
    pub(crate) step_ms: u64,
    /// The steps. One without any data is unknown.
    pub(crate) rows: Vec<Row>,
}

impl Rings {
    /// Adds a step, which replaces the oldest if the ring is full.
    pub(crate) fn push(&mut self, resolution: Resolution, row: Row) {
        let (ring, most) = match resolution {
            Resolution::Fine => (&mut self.fine, FINE_ROWS),
            Resolution::Coarse => (&mut self.coarse, COARSE_ROWS),
        };
        while ring.len() >= most {
            ring.pop_front();
        }
        ring.push_back(row);
    }

    /// Returns the steps of a resolution, oldest first.
    pub(crate) fn rows(&self, resolution: Resolution) -> impl Iterator<Item = &Row> {
        self.ring(resolution).iter()
    }

    fn ring(&self, resolution: Resolution) -> &VecDeque<Row> {
        match resolution {
            Resolution::Fine => &self.fine,
            Resolution::Coarse => &self.coarse,
        }
    }

    /// Returns the last `span_ms` milliseconds before `now_ms` in at most `points` steps. A step is a
    /// multiple of the resolution's, and its boundaries do not depend on `now_ms`.
    pub(crate) fn stretch(&self, now_ms: u64, span_ms: u64, points: usize) -> Stretch {
        let fits = span_ms <= Resolution::Fine.span_ms();
        let resolution = if fits { Resolution::Fine } else { Resolution::Coarse };
        let unit = resolution.step_ms();
        let span_ms = span_ms.clamp(unit, resolution.span_ms());
        let step_ms = span_ms.div_ceil(points.max(1) as u64).div_ceil(unit) * unit;
        let count = span_ms.div_ceil(step_ms);
        // The last step is the current one. In exchange, the first may lack its beginning.
        let from_ms = (now_ms.div_ceil(step_ms) * step_ms).saturating_sub(count * step_ms);
        let end = |index: u64| from_ms + (index + 1) * step_ms;
        let mut steps: Vec<Option<Merged>> = vec![None; count as usize];
        for row in self.ring(resolution) {
            // The time of a row is its end.
            let Some(offset) = row.at_ms.checked_sub(from_ms + 1) else { continue };
            let index = offset / step_ms;
            if let Some(step) = steps.get_mut(index as usize) {
                step.get_or_insert_with(|| Merged::new(end(index))).add(row);
            }
        }
        let finished = (0..)
            .zip(steps)
            .map(|(index, step)| step.map_or_else(|| Row::unknown(end(index)), Merged::finish));
        Stretch { from_ms, step_ms, rows: finished.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Column;
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn filled(rows: u64) -> Rings {
        let mut rings = Rings::default();
        for index in 0..rows {
            let mut row = Row::unknown(NOW - (rows - 1 - index) * FINE_MS);
            row.set(Column::Reads, index as f32);
            rings.push(Resolution::Fine, row);
        }
        rings
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut rings = Rings::default();
        for index in 0..COARSE_ROWS as u64 + 5 {
            rings.push(Resolution::Fine, Row::unknown(index * FINE_MS));
            rings.push(Resolution::Coarse, Row::unknown(index * COARSE_MS));
        }
        assert_eq!(rings.fine.len(), FINE_ROWS);
        assert_eq!(rings.coarse.len(), COARSE_ROWS);
        assert_eq!(rings.coarse.capacity(), COARSE_ROWS, "it has not grown");
        let bytes = size_of::<Row>() * (FINE_ROWS + COARSE_ROWS);
        let events = super::super::super::events::EVENTS_BYTES_MAX;
        assert!(bytes + events <= 8 << 20, "{bytes} bytes and {events} of events");
    }

    #[test]
    fn a_stretch_has_no_more_points_than_asked_for_and_all_that_is_known() {
        let rings = filled(600);
        for (span, points) in [(300, 300), (900, 100), (60, 2), (900, 900), (1, 5)] {
            let stretch = rings.stretch(NOW, span * 1000, points);
            assert!(stretch.rows.len() <= points, "{span} s in {points}: {}", stretch.rows.len());
            let last = stretch.rows.last().expect("there is one");
            assert_eq!(last.at_ms, stretch.from_ms + stretch.step_ms * stretch.rows.len() as u64);
            assert!(last.at_ms >= NOW && last.at_ms < NOW + stretch.step_ms);
            let step = stretch.step_ms;
            assert!(stretch.from_ms < NOW - span * 1000 + step && step < 2 * span * 1000);
            assert!(!last.get(Column::Reads).is_nan(), "the newest is known");
        }
        let long = rings.stretch(NOW, 900_000, 100);
        assert!(long.rows[0].get(Column::Reads).is_nan(), "nothing is known of so long ago");
    }

    #[test]
    fn the_day_comes_from_the_coarse_steps() {
        let mut rings = filled(10);
        let mut row = Row::unknown(NOW);
        row.set(Column::Reads, 42.0);
        rings.push(Resolution::Coarse, row);
        let day = rings.stretch(NOW, 86_400_000, 288);
        assert_eq!(day.rows.last().map(|row| row.get(Column::Reads)), Some(42.0));
        assert_eq!(day.step_ms % COARSE_MS, 0);
    }
}
