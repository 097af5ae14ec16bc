//! The monitor's memory of the events it has delivered, kept across restarts.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use hemi_server::config::place::Place;
use hemi_server::state;
use serde::{Deserialize, Serialize};

/// The name of the file in the state directory.
const FILE: &str = "monitor.json";
/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The ids of the last events of a volume that were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// The program has been run for this event and all before it.
    pub(super) run: u64,
    /// All news up to this event has been mailed.
    pub(super) mailed: u64,
}

/// The last event delivered of each volume.
#[derive(Debug, Default)]
pub(super) struct Known {
    path: Option<PathBuf>,
    volumes: HashMap<String, Told>,
}

impl Known {
    /// Reads the file. Warns once if nothing can be kept, or if the file is not understood.
    pub(super) fn open() -> Known {
        let path = match state::directory(&Place::Auto) {
            Ok(directory) => directory.join(FILE),
            Err(why) => {
                tracing::warn!(why, "what has been told is not kept over restarts");
                return Known::default();
            }
        };
        let volumes = read(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "what was told before is not known");
            HashMap::new()
        });
        Known { path: Some(path), volumes }
    }

    /// Returns what has been delivered of a volume, if that is known.
    pub(super) fn of(&self, volume: &str) -> Option<Told> {
        self.volumes.get(volume).copied()
    }

    /// Notes that the program has been run for an event. With `is_mailed` nothing waits to be
    /// mailed.
    pub(super) fn note_run(&mut self, volume: &str, id: u64, is_mailed: bool) {
        let told = self.volumes.entry(volume.to_owned()).or_insert(Told { run: 0, mailed: id - 1 });
        told.run = told.run.max(id);
        if is_mailed {
            told.mailed = told.run;
        }
        self.write();
    }

    /// Notes that nothing waits to be mailed any more.
    pub(super) fn note_mailed(&mut self) {
        self.volumes.values_mut().for_each(|told| told.mailed = told.run);
        self.write();
    }

    fn write(&self) {
        if let Some(path) = &self.path
            && let Err(error) = write(path, &self.volumes)
        {
            tracing::warn!(path = %path.display(), %error, "what has been told is not kept");
        }
    }
}

fn read(path: &std::path::Path) -> io::Result<HashMap<String, Told>> {
    let Some(file) = state::open(path)? else { return Ok(HashMap::new()) };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the file atomically: a reader sees the old one or the new one.
fn write(path: &std::path::Path, volumes: &HashMap<String, Told>) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let mut file = state::create(&new)?;
    file.write_all(serde_json::to_string(volumes)?.as_bytes())?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_known_again() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let path = folder.path().join(FILE);
        let mut known = Known { path: Some(path.clone()), ..Known::default() };
        known.note_run("db", 7, true);
        known.note_run("db", 9, false);
        known.note_run("web", 5, false);
        let again = read(&path).expect("it was written");
        assert_eq!(again["db"], Told { run: 9, mailed: 7 });
        assert_eq!(again["web"], Told { run: 5, mailed: 4 }, "it is still to be mailed");
        known.note_mailed();
        assert_eq!(read(&path).expect("it was written")["db"], Told { run: 9, mailed: 9 });
        std::fs::write(&path, "no json").expect("it can be written");
        assert!(read(&path).is_err());
    }
}
