//! The stable name of a device: `/dev/hemi/NAME`, a link to the device, whose number changes.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory of the names of all volumes.
const DIRECTORY: &str = "/dev/hemi";

/// Returns the path of a volume's stable name.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Points the name at a device atomically. A process that opens it meanwhile gets either the
/// old or the new device.
pub(super) fn put(name: &str, device: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir_all(DIRECTORY)?;
    let path = path(name);
    let new = Path::new(DIRECTORY).join(format!(".{name}.{}", std::process::id()));
    let node = device.file_name().unwrap_or_default();
    symlink(Path::new("..").join(node), &new)?;
    std::fs::rename(&new, &path).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })?;
    Ok(path)
}

/// Returns the device that a name points at, if any.
pub(super) fn target(name: &str) -> Option<PathBuf> {
    let target = std::fs::read_link(path(name)).ok()?;
    Some(Path::new("/dev").join(target.file_name()?))
}

/// Lists the names of volumes with the kernel's names of their devices.
pub(super) fn all() -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir(DIRECTORY) else { return Vec::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((name, target.file_name()?.to_str()?.to_owned()))
    });
    named.collect()
}

/// Removes the name.
pub(super) fn remove(name: &str) {
    if let Err(error) = std::fs::remove_file(path(name)) {
        tracing::debug!(%error, "a name in {DIRECTORY} stays");
    }
}
