//! Which requests of a trace must have waited for which others.
//!
//! Nobody recorded why a request came when it did. What is sure is that it cannot have waited
//! for what was done only after it came. So it is taken to have waited for everything that was
//! done before, and to have been thought about since the last of that was: its **think time**
//! (hfplayer's approach: Haghdoost and others, FAST 2017). That never lets a request go before
//! one it waited for, and keeps as many under way as there were where nothing waited.

use hemi_units::Instant;

use super::traces::load::Trace;

/// What each request waits for, and what is done.
#[derive(Clone, Debug)]
pub(super) struct Dependencies {
    /// By entry, its place in the order in which requests were done.
    rank: Vec<u32>,
    /// By entry, how many of that order it waits for: never fewer than the one before.
    waits_for: Vec<u32>,
    /// By entry, nanoseconds from the last of these to when it came; from the beginning, for
    /// those that wait for none.
    think: Vec<u64>,
    /// By rank, when it was done in the replay; [`Instant::NEVER`] until then.
    done_at: Vec<Instant>,
    /// How many ranks, from the first, are done …
    seen: u32,
    /// … and when the last of them was.
    last: Instant,
    begin: Instant,
}

impl Dependencies {
    /// Those of a trace that says how long its requests took.
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
            // What took no time at all and came at the same time is done before it only if
            // it also comes before it.
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

    /// When the entry that is next may be issued; never, as long as what it waits for is not
    /// done.
    pub(super) fn due(&self, entry: usize, at: u64) -> Instant {
        match self.waits_for.get(entry) {
            Some(0) => self.begin + at,
            Some(&count) if self.seen >= count => self.last + self.think[entry],
            _ => Instant::NEVER,
        }
    }

    /// An entry is done; `next` is the one to be issued next.
    pub(super) fn done(&mut self, entry: u32, at: Instant, next: usize) {
        self.done_at[self.rank[entry as usize] as usize] = at;
        self.look(next);
    }

    /// Sees how far what the entry `next` waits for is done.
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
