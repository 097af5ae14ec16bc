//! Presets: a drive's parameters, with a source for every value, and published figures to
//! compare the model with.
//!
//! A preset is a TOML file: `title`, `model`, the model's `[parameters]` with units,
//! `[sources]` with an entry for each parameter (one text, or a table of texts for a table of
//! parameters), a `[[card]]` for each published figure and, if a price is known, `[purchase]`.
//! The files in `presets/` are built in. A file with a `base`, another preset, has only the parameters that change, with their
//! sources ([`base`]).

mod base;
mod built_in;
mod card;
mod error;
mod file;
mod purchase;
mod scale;
#[cfg(test)]
mod tests;
mod validation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hemi_random::split_mix;

use self::base::Origin;
use self::built_in::{BUILT_IN, instead_of};
pub use self::card::{Figure, Load, Measure, Pattern, Precondition};
pub use self::error::PresetError;
pub use self::purchase::Purchase;
pub use self::scale::TooSmall;
pub use self::validation::{Class, Deviation, Held, Validation};
use crate::any::AnyDrive;
use crate::array::{self, Array};
use crate::hdd::{self, Hdd};
use crate::network::{self, Network};
use crate::parameter::ParameterError;
use crate::ssd::{self, Ssd};

/// A kind of drive and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A hard disk.
    Hdd(Box<hdd::Parameters>),
    /// A flash drive.
    Ssd(Box<ssd::Parameters>),
    /// A network volume.
    Network(network::Parameters),
    /// An array of drives described by another preset.
    Array(array::Parameters),
}

/// A preset.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Name of the preset or of its file.
    pub name: String,
    /// Description of the drive.
    pub title: String,
    /// The drive.
    pub model: Model,
    /// Name of the model, as in a file.
    pub model_name: String,
    /// Parameters as they are written, including those of the base.
    pub parameters: toml::Table,
    /// Source of each parameter's value, by its path below `[parameters]`.
    pub sources: BTreeMap<String, String>,
    /// Published figures.
    pub card: Vec<Figure>,
    /// Text shown with the model's figures, about a parameter that decides them and whose value
    /// is not known.
    pub note: Option<String>,
    /// Price and rated use, if known.
    pub purchase: Option<Purchase>,
    /// Directory of the user's file that names the members, for relative paths.
    folder: Option<PathBuf>,
    /// Scale of the flash of an array's members.
    member_scale: u64,
}

/// The deepest nesting of arrays: a mirror of stripes of arrays, and one to spare.
pub const DEEPEST: usize = 4;

impl Preset {
    /// Returns the names of the built-in presets, sorted.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Returns a built-in preset.
    pub fn built_in(name: &str) -> Result<Preset, PresetError> {
        let found = BUILT_IN.binary_search_by(|(known, _)| (*known).cmp(name));
        let Ok(index) = found else {
            let instead = instead_of(name);
            return Err(PresetError::Unknown { name: name.to_owned(), instead });
        };
        let mut preset = Preset::read(&Origin::built_in(name), BUILT_IN[index].1)?;
        name.clone_into(&mut preset.name);
        Ok(preset)
    }

    /// Reads a preset's text; errors call it `file`.
    pub fn parse(file: &str, text: &str) -> Result<Preset, PresetError> {
        Preset::read(&Origin::text(file), text)
    }

    fn read(origin: &Origin, text: &str) -> Result<Preset, PresetError> {
        let contents = file::read(origin, text)?;
        Ok(Preset {
            name: origin.file.clone(),
            title: contents.title,
            model: contents.model,
            model_name: contents.model_name,
            parameters: contents.parameters,
            sources: contents.sources,
            card: contents.card,
            note: contents.note,
            purchase: contents.purchase,
            folder: contents.member_folder,
            member_scale: 1,
        })
    }

    /// Reads a user's own preset. The members of an array may be given by the path of another
    /// file, relative to this one.
    pub fn load(path: &Path) -> Result<Preset, PresetError> {
        let file = path.display().to_string();
        let text = hemi_text::read(path).map_err(|error| {
            let reason = error.to_string();
            PresetError::Unreadable { file: file.clone(), reason }
        })?;
        Preset::read(&Origin::path(path), &text)
    }

    /// Returns the preset of an array's members, or `None` for any other drive.
    pub fn member(&self) -> Result<Option<Preset>, PresetError> {
        let Model::Array(parameters) = &self.model else { return Ok(None) };
        let member = &parameters.member;
        match &self.folder {
            Some(folder) if member.ends_with(".toml") => Preset::load(&folder.join(member)),
            _ => Preset::built_in(member),
        }
        .map(Some)
    }

    /// Creates a fresh drive; its randomness comes from `seed` alone.
    pub fn drive(&self, seed: u64) -> Result<AnyDrive, PresetError> {
        self.drive_within(seed, 0)
    }

    /// Creates the drive as a member `depth` arrays deep.
    fn drive_within(&self, seed: u64, depth: usize) -> Result<AnyDrive, PresetError> {
        let refused = |error: ParameterError| self.refused(&error);
        match &self.model {
            Model::Hdd(parameters) => {
                let disk = Hdd::of_seed((**parameters).clone(), seed).map_err(refused)?;
                Ok(AnyDrive::Hdd(Box::new(disk)))
            }
            Model::Ssd(parameters) => {
                let drive = Ssd::new(parameters, seed).map_err(refused)?;
                Ok(AnyDrive::Ssd(Box::new(drive)))
            }
            Model::Network(parameters) => {
                let volume = Network::new(parameters.clone(), seed).map_err(refused)?;
                Ok(AnyDrive::Network(Box::new(volume)))
            }
            Model::Array(parameters) => {
                if depth == DEEPEST {
                    return Err(PresetError::Nested { name: self.name.clone(), deepest: DEEPEST });
                }
                // Each member has its own seed.
                let mut seeds = seed;
                let mut members = Vec::new();
                if let Some(member) = self.scaled_member()? {
                    for _ in 0..parameters.count {
                        let seed = split_mix(&mut seeds);
                        members.push(member.drive_within(seed, depth + 1)?);
                    }
                }
                let array = Array::new(parameters, members).map_err(refused)?;
                Ok(AnyDrive::Array(Box::new(array)))
            }
        }
    }

    /// Returns an error about a parameter changed after the preset was read.
    fn refused(&self, error: &ParameterError) -> PresetError {
        PresetError::Impossible { name: self.name.clone(), reason: error.to_string() }
    }
}
