//! The known error of a model: how far it is from what was published of the drive.
//!
//! The figures are those of `docs/drives.md`, the page of all cards, which `hemi sim presets`
//! makes and the tests keep true. A drive without a published figure for a kind of request is
//! "not validated" for that kind.

use hemi_drives::preset::{Figure, Measure, Pattern, Preset};
use serde::Serialize;

use crate::classes::{Class, Kind};

/// The page of all cards.
const PAGE: &str = include_str!("../../../docs/drives.md");

/// Largest factor between the sizes of a request and of a card's load.
const NEAR: u64 = 8;

/// The deviation of a model from a published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Known {
    /// The preset.
    pub preset: String,
    /// The figure, or `None` if none was published for this kind of request.
    pub figure: Option<String>,
    /// Deviation of the model as a share of the published figure; 0 without one.
    pub off: f64,
    /// True if a parameter was fitted to the figure, which proves little.
    pub fitted: bool,
    /// True if the figure is a latency.
    pub latency: bool,
}

/// Returns the deviation of a preset's model for a class of requests.
pub fn of(preset: &Preset, class: Class) -> Known {
    let nothing = Known {
        preset: preset.name.clone(),
        figure: None,
        off: 0.0,
        fitted: false,
        latency: false,
    };
    let near = |figure: &&Figure| fits(figure, class);
    // The nearest size first, then latencies, which are what advice is about.
    let best = preset.card.iter().filter(near).min_by_key(|figure| {
        (ratio(figure.load.size.0, class.bytes), !figure.measure.is_latency())
    });
    let Some(figure) = best else { return nothing };
    let Some(off) = deviation(&preset.name, &figure.figure) else { return nothing };
    Known {
        figure: Some(figure.figure.clone()),
        off,
        fitted: figure.fitted,
        latency: figure.measure.is_latency(),
        ..nothing
    }
}

fn fits(figure: &Figure, class: Class) -> bool {
    let load = &figure.load;
    let kind = match class.kind {
        Kind::Read => load.read_percent > 50,
        Kind::Write => load.read_percent < 50,
        Kind::Flush | Kind::Trim => return false,
    };
    let sequential = load.pattern == Pattern::Sequential;
    kind && sequential == class.sequential
        && figure.measure != Measure::Watts
        && ratio(load.size.0, class.bytes) <= NEAR
}

fn ratio(one: u64, other: u64) -> u64 {
    one.max(other) / one.min(other).max(1)
}

/// Returns the deviation of a figure on the page.
fn deviation(preset: &str, figure: &str) -> Option<f64> {
    let heading = format!("## {preset}");
    let mut lines = PAGE.lines().skip_while(|line| *line != heading).skip(1);
    let figure = figure.replace('|', "\\|");
    let row = lines
        .by_ref()
        .take_while(|line| !line.starts_with("## "))
        .find(|line| line.strip_prefix("| ").is_some_and(|row| row.starts_with(&*figure)))?;
    let cell = row.split(" | ").find(|cell| is_deviation(cell))?;
    let percent: f64 = cell.trim_end_matches(" %").parse().ok()?;
    Some(percent / 100.0)
}

fn is_deviation(cell: &str) -> bool {
    cell.ends_with(" %") && (cell.starts_with('+') || cell.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_priced_preset_is_on_the_page() {
        for name in Preset::names() {
            let preset = Preset::built_in(name).unwrap();
            if preset.purchase.is_none() {
                continue;
            }
            for figure in &preset.card {
                let off = deviation(name, &figure.figure);
                assert!(off.is_some(), "{name}: {} is not in docs/drives.md", figure.figure);
            }
        }
    }

    #[test]
    fn the_nearest_card_stands_for_a_class() {
        let preset = Preset::built_in("nvme-enterprise").unwrap();
        let class = |kind, bytes, sequential| Class { kind, bytes, sequential };
        let reads = of(&preset, class(Kind::Read, 4096, false));
        assert_eq!(reads.figure.as_deref(), Some("4 KiB random read latency"));
        assert!(reads.latency && !reads.fitted);
        let writes = of(&preset, class(Kind::Write, 1 << 17, true));
        assert_eq!(writes.figure.as_deref(), Some("sequential write"));
        assert_eq!(of(&preset, class(Kind::Write, 1 << 20, false)).figure, None);
        assert_eq!(of(&preset, class(Kind::Flush, 0, false)).figure, None);
    }
}
