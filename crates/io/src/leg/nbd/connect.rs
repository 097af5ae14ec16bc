//! Reaching an NBD server: addresses, socket options, and the checks of an export.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hemi_nbd::client::{ClientConfig as SessionConfig, ClientError, ExportInfo};
use hemi_nbd::codec::TransmissionFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::{IN_FLIGHT_MAX, NbdOptions};
use crate::config::legs::{LegSpec, LegTls};
use crate::leg::open::Purpose;
use crate::ring::SocketAddress;
use crate::tls::{self, Tls};

/// Longest a connect, and each send or receive of a blocking session, may take.
pub(super) const BLOCKING_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time after which TCP probes the peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Time between such probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of unanswered probes after which the session is lost.
const KEEPALIVE_PROBES: u32 = 5;
/// Time in milliseconds for which sent data may stay unacknowledged by the peer's system before
/// the session is lost. The system of a frozen server still acknowledges.
const USER_TIMEOUT_MS: u32 = 20_000;
/// Largest minimum block size of an export in bytes, the same as for drives.
const BLOCK_BYTES_MAX: u32 = 4096;

/// An error that keeps an NBD export from being a leg.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The host's name cannot be resolved.
    #[error("the host name cannot be resolved: {0}")]
    Resolve(#[source] io::Error),
    /// Nobody listens there.
    #[error("no connection to the server: {0}; check that it runs and listens there")]
    Connect(#[source] io::Error),
    /// The server accepts connections but does not answer.
    #[error("the server did not answer for {} s; it may be frozen, or speak another protocol", BLOCKING_TIMEOUT.as_secs())]
    Silent,
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Socket(#[source] io::Error),
    /// The certificates, keys or names for TLS are not usable.
    #[error("TLS cannot be set up: {0}")]
    TlsConfig(String),
    /// TLS with the server failed.
    #[error("TLS with the server failed: {0}; check its certificate, its name, and ours")]
    Tls(String),
    /// The server refused the session or broke the protocol.
    #[error(transparent)]
    Session(#[from] ClientError),
    /// The export cannot be written.
    #[error("the export is read-only; start the server with writing allowed")]
    ReadOnly,
    /// The export has no flush.
    #[error(
        "the export offers no flush, so nothing on it could be promised to be durable; use a \
         server, or a cache mode, that flushes"
    )]
    NoFlush,
    /// The export's blocks are too large.
    #[error("the export's minimum block is {0} bytes; hemi handles up to {BLOCK_BYTES_MAX}")]
    Block(u32),
    /// The export has become smaller.
    #[error("the export has {now} bytes now, {before} are needed")]
    Shrunk {
        /// Its size now, in bytes.
        now: u64,
        /// The size needed, in bytes.
        before: u64,
    },
}

impl NbdError {
    /// Returns true if nobody serves the export: the host, its server or the connection is
    /// gone.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            NbdError::Resolve(_)
                | NbdError::Connect(_)
                | NbdError::Silent
                | NbdError::Closed
                | NbdError::Socket(_)
        )
    }
}

/// Checks that an export can be the leg it is opened as.
pub(super) fn check(export: &ExportInfo, purpose: Purpose) -> Result<(), NbdError> {
    if export.block_size.minimum > BLOCK_BYTES_MAX {
        return Err(NbdError::Block(export.block_size.minimum));
    }
    if purpose == Purpose::Inspect {
        return Ok(());
    }
    if export.flags.contains(TransmissionFlags::READ_ONLY) {
        return Err(NbdError::ReadOnly);
    }
    if !export.flags.contains(TransmissionFlags::SEND_FLUSH) {
        return Err(NbdError::NoFlush);
    }
    Ok(())
}

/// An address to connect to.
#[derive(Clone, Copy, Debug)]
enum Place {
    Tcp(SocketAddr),
    Unix,
}

/// An export and everything needed to connect to it again.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) description: String,
    export: String,
    unix: PathBuf,
    places: Vec<(Place, &'static SocketAddress)>,
    pub(super) options: NbdOptions,
    pub(super) purpose: Purpose,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Target {
    /// Resolves the addresses of `spec`. Host names are resolved here and never again, since
    /// that can block for seconds.
    pub(super) fn new(
        spec: &LegSpec,
        options: NbdOptions,
        tls: Option<&LegTls>,
        purpose: Purpose,
    ) -> Result<Target, NbdError> {
        let mut target = Target {
            description: spec.to_string(),
            export: String::new(),
            unix: PathBuf::new(),
            places: Vec::new(),
            options,
            purpose,
            tls: secure(spec, tls)?,
        };
        match spec {
            LegSpec::NbdTcp { host, port, export, .. } => {
                let addresses =
                    (host.as_str(), *port).to_socket_addrs().map_err(NbdError::Resolve)?;
                target.places = addresses
                    .map(|address| (Place::Tcp(address), SocketAddress::leak(address.into())))
                    .collect();
                target.export.clone_from(export);
            }
            LegSpec::NbdUnix { socket, export, .. } => {
                let address = rustix::net::SocketAddrUnix::new(socket)
                    .map_err(|errno| NbdError::Connect(errno.into()))?;
                target.places.push((Place::Unix, SocketAddress::leak(address.into())));
                target.unix.clone_from(socket);
                target.export.clone_from(export);
            }
            LegSpec::Path(_)
            | LegSpec::Stripe { .. }
            | LegSpec::End(_)
            | LegSpec::External { .. } => {}
        }
        if target.places.is_empty() {
            let none = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(NbdError::Resolve(none));
        }
        Ok(target)
    }

    /// Returns the settings to negotiate.
    pub(super) fn session_config(&self) -> SessionConfig {
        let mut config = SessionConfig::new(self.export.clone());
        config.in_flight = IN_FLIGHT_MAX;
        config.tls = self.is_secure();
        config
    }

    /// Returns true if the export is reached through TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Begins TLS on a connection.
    pub(super) fn begin_tls(&self) -> Result<Tls, NbdError> {
        let Some((config, name)) = &self.tls else {
            return Err(NbdError::TlsConfig("nobody asked for it".into()));
        };
        Tls::connect(Arc::clone(config), name.clone())
            .map_err(|error| NbdError::Tls(error.to_string()))
    }

    /// Connects and waits for the connection. Tries every address in turn, and returns the last
    /// one's error if all fail.
    pub(super) fn connect_blocking(&self) -> Result<OwnedFd, NbdError> {
        let mut failure = NbdError::Closed;
        for (place, _) in &self.places {
            let connected = match place {
                Place::Tcp(address) => {
                    TcpStream::connect_timeout(address, BLOCKING_TIMEOUT).map(OwnedFd::from)
                }
                Place::Unix => UnixStream::connect(&self.unix).map(OwnedFd::from),
            };
            match connected {
                Ok(socket) => {
                    self.tune(&socket, *place).map_err(NbdError::Socket)?;
                    return Ok(socket);
                }
                Err(error) => failure = NbdError::Connect(error),
            }
        }
        Err(failure)
    }

    /// Creates a socket to be connected through the ring. Returns it and the address. `attempt`
    /// chooses among several addresses in turn.
    pub(super) fn socket(&self, attempt: usize) -> io::Result<(OwnedFd, &'static SocketAddress)> {
        let (place, address) = self.places[attempt % self.places.len()];
        let family = match place {
            Place::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Place::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Place::Unix => AddressFamily::UNIX,
        };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        self.tune(&socket, place)?;
        Ok((socket, address))
    }

    fn tune(&self, socket: &OwnedFd, place: Place) -> io::Result<()> {
        if let Place::Tcp(_) = place {
            sockopt::set_tcp_nodelay(socket, true)?;
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
            sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
            sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
        }
        Ok(())
    }
}

/// Returns the TLS settings and the server's name if the export is reached through TLS.
fn secure(
    spec: &LegSpec,
    table: Option<&LegTls>,
) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, NbdError> {
    let Some(uri) = spec.tls() else { return Ok(None) };
    let merged = LegTls::merged(uri, table);
    let host = match (&merged.hostname, spec) {
        (Some(name), _) => name.as_str(),
        (None, LegSpec::NbdTcp { host, .. }) => host.as_str(),
        (None, _) => "localhost",
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| {
        NbdError::TlsConfig(format!("{host:?} cannot be the name in a certificate: {error}"))
    })?;
    let config = tls::connecting(&merged).map_err(NbdError::TlsConfig)?;
    Ok(Some((config, name)))
}

/// Bounds the time of blocking calls on a socket. `None` removes the bound.
pub(super) fn set_timeouts(socket: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, timeout)?;
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, timeout)?;
    Ok(())
}
