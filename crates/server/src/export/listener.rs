//! Listeners for clients: unix and TCP sockets, each with its own export and bounds. The
//! kernel's own client does not connect and is given its socket instead.

use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use hemi_nbd::codec::{BlockSize, CONTEXT_BASE_ALLOCATION, CONTEXT_HEMI_COPIES, TransmissionFlags};
use hemi_nbd::server::{Export, ServerConfig, ServerSession, TlsMode};
use hemi_units::{Instant, MILLISECOND};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::request_bytes_max;
use crate::config::exports::{ExportConfig, Listen};
use crate::control::socket::{OwnedSocket, SocketError, SocketFile};
use crate::handover::state::ListenerState;
use hemi_io::config::tls::Access;
use hemi_io::ring::{Ring, RingFile, Source, Tag};
use hemi_io::slots::SlotId;
use hemi_io::tls::{Clients, Tls};

/// Index of `base:allocation` among an export's contexts.
pub(super) const CONTEXT_ALLOCATION: usize = 0;
/// Index of `hemi:copies`.
pub(super) const CONTEXT_COPIES: usize = 1;

/// Mode of an NBD socket's file. Everyone who may write it can read and write the volume.
const SOCKET_MODE: u32 = 0o600;
/// TCP keepalive of clients: the idle time before the first probe, the time between probes, and
/// the number of unanswered probes after which the client is given up, two minutes after its
/// machine died.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;
/// Pause after a failed accept (mostly for lack of descriptors).
const RETRY_AFTER: u64 = 100 * MILLISECOND;

/// An error in creating a listener.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The unix socket could not be bound.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The TCP address could not be bound.
    #[error("cannot listen on {address}: {source} (--nbd)")]
    Tcp {
        /// The address as configured.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The export breaks a rule of the protocol.
    #[error(transparent)]
    Export(#[from] hemi_nbd::server::ConfigError),
    /// A file of the TLS configuration is not usable.
    #[error("TLS for {address}: {reason}")]
    Tls {
        /// The listener's address.
        address: String,
        /// The error.
        reason: String,
    },
}

/// The properties of the export that all listeners of a volume share.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Name of the volume, and of the export unless configured.
    pub volume: String,
    /// Size in bytes.
    pub size: u64,
    /// Smallest request in bytes.
    pub block: u32,
    /// Buffer budget in bytes. It bounds the largest request.
    pub buffer_budget: u64,
}

/// The TLS of an export's clients and the rights that each has after it.
#[derive(Debug)]
pub struct Gate {
    pub(super) tls: Arc<rustls::ServerConfig>,
    clients: Clients,
    /// The export for clients that may only read.
    read_only: Arc<ServerConfig>,
}

impl Gate {
    /// Reads the files of an export's TLS configuration. Returns `None` if it has none.
    ///
    /// # Errors
    /// Returns [`ListenError::Tls`], which names the file, or [`ListenError::Export`].
    pub fn new(
        config: &ExportConfig,
        options: &ExportOptions,
    ) -> Result<Option<Gate>, ListenError> {
        let Some(tls) = &config.tls else { return Ok(None) };
        let failed = |reason| ListenError::Tls { address: config.nbd.to_string(), reason };
        let restricted = ExportConfig { read_only: true, ..config.clone() };
        Ok(Some(Gate {
            tls: hemi_io::tls::serving(tls).map_err(failed)?,
            clients: Clients::new(tls),
            read_only: server_config(&restricted, options)?,
        }))
    }

    /// Gives a client with established TLS the rights it has. Returns false if it has none.
    pub(super) fn admit(&self, tls: &Tls, session: &mut ServerSession) -> bool {
        match self.clients.access(tls) {
            Some(Access::Write) => true,
            Some(Access::Read) => {
                session.serve_by(Arc::clone(&self.read_only));
                true
            }
            None => false,
        }
    }
}

/// The TLS files of all exports, for rereading.
#[derive(Clone, Debug)]
pub struct GateFiles {
    /// The exports as configured.
    pub exports: Vec<ExportConfig>,
    /// The volume they export.
    pub options: ExportOptions,
}

impl GateFiles {
    /// Reads all of them. Returns a gate for each export that has TLS.
    ///
    /// # Errors
    /// Returns the errors of [`Gate::new`].
    pub fn read(&self) -> Result<Vec<Option<Arc<Gate>>>, ListenError> {
        let read = |export| Ok(Gate::new(export, &self.options)?.map(Arc::new));
        self.exports.iter().map(read).collect()
    }
}

/// Bounds on one listener's connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) connections_max: u32,
    pub(super) in_flight_requests_max: u32,
    pub(super) in_flight_bytes_max: u64,
}

/// A bound socket that does not accept yet.
pub struct Listener {
    /// `unix:PATH` or `tcp:HOST:PORT`, with the port that was bound.
    pub(super) name: String,
    /// The address as configured, and the socket's number among those of the address.
    known: (String, u32),
    /// The socket, or `None` for the kernel's client.
    descriptor: Option<OwnedFd>,
    tcp: bool,
    /// The socket's file, which is removed with the listener.
    file: Option<SocketFile>,
    /// True while an accept is in the ring.
    pub(super) accepting: bool,
    ring_file: Option<RingFile>,
    pub(super) config: Arc<ServerConfig>,
    /// Index of the configured export that it serves.
    pub(super) export: usize,
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) options: Bounds,
    /// Number of open connections.
    pub(super) open: u32,
    /// A client beyond the maximum. It is admitted when one that is leaving has left.
    pub(super) held: Option<OwnedFd>,
    /// The time to accept again after a failure.
    pub(super) retry_at: Instant,
}

impl Listener {
    /// Binds the address of `config`, the configured export number `export`. The volume is
    /// described by `options`.
    ///
    /// # Errors
    /// Returns a [`ListenError`] if the address is taken, not allowed or not there, or if the
    /// export breaks a rule of the protocol.
    pub fn bind(
        export: usize,
        config: &ExportConfig,
        options: &ExportOptions,
    ) -> Result<Vec<Listener>, ListenError> {
        Listener::open(export, config, options, Vec::new())
    }

    /// Binds like [`Listener::bind`], but takes over the sockets that a predecessor had bound
    /// for the address, in order. Sockets that have changed are bound anew.
    pub(crate) fn open(
        export: usize,
        config: &ExportConfig,
        options: &ExportOptions,
        inherited: Vec<OwnedFd>,
    ) -> Result<Vec<Listener>, ListenError> {
        let gate = Gate::new(config, options)?.map(Arc::new);
        let server = server_config(config, options)?;
        let make = |index: usize, name, descriptor, tcp, file| Listener {
            known: (config.nbd.to_string(), index as u32),
            descriptor: Some(descriptor),
            tcp,
            file,
            export,
            gate: gate.clone(),
            ..Listener::unbound(name, config, Arc::clone(&server))
        };
        match &config.nbd {
            Listen::Unix(path) => {
                let mut inherited = inherited.into_iter();
                let kept = inherited.next().and_then(|socket| OwnedSocket::adopt(path, socket));
                let socket = match kept {
                    Some(socket) => socket,
                    None => OwnedSocket::bind(path, SOCKET_MODE, "--nbd")?,
                };
                let (listener, file) = socket.into_parts();
                let name = config.nbd.to_string();
                Ok(vec![make(0, name, listener.into(), false, Some(file))])
            }
            Listen::Tcp { host, port } => {
                let inherited: Vec<_> = inherited.into_iter().map(TcpListener::from).collect();
                let sockets = match inherited.is_empty() {
                    false => inherited,
                    true => bind_tcp(host, *port).map_err(|source| ListenError::Tcp {
                        address: config.nbd.to_string(),
                        source,
                    })?,
                };
                let name = |socket: &TcpListener| match socket.local_addr() {
                    Ok(address) => format!("tcp:{address}"),
                    Err(_) => config.nbd.to_string(),
                };
                Ok(sockets
                    .into_iter()
                    .enumerate()
                    .map(|(index, socket)| make(index, name(&socket), socket.into(), true, None))
                    .collect())
            }
        }
    }

    /// Returns the listener of the kernel's client, which is given its one connection. It
    /// exports the volume that `options` describes, without restrictions.
    ///
    /// # Errors
    /// Returns [`ListenError::Export`].
    pub(super) fn of_kernel(name: &str, options: &ExportOptions) -> Result<Listener, ListenError> {
        let config = ExportConfig::new(Listen::Unix(name.into()));
        let server = server_config(&config, options)?;
        Ok(Listener::unbound(name.to_owned(), &config, server))
    }

    fn unbound(name: String, config: &ExportConfig, server: Arc<ServerConfig>) -> Listener {
        Listener {
            name,
            known: Default::default(),
            descriptor: None,
            tcp: false,
            file: None,
            accepting: false,
            ring_file: None,
            config: server,
            export: usize::MAX,
            gate: None,
            options: Bounds {
                connections_max: config.limits.connections_max,
                in_flight_requests_max: config.limits.in_flight_requests_max,
                in_flight_bytes_max: config.limits.in_flight_bytes_max.0,
            },
            open: 0,
            held: None,
            retry_at: Instant::NEVER,
        }
    }

    /// Returns true if it belongs to the kernel's client.
    pub(super) fn is_kernels(&self) -> bool {
        self.descriptor.is_none()
    }

    /// Begins a session with a client.
    pub(super) fn session(&self, output: &mut Vec<u8>) -> ServerSession {
        let config = Arc::clone(&self.config);
        match self.descriptor {
            Some(_) => ServerSession::new(config, output),
            None => ServerSession::past_handshake(config),
        }
    }

    /// Returns `unix:PATH` or `tcp:ADDRESS:PORT`, with the port that was bound.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins to accept.
    pub(super) fn start(&mut self, ring: &mut Ring, owner: u16) {
        self.retry_at = Instant::NEVER;
        if let (None, Some(descriptor)) = (self.ring_file, &self.descriptor) {
            self.ring_file = Some(RingFile::of(descriptor));
        }
        self.rearm(ring, owner);
    }

    /// Accepts the next client.
    pub(super) fn rearm(&mut self, ring: &mut Ring, owner: u16) {
        if let Some(file) = self.ring_file {
            self.accepting = true;
            let id = SlotId { slot: 0, generation: 0 };
            ring.accept(file, Tag { source: Source::Listener, owner, id });
        }
    }

    /// Handles a failed accept: tries again later unless the volume is closing.
    pub(super) fn failed(&mut self, now: Instant, errno: Errno, stopped: bool) {
        if !stopped {
            tracing::warn!(listener = %self.name, %errno, "a client could not be accepted");
            self.retry_at = now + RETRY_AFTER;
        }
    }

    /// Returns true if a predecessor knew it as `known`.
    pub(super) fn is_known_as(&self, known: &ListenerState) -> bool {
        self.known.0 == known.address && self.known.1 == known.index
    }

    /// Hands the socket to a successor. Its file stays. Returns `None` for the kernel's client,
    /// which has no socket here.
    pub(super) fn hand_over(self) -> Option<(ListenerState, OwnedFd)> {
        let socket = self.descriptor?;
        if let Some(file) = self.file {
            file.keep();
        }
        let (address, index) = self.known;
        let descriptor = socket.as_raw_fd();
        Some((ListenerState { address, index, descriptor }, socket))
    }

    /// Sets a new connection's socket options. Failures only cost speed.
    pub(super) fn tune(&self, descriptor: &OwnedFd) {
        if self.tcp {
            let _ = sockopt::set_tcp_nodelay(descriptor, true);
            let _ = sockopt::set_socket_keepalive(descriptor, true);
            let _ = sockopt::set_tcp_keepidle(descriptor, KEEPALIVE_IDLE);
            let _ = sockopt::set_tcp_keepintvl(descriptor, KEEPALIVE_INTERVAL);
            let _ = sockopt::set_tcp_keepcnt(descriptor, KEEPALIVE_PROBES);
        }
    }

    /// Returns the name of a new connection for logs.
    pub(super) fn peer(&self, descriptor: &OwnedFd) -> String {
        if self.descriptor.is_none() {
            return self.name.clone();
        }
        if !self.tcp {
            let process =
                sockopt::socket_peercred(descriptor).map(|who| who.pid.as_raw_nonzero().get());
            return match process {
                Ok(process) => format!("{} (process {process})", self.name),
                Err(_) => self.name.clone(),
            };
        }
        let address = rustix::net::getpeername(descriptor)
            .ok()
            .flatten()
            .and_then(|address| std::net::SocketAddr::try_from(address).ok());
        address.map_or_else(|| self.name.clone(), |address| address.to_string())
    }
}

/// Binds every address of the host. With port 0 each gets its own port.
fn bind_tcp(host: &str, port: u16) -> std::io::Result<Vec<TcpListener>> {
    let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
    let mut sockets = Vec::new();
    for address in addresses {
        sockets.push(TcpListener::bind(address)?);
    }
    if sockets.is_empty() {
        return Err(std::io::Error::other("the name has no address"));
    }
    Ok(sockets)
}

/// Returns the configuration that every session of an export shares.
fn server_config(
    config: &ExportConfig,
    options: &ExportOptions,
) -> Result<Arc<ServerConfig>, ListenError> {
    let mode = match &config.tls {
        None => TlsMode::Off,
        Some(tls) if tls.required => TlsMode::Required,
        Some(_) => TlsMode::Allowed,
    };
    Ok(Arc::new(ServerConfig::new(vec![offer(config, options)], mode)?))
}

/// Returns the features of a volume for a client that may do everything.
pub(crate) fn volume_features() -> TransmissionFlags {
    TransmissionFlags::SEND_FLUSH
        | TransmissionFlags::SEND_FUA
        | TransmissionFlags::SEND_TRIM
        | TransmissionFlags::SEND_WRITE_ZEROES
        | TransmissionFlags::SEND_FAST_ZERO
        | TransmissionFlags::SEND_CACHE
        | TransmissionFlags::CAN_MULTI_CONN
}

/// Returns the export that a listener offers.
fn offer(config: &ExportConfig, options: &ExportOptions) -> Export {
    let mut features = volume_features();
    if config.read_only {
        features = features | TransmissionFlags::READ_ONLY;
    }
    let maximum_payload =
        request_bytes_max(config.limits.request_bytes_max.0, options.buffer_budget);
    Export {
        name: config.name.clone().unwrap_or_else(|| options.volume.clone()),
        description: format!("hemi volume {}", options.volume),
        size: options.size,
        features,
        block_size: BlockSize {
            minimum: options.block,
            preferred: options.block.max(4096),
            maximum_payload,
        },
        contexts: vec![CONTEXT_BASE_ALLOCATION.into(), CONTEXT_HEMI_COPIES.into()],
    }
}
