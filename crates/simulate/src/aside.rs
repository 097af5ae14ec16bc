//! Files that are complete or absent, even if the command is killed at any time.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes a file beside its destination and moves it there once it is on the disk, replacing
/// any existing file. An unfinished file is called `.unfinished-…`.
///
/// # Errors
/// Fails if the directory does not exist or the disk is full; nothing of the new file is left
/// then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // As for any new file: the user's umask decides what others may do.
    let permissions = Permissions::from_mode(0o666);
    let mut aside = tempfile::Builder::new();
    let aside = aside.prefix(".unfinished-").permissions(permissions);
    let mut file = aside.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
