//! Errors of a ledger's file.

use std::io;
use std::path::PathBuf;

use hemi_units::Size;

/// Says why a ledger cannot be found or kept.
#[derive(Debug, thiserror::Error)]
pub enum LedgerFileError {
    /// The id of this boot of the machine is not known.
    #[error(
        "cannot read the machine's boot id from /proc/sys/kernel/random/boot_id: {why}; mount \
         /proc"
    )]
    Boot {
        /// Why.
        why: String,
    },
    /// The file cannot be opened, read or created.
    #[error("the ledger {}: {what}: {source}; see `ledger` in the configuration", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The step that failed, as a predicate: "cannot be opened".
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Another hemi keeps it.
    #[error("the ledger {} is in use by another hemi: stop that one first", path.display())]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// It is not a file of this user.
    #[error(
        "{} is not a regular file of this user, so hemi does not trust it as a ledger: serve the \
         volume as the user who did before, or remove it",
        path.display()
    )]
    Foreign {
        /// Its path.
        path: PathBuf,
    },
    /// The directory is not in memory.
    #[error(
        "{} is not on tmpfs: a ledger has to be in memory that ends with the machine's boot; name \
         another directory with `ledger`, or set it to \"none\"",
        directory.display()
    )]
    NotTmpfs {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory may be written by others.
    #[error(
        "{} can be written by every user: a ledger in it could be replaced; name a directory of \
         this user's with `ledger`",
        directory.display()
    )]
    OpenToAll {
        /// The directory.
        directory: PathBuf,
    },
    /// No room for it.
    #[error("the ledger {} needs {bytes} of tmpfs: {source}", path.display())]
    NoRoom {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: Size,
        /// Why there is none.
        source: io::Error,
    },
    /// It may not be locked in memory.
    #[error(
        "the ledger {} cannot be locked in memory: {source}; allow {bytes} more with `ulimit -l` or \
         LimitMEMLOCK=",
        path.display()
    )]
    NotLocked {
        /// Its path.
        path: PathBuf,
        /// Its size.
        bytes: Size,
        /// Why.
        source: io::Error,
    },
    /// The volume is to be served without a ledger, but an existing one decides.
    #[error(
        "`ledger` is \"none\", but the volume was last served with the ledger {}, and not closed: \
         run 'hemi settle' with the volume's legs first, which brings the legs up to it",
        path.display()
    )]
    ReliedOn {
        /// Its path.
        path: PathBuf,
    },
}

impl LedgerFileError {
    /// Returns true if another hemi keeps the ledger.
    pub fn is_in_use(&self) -> bool {
        matches!(self, LedgerFileError::InUse { .. })
    }
}
