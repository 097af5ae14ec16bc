//! Drives made once: what it takes to bring flash into its steady state is not paid again for
//! every case of a sweep.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use hemi_drives::any::AnyDrive;
use hemi_drives::preset::{Precondition, Preset, PresetError};

/// What a drive is, and what it has been through: by these, a drive is always the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    preset: String,
    scale: u64,
    precondition: String,
    seed: u64,
}

type Made = Arc<OnceLock<Result<AnyDrive, PresetError>>>;

/// Drives that were preconditioned, to be copied.
#[derive(Default)]
pub struct Stock {
    made: Mutex<HashMap<Key, Made>>,
}

impl Stock {
    /// A drive of a preset, by name, or by path where the name has a `/` or ends in `.toml`,
    /// with its flash scaled and after what has happened to it. Threads that want the same
    /// drive wait for the one that makes it.
    ///
    /// # Errors
    /// See [`PresetError`].
    pub fn drive(
        &self,
        name: &str,
        folder: &Path,
        scale: u64,
        precondition: Precondition,
        seed: u64,
    ) -> Result<AnyDrive, PresetError> {
        let make = || {
            let mut drive = preset(name, folder)?.scaled(scale).drive(seed)?;
            drive.precondition(precondition, seed);
            Ok(drive)
        };
        if precondition == Precondition::None {
            return make();
        }
        let preset = folder.join(name).display().to_string();
        let key = Key { preset, scale, precondition: format!("{precondition:?}"), seed };
        let made = {
            let mut made = self.made.lock().expect("nobody panics while it is held");
            Arc::clone(made.entry(key).or_default())
        };
        made.get_or_init(make).clone()
    }
}

/// Finds a preset by name, or by path where the name has a `/` or ends in `.toml`.
///
/// # Errors
/// See [`PresetError`].
pub fn preset(name: &str, folder: &Path) -> Result<Preset, PresetError> {
    if name.contains('/') || name.ends_with(".toml") {
        return Preset::load(&folder.join(name));
    }
    Preset::built_in(name)
}
