//! `hemi sim presets`: the drives there are, and each one's card.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets};
use hemi_drives::preset::{Figure, Measure, Preset};
use hemi_model::card;
use hemi_model::stock;

use super::table::time;
use crate::failure::{Failure, Kind};

/// List the drives that come with hemi, or show one: sources and card.
///
/// A card has every figure published of a drive that is known, beside the model's own.
#[derive(Debug, Args)]
pub(super) struct PresetsArgs {
    /// A preset's name, or the path of a preset file: show where its values come from, and run
    /// its card.
    #[arg(value_name = "PRESET")]
    preset: Option<String>,
}

pub(super) fn run(arguments: &PresetsArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &arguments.preset {
        None => write!(out, "{}", list()?)?,
        Some(name) => {
            let preset = stock::preset(name, Path::new(""));
            let preset = preset.map_err(|error| {
                let way_out = "hemi sim presets lists them; or give the path of a preset file.";
                Failure::error(Kind::Usage, error.to_string(), way_out)
            })?;
            write!(out, "{}", shown(&preset)?)?;
        }
    }
    out.flush().map_err(Into::into)
}

fn list() -> Result<String> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for name in Preset::names() {
        table.add_row([name.to_owned(), Preset::built_in(name)?.title]);
    }
    Ok(format!("{table}\n"))
}

fn shown(preset: &Preset) -> Result<String> {
    let mut sources = Table::new();
    sources.load_preset(presets::NOTHING);
    for (parameter, source) in &preset.sources {
        sources.add_row([parameter, source]);
    }
    let mut figures = Table::new();
    figures.load_preset(presets::NOTHING);
    figures.set_header(["figure", "published", "model", "off by", "", "source"]);
    for figure in &preset.card {
        let model = card::model(preset, figure, 1)?;
        let off = (model / figure.published - 1.0) * 100.0;
        figures.add_row([
            figure.figure.clone(),
            amount(figure, figure.published),
            amount(figure, model),
            format!("{off:+.1} %"),
            if figure.fitted { "fitted" } else { "" }.to_owned(),
            figure.source.clone(),
        ]);
    }
    Ok(format!("{}\n\n{sources}\n\n{figures}\n", preset.title))
}

fn amount(figure: &Figure, value: f64) -> String {
    match figure.measure {
        Measure::Iops => format!("{value:.0} IOPS"),
        Measure::Bandwidth => format!("{:.1} MB/s", value / 1e6),
        Measure::Watts => format!("{value:.2} W"),
        Measure::Mean | Measure::P50 | Measure::P99 | Measure::Max | Measure::Stddev => time(value),
    }
}
