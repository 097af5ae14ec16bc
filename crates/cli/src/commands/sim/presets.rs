//! `hemi sim presets`: lists the drives, and shows the card of each.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets};
use hemi_drives::preset::Preset;
use hemi_simulate::stock;

use super::cards::{self, Card};
use super::json::JsonArgs;
use super::snapshots::SnapshotArgs;
use super::values;
use crate::failure::{Failure, Kind};

/// List the drives that come with hemi, or show the sources and cards of some.
///
/// A card shows every known published figure of a drive beside the model's. --cards runs the
/// cards of all drives, or of those named, and prints one table.
#[derive(Debug, Args)]
pub(super) struct PresetsArgs {
    /// Names of presets, or paths of preset files, whose sources to show and whose cards to run.
    #[arg(value_name = "PRESET")]
    presets: Vec<String>,

    /// Run the cards of all presets, or of those named, and print one table.
    #[arg(long)]
    cards: bool,

    /// Print the cards as a page with a table for each preset, like docs/drives.md.
    #[arg(long, requires = "cards", conflicts_with = "json")]
    markdown: bool,

    /// Run nothing; print the parameters as written, including those of a preset's base and of an
    /// array's members.
    #[arg(long, conflicts_with = "cards")]
    values: bool,

    #[command(flatten)]
    json: JsonArgs,

    /// Cards run at a time [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    #[command(flatten)]
    snapshots: SnapshotArgs,
}

pub(super) fn run(arguments: &PresetsArgs) -> Result<()> {
    let named = &arguments.presets;
    if arguments.values {
        return values::show(&named_or_all(named)?, &arguments.json);
    }
    if named.is_empty() && !arguments.cards {
        let listed: Vec<Preset> = named_or_all(named)?;
        let names = |preset: &Preset| [preset.name.clone(), preset.title.clone()];
        if arguments.json.write(&listed.iter().map(names).collect::<Vec<_>>())? {
            return Ok(());
        }
        return print(&list(&listed));
    }
    let presets = named_or_all(named)?;
    let cards = cards::run_all(presets, arguments.jobs, &arguments.snapshots)?;
    if arguments.json.write(&cards::plain(&cards))? {
        return Ok(());
    }
    if arguments.markdown {
        return print(&cards::page(&cards)?);
    }
    if arguments.cards {
        return print(&cards::table(&cards));
    }
    cards.iter().try_for_each(|card| print(&shown(card)))
}

pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    out.flush().map_err(Into::into)
}

fn named_or_all(named: &[String]) -> Result<Vec<Preset>> {
    let all = Preset::names().map(str::to_owned).collect();
    let names: Vec<String> = if named.is_empty() { all } else { named.to_vec() };
    let preset =
        |name: &String| stock::preset(name, Path::new("")).map_err(|error| refused(&error));
    names.iter().map(preset).collect()
}

pub(super) fn refused(error: &impl ToString) -> anyhow::Error {
    let way_out = "hemi sim presets lists them; or give the path of a preset file.";
    Failure::error(Kind::Usage, error.to_string(), way_out)
}

fn list(all: &[Preset]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for preset in all {
        table.add_row([&preset.name, &preset.title]);
    }
    format!("{table}\n")
}

fn shown(card: &Card) -> String {
    let Card { preset, rows } = card;
    let mut sources = Table::new();
    sources.load_preset(presets::NOTHING);
    for (parameter, source) in &preset.sources {
        sources.add_row([parameter, source]);
    }
    let title = &preset.title;
    if rows.is_empty() {
        return format!("{title}\n\n{sources}\n\n{}\n", cards::NOTHING_PUBLISHED);
    }
    let mut figures = Table::new();
    figures.load_preset(presets::NOTHING);
    figures.set_header(cards::COLUMNS);
    for row in rows {
        figures.add_row(cards::cells(row));
    }
    format!("{title}\n\n{sources}\n\n{figures}\n")
}
