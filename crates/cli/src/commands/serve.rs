//! `hemi serve`: serves a volume to clients until it is stopped.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgGroup, Args};
use hemi_io::config::ConfigError;
use hemi_server::config::device::DeviceKind;
use hemi_server::config::exports::{ExportConfig, Listen};
use hemi_server::config::vhost::VhostConfig;
use hemi_server::config::{Config, HttpAddress};
use hemi_server::handover::CheckAnswer;
use hemi_server::ledger::LedgerFileError;
use hemi_server::serve::{ServeError, ServeOptions, Started, serve};
use hemi_units::{Size, Time};

use captive::Captive;

use super::volume::VolumeArgs;
use crate::failure::{Failure, Kind};
use crate::logging::{self, LogArgs};

mod captive;

/// Serve a volume.
///
/// Name every leg of the volume, in any order, or a configuration file that does; or have the legs
/// looked for by the volume's name. Clients connect over NBD. The other hemi commands control the
/// volume over HTTP on a unix socket.
///
/// TERM or INT stops the volume: legs drain for at most --drain-on-stop, then the volume is
/// closed clean. A second signal skips the drain. Debts that remain are recorded either way, and
/// drained after the next start.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("exports").args(["nbd", "vhost"]).multiple(true)))]
#[command(after_help = "\
Examples:
  hemi serve --leg /dev/nvme0n1p3 --leg /dev/sdb --nbd unix:/run/hemi/db.nbd
  hemi serve --leg ssd.img --leg nbd://storage/db --nbd tcp:0.0.0.0:10809 --http 127.0.0.1:9188
  hemi serve --scan db
  hemi serve --leg ssd.img --leg hdd.img --run 'nbdcopy \"$uri\" copy.img'
  hemi serve /etc/hemi/db.toml
  hemi serve /etc/hemi/db.toml --set engine.exposure.bytes=256MiB --print-config

docs/configuration.md lists every option with its default and range.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    volume_args: VolumeArgs,

    /// Export over NBD on unix:PATH or tcp:HOST[:PORT]; may be repeated.
    #[arg(long = "nbd", value_name = "ADDRESS", conflicts_with = "file")]
    nbd: Vec<Listen>,

    /// Be a virtual machine's disk (vhost-user-blk) on the unix socket PATH; may be repeated. The machine
    /// goes on when hemi serve is started again.
    #[arg(long = "vhost", value_name = "PATH", conflicts_with = "file")]
    vhost: Vec<PathBuf>,

    /// Make the volume a block device, /dev/hemi/NAME: auto or ublk. It outlives hemi serve.
    #[arg(
        long,
        value_name = "KIND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto"
    )]
    device: Option<DeviceKind>,

    /// Refuse writes on the exports named by --nbd and --vhost.
    #[arg(long, requires = "exports")]
    read_only: bool,

    /// Record every request in this file, which must not exist yet, for hemi trace and hemi load.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Run this command in a shell as soon as the volume is served, with $uri, $unixsocket and $name in
    /// its environment. When it ends the volume is stopped, and hemi serve exits with its status.
    #[arg(long, value_name = "COMMAND")]
    run: Option<String>,

    /// Name the volume must have.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,

    /// Path of the control socket [default: <volume>.sock in /run/hemi or
    /// $XDG_RUNTIME_DIR/hemi].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Serve the dashboard, metrics and health over HTTP.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<HttpAddress>,

    /// Acknowledgement rule: first, paper, all or write-behind [default: first].
    #[arg(long, value_name = "POLICY", value_parser = ["first", "paper", "all", "write-behind"])]
    policy: Option<String>,

    /// Memory for payload [default: 256MiB].
    #[arg(long, value_name = "SIZE")]
    buffer_budget: Option<Size>,

    /// Drain what legs owe for at most this long at stop [default: 30s].
    #[arg(long, value_name = "DURATION")]
    drain_on_stop: Option<Time>,

    /// Wait this long at start for an absent leg without which the volume cannot be served
    /// [default: 0s].
    #[arg(long, value_name = "DURATION")]
    wait_for_legs: Option<Time>,

    /// After that, give up a leg that is missing and may hold more, as hemi promote does: writes that
    /// were acknowledged and that it alone holds are lost.
    #[arg(long)]
    start_degraded: bool,

    /// Start by what the legs say, though the ledger that the volume was served with is missing or
    /// damaged. Writes that were acknowledged and not flushed may be lost.
    #[arg(long)]
    accept_loss: bool,

    /// Allow hemi inject to delay, freeze and fail legs. For tests.
    #[arg(long)]
    allow_inject: bool,

    /// Set any option of the configuration, for example engine.wait.floor=10ms; may be
    /// repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the effective configuration and exit.
    #[arg(long)]
    print_config: bool,

    /// Print, as JSON, the facts that hemi upgrade needs of this program, and exit.
    #[arg(long, hide = true)]
    check_upgrade: bool,

    #[command(flatten)]
    log: LogArgs,
}

impl ServeArgs {
    /// Returns the checked configuration made of the file, the assignments and the flags.
    fn config(&self) -> Result<Config, ConfigError> {
        let mut set = self.set.clone();
        set.extend(self.policy.iter().map(|policy| format!("engine.policy={policy}")));
        let mut config = self.volume_args.config(&set)?;
        config.exports.extend(
            self.nbd.iter().cloned().map(|listen| ExportConfig {
                read_only: self.read_only,
                ..ExportConfig::new(listen)
            }),
        );
        let read_only = self.read_only;
        config
            .vhost
            .extend(self.vhost.iter().cloned().map(|socket| VhostConfig { socket, read_only }));
        if let Some(volume) = &self.volume {
            config.volume = Some(volume.clone());
        }
        if let Some(control) = &self.control {
            config.control = Some(control.clone());
        }
        if let Some(device) = self.device {
            config.device = device;
        }
        if let Some(http) = &self.http {
            config.http = Some(http.clone());
        }
        if let Some(budget) = self.buffer_budget {
            config.buffer_budget = budget;
        }
        if let Some(drain) = self.drain_on_stop {
            config.drain_on_stop = drain;
        }
        if let Some(wait) = self.wait_for_legs {
            config.wait_for_legs = wait;
        }
        config.start_degraded |= self.start_degraded;
        config.allow_inject |= self.allow_inject;
        config.check()?;
        Ok(config)
    }
}

pub(crate) fn run(arguments: &ServeArgs) -> Result<ExitCode> {
    let mut config = arguments.config()?;
    if arguments.print_config {
        std::io::stdout().write_all(config.to_toml().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.check_upgrade {
        let answer = serde_json::to_string(&CheckAnswer::own())?;
        writeln!(std::io::stdout(), "{answer}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let logging = logging::start(&arguments.log)?;
    let captive = arguments.run.as_deref().map(|command| Captive::new(command, &mut config));
    let captive = captive.transpose()?;
    let begin = |started: &Started| {
        if let Some(captive) = &captive {
            captive.start(started);
        }
    };
    let asked = ServeOptions {
        record: arguments.record.as_deref(),
        accept_loss: arguments.accept_loss,
        companion: captive.is_some().then_some(&begin),
    };
    let outcome = serve(config, asked).map_err(failure);
    if let Some(captive) = captive {
        // The command is not left alone with a volume that is gone.
        let code = captive.finish();
        outcome?;
        return code;
    }
    let Some(successor) = outcome? else {
        return Ok(ExitCode::SUCCESS);
    };
    // Log lines still waiting would be lost with this program.
    drop(logging);
    let binary = successor.binary().display().to_string();
    let error = successor.exec();
    Err(Failure::error(
        Kind::Failed,
        format!("neither {binary} nor this program again could be run: {error}"),
        "The volume is closed, and its clients are cut off. Serve it again.",
    ))
}

/// Chooses the exit code for an error of serving or settling.
pub(crate) fn failure(error: ServeError) -> anyhow::Error {
    match &error {
        // The text contains the remedy, which differs from problem to problem.
        ServeError::Refused(_)
        | ServeError::Halted { .. }
        | ServeError::LedgerNeeded { .. }
        | ServeError::Ledger(LedgerFileError::ReliedOn { .. }) => {
            Failure::error(Kind::Refused, error.to_string(), "")
        }
        ServeError::OtherVolume { .. } => Failure::error(
            Kind::Refused,
            error.to_string(),
            "Name the legs of that volume, or leave out --volume (`volume = …`).",
        ),
        ServeError::Device(device) => {
            Failure::error(Kind::Failed, error.to_string(), device.way_out())
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Serve {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn config(arguments: &[&str]) -> Config {
        let whole = std::iter::once("serve").chain(arguments.iter().copied());
        let parsed = Serve::try_parse_from(whole).unwrap_or_else(|error| panic!("{error}"));
        parsed.serve.config().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn flags_and_assignments_make_a_configuration() {
        let config = config(&[
            "--leg",
            "a",
            "--leg",
            "stripe:b,c",
            "--nbd",
            "unix:/s",
            "--read-only",
            "--policy",
            "all",
            "--buffer-budget",
            "64M",
            "--drain-on-stop",
            "5s",
            "--allow-inject",
            "--set",
            "engine.wait.floor=10ms",
            "--http",
            "[::1]:9",
            "--control",
            "/c",
            "--volume",
            "db",
            "--scan",
            "db",
            "--scan-in",
            "/srv",
            "--start-degraded",
            "--wait-for-legs",
            "1m",
        ]);
        assert_eq!(config.legs.len(), 2);
        assert!(config.exports[0].read_only);
        assert_eq!(config.engine.policy, hemi_engine::settings::Policy::All);
        assert_eq!(config.buffer_budget, Size::mib(64));
        assert_eq!(config.drain_on_stop, Time::seconds(5));
        assert_eq!(config.engine.wait.floor, Time::millis(10));
        assert!(config.allow_inject);
        assert_eq!(config.volume.as_deref(), Some("db"));
        assert!(config.start_degraded);
        let scan = config.scan.as_ref().expect("it scans");
        assert_eq!((scan.volume.as_str(), &scan.places[..]), ("db", &["/srv".into()][..]));
        let printed = config.to_toml();
        let again = Config::parse(&printed, Path::new("printed"), &[]);
        assert_eq!(again.ok(), Some(config));
    }

    #[test]
    fn a_file_and_legs_exclude_each_other() {
        assert!(Serve::try_parse_from(["serve", "x.toml", "--leg", "a"]).is_err());
    }
}
