//! The engine: one state machine for writes, reads, flushes, freezes, drains and recovery.
//!
//! [`Engine`] is driven by six inputs ([`Engine::submit`], [`Engine::complete`], [`Engine::leg_event`],
//! [`Engine::command`], [`Engine::tick`], and opening) and drained by [`Engine::next_action`] after
//! each. Where to look: `write` who acknowledges when, `regions` dirty regions and who decides them,
//! `intent` what that asks of the others, `moves` when authority moves, `read` which leg answers, `flush` durability, `drain` how
//! debts are paid, `freeze` who counts as frozen, `exposure` when writers wait, `late` single late
//! requests, `window` how much a leg is given at once, `clean` how regions become clean and legs whole,
//! `leg_set` out and in, `life` and `closing` open and close, `halt` when to stop instead, `scrub`
//! comparing, `differences` what it has found, `invariants` what must hold after every step.

mod census;
mod change;
mod invariants;
mod path;
mod report;
mod state;
mod upkeep;

use crate::command::Command;
use crate::format::stamp::Progress;
use crate::format::{BLOCK_BYTES, Ledger, Membership};
use crate::identifiers::{IoId, LEGS_MAX, LegIndex};
use crate::io::{Action, Buffers, LegError, LegEvent, LegTraits, Request};
use crate::marks::Marks;
use crate::recovery::Opening;
use crate::settings::Settings;
use hemi_units::{Instant, MILLISECOND};

use change::configure::InForce;
use change::detach::Detaching;
use change::leaving::{GivingUp, Prerequisites};
use change::leg_set::Changes;
use change::life::Life;
use path::acknowledge::Revisits;
use path::copies::Copies;
use path::exposure::Throttle;
use path::flush::Flushing;
use path::intent::Returns;
use path::landing::Landings;
use path::moves::Moving;
use path::read::Hedging;
use report::Counters;
use state::clock::Clock;
use state::debt::Source;
use state::in_flight::{InFlight, Purpose};
use state::leg::Leg;
use state::legs::Legs;
use state::lost_list::LostList;
use state::operations::{Operations, operations_max};
use state::outbox::Outbox;
use state::ranges::RangeLocks;
use state::regions::Regions;
use state::requests::Requests;
use state::slab::Key;
use state::volume::VolumeRecord;
use state::window::Window;
use upkeep::clean::Settling;
use upkeep::drain::Yielding;
use upkeep::passing::Passing;
use upkeep::scrub::Scrubbing;

pub use state::regions::metadata::ObjectState;
pub use upkeep::differences::{DIFFERENCES_MAX, Difference, Differences};

/// The interval of slow matters: cleaning, limits, lazy metadata, retries.
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
    legs: Legs,
    regions: Regions,
    requests: Requests,
    operations: Operations,
    ios: InFlight,
    locks: RangeLocks,
    flushing: Flushing,
    revisits: Revisits,
    throttle: Throttle,
    outbox: Outbox,
    lost: LostList,
    life: Life,
    changes: Changes,
    prerequisites: Prerequisites,
    giving_up: GivingUp,
    detaching: Detaching,
    scrubbing: Scrubbing,
    differences: Differences,
    moving: Moving,
    returns: Returns,
    settling: Settling,
    passing: Passing,
    hedging: Hedging,
    landings: Landings,
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
                let leg = Leg::new(LegIndex(l as u8), &settings, traits[l].present);
                leg.known(&traits[l], opening.superblock.legs[l].state, BEFORE_OPEN)
            })
            .collect();
        let named = regions.metadata().newest(regions.metadata().lost_list());
        let mut engine = Engine {
            throttle: Throttle::new(requests_max as usize),
            settings: InForce::new(settings),
            buffers,
            clock: Clock::new(now, TICK),
            volume: VolumeRecord::new(opening.superblock, &traits, entropy),
            legs: Legs::new(legs, slots_used.map_or(0, |highest| highest + 1)),
            regions,
            requests: Requests::with_capacity(requests_max),
            operations: Operations::with_capacity(operations_max),
            ios: InFlight::with_capacity(ios_max),
            locks: RangeLocks::with_capacity(operations_max as usize),
            flushing: Flushing::with_capacity(requests_max as usize),
            revisits: Revisits::with_capacity(operations_max as usize),
            outbox: Outbox::with_capacity(4 * requests_max as usize),
            lost: LostList::new(opening.lost, named),
            life: Life::new(),
            changes: Changes::new(),
            prerequisites: Prerequisites::default(),
            giving_up: GivingUp::default(),
            detaching: Detaching::default(),
            scrubbing: Scrubbing::default(),
            differences: Differences::default(),
            moving: Moving::default(),
            returns: Returns::default(),
            settling: Settling::default(),
            passing: Passing::default(),
            hedging: Hedging::default(),
            landings: Landings::with_capacity(operations_max as usize),
            yielding: Yielding::new(now),
            copies: Copies::default(),
            counters: Counters::default(),
            marks: opening.marks,
        };
        engine.begin_open();
        engine.settle();
        engine
    }

    /// Returns how often the rare paths were taken since open, recovery's included.
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

    /// Returns true if [`Engine::submit`] may be called.
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

    /// Returns when [`Engine::tick`] is due; [`Instant::NEVER`] when nothing is.
    pub fn deadline(&self) -> Instant {
        if self.is_halted() {
            return Instant::NEVER;
        }
        let mut deadline =
            if self.is_quiescent() { Instant::NEVER } else { self.clock.next_tick() };
        for leg in self.legs.in_use() {
            if self.ios.any_on(leg.index.index()) {
                deadline = deadline.min(leg.watch.next_look());
            }
        }
        let waits =
            self.throttle_deadline().min(self.timed_deadline()).min(self.landings.deadline());
        deadline.min(waits).min(self.moving.deadline())
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
            // Such as writes that were waiting for a leg which now owes all of the region.
            self.reconsider_operations();
        }
        if !self.throttle.is_empty() {
            self.pump_throttle();
        }
        if !self.landings.is_empty() {
            self.send_landed();
        }
        self.pump_backlog();
        self.pump_scrub();
        self.redecide_armed();
        for leg in self.legs.slots() {
            self.pump_leg(leg);
        }
        self.stop_if_halted();
        self.check_invariants();
    }
}
