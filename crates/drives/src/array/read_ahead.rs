//! Sequential streams and their read-ahead.
//!
//! Only the speed is modelled, not the contents: a write to sectors that have been read ahead
//! is assumed to correct the copy as well, as in a real controller.

use std::collections::VecDeque;

use hemi_units::Extent;

use super::slab::Slab;

/// Maximum number of streams tracked at once.
const STREAMS: usize = 32;

/// A run of sectors read ahead.
#[derive(Clone, Debug, Default)]
struct Segment {
    extent: Extent,
    ready: bool,
    /// True if no stream needs it any more: it is freed once it is ready.
    abandoned: bool,
    /// Requests that wait for it.
    waiting: Vec<u32>,
}

/// A sequence of reads, each starting behind the one before.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// End of the last read.
    next: u64,
    /// Sector up to which the stream has been read ahead; at least `next`.
    ahead: u64,
    /// True if a second read has followed the first.
    is_known: bool,
    /// Sequence number of the read that last used it.
    used: u64,
    /// Segments read ahead, in order, without gaps, up to `ahead`.
    segments: VecDeque<u32>,
}

/// All streams.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    /// Sectors to read ahead of a stream.
    window: u64,
    /// Sectors of a segment; segments begin at multiples of it.
    chunk: u64,
    /// Sectors of the array.
    end: u64,
    streams: Vec<Stream>,
    segments: Slab<Segment>,
    reads: u64,
}

impl ReadAhead {
    pub(super) fn new(window: u64, chunk: u64, end: u64) -> ReadAhead {
        let segments = Slab::new();
        ReadAhead { window, chunk, end, streams: Vec::new(), segments, reads: 0 }
    }

    /// Handles a request that reads `extent`. Returns the part that is not read ahead and the
    /// number of segments the request waits for. Puts the segments to read ahead, and their
    /// extents, into `fetch`.
    pub(super) fn read(
        &mut self,
        request: u32,
        extent: Extent,
        fetch: &mut Vec<(u32, Extent)>,
    ) -> (Extent, u32) {
        fetch.clear();
        self.reads += 1;
        // Between two reads of a stream there may be a request of another kind, or a read that
        // this one overtook. A stream with nothing read ahead yet may also be no stream at all.
        let follows = |stream: &Stream| {
            let slack = if stream.is_known { self.window } else { 2 * extent.sectors() };
            extent.start >= stream.next && extent.start <= stream.ahead + slack
        };
        let Some(index) = self.streams.iter().position(follows) else {
            self.begin(extent);
            return (extent, 0);
        };
        let mut stream = std::mem::take(&mut self.streams[index]);
        stream.used = self.reads;
        stream.is_known = true;
        stream.next = extent.end;
        while let Some(&first) = stream.segments.front()
            && self.segments[first].extent.end <= extent.start
        {
            stream.segments.pop_front();
            self.release(first);
        }
        let mut waits = 0;
        let mut from = extent.start;
        for &place in &stream.segments {
            let segment = &mut self.segments[place];
            if !segment.extent.overlaps(extent) || segment.extent.start > from {
                continue;
            }
            from = segment.extent.end;
            if !segment.ready {
                segment.waiting.push(request);
                waits += 1;
            }
        }
        let unread = Extent { start: from.min(extent.end), end: extent.end };
        if extent.end > stream.ahead {
            stream.ahead = extent.end;
        }
        while stream.ahead < (extent.end + self.window).min(self.end) {
            let end = ((stream.ahead / self.chunk + 1) * self.chunk).min(self.end);
            let ahead = Extent { start: stream.ahead, end };
            let place = self.segments.take(Segment::default);
            let segment = &mut self.segments[place];
            (segment.extent, segment.ready, segment.abandoned) = (ahead, false, false);
            segment.waiting.clear();
            stream.segments.push_back(place);
            fetch.push((place, ahead));
            stream.ahead = end;
        }
        self.streams[index] = stream;
        (unread, waits)
    }

    /// Begins a stream with a read that follows none. It takes the place of the stream unused
    /// for longest.
    fn begin(&mut self, extent: Extent) {
        let first =
            Stream { next: extent.end, ahead: extent.end, used: self.reads, ..<_>::default() };
        if self.streams.len() < STREAMS {
            self.streams.push(first);
            return;
        }
        let mut oldest = 0;
        for (index, stream) in self.streams.iter().enumerate() {
            if stream.used < self.streams[oldest].used {
                oldest = index;
            }
        }
        let mut segments = std::mem::take(&mut self.streams[oldest].segments);
        for place in segments.drain(..) {
            self.release(place);
        }
        self.streams[oldest] = Stream { segments, ..first };
    }

    fn release(&mut self, place: u32) {
        if self.segments[place].ready {
            self.segments.free(place);
        } else {
            self.segments[place].abandoned = true;
        }
    }

    /// Marks a segment as read and calls `each` with the requests that waited for it.
    pub(super) fn arrived(&mut self, place: u32, mut each: impl FnMut(u32)) {
        let segment = &mut self.segments[place];
        segment.ready = true;
        for request in segment.waiting.drain(..) {
            each(request);
        }
        if segment.abandoned {
            self.segments.free(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use hemi_units::Extent;

    use super::{ReadAhead, STREAMS};

    #[test]
    fn the_second_of_a_sequence_starts_it_and_the_third_finds_it_read() {
        let mut ahead = ReadAhead::new(256, 128, 10_000);
        let mut fetch = Vec::new();
        assert_eq!(ahead.read(1, Extent::new(1000, 64), &mut fetch), (Extent::new(1000, 64), 0));
        assert!(fetch.is_empty());
        assert_eq!(ahead.read(2, Extent::new(1064, 64), &mut fetch), (Extent::new(1064, 64), 0));
        let expected =
            [Extent { start: 1128, end: 1152 }, Extent::new(1152, 128), Extent::new(1280, 128)];
        assert_eq!(fetch.iter().map(|f| f.1).collect::<Vec<_>>(), expected);
        let places: Vec<u32> = fetch.iter().map(|f| f.0).collect();
        // The request waits for each segment in flight once.
        let (unread, waits) = ahead.read(3, Extent::new(1128, 64), &mut fetch);
        assert_eq!((unread.sectors(), waits), (0, 2));
        for place in &places[..2] {
            let mut woken = Vec::new();
            ahead.arrived(*place, |request| woken.push(request));
            assert_eq!(woken, [3]);
        }
        // Segments that have arrived answer at once; a write among the reads leaves a gap.
        let (unread, waits) = ahead.read(4, Extent::new(1216, 64), &mut fetch);
        assert_eq!((unread.sectors(), waits), (0, 0));
        assert!(fetch.is_empty());
        ahead.read(5, Extent::new(1344, 64), &mut fetch);
        assert_eq!(fetch.iter().map(|f| f.1).collect::<Vec<_>>(), [Extent::new(1536, 128)]);
    }

    #[test]
    fn random_reads_read_nothing_ahead_and_places_are_used_again() {
        let mut ahead = ReadAhead::new(256, 128, 1 << 40);
        let mut fetch = Vec::new();
        for round in 0..200_u64 {
            let far = round * 1_000_000;
            ahead.read(0, Extent::new(far, 64), &mut fetch);
            assert!(fetch.is_empty());
            ahead.read(0, Extent::new(far + 64, 64), &mut fetch);
            assert!(!fetch.is_empty());
            for (place, _) in std::mem::take(&mut fetch) {
                ahead.arrived(place, |_| panic!("nobody waits"));
            }
        }
        assert!(ahead.segments.used() <= STREAMS * 4, "{}", ahead.segments.used());
    }

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut ahead = ReadAhead::new(1000, 128, 500);
        let mut fetch = Vec::new();
        ahead.read(0, Extent::new(300, 50), &mut fetch);
        ahead.read(0, Extent::new(350, 50), &mut fetch);
        assert_eq!(fetch.last().unwrap().1.end, 500);
    }
}
