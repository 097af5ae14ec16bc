//! The ledger of a served volume: a file on tmpfs that outlives the process and not the machine.
//!
//! It must outlive the service and its container as well. Otherwise each kill would leave a
//! volume that cannot be started without `--accept-loss`. So by default it is kept in the run
//! directory, if that is on tmpfs and hemi does not run in a container. Elsewhere the operator
//! names a directory, or the volume is served without a ledger. An early acknowledgement then
//! waits for the page that names the region's authority.
//!
//! The file is named after the volume's id. It is preallocated, because a full tmpfs would end
//! the process at some later store, and locked in memory, because a store must not wait for
//! swap. It is also locked against a second hemi.

mod error;
mod file;
mod shared;

use std::path::{Path, PathBuf};

use hemi_engine::format::{Id, Ledger};
use hemi_engine::recovery::Opening;
use serde::{Deserialize, Serialize};

use crate::config::place::Place;
use crate::control::socket::{no_run_directory, run_directories, run_directory};
use file::LedgerFile;
use hemi_io::probe::lock_owner;
use shared::SharedMemory;

pub use error::LedgerFileError;
pub use file::check_directory;

/// The file with the id of this boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Files whose presence is a sign of a container.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Environment variables that are a sign of a container.
const CONTAINER_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "container"];

/// The ledger of a served volume, for its status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerStatus {
    /// Path of its file, or `null` if there is none.
    pub path: Option<PathBuf>,
    /// The reason why there is none, or `null` if there is one.
    pub why_none: Option<String>,
}

/// Finds the ledger that a volume was served with before, and creates the one it is served with
/// from now on.
pub struct Ledgers<'a> {
    place: &'a Place,
    boot: Id,
    found: Option<Found>,
}

struct Found {
    file: LedgerFile,
    bytes: Vec<u8>,
}

impl<'a> Ledgers<'a> {
    /// Remembers the place where a ledger is to be kept, and reads the id of this boot of the
    /// machine.
    ///
    /// # Errors
    /// Returns [`LedgerFileError::Boot`]: without the id of this boot nobody can tell whether a
    /// ledger that the legs name has to be there.
    pub fn new(place: &'a Place) -> Result<Ledgers<'a>, LedgerFileError> {
        Ok(Ledgers { place, boot: boot_id()?, found: None })
    }

    /// Returns the id of this boot of the machine.
    pub fn boot(&self) -> Id {
        self.boot
    }

    /// Locks and reads the ledger of a volume, if there is one. Further calls return the same
    /// bytes.
    ///
    /// # Errors
    /// Fails if a file of that name cannot be read, is in use, or belongs to somebody else.
    pub fn read(&mut self, volume: Id) -> Result<Option<&[u8]>, LedgerFileError> {
        if self.found.is_none() {
            for path in self.paths(volume) {
                if let Some(file) = LedgerFile::open(&path)? {
                    let bytes = file.read()?;
                    self.found = Some(Found { file, bytes });
                    break;
                }
            }
        }
        Ok(self.found.as_ref().map(|found| &found.bytes[..]))
    }

    /// Returns the paths where a ledger of the volume may be.
    pub fn paths(&self, volume: Id) -> Vec<PathBuf> {
        paths(self.place, volume)
    }

    /// Returns the path of the ledger that was read.
    pub fn path(&self) -> Option<&Path> {
        self.found.as_ref().map(|found| found.file.path())
    }

    /// Removes the ledger that was read, because no leg relies on it any more.
    ///
    /// # Errors
    /// Fails if its directory cannot be written.
    pub fn remove(self) -> Result<(), LedgerFileError> {
        let Some(found) = self.found else { return Ok(()) };
        let path = found.file.path();
        found.file.remove().map_err(|source| file::failed(path, "cannot be removed", source))
    }

    /// Returns the ledger that the volume is served with. That is the one that decides, if one
    /// does. Otherwise it is a new one, if one is to be kept and can be created. With `settle`
    /// no new ledger is created.
    ///
    /// # Errors
    /// Fails if the deciding ledger cannot be used further, or if a new one cannot be kept in a
    /// directory that the operator has named.
    pub fn keep(
        self,
        opening: &Opening,
        settle: bool,
    ) -> Result<(Option<Ledger>, LedgerStatus), LedgerFileError> {
        let decides = opening.ledger.is_some();
        let (layout, volume) = (&opening.superblock.layout, opening.superblock.volume_id);
        // A ledger that does not decide is unlocked here, and a new one takes its place.
        let found = self.found.filter(|_| decides);
        if let Some(found) = found {
            if *self.place == Place::None && !settle {
                return Err(LedgerFileError::ReliedOn { path: found.file.path().to_owned() });
            }
            let path = found.file.path().to_owned();
            let memory = SharedMemory::map(found.file)?;
            let status = LedgerStatus { path: Some(path), why_none: None };
            return Ok((Some(Ledger::adopt(Box::new(memory), layout, self.boot)), status));
        }
        if settle {
            return Ok(without("the legs rely on none".into()));
        }
        let directory = match self.place {
            Place::None => return Ok(without("the configuration says none".into())),
            Place::Directory(directory) => directory.clone(),
            Place::Auto => match usual_directory() {
                Ok(directory) => directory,
                Err(reason) => return Ok(without(reason)),
            },
        };
        let path = path_in(&directory, volume);
        match LedgerFile::create(&path, layout).and_then(SharedMemory::map) {
            Ok(memory) => {
                let ledger = Ledger::begin(Box::new(memory), layout, volume, self.boot);
                Ok((Some(ledger), LedgerStatus { path: Some(path), why_none: None }))
            }
            Err(error) if *self.place == Place::Auto && !error.is_in_use() => {
                Ok(without(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

/// A volume's ledger as found, without a lock.
#[derive(Debug)]
pub(crate) struct Looked {
    /// The paths where it may be.
    pub(crate) paths: Vec<PathBuf>,
    /// Its path with its content or the error in reading it. `None` if there is no ledger.
    pub(crate) found: Option<(PathBuf, Result<Vec<u8>, LedgerFileError>)>,
    /// True if it was in use before or after it was read, so that its content may have changed
    /// meanwhile.
    pub(crate) in_use: bool,
    /// The process that uses it, if known.
    pub(crate) used_by: Option<u32>,
}

/// Reads a volume's ledger from any place where a start would look, without locking or changing
/// it.
pub(crate) fn look(place: &Place, volume: Id) -> Looked {
    let paths = paths(place, volume);
    let owner = || paths.iter().find_map(|path| lock_owner(path));
    let before = owner();
    let found = paths.iter().find_map(|path| {
        let content = LedgerFile::look(path).transpose()?;
        Some((path.clone(), content))
    });
    let owner = owner().or(before);
    Looked { paths, found, in_use: owner.is_some(), used_by: owner.flatten() }
}

/// Returns the paths where a ledger of the volume may be.
fn paths(place: &Place, volume: Id) -> Vec<PathBuf> {
    let directories = match place {
        Place::Directory(directory) => vec![directory.clone()],
        Place::Auto | Place::None => run_directories(),
    };
    directories.iter().map(|directory| path_in(directory, volume)).collect()
}

fn without(reason: String) -> (Option<Ledger>, LedgerStatus) {
    (None, LedgerStatus { path: None, why_none: Some(reason) })
}

/// Returns the path of a volume's ledger in a directory.
fn path_in(directory: &Path, volume: Id) -> PathBuf {
    directory.join(format!("{}.ledger", hemi_io::probe::hex(volume)))
}

/// Returns the run directory, or the reason why no ledger is kept there.
fn usual_directory() -> Result<PathBuf, String> {
    if let Some(sign) = container_sign() {
        return Err(format!(
            "this is a container ({sign}), whose own memory ends with it: mount a directory on the \
             host's tmpfs and name it (`ledger = \"/run/hemi\"`)"
        ));
    }
    run_directory().map_err(|_| no_run_directory())
}

/// Returns a sign that this process runs in a container, if there is one.
fn container_sign() -> Option<&'static str> {
    CONTAINER_FILES
        .into_iter()
        .find(|path| Path::new(path).exists())
        .or_else(|| CONTAINER_VARIABLES.into_iter().find(|name| std::env::var_os(name).is_some()))
}

/// Returns the id of this boot of the machine.
///
/// # Errors
/// Returns [`LedgerFileError::Boot`] if the system does not provide it.
pub(crate) fn boot_id() -> Result<Id, LedgerFileError> {
    let text = std::fs::read_to_string(BOOT_ID)
        .map_err(|source| LedgerFileError::Boot { why: source.to_string() })?;
    parse_boot_id(&text)
        .ok_or_else(|| LedgerFileError::Boot { why: format!("{:?} is no id", text.trim_end()) })
}

fn parse_boot_id(text: &str) -> Option<Id> {
    let digits: Vec<u32> = text
        .trim_end()
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let mut id = Id::default();
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_read_as_the_kernel_writes_it() {
        let id = parse_boot_id("eb11aa6c-8e9c-4591-a4df-1468c5ff55ca\n").expect("it is one");
        assert_eq!(id[..4], [0xeb, 0x11, 0xaa, 0x6c]);
        assert_eq!(id[15], 0xca);
        for wrong in ["", "eb11aa6c", "zb11aa6c-8e9c-4591-a4df-1468c5ff55ca"] {
            assert_eq!(parse_boot_id(wrong), None, "{wrong:?}");
        }
    }
}
