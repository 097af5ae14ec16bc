//! The metadata on the legs, compared with what the volume knows, and written again where it is lost.
//!
//! Something may overwrite a leg beneath hemi: a partition tool, a second system, a drive. The engine keeps
//! all metadata in memory while it serves, so that it would notice at the next start only.

use hemi_units::prose::counted;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hemi_engine::identifiers::LegIndex;
use hemi_engine::status::LegState;
use hemi_io::probe::hex;

use super::api::VolumeStatus;
use super::events::{Event, Severity};
use super::routes::Shared;
use super::volume::{Refusal, RefusalKind, Request, Snapshot};
use crate::inspect::{LegReport, inspect};
use crate::notices;

/// Number of looks at a leg whose metadata is being written again.
const LOOKS: u32 = 40;
/// Time between two of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The metadata known to be lost, by slot, in words.
#[derive(Debug, Default)]
pub(super) struct LostMetadata(Mutex<BTreeMap<u8, String>>);

impl LostMetadata {
    fn set(&self, lost: BTreeMap<u8, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lost;
    }

    /// Writes into a status what legs have lost.
    pub(super) fn show_in(&self, status: &mut VolumeStatus) {
        let lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for leg in &mut status.legs {
            leg.metadata_lost = lost.get(&leg.leg).cloned();
        }
    }
}

/// Looks at the metadata of all legs that answer, and has it written again where it is lost.
///
/// # Errors
/// Names what was lost, although it may have been written again.
pub(super) async fn check(shared: &Shared) -> Result<(), Refusal> {
    let found = look(shared).await;
    if found.is_empty() {
        shared.lost_metadata.set(found);
        return Ok(());
    }
    shared.lost_metadata.set(found.clone());
    let mut said = Vec::new();
    for (&leg, why) in &found {
        let name = notices::name(&shared.volume.snapshot().legs, LegIndex(leg));
        tracing::error!(leg = name, why, "the leg has lost its metadata, which is written again");
        let label = notices::label(&name, LegIndex(leg));
        let text = format!("{label} has lost its metadata, which is written again: {why}.");
        let text = notices::capital(text);
        said.push(format!("leg {leg} has lost its metadata: {why}"));
        shared.past.happened(Event::new("metadata", Severity::Critical, text).of_leg(leg, name));
        if let Err(refusal) = shared.volume.request(Request::RewriteMetadata { leg }).await {
            tracing::warn!(leg, what = %refusal.what, "its metadata is not written again");
        }
    }
    let mut left = found;
    for _ in 0..LOOKS {
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
        left = look(shared).await;
        shared.lost_metadata.set(left.clone());
    }
    let outcome = match left.is_empty() {
        true => "It has been written again.",
        false => "It could not be written again yet: see hemi status.",
    };
    Err(Refusal::new(
        RefusalKind::Failed,
        said.join("; "),
        format!("{outcome} Find out what wrote to the drive."),
    ))
}

/// Returns what each leg that answers has lost.
async fn look(shared: &Shared) -> BTreeMap<u8, String> {
    let snapshot = shared.volume.snapshot();
    // It reads from drives, which may take a while.
    let looked = tokio::task::spawn_blocking(move || lost(&snapshot)).await;
    looked.unwrap_or_default()
}

fn lost(snapshot: &Snapshot) -> BTreeMap<u8, String> {
    let answers = |slot: u8| {
        let leg = snapshot.status.legs.iter().find(|leg| leg.leg == slot);
        leg.is_some_and(|leg| matches!(leg.state, LegState::Healthy | LegState::Lagging))
    };
    let mut lost = BTreeMap::new();
    for leg in snapshot.legs.iter().filter(|leg| answers(leg.leg)) {
        // What cannot be opened a second time cannot be looked at.
        let Ok(report) = inspect(&leg.path) else { continue };
        if let Some(why) = problem(&report, snapshot.identity.id) {
            lost.insert(leg.leg, why);
        }
    }
    lost
}

/// Returns what is wrong with a leg's metadata. One slot of each object may be damaged: it is being written.
fn problem(report: &LegReport, volume: [u8; 16]) -> Option<String> {
    let Some(superblock) = &report.superblock else {
        return Some("there is no hemi superblock on it".to_owned());
    };
    if superblock.volume != hex(volume) {
        return Some(format!("its superblock is that of the volume {:?}", superblock.name));
    }
    let unknown = report.table.as_ref().map_or(0, |table| table.unknown.count());
    if unknown > 0 {
        return Some(format!("its table says nothing of {}", counted(unknown, "region")));
    }
    let list = report.lost.as_ref().is_some_and(|lost| lost.extents.is_none());
    list.then(|| "its list of lost extents cannot be read".to_owned())
}
