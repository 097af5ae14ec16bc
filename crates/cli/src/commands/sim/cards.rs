//! The cards of presets, run and put into tables.

use std::fmt::Write as _;

use anyhow::Result;
use comfy_table::{Table, presets};
use hemi_drives::preset::{Class, Deviation, Figure, Held, Measure, Model, Preset};
use hemi_simulate::card::{self, CardError, Row};
use hemi_simulate::parallel;
use serde::Serialize;

use super::progress::Bars;
use super::snapshots::SnapshotArgs;
use super::table::time;
use crate::failure::{Failure, Kind};

/// The text of a card without figures.
pub(super) const NOTHING_PUBLISHED: &str = "No figure is known that was published of it.";

/// The columns of a card's table.
pub(super) const COLUMNS: [&str; 6] = ["figure", "published", "model", "off by", "", "source"];

/// The seed, the same for every card.
const SEED: u64 = 1;

/// A preset and the rows of its card.
pub(super) struct Card {
    pub(super) preset: Preset,
    pub(super) rows: Vec<Row>,
}

/// Runs the presets' cards in parallel.
pub(super) fn run_all(
    presets: Vec<Preset>,
    jobs: Option<usize>,
    snapshots: &SnapshotArgs,
) -> Result<Vec<Card>> {
    let bars = Bars::new(presets.len(), "cards");
    let results = parallel::each(&presets, jobs, |preset| {
        let bar = bars.one(preset.name.clone());
        // The figures of one card share their drives, which are large and dropped with it.
        let rows = snapshots.stock(&bars).map(|stock| {
            card::rows(preset, &stock, SEED, |figure| {
                bar.set_message(figure.figure.clone());
                bar.tick();
            })
        });
        bars.end(&bar);
        rows
    });
    bars.clear();
    let refused = |name: &str, error: &CardError| {
        let way_out = "Correct the preset's file: what its card asks for does not fit the drive.";
        Failure::error(Kind::Usage, format!("{name}: {error}"), way_out)
    };
    let card = |(preset, rows): (Preset, Result<Result<Vec<Row>, CardError>>)| {
        let rows = rows?.map_err(|error| refused(&preset.name, &error))?;
        Ok(Card { preset, rows })
    };
    presets.into_iter().zip(results).map(card).collect()
}

/// Returns a row's cells under [`COLUMNS`].
pub(super) fn cells(row: &Row) -> [String; 6] {
    let Row { figure, model } = row;
    [
        figure.figure.clone(),
        amount(figure, figure.published),
        amount(figure, *model),
        format!("{:+.1} %", row.off() * 100.0),
        mark(row).to_owned(),
        figure.source.clone(),
    ]
}

fn mark(row: &Row) -> &'static str {
    match (row.figure.fitted, row.is_within()) {
        (true, true) => "fitted",
        (true, false) => "fitted, missed",
        (false, true) => "",
        (false, false) => "missed",
    }
}

fn amount(figure: &Figure, value: f64) -> String {
    match figure.measure {
        Measure::Iops => format!("{value:.0} IOPS"),
        Measure::Bandwidth => format!("{:.1} MB/s", value / 1e6),
        Measure::Watts => format!("{value:.2} W"),
        Measure::Mean | Measure::P50 | Measure::P99 | Measure::Max | Measure::Stddev => time(value),
    }
}

/// Returns all cards in one table, with the number of figures within bounds.
pub(super) fn table(cards: &[Card]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let [figure, published, model, off, mark, _] = COLUMNS;
    table.set_header(["preset", figure, published, model, off, mark]);
    for card in cards {
        for row in &card.rows {
            let [figure, published, model, off, mark, _] = cells(row);
            table.add_row([card.preset.name.clone(), figure, published, model, off, mark]);
        }
    }
    let mut text = format!("{table}\n\n");
    for card in cards {
        if let Some(mark) = card.mark() {
            let _ = writeln!(text, "{}: {mark}", card.preset.name);
        }
    }
    let _ = writeln!(text, "{}", summary(cards));
    text
}

fn summary(cards: &[Card]) -> String {
    let rows = || cards.iter().flat_map(|card| &card.rows);
    let count = |of: fn(&&Row) -> bool| rows().filter(of).count();
    let fitted = count(|row| row.figure.fitted);
    let free = count(|row| !row.figure.fitted);
    let free_within = count(|row| !row.figure.fitted && row.is_within());
    let fitted_within = count(|row| row.figure.fitted && row.is_within());
    let without = cards.iter().filter(|card| card.rows.is_empty()).count();
    let partly = cards.iter().filter(|card| !card.rows.is_empty() && card.mark().is_some()).count();
    format!(
        "{free_within} of {free} figures that nothing was fitted to are within 15 % (latencies \
         30 %), {fitted_within} of {fitted} fitted ones; {without} of {count} presets have no \
         figures, {partly} none of reads or none of writes",
        count = cards.len()
    )
}

impl Card {
    /// Returns the mark of a preset that lacks figures of a class of requests.
    fn mark(&self) -> Option<&'static str> {
        self.preset.validation().mark()
    }

    /// Returns what this run of the card says of a class of requests.
    fn held(&self, class: Class) -> String {
        let mut held = self.preset.validation().of(class).clone();
        let rows = self.rows.iter().filter(|row| class.has(&row.figure));
        held.worst =
            rows.map(Row::deviation).max_by(|one, other| one.beyond().total_cmp(&other.beyond()));
        format!("{}: {}", class.name(), said(&held))
    }
}

/// Returns what is known of a class of requests: its worst figure and whether anything was
/// fitted.
pub(super) fn said(held: &Held) -> String {
    let Held { figures, fitted, worst } = held;
    let figures = match (figures, fitted) {
        (0, _) => return "**not validated**, no figure is known".to_owned(),
        (1, 0) => "1 figure".to_owned(),
        (1, _) => "1 figure, fitted".to_owned(),
        (all, 0) => format!("{all} figures"),
        (all, fitted) if all == fitted => format!("{all} figures, all fitted"),
        (all, fitted) => format!("{all} figures, {fitted} fitted"),
    };
    match worst {
        None => figures,
        Some(worst) => format!("{figures}; worst {}", off(worst)),
    }
}

fn off(of: &Deviation) -> String {
    let missed = if of.is_within() { "" } else { " (missed)" };
    format!("{:+.1} %{missed}", of.off() * 100.0)
}

/// A row as JSON.
#[derive(Serialize)]
pub(super) struct Plain<'c> {
    preset: &'c str,
    figure: &'c str,
    published: f64,
    model: f64,
    off: f64,
    fitted: bool,
    within: bool,
    source: &'c str,
}

/// Returns all rows for JSON: requests or bytes per second, seconds, watts.
pub(super) fn plain(cards: &[Card]) -> Vec<Plain<'_>> {
    let mut all = Vec::new();
    for Card { preset, rows } in cards {
        all.extend(rows.iter().map(|row| Plain {
            preset: &preset.name,
            figure: &row.figure.figure,
            published: row.figure.published,
            model: row.model,
            off: row.off(),
            fitted: row.figure.fitted,
            within: row.is_within(),
            source: &row.figure.source,
        }));
    }
    all
}

/// Returns the table of the model's own figures that is compiled into hemi
/// (`crates/drives/figures.tsv`).
pub(super) fn figures(cards: &[Card]) -> String {
    let mut text = "# Made by: hemi sim presets --cards --figures\n\
                    # preset, the model's figure (requests or bytes per second, seconds, watts), figure\n"
        .to_owned();
    for Card { preset, rows } in cards {
        for row in rows {
            let _ = writeln!(text, "{}\t{}\t{}", preset.name, row.model, row.figure.figure);
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Drives

The presets that come with hemi, and what was published of each beside its model. This page is made by
`hemi sim presets --cards --markdown`; `hemi sim presets NAME` also shows where every parameter comes from.
*Fitted*: a parameter was chosen so that this very figure comes out. *Missed*: off by more than 15 %, a
latency by more than 30 %. *Not validated*: no figure of the drive's reads, of its writes or of either is known, so
nothing holds the model there. What a model is and how far to trust it: [the model](design/model.md).
";

/// Returns the page `docs/drives.md`.
pub(super) fn page(cards: &[Card]) -> Result<String> {
    let mut page = format!("{INTRODUCTION}\n{}.\n", summary(cards));
    for card in cards {
        let Card { preset, rows } = card;
        write!(page, "\n## {}\n\n{}. {}\n", preset.name, preset.title, kind(preset)?)?;
        if rows.is_empty() {
            writeln!(page, "**Not validated.** {NOTHING_PUBLISHED}")?;
        } else {
            let [reads, writes] = Class::ALL.map(|class| card.held(class));
            writeln!(page, "Held against: {reads}; {writes}.")?;
        }
        if let Some(note) = &preset.note {
            writeln!(page, "\n{}", note.trim())?;
        }
        if rows.is_empty() {
            continue;
        }
        writeln!(page, "\n| {} |\n|{}", COLUMNS.join(" | "), " --- |".repeat(COLUMNS.len()))?;
        for row in rows {
            let cells = cells(row).map(|cell| cell.replace('|', "\\|"));
            writeln!(page, "| {} |", cells.join(" | "))?;
        }
    }
    Ok(page)
}

fn kind(preset: &Preset) -> Result<String> {
    let kind = match &preset.model {
        Model::Hdd(_) => "A hard disk".to_owned(),
        Model::Ssd(_) => "Flash".to_owned(),
        Model::Network(_) => "A network volume".to_owned(),
        Model::Array(of) => format!("An array of {} × {}", of.count, of.member),
    };
    Ok(match preset.flash_scale()? {
        1 => format!("{kind}."),
        scale => format!("{kind}; the capacity of its flash is divided by {scale} to save time."),
    })
}
