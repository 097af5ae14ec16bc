//! The read cache: segments with one run of sectors each.

use hemi_core::units::Extent;

use super::geometry::Geometry;
use super::parameters::{ReadAhead, ReadCache};

/// One run.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
    written: bool,
}

/// What the cache has of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    /// All of it, in this segment.
    Whole(usize),
    /// Its beginning (perhaps no more than that what comes next is its first sector).
    Beginning(usize),
    /// Nothing.
    None,
}

/// All segments.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    segments: Vec<Segment>,
    /// Most sectors in each.
    size: u64,
    clock: u64,
    read_ahead: ReadAhead,
    maximum: u64,
}

impl Segments {
    /// Empty segments.
    pub(super) fn new(cache: &ReadCache) -> Segments {
        let size = cache.segment_size.0 / 512;
        Segments {
            segments: vec![Segment::default(); cache.segments as usize],
            size,
            clock: 0,
            read_ahead: cache.read_ahead,
            maximum: cache.maximum_read_ahead.map_or(size, |most| most.0 / 512),
        }
    }

    /// What is there of `extent`. Where `active` is being read on, its next sector counts as
    /// there; what was written does only with `written`.
    pub(super) fn look_up(&self, extent: Extent, active: Option<usize>, written: bool) -> Hit {
        let mut best = Hit::None;
        for (i, segment) in self.segments.iter().enumerate() {
            let open = u64::from(active == Some(i));
            let inside = segment.start <= extent.start && extent.start < segment.end + open;
            if !inside || (segment.written && !written) {
                continue;
            }
            if extent.end <= segment.end {
                return Hit::Whole(i);
            }
            best = Hit::Beginning(i);
        }
        best
    }

    /// Marks a segment as used.
    pub(super) fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.segments[index].used = self.clock;
    }

    /// Takes a segment for a new run from `start` on: an empty one, else the least recently
    /// used, `active` last of all.
    pub(super) fn take(&mut self, start: u64, active: Option<usize>) -> usize {
        let rank = |(i, segment): (usize, &Segment)| {
            let empty = segment.start == segment.end;
            (active == Some(i), !empty, segment.used)
        };
        let index = (0..self.segments.len())
            .min_by_key(|&i| rank((i, &self.segments[i])))
            .unwrap_or_default();
        self.segments[index] = Segment { start, end: start, used: 0, written: false };
        self.touch(index);
        index
    }

    /// Forgets what a write makes stale.
    pub(super) fn overwrite(&mut self, extent: Extent) {
        for segment in &mut self.segments {
            if segment.start < extent.end && extent.start < segment.end {
                if extent.start > segment.start {
                    segment.end = extent.start;
                } else {
                    segment.start = extent.end.min(segment.end);
                }
            }
        }
    }

    /// A written run takes a segment: one that it overlaps, else as [`Segments::take`] says.
    pub(super) fn take_for_write(&mut self, extent: Extent, active: Option<usize>) {
        let overlapped = self.segments.iter().enumerate().position(|(i, segment)| {
            active != Some(i) && segment.start < extent.end && extent.start < segment.end
        });
        self.overwrite(extent);
        let index = match overlapped {
            Some(index) => index,
            None => self.take(extent.start, active),
        };
        let start = extent.start.max(extent.end.saturating_sub(self.size));
        self.segments[index] = Segment { start, end: extent.end, used: 0, written: true };
        self.touch(index);
    }

    /// What a segment holds.
    pub(super) fn run(&self, index: usize) -> Extent {
        Extent { start: self.segments[index].start, end: self.segments[index].end }
    }

    /// A segment holds its run up to `end` now; the oldest sectors give way.
    pub(super) fn extend(&mut self, index: usize, end: u64) {
        let segment = &mut self.segments[index];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.size));
    }

    /// A segment's run begins earlier: sectors before it passed under the head.
    pub(super) fn extend_back(&mut self, index: usize, sectors: u64) {
        let segment = &mut self.segments[index];
        segment.start -= sectors.min(self.size).min(segment.start);
    }

    /// Up to where the medium is read for a request that ends at `end`.
    pub(super) fn limit(&self, index: usize, end: u64, geometry: &Geometry) -> u64 {
        let last = geometry.sectors();
        if end >= last {
            return last;
        }
        let limit = match self.read_ahead {
            ReadAhead::None => end,
            ReadAhead::Track => geometry.track_end(end - 1),
            ReadAhead::Cylinder => geometry.cylinder_end(end - 1),
            ReadAhead::Segment => end + self.maximum,
            ReadAhead::GrowingTrack => {
                let track_end = geometry.track_end(end);
                if self.segments[index].start < geometry.track_start(end) && track_end < last {
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
    use hemi_core::units::Extent;

    use super::{Hit, Segments};
    use crate::hdd::parameters::{ReadAhead, ReadCache};
    use crate::quantity::Size;

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
