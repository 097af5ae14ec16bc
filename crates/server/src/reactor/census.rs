//! The reactor's part of a census of the regions. It counts a few of them in each turn, so that
//! clients do not wait.

use hemi_engine::status::RegionCounts;
use hemi_units::{Instant, MILLISECOND};

use super::Reactor;
use crate::control::volume::Census;
use crate::messages::{ReactorError, ReplyTo};

/// Regions counted in one turn, which takes some tenths of a millisecond.
const REGIONS_PER_TURN: u32 = 8192;
/// Time between two turns that count, if nothing else is to be done.
const PAUSE: u64 = MILLISECOND;

/// A census in progress.
pub(super) struct Counting {
    census: Census,
    /// The first region that has not been counted.
    next: u32,
    /// The time of the next turn that counts.
    due: Instant,
    reply: ReplyTo<Result<Census, ReactorError>>,
}

impl Reactor {
    /// Begins a census. Refuses if one is already in progress.
    pub(super) fn begin_census(
        &mut self,
        mut cells: Vec<RegionCounts>,
        reply: ReplyTo<Result<Census, ReactorError>>,
    ) {
        if self.census.is_some() {
            return reply(Err(ReactorError::Busy));
        }
        let regions = self.engine.region_count();
        let count = cells.len().clamp(1, (regions as usize).max(1));
        cells.resize(count, RegionCounts::default());
        let census = Census { regions, cells };
        self.census = Some(Counting { census, next: 0, due: self.now, reply });
    }

    /// Returns the time at which [`Reactor::count_regions`] is due.
    pub(super) fn census_deadline(&self) -> Instant {
        self.census.as_ref().map_or(Instant::NEVER, |counting| counting.due)
    }

    /// Counts the regions of one turn.
    pub(super) fn count_regions(&mut self) {
        let due = self.census.take_if(|counting| counting.due <= self.now);
        let Some(mut counting) = due else { return };
        let Census { regions, cells } = &mut counting.census;
        let until = counting.next.saturating_add(REGIONS_PER_TURN).min(*regions);
        while counting.next < until {
            let cell = cell_of(counting.next, *regions, cells.len());
            let end = cell_start(cell + 1, *regions, cells.len()).min(until);
            cells[cell] += self.engine.census(counting.next..end);
            counting.next = end;
        }
        if counting.next < *regions {
            counting.due = self.now + PAUSE;
            self.census = Some(counting);
        } else {
            (counting.reply)(Ok(counting.census));
        }
    }
}

/// Returns the first region of a cell.
fn cell_start(cell: usize, regions: u32, cells: usize) -> u32 {
    (cell as u64 * u64::from(regions)).div_ceil(cells as u64) as u32
}

/// Returns the cell of a region.
fn cell_of(region: u32, regions: u32, cells: usize) -> usize {
    (u64::from(region) * cells as u64 / u64::from(regions)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_tile_the_regions() {
        for (regions, cells) in [(1, 1), (7, 3), (444_416, 2048), (2048, 2048), (2049, 2048)] {
            assert_eq!(cell_start(0, regions, cells), 0);
            assert_eq!(cell_start(cells, regions, cells), regions);
            for cell in 0..cells {
                let (first, end) =
                    (cell_start(cell, regions, cells), cell_start(cell + 1, regions, cells));
                assert!(first < end, "cell {cell} of {cells} is empty");
                assert_eq!(cell_of(first, regions, cells), cell);
                assert_eq!(cell_of(end - 1, regions, cells), cell);
            }
        }
    }
}
