//! Comparison of a preset's model with what was published of its drive.
//!
//! A card's figures are about reads, about writes or, under a mixed load, about both. The model's
//! own figures take minutes to compute, so those of the built-in presets are compiled in from
//! `crates/drives/figures.tsv`, which `hemi sim presets --cards --figures` makes.

use super::card::{Figure, Measure};
use super::{Model, Preset, PresetError};

/// The model's figures of all built-in cards.
const FIGURES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/figures.tsv"));

/// A class of requests that a preset is validated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

impl Class {
    /// Both classes.
    pub const ALL: [Class; 2] = [Class::Reads, Class::Writes];

    /// Returns `reads` or `writes`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Reads => "reads",
            Class::Writes => "writes",
        }
    }

    /// Returns true if the figure tells how fast requests of this class are.
    pub fn has(self, figure: &Figure) -> bool {
        let share = match self {
            Class::Reads => figure.load.read_percent,
            Class::Writes => 100 - figure.load.read_percent,
        };
        share > 0 && figure.measure != Measure::Watts
    }
}

/// A published figure and the model's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// Description of the figure.
    pub figure: String,
    /// The published figure, in the unit of [`Figure::published`].
    pub published: f64,
    /// The model's figure in the same unit.
    pub model: f64,
    /// True if a parameter was fitted to this figure.
    pub fitted: bool,
    /// Largest deviation that the model is allowed, as a share of the published figure.
    pub tolerance: f64,
}

impl Deviation {
    /// Compares the model's figure with a published one.
    pub fn of(figure: &Figure, model: f64) -> Deviation {
        Deviation {
            figure: figure.figure.clone(),
            published: figure.published,
            model,
            fitted: figure.fitted,
            tolerance: figure.tolerance(),
        }
    }

    /// Returns the model's deviation as a share of the published figure: 0.1 for 10 % more.
    pub fn off(&self) -> f64 {
        self.model / self.published - 1.0
    }

    /// Returns the size of the deviation in tolerances: above 1 is a miss.
    pub fn beyond(&self) -> f64 {
        self.off().abs() / self.tolerance
    }

    /// Returns true if the deviation is within the tolerance.
    pub fn is_within(&self) -> bool {
        self.beyond() <= 1.0
    }
}

/// The known error of a model for one class of requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Published figures of the class; none means that the class is not validated.
    pub figures: usize,
    /// Those of them that a parameter was fitted to. A figure that nothing was fitted to says
    /// more of the model.
    pub fitted: usize,
    /// The figure that the model misses most, in proportion to its tolerance. `None` without
    /// figures, and for a user's own preset, whose card has not been run.
    pub worst: Option<Deviation>,
}

impl Held {
    /// Returns true if a figure of the class was published.
    pub fn is_validated(&self) -> bool {
        self.figures > 0
    }
}

/// The known errors of a preset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validation {
    /// Errors of reads.
    pub reads: Held,
    /// Errors of writes.
    pub writes: Held,
}

impl Validation {
    /// Returns what is known of one class.
    pub fn of(&self, class: Class) -> &Held {
        match class {
            Class::Reads => &self.reads,
            Class::Writes => &self.writes,
        }
    }

    /// Returns the mark of a preset that lacks figures of a class: `not validated`, `reads not
    /// validated` or `writes not validated`. `None` if both classes have figures.
    pub fn mark(&self) -> Option<&'static str> {
        match (self.reads.is_validated(), self.writes.is_validated()) {
            (true, true) => None,
            (false, false) => Some("not validated"),
            (false, true) => Some("reads not validated"),
            (true, false) => Some("writes not validated"),
        }
    }
}

impl Preset {
    /// Returns what is known of the model's errors, from the preset's card. Nothing is run.
    ///
    /// ```
    /// use hemi_drives::preset::Preset;
    ///
    /// let validation = Preset::built_in("nvme-enterprise")?.validation();
    /// let worst = validation.reads.worst.as_ref().expect("its card has figures of reads");
    /// assert!(worst.is_within());
    /// assert_eq!(validation.mark(), None);
    /// # Ok::<(), hemi_drives::preset::PresetError>(())
    /// ```
    pub fn validation(&self) -> Validation {
        let deviations = self.deviations();
        let held = |class: Class| {
            let mut held = Held::default();
            for (index, figure) in self.card.iter().enumerate() {
                if !class.has(figure) {
                    continue;
                }
                held.figures += 1;
                held.fitted += usize::from(figure.fitted);
                let Some(deviation) = deviations.get(index).cloned() else { continue };
                if held.worst.as_ref().is_none_or(|worst| worst.beyond() < deviation.beyond()) {
                    held.worst = Some(deviation);
                }
            }
            held
        };
        Validation { reads: held(Class::Reads), writes: held(Class::Writes) }
    }

    /// Returns the model's deviation from each figure of the card, in the card's order. Nothing is
    /// run; empty for a user's own preset.
    pub fn deviations(&self) -> Vec<Deviation> {
        if Preset::built_in(&self.name).is_ok_and(|known| known.card == self.card) {
            let models = model_figures(&self.name);
            self.card
                .iter()
                .zip(models)
                .map(|(figure, model)| Deviation::of(figure, model))
                .collect()
        } else {
            Vec::new()
        }
    }

    /// Returns the preset's name with its mark, if it has one: `qlc (reads not validated)`.
    /// Marks an array whose own figures are unknown and whose members have theirs with those.
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn marked_name(&self) -> Result<String, PresetError> {
        let Some(mark) = self.validation().mark() else { return Ok(self.name.clone()) };
        if let Model::Array(of) = &self.model
            && let Some(member) = self.member()?
            && member.validation().mark().is_none()
        {
            return Ok(format!("{} ({mark}; {} is)", self.name, of.member));
        }
        Ok(format!("{} ({mark})", self.name))
    }
}

/// Returns the model's figures of a built-in preset's card, in the card's order.
fn model_figures(name: &str) -> Vec<f64> {
    let rows = FIGURES.lines().filter(|line| !line.starts_with('#'));
    let figure = |row: &str| {
        let mut cells = row.split('\t');
        let is_its = cells.next() == Some(name);
        is_its.then(|| cells.next().and_then(|model| model.parse().ok()).unwrap_or(f64::NAN))
    };
    rows.filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::{Class, FIGURES, model_figures};
    use crate::preset::{Measure, Preset};

    #[test]
    fn every_figure_of_a_built_in_card_has_the_models_own() {
        let mut rows = 0;
        for name in Preset::names() {
            let card = Preset::built_in(name).unwrap().card;
            let models = model_figures(name);
            assert_eq!(models.len(), card.len(), "{name}: make figures.tsv anew");
            assert!(models.iter().all(|model| *model > 0.0), "{name}: {models:?}");
            for figure in &card {
                let row = |line: &&str| {
                    line.starts_with(&format!("{name}\t"))
                        && line.ends_with(&format!("\t{}", figure.figure))
                };
                assert!(FIGURES.lines().any(|line| row(&line)), "{name}: {}", figure.figure);
            }
            rows += card.len();
        }
        assert_eq!(FIGURES.lines().filter(|line| !line.starts_with('#')).count(), rows);
    }

    #[test]
    fn a_class_is_validated_by_figures_of_its_own_requests() {
        let mut preset = Preset::built_in("nvme-enterprise").unwrap();
        let whole = preset.validation();
        assert_eq!((whole.reads.figures, whole.writes.figures), (3, 2));
        assert_eq!((whole.reads.fitted, whole.mark()), (1, None));
        for class in Class::ALL {
            let worst = whole.of(class).worst.as_ref().unwrap();
            assert!(worst.off().abs() < 1.0 && worst.published > 0.0, "{worst:?}");
        }
        preset.card.retain(|figure| figure.load.read_percent == 0);
        assert_eq!(preset.validation().mark(), Some("reads not validated"));
        // The model's figures are known for the card as it is built in, and for no other.
        assert_eq!(preset.validation().writes.worst, None);
        preset.card.iter_mut().for_each(|figure| figure.measure = Measure::Watts);
        assert_eq!(preset.validation().mark(), Some("not validated"));
    }

    #[test]
    fn the_worst_figure_is_the_one_furthest_beyond_its_tolerance() {
        // Published: 10.0 ms and 52,000 requests a second; the model misses the former.
        let preset = Preset::built_in("iodrive-duo-640gb").unwrap();
        let worst = preset.validation().reads.worst.unwrap();
        assert_eq!((worst.figure.as_str(), worst.tolerance), ("standard deviation of it", 0.3));
        assert!(!worst.is_within());
    }

    #[test]
    fn an_array_without_a_card_names_the_members_that_have_one() {
        let marked = |name| Preset::built_in(name).unwrap().marked_name().unwrap();
        assert_eq!(marked("nvme-enterprise"), "nvme-enterprise");
        assert!(marked("x25e-4-raid5-host").starts_with("x25e-4-raid5-host (not validated"));
    }
}
