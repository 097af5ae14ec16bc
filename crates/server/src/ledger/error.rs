//! Errors of a ledger's file.

use std::io;
use std::path::PathBuf;

use hemi_units::Size;

/// An error in finding or keeping a ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerFileError {
    /// The id of this boot of the machine is unknown.
    #[error(
        "cannot read the machine's boot id from /proc/sys/kernel/random/boot_id: {why}; mount \
         /proc"
    )]
    Boot {
        /// The reason.
        why: String,
    },
    /// The file cannot be opened, read or created.
    #[error("the ledger {}: {what}: {source}; see `ledger` in the configuration", path.display())]
    File {
        /// Path of the ledger.
        path: PathBuf,
        /// The step that failed, as a predicate: "cannot be opened".
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another hemi uses it.
    #[error("the ledger {} is in use by another hemi: stop that one first", path.display())]
    InUse {
        /// Path of the ledger.
        path: PathBuf,
    },
    /// It is not a file of this user.
    #[error(
        "{} is not a regular file of this user, so hemi does not trust it as a ledger: serve the \
         volume as the user who did before, or remove it",
        path.display()
    )]
    Foreign {
        /// Path of the ledger.
        path: PathBuf,
    },
    /// The directory is not on tmpfs.
    #[error(
        "{} is not on tmpfs: a ledger has to be in memory that ends with the machine's boot; name \
         another directory with `ledger`, or set it to \"none\"",
        directory.display()
    )]
    NotTmpfs {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// Every user can write the directory.
    #[error(
        "{} can be written by every user: a ledger in it could be replaced; name a directory of \
         this user's with `ledger`",
        directory.display()
    )]
    OpenToAll {
        /// Path of the directory.
        directory: PathBuf,
    },
    /// There is no space for it.
    #[error("the ledger {} needs {bytes} of tmpfs: {source}", path.display())]
    NoRoom {
        /// Path of the ledger.
        path: PathBuf,
        /// Its size in bytes.
        bytes: Size,
        /// The system's error.
        source: io::Error,
    },
    /// It may not be locked in memory.
    #[error(
        "the ledger {} cannot be locked in memory: {source}; allow {bytes} more with `ulimit -l` or \
         LimitMEMLOCK=",
        path.display()
    )]
    NotLocked {
        /// Path of the ledger.
        path: PathBuf,
        /// Its size in bytes.
        bytes: Size,
        /// The system's error.
        source: io::Error,
    },
    /// The volume is to be served without a ledger, but an existing one decides.
    #[error(
        "`ledger` is \"none\", but the volume was last served with the ledger {}, and not closed: \
         run 'hemi settle' with the volume's legs first, which brings the legs up to it",
        path.display()
    )]
    ReliedOn {
        /// Path of the ledger.
        path: PathBuf,
    },
}

impl LedgerFileError {
    /// Returns true if another hemi uses the ledger.
    pub fn is_in_use(&self) -> bool {
        matches!(self, LedgerFileError::InUse { .. })
    }
}
