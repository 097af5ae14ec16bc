//! `hemi scrub`: compares all legs of a served volume.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use hemi_server::control::api::{self, VolumeStatus};
use hemi_server::control::quantities::bytes;

use crate::client::{Client, Which};

/// The time between two updates of the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Compare all legs, extent by extent, while the volume is served.
///
/// Shows the progress and waits until the comparison is done. Interrupting this command does not
/// stop the scrub; hemi scrub --stop does. Exits with 1 if legs differ and --repair was not
/// given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi scrub
  hemi scrub --repair
  hemi scrub --stop")]
pub(crate) struct ScrubArgs {
    /// Rewrite differing extents from the leg that decides.
    #[arg(long, conflicts_with = "stop")]
    repair: bool,

    /// Stop the running scrub.
    #[arg(long)]
    stop: bool,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &ScrubArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    let request = api::Scrub { repair: arguments.repair, stop: arguments.stop };
    client.block_on(async {
        if arguments.stop {
            return client.post("/v1/scrub", &request).await;
        }
        let outcome = tokio::select! {
            outcome = client.post("/v1/scrub", &request) => outcome,
            never = progress(&client) => never,
        };
        clear_line()?;
        outcome?;
        let status: VolumeStatus = client.get("/v1/status").await?;
        let different = status.scrub.mismatched_bytes;
        let mut out = std::io::stdout().lock();
        match (different, arguments.repair) {
            (0, _) => writeln!(out, "all legs of {} are alike", status.name)?,
            (_, _) => writeln!(out, "{} differed and were rewritten", bytes(different))?,
        }
        Ok(())
    })
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
