//! The read cache: segments with one run of sectors each.

use hemi_units::Extent;

use super::geometry::Geometry;
use super::parameters::{ReadAhead, ReadCache};

/// The part of a request that the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// All of it, in this segment.
    Whole(usize),
    /// Its beginning, in this segment; possibly only in that its first sector is read next.
    Beginning(usize),
    /// Nothing.
    None,
}

/// All segments.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    /// The run each segment holds.
    runs: Vec<Extent>,
    /// Sequence number of each segment's last use; zero if it is empty.
    used: Vec<u64>,
    /// True for each segment whose run was written rather than read.
    written: Vec<bool>,
    /// Sector behind the last one sent from each segment, for a cache that forgets those.
    sent: Vec<u64>,
    forgets_sent: bool,
    /// Maximum number of sectors in a segment.
    size: u64,
    clock: u64,
    read_ahead: ReadAhead,
    /// Maximum number of sectors read past a request, if there is one.
    maximum: Option<u64>,
}

impl Segments {
    /// Creates empty segments.
    pub(super) fn new(cache: &ReadCache) -> Segments {
        let size = cache.segment_size.0 / 512;
        let count = cache.segments as usize;
        Segments {
            runs: vec![Extent::default(); count],
            used: vec![0; count],
            written: vec![false; count],
            sent: vec![0; count],
            forgets_sent: cache.forgets_sent,
            size,
            clock: 0,
            read_ahead: cache.read_ahead,
            maximum: cache.maximum_read_ahead.map(|most| most.0 / 512),
        }
    }

    /// Looks `extent` up. If the segment `active` is being read into, its next sector counts as
    /// present. Written runs count only if `written` is true.
    pub(super) fn look_up(&self, extent: Extent, active: Option<usize>, written: bool) -> Hit {
        let mut best = Hit::None;
        for (i, run) in self.runs.iter().enumerate() {
            // One comparison for both ends: the difference wraps if the run begins later.
            if extent.start.wrapping_sub(run.start) < run.end - run.start
                && (written || !self.written[i])
                && extent.start >= self.sent[i]
            {
                if extent.end <= run.end {
                    return Hit::Whole(i);
                }
                best = Hit::Beginning(i);
            }
        }
        match active {
            Some(i) if best == Hit::None && self.runs[i].end == extent.start => Hit::Beginning(i),
            _ => best,
        }
    }

    /// Marks a segment as used.
    pub(super) fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.used[index] = self.clock;
    }

    /// Records that the sectors before `end` have been sent from a segment.
    pub(super) fn send(&mut self, index: usize, end: u64) {
        if self.forgets_sent {
            self.sent[index] = end;
        }
    }

    /// Takes a segment for a new run that starts at `start`: an empty one, else the least
    /// recently used, and `active` only if there is no other.
    pub(super) fn take(&mut self, start: u64, active: Option<usize>) -> usize {
        let mut index = 0;
        let mut least = u64::MAX;
        for (i, &used) in self.used.iter().enumerate() {
            if used < least && active != Some(i) {
                (index, least) = (i, used);
            }
        }
        self.runs[index] = Extent { start, end: start };
        self.written[index] = false;
        self.sent[index] = 0;
        self.touch(index);
        index
    }

    /// Forgets sectors that a write makes stale.
    pub(super) fn overwrite(&mut self, extent: Extent) {
        for (run, used) in self.runs.iter_mut().zip(&mut self.used) {
            if run.start < extent.end && extent.start < run.end {
                if extent.start > run.start {
                    run.end = extent.start;
                } else {
                    run.start = extent.end.min(run.end);
                }
                if run.is_empty() {
                    *used = 0;
                }
            }
        }
    }

    /// Takes a segment for a written run: one that it overlaps, else as [`Segments::take`]
    /// does. Keeps nothing of the run if the only segment is being read into.
    pub(super) fn take_for_write(&mut self, extent: Extent, active: Option<usize>) {
        let mut runs = self.runs.iter().enumerate();
        let overlapped = runs.position(|(i, run)| active != Some(i) && run.overlaps(extent));
        self.overwrite(extent);
        let index = match overlapped {
            Some(index) => index,
            None if active.is_some() && self.runs.len() == 1 => return,
            None => self.take(extent.start, active),
        };
        let start = extent.start.max(extent.end.saturating_sub(self.size));
        self.runs[index] = Extent { start, end: extent.end };
        self.written[index] = true;
        self.sent[index] = 0;
        self.touch(index);
    }

    /// Returns the run of a segment.
    pub(super) fn run(&self, index: usize) -> Extent {
        self.runs[index]
    }

    /// Extends a segment's run up to `end`; the oldest sectors give way.
    pub(super) fn extend(&mut self, index: usize, end: u64) {
        let run = &mut self.runs[index];
        run.end = run.end.max(end);
        run.start = run.start.max(run.end.saturating_sub(self.size));
    }

    /// Extends a segment's run backwards by sectors that passed under the head before it.
    pub(super) fn extend_back(&mut self, index: usize, sectors: u64) {
        let run = &mut self.runs[index];
        run.start -= sectors.min(self.size).min(run.start);
    }

    /// Returns the sector at which reading stops for a request that ends at `end`.
    pub(super) fn limit(&self, index: usize, end: u64, geometry: &Geometry) -> u64 {
        let last = geometry.sectors();
        if end >= last {
            return last;
        }
        let most = end.saturating_add(self.maximum.unwrap_or(u64::MAX));
        let limit = match self.read_ahead {
            ReadAhead::None => end,
            ReadAhead::Track => geometry.track_end(end - 1).min(most),
            ReadAhead::Cylinder => geometry.cylinder_end(end - 1).min(most),
            ReadAhead::Segment => end + self.maximum.unwrap_or(self.size),
            ReadAhead::GrowingTrack => {
                let track_end = geometry.track_end(end);
                if self.runs[index].start < geometry.track_start(end) && track_end < last {
                    geometry.track_end(track_end)
                } else {
                    track_end
                }
            }
        };
        limit.min(last)
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::{Extent, Size};

    use super::{Hit, Segments};
    use crate::hdd::parameters::{ReadAhead, ReadCache};

    fn segments() -> Segments {
        Segments::new(&ReadCache {
            segments: 2,
            segment_size: Size(100 * 512),
            read_ahead: ReadAhead::None,
            maximum_read_ahead: None,
            keeps_passing_sectors: false,
            hits_while_busy: true,
            restarts_on_hit: true,
            continues_at_end: true,
            stops_within_sector: false,
            forgets_sent: false,
        })
    }

    #[test]
    fn runs_are_found_grow_give_way_and_go_stale() {
        let mut cache = segments();
        let first = cache.take(1000, None);
        cache.extend(first, 1050);
        assert_eq!(cache.look_up(Extent::new(1010, 40), None, true), Hit::Whole(first));
        assert_eq!(cache.look_up(Extent::new(1010, 41), None, true), Hit::Beginning(first));
        assert_eq!(cache.look_up(Extent::new(1050, 8), None, true), Hit::None);
        assert_eq!(cache.look_up(Extent::new(1050, 8), Some(first), true), Hit::Beginning(first));
        cache.extend(first, 1130);
        assert_eq!(cache.run(first), Extent { start: 1030, end: 1130 });
        cache.overwrite(Extent::new(1100, 4));
        assert_eq!(cache.run(first), Extent { start: 1030, end: 1100 });
        let second = cache.take(5000, None);
        assert_ne!(first, second);
        cache.extend(second, 5001);
        cache.touch(first);
        // The least recently used gives way.
        assert_eq!(cache.take(7000, None), second);
        cache.take_for_write(Extent::new(1040, 8), None);
        assert_eq!(cache.run(first), Extent::new(1040, 8));
        assert_eq!(cache.look_up(Extent::new(1040, 8), None, false), Hit::None);
    }
}
