//! Preconditioned flash kept in a folder, from one command to the next.
//!
//! A snapshot's name is made from all that its drive's state depends on, so that commands may
//! share a folder, at the same time too: whoever does not find a file makes it, and it appears
//! there whole or not at all. What a file holds is believed only if it says itself that it is
//! of this very drive and its checksum is right ([`hemi_drives::ssd::snapshot`]). With files
//! that are missing, damaged or cannot be written, results are the same; they only take
//! longer.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use hemi_drives::preset::Precondition;
use hemi_drives::ssd::Ssd;

use crate::aside;

/// What became of a snapshot.
#[derive(Debug)]
pub enum Notice {
    /// A drive was brought into its state by it.
    Reused,
    /// There was none, or none that could be used, and now there is.
    Kept,
    /// There is a file, but it could not be used; the drive was preconditioned instead.
    Unusable(String),
    /// The drive was preconditioned, but its state could not be kept.
    NotKept(io::Error),
}

type Told = Box<dyn Fn(&str, &Path, &Notice) + Send + Sync>;

/// A folder of snapshots.
pub struct Snapshots {
    folder: PathBuf,
    told: Told,
}

impl Snapshots {
    /// Snapshots in `folder`, which is made if there is none. `told` hears of every flash
    /// drive: its preset's name, the file, and what became of that.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn open(
        folder: &Path,
        told: impl Fn(&str, &Path, &Notice) + Send + Sync + 'static,
    ) -> io::Result<Snapshots> {
        fs::create_dir_all(folder)?;
        Ok(Snapshots { folder: folder.to_owned(), told: Box::new(told) })
    }

    /// Brings a drive just made into the state: by its snapshot, or by preconditioning it and
    /// keeping a snapshot of that. The drive is the same either way, to the bit. `of` is its
    /// preset's name, for people.
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

/// A file's content; `None` if there is no such file. No more than what a snapshot has, and a
/// byte that shows that it is none.
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
