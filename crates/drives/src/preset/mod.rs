//! Presets: what a drive is made of, with a source for every value, and what was published of
//! it to hold the model against.
//!
//! A preset is a TOML file: `title`, `model`, the model's `[parameters]` with units, `[sources]`
//! with an entry for each parameter (one text, or a table of them for a table of parameters)
//! and a `[[card]]` for each published figure. Those in `presets/` are compiled in. A file with
//! a `base`, another preset, has only the parameters that change, with their sources ([`base`]).

mod base;
#[cfg(test)]
mod base_tests;
mod built_in;
mod card;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hemi_random::split_mix;

use self::base::Origin;
use self::built_in::{BUILT_IN, instead_of};
pub use self::card::{Figure, Load, Measure, Pattern, Precondition};
pub use self::error::PresetError;
use crate::any::AnyDrive;
use crate::array::{self, Array};
use crate::hdd::{self, Hdd};
use crate::network::{self, Network};
use crate::parameter::ParameterError;
use crate::ssd::{self, Ssd};

/// A kind of drive and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A hard disk.
    Hdd(Box<hdd::Parameters>),
    /// A flash drive.
    Ssd(Box<ssd::Parameters>),
    /// A network volume.
    Network(network::Parameters),
    /// An array of drives, which another preset describes.
    Array(array::Parameters),
}

/// A preset.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Its name, or its file's.
    pub name: String,
    /// What the drive is, for people.
    pub title: String,
    /// The drive.
    pub model: Model,
    /// The name of its model, as in a file.
    pub model_name: String,
    /// Its parameters as they are written, those of its base among them.
    pub parameters: toml::Table,
    /// Where each parameter's value comes from, by its path below `[parameters]`.
    pub sources: BTreeMap<String, String>,
    /// Published figures.
    pub card: Vec<Figure>,
    /// Where the user's own file is that names the members, for a path beside it.
    folder: Option<PathBuf>,
    /// By how much the flash of an array's members is scaled.
    member_scale: u64,
}

/// How deep arrays nest at most: a mirror of stripes of arrays, and one to spare.
pub const DEEPEST: usize = 4;

impl Preset {
    /// The names of the presets compiled in, sorted.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A preset compiled in.
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
            folder: contents.member_folder,
            member_scale: 1,
        })
    }

    /// Reads a user's own preset. The members of an array may be given by the path of another,
    /// from where this one is.
    pub fn load(path: &Path) -> Result<Preset, PresetError> {
        let file = path.display().to_string();
        let text = hemi_text::read(path).map_err(|error| {
            let reason = error.to_string();
            PresetError::Unreadable { file: file.clone(), reason }
        })?;
        Preset::read(&Origin::path(path), &text)
    }

    /// The preset of an array's members; none of any other drive.
    pub fn member(&self) -> Result<Option<Preset>, PresetError> {
        let Model::Array(parameters) = &self.model else { return Ok(None) };
        let member = &parameters.member;
        match &self.folder {
            Some(folder) if member.ends_with(".toml") => Preset::load(&folder.join(member)),
            _ => Preset::built_in(member),
        }
        .map(Some)
    }

    /// The same with the capacity of its flash divided by `scale`; no rate changes. A disk
    /// keeps its size, for how far its arm has to go is its speed, and so does a network
    /// volume.
    #[must_use]
    pub fn scaled(mut self, scale: u64) -> Preset {
        match &mut self.model {
            Model::Ssd(of) => of.scale = of.scale.saturating_mul(scale.min(1 << 20) as u32),
            Model::Array(_) => self.member_scale = self.member_scale.saturating_mul(scale),
            Model::Hdd(_) | Model::Network(_) => {}
        }
        self
    }

    /// By how much the capacity of its flash is divided, its own scale included; 1 where it has
    /// none.
    ///
    /// # Errors
    /// An array whose member cannot be found.
    pub fn flash_scale(&self) -> Result<u64, PresetError> {
        match (&self.model, self.member()?) {
            (Model::Ssd(of), _) => Ok(u64::from(of.scale)),
            (_, Some(member)) => member.scaled(self.member_scale).flash_scale(),
            (_, None) => Ok(1),
        }
    }

    /// One such drive, fresh; its chance comes from `seed` alone.
    pub fn drive(&self, seed: u64) -> Result<AnyDrive, PresetError> {
        self.drive_within(seed, 0)
    }

    /// The drive, where it is a member `depth` arrays deep.
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
                // Each member has its own chance.
                let mut seeds = seed;
                let mut members = Vec::new();
                if let Some(member) = self.member()? {
                    let member = member.scaled(self.member_scale);
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

    /// An error about a parameter changed since the preset was read.
    fn refused(&self, error: &ParameterError) -> PresetError {
        PresetError::Impossible { name: self.name.clone(), reason: error.to_string() }
    }
}
