//! A client of a served volume's control API, and how it finds the volume.

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
use hemi_server::control::socket::{CONTROL_EXTENSION, file_stem, run_directories};

use crate::failure::{Failure, Kind};

/// How long a read of the API may take. Changes may take as long as a drain.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Which volume a command is for.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Which {
    /// Name of the volume. Not needed while only one is served here.
    #[arg(long, value_name = "NAME", conflicts_with = "control")]
    pub(crate) volume: Option<String>,

    /// Path of the volume's control socket, where it is not in a run directory.
    #[arg(long, value_name = "PATH", env = "HEMI_CONTROL")]
    pub(crate) control: Option<PathBuf>,
}

impl Which {
    /// The control socket of the one volume that is meant.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        self.socket_in(&run_directories())
    }

    fn socket_in(&self, directories: &[PathBuf]) -> Result<PathBuf> {
        if let Some(path) = &self.control {
            return Ok(path.clone());
        }
        let served = served_in(directories);
        let looked = directories
            .iter()
            .map(|directory| directory.display().to_string())
            .collect::<Vec<_>>()
            .join(" and ");
        let names = || served.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        match (&self.volume, &served[..]) {
            (None, [(_, only)]) => Ok(only.clone()),
            (None, []) => Err(Failure::error(
                Kind::Failed,
                format!("no volume is served here (looked in {looked})"),
                "Serve one with hemi serve, or name its control socket with --control.",
            )),
            (None, _) => Err(Failure::error(
                Kind::Usage,
                format!("several volumes are served here: {}", names()),
                "Name one with --volume.",
            )),
            (Some(wanted), _) => served
                .iter()
                .find(|(name, _)| *name == file_stem(wanted))
                .map(|(_, path)| path.clone())
                .ok_or_else(|| {
                    let others = match served.is_empty() {
                        true => "None is served there.".to_owned(),
                        false => format!("Served there: {}.", names()),
                    };
                    Failure::error(
                        Kind::Failed,
                        format!("volume {wanted} is not served here (looked in {looked})"),
                        format!("{others} Name its control socket with --control otherwise."),
                    )
                }),
        }
    }
}

/// Volumes whose control socket answers, by name.
fn served_in(directories: &[PathBuf]) -> Vec<(String, PathBuf)> {
    let mut served: Vec<(String, PathBuf)> = Vec::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
            let is_control = path.extension().is_some_and(|found| found == CONTROL_EXTENSION);
            if let Some(name) = name
                && is_control
                && BlockingStream::connect(&path).is_ok()
            {
                served.push((name, path));
            }
        }
    }
    served.sort();
    served.dedup_by(|later, earlier| later.0 == earlier.0);
    served
}

/// A connection to the control API; each call is one exchange.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the one volume that is meant.
    pub(crate) fn new(which: &Which) -> Result<Client> {
        Ok(Client { socket: which.socket()? })
    }

    /// Runs a future of this client's to its end.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start an event loop")?
            .block_on(future)
    }

    /// Reads a path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let read = async {
            let response = self.send(Method::GET, path, Bytes::new()).await?;
            body(response).await
        };
        let bytes = tokio::time::timeout(READ_TIMEOUT, read).await.map_err(|_| {
            Failure::error(
                Kind::Failed,
                format!(
                    "hemi at {} did not answer within {} s",
                    self.socket.display(),
                    READ_TIMEOUT.as_secs()
                ),
                "See its log.",
            )
        })??;
        serde_json::from_slice(&bytes).with_context(|| {
            format!("the answer of {} to {path} is not understood", self.socket.display())
        })
    }

    /// Asks for a change and waits until it is done.
    pub(crate) async fn post(&self, path: &str, request: &impl Serialize) -> Result<()> {
        let sent = serde_json::to_vec(request).context("the request cannot be written as JSON")?;
        let response = self.send(Method::POST, path, sent.into()).await?;
        body(response).await.map(|_| ())
    }

    /// Reads a path line by line, until `line` says stop or the volume is gone.
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
        // It ends with the exchange; what went wrong in it is told by the exchange.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "hemi")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .context("the request cannot be built")?;
        sender.send_request(request).await.with_context(|| self.lost())
    }

    fn lost(&self) -> String {
        format!("hemi at {} went away", self.socket.display())
    }

    fn unreachable(&self, error: &std::io::Error) -> anyhow::Error {
        unreachable_socket(&self.socket, error)
    }
}

fn unreachable_socket(socket: &Path, error: &std::io::Error) -> anyhow::Error {
    let way_out = match error.kind() {
        std::io::ErrorKind::NotFound => "Is the volume served, with this --control?",
        std::io::ErrorKind::ConnectionRefused => {
            "The volume is not served any more; hemi serve replaces the socket."
        }
        std::io::ErrorKind::PermissionDenied => "Run as the user that serves the volume.",
        _ => "See the log of hemi serve.",
    };
    Failure::error(
        Kind::Failed,
        format!("cannot reach hemi at {}: {error}", socket.display()),
        way_out,
    )
}

/// The body of an answer that says yes; the failure of one that says no.
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
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_only_volume_is_found_and_several_are_named() {
        let directory = std::env::temp_dir().join(format!("hemi-{}-which", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let directories = [directory.clone()];
        let none = Which::default();
        let error = none.socket_in(&directories).expect_err("nothing is served").to_string();
        assert!(error.contains("no volume is served here"), "{error}");

        let one = directory.join("db.sock");
        let _one = UnixListener::bind(&one).expect("the directory is ours");
        std::fs::write(directory.join("notes.txt"), "").expect("the directory is ours");
        // A dead one does not count.
        drop(UnixListener::bind(directory.join("old.sock")).expect("the directory is ours"));
        assert_eq!(none.socket_in(&directories).ok(), Some(one.clone()));

        let _two = UnixListener::bind(directory.join("home.sock")).expect("the directory is ours");
        let error = none.socket_in(&directories).expect_err("two are served").to_string();
        assert_eq!(error, "several volumes are served here: db, home");
        let named = |name: &str| Which { volume: Some(name.into()), control: None };
        assert_eq!(named("db").socket_in(&directories).ok(), Some(one));
        let error = named("old").socket_in(&directories).expect_err("it is dead").to_string();
        assert!(error.contains("volume old is not served here"), "{error}");
        let _ = std::fs::remove_dir_all(&directory);
    }
}
