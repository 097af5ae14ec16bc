//! Drives that become standbys of a volume being served, and standbys that are let go.

use std::sync::Arc;

use hemi_engine::format::{Layout, block};

use super::joining::{join_options, unprepared};
use super::on_a_thread;
use crate::control::volume::{Outcome, Refusal, RefusalKind};
use crate::create::make_standby;
use crate::messages::ReactorHandle;
use crate::standby::Standbys;
use hemi_io::config::legs::LegConfig;

/// Checks a drive as one that joins, and makes it a standby.
pub(super) fn add(
    reactor: ReactorHandle,
    standbys: Arc<Standbys>,
    config: LegConfig,
    wipe: bool,
) -> Outcome {
    on_a_thread("hemi-standby", "making the standby ready", move || {
        config.check("config").map_err(|error| {
            let way_out = "docs/configuration.md lists the options of a leg.";
            Refusal::new(RefusalKind::BadRequest, error.to_string(), way_out)
        })?;
        if standbys.status().iter().any(|known| known.path == config.path.to_string()) {
            let what = format!("{} is a standby of this volume already", config.path);
            return Err(Refusal::new(RefusalKind::Conflict, what, "hemi status shows it."));
        }
        let options = join_options(&reactor.snapshot(), &config, wipe, None)?;
        let opened = make_standby(&options).map_err(unprepared)?;
        standbys.add(config, opened);
        Ok(())
    })
}

/// Erases a standby's superblock and lets go of the drive.
pub(super) fn remove(standbys: Arc<Standbys>, standby: String) -> Outcome {
    on_a_thread("hemi-standby", "letting go of the standby", move || {
        let Some((config, opened)) = standbys.remove(&standby) else {
            let what = format!("no standby that is ready is called {standby:?}");
            return Err(Refusal::new(RefusalKind::NotFound, what, "hemi status lists them."));
        };
        let erased = [0, 1].into_iter().try_for_each(|slot| {
            opened.write_at(Layout::superblock_address(slot), &block::blank())?;
            opened.flush()
        });
        erased.map_err(|error| {
            let what = format!("the superblock of {} could not be erased: {error}", config.path);
            let way_out = "It is let go of, and is a standby again at the next start.";
            Refusal::new(RefusalKind::Failed, what, way_out)
        })
    })
}
