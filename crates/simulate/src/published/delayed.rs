//! The delay queue of one leg: the writes it has missed.

use std::collections::{BTreeMap, VecDeque};

use hemi_units::{Extent, Instant};

/// Maximum number of sectors of one payment: 1 MiB.
const PAYMENT_SECTORS: u64 = 2048;

/// The writes a leg has missed.
#[derive(Default)]
pub(super) struct Delayed {
    /// Used if writes coalesce: first sector, one past the last, and the time of the write. The
    /// extents do not overlap.
    merged: BTreeMap<u64, (u64, Instant)>,
    /// Used otherwise: writes in order of arrival.
    pub(super) listed: VecDeque<(Extent, Instant)>,
    pub(super) sectors: u64,
}

impl Delayed {
    pub(super) fn add(&mut self, extent: Extent, now: Instant, coalesces: bool) {
        if coalesces {
            self.remove(extent);
            self.merged.insert(extent.start, (extent.end, now));
        } else {
            self.listed.push_back((extent, now));
        }
        self.sectors += extent.sectors();
    }

    /// Removes an extent that a direct write has made current.
    pub(super) fn remove(&mut self, extent: Extent) {
        let before = self.merged.range(..extent.start).next_back();
        if let Some((&start, &(end, since))) = before.filter(|(_, (end, _))| *end > extent.start) {
            self.merged.insert(start, (extent.start, since));
            self.sectors -= end.min(extent.end) - extent.start;
            if end > extent.end {
                self.merged.insert(extent.end, (end, since));
                return;
            }
        }
        while let Some((&start, &(end, since))) = self.merged.range(extent.start..extent.end).next()
        {
            self.merged.remove(&start);
            self.sectors -= end.min(extent.end) - start;
            if end > extent.end {
                self.merged.insert(extent.end, (end, since));
            }
        }
    }

    pub(super) fn overlaps(&self, extent: Extent) -> bool {
        let last = self.merged.range(..extent.end).next_back();
        last.is_some_and(|(_, (end, _))| *end > extent.start)
            || self.listed.iter().any(|(listed, _)| listed.overlaps(extent))
    }

    /// Takes the next payment at or after `cursor`, in order of addresses.
    pub(super) fn take(&mut self, cursor: u64) -> Option<Extent> {
        if let Some((extent, _)) = self.listed.pop_front() {
            self.sectors -= extent.sectors();
            return Some(extent);
        }
        let next = self.merged.range(cursor..).next().or_else(|| self.merged.iter().next());
        let (&start, &(end, since)) = next?;
        self.merged.remove(&start);
        let mut until = end;
        while let Some((next_end, _)) = self.merged.remove(&until) {
            until = next_end;
            if until - start >= PAYMENT_SECTORS {
                break;
            }
        }
        let cut = until.min(start + PAYMENT_SECTORS);
        if until > cut {
            self.merged.insert(cut, (until, since));
        }
        self.sectors -= cut - start;
        Some(Extent { start, end: cut })
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        let merged = self.merged.values().map(|(_, since)| *since).min();
        merged.into_iter().chain(self.listed.front().map(|(_, since)| *since)).min()
    }
}
