//! A preset made of a DiskSim description.

use toml::{Table, Value};

use super::drive::{Description, Parts};
use super::text::{Block, Value as Text};
use crate::preset::{Preset, PresetError};

/// Returns the text of a preset with the parameters of a described drive and, for each, the
/// file and the block it comes from. The preset is named `title`, or as the description names
/// the drive if that is absent.
///
/// # Errors
/// [`PresetError`] if the text is no preset, which would be a defect of this function.
pub fn text(description: &Description, title: Option<&str>) -> Result<String, PresetError> {
    let wrong = |reason: String| PresetError::Impossible { name: description.name.clone(), reason };
    let parameters = Table::try_from(&description.parameters)
        .map_err(|error| wrong(format!("cannot be written as TOML: {error}")))?;
    let sources = parameters.keys().map(|key| (key.clone(), source(&description.parts, key)));
    let mut preset = Table::new();
    preset.insert("title".to_owned(), title.unwrap_or(&description.name).into());
    preset.insert("model".to_owned(), "hdd".into());
    preset.insert("sources".to_owned(), Value::Table(sources.collect()));
    preset.insert("parameters".to_owned(), Value::Table(parameters));
    let text = toml::to_string(&preset)
        .map_err(|error| wrong(format!("cannot be written as TOML: {error}")))?;
    Preset::parse(&description.name, &text)?;
    Ok(text)
}

/// Returns the source of a parameter: its files and blocks.
fn source(parts: &Parts, parameter: &str) -> Value {
    let Parts { disk, model, mechanics, layout, path } = parts;
    let blocks: Vec<&Block> = match parameter {
        "revolutions_per_minute" | "seek" | "head_switch" | "write_settle" | "write_advance" => {
            vec![mechanics]
        }
        "layout" => vec![model, layout],
        "host_rate" | "bus" => std::iter::once(disk).chain(path).collect(),
        "speed_tolerance" => return "none: DiskSim's disks turn at the speed given".into(),
        "power" => return "none: a DiskSim description has no power".into(),
        _ => vec![disk],
    };
    let shown = |block: &&Block| {
        let Block { file, line, kind, name, .. } = block;
        let named = if name.is_empty() { String::new() } else { format!(" {name}") };
        format!("{file}, line {line}: {kind}{named}")
    };
    let mut all: Vec<String> = blocks.iter().map(shown).collect();
    if parameter == "seek"
        && let Some((_, Text::Word(curve))) = mechanics.get("Full seek curve")
    {
        all.push(curve.clone());
    }
    all.join("; ").into()
}
