//! `hemi settle`: brings the legs up to the ledger, so that the volume no longer needs it.
//!
//! After a kill only the ledger may name a region's authority, and it ends with this boot of the
//! machine. Settling opens the volume as a start does, but without exports, and closes it again.
//! The region pages on all legs that answer then say what the ledger said, their superblocks rely
//! on no ledger, and it is removed. Debts stay recorded.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::control::volume::{Phase, Snapshot};
use crate::messages::ReactorMessage;
use crate::opening::{self, OpenOptions};
use crate::serve::{self, ReactorOptions, ServeError};

/// Interval between two looks at the volume's phase.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The result of settling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettleReport {
    /// The volume's name.
    pub volume: String,
    /// The ledger that was settled; `null` if the legs rely on none of this boot of the machine.
    pub ledger: Option<PathBuf>,
    /// Regions that had been written and not yet flushed everywhere.
    pub touched_regions: u64,
}

/// Settles the volume that the configuration names. Writes nothing if its legs rely on no ledger.
///
/// # Errors
/// As for [`serve::serve`].
pub fn settle(config: &Config) -> Result<SettleReport, ServeError> {
    let options = OpenOptions {
        waiting: None,
        scan: config.scan.as_ref(),
        // The machine is about to restart, so an absent leg will not come.
        patience: Duration::ZERO,
        ledger: &config.ledger,
        start_degraded: false,
        settle: true,
        accept_loss: false,
        settled: false,
        file: config.file.as_deref(),
    };
    let opened = opening::open(&config.legs, options)?;
    serve::check(config, &opened)?;
    let volume = opened.name();
    let Some(state) = &opened.opening.ledger else {
        return Ok(SettleReport { volume, ledger: None, touched_regions: 0 });
    };
    let touched = state.touched.iter().filter(|touched| **touched).count() as u64;
    let ledger = opened.ledger_status.path.clone();
    let snapshot = Snapshot::opening(opened.identity(), opened.identities.clone());
    let config = &Config { legs: opened.configs.clone(), ..config.clone() };
    let options = ReactorOptions {
        settings: config.settings(),
        buffer_budget: config.buffer_budget.0,
        allow_inject: false,
    };
    let running = serve::start(opened, options, Vec::new(), snapshot)?;
    // Legs that do not answer are marked out, as in a served volume.
    while running.handle.snapshot().phase == Phase::Opening && !running.has_ended() {
        std::thread::sleep(LOOK_INTERVAL);
    }
    let reply = Box::new(|_| ());
    // If the reactor has ended, the join below returns the reason.
    let _ = running.handle.send(ReactorMessage::Shutdown { drain: 0, reply });
    running.join()?;
    Ok(SettleReport { volume, ledger, touched_regions: touched })
}
