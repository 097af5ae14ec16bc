//! A mirror: the engine over modelled drives, itself a drive.
//!
//! [`Mirror`] drives [`hemi_engine::engine::Engine`] as the server does: every leg I/O,
//! including metadata writes, goes to a model, every completion goes back, and timers run when
//! they are due. A leg that goes away is reported as the server reports one, and so is its return;
//! the engine marks it out, and rebuilds it.

mod clients;
mod handles;
mod health;

use hemi_drives::drive::{Completion, Counters, Drive, Failure, Request};
use hemi_engine::engine::Engine;
use hemi_engine::format::create::NewVolume;
use hemi_engine::format::superblock::Name;
use hemi_engine::format::{Id, Layout, LayoutError, Ledger, LedgerMemory, layout};
use hemi_engine::identifiers::{IoId, LEGS_MAX, LegIndex};
use hemi_engine::io::{
    self, Action, LegError, LegIo, LegOperation, LegTraits, Reply, RequestError,
};
use hemi_engine::recovery::{self, LegImage};
use hemi_engine::settings::Settings;
use hemi_engine::status::Status;
use hemi_units::{Instant, Operation, SECTOR_BYTES};

use self::clients::Clients;
use self::handles::Handles;
use self::health::Health;
pub use self::health::LegCondition;
use crate::front::Front;
use crate::legs::Legs;
use hemi_workload::figures::Upkeep;

const BLOCK_BYTES: u32 = 4096;
const VOLUME_ID: Id = [1; 16];
const GENERATION: Id = [2; 16];
const BOOT: Id = [3; 16];

/// A ledger memory that discards stores: nothing is killed here, so nobody reads it.
struct NoMemory;

impl LedgerMemory for NoMemory {
    fn store_u32(&mut self, _at: usize, _value: u32) {}
    fn store_u64(&mut self, _at: usize, _value: u64) {}
    fn retire(&mut self) {}
}

/// The shape of a volume, apart from the engine's settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Size of the volume in bytes; zero for the most the smallest leg can hold.
    pub volume_bytes: u64,
    /// Size of a region in bytes; `None` for the default of `hemi create`.
    pub region_bytes: Option<u64>,
    /// Bytes of memory for requests and debts.
    pub buffer_bytes: u64,
    /// True to keep a ledger. Without one an acknowledgement waits for the page that names its
    /// authority.
    pub ledger: bool,
}

/// The reason why a volume cannot be created from these drives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// Too few or too many legs.
    #[error("a mirror has 2 to {LEGS_MAX} legs, not {0}")]
    Legs(usize),
    /// The smallest leg has no room for a volume of the requested size.
    #[error(
        "a volume of {volume} bytes needs legs of {needed} bytes, metadata included; the smallest \
         has {smallest}: make the volume smaller"
    )]
    TooSmall {
        /// Bytes requested.
        volume: u64,
        /// Bytes each leg needs.
        needed: u64,
        /// Bytes of the smallest leg.
        smallest: u64,
    },
    /// A policy without metadata was asked for more than its smallest leg holds.
    #[error(
        "a volume of {volume} bytes needs legs of as many bytes; the smallest has {smallest}: make \
         the volume smaller"
    )]
    Larger {
        /// Bytes requested.
        volume: u64,
        /// Bytes of the smallest leg that is used.
        smallest: u64,
    },
    /// There is no layout for that size.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// A volume mirrored over modelled drives by hemi's engine.
pub struct Mirror<D> {
    engine: Engine<Handles>,
    legs: Legs<D>,
    layout: Layout,
    front: Front,
    /// Completions of legs that have not been passed to the engine yet.
    ended: Vec<(IoId, Result<(), Failure>)>,
    clients: Clients,
    status: Status,
    health: Health,
    /// [`Engine::deadline`] as of the last input.
    deadline: Instant,
}

impl<D: Drive> Mirror<D> {
    /// Creates a new volume, whole on every leg, and opens it.
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub fn new(
        drives: Vec<D>,
        shape: Shape,
        settings: Settings,
        seed: u64,
    ) -> Result<Mirror<D>, MirrorError> {
        let count = drives.len();
        if !(2..=LEGS_MAX).contains(&count) {
            return Err(MirrorError::Legs(count));
        }
        let legs = Legs::new(drives);
        let smallest = legs.sectors() * SECTOR_BYTES;
        let layout = fitting(&shape, smallest)?;
        let images: Vec<Vec<u8>> = (0..count).map(|leg| metadata(layout, leg, count)).collect();
        let images: Vec<LegImage<'_>> = images.iter().map(|bytes| LegImage { bytes }).collect();
        let opening = recovery::assess(&images).expect("a new volume opens");
        let mut traits = [LegTraits::default(); LEGS_MAX];
        for leg in traits.iter_mut().take(count) {
            *leg =
                LegTraits { present: true, fast_zeroes: true, thin: true, ..LegTraits::default() };
        }
        let now = Instant(1);
        let handles = Handles::new(shape.buffer_bytes);
        let ledger =
            shape.ledger.then(|| Ledger::begin(Box::new(NoMemory), &layout, VOLUME_ID, BOOT));
        let mut mirror = Mirror {
            engine: Engine::open(opening, settings, traits, ledger, handles, now, seed),
            health: Health::new(&legs, count),
            legs,
            layout,
            front: Front::new(now),
            ended: Vec::with_capacity(256),
            clients: Clients::new(shape.buffer_bytes),
            status: Status::default(),
            deadline: Instant(0),
        };
        mirror.take_actions();
        mirror.deadline = mirror.engine.deadline();
        Ok(mirror)
    }

    /// Returns the counters of one leg.
    pub fn leg_counters(&mut self, leg: usize) -> Counters {
        self.legs.counters(leg, self.front.now())
    }

    /// Returns the engine's status of the volume.
    pub fn status(&mut self) -> &Status {
        self.engine.status(self.front.now(), &mut self.status);
        &self.status
    }

    /// Returns the acknowledged bytes that only one leg holds, and the age of the oldest in
    /// nanoseconds.
    pub fn exposure(&mut self) -> (u64, u64) {
        let status = self.status();
        (status.exposure_bytes, status.exposure_age)
    }

    /// Returns the upkeep that the engine has done so far.
    pub fn upkeep(&mut self) -> Upkeep {
        let status = self.status();
        Upkeep {
            records: status.regions_dirtied,
            page_writes: status.legs.iter().map(|leg| leg.metadata_writes).sum(),
            authority_moves: status.authority_moves,
        }
    }

    /// Returns the condition of a leg, and how long it has been out.
    pub fn leg_condition(&mut self, leg: usize) -> LegCondition {
        let now = self.front.now();
        let out = self.health.out(leg, now);
        let status = self.status();
        LegCondition::new(&status.legs[leg], out)
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match action {
                Action::Leg(io) => self.start(io),
                Action::Reply(reply) => self.answer(reply),
                Action::Notice(notice) => self.health.note(self.front.now(), notice),
                Action::CommandDone { .. } | Action::Closed => {}
            }
        }
    }

    fn start(&mut self, io: LegIo) {
        let operation = match io.operation {
            LegOperation::Read => Operation::Read,
            LegOperation::Write { fua } => Operation::Write { fua },
            // Zeros that need not be allocated: a drive trims them.
            LegOperation::WriteZeroes { may_unmap: true, fua: false } => Operation::Trim,
            LegOperation::WriteZeroes { fua, .. } => Operation::Write { fua },
            LegOperation::Flush => Operation::Flush,
            LegOperation::WriteMetadata => Operation::Write { fua: true },
        };
        let request = Request { tag: io.id.0, operation, extent: io.extent };
        self.legs.submit(io.leg.index(), self.front.now(), request);
    }

    fn answer(&mut self, reply: Reply) {
        if let Some(buffer) = reply.buffer {
            io::Buffers::release(self.engine.buffers_mut(), buffer);
        }
        let tag = self.clients.end(reply.token);
        match reply.result {
            Ok(()) => self.front.answer(tag),
            // The engine's own reasons do not occur: there is always space, and nothing closes.
            Err(RequestError::Io | RequestError::NoSpace | RequestError::ShuttingDown) => {
                self.front.fail(tag, Failure::Medium);
            }
        }
    }

    /// Passes waiting requests to the engine while there is room.
    fn admit(&mut self) {
        while self.engine.has_room() {
            let Some(request) = self.clients.next() else { return };
            self.accept(request);
        }
    }

    fn accept(&mut self, request: Request) {
        let (operation, fua, has_payload) = match request.operation {
            Operation::Read => (io::Operation::Read, false, true),
            Operation::Write { fua } => (io::Operation::Write, fua, true),
            Operation::Trim => (io::Operation::Discard, false, false),
            Operation::Flush => (io::Operation::Flush, false, false),
        };
        let sectors = request.extent.sectors() as u32;
        let buffer = has_payload.then(|| self.engine.buffers_mut().take(sectors));
        let token = self.clients.begin(&request);
        let extent = request.extent;
        let request = io::Request { token, operation, extent, buffer, fua, connection: 0 };
        self.engine.submit(self.front.now(), request);
        self.take_actions();
    }

    /// Returns the time of the next event of the engine or a leg.
    fn next(&self) -> Instant {
        self.deadline.min(self.legs.next_event())
    }

    /// Processes everything due at `now`, which must not be before the last call.
    fn step(&mut self, now: Instant) {
        self.front.pass(now);
        self.legs.advance(now, |_, ended| self.ended.push((IoId(ended.tag), ended.result)));
        // What was in flight on a leg that went away fails after that, as a server has it.
        while let Some((leg, event)) = self.health.next_event(&self.legs) {
            self.engine.leg_event(now, leg, event);
            self.take_actions();
            self.deadline = self.engine.deadline();
        }
        if !self.ended.is_empty() {
            let mut ended = std::mem::take(&mut self.ended);
            for (id, result) in ended.drain(..) {
                self.engine.complete(now, id, result.map_err(leg_error));
                self.take_actions();
            }
            self.ended = ended;
            self.deadline = self.engine.deadline();
        }
        if self.deadline <= now {
            self.engine.tick(now);
            self.take_actions();
            self.deadline = self.engine.deadline();
        }
        if !self.clients.none_wait() {
            self.admit();
            self.deadline = self.engine.deadline();
        }
    }
}

impl<D: Drive> Drive for Mirror<D> {
    fn sectors(&self) -> u64 {
        self.layout.volume_sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        self.front.ask(now, &request);
        if self.clients.may_go(&request) && self.engine.has_room() {
            self.accept(request);
            self.deadline = self.engine.deadline();
        } else {
            self.clients.wait(request);
        }
    }

    fn next_event(&self) -> Instant {
        self.front.next_event(self.next())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let next = self.next().max(self.front.now());
            if next > now {
                break;
            }
            self.step(next);
        }
        self.front.hand_over(now, done);
    }

    fn counters(&self) -> Counters {
        self.front.counters()
    }
}

/// Returns the error of a leg as the engine knows it.
fn leg_error(failure: Failure) -> LegError {
    match failure {
        Failure::Medium => LegError::Media,
        Failure::ReadOnly => LegError::Other,
        Failure::Gone => LegError::Gone,
    }
}

/// Returns the layout of a volume of this size, or the largest that fits a leg.
fn fitting(shape: &Shape, smallest: u64) -> Result<Layout, MirrorError> {
    let block = u64::from(BLOCK_BYTES);
    let region = |bytes: u64| shape.region_bytes.unwrap_or(layout::default_region_bytes(bytes));
    let make = |bytes: u64| Layout::new(bytes, region(bytes));
    let volume_bytes = shape.volume_bytes;
    if volume_bytes > 0 {
        let layout = make(volume_bytes / block * block)?;
        let needed = layout.leg_bytes();
        if needed > smallest {
            return Err(MirrorError::TooSmall { volume: volume_bytes, needed, smallest });
        }
        return Ok(layout);
    }
    // Metadata grows with the volume: subtract the metadata of a volume as large as the leg.
    let metadata = make(smallest / block * block)?.data_offset();
    Ok(make(smallest.saturating_sub(metadata) / block * block)?)
}

/// Returns the metadata that `hemi create` writes to a leg.
fn metadata(layout: Layout, leg: usize, legs: usize) -> Vec<u8> {
    let ids: Vec<Id> = (1..=legs as u8).map(|id| [id; 16]).collect();
    let volume = NewVolume {
        id: VOLUME_ID,
        generation: GENERATION,
        legs: &ids,
        name: Name::new("modelled").expect("a plain name"),
        layout,
        block_bytes: BLOCK_BYTES,
        created: 0,
    };
    let mut bytes = vec![0; layout.data_offset() as usize];
    volume.blocks(LegIndex(leg as u8), |address, block| {
        bytes[address as usize..][..block.len()].copy_from_slice(block);
    });
    bytes
}
