//! The way from a configuration to a served volume.
//!
//! [`serve`] opens the legs, has recovery decide on their state, binds every socket, and only
//! then starts the threads of the reactor and of control. So every error is found before a
//! client is let in.

use hemi_units::prose::counted;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use hemi_engine::engine::Engine;
use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::io::LegTraits;
use hemi_engine::settings::Settings;

use crate::config::Config;
use crate::config::device::DeviceKind;
use crate::config::exports::ExportConfig;
use crate::control::socket::{VolumeSocket, run_directory};
use crate::control::volume::{HandoverReport, Phase, Snapshot};
use crate::control::waiting::WaitingRoom;
use crate::control::{ControlError, Listeners};
use crate::descriptors::{self, TooFew};
use crate::device::{self, DeviceError};
use crate::differences::Known;
use crate::export::{CarriedClients, ExportOptions, Exports, GateFiles, ListenError, Listener};
use crate::grow::grow;
use crate::handover::{self, Inheritance, Successor};
use crate::ledger::LedgerFileError;
use crate::messages::{MESSAGES_MAX, ReactorError, ReactorHandle, ReactorMessage};
use crate::notices::{NoticeReceiver, Notices};
use crate::opening::{self, OpenOptions, OpenedVolume};
use crate::populating;
use crate::preflight;
use crate::promote::PromoteError;
use crate::reactor::{Ended, Parts, Reactor};
use crate::record::{self, Recorder, Recording};
use crate::scan::apart::ScanError;
use crate::standby::{self, Standbys};
use crate::vhost::{GuestListener, Listening};
use crate::volume::ServedVolume;
use hemi_io::arena::Arena;
use hemi_io::leg::OpenError;
use hemi_io::ring::{Ring, RingError};
use hemi_io::{clock, random};

/// An error that keeps a volume from being served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// This machine lacks what the configuration needs. The text has a line for each obstacle.
    #[error("{0}")]
    Obstacles(String),
    /// A leg could not be opened for a reason other than absence.
    #[error("leg {leg}: {source}")]
    Open {
        /// The leg as configured.
        leg: String,
        /// The reason.
        source: OpenError,
    },
    /// No leg is there. The text has a line for each.
    #[error("{0}")]
    Absent(String),
    /// The legs do not make a volume that may be opened.
    #[error("{0}")]
    Refused(String),
    /// The legs belong to another volume than the one named.
    #[error("the legs belong to volume {found:?}, not to {wanted:?}")]
    OtherVolume {
        /// The name configured.
        wanted: String,
        /// The name found.
        found: String,
    },
    /// A leg's blocks are larger than the volume's.
    #[error(
        "leg {leg} has blocks of {block} bytes, the volume of {volume}: it cannot hold the \
         volume; use a device with blocks of {volume} bytes or less, or create a volume with \
         --block-size 4096 and copy"
    )]
    Block {
        /// The leg as configured.
        leg: String,
        /// Size of its blocks in bytes.
        block: u32,
        /// Size of the volume's blocks in bytes.
        volume: u32,
    },
    /// The search for legs failed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Missing legs were to be given up, but the remaining one could not be promoted.
    #[error("start_degraded: {0}")]
    GiveUp(#[from] PromoteError),
    /// The ledger could not be found or kept.
    #[error(transparent)]
    Ledger(#[from] LedgerFileError),
    /// The volume was stopped but its legs still rely on the ledger.
    #[error(
        "the volume is stopped, but the legs did not take what the ledger says in time: only the \
         ledger {} knows some moves of authority. It is kept, and the next start goes on with it, but \
         it ends when the machine restarts, and acknowledged writes may be lost then. Before that, \
         start the volume again with its legs present and stop it, or run hemi settle",
        path.display()
    )]
    LedgerNeeded {
        /// Path of the ledger.
        path: PathBuf,
    },
    /// The process may have fewer descriptors than clients and legs need.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// An export could not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Control could not start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The ring could not be set up.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The memory for payload could not be allocated.
    #[error("the buffer budget of {budget} could not be allocated: {source}; lower buffer_budget")]
    Buffers {
        /// The buffer budget.
        budget: hemi_units::Size,
        /// The system's error.
        source: io::Error,
    },
    /// The file of the recording could not be created.
    #[error(
        "cannot record to {}: {source}; name a file that does not exist yet, in a directory that \
         can be written", path.display()
    )]
    Record {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The block device could not be created.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A thread could not start, or the event loop failed.
    #[error("the event loop failed: {0}")]
    Reactor(io::Error),
    /// The engine halted while the volume was served.
    #[error(
        "the device of {leg} is gone, and it alone decides {} that had not been \
         compared with another leg since the start; the volume is no longer served, and nothing has \
         been recorded as lost. Bring the device back and start again, or let another leg decide with \
         hemi promote: it may lack what was acknowledged before the stop and not flushed",
        counted(*regions, "region")
    )]
    Halted {
        /// Name of the leg.
        leg: String,
        /// Number of regions.
        regions: u32,
    },
}

/// A volume that is being served, and the ways to reach it.
#[derive(Debug)]
pub struct Started<'a> {
    /// Name of the volume.
    pub name: String,
    /// Path of its control socket.
    pub control: &'a Path,
    /// Its exports.
    pub exports: &'a [ExportConfig],
}

/// Options of [`serve`] that only the command line has.
#[derive(Clone, Copy, Default)]
pub struct ServeOptions<'a> {
    /// The file to record every request in, if any.
    pub record: Option<&'a Path>,
    /// True if the operator accepts to lose data that only a missing or damaged ledger could
    /// tell.
    pub accept_loss: bool,
    /// A function that is called once control answers. It must not block. The volume may still
    /// be opening. A volume with a companion is not handed over to another program.
    pub companion: Option<&'a dyn Fn(&Started)>,
}

/// Serves the configured volume until it is stopped by a signal or through control. Blocks.
/// Returns the next program if the volume was closed for one. The caller then becomes it
/// ([`Successor::exec`]).
///
/// # Errors
/// Returns the [`ServeError`] that keeps the volume from being served or ended the event loop.
pub fn serve(mut config: Config, asked: ServeOptions) -> Result<Option<Successor>, ServeError> {
    let mut inherited = Inheritance::take();
    let obstacles = preflight::at_start(&config, inherited.is_some());
    if !obstacles.is_empty() {
        return Err(ServeError::Obstacles(obstacles.join("\n")));
    }
    let file = config.file.clone();
    let kind = config.device;
    let device_wanted = kind != DeviceKind::None;
    let room = WaitingRoom::new(&config);
    let options = OpenOptions {
        waiting: Some(&room),
        scan: config.scan.as_ref(),
        patience: config.wait_for_legs.duration(),
        start_degraded: config.start_degraded,
        ledger: &config.ledger,
        settle: false,
        accept_loss: asked.accept_loss,
        settled: inherited.as_ref().is_some_and(Inheritance::is_settled),
        file: file.as_deref(),
    };
    if let Some(inherited) = &mut inherited
        && let Some(to) = inherited.grow()
    {
        match grow(&config, to) {
            Ok(grown) => tracing::info!("{grown}"),
            Err(error) => {
                tracing::error!(%error, "the volume has not grown, and is served as it is");
                inherited.not_grown(format!("{error}. {}", error.way_out()));
            }
        }
    }
    let opened = opening::open(&config.legs, options)?;
    drop(room);
    check(&config, &opened)?;
    inherited = inherited.filter(|of| of_this_volume(of, &opened));
    if config.scan.is_some() {
        config.legs.clone_from(&opened.configs);
        descriptors::check(&config)?;
    }
    match (&opened.ledger_status.path, &opened.ledger_status.why_none) {
        (Some(path), _) => tracing::info!(path = %path.display(), "ledger"),
        (None, why) => tracing::warn!(
            why = why.as_deref().unwrap_or_default(),
            "no ledger is kept: a write whose first completion is not on its region's authority \
             waits for the authority or for a page write"
        ),
    }
    let drives = opened.configs.clone();
    let name = opened.name();
    let was_device = device::exists(opened.opening.superblock.volume_id);
    let is_device = device_wanted || was_device;
    if is_device {
        device::prepare(was_device);
    }
    let (recorder, recording) = match asked.record {
        Some(path) => {
            let (recorder, recording) = record_to(path, &opened)?;
            (Some(recorder), Some(recording))
        }
        None => (None, None),
    };
    let control = Listeners::open(&config, &name, inherited.as_mut())?;
    let gates = exports_of(&config, &opened)?;
    let listeners = listen(&gates, inherited.as_mut())?;
    let guests = config.vhost.iter().map(GuestListener::bind).collect::<Result<Vec<_>, _>>();
    let guests = guests.map_err(ListenError::from)?;
    let mut snapshot = Snapshot::opening(opened.identity(), opened.identities.clone());
    snapshot.differences = Arc::new(Known::find(&config.state, snapshot.identity.id));
    let options = ReactorOptions {
        settings: config.settings(),
        buffer_budget: config.buffer_budget.0,
        allow_inject: config.allow_inject,
    };
    for name in listeners.iter().map(Listener::name).chain(guests.iter().map(GuestListener::name)) {
        tracing::info!(address = name, "export");
    }
    let inherited = inherited.map(|inherited| inherited.into_clients(gates.options.clone()));
    let front = Front { listeners, recorder, inherited };
    let (running, notices) = start_with(opened, options, front, snapshot)?;
    let why_bound = match (asked.record, asked.companion) {
        (Some(_), _) => {
            Some("the volume's requests are recorded, in a file that has to be new at a start")
        }
        (None, Some(_)) => Some("the volume is served for a command, and ends with it (--run)"),
        (None, None) => None,
    };
    let exports = gates.exports.clone();
    let standbys = Arc::new(Standbys::new(drives.into_iter()));
    standby::spawn(running.handle.clone(), Arc::clone(&standbys)).map_err(ServeError::Reactor)?;
    let volume = ServedVolume::new(running.handle.clone(), gates, why_bound, notices, standbys);
    let volume = Arc::new(volume);
    let sockets = control.duplicate()?;
    let control_path = control.control_path().to_owned();
    let control = match control.spawn(Arc::new(config), volume) {
        Ok(control) => control,
        Err(error) => {
            // Nobody could stop it, so close everything that was opened.
            let reply = Box::new(|_| ());
            let _ = running.handle.send(ReactorMessage::Shutdown { drain: 0, reply });
            running.join()?;
            return Err(error.into());
        }
    };
    let guests = serve_guests(guests, &running.handle);
    let device = is_device.then(|| attach_device(&running.handle, kind)).transpose()?;
    if let Some(companion) = asked.companion {
        companion(&Started { name: name.clone(), control: &control_path, exports: &exports });
    }
    let mut result = running.end();
    if let Some(device) = device {
        let is_upgrade = matches!(result, Ok(Ended { handed: Some(_), .. }));
        result = result.and_then(|ended| end_device(device, &name, is_upgrade).map(|()| ended));
    }
    guests.into_iter().for_each(Listening::stop);
    if let Some(recording) = recording {
        recording.join();
    }
    let (handed, stopped) = match result {
        Ok(Ended { handed: Some(handed), ledger }) => (handed, without_ledger(ledger)),
        other => {
            control.stop();
            return other.and_then(|ended| without_ledger(ended.ledger)).map(|()| None);
        }
    };
    let is_stopped = control.hand_over();
    let (control, http) = sockets;
    match handed.binary.clone() {
        Some(_) if is_stopped => {
            tracing::info!("a signal has stopped the volume: no other program goes on");
            stopped.map(|()| None)
        }
        Some(binary) => Ok(Some(Successor::new(handed, binary, control, http))),
        None => {
            match handover::store::keep(handed, &control, http.as_ref()) {
                Ok(clients) => {
                    tracing::info!(clients, "systemd keeps the clients for the next start");
                }
                Err(error) => {
                    tracing::error!(%error, "systemd did not take the clients: they are cut off");
                }
            }
            stopped.map(|()| None)
        }
    }
}

/// Fails if the legs of a stopped volume still rely on a ledger.
fn without_ledger(ledger: Option<PathBuf>) -> Result<(), ServeError> {
    ledger.map_or(Ok(()), |path| Err(ServeError::LedgerNeeded { path }))
}

/// Returns true if the state handed over belongs to the legs' volume.
fn of_this_volume(inherited: &Inheritance, opened: &OpenedVolume) -> bool {
    let is = inherited.is_of(opened.opening.superblock.volume_id);
    if !is {
        tracing::error!("the previous program served another volume, and its clients are cut off");
    }
    is
}

/// Serves the disks of virtual machines, each on its own thread.
fn serve_guests(guests: Vec<GuestListener>, reactor: &ReactorHandle) -> Vec<Listening> {
    let serve = |(export, guest): (u16, GuestListener)| {
        let name = guest.name().to_owned();
        let served = guest.spawn(export, reactor.clone());
        served.inspect_err(|error| tracing::error!(name, %error, "the disk is not served")).ok()
    };
    (0..).zip(guests).filter_map(serve).collect()
}

/// The thread that creates the block device.
struct Attaching {
    thread: JoinHandle<Result<String, DeviceError>>,
    /// True once it has failed. It then has the volume closed, and may end later than the
    /// volume.
    failed: Arc<AtomicBool>,
}

/// Creates the volume's block device on a thread of its own, because the kernel already sends
/// requests while it creates one. If that fails, the volume is closed.
fn attach_device(reactor: &ReactorHandle, kind: DeviceKind) -> Result<Attaching, ServeError> {
    let (reactor, failed) = (reactor.clone(), Arc::new(AtomicBool::new(false)));
    let has_failed = Arc::clone(&failed);
    let attach = move || {
        device::attach(&reactor, kind).inspect_err(|error| {
            has_failed.store(true, Ordering::Release);
            tracing::error!(%error, "the volume is not a block device: it is closed");
            let reply = Box::new(|_| ());
            let _ = reactor.send(ReactorMessage::Shutdown { drain: 0, reply });
        })
    };
    std::thread::Builder::new()
        .name("hemi-device".into())
        .spawn(attach)
        .map(|thread| Attaching { thread, failed })
        .map_err(ServeError::Reactor)
}

/// Waits for the block device's thread now that the volume is closed, and returns or logs its
/// result.
fn end_device(attaching: Attaching, name: &str, is_upgrade: bool) -> Result<(), ServeError> {
    let Attaching { thread, failed } = attaching;
    if !thread.is_finished() && !failed.load(Ordering::Acquire) {
        // The thread waits for a reactor that has ended. The kernel will too, for the next one.
        return Ok(());
    }
    match thread.join() {
        Ok(Ok(_)) if is_upgrade => Ok(()),
        Ok(Ok(path)) => {
            tracing::info!(
                path,
                "the block device stays: requests wait for the next hemi serve of {name}; \
                 hemi detach-device --volume {name} removes it"
            );
            Ok(())
        }
        Ok(Err(DeviceError::Reactor(ReactorError::Ended))) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(ServeError::Reactor(io::Error::other("the device's thread panicked"))),
    }
}

/// Begins a recording of the volume's requests in a new file.
fn record_to(path: &Path, opened: &OpenedVolume) -> Result<(Recorder, Recording), ServeError> {
    let superblock = &opened.opening.superblock;
    let volume_bytes = superblock.layout.volume_bytes();
    record::begin(path, &opened.name(), volume_bytes, superblock.block_bytes)
        .map_err(|source| ServeError::Record { path: path.into(), source })
}

pub(crate) fn check(config: &Config, opened: &OpenedVolume) -> Result<(), ServeError> {
    let superblock = &opened.opening.superblock;
    if let Some(wanted) = &config.volume
        && *wanted != opened.name()
    {
        let (wanted, found) = (wanted.clone(), opened.name());
        return Err(ServeError::OtherVolume { wanted, found });
    }
    for (slot, leg) in &opened.legs {
        let name = opened.leg_name(*slot);
        let needed = superblock.layout.data_offset() + superblock.layout.volume_bytes();
        if leg.size() < needed {
            return Err(ServeError::Refused(format!(
                "leg {name}: has {} bytes, the volume needs {needed}; it was truncated: replace it",
                leg.size()
            )));
        }
        if leg.block() > superblock.block_bytes {
            let (leg, block) = (name, leg.block());
            return Err(ServeError::Block { leg, block, volume: superblock.block_bytes });
        }
    }
    Ok(())
}

/// Returns every export, or if none is configured, one on a unix socket in the run directory.
fn exports_of(config: &Config, opened: &OpenedVolume) -> Result<GateFiles, ServeError> {
    let superblock = &opened.opening.superblock;
    let options = ExportOptions {
        volume: opened.name(),
        size: superblock.layout.volume_bytes(),
        block: superblock.block_bytes,
        buffer_budget: config.buffer_budget.0,
    };
    let mut exports = config.exports.clone();
    if exports.is_empty() {
        let folder = run_directory().map_err(ListenError::from)?;
        let path = VolumeSocket::Nbd.path(&folder, &opened.name());
        exports.push(ExportConfig::new(crate::config::exports::Listen::Unix(path)));
    }
    Ok(GateFiles { exports, options })
}

fn listen(
    gates: &GateFiles,
    mut inherited: Option<&mut Inheritance>,
) -> Result<Vec<Listener>, ServeError> {
    let mut listeners = Vec::new();
    for (index, export) in gates.exports.iter().enumerate() {
        let sockets = match &mut inherited {
            Some(inherited) => inherited.take_listeners(&export.nbd.to_string()),
            None => Vec::new(),
        };
        listeners.extend(Listener::open(index, export, &gates.options, sockets)?);
    }
    Ok(listeners)
}

/// The options of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct ReactorOptions {
    /// The engine's settings.
    pub settings: Settings,
    /// Bytes of memory for payload.
    pub buffer_budget: u64,
    /// True if faults may be injected.
    pub allow_inject: bool,
}

/// A reactor's thread.
#[derive(Debug)]
pub struct Running {
    /// The handle for messages to the reactor.
    pub handle: ReactorHandle,
    thread: JoinHandle<Result<Ended, ServeError>>,
}

impl Running {
    /// Returns true if the volume is no longer served.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the volume to be closed.
    ///
    /// # Errors
    /// Returns [`ServeError::Reactor`] if the event loop ended by itself,
    /// [`ServeError::Halted`] if the engine halted, or [`ServeError::LedgerNeeded`] if the legs
    /// still rely on the ledger.
    pub fn join(self) -> Result<(), ServeError> {
        self.end().and_then(|ended| without_ledger(ended.ledger))
    }

    /// Waits for the volume to be closed, and returns how it was.
    fn end(self) -> Result<Ended, ServeError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(ServeError::Reactor(io::Error::other("the reactor's thread panicked"))),
        }
    }
}

/// Starts the reactor's thread.
///
/// # Errors
/// Fails with [`ServeError::Buffers`], [`ServeError::Ring`] or [`ServeError::Reactor`] before
/// any leg has been written to.
pub fn start(
    opened: OpenedVolume,
    options: ReactorOptions,
    listeners: Vec<Listener>,
    snapshot: Snapshot,
) -> Result<Running, ServeError> {
    let front = Front { listeners, recorder: None, inherited: None };
    start_with(opened, options, front, snapshot).map(|(running, _)| running)
}

/// The reactor's listeners and clients.
struct Front {
    listeners: Vec<Listener>,
    recorder: Option<Recorder>,
    /// The clients of the previous program.
    inherited: Option<(CarriedClients, HandoverReport)>,
}

fn start_with(
    opened: OpenedVolume,
    options: ReactorOptions,
    front: Front,
    mut snapshot: Snapshot,
) -> Result<(Running, NoticeReceiver), ServeError> {
    let Front { listeners, recorder, inherited } = front;
    let (messages, inbox) = sync_channel(MESSAGES_MAX);
    let (started, outcome) = sync_channel(1);
    let (notices, noticed) = Notices::new();
    snapshot.phase = Phase::Opening;
    let published = Arc::new(ArcSwap::from_pointee(snapshot));
    let shared = Arc::clone(&published);
    let (sender, snapshots) = (messages.clone(), Arc::clone(&published));
    let reactor_itself = move |waker| ReactorHandle::new(sender, waker, snapshots);
    let run = move || {
        // The ring belongs to the thread that made it.
        let (ring, arena) = match prepare(options.buffer_budget) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = started.send(Err(error));
                return Ok(Ended::default());
            }
        };
        let waker = ring.waker();
        let spans = arena.spans();
        let inbox = Inbox { messages: inbox, published: shared, notices };
        match build(ring, arena, opened, options, listeners, inbox) {
            Ok(mut reactor) => {
                if let Some(recorder) = recorder {
                    reactor.record(recorder);
                }
                if let Some((clients, report)) = inherited {
                    reactor.take_on(clients, report);
                }
                populating::spawn(spans, reactor_itself(waker.clone()));
                crate::priority::raise();
                let _ = started.send(Ok(waker));
                reactor.run().inspect_err(|error| {
                    tracing::error!(%error, "serving ended; the volume is as after a kill");
                })
            }
            Err(error) => {
                let _ = started.send(Err(error));
                Ok(Ended::default())
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("hemi-reactor".into())
        .spawn(run)
        .map_err(ServeError::Reactor)?;
    match outcome.recv() {
        Ok(Ok(waker)) => {
            let handle = ReactorHandle::new(messages, waker, published);
            Ok((Running { handle, thread }, noticed))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ServeError::Reactor(io::Error::other("the reactor's thread panicked"))),
    }
}

fn prepare(budget: u64) -> Result<(Ring, Arena), ServeError> {
    let mut ring = Ring::new()?;
    ring.poll_sockets()?;
    let arena = Arena::new(budget)
        .map_err(|source| ServeError::Buffers { budget: hemi_units::Size(budget), source })?;
    Ok((ring, arena))
}

struct Inbox {
    messages: std::sync::mpsc::Receiver<crate::messages::ReactorMessage>,
    published: Arc<ArcSwap<Snapshot>>,
    notices: Notices,
}

fn build(
    mut ring: Ring,
    arena: Arena,
    opened: OpenedVolume,
    options: ReactorOptions,
    listeners: Vec<Listener>,
    inbox: Inbox,
) -> Result<Reactor, ServeError> {
    let mut traits = [LegTraits::default(); LEGS_MAX];
    for (slot, leg) in &opened.legs {
        traits[slot.index()] = leg.traits();
    }
    let entropy = random::bytes().map_err(ServeError::Reactor)?;
    let budget = arena.budget();
    let entropy = u64::from_ne_bytes(entropy);
    let now = clock::now();
    let OpenedVolume { opening, ledger, .. } = opened;
    let mut engine = Engine::open(opening, options.settings, traits, ledger, arena, now, entropy);
    let known = Arc::clone(&inbox.published.load().differences);
    engine.know_differences(known.for_engine(), known.uncounted_sectors());
    let exports = Exports::new(listeners, budget, &mut ring);
    let mut reactor = Reactor::new(Parts {
        ring,
        engine,
        exports,
        messages: inbox.messages,
        published: inbox.published,
        allow_inject: options.allow_inject,
        notices: inbox.notices,
    });
    for (slot, leg) in opened.legs {
        reactor.install(slot, leg).map_err(ServeError::Reactor)?;
    }
    // A client with a handle may ask for a leg at once.
    reactor.publish();
    Ok(reactor)
}
