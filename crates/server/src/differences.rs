//! The extents in which legs are known to differ, kept over restarts in the state directory.
//!
//! The engine knows them while the volume is served. The control thread writes them to a file of JSON lines
//! whenever they have changed, and the next start hands them to its engine.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use hemi_engine::engine::{DIFFERENCES_MAX, Difference, Differences};
use hemi_engine::format::Id;
use hemi_engine::identifiers::LegIndex;
use hemi_units::{Extent, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

use crate::config::place::Place;
use crate::state;

/// Extension of the file in the state directory.
pub(crate) const EXTENSION: &str = "differences";
/// Largest line that is written, generously.
const LINE_BYTES_MAX: u64 = 256;

/// An extent in which a leg differs from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceView {
    /// The slot of the leg that was found to differ. It need not be the wrong one.
    pub leg: u8,
    /// The first byte of the volume.
    pub start_bytes: u64,
    /// The number of bytes.
    pub length_bytes: u64,
}

/// The known differences, as published and as kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The extents, by leg and start.
    pub differences: Vec<DifferenceView>,
    /// Bytes of more, for which there was no room.
    pub uncounted_bytes: u64,
    /// A number that changes with them.
    #[serde(skip)]
    pub version: u64,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Difference(DifferenceView),
    Uncounted { uncounted_bytes: u64 },
}

impl Known {
    /// Returns what the engine knows.
    pub(crate) fn of(differences: &Differences) -> Known {
        let view = |one: Difference| DifferenceView {
            leg: one.leg.0,
            start_bytes: one.extent.start * SECTOR_BYTES,
            length_bytes: one.extent.sectors() * SECTOR_BYTES,
        };
        Known {
            differences: differences.iter().map(view).collect(),
            uncounted_bytes: differences.uncounted() * SECTOR_BYTES,
            version: differences.version(),
        }
    }

    /// Returns the differences for the engine.
    pub(crate) fn for_engine(&self) -> impl Iterator<Item = Difference> {
        self.differences.iter().map(|view| Difference {
            leg: LegIndex(view.leg),
            extent: Extent {
                start: view.start_bytes / SECTOR_BYTES,
                end: view.start_bytes.saturating_add(view.length_bytes) / SECTOR_BYTES,
            },
        })
    }

    /// Returns the sectors for which there was no room.
    pub(crate) fn uncounted_sectors(&self) -> u64 {
        self.uncounted_bytes / SECTOR_BYTES
    }

    /// Reads what was kept of a volume. Nothing is known if it cannot be read, which is logged.
    pub(crate) fn find(place: &Place, volume: Id) -> Known {
        let Ok(path) = state::file(place, volume, EXTENSION) else { return Known::default() };
        Known::read(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "differences that were known before the start are not known");
            Known::default()
        })
    }

    /// Reads what was kept; nothing if there is no file.
    ///
    /// # Errors
    /// The system's error. A line that cannot be understood ends the reading with one.
    pub(crate) fn read(path: &Path) -> io::Result<Known> {
        let mut known = Known::default();
        let Some(file) = state::open(path)? else { return Ok(known) };
        let most = (DIFFERENCES_MAX as u64 + 1) * LINE_BYTES_MAX;
        for line in BufReader::new(file.take(most)).lines() {
            match serde_json::from_str(&line?)? {
                Line::Difference(one) => known.differences.push(one),
                Line::Uncounted { uncounted_bytes } => known.uncounted_bytes = uncounted_bytes,
            }
        }
        Ok(known)
    }

    /// Writes them, in place of what was kept.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        let mut add = |line: &Line| -> io::Result<()> {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
            Ok(())
        };
        self.differences.iter().try_for_each(|&one| add(&Line::Difference(one)))?;
        if self.uncounted_bytes > 0 {
            add(&Line::Uncounted { uncounted_bytes: self.uncounted_bytes })?;
        }
        state::replace(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let path = folder.path().join("x.differences");
        assert_eq!(Known::read(&path).expect("nothing was kept"), Known::default());
        let one = DifferenceView { leg: 1, start_bytes: 4096, length_bytes: 16384 };
        let known = Known { differences: vec![one], uncounted_bytes: 512, version: 0 };
        known.keep(&path).expect("it can be written");
        let text = std::fs::read_to_string(&path).expect("it was written");
        assert_eq!(
            text,
            "{\"leg\":1,\"start_bytes\":4096,\"length_bytes\":16384}\n{\"uncounted_bytes\":512}\n"
        );
        assert_eq!(Known::read(&path).expect("it can be read"), known);
        let extent = Extent { start: 8, end: 40 };
        let for_engine: Vec<_> = known.for_engine().collect();
        assert_eq!(for_engine, [Difference { leg: LegIndex(1), extent }]);
        std::fs::write(&path, "rubbish\n").expect("it can be written");
        assert!(Known::read(&path).is_err());
    }
}
