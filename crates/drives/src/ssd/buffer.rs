//! The write buffer: data the host has written and no die has been given yet.
//!
//! Data overwritten before it is programmed is programmed once. An entry is a unit of the
//! table. It is *ready* when it is complete; otherwise it waits for the rest until its hold
//! time is over. Space is freed when the data has been programmed.

use super::mapping::NONE;

/// The list an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Ready,
    Partial,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    unit: u32,
    next: u32,
    previous: u32,
    list: List,
    /// The last run of sectors written to the unit.
    run: (u32, u32),
    /// A bit for each present 64th of the unit (each sector, for units of at most 64 sectors).
    parts: u64,
    bytes: u32,
    epoch: u64,
    since: u64,
}

/// A unit handed to a die.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// The unit.
    pub(super) unit: u32,
    /// Bytes of buffer that are freed once it is programmed.
    pub(super) bytes: u32,
    /// Epoch of the unit, which a flush waits for.
    pub(super) epoch: u64,
    /// Bytes of the unit that were not written and are read from flash.
    pub(super) missing: u64,
}

/// A hash table from units to entries: open addressing, at most half full, no iteration.
#[derive(Clone, Debug)]
struct Index {
    places: Vec<(u32, u32)>,
    mask: usize,
}

impl Index {
    fn new(most: usize) -> Index {
        let size = (most * 2).next_power_of_two().max(16);
        Index { places: vec![(NONE, NONE); size], mask: size - 1 }
    }

    #[inline]
    fn home(&self, unit: u32) -> usize {
        (unit.wrapping_mul(0x9E37_79B1) >> 7) as usize & self.mask
    }

    #[inline]
    fn find(&self, unit: u32) -> u32 {
        let mut at = self.home(unit);
        loop {
            match self.places[at] {
                (found, entry) if found == unit => return entry,
                (NONE, _) => return NONE,
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    fn insert(&mut self, unit: u32, entry: u32) {
        let mut at = self.home(unit);
        while self.places[at].0 != NONE {
            at = (at + 1) & self.mask;
        }
        self.places[at] = (unit, entry);
    }

    /// Removes the unit and moves up the entries that had probed past it.
    fn remove(&mut self, unit: u32) {
        let mut hole = self.home(unit);
        while self.places[hole].0 != unit {
            hole = (hole + 1) & self.mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let found = self.places[at].0;
            if found == NONE {
                break;
            }
            let home = self.home(found);
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                self.places[hole] = self.places[at];
                hole = at;
            }
        }
        self.places[hole] = (NONE, NONE);
    }
}

/// The buffer.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    entries: Vec<Entry>,
    unused: u32,
    index: Index,
    /// First and last entry of the ready and of the partial list, oldest first.
    lists: [(u32, u32); 2],
    ready: u32,
    partial: u32,
    free: u64,
    /// Bytes of the waiting units.
    waiting_bytes: u64,
    unit_sectors: u32,
    /// Entries not yet programmed, by epoch from `first_epoch` on.
    outstanding: std::collections::VecDeque<u32>,
    first_epoch: u64,
}

impl Buffer {
    /// Creates a buffer of `bytes` bytes, for units of `unit_sectors` sectors.
    pub(super) fn new(bytes: u64, unit_sectors: u32) -> Buffer {
        Buffer {
            entries: Vec::new(),
            unused: NONE,
            index: Index::new(64),
            lists: [(NONE, NONE); 2],
            ready: 0,
            partial: 0,
            free: bytes,
            waiting_bytes: 0,
            unit_sectors,
            outstanding: [0].into(),
            first_epoch: 0,
        }
    }

    /// Returns the number of complete units that wait for a die.
    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    /// Returns the number of waiting units, complete or not.
    pub(super) fn waiting(&self) -> u32 {
        self.ready + self.partial
    }

    /// Returns the bytes of the waiting units.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Returns the arrival time of the data that has waited longest.
    pub(super) fn oldest(&self) -> Option<u64> {
        let first = |list: List| self.entries.get(self.lists[list as usize].0 as usize);
        let since = |list| first(list).map(|entry| entry.since);
        match (since(List::Ready), since(List::Partial)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns true if sectors `from` to `to` of the unit are in the buffer.
    #[inline]
    pub(super) fn holds(&self, unit: u32, from: u32, to: u32) -> bool {
        if self.waiting() == 0 {
            return false;
        }
        let entry = self.index.find(unit);
        entry != NONE && {
            let entry = &self.entries[entry as usize];
            entry.list == List::Ready || (entry.run.0 <= from && to <= entry.run.1)
        }
    }

    /// Adds sectors `from` to `to` of the unit; returns false if there was no space.
    pub(super) fn put(&mut self, unit: u32, from: u32, to: u32, now: u64) -> bool {
        let found = if self.waiting() == 0 { NONE } else { self.index.find(unit) };
        let most = self.unit_sectors * 512;
        let bytes = (to - from) * 512;
        if found != NONE {
            let entry = self.entries[found as usize];
            if entry.list == List::Ready {
                return true;
            }
            let more = bytes.min(most - entry.bytes.min(most));
            if self.free < u64::from(more) {
                return false;
            }
            self.free -= u64::from(more);
            self.waiting_bytes += u64::from(more);
            self.extend(found, from, to, more);
            return true;
        }
        if self.free < u64::from(bytes) {
            return false;
        }
        self.free -= u64::from(bytes);
        self.waiting_bytes += u64::from(bytes);
        let epoch = self.first_epoch + self.outstanding.len() as u64 - 1;
        if let Some(count) = self.outstanding.back_mut() {
            *count += 1;
        }
        let whole = to - from == self.unit_sectors;
        let list = if whole { List::Ready } else { List::Partial };
        let entry = Entry {
            unit,
            next: NONE,
            previous: NONE,
            list,
            run: (from, from),
            parts: 0,
            bytes,
            epoch,
            since: now,
        };
        let at = self.allocate(entry);
        self.index_insert(unit, at);
        self.append(at, list);
        if !whole {
            self.extend(at, from, to, 0);
        }
        true
    }

    fn allocate(&mut self, entry: Entry) -> u32 {
        if self.unused == NONE {
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        }
        let at = self.unused;
        self.unused = self.entries[at as usize].next;
        self.entries[at as usize] = entry;
        at
    }

    fn index_insert(&mut self, unit: u32, at: u32) {
        if self.entries.len() * 2 > self.index.places.len() {
            let mut larger = Index::new(self.entries.len() * 2);
            for &(unit, entry) in self.index.places.iter().filter(|place| place.0 != NONE) {
                larger.insert(unit, entry);
            }
            self.index = larger;
        }
        self.index.insert(unit, at);
    }

    /// Adds sectors to a partial entry, and makes it ready if it is complete.
    fn extend(&mut self, at: u32, from: u32, to: u32, more: u32) {
        let part = (self.unit_sectors / 64).max(1);
        let parts = self.unit_sectors.div_ceil(part);
        let entry = &mut self.entries[at as usize];
        entry.bytes += more;
        let (start, end) = entry.run;
        entry.run =
            if from <= end && to >= start { (from.min(start), to.max(end)) } else { (from, to) };
        let (first, last) = (entry.run.0.div_ceil(part), entry.run.1 / part);
        for index in first..last {
            entry.parts |= 1 << index;
        }
        if entry.parts.count_ones() == parts {
            self.unlink(at);
            self.append(at, List::Ready);
        }
    }

    fn append(&mut self, at: u32, list: List) {
        let last = self.lists[list as usize].1;
        let entry = &mut self.entries[at as usize];
        (entry.list, entry.previous, entry.next) = (list, last, NONE);
        match last {
            NONE => self.lists[list as usize].0 = at,
            last => self.entries[last as usize].next = at,
        }
        self.lists[list as usize].1 = at;
        match list {
            List::Ready => self.ready += 1,
            List::Partial => self.partial += 1,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { next, previous, list, .. } = self.entries[at as usize];
        match previous {
            NONE => self.lists[list as usize].0 = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list as usize].1 = previous,
            next => self.entries[next as usize].previous = previous,
        }
        match list {
            List::Ready => self.ready -= 1,
            List::Partial => self.partial -= 1,
        }
    }

    /// Takes the oldest ready unit. With `partial`, takes an incomplete one if none is ready.
    /// Units covered by the flush `awaited`, an epoch, are taken in order of arrival, complete
    /// or not: otherwise a flush would never end while complete units keep arriving.
    pub(super) fn take(&mut self, partial: bool, awaited: Option<u64>) -> Option<Taken> {
        let first = |list: List| Some(self.lists[list as usize].0).filter(|&at| at != NONE);
        let (ready, other) = (first(List::Ready), first(List::Partial).filter(|_| partial));
        let at = match (ready, other) {
            (Some(ready), Some(other)) => {
                let (whole, part) = (&self.entries[ready as usize], &self.entries[other as usize]);
                let is_awaited = awaited.is_some_and(|epoch| part.epoch <= epoch);
                if is_awaited && part.since <= whole.since { other } else { ready }
            }
            (ready, other) => ready.or(other)?,
        };
        Some(self.remove(at))
    }

    fn remove(&mut self, at: u32) -> Taken {
        let Entry { unit, bytes, epoch, list, parts, .. } = self.entries[at as usize];
        self.unlink(at);
        self.waiting_bytes -= u64::from(bytes);
        self.index.remove(unit);
        self.entries[at as usize].next = self.unused;
        self.unused = at;
        let part = (self.unit_sectors / 64).max(1);
        let absent = self.unit_sectors.div_ceil(part) - parts.count_ones();
        let missing =
            if list == List::Ready { 0 } else { u64::from(absent) * u64::from(part) * 512 };
        Taken { unit, bytes, epoch, missing }
    }

    /// Drops the unit, which was trimmed, if it waits.
    pub(super) fn discard(&mut self, unit: u32) {
        let at = if self.waiting() == 0 { NONE } else { self.index.find(unit) };
        if at != NONE {
            let taken = self.remove(at);
            self.programmed(taken.bytes, taken.epoch);
        }
    }

    /// Records that a taken unit is on flash, and frees its space.
    pub(super) fn programmed(&mut self, bytes: u32, epoch: u64) {
        self.free += u64::from(bytes);
        self.outstanding[(epoch - self.first_epoch) as usize] -= 1;
        while self.outstanding.len() > 1 && self.outstanding[0] == 0 {
            self.outstanding.pop_front();
            self.first_epoch += 1;
        }
    }

    /// Begins a new epoch and returns the previous one. The data put until now is on flash when
    /// [`Buffer::is_durable`] returns true for that epoch.
    pub(super) fn fence(&mut self) -> u64 {
        let epoch = self.first_epoch + self.outstanding.len() as u64 - 1;
        if self.outstanding.len() == 1 && self.outstanding[0] == 0 {
            self.first_epoch += 1;
        } else {
            self.outstanding.push_back(0);
            // An older epoch may have been waiting only for a successor to be dropped.
            while self.outstanding.len() > 1 && self.outstanding[0] == 0 {
                self.outstanding.pop_front();
                self.first_epoch += 1;
            }
        }
        epoch
    }

    /// Returns true if everything of `epoch` and of earlier epochs is on flash.
    pub(super) fn is_durable(&self, epoch: u64) -> bool {
        epoch < self.first_epoch
    }
}
