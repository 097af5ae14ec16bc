//! The end of a run: load stops, every leg answers, and P6 is checked. Within a bounded time the
//! legs are identical and the volume reports so.

use hemi_engine::io::Operation;
use hemi_units::{Extent, MILLISECOND, SECOND};

use crate::plan::{Ending, Start};
use crate::starts::{PATIENCE, VERIFY_SECTORS};
use crate::world::{VERIFIER, World};

/// The longest that convergence may take once nothing goes wrong any more, in nanoseconds.
const CONVERGENCE: u64 = 120 * SECOND;

impl World {
    /// Brings the volume to rest, then checks that the legs converge and are identical.
    pub(crate) fn calm_down(&mut self) {
        self.clients.paused = true;
        self.stall.close();
        self.converge_beside_hang();
        self.end_of_faults();
        self.wait_until_answered(PATIENCE);
        self.wait_for_change();
        let members = self.members().iter().fold(0u8, |mask, leg| mask | 1 << leg);
        if self.violation.is_none() && self.opened & members != members {
            let settings = self.settings;
            self.restart(Ending::Close, Start::All, settings, false);
            self.clients.paused = true;
        }
        self.fill_slots();
        self.converge();
        if self.violation.is_none() {
            self.verify();
        }
        if self.violation.is_none() {
            let settings = self.settings;
            self.restart(Ending::Close, Start::All, settings, true);
        }
    }

    fn end_of_faults(&mut self) {
        self.ambush = None;
        (0..self.legs.len()).for_each(|leg| self.end_faults_of(leg));
        self.end_hangs();
    }

    /// Ends the faults of a leg that can end now, and restores its best pace.
    pub(crate) fn end_faults_of(&mut self, leg: usize) {
        let was_late = self.may_owe_for_long(self.legs[leg].longest());
        let (pace, state) = (self.shape.paces[leg], &mut self.legs[leg]);
        (state.latency, state.jitter, state.serial) = (pace.latency, pace.jitter, pace.serial);
        if was_late || state.read_errors > 0 || self.disks[leg].has_unreadable() {
            // It still owes data that it was too slow for, or that could not be read.
            state.disturbed = state.disturbed.max(self.now);
        }
        (state.read_errors, state.write_errors, state.flush_errors) = (0, 0, 0);
        self.legs[leg].bad_block = None;
        self.disks[leg].heal();
    }

    fn wait_for_change(&mut self) {
        let end = self.now + PATIENCE;
        while self.changing.is_some() && self.violation.is_none() {
            if !self.step(end) {
                let changing = self.changing;
                self.broken("P6", format!("a change of the legs does not end: {changing:?}"));
            }
        }
    }

    /// Gives every empty slot a new leg.
    fn fill_slots(&mut self) {
        let end = self.now + PATIENCE;
        for leg in 0..self.legs.len() as u8 {
            while self.legs[usize::from(leg)].is_empty && self.violation.is_none() {
                if self.now >= end {
                    self.broken("P6", format!("no leg can join as leg {leg}"));
                    return;
                }
                self.change_members(leg);
                self.wait(50 * MILLISECOND);
                self.wait_for_change();
            }
        }
    }

    fn converge(&mut self) {
        let end = self.now + CONVERGENCE;
        while self.violation.is_none() {
            self.wait(50 * MILLISECOND);
            self.rewrite_lost();
            let status = self.refresh_status();
            if status.converged {
                break;
            }
            if self.now >= end {
                let status = self.refresh_status();
                let legs: Vec<_> =
                    status.legs.iter().map(|l| (l.leg, l.state, l.owed_bytes)).collect();
                let touched = status.dirty_regions - status.armed_regions;
                self.broken("P6", format!("not converged: {legs:?}, {touched} regions touched"));
            }
        }
        if self.violation.is_none() {
            self.compare_legs();
        }
    }

    /// Rewrites some of the extents recorded as lost, as an operator who restores a backup would.
    /// The volume does not converge before.
    pub(crate) fn rewrite_lost(&mut self) {
        let lost = self.engine().lost_extents().first().copied();
        if let Some(lost) = lost {
            let sectors = lost.sectors().min(VERIFY_SECTORS);
            if self.under_way == 0 && self.has_room(sectors) {
                self.submit(VERIFIER, Operation::Write, Extent::new(lost.start, sectors), false);
                self.wait_until_answered(PATIENCE);
            }
        }
    }

    fn compare_legs(&mut self) {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        self.compare(&all);
    }

    /// Checks that the given legs are identical.
    pub(crate) fn compare(&mut self, legs: &[usize]) {
        let Some((&reference, others)) = legs.split_first() else { return };
        for &leg in others {
            let (first, other) = (self.disks[reference].contents(), self.disks[leg].contents());
            let differs = first.iter().zip(other).position(|(a, b)| a != b);
            if let Some(sector) = differs {
                let (a, b) = (first[sector], other[sector]);
                let text = format!(
                    "converged, but sector {sector} holds {a} on leg {reference} and {b} on leg {leg}"
                );
                let sector = Some(sector as u64);
                self.violate(hemi_world::Violation { promise: "P6", text, sector });
                return;
            }
        }
    }
}
