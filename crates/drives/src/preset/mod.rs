//! Presets: what a drive is made of, with a source for every value, and what was published of
//! it to hold the model against.
//!
//! A preset is a TOML file: `title`, `model`, the model's `[parameters]` with units, `[sources]`
//! with an entry for each parameter (one text, or a table of them for a table of parameters)
//! and a `[[card]]` for each published figure. Those in `presets/` are compiled in.

mod built_in;
mod card;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use self::built_in::BUILT_IN;
pub use self::card::{Figure, Load, Measure, Pattern, Precondition};
pub use self::error::PresetError;
use crate::any::AnyDrive;
use crate::network;
use crate::parameter::ParameterError;

/// A kind of drive and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A network volume.
    Network(network::Parameters),
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
    /// Where each parameter's value comes from, by its path below `[parameters]`.
    pub sources: BTreeMap<String, String>,
    /// Published figures.
    pub card: Vec<Figure>,
}

impl Preset {
    /// The names of the presets compiled in, sorted.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A preset compiled in.
    pub fn built_in(name: &str) -> Result<Preset, PresetError> {
        let found = BUILT_IN.binary_search_by(|(known, _)| (*known).cmp(name));
        let Ok(index) = found else {
            let known = Preset::names().collect::<Vec<_>>().join(", ");
            return Err(PresetError::Unknown { name: name.to_owned(), known });
        };
        let mut preset = Preset::parse(&format!("presets/{name}.toml"), BUILT_IN[index].1)?;
        name.clone_into(&mut preset.name);
        Ok(preset)
    }

    /// Reads a preset's text; errors call it `file`.
    pub fn parse(file: &str, text: &str) -> Result<Preset, PresetError> {
        let file::Contents { title, model, sources, card } = file::read(file, text)?;
        Ok(Preset { name: file.to_owned(), title, model, sources, card })
    }

    /// Reads a user's own preset.
    pub fn load(path: &Path) -> Result<Preset, PresetError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Preset::parse(&file, &text),
            Err(error) => Err(PresetError::Unreadable { file, reason: error.to_string() }),
        }
    }

    /// One such drive, fresh; its chance comes from `seed` alone.
    pub fn drive(&self, seed: u64) -> Result<AnyDrive, PresetError> {
        let refused = |error: ParameterError| self.refused(&error);
        match &self.model {
            Model::Network(parameters) => network::Network::new(parameters.clone(), seed)
                .map(AnyDrive::Network)
                .map_err(refused),
        }
    }

    /// An error about a parameter changed since the preset was read.
    fn refused(&self, error: &ParameterError) -> PresetError {
        PresetError::Impossible { name: self.name.clone(), reason: error.to_string() }
    }
}
