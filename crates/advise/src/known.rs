//! The known error of a model: how far it is from what was published of the drive.
//!
//! The figures are those of the presets' cards ([`Preset::deviations`]). A drive without a published figure for a kind of request is
//! "not validated" for that kind.

use hemi_drives::preset::{Figure, Measure, Pattern, Preset};
use serde::Serialize;

use crate::classes::{Class, Kind};

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
    let deviations = preset.deviations();
    let near = preset.card.iter().zip(&deviations).filter(|(figure, _)| fits(figure, class));
    // The nearest size first, then latencies, which are what advice is about.
    let best = near.min_by_key(|(figure, _)| {
        (ratio(figure.load.size.0, class.bytes), !figure.measure.is_latency())
    });
    let Some((figure, deviation)) = best else { return nothing };
    Known {
        figure: Some(figure.figure.clone()),
        off: deviation.off(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_of_every_figure_of_a_priced_preset_is_known() {
        for name in Preset::names() {
            let preset = Preset::built_in(name).unwrap();
            if preset.purchase.is_some() {
                assert_eq!(preset.deviations().len(), preset.card.len(), "{name}");
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
