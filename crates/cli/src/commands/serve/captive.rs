//! `hemi serve --run`: a command that the volume is served for, and no longer than it runs.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hemi_io::config::legs::{LegSpec, UriTls};
use hemi_server::config::Config;
use hemi_server::config::exports::{ExportConfig, Listen};
use hemi_server::control::api::{Empty, Shutdown, VolumeStatus};
use hemi_server::control::socket::run_directory;
use hemi_server::control::volume::Phase;
use hemi_server::serve::Started;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tempfile::TempDir;

use crate::client::Client;

/// The pause between two checks that the volume is served.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The base of the status of a shell that a signal ends, to which the signal's number is added.
const SIGNALLED: i32 = 128;

/// A command and its process.
#[derive(Debug)]
pub(crate) struct Captive {
    command: String,
    wants_device: bool,
    running: Mutex<Option<JoinHandle<Result<Option<ExitStatus>>>>>,
    shared: Arc<Shared>,
    /// The directory for sockets that nobody has named.
    _folder: Option<TempDir>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The process while it exists, and a flag that it must end or not begin.
    child: Mutex<(Option<Pid>, bool)>,
}

impl Captive {
    /// Prepares to run a command. Sockets that the configuration does not name are placed in a
    /// temporary directory that only this user can enter.
    ///
    /// # Errors
    /// Fails if that directory cannot be created.
    pub(crate) fn new(command: &str, config: &mut Config) -> Result<Captive> {
        let unexported = config.exports.is_empty() && config.vhost.is_empty();
        let uncontrolled = config.control.is_none() && run_directory().is_err();
        let folder = (unexported || uncontrolled)
            .then(private_folder)
            .transpose()
            .context("cannot make a directory for the sockets")?;
        if let Some(folder) = &folder {
            if unexported {
                let socket = folder.path().join("volume.nbd");
                config.exports.push(ExportConfig::new(Listen::Unix(socket)));
            }
            if uncontrolled {
                config.control = Some(folder.path().join("volume.sock"));
            }
        }
        Ok(Captive {
            command: command.to_owned(),
            wants_device: config.device != hemi_server::config::device::DeviceKind::None,
            running: Mutex::default(),
            shared: Arc::default(),
            _folder: folder,
        })
    }

    /// Runs the command as soon as clients are served, and stops the volume after it.
    pub(crate) fn start(&self, started: &Started) {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command).envs(environment(started));
        let client = Client::at(started.control.to_owned());
        let (wants_device, shared) = (self.wants_device, Arc::clone(&self.shared));
        let work = move || {
            let outcome = run(&client, command, wants_device, &shared);
            stop(&client, wants_device);
            outcome
        };
        match std::thread::Builder::new().name("hemi-run".into()).spawn(work) {
            Ok(thread) => {
                *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
            }
            Err(error) => {
                tracing::error!(%error, "no thread for the command: the volume is stopped");
                let _ = kill_process(getpid(), Signal::TERM);
            }
        }
    }

    /// Ends the command if it still runs, now that the volume is closed. Returns its status as a
    /// shell reports it.
    ///
    /// # Errors
    /// Fails if the command could not be run.
    pub(crate) fn finish(self) -> Result<ExitCode> {
        self.shared.end();
        let thread = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(ExitCode::FAILURE) };
        let outcome = thread.join().unwrap_or_else(|_| anyhow::bail!("its thread panicked"));
        let status = outcome.with_context(|| format!("--run {}", self.command))?;
        // Without a status the volume was stopped before the command began.
        let Some(status) = status else { return Ok(ExitCode::FAILURE) };
        let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
        Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)))
    }
}

fn private_folder() -> io::Result<TempDir> {
    let mode = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("hemi-run-").permissions(mode).tempdir()
}

impl Shared {
    /// Starts the process, unless it must end already.
    fn begin(&self, command: &mut Command) -> io::Result<Option<Child>> {
        let mut state = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 {
            return Ok(None);
        }
        let child = command.spawn()?;
        state.0 = Pid::from_child(&child).into();
        Ok(Some(child))
    }

    fn is_to_end(&self) -> bool {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Notes that the process has ended: its number may be another's from now on.
    fn ended(&self) {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    }

    fn end(&self) {
        let mut state = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = true;
        if let Some(process) = state.0 {
            let _ = kill_process(process, Signal::TERM);
        }
    }
}

fn run(
    client: &Client,
    mut command: Command,
    wants_device: bool,
    shared: &Shared,
) -> Result<Option<ExitStatus>> {
    let device = loop {
        if shared.is_to_end() {
            return Ok(None);
        }
        let status: Result<VolumeStatus> = client.block_on(client.get("/v1/status"));
        match status.map(|status| (status.phase, status.device)) {
            Ok((Phase::Serving, device)) if device.is_some() || !wants_device => break device,
            Ok((Phase::Opening | Phase::Serving, _)) => {}
            // It is being stopped.
            _ => return Ok(None),
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if let Some(device) = device {
        command.env("device", device);
    }
    let Some(mut child) = shared.begin(&mut command)? else { return Ok(None) };
    // The child is not reaped before its number is forgotten.
    let waited = wait_without_reaping(&child);
    shared.ended();
    waited?;
    Ok(Some(child.wait()?))
}

fn wait_without_reaping(child: &Child) -> io::Result<()> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let id = WaitId::Pid(Pid::from_child(child));
    loop {
        match waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
}

/// Stops the volume, and removes the block device that was created for the command.
fn stop(client: &Client, has_device: bool) {
    if has_device && let Err(error) = client.block_on(client.post("/v1/device/detach", &Empty {})) {
        tracing::warn!(%error, "the block device stays");
    }
    if let Err(error) = client.block_on(client.post("/v1/shutdown", &Shutdown::default())) {
        // It may have been stopped already.
        tracing::debug!(%error, "stop");
        let _ = kill_process(getpid(), Signal::TERM);
    }
}

/// Returns the variables of the command, named as nbdkit names them.
fn environment(started: &Started) -> Vec<(&'static str, String)> {
    let text = |path: &Path| path.display().to_string();
    let mut variables =
        vec![("name", started.name.clone()), ("HEMI_CONTROL", text(started.control))];
    for (index, export) in started.exports.iter().enumerate() {
        let tls = export.tls.is_some().then(UriTls::default);
        let name = String::new();
        let spec = match &export.nbd {
            Listen::Unix(socket) => {
                if !variables.iter().any(|(name, _)| *name == "unixsocket") {
                    variables.push(("unixsocket", text(socket)));
                }
                LegSpec::NbdUnix { socket: socket.clone(), export: name, tls }
            }
            Listen::Tcp { host, port } => {
                if !variables.iter().any(|(name, _)| *name == "port") {
                    variables.push(("port", port.to_string()));
                }
                let any = ["::", "0.0.0.0"].contains(&host.as_str());
                let host = if any { "localhost".to_owned() } else { host.clone() };
                LegSpec::NbdTcp { host, port: *port, export: name, tls }
            }
        };
        if index == 0 {
            variables.push(("uri", spec.to_string()));
        }
    }
    variables
}
