//! `hemi scrub`: compares all legs of a served volume, and settles what differs.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use hemi_server::control::api::{self, VolumeStatus};
use hemi_server::differences::Known;
use hemi_text::Plain;
use hemi_units::prose::bytes;

use super::leg::slot;
use crate::client::{Client, Which};
use range::ByteRange;

pub(crate) mod range;
mod show;

/// The time between two updates of the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// The exit code of a command that was interrupted, as a shell gives it.
const INTERRUPTED: u8 = 130;

/// Compare all legs, extent by extent, while the volume is served.
///
/// Shows the progress and waits until the comparison is done. Interrupting this command does not
/// stop the scrub; hemi scrub --stop does. Exits with 1 if something was found and left. A difference
/// is left unless --from names the leg that is right; --show lists where legs differ.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi scrub
  hemi scrub --show
  hemi scrub --repair --from 0
  hemi scrub --stop")]
pub(crate) struct ScrubArgs {
    /// Rewrite what a leg cannot read from the others, and with --from what differs.
    #[arg(long, conflicts_with_all = ["stop", "show"])]
    repair: bool,

    /// The slot of the leg that is right: rewrite what differs from it on the other legs.
    #[arg(long, value_name = "LEG", requires = "repair", value_parser = slot())]
    from: Option<u8>,

    /// Compare a part of the volume: START+LENGTH in bytes, such as 4096000+16KiB.
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["stop", "show"])]
    range: Option<ByteRange>,

    /// List the ranges in which legs are known to differ, with each leg's checksum.
    #[arg(long, conflicts_with = "stop")]
    show: bool,

    /// Print JSON; needs --show.
    #[arg(long, requires = "show")]
    json: bool,

    /// Stop the running scrub.
    #[arg(long)]
    stop: bool,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &ScrubArgs) -> Result<ExitCode> {
    let client = Client::new(&arguments.which)?;
    if arguments.show {
        return show(&client, arguments.json).map(|()| ExitCode::SUCCESS);
    }
    let request = api::Scrub {
        repair: arguments.repair,
        from: arguments.from,
        start_bytes: arguments.range.map(|range| range.start),
        length_bytes: arguments.range.map(|range| range.length),
        stop: arguments.stop,
    };
    client.block_on(async {
        if arguments.stop {
            let status: VolumeStatus = client.get("/v1/status").await?;
            client.post("/v1/scrub", &request).await?;
            let said = if status.scrub.running { "the scrub is stopped" } else { "no scrub runs" };
            writeln!(std::io::stdout(), "{}: {said}", Plain(&status.name))?;
            return Ok(ExitCode::SUCCESS);
        }
        let outcome = tokio::select! {
            outcome = client.post("/v1/scrub", &request) => outcome,
            never = progress(&client) => never,
            _ = tokio::signal::ctrl_c() => {
                clear_line()?;
                eprintln!("the scrub goes on; hemi scrub --stop ends it, hemi status shows it");
                return Ok(ExitCode::from(INTERRUPTED));
            }
        };
        clear_line()?;
        outcome?;
        let status: VolumeStatus = client.get("/v1/status").await?;
        writeln!(std::io::stdout(), "{}", result(arguments, &status))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the result of a scrub that left nothing.
fn result(arguments: &ScrubArgs, status: &VolumeStatus) -> String {
    let (name, scrub) = (Plain(&status.name), &status.scrub);
    let mut parts = Vec::new();
    if scrub.mismatched_bytes > 0 {
        let from = arguments.from.map_or_else(String::new, |leg| format!(" from leg {leg}"));
        parts.push(format!("{} differed and are rewritten{from}", bytes(scrub.mismatched_bytes)));
    }
    if scrub.unreadable_bytes > 0 {
        let size = bytes(scrub.unreadable_bytes);
        parts.push(format!("a leg could not read {size}, which is rewritten from the others"));
    }
    match (parts.is_empty(), arguments.range) {
        (false, _) => parts.join("; "),
        (true, Some(range)) => format!("all legs of {name} are alike in {range}"),
        (true, None) if status.scrub.different_bytes > 0 => {
            format!("no further difference between the legs of {name} was found")
        }
        (true, None) => format!("all legs of {name} are alike"),
    }
}

fn show(client: &Client, json: bool) -> Result<()> {
    let (status, known): (VolumeStatus, Known) = client.block_on(async {
        Ok((client.get("/v1/status").await?, client.get("/v1/differences").await?))
    })?;
    let shown = show::look(&status, &known);
    let mut out = std::io::stdout().lock();
    if json {
        let uncounted = known.uncounted_bytes;
        let value = serde_json::json!({ "differences": shown, "uncounted_bytes": uncounted });
        writeln!(out, "{value:#}")?;
    } else {
        write!(out, "{}", show::text(&status, &known, &shown))?;
    }
    Ok(())
}

/// Shows the scrub's progress on a terminal. Never ends by itself.
async fn progress(client: &Client) -> Result<()> {
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        if !std::io::stderr().is_terminal() {
            continue;
        }
        // A status that cannot be read now may be at the next turn. The outcome of the scrub
        // reports errors.
        if let Ok(status) = client.get::<VolumeStatus>("/v1/status").await {
            let scrub = status.scrub;
            let share = scrub.compared_bytes * 100 / scrub.total_bytes.max(1);
            eprint!(
                "\r\x1b[Kcompared {} of {} ({share} %), {} differ",
                bytes(scrub.compared_bytes),
                bytes(scrub.total_bytes),
                bytes(scrub.mismatched_bytes)
            );
            std::io::stderr().flush()?;
        }
    }
}

fn clear_line() -> Result<()> {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
        std::io::stderr().flush()?;
    }
    Ok(())
}
