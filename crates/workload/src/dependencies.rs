//! Dependencies between the requests of a trace.
//!
//! A trace does not record why a request was issued when it was. It certainly did not wait for
//! requests that completed later. So it is assumed to have waited for all requests completed
//! before it, and to have been issued after a **think time** since the last of them (hfplayer's
//! approach: Haghdoost and others, FAST 2017). A request is then never issued before one it
//! waited for, and as many requests are in flight as were in the recording if nothing waited.

use hemi_units::Instant;

use super::traces::load::Trace;

/// The requests each request waits for, and those that are done.
#[derive(Clone, Debug)]
pub(super) struct Dependencies {
    /// Rank of each entry in the order of completion.
    rank: Vec<u32>,
    /// Number of ranks each entry waits for; never less than for the entry before.
    waits_for: Vec<u32>,
    /// Think time of each entry in nanoseconds, counted from the last request it waits for, or
    /// from the beginning if it waits for none.
    think: Vec<u64>,
    /// Completion time in the replay, by rank; [`Instant::NEVER`] until then.
    done_at: Vec<Instant>,
    /// Number of ranks, from the first, that are done.
    seen: u32,
    /// Completion time of the last of those.
    last: Instant,
    begin: Instant,
}

impl Dependencies {
    /// Builds the dependencies of a trace that records latencies.
    pub(super) fn of(trace: &Trace) -> Dependencies {
        let entries = trace.entries();
        let ends: Vec<u64> = (entries.iter().zip(trace.latencies()))
            .map(|(entry, latency)| entry.at.saturating_add(*latency))
            .collect();
        let mut order: Vec<u32> = (0..ends.len() as u32).collect();
        order.sort_by_key(|&index| ends[index as usize]);
        let mut rank = vec![0; ends.len()];
        for (place, &index) in (0..).zip(&order) {
            rank[index as usize] = place;
        }
        let (mut waits_for, mut think) = (Vec::new(), Vec::new());
        let mut before = 0;
        for (index, entry) in entries.iter().enumerate() {
            // A request that took no time and was issued at the same time counts as done before
            // this one only if it also precedes it.
            while order
                .get(before)
                .is_some_and(|&other| ends[other as usize] <= entry.at && (other as usize) < index)
            {
                before += 1;
            }
            let last = before.checked_sub(1).map_or(0, |last| ends[order[last] as usize]);
            waits_for.push(before as u32);
            think.push(entry.at - last);
        }
        Dependencies {
            done_at: vec![Instant::NEVER; ends.len()],
            rank,
            waits_for,
            think,
            seen: 0,
            last: Instant(0),
            begin: Instant(0),
        }
    }

    pub(super) fn begin(&mut self, at: Instant) {
        self.begin = at;
        self.last = at;
    }

    /// Returns the time at which the next entry may be issued, or never until everything it
    /// waits for is done.
    pub(super) fn due(&self, entry: usize, at: u64) -> Instant {
        match self.waits_for.get(entry) {
            Some(0) => self.begin + at,
            Some(&count) if self.seen >= count => self.last + self.think[entry],
            _ => Instant::NEVER,
        }
    }

    /// Records the completion of an entry; `next` is the entry to be issued next.
    pub(super) fn done(&mut self, entry: u32, at: Instant, next: usize) {
        self.done_at[self.rank[entry as usize] as usize] = at;
        self.look(next);
    }

    /// Advances past the completed entries that `next` depends on.
    pub(super) fn look(&mut self, next: usize) {
        let Some(&count) = self.waits_for.get(next) else { return };
        while self.seen < count {
            let at = self.done_at[self.seen as usize];
            if at == Instant::NEVER {
                return;
            }
            self.last = self.last.max(at);
            self.seen += 1;
        }
    }
}
