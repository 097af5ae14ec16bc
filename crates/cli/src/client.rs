//! A client of a served volume's control API, and the search for the volume.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use hemi_server::control::api::ErrorBody;
use hemi_server::control::named::{Answerer, VOLUME_HEADER, ask, header_name, header_value};
use hemi_server::control::socket::{VolumeSocket, check_path, run_directories};

use crate::failure::{Failure, Kind};

/// The longest that a read of the API may take. Changes may take as long as a drain.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The formats that answers are read in.
const ACCEPT: &str = "application/json, application/openmetrics-text; version=1.0.0";

/// The volume that a command is for.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Which {
    /// Name of the volume; not needed if only one is served on this machine.
    #[arg(long, value_name = "NAME", conflicts_with = "control")]
    pub(crate) volume: Option<String>,

    /// Path of the volume's control socket, if it is not in a run directory.
    #[arg(long, value_name = "PATH", env = "HEMI_CONTROL")]
    pub(crate) control: Option<PathBuf>,
}

impl Which {
    /// Returns the control socket of the one volume that is meant.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        self.find_in(&run_directories()).map(|client| client.socket)
    }

    fn find_in(&self, directories: &[PathBuf]) -> Result<Client> {
        if let Some(path) = &self.control {
            return Ok(Client::at(path.clone()));
        }
        let sockets = RunSockets::look(directories);
        let served = &sockets.served;
        let looked = directories
            .iter()
            .map(|directory| directory.display().to_string())
            .collect::<Vec<_>>()
            .join(" and ");
        let names = || served.iter().map(|one| one.0.as_str()).collect::<Vec<_>>().join(", ");
        let Some(wanted) = &self.volume else {
            return match &served[..] {
                [(name, only)] => {
                    let is_named = !sockets.unnamed.contains(only);
                    Ok(Client { socket: only.clone(), volume: is_named.then(|| name.clone()) })
                }
                [] => Err(sockets.denied.first().map_or_else(
                    || {
                        Failure::error(
                            Kind::Failed,
                            format!("no volume is served here (looked in {looked})"),
                            "Serve one with hemi serve, or name its control socket with --control.",
                        )
                    },
                    |path| denied(path),
                )),
                _ => Err(Failure::error(
                    Kind::Usage,
                    format!("several volumes are served here: {}", names()),
                    "Name one with --volume.",
                )),
            };
        };
        let candidates: Vec<PathBuf> = directories
            .iter()
            .map(|directory| VolumeSocket::Control.path(directory, wanted))
            .collect();
        // A socket without a name is taken for the volume that its file is named after. The server refuses
        // what is meant for another.
        let is_meant = |one: &&(String, PathBuf)| match sockets.unnamed.contains(&one.1) {
            true => candidates.contains(&one.1),
            false => one.0 == *wanted,
        };
        match &served.iter().filter(is_meant).collect::<Vec<_>>()[..] {
            [] => {}
            [(_, path)] => return Ok(Client::of(wanted.clone(), path.clone())),
            several => {
                let paths = several.iter().map(|one| one.1.display().to_string());
                let paths = paths.collect::<Vec<_>>().join(" and ");
                return Err(Failure::error(
                    Kind::Usage,
                    format!("several volumes named {wanted} are served here: {paths}"),
                    "Name one of these sockets with --control.",
                ));
            }
        }
        // It may be in a directory or behind a socket that is closed to this user.
        let hides =
            |path: &&PathBuf| candidates.iter().any(|candidate| candidate.starts_with(path));
        if let Some(path) = sockets.denied.iter().find(hides) {
            return Err(denied(path));
        }
        let what = match sockets.others.iter().find(|path| candidates.contains(path)) {
            Some(path) => format!("volume {wanted} is not served here: {}", not_control(path)),
            None => format!("volume {wanted} is not served here (looked in {looked})"),
        };
        let others = match served.is_empty() {
            true => "None is served there.".to_owned(),
            false => format!("Served there: {}.", names()),
        };
        let way_out = format!("{others} Name its control socket with --control otherwise.");
        Err(Failure::error(Kind::Failed, what, way_out))
    }
}

/// The sockets found in the run directories.
#[derive(Debug, Default)]
pub(crate) struct RunSockets {
    /// Control sockets that answer, each with the volume's name.
    pub(crate) served: Vec<(String, PathBuf)>,
    /// Those of them that do not tell the name, so that it is taken from the file's.
    unnamed: Vec<PathBuf>,
    /// Sockets on which something else answers, such as an NBD export.
    others: Vec<PathBuf>,
    /// Directories and sockets that this user may not use.
    pub(crate) denied: Vec<PathBuf>,
}

impl RunSockets {
    /// Searches the directories.
    pub(crate) fn look(directories: &[PathBuf]) -> RunSockets {
        let mut found = RunSockets::default();
        for directory in directories {
            let entries = match std::fs::read_dir(directory) {
                Ok(entries) => entries,
                Err(error) => {
                    if error.kind() == io::ErrorKind::PermissionDenied {
                        found.denied.push(directory.clone());
                    }
                    continue;
                }
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                let extension = VolumeSocket::Control.extension();
                if path.extension().is_some_and(|found| found == extension) {
                    found.add(path);
                }
            }
        }
        found.served.sort();
        // Two run directories may be one.
        let same = |one: &PathBuf, other: &PathBuf| {
            one.file_name() == other.file_name()
                && one
                    .canonicalize()
                    .is_ok_and(|one| other.canonicalize().is_ok_and(|it| it == one))
        };
        found.served.dedup_by(|later, earlier| same(&later.1, &earlier.1));
        found
    }

    fn add(&mut self, path: PathBuf) {
        let Some(name) = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned) else {
            return;
        };
        match BlockingStream::connect(&path).map(|stream| ask(&stream)) {
            Ok(Answerer::Volume(name)) => self.served.push((name, path)),
            Ok(Answerer::Unnamed) => {
                self.unnamed.push(path.clone());
                self.served.push((name, path));
            }
            Ok(Answerer::Other) => self.others.push(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.denied.push(path);
            }
            // Nobody listens there any more, or it is no socket.
            Err(_) => {}
        }
    }
}

/// Returns the failure of a user who may not use `path`, a run directory or a socket in one.
fn denied(path: &Path) -> anyhow::Error {
    let (what, mode) = match path.is_dir() {
        true => ("look for volumes in", "g+rx"),
        false => ("use the control socket", "g+rw"),
    };
    let path = path.display();
    Failure::error(
        Kind::Failed,
        format!("this user may not {what} {path}: permission denied"),
        format!(
            "Run the command as root (sudo) or as the user that serves the volume. To let a group \
             in: chgrp GROUP {path}; chmod {mode} {path}. A socket needs that after each start."
        ),
    )
}

fn not_control(path: &Path) -> String {
    format!(
        "{} is not a control socket of hemi; something else answers there, perhaps the NBD export",
        path.display()
    )
}

/// A connection to the control API. Each call is one exchange.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    /// The name of the volume that is meant, which the server checks.
    volume: Option<String>,
}

/// Returns a client of the volume with this name, if it is served here.
pub(crate) fn client_of(volume: &str) -> Option<Client> {
    Client::new(&Which { volume: Some(volume.to_owned()), control: None }).ok()
}

/// Returns the names and control sockets of all volumes served here that this user may use.
pub(crate) fn served() -> Vec<(String, PathBuf)> {
    RunSockets::look(&run_directories()).served
}

impl Client {
    /// Returns a client of the volume behind a control socket.
    pub(crate) fn at(socket: PathBuf) -> Client {
        Client { socket, volume: None }
    }

    /// Returns a client of this volume behind a control socket. If another volume answers there, every
    /// request is refused.
    pub(crate) fn of(volume: String, socket: PathBuf) -> Client {
        Client { socket, volume: Some(volume) }
    }

    /// Returns a client of the one volume that is meant.
    pub(crate) fn new(which: &Which) -> Result<Client> {
        which.find_in(&run_directories())
    }

    /// Returns the name of the volume, unless it is known by its socket alone.
    pub(crate) fn volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    /// Returns the path of the control socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs a future of this client to its end.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an event loop")?
            .block_on(future)
    }

    /// Gets the resource at a path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.get_within(path, READ_TIMEOUT).await
    }

    /// Gets the resource at a path, within `patience`.
    pub(crate) async fn get_within<T: DeserializeOwned>(
        &self,
        path: &str,
        patience: Duration,
    ) -> Result<T> {
        let read = async {
            let response = self.send(Method::GET, path, Bytes::new()).await?;
            body(response).await
        };
        let bytes = tokio::time::timeout(patience, read).await.map_err(|_| {
            Failure::error(
                Kind::Failed,
                format!(
                    "hemi at {} did not answer within {} s",
                    self.socket.display(),
                    patience.as_secs()
                ),
                "See its log.",
            )
        })??;
        serde_json::from_slice(&bytes).with_context(|| {
            format!("the answer of {} to {path} is not understood", self.socket.display())
        })
    }

    /// Gets the metrics as OpenMetrics, with the volume's name. The caller limits the time.
    pub(crate) async fn metrics(&self) -> Result<(Option<String>, String)> {
        let response = self.send(Method::GET, "/metrics", Bytes::new()).await?;
        let name = response.headers().get(VOLUME_HEADER).and_then(header_name);
        let text = String::from_utf8(body(response).await?.into());
        let text = text.with_context(|| {
            format!("the answer of {} to /metrics is not text", self.socket.display())
        })?;
        Ok((name, text))
    }

    /// Returns true if something else than a control socket answers here, such as an NBD export. Blocks.
    pub(crate) fn meets_another(&self) -> bool {
        BlockingStream::connect(&self.socket).is_ok_and(|again| ask(&again) == Answerer::Other)
    }

    /// Requests a change and waits until it is done.
    pub(crate) async fn post(&self, path: &str, request: &impl Serialize) -> Result<()> {
        let sent = serde_json::to_vec(request).context("the request cannot be written as JSON")?;
        let response = self.send(Method::POST, path, sent.into()).await?;
        body(response).await.map(|_| ())
    }

    /// Reads a path line by line, until `line` breaks or the volume is gone.
    pub(crate) async fn lines(
        &self,
        path: &str,
        mut line: impl FnMut(&[u8]) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        let mut response = self.send(Method::GET, path, Bytes::new()).await?;
        if response.status() != StatusCode::OK {
            return body(response).await.map(|_| ());
        }
        let mut pending = Vec::new();
        while let Some(frame) = response.frame().await {
            let frame = frame.with_context(|| self.lost())?;
            pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let rest = pending.split_off(end + 1);
                pending.pop();
                if line(&pending)?.is_break() {
                    return Ok(());
                }
                pending = rest;
            }
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let stream =
            UnixStream::connect(&self.socket).await.map_err(|error| self.unreachable(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .with_context(|| self.lost())?;
        // It ends with the exchange, which reports any error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "hemi")
            .header("accept", ACCEPT)
            .header("content-type", "application/json");
        if let Some(volume) = &self.volume {
            request = request.header(VOLUME_HEADER, header_value(volume));
        }
        let request = request.body(Full::new(body)).context("the request cannot be built")?;
        sender.send_request(request).await.map_err(|error| {
            // Another server breaks HTTP in ways that depend on who sends first.
            if self.meets_another() {
                let way_out = "Name the control socket; hemi serve logs its path when it starts.";
                return Failure::error(Kind::Failed, not_control(&self.socket), way_out);
            }
            anyhow::Error::new(error).context(self.lost())
        })
    }

    fn lost(&self) -> String {
        format!("hemi at {} went away", self.socket.display())
    }

    fn unreachable(&self, error: &io::Error) -> anyhow::Error {
        unreachable_socket(&self.socket, error)
    }
}

fn unreachable_socket(socket: &Path, error: &io::Error) -> anyhow::Error {
    if let Err(what) = check_path(socket) {
        return Failure::error(Kind::Usage, what, "Name another path with --control.");
    }
    if std::fs::metadata(socket).is_ok_and(|found| !found.file_type().is_socket()) {
        return Failure::error(
            Kind::Failed,
            format!("{} is not a socket", socket.display()),
            "Name the control socket; hemi serve logs its path when it starts.",
        );
    }
    let way_out = match error.kind() {
        io::ErrorKind::NotFound => "Is the volume served, with this --control?",
        io::ErrorKind::ConnectionRefused => {
            "The volume is not served any more; hemi serve replaces the socket."
        }
        io::ErrorKind::PermissionDenied => return denied(socket),
        _ => "See the log of hemi serve.",
    };
    Failure::error(
        Kind::Failed,
        format!("cannot reach hemi at {}: {error}", socket.display()),
        way_out,
    )
}

/// Returns the body of a successful answer, or the failure of another.
async fn body(response: Response<Incoming>) -> Result<Bytes> {
    let status = response.status();
    let bytes = response.into_body().collect().await.context("hemi went away")?.to_bytes();
    if status.is_success() {
        return Ok(bytes);
    }
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(refusal) => Err(Failure::from(refusal).into()),
        Err(_) => anyhow::bail!("hemi answered {status}: {}", String::from_utf8_lossy(&bytes)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Listens at `path` and sends `greeting` to every client, which HTTP does only when asked.
    fn listen(path: &Path, greeting: &'static [u8]) {
        let listener = UnixListener::bind(path).expect("the directory is ours");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client connects");
                if greeting.starts_with(b"HTTP") {
                    let _ = stream.read(&mut [0; 256]);
                }
                // A client that has seen enough has gone.
                let _ = stream.write_all(greeting);
            }
        });
    }

    const CONTROL: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    const NBD: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

    fn named(name: &str) -> Which {
        Which { volume: Some(name.into()), control: None }
    }

    #[test]
    fn the_only_volume_is_found_and_several_are_named() {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let directories = [directory.path().to_owned()];
        let found = |which: &Which| which.find_in(&directories).ok().map(|client| client.socket);
        let none = Which::default();
        let error = none.find_in(&directories).expect_err("nothing is served").to_string();
        assert!(error.contains("no volume is served here"), "{error}");

        let one = directory.path().join("db.sock");
        listen(&one, CONTROL);
        std::fs::write(directory.path().join("notes.txt"), "").expect("the directory is ours");
        // A dead one does not count.
        let dead = directory.path().join("old.sock");
        drop(UnixListener::bind(dead).expect("the directory is ours"));
        assert_eq!(found(&none), Some(one.clone()));

        listen(&directory.path().join("home.sock"), CONTROL);
        let error = none.find_in(&directories).expect_err("two are served").to_string();
        assert_eq!(error, "several volumes are served here: db, home");
        assert_eq!(found(&named("db")), Some(one));
        let error = named("old").find_in(&directories).expect_err("it is dead").to_string();
        assert!(error.contains("volume old is not served here"), "{error}");
    }

    #[test]
    fn a_volume_is_found_by_its_own_name_and_not_by_that_of_its_file() {
        const MY_DB: &[u8] =
            b"HTTP/1.1 200 OK\r\nHemi-Volume: my%20db\r\ncontent-length: 0\r\n\r\n";
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let directories = [directory.path().to_owned()];
        let path = directory.path().join("my_db.sock");
        listen(&path, MY_DB);
        for name in ["my_db", "my?db", "my/db"] {
            let error = named(name).find_in(&directories).expect_err("it has another name");
            let failure = error.downcast_ref::<Failure>().expect("a failure with its way out");
            assert!(failure.what.contains(&format!("volume {name} is not served here")), "{error}");
            assert!(failure.way_out.contains("Served there: my db."), "{}", failure.way_out);
        }
        for which in [Which::default(), named("my db")] {
            let client = which.find_in(&directories).expect("it is served");
            assert_eq!(client.socket(), path);
            assert_eq!(client.volume(), Some("my db"), "the server checks it");
        }

        // It has a socket of its choice elsewhere, and one that does not tell its name has that of the file.
        let twin = tempfile::tempdir().expect("the temporary directory can be written");
        let directories = [directory.path().to_owned(), twin.path().to_owned()];
        listen(&twin.path().join("my_db.sock"), CONTROL);
        let client = named("my_db").find_in(&directories).expect("it does not say otherwise");
        assert_eq!(
            (client.socket(), client.volume()),
            (&*twin.path().join("my_db.sock"), Some("my_db"))
        );
        listen(&twin.path().join("other.sock"), MY_DB);
        let error = named("my db").find_in(&directories).expect_err("there are two").to_string();
        assert!(
            error.contains("several volumes named my db") && error.contains("other.sock"),
            "{error}"
        );
        let error =
            Which::default().find_in(&directories).expect_err("there are three").to_string();
        assert_eq!(error, "several volumes are served here: my db, my db, my_db");
    }

    #[test]
    fn an_nbd_socket_is_no_control_socket() {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let directories = [directory.path().to_owned()];
        let found = |which: &Which| which.find_in(&directories).ok().map(|client| client.socket);
        let control = directory.path().join("home.sock");
        listen(&control, CONTROL);
        let export = directory.path().join("vol.sock");
        listen(&export, NBD);
        assert_eq!(found(&Which::default()), Some(control));
        let error = named("vol").find_in(&directories).expect_err("an NBD socket").to_string();
        assert!(error.contains("vol.sock is not a control socket"), "{error}");
        assert!(error.contains("NBD"), "{error}");

        let which = Which { volume: None, control: Some(export) };
        let client = Client::new(&which).expect("the path is given");
        let error = client.block_on(client.get::<serde_json::Value>("/v1/status"));
        let error = format!("{:#}", error.expect_err("NBD answers"));
        assert!(error.contains("vol.sock is not a control socket"), "{error}");
    }

    #[test]
    fn a_closed_door_is_not_an_empty_room() {
        use std::os::unix::fs::PermissionsExt as _;
        lose_override();
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let directories = [directory.path().to_owned()];
        let mode = |path: &Path, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).expect("it is ours");
        };
        let socket = directory.path().join("db.sock");
        listen(&socket, CONTROL);
        mode(&socket, 0o000);
        for which in [Which::default(), named("db")] {
            let error = which.find_in(&directories).expect_err("the socket is closed");
            let failure = error.downcast_ref::<Failure>().expect("a failure with its way out");
            assert!(failure.what.contains("db.sock: permission denied"), "{error}");
            assert!(failure.way_out.contains("as root"), "{}", failure.way_out);
            assert!(failure.way_out.contains("chgrp"), "{}", failure.way_out);
        }
        let error = named("x").find_in(&directories).expect_err("x is not there").to_string();
        assert!(error.contains("volume x is not served here"), "{error}");
        mode(directory.path(), 0o000);
        for which in [Which::default(), named("db")] {
            let error = which.find_in(&directories).expect_err("the directory is closed");
            let text = format!("{}: permission denied", directory.path().display());
            assert!(error.to_string().contains(&text), "{error}");
        }
        mode(directory.path(), 0o700);
    }

    /// Drops root's right to override permissions from this thread.
    fn lose_override() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).expect("a thread may read its own");
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, sets).expect("a thread may lose them");
    }

    #[test]
    fn what_cannot_be_a_socket_is_told_so() {
        let told = |path: &str| {
            let which = Which { volume: None, control: Some(path.into()) };
            let client = Client::new(&which).expect("the path is given");
            let error = client.block_on(client.get::<serde_json::Value>("/v1/status"));
            error.expect_err("it is not a socket").to_string()
        };
        let error = told("/etc/passwd");
        assert_eq!(error, "/etc/passwd is not a socket");
        let error = told(&format!("/{}", "x".repeat(119)));
        assert!(error.contains("has 120 bytes") && error.contains("at most 107"), "{error}");
    }
}
