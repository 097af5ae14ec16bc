//! The members of an array, and the choice among copies for a read.

use hemi_units::{Extent, Instant, Operation};

use crate::drive::{Completion, Counters, Drive, Request};

/// The drives, with the array's state for each.
#[derive(Clone, Debug)]
pub(super) struct Members<D> {
    drives: Vec<D>,
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    next_event: Instant,
    /// Requests in flight, including those on their way to the member.
    busy: u32,
    /// End of the last request.
    last: u64,
}

impl<D: Drive> Members<D> {
    pub(super) fn new(drives: Vec<D>) -> Members<D> {
        let state = |drive: &D| State { next_event: drive.next_event(), busy: 0, last: 0 };
        let states = drives.iter().map(state).collect();
        Members { drives, states }
    }

    pub(super) fn drives_mut(&mut self) -> &mut [D] {
        &mut self.drives
    }

    pub(super) fn len(&self) -> usize {
        self.drives.len()
    }

    /// Returns the size of the smallest member in sectors.
    pub(super) fn sectors(&self) -> u64 {
        self.drives.iter().map(Drive::sectors).min().unwrap_or(0)
    }

    pub(super) fn next_event(&self) -> Instant {
        self.states.iter().map(|state| state.next_event).min().unwrap_or(Instant::NEVER)
    }

    /// Advances the members that have an event until `now`.
    pub(super) fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        for (drive, state) in self.drives.iter_mut().zip(&mut self.states) {
            if state.next_event <= now {
                let before = done.len();
                drive.advance(now, done);
                state.busy -= (done.len() - before) as u32;
                state.next_event = drive.next_event();
            }
        }
    }

    /// Submits a request. Requests the member completes at `now` are appended to `done`.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        member: usize,
        request: Request,
        done: &mut Vec<Completion>,
    ) {
        let (drive, state) = (&mut self.drives[member], &mut self.states[member]);
        let before = done.len();
        drive.advance(now, done);
        drive.submit(now, request);
        state.next_event = drive.next_event();
        state.busy -= (done.len() - before) as u32;
    }

    /// Counts a request that is on its way to the member.
    pub(super) fn expect(&mut self, member: usize, operation: Operation, extent: Extent) {
        let state = &mut self.states[member];
        state.busy += 1;
        if operation != Operation::Flush {
            state.last = extent.end;
        }
    }

    /// Chooses the member that reads `sector`, among `copies` members from `first` on: the
    /// least busy, and among equally busy ones the one whose last request was nearest.
    pub(super) fn to_read(&self, first: usize, copies: usize, sector: u64) -> usize {
        let copies = first..first + copies;
        let cost = |&member: &usize| {
            let state = &self.states[member];
            (state.busy, state.last.abs_diff(sector))
        };
        copies.min_by_key(cost).unwrap_or(first)
    }

    /// Returns the members' combined movements, wear and energy.
    pub(super) fn counters(&self) -> Counters {
        let mut all = Counters { erases_least: u64::MAX, ..Counters::default() };
        for drive in &self.drives {
            let one = drive.counters();
            all.seeks += one.seeks;
            all.pages_written += one.pages_written;
            all.pages_copied += one.pages_copied;
            all.erases += one.erases;
            all.erases_least = all.erases_least.min(one.erases_least);
            all.erases_most = all.erases_most.max(one.erases_most);
            if one.rated_cycles > 0 {
                // The first member that ends decides.
                all.rated_cycles = one.rated_cycles;
                all.cycles = all.cycles.max(one.cycles);
                all.cycles_most = all.cycles_most.max(one.cycles_most);
            }
            all.energy += one.energy;
        }
        all
    }

    /// Returns the mean cycles of the member that has most.
    pub(super) fn cycles(&self) -> f64 {
        self.drives.iter().map(Drive::cycles).fold(0.0, f64::max)
    }

    /// Advances all members' clocks to `now`, when no events remain before.
    pub(super) fn settle(&mut self, now: Instant, done: &mut Vec<Completion>) {
        for (drive, state) in self.drives.iter_mut().zip(&mut self.states) {
            let before = done.len();
            drive.advance(now, done);
            state.busy -= (done.len() - before) as u32;
            state.next_event = drive.next_event();
        }
    }

    #[cfg(test)]
    pub(super) fn drives(&self) -> &[D] {
        &self.drives
    }
}
