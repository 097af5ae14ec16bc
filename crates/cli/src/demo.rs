//! `hemi demo`: a volume on unlike legs through freezes of each, compared with a plain mirror.
//!
//! Creates two file-backed legs in a temporary directory. The second is 20 ms slower, like a
//! seeking or remote drive. fio writes over NBD at a database's pace, then reads everything back
//! and verifies it. While fio writes, each leg in turn stops answering for two seconds. The same
//! runs are repeated with the policies `all` (a plain mirror) and `write-behind`. If nbdkit is
//! installed, the legs are nbdkit exports, so that delays and freezes come from outside hemi.
//! Otherwise `hemi inject` causes them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

mod children;
mod fio;
mod legs;
mod report;
mod scenario;

use report::Row;
use scenario::{Scenario, Setting};

/// The time for which a leg stops answering.
const FREEZE: Duration = Duration::from_secs(2);
/// The additional latency of the second leg.
const DELAY: Duration = Duration::from_millis(20);
/// The policies shown, hemi's own first.
const POLICIES: [&str; 3] = ["first", "all", "write-behind"];

/// Freeze each leg of a volume on unlike drives, and compare it with a plain mirror.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Seconds that each of the nine runs writes.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Directory in which to create the temporary directory; 1 GiB must be free.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Freeze and delay legs with `hemi inject` even if nbdkit is installed.
    #[arg(long)]
    inject: bool,
    /// Keep the temporary directory with all logs.
    #[arg(long)]
    keep: bool,
}

/// Runs the demonstration and prints its table and conclusion.
///
/// # Errors
///
/// Fails if a tool is missing, a server does not start, or a load fails or does not verify.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot handle signals")?;
    }
    fio::check_installed()?;
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut folder = tempfile::Builder::new()
        .prefix("hemi-demo-")
        .tempdir_in(&parent)
        .with_context(|| format!("cannot create a temporary directory in {}", parent.display()))?;
    folder.disable_cleanup(args.keep);
    let ledgers = folder_in_memory();

    let setting = Setting {
        hemi: std::env::current_exe().context("cannot tell where the hemi command is")?,
        folder: folder.path().to_owned(),
        ledgers: ledgers.as_ref().map(|folder| folder.path().to_owned()),
        seconds: args.seconds,
        from_outside: !args.inject && legs::nbdkit_installed(),
        interrupted,
    };
    println!("{}\n", report::introduction(&setting));
    let rows = run_all(&setting)?;
    println!("\n{}\n\n{}", report::table(&rows), report::conclusion(&rows));
    if args.keep {
        println!("\nLegs and logs are kept in {}", folder.path().display());
    }
    Ok(())
}

/// Returns a temporary directory in shared memory, if the machine has one.
fn folder_in_memory() -> Option<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("hemi-demo-").tempdir_in("/dev/shm").ok()?;
    hemi_server::ledger::check_directory(folder.path()).ok().map(|()| folder)
}

fn run_all(setting: &Setting) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        for scenario in Scenario::ALL {
            eprintln!("{policy}: {} …", scenario.label());
            let row = scenario::run(setting, policy, scenario)
                .with_context(|| format!("policy {policy}, {}", scenario.label()))?;
            rows.push(row);
        }
    }
    Ok(rows)
}
