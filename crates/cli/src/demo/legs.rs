//! The two legs of the demonstration: serves, delays and freezes them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::children::{Background, output};
use super::scenario::Setting;
use super::{DELAY, FREEZE};

/// The size of the volume in bytes.
pub(super) const VOLUME_BYTES: u64 = 256 << 20;
/// The size of each leg's file in bytes: the volume and ample room for the metadata.
const LEG_BYTES: u64 = VOLUME_BYTES + (32 << 20);

/// Returns true if nbdkit can be started with the filters that the demonstration uses.
pub(super) fn nbdkit_installed() -> bool {
    Command::new("nbdkit")
        .args(["--filter=delay", "--filter=pause", "memory", "--dump-plugin"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A leg of the demonstration. Leg 0 is fast, leg 1 is slow.
pub(super) enum Leg {
    /// A file behind nbdkit, which delays and freezes it: hemi sees a drive that does.
    Outside { socket: PathBuf, pause: PathBuf, _server: Background },
    /// A file whose I/O hemi itself delays and freezes.
    Injected { index: usize, path: PathBuf },
}

impl Leg {
    /// Creates leg `index` in `folder`.
    pub(super) fn start(setting: &Setting, folder: &Path, index: usize) -> Result<Leg> {
        let path = folder.join(format!("leg{index}.img"));
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        file.set_len(LEG_BYTES).with_context(|| format!("cannot size {}", path.display()))?;
        if !setting.from_outside {
            return Ok(Leg::Injected { index, path });
        }
        let socket = folder.join(format!("leg{index}.sock"));
        let pause = folder.join(format!("leg{index}.pause"));
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(&socket).arg("--filter=pause");
        if index == 1 {
            command.arg("--filter=delay");
        }
        command.arg("file").arg(&path).arg(format!("pause-control={}", pause.display()));
        if index == 1 {
            let delay = DELAY.as_millis();
            command.args([format!("rdelay={delay}ms"), format!("wdelay={delay}ms")]);
        }
        let mut server = Background::start(command, folder, &format!("nbdkit{index}"))?;
        server.wait_for_socket(&socket, &setting.interrupted)?;
        Ok(Leg::Outside { socket, pause, _server: server })
    }

    /// Returns the value for `--leg`.
    pub(super) fn spec(&self) -> String {
        match self {
            Leg::Outside { socket, .. } => format!("nbd+unix:///?socket={}", socket.display()),
            Leg::Injected { path, .. } => path.display().to_string(),
        }
    }

    /// Makes a leg of a served volume as slow as it should be.
    pub(super) fn prepare(&self, setting: &Setting, control: &Path) -> Result<()> {
        match self {
            Leg::Injected { index: 1, .. } => inject(setting, control, 1, "--delay", DELAY),
            _ => Ok(()),
        }
    }

    /// Stops the leg answering for [`FREEZE`], and returns when it answers again.
    pub(super) fn freeze(&self, setting: &Setting, control: &Path) -> Result<()> {
        match self {
            Leg::Outside { pause, .. } => {
                pause_control(pause, b'p', b'P')?;
                let waited = super::children::pause(FREEZE, &setting.interrupted);
                pause_control(pause, b'r', b'R')?;
                waited
            }
            Leg::Injected { index, .. } => {
                inject(setting, control, *index, "--freeze", FREEZE)?;
                super::children::pause(FREEZE, &setting.interrupted)
            }
        }
    }
}

fn inject(setting: &Setting, control: &Path, leg: usize, what: &str, time: Duration) -> Result<()> {
    let mut command = Command::new(&setting.hemi);
    command.arg("inject").arg("--control").arg(control);
    command.arg("--leg").arg(leg.to_string());
    command.arg(what).arg(format!("{}ms", time.as_millis()));
    output(command).map(drop)
}

/// Sends one byte to nbdkit's pause filter, which confirms with the capital letter.
fn pause_control(socket: &Path, say: u8, expect: u8) -> Result<()> {
    let name = || format!("nbdkit's pause control at {}", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(name)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).with_context(name)?;
    stream.write_all(&[say]).with_context(name)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).with_context(name)?;
    ensure!(answer[0] == expect, "{} answered {:?}", name(), char::from(answer[0]));
    Ok(())
}
