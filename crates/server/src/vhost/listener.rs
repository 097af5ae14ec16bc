//! The socket of a virtual machine's disk, and the thread that talks to front ends.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::QUEUES_MAX;
use super::abi::Disk;
use super::session::Session;
use crate::config::vhost::VhostConfig;
use crate::control::socket::{OwnedSocket, SocketError, SocketFile};
use crate::export::Complaints;
use crate::messages::ReactorHandle;
use hemi_io::clock;

/// Mode of the socket's file. Everyone who may write it can read and write the volume.
const SOCKET_MODE: u32 = 0o600;
/// Size of a message's header in bytes.
const HEADER_BYTES: u64 = 12;
/// Time for the rest of a message to arrive.
pub const MESSAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between two checks for the rest of a header, and after a failed accept.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// A bound socket that is not served yet.
pub(crate) struct GuestListener {
    name: String,
    read_only: bool,
    socket: UnixListener,
    file: SocketFile,
}

/// The state that the thread shares with its owner, which ends it.
struct Shared {
    ending: OwnedFd,
    /// The connection being served. The owner shuts it down.
    stream: Mutex<Option<UnixStream>>,
}

impl Shared {
    fn set(&self, stream: Option<UnixStream>) {
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }
}

/// A socket being served.
pub(crate) struct Listening {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl GuestListener {
    /// Binds the configured socket.
    ///
    /// # Errors
    /// Returns a [`SocketError`].
    pub(crate) fn bind(config: &VhostConfig) -> Result<GuestListener, SocketError> {
        let (socket, file) =
            OwnedSocket::bind(&config.socket, SOCKET_MODE, "--vhost")?.into_parts();
        let name = format!("vhost:{}", config.socket.display());
        Ok(GuestListener { name, read_only: config.read_only, socket, file })
    }

    /// Returns its name in logs.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Serves front ends on a thread of its own. `export` is its number among the volume's.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn spawn(self, export: u16, reactor: ReactorHandle) -> io::Result<Listening> {
        let ending = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { ending, stream: Mutex::new(None) });
        let server = Server {
            export,
            listener: self,
            reactor,
            shared: Arc::clone(&shared),
            complaints: Complaints::default(),
        };
        let thread =
            std::thread::Builder::new().name("hemi-vhost".into()).spawn(move || server.run())?;
        Ok(Listening { shared, thread })
    }
}

impl Listening {
    /// Stops accepting and hangs up. The volume's reactor has ended or is ending.
    pub(crate) fn stop(self) {
        let _ = rustix::io::write(&self.shared.ending, &1_u64.to_ne_bytes());
        let stream = self.shared.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stream) = stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        if self.thread.join().is_err() {
            tracing::error!("the thread of a virtual machine's disk panicked");
        }
    }
}

/// A connection being served.
struct Served {
    handler: BackendReqHandler<Mutex<Session>>,
    session: Arc<Mutex<Session>>,
    stream: UnixStream,
}

/// The end of a connection.
enum Ending {
    /// The front end has hung up, or the reactor has and has logged the reason.
    Gone,
    /// The front end broke a rule.
    Broken(String),
}

/// The state of the listener's thread.
struct Server {
    export: u16,
    listener: GuestListener,
    reactor: ReactorHandle,
    shared: Arc<Shared>,
    complaints: Complaints,
}

impl Server {
    fn run(mut self) {
        let mut served: Option<Served> = None;
        loop {
            let (ending, call, message) = match self.wait(served.as_ref()) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(listener = self.listener.name(), %error, "cannot wait for clients");
                    break;
                }
            };
            if ending {
                break;
            }
            if message
                && let Some(connection) = &mut served
                && let Err(ending) = connection.serve()
            {
                self.end(served.take(), &ending);
            }
            if call {
                self.accept(&mut served);
            }
        }
        self.end(served, &Ending::Gone);
        drop(self.listener.file);
    }

    /// Waits for the end, a new client, or the next message.
    fn wait(&self, served: Option<&Served>) -> rustix::io::Result<(bool, bool, bool)> {
        let own = [self.shared.ending.as_fd(), self.listener.socket.as_fd()];
        let streams = served.map(|served| served.stream.as_fd());
        let mut all: Vec<PollFd<'_>> = own
            .into_iter()
            .chain(streams)
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut all, None::<&Timespec>) {
            Err(rustix::io::Errno::INTR) => return Ok((false, false, false)),
            waited => waited?,
        };
        let is_ready = |index: usize| all.get(index).is_some_and(|one| !one.revents().is_empty());
        Ok((is_ready(0), is_ready(1), is_ready(2)))
    }

    fn accept(&mut self, served: &mut Option<Served>) {
        let stream = match self.listener.socket.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::warn!(listener = self.listener.name(), %error, "a client could not be accepted");
                std::thread::sleep(RETRY_AFTER);
                return;
            }
        };
        let peer = hemi_io::process::peer(&stream);
        let peer = peer.map_or_else(String::new, |process| format!(" (process {process})"));
        let peer = format!("{}{peer}", self.listener.name());
        if served.is_some() {
            self.complaints.log(clock::now(), &peer, "another virtual machine has the disk");
            return;
        }
        match self.begin(stream) {
            Ok(connection) => {
                if self.complaints.admit(clock::now()) {
                    tracing::info!(peer, "a virtual machine has connected");
                }
                *served = Some(connection);
            }
            Err(reason) => self.complaints.log(clock::now(), &peer, &reason),
        }
    }

    /// Begins to serve a client.
    fn begin(&self, stream: UnixStream) -> Result<Served, String> {
        let failed = |error: io::Error| error.to_string();
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_read_timeout(Some(MESSAGE_PATIENCE)).map_err(failed)?;
        let copy = || stream.try_clone().map_err(failed);
        let (ours, reactors, shared) = (copy()?, copy()?, copy()?);
        let identity = Arc::clone(&self.reactor.snapshot().identity);
        let disk = Disk {
            name: identity.name.clone(),
            socket: self.listener.name().to_owned(),
            sectors: identity.size_bytes >> 9,
            block_bytes: identity.block_bytes,
            read_only: self.listener.read_only,
            queues: QUEUES_MAX,
        };
        let session = Session::begin(self.export, disk, self.reactor.clone(), reactors)
            .map_err(|error| error.to_string())?;
        let session = Arc::new(Mutex::new(session));
        self.shared.set(Some(shared));
        let handler = BackendReqHandler::from_stream(stream, Arc::clone(&session));
        Ok(Served { handler, session, stream: ours })
    }

    /// Ends a connection.
    fn end(&mut self, served: Option<Served>, ending: &Ending) {
        let Some(served) = served else { return };
        self.shared.set(None);
        // This comes before the stream is closed, so that the next client finds the disk free.
        served.session.lock().unwrap_or_else(PoisonError::into_inner).end();
        let _ = served.stream.shutdown(std::net::Shutdown::Both);
        let now = clock::now();
        match ending {
            Ending::Broken(reason) => self.complaints.log(now, self.listener.name(), reason),
            Ending::Gone if self.complaints.admit(now) => {
                tracing::info!(peer = self.listener.name(), "a virtual machine has disconnected");
            }
            Ending::Gone => {}
        }
    }
}

impl Served {
    /// Handles a message.
    ///
    /// # Errors
    /// Returns the end of the connection with its reason.
    fn serve(&mut self) -> Result<(), Ending> {
        self.wait_for_header()?;
        let handled = self.handler.handle_request();
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = session.take_refusal() {
            return Err(Ending::Broken(reason));
        }
        match handled {
            // The front end got the error and may continue.
            Ok(()) | Err(Error::InvalidOperation(_) | Error::ReqHandlerError(_)) => Ok(()),
            Err(Error::Disconnected) => Err(Ending::Gone),
            Err(error) => Err(Ending::Broken(format!("an invalid message: {error}"))),
        }
    }

    /// Waits until a whole header has arrived, since the library would wait forever for the
    /// rest of one.
    fn wait_for_header(&self) -> Result<(), Ending> {
        let until = Instant::now() + MESSAGE_PATIENCE;
        loop {
            let there = rustix::io::ioctl_fionread(&self.stream);
            match there.map_err(|error| Ending::Broken(error.to_string()))? {
                0 => return Err(Ending::Gone),
                HEADER_BYTES.. => return Ok(()),
                _ if Instant::now() >= until => {
                    return Err(Ending::Broken("a message is truncated".into()));
                }
                _ => std::thread::sleep(RETRY_AFTER),
            }
        }
    }
}
