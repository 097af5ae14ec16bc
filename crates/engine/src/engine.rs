//! The engine: one state machine for writes, reads, flushes, freezes, drains and recovery.
//!
//! [`Engine`] is driven by six inputs ([`Engine::submit`], [`Engine::complete`],
//! [`Engine::leg_event`], [`Engine::command`], [`Engine::tick`], and opening) and drained by
//! [`Engine::next_action`] after each. Where to look: `write` who acknowledges when, `regions`
//! dirty regions and who decides them, `intent` what that asks of the others, `read` which leg
//! answers, `flush` durability, `drain` how debts are paid, `freeze` who counts as frozen,
//! `exposure` when writers wait, `late` single late requests, `window` how much a leg is given at once,
//! `clean` how regions become clean and legs whole, `leg_set` out and in, `life` and `closing` open and close,
//! `halt` when to stop instead, `scrub` comparing, `invariants` what must hold after every step.

mod census;
mod change;
mod invariants;
mod path;
mod report;
mod state;
mod upkeep;

use alloc::vec::Vec;

use crate::command::Command;
use crate::format::stamp::Progress;
use crate::format::{BLOCK_BYTES, Ledger, Membership, RegionEntry};
use crate::identifiers::{BufferAt, IoId, LEGS_MAX, LegIndex};
use crate::io::{
    Action, Buffers, LegError, LegEvent, LegIo, LegOperation, LegTraits, Notice, Request,
};
use crate::marks::Marks;
use crate::recovery::Opening;
use crate::settings::Settings;
use hemi_units::{Extent, Instant, MILLISECOND};

use change::configure::InForce;
use change::detach::Detaching;
use change::leaving::Prerequisites;
use change::leg_set::Changes;
use change::life::Life;
use path::acknowledge::Revisits;
use path::copies::Copies;
use path::exposure::Throttle;
use path::flush::Flushing;
use path::intent::Returns;
use path::read::Hedging;
use report::Counters;
use state::clock::Clock;
use state::debt::Source;
use state::leg::{Class, Leg};
use state::lost_list::LostList;
use state::operations::Operations;
use state::outbox::Outbox;
use state::ranges::RangeLocks;
use state::records::{Io, Purpose};
use state::regions::Regions;
use state::requests::Requests;
use state::slab::{Key, NONE, Slab};
use state::volume::VolumeRecord;
use state::window::Window;
use upkeep::clean::Settling;
use upkeep::drain::Yielding;
use upkeep::scrub::Scrubbing;

pub use state::regions::metadata::ObjectState;

/// How often slow matters (cleaning, limits, lazy metadata, retries) are looked at.
const TICK: u64 = 100 * MILLISECOND;

/// The same while closing or detaching.
const TICK_WHILE_CHANGING: u64 = 5 * MILLISECOND;

/// The completion stamp of whatever a leg was given before the start: no flush of ours has covered
/// it yet.
const BEFORE_OPEN: u64 = 1;

/// The mirror engine of one volume. See the module's documentation.
pub struct Engine<B: Buffers> {
    settings: InForce,
    buffers: B,
    clock: Clock,
    volume: VolumeRecord,
    legs: Vec<Leg>,
    /// One past the highest slot that holds or held a leg since open.
    slots_used: usize,
    regions: Regions,
    requests: Requests,
    operations: Operations,
    ios: Slab<Io>,
    locks: RangeLocks,
    flushing: Flushing,
    revisits: Revisits,
    throttle: Throttle,
    outbox: Outbox,
    lost: LostList,
    life: Life,
    changes: Changes,
    prerequisites: Prerequisites,
    detaching: Detaching,
    scrubbing: Scrubbing,
    returns: Returns,
    settling: Settling,
    hedging: Hedging,
    yielding: Yielding,
    copies: Copies,
    counters: Counters,
    marks: Marks,
}

impl<B: Buffers> Engine<B> {
    /// Opens a volume as recovery found it. Requests are taken at once and wait until every
    /// leg that is in has durably recorded that the volume is open.
    ///
    /// `entropy` is a random number of the driver's: generation ids are derived from it. Without a
    /// ledger a write is acknowledged once the page is durable that names its region's authority.
    ///
    /// # Panics
    /// If recovery took the table from a ledger and none is given.
    pub fn open(
        mut opening: Opening,
        settings: Settings,
        traits: [LegTraits; LEGS_MAX],
        ledger: Option<Ledger>,
        buffers: B,
        now: Instant,
        entropy: u64,
    ) -> Engine<B> {
        assert!(ledger.is_some() || opening.ledger.is_none(), "the ledger decides, and goes on");
        let requests_max = settings.requests_max;
        let operations_max = operations_max(&settings);
        let present: usize = traits.iter().filter(|t| t.present).count();
        let ios_max = operations_max * 2
            + (present as u32) * (2 * Window::most(&settings) + 32)
            + settings.limits.metadata_writes as u32 * LEGS_MAX as u32;
        let members = (0..LEGS_MAX)
            .filter(|&l| opening.superblock.legs[l].state != Membership::Empty)
            .fold(0u8, |mask, l| mask | 1 << l);
        let slots_used = (0..LEGS_MAX).rev().find(|&l| members >> l & 1 == 1 || traits[l].present);
        let regions = Regions::new(
            &mut opening,
            &settings,
            operations_max,
            members,
            ledger,
            now,
            BEFORE_OPEN,
        );
        let legs = (0..LEGS_MAX)
            .map(|l| {
                let mut leg = Leg::new(LegIndex(l as u8), &settings, traits[l].present);
                leg.fast_zeroes = traits[l].fast_zeroes;
                leg.thin = traits[l].thin;
                leg.membership = opening.superblock.legs[l].state;
                leg.done_stamp = BEFORE_OPEN;
                leg
            })
            .collect();
        let mut engine = Engine {
            throttle: Throttle::new(requests_max as usize),
            settings: InForce::new(settings),
            buffers,
            clock: Clock::new(now, TICK),
            volume: VolumeRecord::new(opening.superblock, &traits, entropy),
            legs,
            slots_used: slots_used.map_or(0, |highest| highest + 1),
            regions,
            requests: Requests::with_capacity(requests_max),
            operations: Operations::with_capacity(operations_max),
            ios: Slab::new(ios_max),
            locks: RangeLocks::with_capacity(operations_max as usize),
            flushing: Flushing::with_capacity(requests_max as usize),
            revisits: Revisits::with_capacity(operations_max as usize),
            outbox: Outbox::with_capacity(4 * requests_max as usize),
            lost: LostList::new(opening.lost),
            life: Life::new(),
            changes: Changes::new(),
            prerequisites: Prerequisites::default(),
            detaching: Detaching::default(),
            scrubbing: Scrubbing::default(),
            returns: Returns::default(),
            settling: Settling::default(),
            hedging: Hedging::default(),
            yielding: Yielding::new(now),
            copies: Copies::default(),
            counters: Counters::default(),
            marks: opening.marks,
        };
        engine.begin_open();
        engine.settle();
        engine
    }

    /// How often the rare paths were taken since open, recovery's included.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The driver's buffers.
    pub fn buffers(&self) -> &B {
        &self.buffers
    }

    /// The driver's buffers, to allocate for requests.
    pub fn buffers_mut(&mut self) -> &mut B {
        &mut self.buffers
    }

    /// Whether [`Engine::submit`] may be called.
    pub fn has_room(&self) -> bool {
        self.requests.has_room()
    }

    /// Takes a client request. Its reply comes as an action, maybe at once.
    ///
    /// # Panics
    /// If [`Engine::has_room`] is false: the driver bounds what it submits.
    pub fn submit(&mut self, now: Instant, request: Request) {
        if self.advance(now) {
            self.accept(request);
            self.settle();
        }
    }

    /// Reports a leg I/O's end. A stale or repeated id is ignored.
    pub fn complete(&mut self, now: Instant, id: IoId, result: Result<(), LegError>) {
        let key = Key::from_u64(id.0);
        if self.advance(now) && self.ios.is_live(key) {
            self.io_done(key.slot, result);
            self.settle();
        }
    }

    /// Reports what happened to a leg apart from its I/O.
    pub fn leg_event(&mut self, now: Instant, leg: LegIndex, event: LegEvent) {
        if !self.advance(now) {
            return;
        }
        match event {
            LegEvent::Gone { removed } => self.leg_gone(leg, removed),
            LegEvent::Back => self.leg_back(leg),
        }
        self.settle();
    }

    /// Reports how far a remote leg has come, for the ledger.
    pub fn leg_progressed(&mut self, leg: LegIndex, progress: &Progress) {
        self.regions.note_progress(leg, progress);
    }

    /// Takes an operator's command; its outcome comes as [`Action::CommandDone`].
    pub fn command(&mut self, now: Instant, token: u64, command: Command) {
        if self.advance(now) {
            self.run_command(token, command);
            self.settle();
        }
    }

    /// Does what is due. Call when [`Engine::deadline`] has passed, after reporting every
    /// completion the driver already has.
    pub fn tick(&mut self, now: Instant) {
        if !self.advance(now) {
            return;
        }
        self.scan_legs();
        self.release_timed();
        if self.clock.now() >= self.clock.next_tick() {
            self.background();
            let changing = self.life.is_closing() || self.detaching.is_under_way();
            let wait = if changing { TICK_WHILE_CHANGING } else { TICK };
            self.clock.tick_after(wait);
        }
        self.settle();
    }

    /// When [`Engine::tick`] is due; [`Instant::NEVER`] when nothing is.
    pub fn deadline(&self) -> Instant {
        if self.is_halted() {
            return Instant::NEVER;
        }
        let mut deadline =
            if self.is_quiescent() { Instant::NEVER } else { self.clock.next_tick() };
        for leg in &self.legs[self.slots()] {
            if leg.oldest_io != NONE {
                deadline = deadline.min(leg.next_scan);
            }
        }
        deadline.min(self.throttle_deadline()).min(self.timed_deadline())
    }

    /// The next thing for the driver to do. Drain until `None` after each input.
    pub fn next_action(&mut self) -> Option<Action> {
        self.outbox.next()
    }

    /// The bytes of a metadata write, while its action is being taken.
    ///
    /// # Panics
    /// If `id` is not a metadata write in flight.
    pub fn metadata_bytes(&mut self, id: IoId) -> &[u8; BLOCK_BYTES] {
        let io = self.ios.get(Key::from_u64(id.0)).expect("the driver asks while in flight");
        match io.purpose {
            Purpose::Metadata(write) => self.sealed_object(&write),
            _ => panic!("not a metadata write"),
        }
    }

    /// Moves the clock. Returns false if the engine has halted and takes no input.
    fn advance(&mut self, now: Instant) -> bool {
        self.clock.advance(now);
        !self.is_halted()
    }

    /// After every input: move on whatever the input made possible. The legs come last: what
    /// the others ask for goes out with this input, not with the next.
    fn settle(&mut self) {
        self.pump_phase();
        self.retry_moves();
        if self.revisits.take_all() {
            // Writes that a new authority has already, and only the old one was to decide; or
            // that were waiting for a leg which now owes all of the region.
            self.reconsider_operations();
        }
        if !self.throttle.is_empty() {
            self.pump_throttle();
        }
        self.pump_backlog();
        self.pump_scrub();
        self.redecide_armed();
        for leg in self.slots() {
            self.pump_leg(leg);
        }
        self.stop_if_halted();
        self.check_invariants();
    }

    /// Starts what a leg has room for: metadata, then a flush, then drains.
    fn pump_leg(&mut self, leg: usize) {
        let state = &self.legs[leg];
        if !state.answers() {
            return;
        }
        if self.regions.metadata().has_requests(state.index) {
            self.pump_metadata(leg);
        }
        let state = &self.legs[leg];
        if state.flush_target > state.flushed && state.flushing.is_none() {
            self.start_flush(leg);
        }
        let state = &self.legs[leg];
        if !state.debts.is_empty() || self.regions.stale_count(state.index) > 0 {
            self.pump_drain(leg);
        }
    }

    fn pump_metadata(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        while self.ios.free_slots() > 0 {
            let withheld = (!self.may_be_told(index)).then(|| self.regions.metadata().superblock());
            let write = self.regions.next_metadata_write(index, withheld, &mut self.marks);
            let Some(write) = write else { return };
            self.encode_object(index, &write);
            self.legs[leg].counters.metadata_writes += 1;
            let io = Io::new(leg as u8, Purpose::Metadata(write), write.extent, Source::Leg);
            self.start_io(io, LegOperation::WriteMetadata);
        }
    }

    /// Hands an I/O to the driver. The caller has seen to a free slot.
    fn start_io(&mut self, mut io: Io, operation: LegOperation) -> u32 {
        io.submitted = self.clock.now();
        let is_data = !matches!(io.purpose, Purpose::Metadata(_));
        let leg = usize::from(io.leg);
        let class = class_of(operation);
        let key = self.ios.insert(io).expect("the caller checked free_slots");
        let newest = self.legs[leg].newest_io;
        self.ios[key.slot].older = newest;
        if newest == NONE {
            self.legs[leg].oldest_io = key.slot;
        } else {
            self.ios[newest].newer = key.slot;
        }
        let wait = self.first_look(leg, class, io.extent.sectors());
        let state = &mut self.legs[leg];
        state.newest_io = key.slot;
        state.next_scan = state.next_scan.min(self.clock.now() + wait);
        match operation {
            LegOperation::Read => {
                state.reads_in_flight += 1;
                state.counters.read_bytes += io.extent.bytes();
            }
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => {
                state.writes_in_flight += 1;
                state.write_payload += io.payload_sectors();
                state.counters.written_bytes += io.extent.bytes();
            }
            _ => {}
        }
        let offset = if is_data {
            self.regions.metadata().layout().data_offset() / hemi_units::SECTOR_BYTES
        } else {
            0
        };
        let extent = if operation == LegOperation::Flush {
            Extent::default()
        } else {
            Extent { start: io.extent.start + offset, end: io.extent.end + offset }
        };
        self.outbox.start(LegIo {
            leg: LegIndex(io.leg),
            id: IoId(key.to_u64()),
            operation,
            extent,
            buffer: io.buffer(),
        });
        key.slot
    }

    /// Takes an ended I/O off its leg and gives it to whoever waits for it.
    fn io_done(&mut self, slot: u32, result: Result<(), LegError>) {
        let io = self.ios[slot];
        let leg = usize::from(io.leg);
        let class = match io.purpose {
            Purpose::Read { .. }
            | Purpose::Hedge { .. }
            | Purpose::DrainRead { .. }
            | Purpose::Sieve { .. }
            | Purpose::Compare { .. }
            | Purpose::Scrub
            | Purpose::LateRead { .. }
            | Purpose::Abandoned => Class::Read,
            Purpose::Write { .. } => Class::Write,
            Purpose::Flush | Purpose::Metadata(_) => Class::Flush,
        };
        self.unlink_io(slot);
        let state = &mut self.legs[leg];
        match class {
            Class::Read => state.reads_in_flight -= 1,
            Class::Write => {
                state.writes_in_flight -= 1;
                state.write_payload -= io.payload_sectors();
            }
            Class::Flush => {}
        }
        let latency = self.clock.now().since(io.submitted);
        let late = latency >= self.hand_over_after(leg, class, io.extent.sectors());
        let state = &mut self.legs[leg];
        match result {
            Ok(()) => {
                state.note_heard(class, io.submitted, self.clock.now());
                if late {
                    state.note_lost_sight(self.clock.now());
                }
                state.record(class, io.extent.sectors(), latency, &self.settings);
            }
            Err(error) => self.note_leg_error(leg, error, io.extent.start),
        }
        match io.purpose {
            Purpose::Read { operation } => self.read_done(&io, operation, result),
            Purpose::Hedge { operation } => self.hedge_done(&io, operation, result),
            Purpose::Write { operation, since, drain, repair, gaps } => {
                self.legs[leg].unhold(slot);
                self.legs[leg].sieves -= u32::from(gaps > 0);
                let paid = drain.then(|| io.extent.sectors() - u64::from(gaps));
                self.write_done(&io, operation, since, paid, repair, result);
            }
            Purpose::DrainRead { .. } => self.drain_read_done(slot, &io, result),
            Purpose::Sieve { .. } => self.sieve_read_done(slot, &io, result),
            Purpose::Compare { .. } => self.compare_done(slot, &io, result),
            Purpose::LateRead { .. } => self.late_read_done(&io, result),
            Purpose::Abandoned => io.source.release(&mut self.buffers),
            Purpose::Flush => self.flush_done(slot, &io, result),
            Purpose::Metadata(write) => {
                self.regions.complete_metadata(LegIndex(io.leg), &write, result.is_ok());
                self.metadata_done(leg, &write, result);
            }
            Purpose::Scrub => self.scrub_read_done(&io, result),
        }
        if self.ios.is_used(slot) {
            self.ios.remove(slot);
        }
        self.consider_thaw(leg);
    }

    fn unlink_io(&mut self, slot: u32) {
        let io = self.ios[slot];
        let leg = &mut self.legs[usize::from(io.leg)];
        if io.older == NONE {
            leg.oldest_io = io.newer;
        }
        if io.newer == NONE {
            leg.newest_io = io.older;
        }
        if io.older != NONE {
            self.ios[io.older].newer = io.newer;
        }
        if io.newer != NONE {
            self.ios[io.newer].older = io.older;
        }
    }

    fn note_leg_error(&mut self, leg: usize, error: LegError, sector: u64) {
        let state = &mut self.legs[leg];
        state.counters.errors += 1;
        let notice = Notice::LegError { leg: state.index, error, sector };
        self.outbox.notice(notice);
    }

    /// The legs that hold a copy, in slot order.
    fn in_legs(&self) -> impl Iterator<Item = &Leg> {
        self.legs[self.slots()].iter().filter(|leg| leg.is_in())
    }

    /// The slots that hold or held a leg since open: the others have nothing, and are not
    /// looked at on the data path.
    fn slots(&self) -> core::ops::Range<usize> {
        0..self.slots_used
    }

    fn entry(&self, region: u32) -> RegionEntry {
        self.regions.entry(region)
    }

    fn at(buffer: BufferAt) -> Source {
        Source::Buffer(buffer)
    }
}

/// Operations that can be under way at once.
fn operations_max(settings: &Settings) -> u32 {
    settings.requests_max + settings.limits.operations_more
}

fn class_of(operation: LegOperation) -> Class {
    match operation {
        LegOperation::Read => Class::Read,
        LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => Class::Write,
        LegOperation::Flush | LegOperation::WriteMetadata => Class::Flush,
    }
}
