//! Cleaning of shingled disks: rewriting bands, and reads that gather sectors from the log.

use hemi_units::{Extent, Instant};

use super::bus::Arrival;
use super::events::{Ending, Kind};
use super::queue::Pending;
use super::{Hdd, Work};

impl Hdd {
    /// Begins to clean a band if that is due, and returns true if it did. Cleaning is due when
    /// the log is filling up and other work has had its turn or there is none (`idle`), or when
    /// the disk has been idle long enough.
    pub(super) fn begin_cleaning(&mut self, now: Instant, idle: bool) -> bool {
        let Some(map) = &self.shingles else { return false };
        let due = if map.is_behind() {
            idle || self.cleaning_has_turn
        } else {
            idle && self.outstanding == 0 && now >= self.cleaning_time()
        };
        due && self.clean_one(now)
    }

    /// Returns the time at which an idle disk begins to clean, or never if nothing needs
    /// cleaning.
    pub(super) fn cleaning_time(&self) -> Instant {
        match (&self.shingles, &self.parameters.shingles) {
            (Some(map), Some(shingles)) if map.candidate().is_some() => {
                self.at_rest_since + shingles.clean_when_idle_for.0
            }
            _ => Instant::NEVER,
        }
    }

    /// Cleans a band: gathers its sectors from the log, reads the whole band and writes it
    /// back. Nothing interrupts this, since a half-written band would be lost.
    pub(super) fn clean_one(&mut self, now: Instant) -> bool {
        let Some(map) = &self.shingles else { return false };
        let Some(number) = map.candidate() else { return false };
        let band = map.band(number, self.mechanism.geometry.sectors());
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        map.strays(band, &mut parts);
        parts.push(band);
        let mut free = self.stop_stream(now).max(self.spinning_from);
        for part in &parts {
            free = self.pass(free, *part, None);
        }
        self.parts = parts;
        self.work_end = self.pass(free, band, Some(&Arrival::at_once(free, band.end)));
        self.work = Work::Clean(number);
        self.cleaning_has_turn = false;
        true
    }

    /// Marks a band as rewritten.
    pub(super) fn end_cleaning(&mut self, number: u64) {
        let sectors = self.mechanism.geometry.sectors();
        if let Some(map) = &mut self.shingles {
            let band = map.band(number, sectors);
            map.cleaned(number, band);
        }
    }

    /// Moves the arm over an extent, starting at `free`, and returns the time at which it is
    /// done.
    pub(super) fn pass(
        &mut self,
        free: Instant,
        extent: Extent,
        write: Option<&Arrival>,
    ) -> Instant {
        let (mut next, mut end) = (extent.start, free);
        while next < extent.end {
            let piece = self.mechanism.piece(end, self.arm, next, extent.end, write);
            if next == extent.start {
                self.counters.seeks += u64::from(piece.arm.cylinder != self.arm.cylinder);
            }
            (next, self.arm, end) = (piece.end_sector, piece.arm, piece.end);
        }
        end
    }

    /// Reads, part by part, an extent that is partly in the log.
    pub(super) fn read_parts(&mut self, now: Instant, pending: &Pending) {
        let extent = pending.extent;
        let Some(map) = &self.shingles else { return };
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        map.parts(extent, &mut parts);
        let active = self.stream.map(|stream| stream.segment);
        let mut free = self.stop_stream(now).max(pending.ready).max(self.spinning_from);
        for part in &parts {
            free = self.pass(free, *part, None);
        }
        self.parts = parts;
        let segment = self.segments.take(extent.start, active);
        self.segments.extend(segment, extent.end);
        self.work = Work::Read;
        self.work_end = free;
        let last = self.bus(1);
        let at = self.send(pending.ready, extent.sectors()).max(free + last);
        let (tag, bytes) = (pending.tag, extent.bytes());
        self.endings.push(Ending { at, tag, kind: Kind::Read, bytes });
    }
}
