//! Opening and closing, and which legs take part: out, in, join, detach, remove.
//!
//! Every such change is one new superblock, durable on all legs that are in **before** it
//! takes effect. Marking a leg out begins a new generation, so that two legs that each went
//! on without the other are recognised as a fork.

use crate::command::{Command, CommandError};
use crate::engine::Engine;
use crate::engine::state::failing::{Failing, Task, is_long};
use crate::engine::state::leg::{Health, Leg};
use crate::engine::state::records::Stage;
use crate::engine::state::regions::metadata::BlockWrite;
use crate::format::{BLOCK_BYTES, Id, Membership, lost, page};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, LegError, LegTraits, Notice, OutReason};
use crate::marks::Mark;
use crate::planted::{self, Planted};
use hemi_units::{Extent, Instant, MILLISECOND, SECOND};

/// Commands kept until the volume is durably open.
const EARLY_COMMANDS: usize = 16;
/// A detach is given up when no other leg has answered for this long; and a leg that has been
/// silent for so long is let go though it is not whole.
const DETACH_PATIENCE: u64 = 2 * SECOND;
/// After the drain's time is over, closing gives up on metadata after this.
const CLOSE_METADATA_TIME: u64 = 10 * SECOND;
/// While closing or detaching, the background runs this often.
pub(in crate::engine) const TICK_WHILE_CHANGING: u64 = 5 * MILLISECOND;

/// Where the volume stands between open and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Phase {
    /// "Open" is being made durable; requests wait.
    Opening,
    Serving,
    Closing(Closing),
    Closed,
    /// This leg is gone for good, and alone decides what others may have, in so many regions.
    Halted {
        leg: LegIndex,
        regions: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Closing {
    token: u64,
    drain_until: Instant,
    /// The closed superblock has been asked for.
    marked: bool,
}

/// A change of the leg set on its way to being durable.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Change {
    kind: ChangeKind,
    leg: LegIndex,
    /// The superblock sequence that carries it; `None` while something has to be durable
    /// before that, of the last one only.
    sequence: Option<u64>,
    token: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Out(OutReason),
    In,
    Join,
    Remove,
}

impl ChangeKind {
    fn is_out(self) -> bool {
        matches!(self, ChangeKind::Out(_))
    }
}

/// A detach under way: the leg is made whole, then let go.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Detach {
    leg: LegIndex,
    token: u64,
    /// No new requests start until it is done.
    pub(in crate::engine) paused: bool,
    flush_stamp: Option<u64>,
    /// Its being out is on its way to being durable.
    changing: bool,
}

impl<B: Buffers> Engine<B> {
    /// Without a leg that is out and may come back a new generation begins: that leg may have
    /// heard of something, such as that it was being taken in, which these legs have not, and
    /// sequences alone could not tell the two apart.
    pub(in crate::engine) fn begin_open(&mut self) {
        let may_come_back = |leg: &Leg| {
            leg.health == Health::Absent
                && matches!(leg.membership, Membership::Out(reason) if reason != OutReason::Detached)
        };
        if self.legs.iter().any(may_come_back) {
            self.begin_generation();
        }
        let id = self.volume.random_id(self.clock.now());
        let ledger = self.regions.announce_opening(id);
        self.volume.open(ledger);
        self.write_superblock(None);
    }

    /// Asks for the superblock as it is now on every leg that is in and answers; the sequence
    /// that carries it.
    fn write_superblock(&mut self, also: Option<LegIndex>) -> u64 {
        let object = self.regions.metadata().superblock();
        let sequence = self.regions.metadata_mut().change_superblock();
        for leg in 0..LEGS_MAX {
            let index = LegIndex(leg as u8);
            let is_in = self.volume.is_in(index);
            if self.legs[leg].answers() && (is_in || also == Some(index)) {
                self.regions.metadata_mut().request(object, index);
            }
        }
        sequence
    }

    /// Fills the image of a metadata write.
    pub(in crate::engine) fn encode_object(&mut self, leg: LegIndex, write: &BlockWrite) {
        let volume = self.volume.id();
        let generation = self.volume.generation();
        let join_epoch = self.volume.join_epoch();
        let volume_sectors = self.regions.volume_sectors();
        if write.object == self.regions.metadata().superblock() {
            let image = self.regions.metadata_mut().image_mut(write.image);
            self.volume.encode(leg, write.sequence, image, write.slot);
        } else if write.object == self.regions.metadata().lost_list() {
            let header = lost::LostHeader { generation, join_epoch };
            let image = self.regions.metadata_mut().image_mut(write.image);
            lost::encode(
                image,
                write.address,
                volume,
                write.sequence,
                &header,
                self.lost.extents(),
                volume_sectors,
            )
            .expect("the engine keeps the list sorted, disjoint and short enough");
        } else {
            self.regions.fill_page(write, generation, join_epoch);
        }
    }

    /// The bytes of what [`Engine::encode_object`] made. Pages, the bulk of it, are sealed only
    /// here: a driver that stores no bytes, as a model, does not pay for checksums.
    pub(in crate::engine) fn sealed_object(&mut self, write: &BlockWrite) -> &[u8; BLOCK_BYTES] {
        let is_page = self.regions.metadata().is_page(write.object);
        let image = self.regions.metadata_mut().image_mut(write.image);
        if is_page {
            page::seal(image, write.address, self.volume.id(), write.sequence);
        }
        image
    }

    /// A metadata write ended.
    pub(in crate::engine) fn metadata_done(
        &mut self,
        leg: usize,
        write: &BlockWrite,
        result: Result<(), LegError>,
    ) {
        if let Err(error) = result
            && !planted::is(Planted::FailedPageTrusted)
        {
            self.marks.add(Mark::MetadataFailed);
            self.count_failure(leg, self.task_of(write), error);
            self.metadata_failed(leg, write);
            return;
        }
        if result.is_ok() {
            let task = self.task_of(write);
            self.legs[leg].failing.note_success(task);
        }
        let pages = self.regions.metadata().superblock();
        if write.object < pages {
            self.regions.note_recorded(LegIndex(leg as u8), write);
            self.regions.note_moves_recorded(LegIndex(leg as u8), write, &mut self.marks);
            self.retry_all_waiting(Some(write.object));
        } else if write.object == self.regions.metadata().lost_list() {
            self.retry_all_waiting(None);
        }
        if self.flushing.is_awaited() {
            self.consider_flushes();
        }
    }

    fn task_of(&self, write: &BlockWrite) -> Task {
        let is_superblock = write.object == self.regions.metadata().superblock();
        if is_superblock { Task::Superblock } else { Task::Page }
    }

    /// Whoever waits on this leg's metadata looks for another leg; the write is tried again
    /// by the background, and a leg that keeps failing is marked out.
    fn metadata_failed(&mut self, leg: usize, write: &BlockWrite) {
        let decided_by = LegIndex(leg as u8);
        for place in 0..self.regions.waiting_count() {
            let Some(record) = self.regions.waiting_record(place) else { return };
            let region = self.regions.region_of(record);
            if self.regions.page_of(region) == write.object
                && self.regions.decides(decided_by, region)
            {
                self.regions.force_move(record);
            }
        }
    }

    pub(in crate::engine) fn leg_gone(&mut self, leg: LegIndex, removed: bool) {
        let state = &mut self.legs[leg.index()];
        match state.health {
            Health::Absent => return,
            Health::Gone { since, .. } => state.health = Health::Gone { since, removed },
            Health::Frozen { since } => {
                state.thaw(since, self.clock.now());
                state.health = Health::Gone { since: self.clock.now(), removed };
            }
            Health::Answering => state.health = Health::Gone { since: self.clock.now(), removed },
        }
        self.leave_leg(leg.index());
        self.count_session_without_superblock(leg);
        self.consider_out();
    }

    /// A session of a leg has ended. Counts that as a failure if the leg lacks the superblock: its
    /// sessions may end each time before it is asked to write that again.
    fn count_session_without_superblock(&mut self, leg: LegIndex) {
        let metadata = self.regions.metadata();
        if metadata.lacks(metadata.superblock(), leg) && !planted::is(Planted::UnaskedForgiven) {
            self.count_failure(leg.index(), Task::Superblock, LegError::Gone);
        }
    }

    pub(in crate::engine) fn leg_back(&mut self, leg: LegIndex) {
        if let Health::Gone { since, .. } = self.legs[leg.index()].health {
            let state = &mut self.legs[leg.index()];
            state.thaw(since, self.clock.now());
            state.flushing = None;
            state.flush_io = crate::engine::state::slab::NONE;
            if planted::is(Planted::RewriteWithoutFence) {
                // Not what is sent meanwhile: ending that, too, can go on for ever.
                let last = self.legs[leg.index()].newest_io;
                let mut at = self.legs[leg.index()].oldest_io;
                while at != crate::engine::state::slab::NONE {
                    self.io_done(at, Err(LegError::Gone));
                    let oldest = self.legs[leg.index()].oldest_io;
                    at = if at == last { crate::engine::state::slab::NONE } else { oldest };
                }
            }
            if !planted::is(Planted::LostCacheFresh) {
                self.lose_cache(leg.index());
            }
            self.after_return();
        }
    }

    pub(in crate::engine) fn is_removed(&self, leg: usize) -> bool {
        matches!(self.legs[leg].health, Health::Absent | Health::Gone { removed: true, .. })
    }

    /// The generation now and those before it: what a leg that comes back must be of.
    pub fn generations(&self) -> impl Iterator<Item = Id> {
        self.volume.generations()
    }

    /// Whether requests and commands are taken up: the volume is durably open and not closing.
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    pub(in crate::engine) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing(_))
    }

    /// Returns true if a leg is being detached or marked out, even if it has come back meanwhile:
    /// it decides nothing any more.
    pub fn is_leaving(&self, leg: LegIndex) -> bool {
        self.leaving() & leg.bit() != 0
    }

    /// Returns the legs that are being detached or marked out, as a mask.
    pub(in crate::engine) fn leaving(&self) -> u8 {
        let changes = self.changes.iter().filter(|change| change.kind.is_out());
        let detached = self.detach.iter().map(|detach| detach.leg);
        changes.map(|change| change.leg).chain(detached).fold(0, |legs, leg| legs | leg.bit())
    }

    /// Whether a leg is being marked out.
    pub(in crate::engine) fn is_going_out(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.leg == leg && change.kind.is_out())
    }

    /// Whether writers have to wait for a change of the leg set.
    pub(in crate::engine) fn is_paused(&self) -> bool {
        self.detach.is_some_and(|detach| detach.paused)
    }

    /// Marks out what has been dead for too long, brings in what has drained. A leg that is silent
    /// from the start would keep the volume from being open for ever.
    pub(in crate::engine) fn consider_out(&mut self) {
        let opening = self.phase == Phase::Opening && !planted::is(Planted::OpeningWaits);
        if !opening && self.phase != Phase::Serving {
            return;
        }
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

    /// A change is under way. If it waits for a leg that has been dead for too long, that one
    /// is marked out along with it; if it waits for what nobody who stays can record, it is
    /// taken back.
    fn consider_out_meanwhile(&mut self) {
        if let Some(change) = self.change_to_make() {
            self.consider_taking_back(change);
            return;
        }
        let object = self.regions.metadata().superblock();
        let newest = self.regions.metadata().newest(object);
        for leg in 0..LEGS_MAX {
            let index = LegIndex(leg as u8);
            let coming_in = self.coming_in() == Some(index);
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

    /// A leg that is to be marked out has come back, and those that were to go on without it
    /// are silent: no superblock says yet that it is out, so it stays. (Once one may say so, it
    /// decides nothing: the volume could be opened without it.)
    fn consider_taking_back(&mut self, change: Change) {
        let leg = change.leg;
        let others = self.legs_that_stay(leg).any(Leg::answers);
        if !change.kind.is_out() || others || !self.legs[leg.index()].answers() {
            return;
        }
        if let Some(token) = change.token {
            if !self.others_are_silent(leg.index()) {
                return;
            }
            let result = Err(CommandError::LastCompleteLeg);
            self.outbox.command_done(token, result);
            self.detach = None;
        }
        self.marks.add(Mark::OutTakenBack);
        self.changes.pop();
        self.before_change.clear();
        self.reconsider = true;
        self.pump_backlog();
    }

    /// The leg that is being taken in, unless it is going out again.
    pub(in crate::engine) fn coming_in(&self) -> Option<LegIndex> {
        let coming = self.changes.iter().find(|change| change.kind == ChangeKind::In)?.leg;
        (!self.is_going_out(coming)).then_some(coming)
    }

    /// Whether, and why, a leg that is in has to be marked out.
    fn is_dead(&self, leg: usize) -> Option<OutReason> {
        if !self.legs_that_stay(LegIndex(leg as u8)).any(Leg::answers) {
            return None;
        }
        let state = &self.legs[leg];
        match state.health {
            Health::Gone { removed: true, .. } => Some(OutReason::Removed),
            _ if self.is_long_silent(leg) => Some(OutReason::Unresponsive),
            // It comes back time and again, and is of no use.
            Health::Answering | Health::Gone { .. }
                if state.failing.never_succeeds_for(self.settings.out_after, self.clock.now())
                    && !planted::is(Planted::LostSessionsForgiven) =>
            {
                Some(OutReason::Unresponsive)
            }
            Health::Answering
                if state.failing.every_write_fails(self.settings.out_after, self.clock.now())
                    || self.fails_for_good(leg) =>
            {
                Some(OutReason::WriteErrors)
            }
            _ => None,
        }
    }

    /// Returns true if writes or flushes have kept failing on a leg, be it that others succeed, and
    /// it lacks something for as long.
    fn fails_for_good(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        state.failing.errors_last(self.clock.now())
            && (state.debts.oldest_since().is_some_and(|since| is_long(since, self.clock.now()))
                || state.rebuilding > 0
                || self.regions.stale_count(state.index) > 0
                || self.regions.healing_count(state.index) > 0
                || state.failing.lacks_superblock(self.clock.now()))
    }

    /// Whether a leg that is out holds everything, durably, its metadata included.
    fn has_drained(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let index = state.index;
        matches!(state.membership, Membership::Out(reason) if reason != OutReason::Detached)
            && state.is_trusted(self.clock.now())
            && !state.failing.had_errors_of_late(self.clock.now())
            && state.debts.is_empty()
            && state.writes_in_flight == 0
            && state.drain_reads == 0
            && state.rebuilding == 0
            && self.regions.stale_count(index) == 0
            && self.regions.healing_count(index) == 0
            && self.regions.metadata().is_current_but(index, self.regions.metadata().superblock())
    }

    fn begin_change(&mut self, leg: LegIndex, kind: ChangeKind, token: Option<u64>) {
        self.changes.push(Change { kind, leg, sequence: None, token });
        if kind.is_out() && !planted::is(Planted::OutBeforeTable) {
            self.list_what_goes_before();
        }
        self.go_on_with_change();
    }

    /// The change that no superblock carries yet: only the last can be one.
    fn change_to_make(&self) -> Option<Change> {
        self.changes.last().copied().filter(|change| change.sequence.is_none())
    }

    /// Writes the superblock that makes a change, once nothing has to be durable before it.
    fn go_on_with_change(&mut self) {
        let Some(change) = self.change_to_make() else { return };
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
        // One that comes in is in by it; one that joins is not.
        let also = (change.kind == ChangeKind::Join).then_some(change.leg);
        let sequence = self.write_superblock(also);
        // It carries those before, too.
        for change in &mut self.changes {
            change.sequence = Some(sequence);
        }
    }

    /// Begins a new random generation; the present one becomes history. What a leg is of stays in
    /// it, or a leg that is out would count as a fork when it comes back.
    fn begin_generation(&mut self) {
        let metadata = self.regions.metadata();
        let object = metadata.superblock();
        let mut held = [u64::MAX; 2 * LEGS_MAX];
        let legs = self.legs.iter().filter(|leg| leg.is_member());
        for (held, leg) in held.chunks_mut(2).zip(legs) {
            let durable = metadata.durable(object, leg.index);
            let in_flight = metadata.in_flight(object, leg.index);
            held.copy_from_slice(&[durable, in_flight.unwrap_or(durable)]);
        }
        let held = if planted::is(Planted::AncestorsForgotten) { &[][..] } else { &held };
        self.volume.begin_generation(metadata.newest(object), held, self.clock.now());
    }

    /// Whether a superblock is durable on every leg that is in by it.
    fn superblock_is_durable(&self, sequence: u64) -> bool {
        self.volume.legs_in().all(|leg| self.has_superblock(leg, sequence))
    }

    fn has_superblock(&self, leg: LegIndex, sequence: u64) -> bool {
        self.regions.metadata().durable(self.regions.metadata().superblock(), leg) >= sequence
    }

    /// Whether a leg is being taken in, be it that it is going out again.
    fn comes_in(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.kind == ChangeKind::In && change.leg == leg)
    }

    /// Whether a leg may be sent the superblock as it is now. One that is out by it comes after
    /// all that are in: without it they open as they were before, and in a generation of their
    /// own, so that what it alone has heard of another generation would make it a fork. So does
    /// one that is being taken in: that it is in is nothing it may know alone.
    pub(in crate::engine) fn may_be_told(&self, leg: LegIndex) -> bool {
        let newest = self.regions.metadata().newest(self.regions.metadata().superblock());
        if !self.volume.is_in(leg) {
            return self.superblock_is_durable(newest);
        }
        let mut others = self.volume.legs_in().filter(|&other| !self.comes_in(other));
        !self.comes_in(leg) || others.all(|other| self.has_superblock(other, newest))
    }

    /// Steps of opening, changing, detaching and closing whose time has come.
    pub(in crate::engine) fn pump_phase(&mut self) {
        let object = self.regions.metadata().superblock();
        match self.phase {
            Phase::Opening
                if self.superblock_is_durable(self.regions.metadata().newest(object)) =>
            {
                self.phase = Phase::Serving;
                self.regions.confirm_opening(self.volume.ledger());
                self.pump_backlog();
                self.consider_flushes();
                for (token, command) in core::mem::take(&mut self.early_commands) {
                    self.run_command(token, command);
                }
            }
            Phase::Closing(closing) => self.pump_closing(closing),
            _ => {}
        }
        self.go_on_with_change();
        while let Some(change) = self.changes.first().copied()
            && let Some(sequence) = change.sequence
            && self.superblock_is_durable(sequence)
            && self.has_been_told(&change, sequence)
            && self.may_be_let_go(&change)
            && self.coming_in().is_none_or(|leg| self.exposure_fits_with(leg))
        {
            self.changes.remove(0);
            self.finish_change(change);
        }
        if self.detach.is_some() {
            self.pump_detach();
        }
    }

    /// Whether a change of this leg's membership is on its way to being durable: nothing is
    /// written to it lazily that the others do not have yet.
    pub(in crate::engine) fn is_changing(&self, leg: LegIndex) -> bool {
        self.changes.iter().any(|change| change.leg == leg)
    }

    /// Asks again for the superblock that a change waits for, on each leg where writing it failed. A leg
    /// that is being marked out is waited for by nobody, whatever it has: that must not last.
    pub(in crate::engine) fn retry_superblock(&mut self) {
        let Some(sequence) = self.changes.iter().filter_map(|change| change.sequence).max() else {
            return;
        };
        let object = self.regions.metadata().superblock();
        for leg in self.slots() {
            let index = LegIndex(leg as u8);
            let is_awaited = self.volume.is_in(index)
                && self.legs[leg].answers()
                && !self.has_superblock(index, sequence);
            let is_asked = self.comes_in(index) || !planted::is(Planted::OutAskedOnce);
            if is_awaited && is_asked {
                self.regions.metadata_mut().request(object, index);
            }
        }
    }

    /// A leg that is detached has it in its own superblock too, so that it decides nothing if
    /// it is ever found alone; but only after all others have it, or a crash in between would
    /// leave them waiting for a leg that counts itself out.
    fn has_been_told(&mut self, change: &Change, sequence: u64) -> bool {
        const TRIES: u32 = 3;
        let leg = &self.legs[change.leg.index()];
        let object = self.regions.metadata().superblock();
        if change.kind != ChangeKind::Out(OutReason::Detached)
            || !leg.answers()
            || leg.failing.in_a_row(Task::Superblock) >= TRIES
            || self.has_superblock(change.leg, sequence)
        {
            return true;
        }
        self.regions.metadata_mut().request(object, change.leg);
        false
    }

    /// Returns true if a leg that is detached may go, or if it is no such change. Until then another
    /// leg may have lost its cache: what that had not flushed is given back from this one first.
    fn may_be_let_go(&mut self, change: &Change) -> bool {
        let leg = change.leg.index();
        if change.kind != ChangeKind::Out(OutReason::Detached)
            || self.give_up_authority(leg)
            || planted::is(Planted::DetachedTooSoon)
        {
            return true;
        }
        if self.legs[leg].answers() || self.is_briefly_silent(leg) {
            return false;
        }
        // It decides nothing any more, so nobody would wait for it: what it alone has is lost.
        if let Health::Frozen { since } | Health::Gone { since, .. } = self.legs[leg].health {
            self.legs[leg].health = Health::Gone { since, removed: true };
        }
        self.give_up_authority(leg);
        true
    }

    fn finish_change(&mut self, change: Change) {
        let leg = change.leg.index();
        match change.kind {
            ChangeKind::Out(reason) => {
                self.marks.add(match reason {
                    OutReason::Detached => Mark::LegDetached,
                    OutReason::Removed => Mark::LegOutRemoved,
                    OutReason::WriteErrors => Mark::LegOutErrors,
                    _ => Mark::LegOut,
                });
                self.legs[leg].membership = Membership::Out(reason);
                if reason == OutReason::Detached {
                    self.legs[leg].health = Health::Absent;
                    self.detach = None;
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
            ChangeKind::In if self.is_going_out(change.leg) => {}
            ChangeKind::In => {
                self.marks.add(Mark::LegIn);
                self.legs[leg].membership = Membership::In;
                // Nothing has failed for a while, and it lacks nothing.
                self.legs[leg].failing = Failing::default();
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
        for leg in self.slots() {
            let state = &self.legs[leg];
            let out = state.is_member() && !state.is_in();
            if out && self.is_long_silent(leg) && !planted::is(Planted::OutKeepsCopies) {
                self.fold_debts(leg);
            }
        }
    }

    /// Returns true if a leg has been silent for as long as one may be before it is marked out.
    pub(in crate::engine) fn is_long_silent(&self, leg: usize) -> bool {
        match self.legs[leg].health {
            Health::Frozen { since } | Health::Gone { since, .. } => {
                self.clock.now().since(since) >= self.settings.out_after
            }
            Health::Answering | Health::Absent => false,
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
    fn forget_leg(&mut self, leg: usize) {
        let bit = LegIndex(leg as u8).bit();
        self.forget_copies(LegIndex(leg as u8));
        self.forget_late_reads(leg);
        while let Some((_, debt)) = self.legs[leg].debts.first_after(0) {
            self.owe_region(leg, self.regions.of_sector(debt.extent.start));
        }
        for slot in 0..self.operations.capacity() as u32 {
            if self.operations.is_used(slot) {
                let state = &mut self.operations[slot];
                state.done &= !bit;
                state.failed &= !bit;
                state.unreadable &= !planted::is(Planted::UnreadableForgotten);
            }
        }
        self.regions.forget_stamps(leg);
    }

    /// Looks again at every write that is with the legs.
    pub(in crate::engine) fn reconsider_operations(&mut self) {
        for slot in 0..self.operations.capacity() as u32 {
            if self.operations.is_used(slot)
                && !self.operations[slot].is_read
                && self.operations[slot].stage == Stage::Running
            {
                self.consider_acknowledgement(slot);
            }
        }
    }

    pub(in crate::engine) fn run_command(&mut self, token: u64, command: Command) {
        let result = match command {
            _ if self.phase == Phase::Closed => Err(CommandError::Closing),
            Command::Close { drain_until } => self.begin_close(token, drain_until),
            _ if self.is_closing() => Err(CommandError::Closing),
            _ if self.phase == Phase::Opening && self.early_commands.len() < EARLY_COMMANDS => {
                self.early_commands.push((token, command));
                Ok(())
            }
            Command::Detach { leg } => self.begin_detach(token, leg),
            Command::Join { leg, id, traits } => self.begin_join(token, leg, id, traits),
            Command::Remove { leg } => self.begin_remove(token, leg),
            Command::Scrub { repair, extent } => self.begin_scrub(token, repair, extent),
            Command::ScrubStop => self.stop_scrub(token),
            Command::Configure { settings } => self.configure(token, &settings),
        };
        if let Err(error) = result {
            self.outbox.command_done(token, Err(error));
        }
    }

    fn may_change(&self, leg: LegIndex) -> Result<(), CommandError> {
        if leg.index() >= LEGS_MAX {
            Err(CommandError::NoSuchLeg)
        } else if !self.changes.is_empty() || self.detach.is_some() || self.phase != Phase::Serving
        {
            Err(CommandError::Busy)
        } else {
            Ok(())
        }
    }

    fn begin_join(
        &mut self,
        token: u64,
        leg: LegIndex,
        id: Id,
        traits: LegTraits,
    ) -> Result<(), CommandError> {
        self.may_change(leg)?;
        let old = &self.legs[leg.index()];
        let idle = old.oldest_io == crate::engine::state::slab::NONE;
        if old.is_in() || old.is_member() && old.health != Health::Absent || !idle {
            return Err(CommandError::SlotInUse);
        }
        if old.drain_reads > 0 {
            // Read elsewhere for the leg that was here: they must not find another.
            return Err(CommandError::IoInFlight);
        }
        self.forget_leg(leg.index());
        let epoch = self.volume.join(leg, id, traits.description);
        let mut fresh = Leg::new(leg, &self.settings, true);
        fresh.membership = Membership::Out(OutReason::Joining);
        fresh.fast_zeroes = traits.fast_zeroes;
        fresh.thin = traits.thin;
        self.legs[leg.index()] = fresh;
        self.slots_used = self.slots_used.max(leg.index() + 1);
        self.regions.add_leg(leg, epoch);
        self.begin_change(leg, ChangeKind::Join, Some(token));
        Ok(())
    }

    fn begin_remove(&mut self, token: u64, leg: LegIndex) -> Result<(), CommandError> {
        self.may_change(leg)?;
        let state = &self.legs[leg.index()];
        if !state.is_member() {
            return Err(CommandError::NoSuchLeg);
        }
        if state.is_in() || state.answers() {
            return Err(CommandError::LegInUse);
        }
        if state.oldest_io != crate::engine::state::slab::NONE || state.drain_reads > 0 {
            // A zombie may still land, and must find the leg it was for; so must what is still
            // being read elsewhere for it.
            return Err(CommandError::IoInFlight);
        }
        self.forget_leg(leg.index());
        self.volume.remove(leg);
        self.legs[leg.index()].membership = Membership::Empty;
        self.legs[leg.index()].health = Health::Absent;
        self.regions.drop_leg(leg);
        self.begin_change(leg, ChangeKind::Remove, Some(token));
        Ok(())
    }

    fn begin_detach(&mut self, token: u64, leg: LegIndex) -> Result<(), CommandError> {
        self.may_change(leg)?;
        if !self.legs[leg.index()].is_member() {
            return Err(CommandError::NoSuchLeg);
        }
        let others = self.in_legs().any(|other| {
            other.index != leg && other.answers() && self.regions.stale_count(other.index) == 0
        });
        if !others {
            // A leg that is out and silent, or detached, drains nothing.
            let drains = |other: &Leg| {
                other.index != leg && (other.is_in() || other.is_member() && other.answers())
            };
            let may_follow = self.legs[self.slots()].iter().any(drains);
            return Err(match may_follow {
                true => CommandError::LastCompleteLeg,
                false => CommandError::OnlyLeg,
            });
        }
        self.detach =
            Some(Detach { leg, token, paused: false, flush_stamp: None, changing: false });
        Ok(())
    }

    /// Detaching: drain under load, pause writers for the last few debts, flush, mark out.
    fn pump_detach(&mut self) {
        let Some(mut detach) = self.detach.filter(|detach| !detach.changing) else { return };
        let leg = detach.leg.index();
        if self.others_are_silent(leg) {
            // Writers may go on; what the leg alone has stays on it.
            self.detach = None;
            let result = Err(CommandError::LastCompleteLeg);
            self.outbox.command_done(detach.token, result);
            self.pump_backlog();
            return;
        }
        if self.is_briefly_silent(leg) || self.has_just_failed_a_flush(leg) {
            if detach.paused {
                // It will have to be made whole once more; writers do not wait for that.
                detach.paused = false;
                detach.flush_stamp = None;
                self.detach = Some(detach);
                self.pump_backlog();
            }
            return;
        }
        let state = &self.legs[leg];
        let answers = state.answers();
        if answers && !detach.paused {
            let near = state.debts.len() < 64 && self.regions.stale_count(detach.leg) == 0;
            detach.paused = near;
            self.marks.add_if(near, Mark::DetachPaused);
            self.detach = Some(detach);
            if !near {
                return;
            }
        }
        let writes_left = self.throttle.unacknowledged() > 0;
        // A drain that has only read what it is to write is in neither debts nor writes.
        let drains = state.writes_in_flight + state.drain_reads > 0
            || state.rebuilding > 0
            || self.regions.stale_count(detach.leg) > 0;
        let waits = answers && !planted::is(Planted::DetachEarly);
        if waits && (writes_left || !state.debts.is_empty() || drains) {
            return;
        }
        if answers && detach.flush_stamp.is_none_or(|stamp| stamp < state.done_stamp) {
            detach.flush_stamp = Some(state.done_stamp);
            self.detach = Some(detach);
            self.want_flush(detach.leg, state.done_stamp);
        }
        if detach.flush_stamp.is_some_and(|stamp| self.legs[leg].flushed < stamp) && answers {
            return;
        }
        if !self.changes.is_empty() || !self.give_up_authority(leg) {
            return;
        }
        // Writers stay paused until that is durable: no write may follow its last flush.
        detach.changing = true;
        self.detach = Some(detach);
        let kind = ChangeKind::Out(OutReason::Detached);
        self.begin_change(detach.leg, kind, Some(detach.token));
    }

    /// Returns true if a leg that is being detached failed a flush and is not asked again yet.
    fn has_just_failed_a_flush(&self, leg: usize) -> bool {
        let state = &self.legs[leg];
        let failed = state.answers() && state.flush_failed && self.clock.now() < state.flush_retry;
        failed && !planted::is(Planted::DetachFlushedOnce)
    }

    /// Whether a leg that is being detached is silent and not yet given up: it is still to be
    /// made whole.
    fn is_briefly_silent(&self, leg: usize) -> bool {
        match self.legs[leg].health {
            Health::Frozen { since } | Health::Gone { since, removed: false } => {
                self.clock.now().since(since) < DETACH_PATIENCE
            }
            _ => false,
        }
    }

    /// Whether every other leg that is in has been silent for longer than a detach waits.
    fn others_are_silent(&self, leg: usize) -> bool {
        self.in_legs().filter(|other| other.index.index() != leg).all(|other| match other.health {
            Health::Answering => false,
            Health::Absent => true,
            Health::Frozen { since } | Health::Gone { since, .. } => {
                self.clock.now().since(since) >= DETACH_PATIENCE
            }
        })
    }

    fn begin_close(&mut self, token: u64, drain_until: Instant) -> Result<(), CommandError> {
        if self.is_closing() {
            // A second call shortens the drain.
            if let Phase::Closing(closing) = &mut self.phase {
                closing.drain_until = closing.drain_until.min(drain_until);
            }
            return Err(CommandError::Busy);
        }
        self.phase = Phase::Closing(Closing { token, drain_until, marked: false });
        self.clock.tick_after(0);
        for (token, _) in core::mem::take(&mut self.early_commands) {
            let result = Err(CommandError::Closing);
            self.outbox.command_done(token, result);
        }
        Ok(())
    }

    fn pump_closing(&mut self, closing: Closing) {
        if self.requests.len() > 0 && self.clock.now() < closing.drain_until {
            return;
        }
        let over = self.clock.now() >= closing.drain_until;
        let hopeless = self.clock.now() >= closing.drain_until + CLOSE_METADATA_TIME;
        if !closing.marked {
            let owes = self.in_legs().any(|leg| {
                leg.answers()
                    && (!leg.debts.is_empty()
                        || leg.writes_in_flight > 0
                        || leg.flushing.is_some()
                        || self.regions.healing_count(leg.index) > 0)
            });
            let cleanable = self
                .in_legs()
                .any(|leg| leg.answers() && self.regions.authority_count(leg.index) > 0);
            if (owes || cleanable) && !over && !hopeless {
                return;
            }
            self.regions.disarm_all();
            let current = self
                .in_legs()
                .filter(|leg| leg.answers())
                .all(|leg| self.regions.metadata().is_current(leg.index));
            // A leg that is in by the superblock of one leg alone keeps that from opening.
            let changing = !self.changes.is_empty() && !planted::is(Planted::ClosedWhileChanging);
            if (!current || changing) && !hopeless {
                return;
            }
            // Without a ledger the pages decide: they do if all of them are up to date.
            let clean = self.regions.dirty_count() == 0;
            if clean || current && self.volume.ledger().is_some() {
                self.volume.close(clean);
                self.write_superblock(None);
            }
            self.phase = Phase::Closing(Closing { marked: true, ..closing });
        }
        let object = self.regions.metadata().superblock();
        let newest = self.regions.metadata().newest(object);
        let durable = self
            .in_legs()
            .filter(|leg| leg.answers())
            .all(|leg| self.regions.metadata().durable(object, leg.index) >= newest);
        if durable || hopeless {
            if durable && self.volume.ledger().is_none() {
                self.regions.retire_ledger();
            }
            self.phase = Phase::Closed;
            self.outbox.command_done(closing.token, Ok(()));
            self.outbox.closed();
        }
    }

    /// The volume's size as an extent.
    pub fn extent(&self) -> Extent {
        Extent { start: 0, end: self.regions.volume_sectors() }
    }
}
