//! What has been told already, kept over restarts of the monitor.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use hemi_server::config::place::Place;
use hemi_server::state;

/// Name of the file in the state directory.
const FILE: &str = "monitor.json";
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// For each volume, the id of the last event that was told.
#[derive(Debug, Default)]
pub(super) struct Known {
    path: Option<PathBuf>,
    last: HashMap<String, u64>,
}

impl Known {
    /// Reads what is known. Where nothing can be kept, or what is kept is not understood, that is said once.
    pub(super) fn open() -> Known {
        let path = match state::directory(&Place::Auto) {
            Ok(directory) => directory.join(FILE),
            Err(why) => {
                tracing::warn!(why, "what has been told is not kept over restarts");
                return Known::default();
            }
        };
        let last = read(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "what was told before is not known");
            HashMap::new()
        });
        Known { path: Some(path), last }
    }

    /// Returns the id of the last event of a volume that was told.
    pub(super) fn last(&self, volume: &str) -> Option<u64> {
        self.last.get(volume).copied()
    }

    /// Notes what has been told.
    pub(super) fn note(&mut self, told: impl Iterator<Item = (String, u64)>) {
        let before = self.last.len();
        let mut is_new = false;
        for (volume, id) in told {
            is_new |= self.last.insert(volume, id) != Some(id);
        }
        if (is_new || self.last.len() != before)
            && let Some(path) = &self.path
            && let Err(error) = write(path, &self.last)
        {
            tracing::warn!(path = %path.display(), %error, "what has been told is not kept");
        }
    }
}

fn read(path: &std::path::Path) -> io::Result<HashMap<String, u64>> {
    let Some(file) = state::open(path)? else { return Ok(HashMap::new()) };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the file in one step: a reader sees the old one or the new one.
fn write(path: &std::path::Path, last: &HashMap<String, u64>) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let mut file = state::create(&new)?;
    file.write_all(serde_json::to_string(last)?.as_bytes())?;
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
        known.note([("db".to_owned(), 7), ("web".to_owned(), 9)].into_iter());
        let again = read(&path).expect("it was written");
        assert_eq!(again, known.last);
        std::fs::write(&path, "no json").expect("it can be written");
        assert!(read(&path).is_err());
    }
}
