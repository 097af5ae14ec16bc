//! The state directory: files on a disk that are kept for a volume over restarts.
//!
//! Serving the volume needs nothing from it. It holds records for the operator, such as the history. Its
//! files are named after the volume's id.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hemi_engine::format::Id;
use rustix::fs::{Access, OFlags, access};

use crate::config::place::Place;

/// The state directory of a system service.
pub const SYSTEM_STATE_DIRECTORY: &str = "/var/lib/hemi";
/// Mode of a directory created for it.
const DIRECTORY_MODE: u32 = 0o755;
/// Mode of its files.
const FILE_MODE: u32 = 0o600;

/// Returns the path of a volume's file, `<directory>/<volume id>.<extension>`. Creates the directory if
/// needed.
///
/// # Errors
/// Text with the reason why nothing is kept: the configuration says so, or the directory cannot be written.
pub fn file(place: &Place, volume: Id, extension: &str) -> Result<PathBuf, String> {
    let name = format!("{}.{extension}", hemi_io::probe::hex(volume));
    directory(place).map(|directory| directory.join(name))
}

/// Opens a file of the state directory for reading. Returns `None` if it does not exist.
///
/// # Errors
/// Fails if it cannot be opened, is not a regular file, or can be written by other users.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    // Opening anything but a regular file must not block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other("it must be a regular file that only this user can write"));
    }
    Ok(Some(file))
}

/// Creates a file of the state directory, replacing one of that name.
///
/// # Errors
/// Fails if the old file cannot be removed or the new one cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Replaces a file as a whole, and creates its directory if needed. After a crash either the old or the new
/// content is there.
///
/// # Errors
/// The system's error.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

/// Returns the first of the directories that can be written, creating it if needed.
///
/// # Errors
/// Text with the reason why there is none.
pub fn directory(place: &Place) -> Result<PathBuf, String> {
    let candidates = match place {
        Place::None => return Err("the configuration says none".into()),
        Place::Directory(directory) => vec![directory.clone()],
        Place::Auto => usual_directories(),
    };
    let mut reasons = Vec::new();
    for directory in candidates {
        match usable(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                reasons.push(format!("{} cannot be written: {error}", directory.display()))
            }
        }
    }
    Err(reasons.join("; "))
}

/// Returns the usual directories, the preferred one first. They need not exist.
fn usual_directories() -> Vec<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from)
    };
    // systemd gives the unit's own directories; the first of several is used.
    let unit = std::env::var("STATE_DIRECTORY").ok().and_then(|names| {
        let first = names.split(':').next().unwrap_or_default();
        first.starts_with('/').then(|| PathBuf::from(first))
    });
    let user = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|home| home.join("hemi"));
    unit.into_iter().chain([PathBuf::from(SYSTEM_STATE_DIRECTORY)]).chain(user).collect()
}

fn usable(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    Ok(access(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_the_volume_and_its_directory_is_made() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let place = Place::Directory(folder.path().join("a/b"));
        let path = file(&place, [0xab; 16], "history").expect("it can be written");
        assert_eq!(path.parent(), Some(folder.path().join("a/b").as_path()));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(name.starts_with("abababab-") && name.ends_with(".history"), "{name}");
        assert!(open(&path).expect("nothing is in the way").is_none());
        drop(create(&path).expect("it can be created"));
        assert!(open(&path).expect("it is this user's").is_some());
    }

    #[test]
    fn nothing_is_kept_where_nothing_can_be() {
        let none = file(&Place::None, [0; 16], "history").expect_err("none is none");
        assert_eq!(none, "the configuration says none");
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let blocked = folder.path().join("file");
        std::fs::write(&blocked, "").expect("it can be written");
        let refused = file(&Place::Directory(blocked.clone()), [0; 16], "history");
        let why = refused.expect_err("a file is no directory");
        assert!(why.contains(&blocked.display().to_string()), "{why}");
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let path = folder.path().join("x.history");
        std::fs::write(&path, "").expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
            .expect("it is ours");
        assert!(open(&path).is_err());
        let link = folder.path().join("link.history");
        std::os::unix::fs::symlink(&path, &link).expect("it can be linked");
        assert!(open(&link).is_err(), "a link is not followed");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("a/b/x.json");
        for content in ["one", "another"] {
            replace(&path, content.as_bytes()).expect("it can be written");
            assert_eq!(std::fs::read_to_string(&path).expect("it is there"), content);
        }
        assert_eq!(std::fs::read_dir(root.path().join("a/b")).expect("it is there").count(), 1);
    }
}
