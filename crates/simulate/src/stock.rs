//! Drives created once and copied. Preconditioning flash runs only once for all cases of a
//! sweep and, with a directory of snapshots, only once for all commands.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use hemi_drives::any::AnyDrive;
use hemi_drives::preset::{Precondition, Preset, PresetError};

use crate::snapshots::Snapshots;

/// The identity and history of a drive. Two drives with equal keys are identical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    preset: String,
    scale: u64,
    precondition: String,
    seed: u64,
}

type Made = Arc<OnceLock<Result<AnyDrive, PresetError>>>;

/// Preconditioned drives, to be copied.
#[derive(Default)]
pub struct Stock {
    made: Mutex<HashMap<Key, Made>>,
    snapshots: Option<Snapshots>,
}

impl Stock {
    /// Creates a stock that looks for drives among `snapshots`, if given, and saves new ones
    /// there.
    pub fn new(snapshots: Option<Snapshots>) -> Stock {
        Stock { made: Mutex::default(), snapshots }
    }

    /// Returns a drive of a preset with its flash scaled, in the given state. The preset is
    /// given by name, or by path if the name has a `/` or ends in `.toml`.
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
        self.of(&preset(name, folder)?.scaled(scale), precondition, seed)
    }

    /// Returns a drive of the preset in the given state. Threads that want the same drive wait
    /// for the one that creates it.
    ///
    /// # Errors
    /// See [`PresetError`].
    pub fn of(
        &self,
        preset: &Preset,
        precondition: Precondition,
        seed: u64,
    ) -> Result<AnyDrive, PresetError> {
        if precondition == Precondition::None {
            return preset.drive(seed);
        }
        let (name, scale) = (preset.name.clone(), preset.flash_scale()?);
        let key = Key { preset: name, scale, precondition: format!("{precondition:?}"), seed };
        let made = {
            let mut made = self.made.lock().expect("nobody panics while it is held");
            Arc::clone(made.entry(key).or_default())
        };
        made.get_or_init(|| self.make(preset, precondition, seed)).clone()
    }

    fn make(
        &self,
        preset: &Preset,
        precondition: Precondition,
        seed: u64,
    ) -> Result<AnyDrive, PresetError> {
        let mut drive = preset.drive(seed)?;
        let Some(snapshots) = &self.snapshots else {
            drive.precondition(precondition, seed);
            return Ok(drive);
        };
        drive.each_flash(seed, &mut |flash, seed| {
            snapshots.precondition(&preset.name, flash, precondition, seed);
        });
        Ok(drive)
    }
}

/// Finds a preset by name, or by path if the name has a `/` or ends in `.toml`.
///
/// # Errors
/// See [`PresetError`].
pub fn preset(name: &str, folder: &Path) -> Result<Preset, PresetError> {
    if name.contains('/') || name.ends_with(".toml") {
        return Preset::load(&folder.join(name));
    }
    Preset::built_in(name)
}
