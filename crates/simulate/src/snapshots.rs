//! Preconditioned flash drives, kept in a directory from one command to the next.
//!
//! A snapshot's name is derived from everything its drive's state depends on, so commands may
//! share a directory, even at the same time. A command that finds no file creates it, and the
//! file appears complete or not at all. A file is used only if it states that it belongs to
//! this very drive and its checksum is right ([`hemi_drives::ssd::snapshot`]). If files are
//! missing, damaged or cannot be written, the results are the same and only take longer.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use hemi_drives::preset::Precondition;
use hemi_drives::ssd::Ssd;

use crate::aside;

/// The outcome for a snapshot.
#[derive(Debug)]
pub enum Notice {
    /// The snapshot was used.
    Reused,
    /// There was no usable snapshot, and one has been created.
    Kept,
    /// There is a file, but it was not usable; the drive was preconditioned instead.
    Unusable(String),
    /// The drive was preconditioned, but its state could not be saved.
    NotKept(io::Error),
}

type Told = Box<dyn Fn(&str, &Path, &Notice) + Send + Sync>;

/// A directory of snapshots.
pub struct Snapshots {
    folder: PathBuf,
    told: Told,
}

impl Snapshots {
    /// Opens the snapshots in `folder`, which is created if it does not exist. `told` is called
    /// for every flash drive with its preset's name, the file and the outcome.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub fn open(
        folder: &Path,
        told: impl Fn(&str, &Path, &Notice) + Send + Sync + 'static,
    ) -> io::Result<Snapshots> {
        fs::create_dir_all(folder)?;
        Ok(Snapshots { folder: folder.to_owned(), told: Box::new(told) })
    }

    /// Brings a fresh drive into the state, either from its snapshot or by preconditioning it
    /// and saving a snapshot. The drive is the same to the bit either way. `of` is the name of
    /// its preset, for messages.
    pub fn precondition(&self, of: &str, drive: &mut Ssd, state: Precondition, seed: u64) {
        if state == Precondition::None {
            return;
        }
        let origin = drive.origin(state, seed);
        let path = self.folder.join(format!("{:016x}.flash", origin.number()));
        let tell = |notice: Notice| (self.told)(of, &path, &notice);
        match read(&path, drive.snapshot_bytes(&origin)) {
            Ok(Some(bytes)) => match drive.restore(&bytes, &origin) {
                Ok(()) => return tell(Notice::Reused),
                Err(error) => tell(Notice::Unusable(error.to_string())),
            },
            Ok(None) => {}
            Err(error) => tell(Notice::Unusable(error.to_string())),
        }
        drive.precondition(state, seed);
        let bytes = drive.save(&origin).map_err(io::Error::other);
        match bytes.and_then(|bytes| aside::write(&path, &bytes)) {
            Ok(()) => tell(Notice::Kept),
            Err(error) => tell(Notice::NotKept(error)),
        }
    }
}

/// Reads a file, or returns `None` if it does not exist. Reads at most one byte more than a
/// snapshot can have, to detect a file that is too long.
fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(most + 1) as usize);
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
