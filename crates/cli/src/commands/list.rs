//! `hemi list`: the volumes that are served on this machine.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use hemi_server::control::api::VolumeStatus;
use hemi_server::control::socket::run_directories;
use serde::Serialize;

use crate::client::{Client, RunSockets};
use crate::text;

/// The longest wait for a volume's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// List the volumes that are served on this machine.
///
/// Shows one line for each volume whose control socket is in a run directory. Exits with 1 if a
/// volume does not answer, or if this user may not use a directory or socket, and names those.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi list
  hemi list --json | jq '.volumes[].name'")]
pub(crate) struct ListArgs {
    /// Print JSON: the status of each volume, and the sockets that could not be queried.
    #[arg(long)]
    json: bool,
}

/// The volumes found, and the sockets that could not be queried.
#[derive(Debug, Default, Serialize)]
struct Found {
    volumes: Vec<Served>,
    unseen: Vec<Unseen>,
}

/// A volume and its control socket.
#[derive(Debug, Serialize)]
struct Served {
    control: PathBuf,
    #[serde(flatten)]
    status: VolumeStatus,
}

/// Something that may be a volume.
#[derive(Debug, Serialize)]
struct Unseen {
    path: PathBuf,
    why: String,
}

pub(crate) fn run(arguments: &ListArgs) -> Result<ExitCode> {
    let directories = run_directories();
    let sockets = RunSockets::look(&directories);
    let mut found = Found::default();
    for path in sockets.denied {
        found.unseen.push(Unseen { path, why: "permission denied".into() });
    }
    for (_, control) in sockets.served {
        let client = Client::at(control.clone());
        match client.block_on(client.get_within("/v1/status", PATIENCE)) {
            Ok(status) => found.volumes.push(Served { control, status }),
            Err(error) => {
                found.unseen.push(Unseen { path: control, why: format!("{error:#}") });
            }
        }
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", serde_json::to_value(&found)?)?;
    } else {
        let statuses: Vec<&VolumeStatus> = found.volumes.iter().map(|one| &one.status).collect();
        if !statuses.is_empty() {
            out.write_all(text::volume_table(&statuses).as_bytes())?;
        } else if found.unseen.is_empty() {
            let looked = directories.iter().map(|directory| directory.display().to_string());
            let looked = looked.collect::<Vec<_>>().join(" and ");
            writeln!(out, "no volume is served here (looked in {looked})")?;
        }
        out.flush()?;
        for Unseen { path, why } in &found.unseen {
            eprintln!("not looked at: {}: {why}", path.display());
        }
        if found.unseen.iter().any(|unseen| unseen.why == "permission denied") {
            eprintln!("hint: run the command as root (sudo) or as the user that serves the volume");
        }
    }
    Ok(if found.unseen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
