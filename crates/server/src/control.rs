//! Control: everything about a served volume except its data path, on a thread of its own.
//!
//! The thread runs a tokio event loop. It serves the control API (HTTP/JSON on a unix socket,
//! `docs/control-api.md`), metrics and health (`docs/metrics.md`) and the dashboard (`docs/dashboard.md`),
//! turns signals into requests, and reports the state to systemd. It reads the [`volume::Snapshot`]s that the
//! reactor publishes and sends it typed [`volume::Request`]s. Whatever happens here, the data path goes on.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::serve::ListenerExt as _;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::config::{Config, HttpAddress};
use crate::differences;
use crate::drive;
use crate::handover::{self, Inheritance};

pub mod access;
pub mod api;
pub(crate) mod connections;
pub mod events;
pub mod health;
pub mod hidden;
pub mod history;
pub mod inject;
mod live;
mod metadata;
pub mod metrics;
pub mod named;
mod past;
pub mod progress;
mod routes;
mod scrubs;
mod service;
mod settings;
pub mod socket;
pub mod standbys;
pub mod usage;
pub mod view;
pub mod volume;
pub mod waiting;

use access::{Access, TokenError};
use health::Health;
use past::Past;
use routes::Shared;
pub use routes::is_for_pages;
use scrubs::Scrubs;
use service::Signals;
use socket::{OwnedSocket, SocketError, VolumeSocket};
use volume::Volume;

/// Time that answers in progress are given once the volume is closed. Streams never end by themselves.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// The same limit in an upgrade, while clients wait. All answers but streams end at once.
const UPGRADE_ANSWERS: Duration = Duration::from_millis(50);
/// Interval between two looks at the volume's conditions.
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// The reason why the control thread could not start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The control socket could not be bound.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The HTTP listener could not be bound.
    #[error("cannot listen on {address}: {source} (--http)")]
    Http {
        /// `HOST:PORT`.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The HTTP listener's token could not be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Other machines could reach the HTTP listener, which the configuration does not allow.
    #[error(
        "{address} can be reached from other machines, which needs http_public = true and http_token_file; \
         or listen on a loopback address, such as 127.0.0.1:{} (--http)",
        address.port()
    )]
    Public {
        /// The address that it would listen on.
        address: std::net::SocketAddr,
    },
    /// Signals could not be caught.
    #[error("cannot catch TERM, INT and HUP: {0}")]
    Signals(io::Error),
    /// The thread or its event loop could not be started.
    #[error("cannot start the control thread: {0}")]
    Thread(io::Error),
}

/// The listeners of the control thread. They are bound before the volume is opened, so that a socket that is
/// in use or not allowed is found before anything is started. Signals are caught from here on: whoever sees a
/// socket may stop the volume and gets a clean close.
#[derive(Debug)]
pub struct Listeners {
    runtime: Runtime,
    signals: Signals,
    control: OwnedSocket,
    http: Option<TcpListener>,
    access: Access,
}

impl Listeners {
    /// Catches signals, and binds the control socket (`config.control`, or the volume's socket in the run
    /// directory) and the HTTP listener.
    ///
    /// # Errors
    ///
    /// [`ControlError::Thread`], [`ControlError::Signals`], [`ControlError::Socket`],
    /// [`ControlError::Http`], [`ControlError::Token`] or [`ControlError::Public`].
    pub fn bind(config: &Config, volume: &str) -> Result<Listeners, ControlError> {
        Listeners::open(config, volume, None)
    }

    /// Binds like [`Listeners::bind`], but keeps sockets that a predecessor had bound there.
    pub(crate) fn open(
        config: &Config,
        volume: &str,
        mut inherited: Option<&mut Inheritance>,
    ) -> Result<Listeners, ControlError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ControlError::Thread)?;
        let signals = {
            let _guard = runtime.enter();
            Signals::catch().map_err(ControlError::Signals)?
        };
        let path = match &config.control {
            Some(path) => path.clone(),
            None => VolumeSocket::Control.path(&socket::run_directory()?, volume),
        };
        let known = inherited.as_mut().and_then(|inherited| inherited.control.take());
        let control = match known.and_then(|known| OwnedSocket::adopt(&path, known)) {
            Some(control) => control,
            None => OwnedSocket::bind(&path, socket::CONTROL_MODE, "--control")
                .map_err(|error| named::whose(error, volume))?,
        };
        let known = inherited.and_then(|inherited| inherited.http.take()).map(TcpListener::from);
        let http = match &config.http {
            None => None,
            Some(address) => {
                let fail = |source| ControlError::Http { address: address.to_string(), source };
                let bind = || TcpListener::bind((address.host.as_str(), address.port));
                let known = known.filter(|known| is_bound_to(known, address));
                let listener = known.map_or_else(bind, Ok).map_err(fail)?;
                listener.set_nonblocking(true).map_err(fail)?;
                Some(listener)
            }
        };
        let address = http.as_ref().and_then(|listener| listener.local_addr().ok());
        // A name is resolved only now.
        if let Some(address) = address.filter(|address| !address.ip().is_loopback())
            && !config.http_public
        {
            return Err(ControlError::Public { address });
        }
        let access = Access::new(config, address)?;
        Ok(Listeners { runtime, signals, control, http, access })
    }

    /// Duplicates the descriptors of the control socket and the HTTP listener, for a successor.
    ///
    /// # Errors
    ///
    /// [`ControlError::Thread`].
    pub(crate) fn duplicate(&self) -> Result<(OwnedFd, Option<OwnedFd>), ControlError> {
        let control = self.control.duplicate().map_err(ControlError::Thread)?;
        let http = self.http.as_ref().map(TcpListener::try_clone).transpose();
        Ok((control, http.map_err(ControlError::Thread)?.map(OwnedFd::from)))
    }

    /// Returns the path of the control socket.
    pub(crate) fn control_path(&self) -> &std::path::Path {
        self.control.path()
    }

    /// Returns the HTTP listener's address, with the actual port if port 0 was configured.
    pub fn http_address(&self) -> Option<std::net::SocketAddr> {
        self.http.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// [`ControlError::Thread`].
    pub fn spawn(
        self,
        config: Arc<Config>,
        volume: Arc<dyn Volume>,
    ) -> Result<ControlThread, ControlError> {
        let Listeners { runtime, signals, control, http, access } = self;
        let (stop, stopped) = watch::channel(false);
        let id = volume.snapshot().identity.id;
        let past = Past::begin(&config.state, id);
        // If no state is kept, the history has logged that already.
        let scrubs = crate::state::file(&config.state, id, scrubs::EXTENSION).ok();
        let differences = crate::state::file(&config.state, id, differences::EXTENSION).ok();
        let known = Arc::clone(&volume.snapshot().differences);
        let shared = Shared {
            past: Arc::new(past),
            viewers: Arc::default(),
            volume,
            config: Arc::new(ArcSwap::new(config)),
            changing: Arc::default(),
            history: Arc::default(),
            scrubs: Arc::new(Mutex::new(Scrubs::new(scrubs, differences, known))),
            life: Arc::new(Life { is_stopped: signals.is_stopped(), ..Life::default() }),
            drives: Arc::default(),
            lost_metadata: Arc::default(),
            access: Arc::new(access),
        };
        let life = Arc::clone(&shared.life);
        let (volume, config) = (Arc::clone(&shared.volume), shared.config.load());
        let (smart, state) = (config.smart, config.state.clone());
        let watching = drive::watch::spawn(volume, smart, state, Arc::clone(&shared.drives))
            .map_err(ControlError::Thread)?;
        let handle = std::thread::Builder::new()
            .name("hemi-control".into())
            .spawn(move || runtime.block_on(serve(control, http, signals, shared, stopped)))
            .map_err(ControlError::Thread)?;
        Ok(ControlThread { stop, life, handle, _watching: watching })
    }
}

async fn serve(
    control: OwnedSocket,
    http: Option<TcpListener>,
    signals: Signals,
    shared: Shared,
    stopped: watch::Receiver<bool>,
) {
    let service = tokio::spawn(service::attend(signals, shared.clone()));
    let (listener, file) = control.into_parts();
    let http = http.map(tokio::net::TcpListener::from_std);
    let control = tokio::net::UnixListener::from_std(listener);
    let (control, http) = match (control, http.transpose()) {
        (Ok(control), Ok(http)) => (control, http),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "control is not served; signals still stop the volume");
            wait(stopped).await;
            return;
        }
    };
    tracing::info!(path = %file.path().display(), "control socket");
    let sampling = tokio::spawn(sample(shared.clone()));
    let looking = tokio::spawn(look(shared.clone()));
    let judging = tokio::spawn(judge(shared.clone()));
    let publishing = tokio::spawn(live::publish(shared.clone()));
    let (past, volume) = (Arc::clone(&shared.past), Arc::clone(&shared.volume));
    let scrubs = Arc::clone(&shared.scrubs);
    if let Some(listener) = http {
        // Control goes on whatever happens to this task.
        let routes = routes::public(shared.clone());
        // Answers are small and few a second, so each is sent at once. Without this they would only be
        // delayed.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        tokio::spawn(connections::serve(listener, routes, stopped.clone()));
    }
    let (life, last) = (Arc::clone(&shared.life), shared.clone());
    let api = connections::serve(control, routes::control(shared), stopped.clone());
    let patience = async {
        wait(stopped).await;
        let is_upgrade = life.is_handed_over.load(Ordering::Acquire);
        tokio::time::sleep(if is_upgrade { UPGRADE_ANSWERS } else { LAST_ANSWERS }).await;
    };
    tokio::select! {
        () = api => {}
        () = patience => {}
    }
    sampling.abort();
    service.abort();
    looking.abort();
    judging.abort();
    publishing.abort();
    past.look(&*volume);
    let newest = Arc::clone(&volume.snapshot().differences);
    scrubs.lock().unwrap_or_else(PoisonError::into_inner).keep_differences(&newest);
    if life.is_handed_over.load(Ordering::Acquire) {
        past.end(None);
        file.keep();
    } else {
        let (status, left) = last.left();
        match left.state {
            Health::Healthy => tracing::info!(legs = left.text, "no longer served"),
            _ => tracing::warn!(legs = left.text, "no longer served"),
        }
        past.end(Some(events::stopped(&status, &left)));
        service::stopping();
    }
}

/// Returns true if a listener is bound to the address.
fn is_bound_to(listener: &TcpListener, address: &HttpAddress) -> bool {
    use std::net::ToSocketAddrs as _;
    let Ok(bound) = listener.local_addr() else { return false };
    let Ok(mut wanted) = (address.host.as_str(), address.port).to_socket_addrs() else {
        return false;
    };
    // Port 0 accepts any port.
    wanted.any(|one| one.ip() == bound.ip() && (one.port() == bound.port() || one.port() == 0))
}

/// The end of the service, shared by the control thread and its owner.
#[derive(Debug, Default)]
struct Life {
    /// True once another program has taken over: sockets stay, and the service does not end.
    is_handed_over: AtomicBool,
    /// True once a signal has asked for the volume to be stopped. Its handler says so itself, since a
    /// signal may come when no task waits for signals any more.
    is_stopped: Arc<AtomicBool>,
}

/// Waits until the owner says stop or is gone.
async fn wait(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Samples snapshots at intervals, see [`history::History`].
async fn sample(shared: Shared) {
    let mut ticks = tokio::time::interval(history::SAMPLE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let snapshot = shared.volume.snapshot();
        if snapshot.phase != volume::Phase::Opening {
            shared.scrubs().keep_differences(&snapshot.differences);
            shared.history.lock().unwrap_or_else(PoisonError::into_inner).sample(snapshot);
        }
    }
}

/// Records events at intervals, see [`Past`].
async fn look(shared: Shared) {
    let mut ticks = tokio::time::interval(past::LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        shared.past.look(&*shared.volume);
        for (leg, verdict) in shared.drives.take_judged() {
            let snapshot = shared.volume.snapshot();
            shared.past.happened(events::of_verdict(&snapshot, leg, verdict.as_ref()));
        }
    }
}

/// Records changes of the worst condition.
async fn judge(shared: Shared) {
    let mut ticks = tokio::time::interval(JUDGE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        shared.past.judged(&shared.status());
    }
}

/// The running control thread.
#[derive(Debug)]
pub struct ControlThread {
    stop: watch::Sender<bool>,
    life: Arc<Life>,
    handle: std::thread::JoinHandle<()>,
    /// Polling of the drives, which ends when this is dropped.
    _watching: drive::watch::Watching,
}

impl ControlThread {
    /// Stops serving, removes the socket's file and ends the thread. Answers in progress are given a moment.
    pub fn stop(self) {
        self.end();
    }

    /// Stops serving and leaves the sockets to a successor. Returns true if a signal has asked for the volume
    /// to be stopped; then there must be no successor.
    pub(crate) fn hand_over(self) -> bool {
        let life = Arc::clone(&self.life);
        life.is_handed_over.store(true, Ordering::Release);
        self.end();
        // From here on TERM ends the process, which has nothing left to close.
        handover::reset_signals();
        life.is_stopped.load(Ordering::Acquire)
    }

    fn end(self) {
        // The thread may have ended already; then there is nothing to stop.
        let _ = self.stop.send(true);
        if self.handle.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

/// Helpers shared by the tests of this module's routes.
#[cfg(test)]
mod tests;
