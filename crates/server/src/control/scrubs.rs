//! The last scrub, its result, and what differs since: kept over restarts in the state directory.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hemi_engine::command::ScrubRepair;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::status::LegState;
use hemi_units::{Extent, SECTOR_BYTES};

use super::api::{LastScrub, Scrub};
use super::volume::{Refusal, RefusalKind, Snapshot};
use crate::differences::Known;
use crate::state;
use hemi_io::clock::unix_ms;
use hemi_units::prose::bytes;

/// Extension of its file in the state directory.
pub(crate) const EXTENSION: &str = "scrub";
/// Largest file that is read, far larger than any that was written.
const FILE_BYTES_MAX: u64 = 4096;

/// The running scrub and the last one.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    last: Option<LastScrub>,
    file: Option<PathBuf>,
    /// The file of the known differences, and what it holds.
    differences: Option<PathBuf>,
    kept: Arc<Known>,
    /// The time at which the running scrub was requested, and true if it was asked to stop.
    running: Option<(Instant, bool)>,
}

impl Scrubs {
    /// Reads the last scrub from this file, if it exists. Without a file nothing is kept.
    /// `differences` is the file of the known differences, and `known` its content.
    pub(super) fn new(
        file: Option<PathBuf>,
        differences: Option<PathBuf>,
        known: Arc<Known>,
    ) -> Scrubs {
        let last = file.as_deref().and_then(|path| match read(path) {
            Ok(last) => last,
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the result of the last scrub is not known");
                None
            }
        });
        Scrubs { last, file, differences, kept: known, running: None }
    }

    /// Returns the last scrub that ended.
    pub(super) fn last(&self) -> Option<LastScrub> {
        self.last
    }

    /// Writes the known differences to their file, if they have changed.
    pub(super) fn keep_differences(&mut self, known: &Arc<Known>) {
        let Some(path) = &self.differences else { return };
        if Arc::ptr_eq(known, &self.kept) {
            return;
        }
        let is_same = known.differences == self.kept.differences
            && known.uncounted_bytes == self.kept.uncounted_bytes;
        self.kept = Arc::clone(known);
        if !is_same && let Err(error) = known.keep(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "known differences are not kept over a restart");
        }
    }

    /// Records that a scrub was requested.
    pub(super) fn begin(&mut self, now: Instant) {
        self.running = Some((now, false));
    }

    /// Records that the running scrub was asked to stop.
    pub(super) fn stop(&mut self) {
        if let Some((_, stopped)) = &mut self.running {
            *stopped = true;
        }
    }

    /// Records that the requested scrub will not run.
    pub(super) fn refused(&mut self) {
        self.running = None;
    }

    /// Records that the running scrub has ended, and keeps its result.
    pub(super) fn end(
        &mut self,
        now: Instant,
        mismatched_bytes: u64,
        unreadable_bytes: u64,
        repaired: bool,
    ) {
        let Some((begun, stopped)) = self.running.take() else { return };
        let took = now.saturating_duration_since(begun);
        let last = LastScrub {
            at_ms: unix_ms(),
            mismatched_bytes,
            unreadable_bytes,
            repaired,
            took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            stopped,
        };
        self.last = Some(last);
        if let Some(path) = &self.file
            && let Err(error) = keep(path, &last)
        {
            let path = path.display();
            tracing::warn!(%path, %error, "the result of the scrub is not kept over a restart");
        }
    }
}

/// Returns what a request to scrub asks for.
///
/// # Errors
/// A refusal of a leg that cannot be right, or of a part that is not within the volume.
pub(super) fn request(
    asked: &Scrub,
    snapshot: &Snapshot,
) -> Result<(ScrubRepair, Option<Extent>), Refusal> {
    let repair = match (asked.repair, asked.from) {
        (false, None) => ScrubRepair::Nothing,
        (true, None) => ScrubRepair::Unreadable,
        (false, Some(_)) => {
            return Err(Refusal::new(
                RefusalKind::BadRequest,
                "`from` is set, and `repair` is not",
                "Set `repair` (hemi scrub --repair --from LEG) to rewrite the other legs.",
            ));
        }
        (true, Some(slot)) => {
            let leg = snapshot.status.legs.iter().find(|leg| leg.leg == slot);
            match leg.map(|leg| leg.state) {
                Some(LegState::Healthy | LegState::Lagging) => ScrubRepair::From(LegIndex(slot)),
                None | Some(LegState::Empty) => {
                    return Err(Refusal::new(
                        RefusalKind::NotFound,
                        format!("slot {slot} holds no leg"),
                        "hemi status lists the legs.",
                    ));
                }
                Some(state) => {
                    return Err(Refusal::new(
                        RefusalKind::Conflict,
                        format!("leg {slot} is {}, and cannot be read", state.name()),
                        "Bring it back first, or name a leg that answers.",
                    ));
                }
            }
        }
    };
    if asked.start_bytes.is_none() && asked.length_bytes.is_none() {
        return Ok((repair, None));
    }
    let size = snapshot.identity.size_bytes;
    let start = asked.start_bytes.unwrap_or(0);
    let length = asked.length_bytes.unwrap_or(size.saturating_sub(start));
    let end = start.saturating_add(length);
    if length == 0 || end > size {
        return Err(Refusal::new(
            RefusalKind::BadRequest,
            format!("{length} bytes from byte {start} are not within the volume of {size} bytes"),
            "hemi scrub --show lists the ranges that differ.",
        ));
    }
    let part = Extent { start: start / SECTOR_BYTES, end: end.div_ceil(SECTOR_BYTES) };
    Ok((repair, Some(part)))
}

/// Returns the bytes that differ, and those that a leg could not read, as the last scrub found.
pub(super) fn found(snapshot: &Snapshot) -> (u64, u64) {
    let status = &snapshot.status;
    (status.scrub_mismatches * SECTOR_BYTES, status.scrub_unreadable * SECTOR_BYTES)
}

/// Describes what a scrub found and left.
pub(super) fn left(repair: ScrubRepair, differ: u64, unreadable: u64) -> Refusal {
    let decide = "hemi scrub --show lists where, with each leg's checksum. Find out which leg is right (hemi \
                  inspect --read, or mount a leg read-only), then hemi scrub --repair --from LEG.";
    let (what, way_out) = match (repair, differ) {
        (ScrubRepair::From(leg), _) => (
            format!(
                "some of the {} that differ from leg {} could not be rewritten now",
                bytes(differ),
                leg.0
            ),
            "Try again in some seconds; hemi status shows whether all legs answer.",
        ),
        (_, 0) => (
            format!("{} could not be read on a leg", bytes(unreadable)),
            "hemi scrub --repair rewrites them from the other legs. Look at the drive: hemi status.",
        ),
        (ScrubRepair::Unreadable, _) => (
            format!("{} differ between legs, and nobody knows which leg is right", bytes(differ)),
            decide,
        ),
        (ScrubRepair::Nothing, _) => (format!("{} differ between legs", bytes(differ)), decide),
    };
    Refusal::new(RefusalKind::Failed, what, way_out)
}

fn keep(path: &Path, last: &LastScrub) -> io::Result<()> {
    state::replace(path, &serde_json::to_vec(last)?)
}

fn read(path: &Path) -> io::Result<Option<LastScrub>> {
    let Some(file) = state::open(path)? else { return Ok(None) };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(serde_json::from_str(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(file: Option<PathBuf>) -> Scrubs {
        Scrubs::new(file, None, Arc::default())
    }

    #[test]
    fn a_result_is_kept() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let file = folder.path().join("x.scrub");
        let mut scrubs = kept(Some(file.clone()));
        assert_eq!(scrubs.last(), None);
        let now = Instant::now();
        scrubs.begin(now);
        scrubs.end(now + std::time::Duration::from_secs(3), 512, 0, true);
        let last = scrubs.last().expect("it has ended");
        assert_eq!((last.mismatched_bytes, last.repaired, last.stopped), (512, true, false));
        assert_eq!(last.took_ns, 3_000_000_000);
        assert_eq!(kept(Some(file.clone())).last(), Some(last));
        scrubs.begin(now);
        scrubs.stop();
        scrubs.end(now, 0, 0, false);
        assert!(kept(Some(file)).last().is_some_and(|last| last.stopped));
    }

    #[test]
    fn one_that_did_not_run_leaves_no_result() {
        let mut scrubs = Scrubs::default();
        scrubs.stop();
        scrubs.begin(Instant::now());
        scrubs.refused();
        scrubs.end(Instant::now(), 0, 0, false);
        assert_eq!(scrubs.last(), None);
    }

    #[test]
    fn rubbish_in_the_file_is_no_result() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let file = folder.path().join("x.scrub");
        std::fs::write(&file, "rubbish").expect("it can be written");
        assert_eq!(kept(Some(file)).last(), None);
    }
}
