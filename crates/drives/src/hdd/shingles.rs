//! Shingled recording: the contents of the persistent cache and the band being written in
//! order.
//!
//! The persistent cache is a log at the disk's outer edge. Runs go to its head in the order in
//! which they are written, whatever their band. Cleaning takes the band of the oldest run, so
//! that the log's tail moves on. Writes that start at the beginning of a band go directly to
//! their place as long as they stay in order.

use std::collections::{BTreeMap, VecDeque};

use hemi_units::Extent;

use super::parameters;

/// Shortest run that begins a band in order.
const STREAM: u64 = 2048;

/// The place a run is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Its own place, as part of a band written in order.
    Home,
    /// The log, starting at this sector.
    Log(u64),
    /// Nowhere until a band has been cleaned.
    Full,
}

/// The state of a shingled disk. Sectors are the medium's: the log has the first ones, and the
/// host's follow.
#[derive(Clone, Debug)]
pub(super) struct ShingleMap {
    band: u64,
    log: u64,
    /// Sectors ever written to the log, including those skipped at its end.
    head: u64,
    /// Sectors of those that have been given up again.
    tail: u64,
    /// Newest contents of the log: first sector of a run, mapped to its end and its place in
    /// the log.
    newest: BTreeMap<u64, (u64, u64)>,
    /// Runs in the order of writing, with the count of sectors written before each.
    runs: VecDeque<(u64, Extent)>,
    /// The band being written in order, and its next sector.
    open: Option<(u64, u64)>,
    /// Bands left half written, to be rewritten first.
    torn: VecDeque<u64>,
    clean_from: u64,
    clean_to: u64,
    behind: bool,
}

impl ShingleMap {
    /// Creates an empty log.
    pub(super) fn new(shingles: &parameters::Shingles) -> ShingleMap {
        let log = shingles.persistent_cache.0 / 512;
        ShingleMap {
            band: shingles.band.0 / 512,
            log,
            head: 0,
            tail: 0,
            newest: BTreeMap::new(),
            runs: VecDeque::new(),
            open: None,
            torn: VecDeque::new(),
            clean_from: (shingles.clean_from * log as f64) as u64,
            clean_to: (shingles.clean_to * log as f64) as u64,
            behind: false,
        }
    }

    /// Returns the number of sectors of the log. The host's sectors follow it.
    pub(super) fn offset(&self) -> u64 {
        self.log
    }

    fn band_of(&self, sector: u64) -> u64 {
        (sector - self.log) / self.band
    }

    /// Returns the band's sectors, cut at the medium's end.
    pub(super) fn band(&self, band: u64, sectors: u64) -> Extent {
        let start = self.log + band * self.band;
        Extent { start, end: (start + self.band).min(sectors) }
    }

    /// Returns the target of a run and the part of it to write there, since a run is cut at a
    /// band's end.
    pub(super) fn target(&self, run: Extent) -> (Target, Extent) {
        let band = self.band_of(run.start);
        let start = self.log + band * self.band;
        let cut = Extent { start: run.start, end: run.end.min(start + self.band) };
        let goes_on = self.open == Some((band, run.start));
        if goes_on || (run.start == start && cut.sectors() >= STREAM) {
            return (Target::Home, cut);
        }
        let place = self.head % self.log;
        let skipped = if place + cut.sectors() > self.log { self.log - place } else { 0 };
        if self.head + skipped + cut.sectors() - self.tail > self.log {
            return (Target::Full, cut);
        }
        (Target::Log((self.head + skipped) % self.log), cut)
    }

    /// Records that a run has been written to the target from [`ShingleMap::target`].
    pub(super) fn written(&mut self, run: Extent, target: Target) {
        self.forget(run);
        match target {
            Target::Home => {
                let band = self.band_of(run.start);
                if let Some((other, _)) = self.open.filter(|open| open.0 != band) {
                    self.torn.push_back(other);
                }
                let end = self.log + (band + 1) * self.band;
                self.open = (run.end < end).then_some((band, run.end));
            }
            Target::Log(place) => {
                if place == 0 && !self.head.is_multiple_of(self.log) {
                    self.head += self.log - self.head % self.log;
                }
                self.runs.push_back((self.head, run));
                self.newest.insert(run.start, (run.end, place));
                self.head += run.sectors();
                self.behind |= self.head - self.tail >= self.clean_from;
            }
            // Written over its neighbours, in place.
            Target::Full => {
                let band = self.band_of(run.start);
                if !self.torn.contains(&band) {
                    self.torn.push_back(band);
                }
            }
        }
        self.give_up();
    }

    /// Forgets log contents of `extent`, which have become stale.
    fn forget(&mut self, extent: Extent) {
        if let Some((&start, &(end, place))) = self.newest.range(..extent.start).next_back()
            && end > extent.start
        {
            self.newest.insert(start, (extent.start, place));
            if end > extent.end {
                self.newest.insert(extent.end, (end, place + extent.end - start));
            }
        }
        while let Some((&start, &(end, place))) = self.newest.range(extent.start..extent.end).next()
        {
            self.newest.remove(&start);
            if end > extent.end {
                self.newest.insert(extent.end, (end, place + extent.end - start));
            }
        }
    }

    /// Moves the tail past runs that hold nothing current.
    fn give_up(&mut self) {
        while let Some(&(before, run)) = self.runs.front() {
            let places = before % self.log..before % self.log + run.sectors();
            let lives =
                self.newest.range(run.start..run.end).any(|(_, (_, place))| places.contains(place));
            if lives {
                self.tail = before;
                break;
            }
            self.runs.pop_front();
            self.tail = before + run.sectors();
        }
        self.behind &= self.head - self.tail > self.clean_to;
    }

    /// Returns the current place of a sector.
    pub(super) fn place(&self, sector: u64) -> u64 {
        match self.newest.range(..=sector).next_back() {
            Some((start, (end, place))) if *end > sector => place + sector - start,
            _ => sector,
        }
    }

    /// Returns the first sector from `from` on that is not at its own place.
    pub(super) fn next_stray(&self, from: u64) -> u64 {
        self.newest.range(from..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// Returns true if all of `extent` is at its own place.
    pub(super) fn is_home(&self, extent: Extent) -> bool {
        let before = self.newest.range(..extent.end).next_back();
        before.is_none_or(|(_, (end, _))| *end <= extent.start)
    }

    /// Appends the places of the parts of `extent` on the medium, in the order of `extent`.
    pub(super) fn parts(&self, extent: Extent, parts: &mut Vec<Extent>) {
        let mut at = extent.start;
        let first = self.newest.range(..=extent.start).next_back().map_or(at, |(start, _)| *start);
        for (&start, &(end, place)) in self.newest.range(first..extent.end) {
            if end <= at {
                continue;
            }
            if start > at {
                parts.push(Extent { start: at, end: start });
                at = start;
            }
            let place = place + at - start;
            let to = end.min(extent.end);
            parts.push(Extent::new(place, to - at));
            at = to;
        }
        if at < extent.end {
            parts.push(Extent { start: at, end: extent.end });
        }
    }

    /// Appends the log's parts of a band, in the log's order.
    pub(super) fn strays(&self, band: Extent, strays: &mut Vec<Extent>) {
        for (&start, &(end, place)) in self.newest.range(band.start..band.end) {
            strays.push(Extent::new(place, end.min(band.end) - start));
        }
        strays.sort_unstable_by_key(|stray| stray.start);
    }

    /// Returns the band to clean next.
    pub(super) fn candidate(&self) -> Option<u64> {
        let oldest = || self.runs.front().map(|(_, run)| self.band_of(run.start));
        self.torn.front().copied().or_else(oldest)
    }

    /// Returns true if cleaning must not wait for an idle disk.
    pub(super) fn is_behind(&self) -> bool {
        self.behind || !self.torn.is_empty()
    }

    /// Records that a band has been rewritten.
    pub(super) fn cleaned(&mut self, number: u64, band: Extent) {
        self.torn.retain(|&torn| torn != number);
        if self.open.is_some_and(|open| open.0 == number) {
            self.open = None;
        }
        self.forget(band);
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use hemi_random::Rng;
    use hemi_units::{Extent, Size, Time};

    use super::{ShingleMap, Target};
    use crate::hdd::parameters::Shingles;

    /// Compares the map with a plain table of every sector's newest place.
    #[test]
    fn the_map_knows_where_every_sector_is() {
        let mut map = ShingleMap::new(&Shingles {
            band: Size(1 << 20),
            persistent_cache: Size(8 << 20),
            clean_when_idle_for: Time(0),
            clean_from: 0.5,
            clean_to: 0.25,
        });
        let sectors = map.offset() + 20 * 2048;
        let mut table: Vec<u64> = (0..sectors).collect();
        let mut rng = Rng::new(6, 0);
        let mut cleanings = 0;
        for _ in 0..20_000 {
            let start = map.offset() + rng.below(sectors - map.offset() - 2048);
            let start =
                if rng.one_in(20) { map.band(map.band_of(start), sectors).start } else { start };
            let length = if rng.one_in(10) { 2048 } else { 1 + rng.below(64) };
            let (target, run) = map.target(Extent::new(start, length));
            if target == Target::Full || (map.is_behind() && rng.one_in(2)) {
                let number = map.candidate().expect("there is something in the log");
                let band = map.band(number, sectors);
                map.cleaned(number, band);
                for sector in band.start..band.end {
                    table[sector as usize] = sector;
                }
                cleanings += 1;
                continue;
            }
            map.written(run, target);
            for (i, sector) in (run.start..run.end).enumerate() {
                table[sector as usize] =
                    if let Target::Log(place) = target { place + i as u64 } else { sector };
            }
            let asked = Extent::new(start, 300.min(sectors - start));
            let mut parts = Vec::new();
            map.parts(asked, &mut parts);
            let found: Vec<u64> = parts.iter().flat_map(|part| part.start..part.end).collect();
            assert_eq!(found, table[asked.start as usize..asked.end as usize]);
            let home = found == (asked.start..asked.end).collect::<Vec<_>>();
            assert_eq!(map.is_home(asked), home);
        }
        assert!(cleanings > 100, "{cleanings}");
    }
}
