//! Socket paths in the run directory, and unix listeners that replace the socket file of a dead predecessor
//! but never that of a live one.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, access};

use hemi_io::process;

/// The run directory of a system service.
pub const SYSTEM_RUN_DIRECTORY: &str = "/run/hemi";
/// Mode of the control socket, through which the volume can be read and stopped.
pub const CONTROL_MODE: u32 = 0o600;
/// Mode of a directory created for sockets.
const DIRECTORY_MODE: u32 = 0o755;
/// Longest path of a unix socket in bytes: `sun_path` without its closing NUL.
pub const SOCKET_PATH_MAX: usize = 107;

/// A socket that a volume has in the run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeSocket {
    /// The control API.
    Control,
    /// The NBD export of a volume for which none is configured.
    Nbd,
}

impl VolumeSocket {
    /// Returns the extension of its file.
    pub const fn extension(self) -> &'static str {
        match self {
            VolumeSocket::Control => "sock",
            VolumeSocket::Nbd => "nbd",
        }
    }

    /// Returns its path in `directory`. The volume's name comes from a disk, so it is first made a plain file
    /// name and the path cannot leave the directory.
    pub fn path(self, directory: &Path, volume: &str) -> PathBuf {
        directory.join(format!("{}.{}", file_stem(volume), self.extension()))
    }
}

/// The reason why a socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Neither run directory can be used.
    #[error(
        "neither {SYSTEM_RUN_DIRECTORY} nor $XDG_RUNTIME_DIR/hemi can be written; name the \
         control socket with --control (or `control = …`) and the exports with --nbd"
    )]
    NoRunDirectory,
    /// The path does not fit into a socket's address.
    #[error("{0} ({option})", TooLong(path))]
    TooLong {
        /// The path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
    },
    /// The directory of the socket could not be created.
    #[error(
        "cannot create the directory {} for {}: {source}; create it, or name another path with \
         {option}",
        directory.display(), path.display()
    )]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The socket's path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another process answers there.
    #[error("{} is in use: another process listens there; name another with {option}", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
    },
    /// Another volume's control socket is there.
    #[error(
        "{} is the control socket of the volume {served:?}, which is being served; give {name:?} \
         another with {option}, and an NBD export with --nbd", path.display()
    )]
    OtherVolume {
        /// The path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
        /// The volume that is served there.
        served: String,
        /// The volume that was to be served.
        name: String,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; remove it, or name another path with {option}", path.display())]
    NoSocket {
        /// The path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
    },
    /// Any other failure.
    #[error("cannot listen on {}: {source} ({option})", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// The option that names it.
        option: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Returns the default directories of control sockets, the preferred one first. They need not exist.
pub fn run_directories() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|directory| !directory.is_empty())
        .map(|directory| Path::new(&directory).join("hemi"));
    std::iter::once(PathBuf::from(SYSTEM_RUN_DIRECTORY)).chain(user).collect()
}

/// Returns an error text that names the run directories and says that none can be written.
pub(crate) fn no_run_directory() -> String {
    let names: Vec<String> =
        run_directories().iter().map(|path| path.display().to_string()).collect();
    format!("no run directory can be written ({})", names.join(", "))
}

/// Returns the first run directory that can be written, creating it if needed.
///
/// # Errors
///
/// [`SocketError::NoRunDirectory`].
pub fn run_directory() -> Result<PathBuf, SocketError> {
    run_directories()
        .into_iter()
        .find(|directory| {
            // A failure to create it shows in the check below.
            let _ = create_directory(directory);
            access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        })
        .ok_or(SocketError::NoRunDirectory)
}

/// Returns the volume's name with `_` for every character that does not belong in a file name.
fn file_stem(volume: &str) -> String {
    let plain = |(index, letter): (usize, char)| match letter {
        '.' if index == 0 => '_',
        '-' | '_' | '.' => letter,
        _ if letter.is_alphanumeric() => letter,
        _ => '_',
    };
    volume.chars().enumerate().map(plain).collect()
}

fn create_directory(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)
}

/// Formats the message that a path is too long for a unix socket.
#[derive(Clone, Copy, Debug)]
struct TooLong<'a>(&'a Path);

impl fmt::Display for TooLong<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_os_str().len();
        write!(
            formatter,
            "{} has {bytes} bytes; a unix socket's path has at most {SOCKET_PATH_MAX}: use a \
             shorter path",
            self.0.display()
        )
    }
}

/// Checks that `path` fits into the address of a unix socket.
///
/// # Errors
///
/// Text with the path, its length and the maximum.
pub fn check_path(path: &Path) -> Result<(), String> {
    match path.as_os_str().len() {
        0 => Err("the path of the socket is empty".into()),
        bytes if bytes > SOCKET_PATH_MAX => Err(TooLong(path).to_string()),
        _ => Ok(()),
    }
}

/// A listener that owns its file. The file is removed on drop, unless another has taken its place.
#[derive(Debug)]
pub struct OwnedSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a listening unix socket, removed on drop.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device_and_inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the file in place for a successor that goes on listening.
    pub fn keep(mut self) {
        self.device_and_inode = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.device_and_inode.is_some() && identity(&self.path) == self.device_and_inode {
            // A failure does no harm: the next start replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl OwnedSocket {
    /// Listens on `path` with this mode, and creates its directory if it does not exist. Errors name `option`
    /// as the option that set the path.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if the path is too long, another process listens there, something else is there, or
    /// the system refuses.
    pub fn bind(path: &Path, mode: u32, option: &'static str) -> Result<OwnedSocket, SocketError> {
        let listen = |source| SocketError::Listen { path: path.to_owned(), option, source };
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(SocketError::TooLong { path: path.to_owned(), option });
        }
        if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_directory(directory).map_err(|source| SocketError::Directory {
                directory: directory.to_owned(),
                path: path.to_owned(),
                option,
                source,
            })?;
        }
        make_room(path, option)?;
        // The mode must hold from the first moment: a change after bind leaves a gap. Only this thread
        // creates files now, so the umask affects no other.
        let before = rustix::process::umask(Mode::from_raw_mode(!mode & 0o777));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound.map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let file = SocketFile { path: path.to_owned(), device_and_inode: identity(path) };
        Ok(OwnedSocket { listener, file })
    }

    /// Takes over a socket that a predecessor bound to `path`. Returns `None` if the socket is bound
    /// elsewhere, or if the path no longer leads to it.
    pub(crate) fn adopt(path: &Path, socket: OwnedFd) -> Option<OwnedSocket> {
        let listener = UnixListener::from(socket);
        let is_there = listener.local_addr().is_ok_and(|bound| bound.as_pathname() == Some(path));
        let device_and_inode = identity(path);
        if !is_there || device_and_inode.is_none() {
            return None;
        }
        listener.set_nonblocking(true).ok()?;
        let file = SocketFile { path: path.to_owned(), device_and_inode };
        Some(OwnedSocket { listener, file })
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns another descriptor of the socket.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone().map(OwnedFd::from)
    }

    /// Returns the listener, and the file to keep for as long as it listens.
    pub fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Removes a socket file on which nobody listens.
fn make_room(path: &Path, option: &'static str) -> Result<(), SocketError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NoSocket { path: path.to_owned(), option });
    }
    let is_left = match UnixStream::connect(path) {
        // The last I/O of a killed process keeps its socket open.
        Ok(connection) => process::peer(&connection).is_some_and(process::is_dead),
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    };
    if !is_left {
        // A process that answers, or that we may not connect to, is alive.
        return Err(SocketError::InUse { path: path.to_owned(), option });
    }
    std::fs::remove_file(path).map_err(|source| SocketError::Listen {
        path: path.to_owned(),
        option,
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A path that is removed with the test.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let directory =
                std::env::temp_dir().join(format!("hemi-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
            Place(directory)
        }
        fn socket(&self) -> PathBuf {
            self.0.join("x.sock")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn no_name_leaves_the_run_directory() {
        let directory = Path::new("/run/hemi");
        for (name, stem) in [
            ("db", "db"),
            ("a/b c", "a_b_c"),
            ("../x", "_._x"),
            ("../../tmp/x/evil", "_._.._tmp_x_evil"),
            ("/etc/passwd", "_etc_passwd"),
            ("..", "_."),
            (".", "_"),
            ("Größe-1.2", "Größe-1.2"),
        ] {
            for socket in [VolumeSocket::Control, VolumeSocket::Nbd] {
                let path = socket.path(directory, name);
                assert_eq!(path.parent(), Some(directory), "{name}");
                assert_eq!(path.file_stem().and_then(|found| found.to_str()), Some(stem));
                assert_eq!(path.extension(), Some(socket.extension().as_ref()), "{name}");
            }
        }
    }

    #[test]
    fn a_missing_directory_is_created() {
        let place = Place::new("directory");
        let path = place.0.join("run/hemi/x.sock");
        let socket = OwnedSocket::bind(&path, 0o600, "--control").expect("it can be created");
        let directory = path.parent().expect("it has one");
        let mode = std::fs::metadata(directory).expect("it was created").permissions().mode();
        assert_eq!(mode & 0o022, 0, "nobody else may put sockets there");
        drop(socket);
        let below = place.0.join("file/x.sock");
        std::fs::write(place.0.join("file"), "").expect("the directory can be written");
        let error = OwnedSocket::bind(&below, 0o600, "--nbd").expect_err("a file is no directory");
        assert!(error.to_string().contains("cannot create the directory"), "{error}");
        assert!(error.to_string().contains("--nbd"), "{error}");
    }

    #[test]
    fn a_path_that_is_too_long_is_told_with_the_numbers() {
        let place = Place::new("long");
        let longest = "x".repeat(SOCKET_PATH_MAX - place.0.as_os_str().len() - 1);
        OwnedSocket::bind(&place.0.join(&longest), 0o600, "--control").expect("107 bytes fit");
        let path = place.0.join(longest + "x");
        let error = OwnedSocket::bind(&path, 0o600, "--control").expect_err("108 bytes do not");
        let error = error.to_string();
        assert!(error.contains("has 108 bytes") && error.contains("at most 107"), "{error}");
        assert_eq!(check_path(&path).map_err(|text| error.starts_with(&text)), Err(true));
    }

    #[test]
    fn a_living_socket_is_kept_and_a_dead_one_replaced() {
        let place = Place::new("alive");
        let path = place.socket();
        let first = OwnedSocket::bind(&path, 0o600, "--control").expect("nothing is there");
        let mode = std::fs::metadata(&path).expect("it was just bound").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = OwnedSocket::bind(&path, 0o600, "--control").expect_err("the first listens");
        assert!(matches!(second, SocketError::InUse { .. }), "{second}");
        assert!(second.to_string().contains("--control"), "{second}");

        // As after kill -9, the listener is gone and its file stays.
        let (listener, file) = first.into_parts();
        drop(listener);
        std::mem::forget(file);
        assert!(path.exists());
        let third = OwnedSocket::bind(&path, 0o600, "--control").expect("nobody listens");
        drop(third);
        assert!(!path.exists(), "the file goes with the listener");
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_removed() {
        let place = Place::new("file");
        std::fs::write(place.socket(), "precious").expect("the directory can be written");
        let error =
            OwnedSocket::bind(&place.socket(), 0o600, "--nbd").expect_err("a file is there");
        assert!(matches!(error, SocketError::NoSocket { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(place.socket()).ok().as_deref(), Some("precious"));
    }

    #[test]
    fn another_s_socket_in_its_place_is_left_alone() {
        let place = Place::new("moved");
        let first = OwnedSocket::bind(&place.socket(), 0o600, "--nbd").expect("nothing is there");
        std::fs::remove_file(place.socket()).expect("it is there");
        let _second = OwnedSocket::bind(&place.socket(), 0o600, "--nbd").expect("it is gone");
        drop(first);
        assert!(place.socket().exists());
    }
}
