//! The event loop of one volume.
//!
//! In each turn one system call submits everything new and waits, and the time is read once.
//! Every completion that has arrived is fed to its leg or connection and through it to the
//! engine, before any timer runs, so that the reactor's own lateness never makes a leg look
//! frozen. The engine's actions become ring entries. Answers are gathered and sent. Nothing
//! here waits for a lock or allocates per request.

mod census;
mod handover;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use arc_swap::ArcSwap;
use hemi_engine::command::{Command, CommandError};
use hemi_engine::engine::Engine;
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::{Action, Buffers, LegError, LegIo, LegOperation, Notice};
use hemi_engine::status::Status;
use hemi_units::{Instant, SECOND};
use rustix::io::Errno;

use crate::control::volume::{
    BufferUse, Connections, HandoverReport, LegIdentity, Phase, Snapshot,
};
use crate::differences::Known;
use crate::export::{CarriedClients, ExportContext, Exports};
use crate::handover::HandedOver;
use crate::messages::{ReactorError, ReactorMessage, ReplyTo, SNAPSHOT_GAP_MIN, SNAPSHOT_INTERVAL};
use crate::notices::Notices;
use crate::serve::ServeError;
use census::Counting;
use handover::Upgrade;
pub use handover::UpgradeWish;
use hemi_io::arena::Arena;
use hemi_io::clock;
use hemi_io::leg::{InjectionState, Leg, LegContext, LegOutcome, OpenLeg, ResolvedIo, leg_error};
use hemi_io::ring::{COMPLETION_ENTRIES, Completion, Ring, Source};

/// Time that clients have to take their last answers after the volume is closed.
const LAST_ANSWERS: u64 = 2 * SECOND;
/// Number of low bits of a leg's owner number that hold its slot. The bits above count
/// attachments.
const OWNER_SLOT_BITS: u32 = LEGS_MAX.ilog2();
/// Attachments after which owner numbers begin again.
const OWNER_EPOCHS: u16 = hemi_io::ring::OWNERS_MAX >> OWNER_SLOT_BITS;
/// Payload handed to legs in one turn. Right after a start, whose regions are compared, each mebibyte
/// costs half a millisecond, since the buffers have no pages yet: clients that connect must not
/// wait for all of it.
const TURN_BYTES_MAX: u64 = 8 << 20;
/// The token of the closing command.
const TOKEN_CLOSE: u64 = 0;

type Outcome = Result<(), ReactorError>;

/// The step that follows when a command is done.
enum After {
    Nothing,
    /// Release the leg.
    Release(LegIndex),
}

struct PendingCommand {
    token: u64,
    after: After,
    reply: ReplyTo<Outcome>,
}

/// The parts of a reactor.
pub(crate) struct Parts {
    pub(crate) ring: Ring,
    pub(crate) engine: Engine<Arena>,
    pub(crate) exports: Exports,
    pub(crate) messages: Receiver<ReactorMessage>,
    pub(crate) published: Arc<ArcSwap<Snapshot>>,
    pub(crate) allow_inject: bool,
    pub(crate) notices: Notices,
}

/// The state that a closed volume leaves.
#[derive(Default)]
pub(crate) struct Ended {
    /// In an upgrade, the state for the next program.
    pub(crate) handed: Option<HandedOver>,
    /// The file of the ledger on which legs still rely.
    pub(crate) ledger: Option<PathBuf>,
}

/// The loop and everything it owns.
pub(crate) struct Reactor {
    ring: Ring,
    engine: Engine<Arena>,
    legs: [Option<Leg>; LEGS_MAX],
    /// Legs that left with I/O in flight. They are kept until it has ended.
    retired: Vec<Leg>,
    exports: Exports,
    messages: Receiver<ReactorMessage>,
    pending: Vec<PendingCommand>,
    closing: Vec<ReplyTo<Outcome>>,
    next_token: u64,
    next_epoch: u16,
    allow_inject: bool,
    published: Arc<ArcSwap<Snapshot>>,
    phase: Phase,
    closed_at: Instant,
    next_snapshot: Instant,
    published_at: Instant,
    /// True if the engine was serving at the last check.
    was_serving: bool,
    notices: Notices,
    /// The system's error of the last I/O that failed on each leg, if the system gave one.
    errnos: [Option<Errno>; LEGS_MAX],
    /// The reason why the engine halted.
    halted: Option<ServeError>,
    /// A census of the regions in progress.
    census: Option<Counting>,
    /// An upgrade to another program in progress.
    upgrade: Option<Upgrade>,
    /// A report of the state taken over from the previous program.
    taken_over: Option<HandoverReport>,
    now: Instant,
    /// Bytes that legs may still be handed in this turn.
    turn_bytes: u64,
    completions: Vec<Completion>,
    outcomes: Vec<LegOutcome>,
}

impl Reactor {
    pub(crate) fn new(parts: Parts) -> Reactor {
        let Parts { ring, engine, exports, messages, published, allow_inject, notices } = parts;
        Reactor {
            ring,
            engine,
            legs: Default::default(),
            retired: Vec::new(),
            exports,
            messages,
            pending: Vec::new(),
            closing: Vec::new(),
            next_token: TOKEN_CLOSE + 1,
            next_epoch: 0,
            allow_inject,
            published,
            phase: Phase::Serving,
            closed_at: Instant::NEVER,
            next_snapshot: Instant(0),
            published_at: Instant(0),
            was_serving: false,
            notices,
            errnos: Default::default(),
            halted: None,
            census: None,
            upgrade: None,
            taken_over: None,
            now: clock::now(),
            turn_bytes: 0,
            completions: Vec::with_capacity(COMPLETION_ENTRIES as usize),
            outcomes: Vec::with_capacity(256),
        }
    }

    /// Puts an opened leg into its slot, before the loop runs or when a leg joins.
    pub(crate) fn install(&mut self, slot: LegIndex, opened: OpenLeg) -> io::Result<()> {
        let owner = self.new_owner(slot);
        let leg = Leg::attach(opened, owner, self.allow_inject)?;
        self.release(slot);
        self.legs[slot.index()] = Some(leg);
        self.errnos[slot.index()] = None;
        self.legs_changed();
        Ok(())
    }

    fn new_owner(&mut self, slot: LegIndex) -> u16 {
        loop {
            let owner = self.next_epoch << OWNER_SLOT_BITS | u16::from(slot.0);
            self.next_epoch = (self.next_epoch + 1) % OWNER_EPOCHS;
            if self.retired.iter().all(|leg| leg.owner() != owner) {
                return owner;
            }
        }
    }

    /// Takes the leg out of its slot, and keeps it while I/O is in flight.
    fn release(&mut self, slot: LegIndex) {
        if let Some(leg) = self.legs[slot.index()].take() {
            if leg.in_flight() == 0 {
                leg.detach(&mut self.ring);
            } else {
                self.retired.push(leg);
            }
            self.legs_changed();
        }
    }

    fn legs_changed(&mut self) {
        self.exports.set_fast_zeroes(self.legs.iter().flatten().all(Leg::fast_zeroes));
    }

    /// Takes over the clients of the previous program, before the loop runs.
    pub(crate) fn take_on(&mut self, clients: CarriedClients, report: HandoverReport) {
        self.with_exports(|exports, cx| exports.take_on(cx, clients));
        self.note_taken_over(report);
    }

    /// Runs until the volume is closed. After an error the loop cannot continue and the volume is as
    /// after a kill: nothing acknowledged is lost.
    pub(crate) fn run(mut self) -> Result<Ended, ServeError> {
        tracing::info!(capabilities = %self.ring.capabilities(), "serving");
        loop {
            self.turn();
            if let Some(halted) = self.halted.take() {
                return Err(halted);
            }
            if self.finished() {
                break;
            }
            let deadline = self.deadline();
            let timeout = (deadline != Instant::NEVER).then(|| deadline.since(clock::now()));
            self.ring.wait(timeout).map_err(ServeError::Reactor)?;
            self.now = clock::now();
        }
        let handed = self.handed_over();
        let path = self.published.load().identity.ledger.path.clone();
        let ledger = path.filter(|_| self.engine.relies_on_ledger());
        for slot in 0..LEGS_MAX {
            self.release(LegIndex(slot as u8));
        }
        self.publish();
        for reply in self.closing.drain(..) {
            reply(Ok(()));
        }
        Ok(Ended { handed, ledger })
    }

    /// Records every request from now on.
    pub(crate) fn record(&mut self, recorder: crate::record::Recorder) {
        self.exports.record(recorder);
    }

    /// Does everything between two waits.
    fn turn(&mut self) {
        self.turn_bytes = TURN_BYTES_MAX;
        let mut batch = std::mem::take(&mut self.completions);
        self.ring.completions(&mut batch);
        for completion in batch.drain(..) {
            self.dispatch(completion);
        }
        self.completions = batch;
        self.run_timers();
        self.pursue_upgrade();
        self.act();
        let mut first = true;
        while self.with_exports(|exports, cx| exports.resume(cx, first)) {
            first = false;
            self.act();
        }
        self.with_exports(|exports, cx| exports.finish_turn(cx));
        self.count_regions();
        if self.engine.is_serving() != self.was_serving {
            // This comes before the first answer, so a client that has an answer sees the
            // volume served.
            self.was_serving = !self.was_serving;
            self.next_snapshot = self.now;
            if self.was_serving {
                self.note_served();
            }
        }
        if self.now >= self.next_snapshot {
            self.publish();
            self.exports.hand_over_records();
            self.published_at = self.now;
            self.next_snapshot = self.now + SNAPSHOT_INTERVAL;
            self.notices.say_errors(self.now, &self.published.load().legs);
        }
    }

    /// Schedules a snapshot soon, because something changed that must not be learnt late.
    fn state_changed(&mut self) {
        self.next_snapshot = self.next_snapshot.min(self.published_at + SNAPSHOT_GAP_MIN);
    }

    fn with_exports<T>(
        &mut self,
        call: impl FnOnce(&mut Exports, &mut ExportContext<'_>) -> T,
    ) -> T {
        let Reactor { exports, ring, engine, now, .. } = self;
        call(exports, &mut ExportContext { ring, engine, now: *now })
    }

    fn dispatch(&mut self, completion: Completion) {
        match completion.tag.source {
            Source::Leg => self.leg_completion(completion),
            Source::Connection | Source::Listener | Source::Device | Source::Guest => {
                self.with_exports(|exports, cx| exports.completion(cx, completion));
            }
            Source::Wake => {
                self.ring.arm_wake();
                while let Ok(message) = self.messages.try_recv() {
                    self.message(message);
                }
            }
            Source::Nobody => {}
        }
    }

    fn leg_completion(&mut self, completion: Completion) {
        let owner = completion.tag.owner;
        let slot = LegIndex((usize::from(owner) % LEGS_MAX) as u8);
        let Reactor { legs, retired, ring, outcomes, now, .. } = self;
        let mut cx = LegContext { ring, now: *now, owner, outcomes };
        if let Some(leg) = legs[slot.index()].as_mut().filter(|leg| leg.owner() == owner) {
            leg.completion(&mut cx, completion);
            self.report(slot);
        } else if let Some(index) = retired.iter().position(|leg| leg.owner() == owner) {
            retired[index].completion(&mut cx, completion);
            self.report_retired(index);
        }
    }

    /// Passes a leg's reports to the engine.
    fn report(&mut self, slot: LegIndex) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let mut failed = None;
        for outcome in outcomes.drain(..) {
            match outcome {
                LegOutcome::Failed(errno) => failed = Some(errno),
                LegOutcome::Done { id, result } => {
                    if result.is_err() {
                        self.errnos[slot.index()] = failed.take();
                    }
                    if let Some(leg) = &mut self.legs[slot.index()] {
                        leg.settle(id);
                    }
                    self.engine.complete(self.now, id, result);
                }
                LegOutcome::Progress(progress) => self.engine.leg_progressed(slot, &progress),
                LegOutcome::Event(event) => {
                    self.engine.leg_event(self.now, slot, event);
                    self.state_changed();
                }
            }
        }
        self.outcomes = outcomes;
    }

    /// Handles the reports of a leg that has left. Its I/O still holds buffers, and its events
    /// no longer matter.
    fn report_retired(&mut self, index: usize) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for outcome in outcomes.drain(..) {
            if let LegOutcome::Done { id, result } = outcome {
                self.retired[index].settle(id);
                self.engine.complete(self.now, id, result);
            }
        }
        self.outcomes = outcomes;
        if self.retired[index].in_flight() == 0 {
            self.retired.swap_remove(index).detach(&mut self.ring);
        }
    }

    fn run_timers(&mut self) {
        for slot in (0..LEGS_MAX as u8).map(LegIndex) {
            let Reactor { legs, ring, outcomes, now, .. } = self;
            let Some(leg) = &mut legs[slot.index()] else { continue };
            if leg.deadline() <= *now {
                let owner = leg.owner();
                leg.tick(&mut LegContext { ring, now: *now, owner, outcomes });
                self.report(slot);
            }
        }
        for index in (0..self.retired.len()).rev() {
            let Reactor { retired, ring, outcomes, now, .. } = self;
            let leg = &mut retired[index];
            if leg.deadline() <= *now {
                let owner = leg.owner();
                leg.tick(&mut LegContext { ring, now: *now, owner, outcomes });
                self.report_retired(index);
            }
        }
        if self.engine.deadline() <= self.now {
            self.engine.tick(self.now);
        }
        if self.exports.deadline() <= self.now {
            self.with_exports(|exports, cx| exports.tick(cx));
        }
    }

    fn deadline(&self) -> Instant {
        let legs = self.legs.iter().flatten().chain(&self.retired);
        let legs = legs.map(Leg::deadline).min().unwrap_or(Instant::NEVER);
        let last = self.closed_at + LAST_ANSWERS;
        // With no bytes left, the engine may want more in the next turn.
        let more = if self.turn_bytes == 0 { Instant(0) } else { Instant::NEVER };
        let own = self.next_snapshot.min(last).min(more).min(self.upgrade_deadline());
        let own = own.min(self.census_deadline());
        self.engine.deadline().min(legs).min(self.exports.deadline()).min(own)
    }

    /// Carries out the engine's actions, within the bounds of the turn.
    fn act(&mut self) {
        while self.turn_bytes > 0
            && let Some(action) = self.engine.next_action()
        {
            if let Action::Leg(io) = &action {
                let bytes = if io.buffer.is_some() { io.extent.bytes() } else { 0 };
                self.turn_bytes = self.turn_bytes.saturating_sub(bytes);
            }
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Leg(io) => self.start(io),
            Action::Reply(reply) => self.with_exports(|exports, cx| exports.reply(cx, reply)),
            Action::CommandDone { token: TOKEN_CLOSE, result } => {
                // A second close only shortens the first one's time, which the engine reports
                // as busy.
                if let Err(error) = result
                    && error != CommandError::Busy
                {
                    tracing::error!(%error, "the volume could not be closed clean");
                }
            }
            Action::CommandDone { token, result } => self.command_done(token, result),
            Action::Notice(notice) => {
                let legs = &self.published.load().legs;
                if let Notice::Halted { leg, regions } = notice {
                    let leg = crate::notices::name(legs, leg);
                    self.halted = Some(ServeError::Halted { leg, regions });
                }
                let errno = match notice {
                    Notice::LegError { leg, error, .. } => {
                        self.errnos[leg.index()].filter(|errno| leg_error(*errno) == error)
                    }
                    _ => None,
                };
                self.notices.log(self.now, legs, notice, errno);
                self.state_changed();
            }
            Action::Closed => {
                tracing::info!("the volume is closed");
                self.phase = Phase::Closed;
                self.closed_at = self.now;
                self.next_snapshot = self.now;
            }
        }
    }

    /// Hands an I/O to its leg.
    fn start(&mut self, io: LegIo) {
        let Reactor { legs, ring, engine, outcomes, now, .. } = self;
        let Some(leg) = &mut legs[io.leg.index()] else {
            engine.complete(*now, io.id, Err(LegError::Gone));
            return;
        };
        let data = match (io.operation, io.buffer) {
            (LegOperation::WriteMetadata, _) => {
                match leg.stage_metadata(io.id, engine.metadata_bytes(io.id)) {
                    Ok(span) => Some(span),
                    Err(error) => {
                        tracing::error!(%error, "no memory for metadata");
                        engine.complete(*now, io.id, Err(LegError::Other));
                        return;
                    }
                }
            }
            (_, Some(at)) => Some(engine.buffers().span(at, io.extent.sectors() as u32)),
            (_, None) => None,
        };
        let resolved = ResolvedIo {
            id: io.id,
            operation: io.operation,
            offset: io.extent.start * hemi_units::SECTOR_BYTES,
            length: io.extent.bytes(),
            data,
        };
        let owner = leg.owner();
        leg.submit(&mut LegContext { ring, now: *now, owner, outcomes }, resolved);
        if !self.outcomes.is_empty() {
            self.report(io.leg);
        }
    }

    fn message(&mut self, message: ReactorMessage) {
        match message {
            ReactorMessage::Command { command, reply } => {
                let after = match command {
                    Command::Remove { leg } | Command::Detach { leg } => After::Release(leg),
                    _ => After::Nothing,
                };
                let slot = match command {
                    Command::Remove { leg } | Command::Detach { leg } => Some(leg.0),
                    _ => None,
                };
                // The operator named a slot, so the answer does too.
                let named: ReplyTo<Outcome> = Box::new(move |outcome| {
                    reply(match (outcome, slot) {
                        (Err(ReactorError::Command(CommandError::NoSuchLeg)), Some(slot)) => {
                            Err(ReactorError::NoSuchLeg(slot))
                        }
                        (outcome, _) => outcome,
                    });
                });
                let token = self.expect(after, named);
                self.engine.command(self.now, token, command);
            }
            ReactorMessage::Attach { leg, opened, name, id, reply } => {
                self.attach(leg, *opened, name, id, reply);
            }
            ReactorMessage::Inject { leg, injection, reply } => {
                let now = self.now;
                let target = self.legs.get_mut(leg.index()).and_then(Option::as_mut);
                let injected = target.map(|leg| leg.inject(now, injection));
                // A client that looks after the answer must see the fault.
                self.publish();
                reply(match injected {
                    None => Err(ReactorError::NoSuchLeg(leg.0)),
                    Some(true) => Ok(()),
                    Some(false) => Err(ReactorError::InjectionOff),
                });
            }
            ReactorMessage::SetGates { gates, reply } => {
                self.exports.set_gates(&gates);
                reply(Ok(()));
            }
            ReactorMessage::AttachDevice { opened, reply } => {
                let attached = self.with_exports(|exports, cx| exports.attach_device(cx, *opened));
                // A client that looks after the answer must see the device.
                self.publish();
                reply(attached);
            }
            ReactorMessage::ServeKernel { socket, reply } => {
                let served = self.with_exports(|exports, cx| exports.serve_kernel(cx, *socket));
                self.publish();
                reply(served);
            }
            ReactorMessage::WatchKernel { ended, reply } => {
                reply(self.exports.watch_kernel(ended));
            }
            ReactorMessage::Guest(message) => {
                self.with_exports(|exports, cx| exports.guest_message(cx, message));
            }
            ReactorMessage::AwaitDeviceEnd { reply } => self.exports.await_device_end(reply),
            ReactorMessage::Populated { mapping } => {
                if let Some(mapping) = self.engine.buffers_mut().memory_mut().get_mut(mapping)
                    && self.ring.add_memory(mapping)
                {
                    tracing::debug!(bytes = mapping.length(), "buffers registered");
                }
            }
            ReactorMessage::Census { cells, reply } => self.begin_census(cells, reply),
            ReactorMessage::Upgrade { wish, reply } => self.begin_upgrade(wish, reply),
            ReactorMessage::Shutdown { drain, reply } => {
                self.drop_upgrade();
                self.closing.push(reply);
                if self.phase != Phase::Closed {
                    self.phase = Phase::Closing;
                    self.next_snapshot = self.now;
                    self.exports.stop();
                    let drain_until = self.now + drain;
                    self.engine.command(self.now, TOKEN_CLOSE, Command::Close { drain_until });
                }
            }
        }
    }

    fn expect(&mut self, after: After, reply: ReplyTo<Outcome>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.pending.push(PendingCommand { token, after, reply });
        token
    }

    /// Lets a leg join. The engine refuses at once or not at all, so the slot changes hands
    /// only after it has agreed and before its first I/O is started.
    fn attach(
        &mut self,
        leg: LegIndex,
        opened: OpenLeg,
        name: String,
        id: [u8; 16],
        reply: ReplyTo<Outcome>,
    ) {
        // Carry out all actions: those left are for the leg that was in the slot.
        self.turn_bytes = u64::MAX;
        self.act();
        let path = opened.description();
        let join = Command::Join { leg, id, traits: opened.traits() };
        let token = self.expect(After::Nothing, reply);
        self.engine.command(self.now, token, join);
        let mut actions = Vec::new();
        while let Some(action) = self.engine.next_action() {
            actions.push(action);
        }
        let refused = actions.iter().any(|action| {
            matches!(action, Action::CommandDone { token: done, result: Err(_) } if *done == token)
        });
        if !refused {
            if let Err(error) = self.install(leg, opened) {
                tracing::error!(%error, "a leg could not be attached");
            }
            self.rename(leg, name, path);
        }
        for action in actions {
            self.carry_out(action);
        }
    }

    fn rename(&mut self, leg: LegIndex, name: String, path: String) {
        let mut snapshot = Snapshot::clone(&self.published.load());
        let mut legs = Vec::clone(&snapshot.legs);
        legs.retain(|known| known.leg != leg.0);
        legs.push(LegIdentity { leg: leg.0, name, path });
        legs.sort_by_key(|known| known.leg);
        snapshot.legs = Arc::new(legs);
        self.published.store(Arc::new(snapshot));
        self.next_snapshot = self.now;
    }

    fn command_done(&mut self, token: u64, result: Result<(), CommandError>) {
        let Some(index) = self.pending.iter().position(|pending| pending.token == token) else {
            return;
        };
        let PendingCommand { after, reply, .. } = self.pending.swap_remove(index);
        if let (After::Release(leg), Ok(())) = (after, result) {
            self.release(leg);
        }
        // A client that looks after the answer must see the command's effect.
        self.publish();
        reply(result.map_err(ReactorError::from));
    }

    /// Returns true if everything is done: the volume is closed, and clients have their answers
    /// or had time to take them.
    fn finished(&self) -> bool {
        if self.is_handing_over() {
            return self.phase == Phase::Closed && self.legs_have_ended();
        }
        self.phase == Phase::Closed
            && (self.exports.idle() || self.now >= self.closed_at + LAST_ANSWERS)
    }

    /// Publishes a snapshot of the state.
    pub(crate) fn publish(&mut self) {
        let last = self.published.load();
        let counts = self.exports.counts();
        let arena = self.engine.buffers();
        let mut status = Status::default();
        self.engine.status(self.now, &mut status);
        let known = self.engine.differences();
        let differences = match last.differences.version == known.version() {
            true => Arc::clone(&last.differences),
            false => Arc::new(Known::of(known)),
        };
        let snapshot = Snapshot {
            taken: std::time::Instant::now(),
            opened: last.opened,
            phase: match self.phase {
                // Requests wait until every leg has recorded that the volume is open.
                Phase::Serving if !self.engine.is_serving() => Phase::Opening,
                Phase::Closing | Phase::Closed if self.is_handing_over() => Phase::Upgrading,
                phase => phase,
            },
            identity: Arc::clone(&last.identity),
            legs: Arc::clone(&last.legs),
            generations: self.engine.generations().collect(),
            leg_ids: self.engine.leg_ids().collect(),
            status,
            differences,
            connections: Connections {
                open: counts.open,
                accepted: counts.accepted,
                refused: counts.refused,
            },
            buffers: BufferUse {
                budget_bytes: arena.budget(),
                used_bytes: arena.budget() - arena.free_bytes(),
            },
            device: self.exports.device_path().map(str::to_owned),
            injected: self.injected(),
            no_session: self.no_session(),
            taken_over: self.taken_over.clone(),
        };
        drop(last);
        self.published.store(Arc::new(snapshot));
    }

    /// Returns the reasons why remote legs have no session, by slot.
    fn no_session(&self) -> Vec<(u8, Arc<str>)> {
        let reason = |(slot, leg): (u8, &Option<Leg>)| {
            let reason = leg.as_ref()?.no_session()?;
            Some((slot, Arc::clone(reason)))
        };
        (0_u8..).zip(&self.legs).filter_map(reason).collect()
    }

    /// Returns the faults in force, by slot.
    fn injected(&self) -> Vec<(u8, InjectionState)> {
        let state = |(slot, leg): (u8, &Option<Leg>)| {
            let state = leg.as_ref()?.injected(self.now)?;
            (state != InjectionState::default()).then_some((slot, state))
        };
        (0_u8..).zip(&self.legs).filter_map(state).collect()
    }
}
