//! The load of a leg, counted: I/O in flight, reads for it on other legs, ranges that are
//! held, and how much of it is acknowledged.

use alloc::vec::Vec;

use crate::engine::state::debt::{Lacked, Since};
use hemi_units::{Extent, SECTOR_BYTES};

/// The load of one leg.
pub(in crate::engine) struct Load {
    /// Extents of writes in flight and ranges held by a drain, with their holders; disjoint and in order.
    /// Every read and write looks for what overlaps it. Bounded by the leg's window.
    held: Vec<(Extent, u32)>,
    /// Reads in flight.
    reads: u32,
    /// Writes in flight.
    writes: u32,
    /// Sectors of buffers that these hold.
    write_payload: u64,
    /// Reads in flight on other legs whose data this one owes.
    drain_reads: u32,
    /// Reads of it in flight whose data is compared with what it owes.
    compares: u32,
    /// Sectors of buffers that these hold.
    drain_read_payload: u64,
    /// Reads and writes in flight that pay several of its debts and the gaps between them.
    sieves: u32,
    /// Acknowledged sectors in flight to it.
    acknowledged: u64,
    /// Sectors of rebuilds in flight to it, from the read on.
    rebuild: u64,
    /// Unacknowledged writes that took the place of acknowledged debts.
    carrying: u32,
    /// Acknowledged sectors of these debts.
    carried: Lacked,
}

impl Load {
    /// Begins with nothing. `held_max` ranges can be held.
    pub(in crate::engine) fn new(held_max: usize) -> Load {
        Load {
            held: Vec::with_capacity(held_max),
            reads: 0,
            writes: 0,
            write_payload: 0,
            drain_reads: 0,
            compares: 0,
            drain_read_payload: 0,
            sieves: 0,
            acknowledged: 0,
            rebuild: 0,
            carrying: 0,
            carried: Lacked::default(),
        }
    }

    pub(in crate::engine) fn reads(&self) -> u32 {
        self.reads
    }

    pub(in crate::engine) fn writes(&self) -> u32 {
        self.writes
    }

    pub(in crate::engine) fn begin_read(&mut self) {
        self.reads += 1;
    }

    pub(in crate::engine) fn end_read(&mut self) {
        self.reads -= 1;
    }

    /// Counts a write that goes in flight, and the sectors of its buffer.
    pub(in crate::engine) fn begin_write(&mut self, payload: u64) {
        self.writes += 1;
        self.write_payload += payload;
    }

    pub(in crate::engine) fn end_write(&mut self, payload: u64) {
        self.writes -= 1;
        self.write_payload -= payload;
    }

    /// Returns true if a write of `sectors` fits beside the buffers in flight: any does, if
    /// there are none.
    pub(in crate::engine) fn has_room_for(&self, sectors: u64, bytes_max: u64) -> bool {
        let bytes = (self.write_payload + sectors) * SECTOR_BYTES;
        self.write_payload == 0 || bytes <= bytes_max
    }

    /// Returns the reads of clients and scrubs in flight: those of comparisons are the drain's own.
    pub(in crate::engine) fn reads_but_compares(&self) -> u32 {
        self.reads - self.compares
    }

    /// Returns true if no write is in flight to it, and nothing is being read for it.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.writes + self.drain_reads == 0
    }

    /// Returns true if something is being read elsewhere for it.
    pub(in crate::engine) fn is_read_for(&self) -> bool {
        self.drain_reads > 0
    }

    /// Returns how much is in flight to it or being read for it, and the bytes of their buffers.
    pub(in crate::engine) fn in_hand(&self) -> (u32, u64) {
        let payload = self.write_payload + self.drain_read_payload;
        (self.writes + self.drain_reads, payload * SECTOR_BYTES)
    }

    /// Counts a read elsewhere of what it owes, and the sectors of its buffer.
    pub(in crate::engine) fn begin_drain_read(&mut self, payload: u64) {
        self.drain_reads += 1;
        self.drain_read_payload += payload;
    }

    pub(in crate::engine) fn end_drain_read(&mut self, payload: u64) {
        self.drain_reads -= 1;
        self.drain_read_payload -= payload;
    }

    /// Counts a read of it that is to be compared with `sectors` read elsewhere.
    pub(in crate::engine) fn begin_compare(&mut self, sectors: u64) {
        self.begin_drain_read(2 * sectors);
        self.compares += 1;
    }

    pub(in crate::engine) fn end_compare(&mut self, sectors: u64) {
        self.end_drain_read(2 * sectors);
        self.compares -= 1;
    }

    /// Returns how many reads and writes pay several debts with the gaps between them.
    pub(in crate::engine) fn sieves(&self) -> u32 {
        self.sieves
    }

    pub(in crate::engine) fn begin_sieve(&mut self) {
        self.sieves += 1;
    }

    pub(in crate::engine) fn end_sieve(&mut self) {
        self.sieves -= 1;
    }

    /// Counts a write in flight that has been acknowledged.
    pub(in crate::engine) fn acknowledge(&mut self, sectors: u64) {
        self.acknowledged += sectors;
    }

    /// Acknowledged sectors go in flight; a rebuild's are no exposure.
    pub(in crate::engine) fn count_in_flight(&mut self, since: Since, sectors: u64) {
        *self.in_flight_since(since) += sectors;
    }

    /// They have landed, or not.
    pub(in crate::engine) fn uncount_in_flight(&mut self, since: Since, sectors: u64) {
        *self.in_flight_since(since) -= sectors;
    }

    fn in_flight_since(&mut self, since: Since) -> &mut u64 {
        if since.is_rebuild() { &mut self.rebuild } else { &mut self.acknowledged }
    }

    /// Returns the acknowledged sectors in flight, rebuilds left out.
    pub(in crate::engine) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the sectors of rebuilds in flight, from the read on.
    pub(in crate::engine) fn rebuild(&self) -> u64 {
        self.rebuild
    }

    /// Counts what a write carries for it, which `begins` to carry something.
    pub(in crate::engine) fn carry(&mut self, more: Lacked, begins: bool) {
        self.carried += more;
        self.carrying += u32::from(begins);
    }

    /// Counts a write that carries nothing for it any more.
    pub(in crate::engine) fn uncarry(&mut self, carried: Lacked) {
        self.carrying -= 1;
        self.carried -= carried;
    }

    /// Returns how many writes carry something for it.
    pub(in crate::engine) fn carrying(&self) -> u32 {
        self.carrying
    }

    /// Returns the acknowledged sectors that they carry.
    pub(in crate::engine) fn carried(&self) -> Lacked {
        self.carried
    }

    /// Holds a range for an I/O: nothing that overlaps is sent meanwhile.
    pub(in crate::engine) fn hold(&mut self, extent: Extent, io: u32) {
        debug_assert!(!self.is_held(extent), "overlapping writes in flight on one leg");
        let at = self.held.partition_point(|(held, _)| held.start < extent.start);
        self.held.insert(at, (extent, io));
    }

    pub(in crate::engine) fn unhold(&mut self, io: u32) {
        if let Some(at) = self.held.iter().position(|(_, holder)| *holder == io) {
            self.held.remove(at);
        }
    }

    /// Returns the first held range that overlaps `extent`, and its holder.
    fn first_in(&self, extent: Extent) -> Option<(Extent, u32)> {
        let at = self.held.partition_point(|(held, _)| held.end <= extent.start);
        self.held.get(at).copied().filter(|(held, _)| held.overlaps(extent))
    }

    fn held_in(&self, extent: Extent) -> Option<Extent> {
        self.first_in(extent).map(|(held, _)| held)
    }

    /// Returns the I/O that holds the first range that overlaps `extent`.
    pub(in crate::engine) fn holder(&self, extent: Extent) -> Option<u32> {
        self.first_in(extent).map(|(_, holder)| holder)
    }

    pub(in crate::engine) fn is_held(&self, extent: Extent) -> bool {
        self.held_in(extent).is_some()
    }

    /// Returns where the first held range that overlaps `extent` begins (clamped to it).
    pub(in crate::engine) fn first_held(&self, extent: Extent) -> Option<u64> {
        self.held_in(extent).map(|held| held.start.max(extent.start))
    }

    /// Returns where the range that holds `sector` ends.
    pub(in crate::engine) fn held_until(&self, sector: u64) -> Option<u64> {
        self.held_in(Extent::new(sector, 1)).map(|held| held.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn held_ranges_are_found_as_in_a_list(
            steps in proptest::collection::vec((any::<bool>(), 0u64..60, 1u64..9, 0u32..20), 1..80),
        ) {
            let mut load = Load::new(64);
            let mut known: Vec<(Extent, u32)> = Vec::new();
            for (begins, start, sectors, io) in steps {
                let extent = Extent::new(start, sectors);
                let over = |extent: Extent| {
                    let over = known.iter().map(|one| one.0).filter(move |held| held.overlaps(extent));
                    over.collect::<Vec<_>>()
                };
                let one = Extent::new(start, 1);
                prop_assert_eq!(load.is_held(extent), !over(extent).is_empty());
                let first = over(extent).iter().map(|held| held.start.max(start)).min();
                prop_assert_eq!(load.first_held(extent), first);
                prop_assert_eq!(load.held_until(start), over(one).first().map(|held| held.end));
                if !begins {
                    load.unhold(io);
                    known.retain(|one| one.1 != io);
                } else if !load.is_held(extent) && known.iter().all(|one| one.1 != io) {
                    load.hold(extent, io);
                    known.push((extent, io));
                }
            }
        }
    }
}
