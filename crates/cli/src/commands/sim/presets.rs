//! `hemi sim presets`: lists the drives, and shows the card of each.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use comfy_table::{Table, presets};
use hemi_drives::preset::{Class, Deviation, Preset};
use hemi_simulate::stock;
use serde::Serialize;

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

    /// Print the models' figures as the table that is compiled into hemi.
    #[arg(long, requires = "cards", conflicts_with_all = ["json", "markdown"])]
    figures: bool,

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
        if arguments.json.write(&listed.iter().map(Listed::of).collect::<Vec<_>>())? {
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
    if arguments.figures {
        return print(&cards::figures(&cards));
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

/// A preset in the JSON list.
#[derive(Serialize)]
struct Listed<'p> {
    name: &'p str,
    title: &'p str,
    note: Option<&'p str>,
    reads: Validated,
    writes: Validated,
}

/// The figures that hold a model for one class of requests.
#[derive(Serialize)]
struct Validated {
    /// Published figures, and those of them that a parameter was fitted to.
    figures: usize,
    fitted: usize,
    /// The figure that the model misses most, its deviation as a share, and whether that is
    /// within the tolerance.
    worst: Option<String>,
    off: Option<f64>,
    within: Option<bool>,
}

impl<'p> Listed<'p> {
    fn of(preset: &'p Preset) -> Listed<'p> {
        let validation = preset.validation();
        let [reads, writes] = Class::ALL.map(|class| {
            let held = validation.of(class);
            let worst = held.worst.as_ref();
            Validated {
                figures: held.figures,
                fitted: held.fitted,
                worst: worst.map(|worst| worst.figure.clone()),
                off: worst.map(Deviation::off),
                within: worst.map(Deviation::is_within),
            }
        });
        let Preset { name, title, note, .. } = preset;
        Listed { name, title, note: note.as_deref(), reads, writes }
    }
}

fn list(all: &[Preset]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for preset in all {
        let mark = preset.validation().mark().unwrap_or_default();
        table.add_row([preset.name.as_str(), &preset.title, mark]);
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
    let mut title = preset.title.clone();
    if let Some(mark) = preset.validation().mark() {
        title = format!("{title} ({mark})");
    }
    if let Some(note) = &preset.note {
        title = format!("{title}\n\n{}", note.trim());
    }
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
