//! Stall time hidden from clients: the time during which a leg did not answer while clients were served.
//!
//! `docs/dashboard.md` has the definition. Time is counted second by second from cumulative counters, so no
//! freeze is too short to count.

use std::collections::VecDeque;

use hemi_engine::histogram::{LatencyHistogram, bucket_upper_bound};
use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::status::{LegState, LegStatus, Status};
use serde::{Deserialize, Serialize};

/// Number of hours kept individually: a week.
const HOURS: u64 = 7 * 24;
const DAY_HOURS: u64 = 24;
const HOUR_MS: u64 = 3_600_000;

/// Stall time hidden from clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenStall {
    /// Hidden stall time of the last 24 hours, to the hour.
    pub day_ns: u64,
    /// Hidden stall time of the last seven days, to the hour.
    pub week_ns: u64,
    /// Hidden stall time since the volume was first served with a state directory.
    pub total_ns: u64,
}

/// The hidden stall time of one hour, and the total at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hour {
    /// Hours since 1970.
    pub(super) hour: u64,
    /// Hidden stall time within the hour, in nanoseconds.
    pub(super) hidden: u64,
    /// The total including this hour, in nanoseconds.
    pub(super) total: u64,
}

impl Hour {
    /// Size of its encoding in bytes.
    pub(super) const BYTES: usize = 24;

    /// Returns it as bytes.
    pub(super) fn encode(&self) -> [u8; Hour::BYTES] {
        let mut bytes = [0; Hour::BYTES];
        for (place, value) in bytes.chunks_exact_mut(8).zip([self.hour, self.hidden, self.total]) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Returns the hour that [`Hour::encode`] encoded as these bytes; `None` if they are not valid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Hour> {
        let (values, rest) = bytes.as_chunks();
        let &[hour, hidden, total] = values else { return None };
        let value = u64::from_le_bytes;
        rest.is_empty().then(|| Hour {
            hour: value(hour),
            hidden: value(hidden),
            total: value(total),
        })
    }

    /// Returns true if the hour still counts at a time in milliseconds since 1970.
    pub(super) fn is_kept(&self, now_ms: u64) -> bool {
        now_ms / HOUR_MS < self.hour + HOURS
    }
}

/// Hidden stall time by the hour.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    hours: VecDeque<Hour>,
    total: u64,
    /// For each leg, the end of the last second in which it stalled, in nanoseconds since the start. Time
    /// before it has been counted and is not counted again.
    stalled_until: [u64; LEGS_MAX],
    /// Legs that were frozen in the last second, by slot.
    was_frozen: [bool; LEGS_MAX],
    now: u64,
}

impl Hidden {
    /// Takes one second: the volume at its beginning and at its end, and its length in nanoseconds. Returns
    /// the hidden stall time that it adds.
    pub(super) fn take(&mut self, before: &Status, now: &Status, length: u64, at_ms: u64) -> u64 {
        let start = self.now;
        self.now += length;
        let served = served(before, now);
        let mut longest = 0;
        for leg in &now.legs {
            let slot = usize::from(leg.leg);
            let known = before.legs.iter().find(|known| known.leg == leg.leg);
            let stalled = known.map_or(0, |known| self.stall_of(known, leg, start + length));
            if stalled > 0 {
                self.stalled_until[slot] = self.now;
            }
            longest = longest.max(stalled);
        }
        if served.count() == 0 {
            return 0;
        }
        // The time that clients themselves waited, beyond the wait limit of a leg, was not hidden.
        let limit = now.legs.iter().map(wait_limit).min().unwrap_or(0);
        let waited = at_least(&served).saturating_sub(limit);
        let hidden = longest.saturating_sub(waited);
        self.add(at_ms, hidden);
        hidden
    }

    /// Returns the time that a leg did not answer in a second that ends at `end`, with earlier time that
    /// shows only now.
    fn stall_of(&mut self, before: &LegStatus, now: &LegStatus, end: u64) -> u64 {
        if matches!(now.state, LegState::Out | LegState::Empty) {
            return 0;
        }
        let slot = usize::from(now.leg);
        let frozen = now.frozen_time.saturating_sub(before.frozen_time);
        let was_frozen = std::mem::replace(&mut self.was_frozen[slot], frozen > 0);
        if frozen > 0 || was_frozen {
            // This is exact. I/O that returns after the freeze has been counted with it.
            return frozen;
        }
        // An I/O was late without a freeze, because others were answered meanwhile. Its lateness ended now at
        // the latest, and lasted no longer than its latency beyond its limit.
        let mut done = now.reads.since(&before.reads);
        done.merge(&now.writes.since(&before.writes));
        let late =
            at_least(&done).saturating_sub(now.longest_wait_limit.max(before.longest_wait_limit));
        late.min(end.saturating_sub(self.stalled_until[slot]))
    }

    fn add(&mut self, at_ms: u64, hidden: u64) {
        let hour = at_ms / HOUR_MS;
        self.total += hidden;
        match self.hours.back_mut() {
            // If the clock was set back, the time counts for the hour already reached.
            Some(last) if last.hour >= hour => {
                last.hidden += hidden;
                last.total = self.total;
            }
            _ if hidden > 0 => self.hours.push_back(Hour { hour, hidden, total: self.total }),
            _ => {}
        }
        while self.hours.len() as u64 > HOURS {
            self.hours.pop_front();
        }
    }

    /// Restores the hours kept from before, oldest first.
    pub(super) fn restore(&mut self, before: &[Hour]) {
        let own: Vec<Hour> = self.hours.drain(..).collect();
        self.total += before.iter().map(|hour| hour.total).max().unwrap_or(0);
        for hour in before.iter().copied().chain(own) {
            match self.hours.back_mut() {
                Some(last) if last.hour >= hour.hour => last.hidden += hour.hidden,
                _ => self.hours.push_back(hour),
            }
        }
        if let Some(last) = self.hours.back_mut() {
            last.total = self.total;
        }
    }

    /// Returns the newest hour, if there is one.
    pub(super) fn newest(&self) -> Option<Hour> {
        self.hours.back().copied()
    }

    /// Returns the figures at a time in milliseconds since 1970.
    pub(super) fn figures(&self, now_ms: u64) -> HiddenStall {
        let now = now_ms / HOUR_MS;
        let last = |hours: u64| {
            let kept = self.hours.iter().filter(|hour| now < hour.hour + hours);
            kept.map(|hour| hour.hidden).sum()
        };
        HiddenStall { day_ns: last(DAY_HOURS), week_ns: last(HOURS), total_ns: self.total }
    }
}

/// Returns the latencies of all client requests answered in between.
fn served(before: &Status, now: &Status) -> LatencyHistogram {
    let mut served = now.client_reads.since(&before.client_reads);
    served.merge(&now.client_writes.since(&before.client_writes));
    served
}

/// Returns the shorter of a leg's wait limits.
fn wait_limit(leg: &LegStatus) -> u64 {
    leg.read_wait_limit.min(leg.write_wait_limit)
}

/// Returns the least that the slowest of some latencies can have been: the lower end of its bucket, or zero.
fn at_least(latencies: &LatencyHistogram) -> u64 {
    let highest = latencies.buckets().iter().rposition(|&count| count > 0);
    highest.filter(|&bucket| bucket > 0).map_or(0, |bucket| bucket_upper_bound(bucket - 1) + 1)
}

#[cfg(test)]
mod tests;
