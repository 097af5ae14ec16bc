//! The world of one run: the engine, its disks, its clients' requests, and virtual time.
//!
//! This file moves the world from one event to the next. Requests are sent in [`crate::clients`],
//! faults come from [`crate::faults`], and operators act in [`crate::operators`].

use hemi_engine::command::CommandError;
use hemi_engine::engine::Engine;
use hemi_engine::format::Layout;
use hemi_engine::identifiers::{BufferAt, BufferId, LEGS_MAX, LegIndex};
use hemi_engine::io::{
    Action, LegError, LegIo, LegOperation, LegTraits, Notice, Operation, OutReason, Reply, Request,
};
use hemi_engine::marks::Marks;
use hemi_engine::recovery::{self, LegImage, Refusal};
use hemi_engine::settings::Settings;
use hemi_engine::status::Status;
use hemi_units::{Extent, Instant, SECOND, SECTOR_BYTES};
use hemi_world::Violation;
use hemi_world::buffers::{POISON, Pool};
use hemi_world::create;
use hemi_world::disk::Disk;
use hemi_world::register::{Asked, Register};

use crate::checker::copies::Copies;
use crate::checker::exposure::Exposure;
use crate::checker::losses::Losses;
use crate::checker::stall::{Probation, Stall};
use crate::clients::Clients;
use crate::events::{Event, Events};
use crate::faults::{Ambush, KINDS, Kind};
use crate::guided::Pairs;
use crate::ledgers::Kept;
use crate::lies::{self, Lie};
use crate::operators::{Change, Rot};
use crate::plan::{Plan, REQUEST_SECTORS_MAX, Shape, Weather};
use crate::trace::{Topic, Trace};
use hemi_random::Rng;

/// Steps of an input for each move that it may try: the try, and 16 records looked at twice for two reasons.
const STEPS_PER_MOVE: u64 = 1 + 16 * 2 * 2;
/// The engine's thorough self-check runs once in this many steps.
const THOROUGH_EVERY: u64 = 1000;
/// The longest that a detach waits for a silent leg, in nanoseconds.
const SILENT_FOR_LONG: u64 = 2 * SECOND;
/// The smallest piece in which a write is done, unless a quarter of the exposure bound is less.
const PIECE_MIN: u64 = 16 << 10;
/// The client number of reads that the simulator itself sends to verify.
pub const VERIFIER: u8 = u8::MAX;

/// The present behaviour of a leg.
#[derive(Clone, Copy, Default)]
pub(crate) struct Behaviour {
    /// The pace, as in [`crate::plan::Pace`].
    pub(crate) latency: u64,
    pub(crate) jitter: u64,
    pub(crate) serial: u64,
    pub(crate) frozen_until: Instant,
    /// I/O of each [`Kind`] does not end before this time.
    pub(crate) hung_until: [Instant; KINDS],
    /// The number of next I/Os of each kind that never end.
    pub(crate) loses: [u32; KINDS],
    /// Its next metadata write of a kind reports success and is not there.
    pub(crate) lie: Option<Lie>,
    /// Writes of the metadata block at this address fail.
    pub(crate) bad_block: Option<u64>,
    /// The time at which it is done with the I/Os that it serves one by one.
    pub(crate) busy_until: Instant,
    /// One I/O in this many fails, or none if zero.
    pub(crate) read_errors: u32,
    pub(crate) write_errors: u32,
    pub(crate) flush_errors: u32,
    /// Its session has dropped, and a return is planned. `times_gone` counts the drops.
    pub(crate) is_gone: bool,
    pub(crate) times_gone: u32,
    /// Its slot has no leg of the volume.
    pub(crate) is_empty: bool,
    /// Its disk has never had a whole superblock.
    pub(crate) is_new: bool,
    /// A detach or a join may or may not be recorded.
    pub(crate) is_changing: bool,
    /// The time at which it was last not at its best.
    pub(crate) disturbed: Instant,
    /// Its probation since it last froze.
    pub(crate) probation: Probation,
    /// The time at which it was last marked out.
    pub(crate) went_out: Instant,
}

impl Behaviour {
    /// Lets I/O of a kind hang until a time, unless it hangs for longer already.
    pub(crate) fn hang(&mut self, kind: Kind, until: Instant) {
        let hung = &mut self.hung_until[kind as usize];
        *hung = until.max(*hung);
        self.disturbed = self.disturbed.max(*hung);
    }

    /// Returns the longest that one I/O may take with nothing else in flight, in nanoseconds.
    pub(crate) fn longest(&self) -> u64 {
        self.latency + self.jitter + self.serial
    }
}

/// An I/O in flight on a leg.
#[derive(Clone)]
pub(crate) struct InFlight {
    pub(crate) io: LegIo,
    pub(crate) uses: u32,
    pub(crate) live: bool,
    /// It does not end by itself: its session is gone.
    pub(crate) zombie: bool,
    /// It would have ended, but waits for the end of its leg's hang.
    pub(crate) stuck: bool,
    pub(crate) since: Instant,
    kind: Kind,
    flush_mark: u32,
    pub(crate) block: Box<[u8; 4096]>,
}

/// The legs that have lost their caches.
#[derive(Clone, Copy)]
pub(crate) struct CachesLost {
    /// The last loss came before this request.
    pub(crate) before: u32,
    /// The legs, as a mask.
    pub(crate) legs: u8,
}

#[derive(Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) live: bool,
    pub(crate) asked: Asked,
    pub(crate) client: u8,
    pub(crate) started: Instant,
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Client requests answered.
    pub operations: u64,
    /// Reads by the simulator, to verify.
    pub verifying: u64,
    /// Faults that took effect.
    pub faults: u64,
    /// Kills and power cuts.
    pub crashes: u64,
    /// Starts that were rightly refused.
    pub refusals: u64,
    /// Metadata writes lost or misdirected.
    pub lies: u64,
    /// Starts after such writes that still found what was recorded …
    pub lies_survived: u64,
    /// … that were refused, naming the damage …
    pub lies_refused: u64,
    /// … and that could not notice, because the only leg that was given a record does not have it.
    pub lies_unnoticed: u64,
    /// Legs put back to an older image.
    pub put_back: u64,
    /// Hangs that ended because everything that waited rightly waited for them.
    pub hangs_waited_for: u64,
    /// Hangs beside which the other legs converged.
    pub hangs_beside: u64,
    /// Judgements of copies that had something to judge: data flushed on several legs …
    pub judged_flushed: u64,
    /// … or owed.
    pub judged_owed: u64,
    /// Client requests that failed.
    pub failed: u64,
    /// Flushes that legs were sent …
    pub leg_flushes: u64,
    /// … and clients' flushes and requests with FUA, counted once for each leg.
    pub flushes_by_leg: u64,
    /// Events.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub time: u64,
}

/// The world of a run. Created once per thread and reset for each run, so that memory is kept.
pub struct World {
    pub(crate) shape: Shape,
    pub(crate) weather: Weather,
    pub(crate) now: Instant,
    pub(crate) engine: Option<Engine<Pool>>,
    pool: Pool,
    pub(crate) settings: Settings,
    pub(crate) disks: Vec<Disk>,
    pub(crate) legs: Vec<Behaviour>,
    pub(crate) kept: Kept,
    /// Steps that the engine has taken for moves of authority.
    move_steps: u64,
    /// The legs that the volume was opened with, as a mask.
    pub(crate) opened: u8,
    pub(crate) events: Events,
    pub(crate) ios: Vec<InFlight>,
    free_ios: Vec<u32>,
    pub(crate) random: Rng,
    /// Draws where misdirected writes land.
    lying: Rng,
    pub(crate) register: Register,
    pub(crate) stall: Stall,
    pub(crate) exposure: Exposure,
    pub(crate) copies: Copies,
    pub(crate) losses: Losses,
    pub(crate) requests: Vec<Pending>,
    free_requests: Vec<u32>,
    pub(crate) under_way: usize,
    pub(crate) sectors_under_way: u64,
    next_id: u32,
    pub(crate) clients: Clients,
    pub(crate) counts: Counts,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    pub(crate) closed: bool,
    /// The volume is being closed with requests in flight, which may then fail.
    pub(crate) is_stopping: bool,
    /// The engine has halted for lack of this leg, and has to be started again.
    pub(crate) halted: Option<u8>,
    /// The token and the outcome of the last command that ended.
    pub(crate) command_done: Option<(u64, Result<(), CommandError>)>,
    pub(crate) next_command: u64,
    /// The change of the legs in progress.
    pub(crate) changing: Option<Change>,
    /// Legs have lost their caches, and no later flush has succeeded.
    pub(crate) cache_lost: Option<CachesLost>,
    /// Unflushed data may be gone, and nobody knows before the legs are back.
    pub(crate) unsure: bool,
    /// The sectors of which that is so.
    pub(crate) at_risk: Vec<bool>,
    pub(crate) new_legs: u16,
    pub(crate) rots: Vec<Rot>,
    /// The last image taken of a leg, and the one that it is put back to while hemi is down.
    pub(crate) image: Option<(u8, Disk)>,
    pub(crate) older: Option<(u8, Disk)>,
    pub(crate) ambush: Option<Ambush>,
    pub(crate) marks: Marks,
    /// The pairs of rare paths, if they are recorded.
    pub(crate) pairs: Option<Box<Pairs>>,
    pub(crate) status: Status,
    /// The engine checks itself thoroughly at intervals.
    pub asserts: bool,
}

impl Default for World {
    fn default() -> World {
        World {
            shape: Plan::of_seed(0).shape,
            weather: Weather::default(),
            now: Instant(0),
            engine: None,
            pool: Pool::default(),
            settings: Settings::default(),
            disks: Vec::new(),
            legs: Vec::new(),
            move_steps: 0,
            opened: 0,
            events: Events::default(),
            ios: Vec::new(),
            free_ios: Vec::new(),
            random: Rng::new(0, 0),
            lying: Rng::new(0, 0),
            register: Register::default(),
            stall: Stall::default(),
            exposure: Exposure::default(),
            copies: Copies::default(),
            losses: Losses::default(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            under_way: 0,
            sectors_under_way: 0,
            next_id: 0,
            clients: Clients::default(),
            counts: Counts::default(),
            trace: Trace::default(),
            violation: None,
            closed: false,
            is_stopping: false,
            halted: None,
            command_done: None,
            next_command: 0,
            changing: None,
            cache_lost: None,
            kept: Kept::default(),
            unsure: false,
            at_risk: Vec::new(),
            new_legs: 0,
            rots: Vec::new(),
            image: None,
            older: None,
            ambush: None,
            marks: Marks::default(),
            pairs: None,
            status: Status::default(),
            asserts: true,
        }
    }
}

impl World {
    /// Resets to the world that a plan begins with. The volume is not open yet.
    pub fn reset(&mut self, plan: &Plan, keeps_lines: bool) {
        self.drop_engine();
        self.shape = plan.shape.clone();
        self.weather = plan.weather;
        self.now = Instant(1);
        self.settings = plan.settings;
        self.disks.resize_with(plan.shape.legs, Disk::default);
        let (layout, blocks) = (plan.shape.layout(), plan.shape.block_sectors);
        for (leg, disk) in self.disks.iter_mut().enumerate() {
            create::format(disk, layout, plan.shape.legs, leg, blocks);
        }
        self.legs.clear();
        self.legs.resize(plan.shape.legs, Behaviour::default());
        self.calm_legs();
        self.events.clear();
        self.forget_ios();
        self.random = Rng::new(plan.seed, 2);
        self.lying = Rng::new(plan.seed, 4);
        self.register.reset((plan.shape.volume_bytes / SECTOR_BYTES) as usize);
        self.stall.reset();
        self.exposure.reset();
        self.copies.reset(plan);
        self.losses.reset();
        self.forget_requests();
        self.next_id = 0;
        self.clients.reset(plan);
        self.counts = Counts::default();
        self.trace.reset(keeps_lines);
        self.violation = None;
        self.closed = false;
        self.is_stopping = false;
        self.halted = None;
        self.command_done = None;
        self.next_command = 1 << 40;
        self.changing = None;
        self.cache_lost = None;
        self.kept.reset(plan);
        self.unsure = false;
        self.new_legs = 100;
        self.rots.clear();
        (self.image, self.older) = (None, None);
        self.ambush = None;
        self.marks = Marks::default();
    }

    /// Returns the number of sectors of the volume.
    pub(crate) fn sectors(&self) -> u64 {
        self.shape.volume_bytes / SECTOR_BYTES
    }

    pub(crate) fn engine(&mut self) -> &mut Engine<Pool> {
        self.engine.as_mut().expect("the volume is open whenever something is asked of it")
    }

    /// Notes a broken promise, if it is the first.
    pub(crate) fn violate(&mut self, violation: Violation) {
        let now = self.now;
        self.trace.line(now, Topic::Verdict, None, || {
            format!("{} broken: {}", violation.promise, violation.text)
        });
        self.violation.get_or_insert(violation);
    }

    /// Notes a broken promise that concerns no particular sector: see [`World::violate`].
    pub(crate) fn broken(&mut self, promise: &'static str, text: String) {
        self.violate(Violation { promise, text, sector: None });
    }

    pub(crate) fn tell(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        self.trace.line(now, Topic::Fault, None, text);
    }

    /// Returns the traits of a leg that the engine is given.
    pub(crate) fn traits(&self, leg: u8) -> LegTraits {
        let fast_zeroes = self.shape.fast_zeroes >> leg & 1 == 1;
        let thin = leg.is_multiple_of(2);
        LegTraits { present: true, fast_zeroes, thin, ..LegTraits::default() }
    }

    /// Restores every leg to its best.
    pub(crate) fn calm_legs(&mut self) {
        for (leg, pace) in self.legs.iter_mut().zip(&self.shape.paces) {
            *leg = Behaviour {
                latency: pace.latency,
                jitter: pace.jitter,
                serial: pace.serial,
                is_empty: leg.is_empty,
                is_changing: leg.is_changing,
                is_new: leg.is_new,
                times_gone: leg.times_gone + 1,
                ..Behaviour::default()
            };
        }
    }

    /// Returns recovery's assessment of some of the legs.
    pub(crate) fn assess(&self, legs: &[u8]) -> Result<recovery::Opening, Refusal> {
        let images: Vec<LegImage> = legs
            .iter()
            .map(|&leg| LegImage { bytes: &self.disks[usize::from(leg)].metadata })
            .collect();
        self.assess_images(&images)
    }

    /// Returns recovery's assessment of images.
    pub(crate) fn assess_images(&self, images: &[LegImage]) -> Result<recovery::Opening, Refusal> {
        self.kept.machine.with_outlived(|outlived| {
            recovery::assess_outlived_short_pages(images, outlived, self.shape.page_regions)
        })
    }

    /// Opens the volume with some of its legs.
    pub(crate) fn open(&mut self, legs: &[u8]) -> Result<(), Refusal> {
        let opening = self.assess(legs)?;
        let ledger = self.kept.ledger_for(&opening);
        let mut traits = [LegTraits::default(); LEGS_MAX];
        self.opened = 0;
        self.move_steps = 0;
        for &leg in legs {
            traits[usize::from(leg)] = self.traits(leg);
            self.opened |= 1 << leg;
        }
        let mut pool = std::mem::take(&mut self.pool);
        pool.reset(self.shape.memory_sectors);
        let entropy = self.random.draw();
        self.closed = false;
        self.engine =
            Some(Engine::open(opening, self.settings, traits, ledger, pool, self.now, entropy));
        self.begin_period();
        self.losses.reset();
        self.take_actions();
        Ok(())
    }

    /// Ends hemi: its buffers are free again.
    pub(crate) fn drop_engine(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            self.marks.merge(engine.marks());
            self.pool = std::mem::take(engine.buffers_mut());
        }
    }

    /// Performs the engine's actions until it has none.
    pub(crate) fn take_actions(&mut self) {
        self.check_moves();
        while let Some(action) = self.engine().next_action() {
            if !self.kept.takes_action() {
                return;
            }
            match action {
                Action::Leg(io) => self.start_io(io),
                Action::Reply(reply) => self.take_reply(reply),
                Action::CommandDone { token, result } => self.command_done(token, result),
                Action::Notice(notice) => self.take_notice(notice),
                Action::Closed => self.closed = true,
            }
        }
    }

    /// Checks that the last input tried few moves of authority, and looked at few records for more.
    fn check_moves(&mut self) {
        let steps = self.engine().move_steps();
        let taken = steps.saturating_sub(std::mem::replace(&mut self.move_steps, steps));
        let most = self.settings.limits.moves_per_input as u64 * STEPS_PER_MOVE;
        if taken > most {
            self.broken("engine", format!("{taken} steps for moves of authority with one input"));
        }
    }

    fn command_done(&mut self, token: u64, result: Result<(), CommandError>) {
        self.trace.mix(token ^ u64::from(result.is_ok()));
        self.tell(|| format!("command {token} ended: {result:?}"));
        self.command_done = Some((token, result));
        self.follow_change(token, result);
    }

    fn take_notice(&mut self, notice: Notice) {
        let now = self.now;
        self.trace.line(now, Topic::Notice, None, || format!("{notice:?}"));
        self.take_halt(notice);
        if let Notice::Out { leg, .. } = notice {
            self.exposure.leg_is_out = true;
            self.legs[leg.index()].went_out = now;
        }
        if matches!(notice, Notice::Out { .. } | Notice::In { .. }) {
            self.begin_period();
        }
        if let Notice::In { .. } = notice {
            self.stall.came_in = now;
        }
        if let Notice::Lost { extent } = notice {
            self.register.lost(extent);
        }
        if let Notice::Frozen { leg, .. } = notice {
            self.hung_leg_is_noticed(leg.0);
            if let Some(change) = self.changing.as_mut().filter(|change| change.leg == leg.0) {
                change.was_silent = true;
            }
        }
        if let (Notice::Out { leg, reason }, Some(change)) = (notice, &mut self.changing) {
            change.was_in &= leg.0 != change.leg || reason == OutReason::Detached;
        }
        if let Notice::Thawed { leg, duration } = notice {
            self.legs[leg.index()].probation.begin(now, duration);
            self.stall.close_if_of(leg.0);
        }
        if let (Notice::Thawed { leg, duration }, Some(change)) = (notice, &mut self.changing) {
            // A detach gives up a leg that is silent for long, and that may have come too late.
            change.was_in &= leg.0 != change.leg || duration < SILENT_FOR_LONG;
        }
        if let Notice::Mismatch { leg, extent } = notice {
            self.broken("P6", format!("scrub found a difference: leg {}, {extent:?}", leg.0));
        }
    }

    fn start_io(&mut self, io: LegIo) {
        let leg = io.leg.index();
        let behaviour = &mut self.legs[leg];
        let mut due = self.now + behaviour.latency;
        if behaviour.jitter > 0 {
            due = due + self.random.below(behaviour.jitter);
        }
        if behaviour.serial > 0 {
            due = due.max(behaviour.busy_until) + behaviour.serial;
            behaviour.busy_until = due;
        }
        self.counts.leg_flushes += u64::from(io.operation == LegOperation::Flush);
        let flush_mark = self.disks[leg].mark();
        let kind =
            Kind::of(&io, self.engine.as_ref().expect("it has just asked for this").buffers());
        let slot = self.free_ios.pop().unwrap_or_else(|| {
            self.ios.push(InFlight {
                io,
                uses: 0,
                live: false,
                zombie: false,
                stuck: false,
                since: self.now,
                kind: Kind::Writes,
                flush_mark: 0,
                block: Box::new([0; 4096]),
            });
            self.ios.len() as u32 - 1
        });
        let in_flight = &mut self.ios[slot as usize];
        if io.operation == LegOperation::WriteMetadata {
            let engine = self.engine.as_mut().expect("it has just asked for this");
            in_flight.block.copy_from_slice(engine.metadata_bytes(io.id));
        }
        in_flight.io = io;
        in_flight.uses += 1;
        in_flight.live = true;
        in_flight.zombie = false;
        in_flight.stuck = false;
        in_flight.since = self.now;
        in_flight.kind = kind;
        in_flight.flush_mark = flush_mark;
        let uses = in_flight.uses;
        self.events.at(due, Event::IoEnds(slot, uses));
        self.check_alignment(&io);
        let now = self.now;
        let extent = self.volume_extent(&io);
        self.trace.line(now, Topic::Leg, extent, || {
            format!("leg {leg} is sent {:?} {:?}", io.operation, io.extent)
        });
    }

    fn check_alignment(&mut self, io: &LegIo) {
        let block = self.shape.block_sectors;
        if !io.extent.start.is_multiple_of(block) || !io.extent.end.is_multiple_of(block) {
            self.broken("engine", format!("I/O cuts a logical block of {block} sectors: {io:?}"));
        }
    }

    /// Returns the extent of the volume of a leg's data I/O, or `None` for metadata.
    pub(crate) fn volume_extent(&self, io: &LegIo) -> Option<Extent> {
        let offset = self.disks[0].metadata.len() as u64 / SECTOR_BYTES;
        let is_data = io.extent.start >= offset;
        is_data.then(|| Extent { start: io.extent.start - offset, end: io.extent.end - offset })
    }

    /// Performs the next event, or the engine's timer. Returns false if there is nothing by
    /// `until`, to which time has then advanced.
    pub(crate) fn step(&mut self, until: Instant) -> bool {
        if self.end_halt() {
            return true;
        }
        let event = self.events.next_time();
        let deadline = self.engine.as_ref().map_or(Instant::NEVER, Engine::deadline);
        let next = event.min(deadline);
        if next > until || next == Instant::NEVER {
            if until != Instant::NEVER {
                self.now = self.now.max(until);
            }
            return false;
        }
        self.now = self.now.max(next);
        self.counts.steps += 1;
        if event <= deadline {
            let event = self.events.take().expect("it has a time");
            self.happen(event);
        } else {
            let now = self.now;
            self.engine().tick(now);
            self.take_actions();
        }
        self.check_step();
        true
    }

    /// Returns the number of events that could come next: those planned, and the engine's timer.
    pub(crate) fn choices(&self) -> usize {
        let deadline = self.engine.as_ref().map_or(Instant::NEVER, Engine::deadline);
        self.events.count(deadline).0 + usize::from(deadline != Instant::NEVER)
    }

    /// Does what [`World::step`] does, but passes over the first `passes` events. The next one
    /// comes when it was due, and those passed over come later.
    pub(crate) fn step_out_of_turn(&mut self, passes: usize) -> bool {
        if self.end_halt() {
            return true;
        }
        let deadline = self.engine.as_ref().map_or(Instant::NEVER, Engine::deadline);
        let (_, before) = self.events.count(deadline);
        self.counts.steps += 1;
        if passes == before && deadline != Instant::NEVER {
            self.now = self.now.max(deadline);
            let now = self.now;
            self.engine().tick(now);
            self.take_actions();
        } else {
            let passed = if passes > before { passes - 1 } else { passes };
            let Some((time, event)) = self.events.take_after(passed) else { return false };
            self.now = self.now.max(time);
            self.happen(event);
        }
        self.check_step();
        true
    }

    /// Checks the invariants that hold after every step, unless hemi has been killed in the middle
    /// of it: nobody sees the state of an engine that is gone.
    fn check_step(&mut self) {
        if self.kept.is_killed() {
            return;
        }
        if let Some(engine) = &self.engine {
            if let Some(pairs) = &mut self.pairs {
                pairs.note(engine.marks(), self.counts.steps);
            }
            if self.asserts && self.counts.steps.is_multiple_of(THOROUGH_EVERY) {
                engine.check_thoroughly();
            }
            self.check_exposure();
            self.watch_stall_window();
            let in_use = self.engine().buffers().used_sectors();
            // The budget, the buffers of clients beyond it, and those that a silent leg holds.
            let most = self.shape.memory_sectors * 2 + 32 * REQUEST_SECTORS_MAX;
            if in_use > most {
                self.broken("engine", format!("{in_use} sectors of buffers in use"));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::IoEnds(slot, uses) => self.io_ends(slot, uses),
            Event::Client(client) => {
                self.clients.wakes(client);
                self.let_client_go_on(client);
            }
            Event::ZombiesEnd(leg, times) => self.zombies_end(leg, times),
            Event::Back(leg, times) => self.leg_is_back(leg, times),
            Event::Wait => {}
        }
    }

    fn io_ends(&mut self, slot: u32, uses: u32) {
        let in_flight = &mut self.ios[slot as usize];
        if in_flight.uses != uses || !in_flight.live || in_flight.zombie {
            return;
        }
        let kind = in_flight.kind as usize;
        let behaviour = &mut self.legs[in_flight.io.leg.index()];
        let frozen_until = behaviour.frozen_until.max(behaviour.hung_until[kind]);
        if frozen_until == Instant::NEVER || behaviour.loses[kind] > 0 {
            behaviour.loses[kind] = behaviour.loses[kind].saturating_sub(1);
            in_flight.stuck = true;
            return;
        }
        if frozen_until > self.now {
            let due = frozen_until + self.random.below(1000);
            self.events.at(due, Event::IoEnds(slot, uses));
            return;
        }
        let fails = self.io_fails(slot);
        self.end_io(slot, if fails { Err(LegError::Media) } else { Ok(()) });
    }

    fn io_fails(&mut self, slot: u32) -> bool {
        let io = &self.ios[slot as usize].io;
        let leg = io.leg.index();
        let behaviour = &self.legs[leg];
        let is_bad = behaviour.bad_block == Some(io.extent.start * SECTOR_BYTES);
        let rate = match io.operation {
            LegOperation::WriteMetadata if is_bad => 1,
            LegOperation::Read if self.disks[leg].is_unreadable(io.extent) => 1,
            LegOperation::Read => behaviour.read_errors,
            LegOperation::Flush => behaviour.flush_errors,
            _ => behaviour.write_errors,
        };
        rate > 0 && self.random.one_in(u64::from(rate))
    }

    /// Ends an I/O and tells the engine.
    pub(crate) fn end_io(&mut self, slot: u32, result: Result<(), LegError>) {
        self.land(slot, result.is_ok());
        let io = self.ios[slot as usize].io;
        self.ios[slot as usize].live = false;
        self.free_ios.push(slot);
        self.trace.mix(self.now.0);
        self.trace.mix(io.id.0 << 8 | u64::from(io.leg.0) << 1 | u64::from(result.is_err()));
        if io.operation == LegOperation::Flush && result.is_err_and(|e| e != LegError::Gone) {
            self.flush_fails(io.leg.0);
            self.note_cache_lost(io.leg.0);
        }
        let (now, extent) = (self.now, self.volume_extent(&io));
        self.trace.line(now, Topic::Leg, extent, || {
            let outcome = if result.is_ok() { "has done" } else { "has failed" };
            format!("leg {} {outcome} {:?} {:?} {result:?}", io.leg.0, io.operation, io.extent)
        });
        self.engine().complete(now, io.id, result);
        self.take_actions();
    }

    /// Lands an I/O on the medium, whole or in part.
    pub(crate) fn land(&mut self, slot: u32, whole: bool) {
        let in_flight = &self.ios[slot as usize];
        let io = in_flight.io;
        let disk = &mut self.disks[io.leg.index()];
        let engine = self.engine.as_mut().expect("I/O ends before hemi does");
        let random = &mut self.random;
        let odds = if whole { 0 } else { random.below(4) };
        let lands = || match odds {
            0 => true,
            1 => false,
            _ => random.one_in(2),
        };
        match (io.operation, io.buffer) {
            (LegOperation::Write { fua }, Some(at)) => {
                let data = engine.buffers().part(at, io.extent.sectors());
                disk.write(io.extent, Some(data), fua && whole, lands);
            }
            (LegOperation::WriteZeroes { fua, .. }, _) => {
                disk.write(io.extent, None, fua && whole, lands);
            }
            (LegOperation::Flush, _) if whole => disk.flush(in_flight.flush_mark),
            (LegOperation::WriteMetadata, _) => {
                let parts = match odds {
                    0 => 0xFF,
                    1 => 0,
                    _ => random.draw() as u8,
                };
                let address = io.extent.start * SECTOR_BYTES;
                let lie = &mut self.legs[io.leg.index()].lie;
                match lie.take_if(|lie| whole && in_flight.kind == lie.kind) {
                    Some(Lie { elsewhere, .. }) => {
                        let lands =
                            elsewhere.then(|| lies::another(disk, address, &mut self.lying));
                        disk.lie(address, &in_flight.block, lands);
                        self.counts.lies += 1;
                    }
                    None => disk.write_metadata(address, &in_flight.block, parts),
                }
                let is_superblock = address <= Layout::superblock_address(1);
                self.legs[io.leg.index()].is_new &= !(whole && is_superblock);
            }
            (LegOperation::Read, Some(at)) => {
                let into = engine.buffers_mut().part_to_read(at, io.extent.sectors());
                if whole {
                    into.copy_from_slice(disk.read(io.extent));
                } else {
                    // A failed read leaves rubbish behind.
                    into.fill(POISON);
                }
            }
            _ => {}
        }
    }

    /// Forgets every I/O. The caller has landed those that land.
    pub(crate) fn forget_ios(&mut self) {
        self.free_ios.clear();
        for (slot, in_flight) in self.ios.iter_mut().enumerate().rev() {
            in_flight.live = false;
            self.free_ios.push(slot as u32);
        }
    }

    pub(crate) fn forget_requests(&mut self) {
        self.free_requests.clear();
        for (slot, pending) in self.requests.iter_mut().enumerate().rev() {
            pending.live = false;
            self.free_requests.push(slot as u32);
        }
        self.under_way = 0;
        self.sectors_under_way = 0;
    }

    /// Returns true if the driver would let in a request of this many sectors. Some of the buffers
    /// are left to drains and to reads that start over.
    pub(crate) fn has_room(&self, sectors: u64) -> bool {
        let size = sectors.next_power_of_two();
        self.engine.as_ref().is_some_and(Engine::has_room)
            && self.sectors_under_way + size <= self.shape.memory_sectors / 4 * 3
    }

    /// Sends a request.
    pub(crate) fn submit(&mut self, client: u8, operation: Operation, extent: Extent, fua: bool) {
        let slot = self.free_requests.pop().unwrap_or_else(|| {
            let asked = Asked { id: 0, sent: 0, operation, extent, fua };
            self.requests.push(Pending { live: false, asked, client, started: self.now });
            self.requests.len() as u32 - 1
        });
        if fua || operation == Operation::Flush {
            self.counts.flushes_by_leg += self.members().len() as u64;
        }
        self.next_id += 1;
        let asked = Asked { id: self.next_id, sent: self.register.tick(), operation, extent, fua };
        let sectors = extent.sectors();
        let version = if operation == Operation::Write { u64::from(asked.id) } else { 0 };
        let buffer = self.engine().buffers_mut().take_for(operation, extent, version);
        if !matches!(operation, Operation::Read | Operation::Flush) {
            let oldest_read = self.oldest_read();
            self.register.sent(&asked, version, oldest_read);
        }
        let now = self.now;
        self.requests[slot as usize] = Pending { live: true, asked, client, started: now };
        self.stall.alone = if self.under_way == 0 { asked.id } else { 0 };
        self.under_way += 1;
        self.sectors_under_way += sectors.next_power_of_two();
        self.trace.mix(now.0 ^ u64::from(asked.id) << 40);
        let place = (operation != Operation::Flush).then_some(extent);
        self.trace.line(now, Topic::Client, place, || {
            let fua = if fua { " with FUA" } else { "" };
            format!("client {client} sends #{} {operation:?} {extent:?}{fua}", asked.id)
        });
        let connection = 1 + u32::from(client);
        let token = u64::from(slot);
        let request = Request { token, operation, extent, buffer, fua, connection };
        self.engine().submit(now, request);
        self.take_actions();
    }

    pub(crate) fn oldest_read(&self) -> u32 {
        let reads = self
            .requests
            .iter()
            .filter(|p| p.live && p.asked.operation == Operation::Read)
            .map(|p| p.asked.sent);
        reads.min().unwrap_or(u32::MAX)
    }

    fn take_reply(&mut self, reply: Reply) {
        let slot = reply.token as usize;
        let pending = self.requests[slot];
        if !pending.live {
            self.broken("P2", format!("request slot {slot} was answered twice"));
            return;
        }
        let asked = pending.asked;
        self.requests[slot].live = false;
        self.free_requests.push(slot as u32);
        self.under_way -= 1;
        self.sectors_under_way -= asked.extent.sectors().next_power_of_two();
        self.trace.mix(u64::from(asked.id) << 1 | u64::from(reply.result.is_ok()));
        let now = self.now;
        let place = (asked.operation != Operation::Flush).then_some(asked.extent);
        self.trace.line(now, Topic::Client, place, || {
            format!("client {} is answered #{}: {:?}", pending.client, asked.id, reply.result)
        });
        if pending.client == VERIFIER {
            self.counts.verifying += 1;
        } else {
            self.counts.operations += 1;
        }
        self.check_stall(&pending);
        self.check_loss_told(&pending, reply.result.is_ok());
        self.check_reply(&asked, &reply);
        if let Some(buffer) = reply.buffer {
            self.give_back(buffer);
        }
        self.client_answered(pending.client);
    }

    fn give_back(&mut self, buffer: BufferId) {
        hemi_engine::io::Buffers::release(self.engine().buffers_mut(), buffer);
    }

    fn check_reply(&mut self, asked: &Asked, reply: &Reply) {
        let succeeded = reply.result.is_ok();
        if !succeeded {
            self.counts.failed += 1;
            // A session that drops may take data with it that no flush covers. Flushes report so,
            // and so do writes that are flushed, or of which a part was done before it dropped.
            let region = self.shape.region_bytes / 512;
            let spans = asked.extent.start / region != (asked.extent.end.max(1) - 1) / region;
            let longest = (self.settings.exposure_bytes / 4)
                .min(PIECE_MIN)
                .min(self.settings.limits.operation_bytes);
            let parts = spans || asked.extent.bytes() > longest;
            let flushes = asked.operation == Operation::Flush || asked.fua;
            let sessions =
                self.weather.gone && (flushes || parts && asked.operation != Operation::Read);
            if !self.weather.requests_may_fail() && !sessions && !self.is_stopping {
                let text = format!("#{} {asked:?} failed though nothing else did", asked.id);
                self.broken("P1", text);
            }
        }
        let read = reply.buffer.filter(|_| asked.operation == Operation::Read);
        let engine = self.engine.as_ref().expect("it has just answered");
        let data = read.map(|buffer| {
            engine.buffers().part(BufferAt { buffer, offset: 0 }, asked.extent.sectors())
        });
        if let Err(violation) = self.register.answered(asked, succeeded, data) {
            self.violate(violation);
        }
        if succeeded && asked.operation == Operation::Flush {
            self.note_flushed(asked);
            if self.cache_lost.is_some_and(|lost| asked.id >= lost.before) {
                self.cache_lost = None;
            }
        }
    }

    /// Returns the number that the next request will have.
    pub(crate) fn next_request(&self) -> u32 {
        self.next_id + 1
    }

    /// Returns the volume's own account, as an operator reads it.
    pub(crate) fn refresh_status(&mut self) -> &Status {
        let now = self.now;
        let mut status = std::mem::take(&mut self.status);
        self.engine().status(now, &mut status);
        self.status = status;
        &self.status
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, time: u64) {
        let until = self.now + time;
        while self.violation.is_none() && self.step(until) {}
    }

    /// Lets at most `limit` nanoseconds pass at a time until nothing is in flight.
    pub(crate) fn wait_until_answered(&mut self, limit: u64) {
        let mut end = self.now + limit;
        while self.under_way > 0 && self.violation.is_none() {
            if !self.step(end) {
                self.hang(limit);
                end = self.now + limit;
            }
        }
    }

    /// Returns the legs whose slot has one, in order.
    pub(crate) fn members(&self) -> Vec<u8> {
        (0..self.legs.len()).filter(|&leg| !self.legs[leg].is_empty).map(|leg| leg as u8).collect()
    }

    pub(crate) fn index(leg: u8) -> LegIndex {
        LegIndex(leg)
    }
}
