//! The last scrub and its result, kept over restarts in the state directory.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::api::LastScrub;
use crate::state;
use hemi_io::clock::unix_ms;

/// Extension of its file in the state directory.
pub(crate) const EXTENSION: &str = "scrub";
/// Largest file that is read, far larger than any that was written.
const FILE_BYTES_MAX: u64 = 4096;

/// The running scrub and the last one.
#[derive(Debug, Default)]
pub(super) struct Scrubs {
    last: Option<LastScrub>,
    file: Option<PathBuf>,
    /// The time at which the running scrub was requested, and true if it was asked to stop.
    running: Option<(Instant, bool)>,
}

impl Scrubs {
    /// Reads the last scrub from this file, if it exists. Without a file nothing is kept.
    pub(super) fn new(file: Option<PathBuf>) -> Scrubs {
        let last = file.as_deref().and_then(|path| match read(path) {
            Ok(last) => last,
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the result of the last scrub is not known");
                None
            }
        });
        Scrubs { last, file, running: None }
    }

    /// Returns the last scrub that ended.
    pub(super) fn last(&self) -> Option<LastScrub> {
        self.last
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
    pub(super) fn end(&mut self, now: Instant, mismatched_bytes: u64, repaired: bool) {
        let Some((begun, stopped)) = self.running.take() else { return };
        let took = now.saturating_duration_since(begun);
        let last = LastScrub {
            at_ms: unix_ms(),
            mismatched_bytes,
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

    #[test]
    fn a_result_is_kept() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let file = folder.path().join("x.scrub");
        let mut scrubs = Scrubs::new(Some(file.clone()));
        assert_eq!(scrubs.last(), None);
        let now = Instant::now();
        scrubs.begin(now);
        scrubs.end(now + std::time::Duration::from_secs(3), 512, true);
        let last = scrubs.last().expect("it has ended");
        assert_eq!((last.mismatched_bytes, last.repaired, last.stopped), (512, true, false));
        assert_eq!(last.took_ns, 3_000_000_000);
        assert_eq!(Scrubs::new(Some(file.clone())).last(), Some(last));
        scrubs.begin(now);
        scrubs.stop();
        scrubs.end(now, 0, false);
        assert!(Scrubs::new(Some(file)).last().is_some_and(|last| last.stopped));
    }

    #[test]
    fn one_that_did_not_run_leaves_no_result() {
        let mut scrubs = Scrubs::default();
        scrubs.stop();
        scrubs.begin(Instant::now());
        scrubs.refused();
        scrubs.end(Instant::now(), 0, false);
        assert_eq!(scrubs.last(), None);
    }

    #[test]
    fn rubbish_in_the_file_is_no_result() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let file = folder.path().join("x.scrub");
        std::fs::write(&file, "rubbish").expect("it can be written");
        assert_eq!(Scrubs::new(Some(file)).last(), None);
    }
}
