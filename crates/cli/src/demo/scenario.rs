//! A run of the demonstration: a fresh volume, a load, and a leg frozen meanwhile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::children::{self, Background};
use super::fio::Load;
use super::legs::{Leg, VOLUME_BYTES};
use super::report::Row;

/// The longest wait for the legs of a new volume to become identical.
const FILL_LIMIT: Duration = Duration::from_secs(120);

/// The settings that all runs share.
pub(super) struct Setting {
    /// The hemi command.
    pub(super) hemi: PathBuf,
    /// The temporary directory.
    pub(super) folder: PathBuf,
    /// A temporary directory in memory for ledgers, or `None` if the machine has no such memory.
    pub(super) ledgers: Option<PathBuf>,
    /// The time for which each run writes, in seconds.
    pub(super) seconds: u64,
    /// nbdkit delays and freezes the legs, instead of hemi itself.
    pub(super) from_outside: bool,
    /// Set by a signal.
    pub(super) interrupted: Arc<AtomicBool>,
}

/// A fault of the legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    /// No freeze. The second leg is slow throughout all scenarios.
    Calm,
    /// The slow leg stops answering for a while.
    SlowLegFrozen,
    /// The fast leg stops answering for a while.
    FastLegFrozen,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 3] =
        [Scenario::Calm, Scenario::SlowLegFrozen, Scenario::FastLegFrozen];

    pub(super) fn label(self) -> &'static str {
        match self {
            Scenario::Calm => "no freeze",
            Scenario::SlowLegFrozen => "slow leg frozen 2 s",
            Scenario::FastLegFrozen => "fast leg frozen 2 s",
        }
    }

    fn frozen_leg(self) -> Option<usize> {
        match self {
            Scenario::Calm => None,
            Scenario::SlowLegFrozen => Some(1),
            Scenario::FastLegFrozen => Some(0),
        }
    }
}

/// A served volume.
struct Volume {
    server: Background,
    socket: PathBuf,
    control: PathBuf,
}

impl Volume {
    fn start(setting: &Setting, folder: &Path, legs: &[Leg], policy: &str) -> Result<Volume> {
        let leg_options = || legs.iter().flat_map(|leg| ["--leg".to_owned(), leg.spec()]);
        let mut create = Command::new(&setting.hemi);
        create.args(["create", "--size", &VOLUME_BYTES.to_string(), "--name", "demo"]);
        create.args(leg_options());
        children::output(create)?;

        let socket = folder.join("volume.sock");
        let control = folder.join("control.sock");
        let mut serve = Command::new(&setting.hemi);
        serve.args(serve_options(setting, folder, policy)).args(leg_options());
        serve.arg("--nbd").arg(format!("unix:{}", socket.display()));
        serve.arg("--control").arg(&control);
        let mut server = Background::start(serve, folder, "hemi-serve")?;
        server.wait_for_socket(&socket, &setting.interrupted)?;
        server.wait_for_socket(&control, &setting.interrupted)?;
        Ok(Volume { server, socket, control })
    }

    fn status(&self, setting: &Setting) -> Result<Value> {
        let mut command = Command::new(&setting.hemi);
        command.args(["status", "--json", "--control"]).arg(&self.control);
        serde_json::from_str(&children::output(command)?).context("hemi status: not JSON")
    }

    /// Waits until the second leg of a new volume holds what the first does.
    fn wait_converged(&self, setting: &Setting) -> Result<()> {
        let deadline = Instant::now() + FILL_LIMIT;
        while self.status(setting)?.get("converged") != Some(&Value::Bool(true)) {
            ensure!(Instant::now() < deadline, "the legs are not alike after {FILL_LIMIT:?}");
            children::pause(Duration::from_millis(100), &setting.interrupted)?;
        }
        Ok(())
    }

    fn exposure_peak(&self, setting: &Setting) -> Result<u64> {
        self.status(setting)?
            .pointer("/exposure/peak_bytes")
            .and_then(Value::as_u64)
            .context("hemi status does not tell the exposure's peak")
    }
}

/// Returns the arguments of `hemi serve` that do not name legs or sockets. All that hemi keeps for the
/// volume is in `folder`, or in shared memory, and goes with the demonstration.
fn serve_options(setting: &Setting, folder: &Path, policy: &str) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["serve".into(), "--policy".into(), policy.into()];
    let mut state = OsString::from("state=");
    state.push(folder);
    options.extend(["--set".into(), state]);
    if let Some(ledgers) = &setting.ledgers {
        options.extend(["--ledger".into(), ledgers.into()]);
    }
    if !setting.from_outside {
        options.push("--allow-inject".into());
    }
    options
}

/// Runs one scenario with one policy.
pub(super) fn run(setting: &Setting, policy: &'static str, scenario: Scenario) -> Result<Row> {
    let folder = setting.folder.join(format!("{policy}-{scenario:?}").to_lowercase());
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let legs = [0, 1]
        .map(|index| Leg::start(setting, &folder, index))
        .into_iter()
        .collect::<Result<Vec<Leg>>>()?;
    let mut volume = Volume::start(setting, &folder, &legs, policy)?;
    volume.wait_converged(setting)?;
    for leg in &legs {
        leg.prepare(setting, &volume.control)?;
    }
    let load = Load::start(&folder, &volume.socket, setting.seconds)?;
    if let Some(frozen) = scenario.frozen_leg() {
        children::pause(Duration::from_secs(setting.seconds / 3), &setting.interrupted)?;
        legs[frozen].freeze(setting, &volume.control)?;
    }
    // Reading back takes as long as the slowest policy's legs need.
    let limit = Duration::from_secs(setting.seconds * 10 + 120);
    let figures = load.finish(limit, &setting.interrupted)?;
    let exposure_peak = volume.exposure_peak(setting)?;
    volume.server.terminate()?;
    volume.server.finish(Duration::from_secs(120), &setting.interrupted)?;
    drop(legs);
    // Each scenario's legs are deleted at once, so that only one run's space is needed.
    for index in 0..2 {
        let path = folder.join(format!("leg{index}.img"));
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(Row { policy, scenario, figures, exposure_peak })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_of_a_volume_is_in_the_temporary_directory() {
        let setting = Setting {
            hemi: "hemi".into(),
            folder: "/tmp/hemi-demo-1".into(),
            ledgers: None,
            seconds: 8,
            from_outside: true,
            interrupted: Arc::default(),
        };
        let folder = setting.folder.join("first-calm");
        let options = serve_options(&setting, &folder, "first");
        let set = options.iter().position(|option| option == "--set").map(|at| &options[at + 1]);
        assert_eq!(set, Some(&OsString::from("state=/tmp/hemi-demo-1/first-calm")));
    }
}
