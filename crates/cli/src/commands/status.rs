//! `hemi status`: shows the state of a served volume.

use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_server::control::api::VolumeStatus;
use hemi_server::control::health::Health;
use hemi_text::Plain;

use crate::client::{Client, Which};
use crate::text;

/// Show the state of a served volume.
///
/// Prints the volume in one line, the clients' requests, a table of the legs, the acknowledged
/// data held by one leg only (exposure) and its bound, and a sentence for each promise that does
/// not hold in full at the moment. Latencies cover the last ten seconds.
///
/// With --check, prints one sentence and exits with 0 if the volume is healthy, with 1 if it is
/// degraded, and with 2 if it is not served, for scripts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi status
  hemi status --watch
  hemi status --check || mail -s 'look at hemi' root
  hemi status --json | jq .exposure")]
pub(crate) struct StatusArgs {
    /// Print the status as JSON, as in the control API.
    #[arg(long)]
    json: bool,

    /// Refresh every second, with rates, until interrupted or the volume is gone.
    #[arg(long)]
    watch: bool,

    /// Print one sentence, and exit with 0 if healthy, 1 if degraded, 2 if not served.
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    check: bool,

    #[command(flatten)]
    which: Which,
}

/// The exit code of `--check` for a volume that is not served.
const NOT_SERVED: u8 = 2;

pub(crate) fn run(arguments: &StatusArgs) -> Result<ExitCode> {
    if arguments.check {
        return Ok(check(&arguments.which));
    }
    show(arguments).map(|()| ExitCode::SUCCESS)
}

/// Prints the judgement of the volume's health, and returns the exit code for it.
fn check(which: &Which) -> ExitCode {
    let asked = Client::new(which)
        .and_then(|client| client.block_on(client.get::<VolumeStatus>("/v1/status")));
    let (code, line) = match asked {
        Ok(status) => {
            let code = match status.health {
                Health::Healthy => 0,
                Health::Degraded => 1,
                Health::NotServing => NOT_SERVED,
            };
            let name = Plain(text::name(&status)).to_string();
            let advice = status.summary.advice.as_deref().unwrap_or_default();
            (code, format!("{name}: {} {advice}", Plain(&status.summary.text)))
        }
        Err(error) => (NOT_SERVED, format!("{error:#}")),
    };
    // Nobody reads the sentence where the output is closed. The exit code says it all.
    let _ = writeln!(std::io::stdout(), "{}", line.trim_end());
    ExitCode::from(code)
}

fn show(arguments: &StatusArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    if arguments.watch {
        return client.block_on(watch(&client, arguments.json));
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let status: serde_json::Value = client.block_on(client.get("/v1/status"))?;
        writeln!(out, "{status:#}")?;
    } else {
        let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
        out.write_all(text::status(&status, None).as_bytes())?;
    }
    Ok(())
}

async fn watch(client: &Client, json: bool) -> Result<()> {
    let on_terminal = std::io::stdout().is_terminal();
    let mut previous: Option<VolumeStatus> = None;
    client
        .lines("/v1/status/stream", |line| {
            let mut out = std::io::stdout().lock();
            if json {
                out.write_all(line)?;
                out.write_all(b"\n")?;
            } else {
                let status: VolumeStatus =
                    serde_json::from_slice(line).context("a line of the status stream")?;
                let screen = text::status(&status, previous.as_ref());
                // One write that goes home and overwrites, rather than clears, avoids flicker.
                let screen = match on_terminal {
                    true => format!("\x1b[H{}\x1b[J", screen.replace('\n', "\x1b[K\n")),
                    false => format!("{screen}\n"),
                };
                out.write_all(screen.as_bytes())?;
                previous = Some(status);
            }
            out.flush()?;
            Ok(ControlFlow::Continue(()))
        })
        .await
}
