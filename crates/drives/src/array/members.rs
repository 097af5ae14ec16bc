//! The members of an array, and the choice among copies for a read.

use std::ops::Range;

use hemi_units::{Extent, Instant, Operation};

use crate::drive::{Completion, Counters, Drive, Presence, Request};

/// The drives, with the array's state for each.
#[derive(Clone, Debug)]
pub(super) struct Members<D> {
    drives: Vec<D>,
    states: Vec<State>,
    /// True if a presence has changed since [`Members::has_changed`] was asked.
    changed: bool,
    /// True if a member is out.
    any_out: bool,
}

#[derive(Clone, Copy, Debug)]
struct State {
    next_event: Instant,
    /// Requests in flight, including those on their way to the member.
    busy: u32,
    /// End of the last request.
    last: u64,
    /// [`Drive::presence`] at its last event.
    presence: Option<Presence>,
    /// True if the array goes on without it, for good.
    out: bool,
}

impl State {
    fn new<D: Drive>(drive: &D) -> State {
        State {
            next_event: drive.next_event(),
            busy: 0,
            last: 0,
            presence: drive.presence(),
            out: false,
        }
    }

    /// Returns true if the member is needed and does not answer.
    fn is_missing(&self) -> bool {
        !self.out && !matches!(self.presence, None | Some(Presence::Present))
    }
}

impl<D: Drive> Members<D> {
    pub(super) fn new(drives: Vec<D>) -> Members<D> {
        let states = drives.iter().map(State::new).collect();
        Members { drives, states, changed: false, any_out: false }
    }

    /// Puts another drive in the place of a member that has had no request.
    pub(super) fn replace(&mut self, member: usize, drive: D) {
        self.states[member] = State::new(&drive);
        self.drives[member] = drive;
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
                let presence = drive.presence();
                self.changed |= state.presence != presence;
                state.presence = presence;
            }
        }
    }

    /// Returns true if the presence of a member has changed since this was last asked.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns true if the array goes on without the member.
    pub(super) fn is_out(&self, member: usize) -> bool {
        self.states[member].out
    }

    /// Goes on without the member, for good.
    pub(super) fn put_out(&mut self, member: usize) {
        self.states[member].out = true;
        self.any_out = true;
    }

    /// Returns true if the array goes on without some member.
    pub(super) fn any_out(&self) -> bool {
        self.any_out
    }

    /// Returns the number of members in `range` that the array goes on without.
    pub(super) fn count_out(&self, range: Range<usize>) -> usize {
        self.states[range].iter().filter(|state| state.out).count()
    }

    /// Returns true if the member is needed and does not answer.
    pub(super) fn is_missing(&self, member: usize) -> bool {
        self.states[member].is_missing()
    }

    /// Returns the next of `copies` behind `member`, in turn, that is not out.
    pub(super) fn next_of(&self, copies: Range<usize>, member: usize) -> Option<usize> {
        let mut behind = (member + 1..copies.end).chain(copies.start..member);
        behind.find(|&member| !self.states[member].out)
    }

    /// Returns the first member that is needed and does not answer.
    pub(super) fn missing(&self) -> Option<usize> {
        self.states.iter().position(State::is_missing)
    }

    /// Returns the presence of the members that are needed: dead if one is, present if all are.
    /// `None` if none of the members ever goes away.
    pub(super) fn presence(&self) -> Option<Presence> {
        self.states.iter().find_map(|state| state.presence)?;
        let needed = || self.states.iter().filter(|state| !state.out);
        let any = |wanted| needed().any(|state| state.presence == Some(wanted));
        let missing = [Presence::Dead, Presence::Away].into_iter().find(|&presence| any(presence));
        Some(missing.unwrap_or(Presence::Present))
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

    /// Chooses the member that reads `sector`, among `copies` members from `first` on that are
    /// not out: the least busy, and among equally busy ones the one whose last request was
    /// nearest.
    pub(super) fn to_read(&self, first: usize, copies: usize, sector: u64) -> usize {
        let copies = (first..first + copies).filter(|&member| !self.states[member].out);
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
            all.busy += one.busy;
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
            all.members_out += one.members_out;
        }
        all.busy /= self.drives.len().max(1) as u64;
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
