//! The purchase of a drive: its price, and the use that its maker rates it for.

use hemi_units::Size;
use serde::{Deserialize, Serialize};

/// `[purchase]`: the price and the rated use of one drive, with date and source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purchase {
    /// Price of one. A drive has either this or `monthly`.
    pub price: Option<f64>,
    /// Rent of one for a month, of a cloud volume.
    pub monthly: Option<f64>,
    /// Currency of the price.
    pub currency: String,
    /// Date of the price: a year, a month, a day, or `undated`.
    pub date: String,
    /// Source of the price.
    pub source: String,
    /// Rated endurance: bytes that may be written in the drive's life (TBW).
    pub endurance: Option<Size>,
    /// Source of the endurance.
    pub endurance_source: Option<String>,
    /// Rated workload of a disk: bytes read and written a year.
    pub workload: Option<Size>,
    /// Source of the workload.
    pub workload_source: Option<String>,
}

impl Purchase {
    /// Checks that the figures are possible and that each has a source.
    ///
    /// # Errors
    /// Returns the key at fault and what would be right.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let (key, amount) = match (self.price, self.monthly) {
            (Some(price), None) => ("price", price),
            (None, Some(monthly)) => ("monthly", monthly),
            (None, None) => return Err(("price", "is missing: a price, or a monthly rent".into())),
            (Some(_), Some(_)) => {
                return Err(("monthly", "not with `price`: a drive is bought or rented".into()));
            }
        };
        if !(amount > 0.0 && amount <= MOST) {
            return Err((key, format!("{amount}: an amount above 0, at most {MOST:.0}")));
        }
        for (key, text) in
            [("currency", &self.currency), ("date", &self.date), ("source", &self.source)]
        {
            if text.trim().is_empty() {
                return Err((key, "is empty".into()));
            }
        }
        for (key, source_key, figure, source) in [
            ("endurance", "endurance_source", self.endurance, &self.endurance_source),
            ("workload", "workload_source", self.workload, &self.workload_source),
        ] {
            match (figure, source) {
                (Some(Size(0)), _) => return Err((key, "0: above zero".into())),
                (Some(_), Some(source)) if !source.trim().is_empty() => {}
                (None, None) => {}
                (Some(_), _) => {
                    return Err((key, format!("has no source: say in `{source_key}`")));
                }
                (None, Some(_)) => {
                    return Err((source_key, format!("is the source of no `{key}`")));
                }
            }
        }
        Ok(())
    }

    /// Returns the purchase of `count` such drives as one.
    #[must_use]
    pub fn times(&self, count: u32) -> Purchase {
        let times = f64::from(count);
        let bytes = |size: Option<Size>| size.map(|Size(b)| Size(b.saturating_mul(count.into())));
        Purchase {
            price: self.price.map(|price| price * times),
            monthly: self.monthly.map(|monthly| monthly * times),
            source: format!("{count} × {}", self.source),
            endurance: bytes(self.endurance),
            workload: bytes(self.workload),
            ..self.clone()
        }
    }
}

/// Largest amount of money, well below what doubles count exactly.
const MOST: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::Purchase;

    fn checked(text: &str) -> Result<(), String> {
        let all = format!("currency = \"USD\"\ndate = \"2025\"\nsource = \"a list\"\n{text}");
        let purchase: Purchase = toml::from_str(&all).map_err(|error| error.to_string())?;
        purchase.check().map_err(|(key, problem)| format!("{key}: {problem}"))
    }

    #[test]
    fn every_figure_is_possible_and_has_a_source() {
        assert_eq!(checked("price = 10\nendurance = \"1 TB\"\nendurance_source = \"x\""), Ok(()));
        assert_eq!(checked("monthly = 0.5"), Ok(()));
        for (wrong, part) in [
            ("", "price: is missing"),
            ("price = 1\nmonthly = 1", "bought or rented"),
            ("price = 0", "above 0"),
            ("price = nan", "above 0"),
            ("price = 1\nendurance = \"1 TB\"", "endurance: has no source"),
            ("price = 1\nworkload_source = \"x\"", "workload_source: is the source of no"),
            ("price = 1\nworkload = 0\nworkload_source = \"x\"", "workload: 0"),
            ("price = 1\nprize = 2", "prize"),
        ] {
            let error = checked(wrong).expect_err(wrong);
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }

    #[test]
    fn several_drives_cost_and_last_as_many_times() {
        let one: Purchase = toml::from_str(
            "price = 10\ncurrency = \"EUR\"\ndate = \"2025\"\nsource = \"x\"\n\
             endurance = 100\nendurance_source = \"x\"",
        )
        .unwrap();
        let four = one.times(4);
        assert_eq!((four.price, four.endurance.unwrap().0), (Some(40.0), 400));
    }
}
