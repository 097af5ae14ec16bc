//! `hemi upgrade`: replaces the program that serves a volume, and keeps its clients.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_server::control::api::{self, VolumeStatus};
use hemi_server::control::volume::{HandoverReport, Phase};
use hemi_units::prose::{counted, duration};

use crate::client::{Client, Which};
use crate::failure::{Failure, Kind};

/// The time within which the new program has to serve. Opening a volume may wait for absent legs.
pub(super) const SERVE_TIME: Duration = Duration::from_secs(300);
/// The same time if the answer to the request was lost, so that it may not have been accepted.
const LOST_ANSWER_TIME: Duration = Duration::from_secs(30);
/// The pause between two checks that it serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Let the program that is installed now go on with a served volume.
///
/// Clients stay connected and see a pause of less than a second. The new program replaces the old
/// one in the same process, with the same arguments, and reads its configuration again. Before
/// that, hemi checks that it can take over. If it cannot, or if clients' requests are not answered
/// in time, nothing changes.
///
/// A later version will have no such command. Stop the volume and start it again instead, with
/// `systemctl restart hemi@NAME` where systemd serves it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi upgrade
  hemi upgrade --volume db --binary /opt/hemi/bin/hemi")]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    which: Which,

    /// The program to run [default: the file that the running program was started from].
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,

    /// Cut clients off that cannot be kept: those that use TLS.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &UpgradeArgs) -> Result<()> {
    let binary = arguments.binary.as_ref().map(|path| {
        std::path::absolute(path).with_context(|| format!("--binary {}", path.display()))
    });
    let request = api::Upgrade { binary: binary.transpose()?, force: arguments.force };
    let client = Client::new(&arguments.which)?;
    client.block_on(async {
        let before: VolumeStatus = client.get("/v1/status").await?;
        let asked = client.post("/v1/upgrade", &request).await;
        let time = match asked {
            Ok(()) => SERVE_TIME,
            Err(error) if error.is::<Failure>() => return Err(error),
            // The program may have gone before its answer was sent.
            Err(_) => LOST_ANSWER_TIME,
        };
        let after = served(&client, &before, time).await?;
        let report = after.taken_over.clone().unwrap_or_default();
        if let Some(reason) = &report.fallback {
            return Err(Failure::error(
                Kind::Failed,
                format!("{reason}; the program from before goes on"),
                "Clients stay connected. Install a program that can be run, and try again.",
            ));
        }
        let text = said(&before, &after, &report);
        writeln!(std::io::stdout().lock(), "{text}")?;
        Ok(())
    })
}

/// Waits until the new program serves.
pub(super) async fn served(
    client: &Client,
    before: &VolumeStatus,
    time: Duration,
) -> Result<VolumeStatus> {
    let upgrades =
        |status: &VolumeStatus| status.taken_over.as_ref().map_or(0, |over| over.upgrades);
    let until = Instant::now() + time;
    loop {
        let last = match client.get::<VolumeStatus>("/v1/status").await {
            Ok(status)
                if status.phase == Phase::Serving && upgrades(&status) > upgrades(before) =>
            {
                return Ok(status);
            }
            Ok(status) if status.phase == Phase::Serving && status.uptime_ns < before.uptime_ns => {
                return Err(Failure::error(
                    Kind::Failed,
                    format!("volume {} is served again, but clients were cut off", status.name),
                    "The log of hemi serve says why.",
                ));
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= until {
            return Err(Failure::error(
                Kind::Failed,
                format!(
                    "the new program does not serve volume {} after {} s{}",
                    before.name,
                    time.as_secs(),
                    last.map_or_else(String::new, |error| format!(": {error}")),
                ),
                "See the log of hemi serve.",
            ));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Describes the result in words.
fn said(before: &VolumeStatus, after: &VolumeStatus, report: &HandoverReport) -> String {
    let mut text = format!(
        "volume {}: hemi {} went on for hemi {}; {} waited {}",
        after.name,
        after.version,
        before.version,
        counted(report.connections, "client"),
        duration(report.pause_ns),
    );
    if report.cut > 0 {
        text.push_str(&format!(", {} cut off", counted(report.cut, "client")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_names_both_versions_and_the_clients() {
        let status = |version: &str| VolumeStatus {
            name: "db".into(),
            version: version.into(),
            ..VolumeStatus::default()
        };
        let report = HandoverReport {
            connections: 3,
            cut: 1,
            pause_ns: 87_900_000,
            ..HandoverReport::default()
        };
        assert_eq!(
            said(&status("1.0.0"), &status("1.1.0"), &report),
            "volume db: hemi 1.1.0 went on for hemi 1.0.0; 3 clients waited 88 ms, 1 client cut off"
        );
    }
}
