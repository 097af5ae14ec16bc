//! The directory of what is kept over restarts and reboots, and files in it.
//!
//! Nothing there is needed to serve a volume: what cannot be read begins anew, and what cannot be
//! written is lost at the next restart.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory of a service that systemd has given none.
const SYSTEM_STATE_DIRECTORY: &str = "/var/lib/hemi";

/// Returns the state directory: systemd's `$STATE_DIRECTORY`, else `/var/lib/hemi` for root, else
/// `$XDG_STATE_HOME/hemi` or `~/.local/state/hemi`. It need not exist. Returns `None` if nothing says where
/// it would be.
pub(crate) fn directory() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directories) = variable("STATE_DIRECTORY") {
        // systemd lists several with colons between; the first is the unit's own.
        let directories = directories.to_string_lossy().into_owned();
        return directories.split(':').next().map(PathBuf::from);
    }
    if rustix::process::geteuid().is_root() {
        return Some(SYSTEM_STATE_DIRECTORY.into());
    }
    let home = || variable("HOME").map(|home| Path::new(&home).join(".local/state"));
    variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home).map(|state| state.join("hemi"))
}

/// Replaces a file as a whole, and makes its directory if need be. After a crash either the old content is
/// there or the new one.
///
/// # Errors
/// The system's.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("a/b/x.json");
        for content in ["one", "another"] {
            replace(&path, content.as_bytes()).expect("it can be written");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), content);
        }
        assert_eq!(fs::read_dir(root.path().join("a/b")).expect("it is there").count(), 1);
    }
}
