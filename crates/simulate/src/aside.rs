//! Files that are there whole or not at all, whenever a command is killed.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes a file beside its place, and puts it there once it is on the disk; what was there
/// before is replaced. One that is never finished is called `.unfinished-…`.
///
/// # Errors
/// A folder that is not there or a disk that is full; nothing of the new file is left then.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // As any new file: what others may do is what the user's mask leaves of this.
    let permissions = Permissions::from_mode(0o666);
    let mut aside = tempfile::Builder::new();
    let aside = aside.prefix(".unfinished-").permissions(permissions);
    let mut file = aside.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
