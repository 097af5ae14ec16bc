//! The stable name of a device: `/dev/hemi/NAME`, a link to the device, whose number changes.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory of the names of all volumes.
const DIRECTORY: &str = "/dev/hemi";

/// Returns the path of a volume's stable name, or `None` if the name cannot be that of a file. It comes from
/// a disk, and must not lead out of the directory.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    let is_plain = !matches!(name, "" | "." | "..") && !name.contains('/');
    is_plain.then(|| Path::new(DIRECTORY).join(name))
}

/// Points the name at a device atomically. A process that opens it meanwhile gets either the
/// old or the new device.
pub(super) fn put(name: &str, device: &Path) -> io::Result<PathBuf> {
    let path = path(name).ok_or(io::ErrorKind::InvalidFilename)?;
    std::fs::create_dir_all(DIRECTORY)?;
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
    let target = std::fs::read_link(path(name)?).ok()?;
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
    if let Some(path) = path(name)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::debug!(%error, "a name in {DIRECTORY} stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["", ".", "..", "/etc/passwd", "../../etc/passwd", "a/b"] {
            assert_eq!(path(name), None, "{name:?}");
            assert_eq!(target(name), None, "{name:?}");
            let refused = put(name, Path::new("/dev/null")).expect_err("it is no file name");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidFilename);
        }
        for name in ["db", "my db", ".x", "Größe"] {
            assert_eq!(path(name).as_deref(), Some(Path::new(&format!("/dev/hemi/{name}"))));
        }
    }
}
