//! The memory of drives over restarts: a file for each volume in the state directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::wear::Wear;
use crate::config::place::Place;
use crate::fail_slow::Past;
use crate::state;

/// Version of the file's format. A file of another version is discarded.
const FORMAT: u32 = 1;
/// Maximum number of drives of a volume that are remembered.
const DRIVES_MAX: usize = 128;
/// Maximum number of legs of a volume whose pace is remembered.
const PACES_MAX: usize = 16;

/// The file's content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    format: u32,
    /// The wear of each drive, by serial number.
    drives: BTreeMap<String, Wear>,
    /// The past paces of legs, by the serial numbers of their drives or by their spec.
    paces: BTreeMap<String, Past>,
}

impl Kept {
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(self)?;
        if bytes.len() as u64 > hemi_text::FILE_BYTES_MAX {
            // The file would be too large to be read back. The paces take most of the space and are learned
            // again in hours.
            self.paces.clear();
            bytes = serde_json::to_vec(self)?;
        }
        state::replace(path, &bytes)
    }
}

/// A volume's memory of its drives, and the file in which it is kept.
#[derive(Debug)]
pub(super) struct Memory {
    path: Option<PathBuf>,
    kept: Kept,
    is_changed: bool,
}

impl Memory {
    /// Reads the file of a volume, by its id. If it cannot be read, the memory starts empty, and the log says
    /// so.
    pub(super) fn of_volume(place: &Place, id: [u8; 16]) -> Memory {
        let path = state::file(place, id, "drives.json");
        if let Err(reason) = &path {
            tracing::info!(%reason, "the drives' wear and pace are not kept over restarts");
        }
        Memory::at(path.ok())
    }

    pub(super) fn at(path: Option<PathBuf>) -> Memory {
        let kept = path.as_ref().map_or_else(Kept::default, |path| {
            let read = hemi_text::read(path)
                .map(|text| serde_json::from_str::<Kept>(&text).map_err(io::Error::other));
            match read.and_then(|parsed| parsed) {
                Ok(kept) if kept.format == FORMAT => kept,
                Ok(kept) => {
                    let (path, format) = (path.display(), kept.format);
                    tracing::warn!(%path, format, "the record of the drives has another format");
                    Kept::default()
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "the record of the drives cannot be read");
                    Kept::default()
                }
            }
        });
        Memory { path, kept: Kept { format: FORMAT, ..kept }, is_changed: false }
    }

    /// Records a drive's wear and returns it.
    pub(super) fn wear(&mut self, serial: &str, at_ms: u64, used_permille: u32) -> &Wear {
        let drives = &mut self.kept.drives;
        make_room(drives, serial, DRIVES_MAX);
        let wear = drives.entry(serial.to_owned()).or_default();
        self.is_changed |= wear.note(at_ms, used_permille);
        wear
    }

    /// Returns the past pace of a leg.
    pub(super) fn past(&self, key: &str) -> Past {
        self.kept.paces.get(key).cloned().unwrap_or_default()
    }

    /// Records the past pace of a leg.
    pub(super) fn set_past(&mut self, key: &str, past: &Past) {
        make_room(&mut self.kept.paces, key, PACES_MAX);
        self.kept.paces.insert(key.to_owned(), past.clone());
        self.is_changed = true;
    }

    /// Writes the file if anything has changed.
    pub(super) fn save(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.is_changed) else { return };
        self.is_changed = false;
        if let Err(error) = self.kept.write(path) {
            let path = path.display();
            tracing::warn!(%path, %error, "the record of the drives cannot be written");
            // The error is logged only once.
            self.path = None;
        }
    }
}

/// Makes room for a key. It hardly matters which one is dropped: it starts anew if it comes back.
fn make_room<T>(map: &mut BTreeMap<String, T>, key: &str, most: usize) {
    if !map.contains_key(key) && map.len() >= most {
        map.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_kept_over_a_restart() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("x.drives.json");
        let day = 86_400_000;
        let mut memory = Memory::at(Some(path.clone()));
        for (at, used) in [(0, 10), (5, 20), (40, 30)] {
            memory.wear("S1", at * day, used);
        }
        memory.save();
        let mut again = Memory::at(Some(path.clone()));
        let outlook = again.wear("S1", 41 * day, 30).outlook(41 * day);
        assert!(outlook.end_at_ms.is_some(), "{outlook:?}");
        assert!(again.wear("S2", 41 * day, 30).outlook(41 * day).end_at_ms.is_none());

        for damaged in ["", "{", "{\"format\":2}", "[]", "{\"format\":1,\"drives\":3}"] {
            std::fs::write(&path, damaged).expect("it can be written");
            let mut memory = Memory::at(Some(path.clone()));
            assert!(memory.wear("S1", day, 30).outlook(day).end_at_ms.is_none(), "{damaged}");
        }
    }

    #[test]
    fn memory_is_bounded_and_a_directory_that_refuses_is_no_error() {
        let mut memory = Memory::at(Some("/proc/hemi/x.json".into()));
        for drive in 0..2 * DRIVES_MAX {
            memory.wear(&drive.to_string(), 1, 10);
        }
        assert_eq!(memory.kept.drives.len(), DRIVES_MAX);
        memory.save();
        assert_eq!(memory.path, None);
        memory.save();
    }
}
