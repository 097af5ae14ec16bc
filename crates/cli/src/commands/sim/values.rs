//! `hemi sim presets --values`: the parameters of presets, without running anything.

use anyhow::Result;
use hemi_drives::preset::{DEEPEST, Preset, PresetError};
use serde::Serialize;
use toml::Table;

use super::json::JsonArgs;

/// A preset as it is written, with its base's parameters among its own.
#[derive(Serialize)]
struct Values {
    name: String,
    title: String,
    model: String,
    /// Largest `system.scale` at which its flash is as fast as the whole drive's; absent without
    /// flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_most: Option<u64>,
    parameters: Table,
    /// The drives of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<Box<Values>>,
}

impl Values {
    /// Returns the values of a preset that is nested in `depth` arrays.
    fn of(preset: &Preset, depth: usize) -> Result<Values, PresetError> {
        if depth > DEEPEST {
            return Err(PresetError::Nested { name: preset.name.clone(), deepest: DEEPEST });
        }
        let member = preset.member()?.map(|member| Values::of(&member, depth + 1)).transpose()?;
        Ok(Values {
            name: preset.name.clone(),
            title: preset.title.clone(),
            model: preset.model_name.clone(),
            scale_most: preset.scale_most()?,
            parameters: preset.parameters.clone(),
            member: member.map(Box::new),
        })
    }
}

/// Prints the values, as TOML tables or as JSON.
pub(super) fn show(presets: &[Preset], json: &JsonArgs) -> Result<()> {
    let values = |preset| Values::of(preset, 0).map_err(|error| super::presets::refused(&error));
    let all = presets.iter().map(values).collect::<Result<Vec<_>>>()?;
    if json.write(&all)? {
        return Ok(());
    }
    let pieces = all.iter().map(toml::to_string).collect::<Result<Vec<_>, _>>()?;
    super::presets::print(&pieces.join("\n"))
}
