//! Invariants: what must hold after every step. The cheap part runs always, in the server too; the full
//! part in tests and the simulator.

use super::Engine;
use crate::engine::state::debt::Since;
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::Health;
use crate::engine::state::operations::{OperationState, Stage};
use crate::engine::state::slab::NONE;
use crate::format::Membership;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::recovery::Opening;

impl<B: Buffers> Engine<B> {
    /// Constant-time checks after every input.
    ///
    /// # Panics
    /// On a broken invariant: going on could acknowledge what recovery would not honour.
    pub(super) fn check_invariants(&self) {
        assert!(
            self.legs.iter().any(|leg| leg.is_in()),
            "every leg has been marked out: no leg may decide anything"
        );
        debug_assert!(
            self.legs.unused().iter().all(|leg| {
                leg.membership() == Membership::Empty
                    && leg.watch.health() == Health::Absent
                    && !self.ios.any_on(leg.index.index())
                    && leg.debts.is_empty()
            }),
            "a slot that counts as never used has a leg"
        );
        self.requests.check();
    }

    /// Counts the looks at regions' entries since open. A test holds the bounds of what one input does
    /// by this: steps, not time.
    #[cfg(debug_assertions)]
    pub fn region_looks(&self) -> u64 {
        self.regions.looks()
    }

    /// Everything that can be checked of the state at rest between two inputs. Linear in the
    /// volume's regions: for tests and the simulator.
    ///
    /// # Panics
    /// On a broken invariant, naming it.
    pub fn check_thoroughly(&self) {
        self.check_invariants();
        self.requests.check_thoroughly();
        let mut lacks = alloc::collections::BTreeMap::<(u32, usize), u32>::new();
        for leg in 0..LEGS_MAX {
            let mut at = 0;
            while let Some((_, debt)) = self.legs[leg].debts.first_after(at) {
                at = debt.extent.end;
                let region = self.regions.of_sector(debt.extent.start);
                assert_eq!(
                    region,
                    self.regions.of_sector(debt.extent.end - 1),
                    "a debt spans two regions"
                );
                assert!(
                    !self.regions.is_stale(LegIndex(leg as u8), region),
                    "an exact debt in a region owed as a whole"
                );
                if debt.is_acknowledged() {
                    *lacks.entry((region, leg)).or_default() += 1;
                } else {
                    assert!(self.operations.is_live(debt.operation), "a debt outlived its write");
                    if self.operations[debt.operation.slot].carries >> leg & 1 == 1 {
                        *lacks.entry((region, leg)).or_default() += 1;
                    }
                }
            }
        }
        let mut in_flight = [[0; 2]; LEGS_MAX];
        let mut count = |leg: usize, since: Since, io: &Io| {
            in_flight[leg][usize::from(since.is_rebuild())] += io.extent.sectors();
        };
        for (_, io) in self.ios.iter() {
            let (leg, waits) = match io.purpose {
                Purpose::Write { operation, since, .. } => {
                    if !self.operations.is_live(operation) {
                        count(usize::from(io.leg), since, io);
                    }
                    let carries = |o: &OperationState| o.carries >> io.leg & 1 == 1;
                    let waits = self.operations.get(operation).is_some_and(|o| !carries(o));
                    (usize::from(io.leg), waits)
                }
                Purpose::DrainRead { target, since, .. } => {
                    count(usize::from(target), since, io);
                    (usize::from(target), false)
                }
                Purpose::Compare { since, .. } => {
                    count(usize::from(io.leg), since, io);
                    (usize::from(io.leg), false)
                }
                _ => continue,
            };
            if !waits {
                let region = self.regions.of_sector(io.extent.start);
                *lacks.entry((region, leg)).or_default() += 1;
            }
        }
        for (leg, state) in self.legs.iter().enumerate() {
            let carrying = self.operations.iter().filter(|(_, o)| o.carries >> leg & 1 == 1);
            assert_eq!(
                state.load.carrying() as usize,
                carrying.count(),
                "writes that carry for leg {leg}"
            );
            let carried: crate::engine::state::debt::Lacked =
                self.operations.iter().map(|(_, o)| o.carried[leg]).sum();
            assert_eq!(state.load.carried(), carried, "sectors carried for leg {leg}");
        }
        let mut rebuilding = [0; LEGS_MAX];
        for active in self.regions.counts() {
            for (leg, count) in rebuilding.iter_mut().enumerate() {
                *count += u32::from(active.rebuilding >> leg & 1);
            }
            for leg in 0..LEGS_MAX {
                let counted = lacks.remove(&(active.region, leg)).unwrap_or(0);
                assert_eq!(
                    active.lacks[leg], counted,
                    "lacks of leg {leg}, region {}",
                    active.region
                );
            }
        }
        assert!(lacks.is_empty(), "lacks without a record: {lacks:?}");
        for leg in self.legs.iter() {
            let counted = rebuilding[leg.index.index()];
            assert_eq!(
                leg.draining.rebuilding(),
                counted,
                "regions being rebuilt for {:?}",
                leg.index
            );
            let counted = [leg.load.acknowledged(), leg.load.rebuild()];
            assert_eq!(counted, in_flight[leg.index.index()], "in flight for {:?}", leg.index);
        }
        self.regions.check_moves(&self.legs);
        self.check_authorities();
    }

    /// Checks that a recovery which found this, after a kill at this instant, would let only legs decide that hold
    /// everything acknowledged. Linear in the volume's regions: for tests and the simulator.
    ///
    /// # Panics
    /// If it would choose a leg that lacks something, naming region and leg.
    pub fn check_recovery(&self, found: &Opening) {
        for (region, &entry) in (0..).zip(&found.table) {
            let record = self.regions.slot(region);
            if record.is_some_and(|record| self.regions.is_suspect(record))
                || self.lost.touches(self.regions.extent(region))
            {
                continue;
            }
            let touched = found.is_touched(region, entry);
            let deciders = if touched { entry.authority().bit() } else { entry.whole() };
            for leg in self.legs.that_are_in().filter(|leg| deciders & leg.index.bit() != 0) {
                let slot = leg.index.index();
                assert!(
                    leg.watch.is_removed()
                        || self.regions.is_complete(leg.index, region)
                        || record.is_some_and(|record| self.lacks_only_repairs(record, slot)),
                    "region {region}: recovery would choose {:?}, which lacks acknowledged data",
                    leg.index
                );
            }
        }
    }

    /// Checks that every leg is whole in an untouched region, or among those known to be behind there: a
    /// lost cache is looked for in no other region.
    fn check_behind(&self, region: u32) {
        for leg in self.legs.iter().filter(|leg| leg.is_member()) {
            assert!(
                self.regions.entry(region).is_whole(leg.index)
                    || !self.regions.is_complete(leg.index, region)
                    || self.regions.is_healing(leg.index, region),
                "region {region}: {:?} is neither whole nor behind nor healing",
                leg.index
            );
        }
    }

    /// Checks that at least one leg is complete for each region, and that recovery would choose
    /// one that holds everything acknowledged.
    fn check_authorities(&self) {
        assert!(self.regions.sound_is_counted(), "untouched regions by legs that are sound there");
        for region in 0..self.regions.count() {
            let entry = self.regions.entry(region);
            if self.regions.is_armed(region) {
                let leg = &self.legs[entry.authority().index()];
                assert!(leg.is_in(), "region {region}: armed under {:?}, which is out", leg.index);
                let whole = entry.is_whole(leg.index);
                assert!(whole, "region {region}: armed under {:?}, not whole there", leg.index);
                let has_all = self.regions.is_complete(leg.index, region);
                let waits = self.regions.has_armed_behind();
                assert!(has_all || waits, "region {region}: armed under {:?}, behind", leg.index);
            }
            if self.regions.is_touched(region) {
                let leg = entry.authority();
                assert!(
                    self.legs[leg.index()].is_in(),
                    "region {region}: authority {leg:?} is out"
                );
                let cache_lost =
                    self.regions.slot(region).is_some_and(|r| self.regions.is_suspect(r));
                assert!(
                    cache_lost || self.regions.is_complete(leg, region),
                    "region {region}: its authority {leg:?} lacks acknowledged data"
                );
            } else {
                let whole = self.legs.that_are_in().any(|leg| {
                    entry.is_whole(leg.index) && self.regions.is_complete(leg.index, region)
                });
                let lost = self.lost.touches(self.regions.extent(region));
                assert!(whole || lost, "region {region}: no leg that is in is whole");
                self.check_behind(region);
            }
        }
        for (slot, operation) in self.operations.iter() {
            assert!(operation.lock != NONE, "operation {slot} has no place among the range locks");
            let is_sent = operation.is_read && operation.stage == Stage::Running;
            let waits = self.landings.holds(self.operations.key(slot));
            assert!(
                !is_sent || waits != (operation.parts > 0),
                "read {slot} waits for a write to land: {waits}, with {} parts in flight",
                operation.parts
            );
        }
    }
}
