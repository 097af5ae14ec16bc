//! The legs that take part: how they go out and come in.
//!
//! Every such change is one new superblock, durable on all legs that are in **before** it
//! takes effect. Marking a leg out begins a new generation, so that two legs that each went
//! on without the other are recognised as a fork.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::engine::state::failing::is_long;
use crate::engine::state::leg::{Health, Leg};
use crate::format::Membership;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, Notice, OutReason};
use crate::marks::Mark;
use crate::planted::{self, Planted};

/// A change of the leg set on its way to being durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: ChangeKind,
    pub(super) leg: LegIndex,
    /// The superblock sequence that carries it; `None` while something has to be durable
    /// before that, of the last one only.
    sequence: Option<u64>,
    pub(super) token: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Out(OutReason),
    In,
    Join,
    Remove,
}

impl ChangeKind {
    pub(super) fn is_out(self) -> bool {
        matches!(self, ChangeKind::Out(_))
    }
}

/// Changes of the leg set in progress, in order; one superblock carries them all.
pub(in crate::engine) struct Changes {
    changes: Vec<Change>,
    /// Legs, as a mask, that answer and will be marked out for what they keep failing.
    failing: u8,
}

impl Changes {
    pub(in crate::engine) fn new() -> Changes {
        Changes { changes: Vec::with_capacity(2 * LEGS_MAX), failing: 0 }
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the legs that are being marked out, as a mask.
    pub(in crate::engine) fn going_out(&self) -> u8 {
        let out = self.changes.iter().filter(|change| change.kind.is_out());
        out.fold(0, |legs, change| legs | change.leg.bit())
    }

    /// Returns true if a leg is being marked out.
    pub(in crate::engine) fn is_going_out(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.leg == leg && change.kind.is_out())
    }

    /// Returns the leg that is being taken in, unless it is going out again.
    pub(in crate::engine) fn coming_in(&self) -> Option<LegIndex> {
        let coming = self.changes.iter().find(|change| change.kind == ChangeKind::In)?.leg;
        (!self.is_going_out(coming)).then_some(coming)
    }

    /// Returns true if a leg is being taken in, even if it is going out again.
    pub(super) fn comes_in(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.kind == ChangeKind::In && change.leg == leg)
    }

    /// Returns true if a change of this leg's membership is on its way to being durable: nothing is
    /// written to it lazily that the others do not have yet.
    pub(in crate::engine) fn is_changing(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.leg == leg)
    }

    /// Adds a change that no superblock carries yet.
    pub(super) fn begin(&mut self, kind: ChangeKind, leg: LegIndex, token: Option<u64>) {
        self.changes.push(Change { kind, leg, sequence: None, token });
    }

    /// Returns the change that no superblock carries yet: only the last can be one.
    pub(super) fn to_make(&self) -> Option<Change> {
        self.changes.last().copied().filter(|change| change.sequence.is_none())
    }

    /// Takes back the change that no superblock carries yet.
    pub(super) fn take_back(&mut self) {
        self.changes.pop();
    }

    /// Notes that the superblock of this sequence carries all of them.
    fn note_carried(&mut self, sequence: u64) {
        for change in &mut self.changes {
            change.sequence = Some(sequence);
        }
    }

    /// Returns the sequence of the newest superblock that carries one.
    pub(super) fn newest_sequence(&self) -> Option<u64> {
        self.changes.iter().filter_map(|change| change.sequence).max()
    }

    /// Returns the first change and the superblock that carries it, if one does.
    pub(super) fn first_carried(&self) -> Option<(Change, u64)> {
        let change = self.changes.first()?;
        Some((*change, change.sequence?))
    }

    /// Takes off the first.
    pub(super) fn end_first(&mut self) {
        self.changes.remove(0);
    }
}

impl<B: Buffers> Engine<B> {
    /// Returns true if a leg is being detached or marked out, even if it has come back meanwhile:
    /// it decides nothing any more.
    pub fn is_leaving(&self, leg: LegIndex) -> bool {
        self.leaving() & leg.bit() != 0
    }

    /// Returns the legs that are being detached or marked out, as a mask.
    pub(in crate::engine) fn leaving(&self) -> u8 {
        self.changes.going_out() | self.detaching.leaving()
    }

    /// Returns the legs, as a mask, that decide nothing any more: those that are leaving, and those that will be
    /// marked out for what they keep failing as soon as no region depends on them.
    pub(in crate::engine) fn unfit_to_decide(&self) -> u8 {
        self.leaving() | self.changes.failing
    }

    fn note_failing(&mut self) {
        let failing = self
            .legs
            .that_are_in()
            .filter(|leg| leg.answers() && self.is_dead(leg.index.index()).is_some());
        self.changes.failing = failing.fold(0, |legs, leg| legs | leg.index.bit());
    }

    /// Marks out what has been dead for too long, brings in what has drained. A leg that is silent
    /// from the start would keep the volume from opening forever.
    pub(in crate::engine) fn consider_out(&mut self) {
        let opening = self.life.is_opening() && !planted::is(Planted::OpeningWaits);
        if !opening && !self.life.is_serving() {
            return;
        }
        self.note_failing();
        if !self.changes.is_empty() {
            self.consider_out_meanwhile();
            return;
        }
        for leg in 0..LEGS_MAX {
            if self.legs[leg].is_in() {
                if let Some(reason) = self.is_dead(leg)
                    && self.give_up_authority(leg)
                {
                    self.begin_change(LegIndex(leg as u8), ChangeKind::Out(reason), None);
                    return;
                }
            } else if !opening && self.has_drained(leg) {
                self.begin_change(LegIndex(leg as u8), ChangeKind::In, None);
                return;
            }
        }
    }

    /// Looks after a change that is in progress. If it waits for a leg that has been dead for too long,
    /// that one is marked out along with it; if it waits for what nobody who stays can record, it is
    /// taken back.
    fn consider_out_meanwhile(&mut self) {
        if let Some(change) = self.changes.to_make() {
            self.consider_taking_back(change);
            return;
        }
        let object = self.regions.metadata().superblock();
        let newest = self.regions.metadata().newest(object);
        for leg in 0..LEGS_MAX {
            let index = LegIndex(leg as u8);
            let coming_in = self.changes.coming_in() == Some(index);
            let awaited = self.volume.is_in(index)
                && (coming_in || self.regions.metadata().durable(object, index) < newest);
            if awaited
                && let Some(reason) = self.is_dead(leg)
                && self.give_up_authority(leg)
            {
                self.marks.add(if coming_in { Mark::ComingInGivenUp } else { Mark::OutMeanwhile });
                self.begin_change(index, ChangeKind::Out(reason), None);
                return;
            }
        }
    }

    /// A leg that is to be marked out has come back, and those that were to go on without it are
    /// silent, or cannot record what goes before: no superblock says yet that it is out, so it stays.
    /// (Once one may say so, it decides nothing: the volume could be opened without it.)
    fn consider_taking_back(&mut self, change: Change) {
        let leg = &self.legs[change.leg.index()];
        let is_worse = |other: &Leg| {
            self.keeps_failing(other)
                && !self.keeps_failing(leg)
                && !planted::is(Planted::OutAwaitsFailing)
        };
        let is_alone = match change.token {
            Some(_) => self.others_are_useless(change.leg.index()),
            None => {
                !self.legs_that_stay(leg.index).any(|other| other.answers() && !is_worse(other))
            }
        };
        if !change.kind.is_out() || !is_alone || !leg.answers() {
            return;
        }
        self.marks.add(Mark::OutTakenBack);
        self.changes.take_back();
        self.prerequisites.forget();
        self.revisits.look_at_all();
        if change.token.is_some() {
            self.give_up_detach();
        }
        self.pump_backlog();
    }

    /// Returns the reason to mark out a leg that is in, if there is one.
    fn is_dead(&self, leg: usize) -> Option<OutReason> {
        if !self.legs_that_stay(LegIndex(leg as u8)).any(Leg::answers) {
            return None;
        }
        let state = &self.legs[leg];
        match state.watch.health() {
            Health::Gone { removed: true, .. } => Some(OutReason::Removed),
            _ if self.is_long_silent(leg) => Some(OutReason::Unresponsive),
            // It comes back time and again, and is of no use.
            Health::Answering | Health::Gone { .. }
                if state.failing.never_succeeds_for(self.settings.out_after, self.clock.now())
                    && !planted::is(Planted::LostSessionsForgiven) =>
            {
                Some(OutReason::Unresponsive)
            }
            Health::Answering if self.keeps_failing(state) => Some(OutReason::WriteErrors),
            _ => None,
        }
    }

    /// Returns true if a leg that answers has failed writes of one kind for so long that it is not counted
    /// on.
    pub(in crate::engine) fn keeps_failing(&self, state: &Leg) -> bool {
        state.failing.every_write_fails(self.settings.out_after, self.clock.now())
            || self.fails_for_good(state)
    }

    /// Returns true if writes or flushes have kept failing on a leg, even if others succeed, and
    /// it lacks something for as long.
    fn fails_for_good(&self, state: &Leg) -> bool {
        state.failing.errors_last(self.clock.now())
            && (state.debts.oldest_since().is_some_and(|since| is_long(since, self.clock.now()))
                || state.draining.rebuilding() > 0
                || self.regions.stale_count(state.index) > 0
                || self.regions.healing_count(state.index) > 0
                || state.failing.lacks_superblock(self.clock.now()))
    }

    /// Returns true if a leg that is out holds everything, durably, its metadata included.
    fn has_drained(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let index = state.index;
        matches!(state.membership(), Membership::Out(reason) if reason != OutReason::Detached)
            && state.is_trusted(self.clock.now())
            && !state.failing.had_errors_of_late(self.clock.now())
            && state.debts.is_empty()
            && state.load.is_idle()
            && state.draining.rebuilding() == 0
            && self.regions.stale_count(index) == 0
            && self.regions.healing_count(index) == 0
            && self.regions.metadata().is_current_but(index, self.regions.metadata().superblock())
    }

    pub(super) fn begin_change(&mut self, leg: LegIndex, kind: ChangeKind, token: Option<u64>) {
        self.changes.begin(kind, leg, token);
        if kind.is_out() && !planted::is(Planted::OutBeforeTable) {
            self.list_what_goes_before();
        }
        self.go_on_with_change();
    }

    /// Writes the superblock that makes a change, once nothing has to be durable before it.
    pub(super) fn go_on_with_change(&mut self) {
        let Some(change) = self.changes.to_make() else { return };
        if !self.what_goes_before_is_durable(change.leg) {
            self.marks.add(Mark::OutWaited);
            return;
        }
        match change.kind {
            ChangeKind::Out(reason) => {
                self.volume.mark(change.leg, Membership::Out(reason));
                self.begin_generation();
            }
            ChangeKind::In => self.volume.mark(change.leg, Membership::In),
            ChangeKind::Join | ChangeKind::Remove => {}
        }
        let sequence = self.write_superblock();
        // It carries those before, too.
        self.changes.note_carried(sequence);
    }

    pub(super) fn finish_change(&mut self, change: Change) {
        let leg = change.leg.index();
        match change.kind {
            ChangeKind::Out(reason) => {
                self.marks.add(match reason {
                    OutReason::Detached => Mark::LegDetached,
                    OutReason::Removed => Mark::LegOutRemoved,
                    OutReason::WriteErrors => Mark::LegOutErrors,
                    _ => Mark::LegOut,
                });
                self.legs[leg].mark(Membership::Out(reason));
                if reason == OutReason::Detached {
                    self.legs[leg].watch.leave();
                    self.detaching.end();
                }
                self.fold_debts(leg);
                if !self.legs[leg].answers() {
                    if !planted::is(Planted::DetachedStillRead) {
                        self.give_up_own_reads(leg, true);
                    }
                    self.give_up_reads(leg);
                }
                self.outbox.notice(Notice::Out { leg: change.leg, reason });
                self.regions.forget_metadata(change.leg);
                self.reconsider_operations();
                self.consider_flushes();
            }
            // It died on the way.
            ChangeKind::In if self.changes.is_going_out(change.leg) => {}
            ChangeKind::In => {
                self.marks.add(Mark::LegIn);
                self.legs[leg].come_in();
                self.outbox.notice(Notice::In { leg: change.leg });
            }
            ChangeKind::Join => self.marks.add(Mark::LegJoined),
            ChangeKind::Remove => {}
        }
        if let Some(token) = change.token {
            self.outbox.command_done(token, Ok(()));
        }
    }

    /// A leg that is out and has been silent for long gives its copies back.
    pub(in crate::engine) fn fold_debts_of_silent(&mut self) {
        for leg in self.legs.slots() {
            let state = &self.legs[leg];
            let out = state.is_member() && !state.is_in();
            if out && self.is_long_silent(leg) && !planted::is(Planted::OutKeepsCopies) {
                self.fold_debts(leg);
            }
        }
    }

    /// A leg that does not answer is out: its exact debts become owed regions, their copies
    /// are given back.
    fn fold_debts(&mut self, leg: usize) {
        if self.legs[leg].answers() {
            return;
        }
        let mut at = 0;
        while let Some((_, debt)) = self.legs[leg].debts.first_after(at) {
            let region = self.regions.of_sector(debt.extent.start);
            at = self.regions.extent(region).end;
            // What it does not owe there may be needed to give an authority back what it lost.
            if !self.must_stay(LegIndex(leg as u8), region) {
                self.owe_region(leg, region);
            }
        }
    }

    /// A leg leaves its slot, with nothing in flight any more: what it owes, writes that failed
    /// since it went out included, and what it has been sent says nothing of the leg that comes
    /// next.
    pub(super) fn forget_leg(&mut self, leg: usize) {
        self.forget_copies(LegIndex(leg as u8));
        self.differences.forget_leg(LegIndex(leg as u8));
        if self.legs.iter().filter(|leg| leg.is_member()).count() <= 2 {
            self.differences.clear();
        }
        // They must not pay one of the leg that comes next, whose debts can have the same names.
        self.ios.forget_late_reads(leg);
        while let Some((_, debt)) = self.legs[leg].debts.first_after(0) {
            self.owe_region(leg, self.regions.of_sector(debt.extent.start));
        }
        let forgives = planted::is(Planted::UnreadableForgotten);
        self.operations.forget_leg(LegIndex(leg as u8), forgives);
        self.regions.forget_stamps(leg);
    }
}
