//! `--prices FILE`: a user's own prices and ratings, by preset.

use std::collections::BTreeMap;
use std::path::Path;

use hemi_drives::preset::Purchase;
use hemi_units::Size;
use serde::Deserialize;

use crate::error::AdviseError;

/// The entry of one preset. What it does not give stays as in the preset.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    price: Option<f64>,
    monthly: Option<f64>,
    currency: Option<String>,
    date: Option<String>,
    source: Option<String>,
    endurance: Option<Size>,
    endurance_source: Option<String>,
    workload: Option<Size>,
    workload_source: Option<String>,
}

/// Prices by preset.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    file: String,
    given: BTreeMap<String, Given>,
}

impl Prices {
    /// Reads a file of prices.
    ///
    /// # Errors
    /// Fails if it cannot be read, is not TOML, or has an unknown key.
    pub fn load(path: &Path) -> Result<Prices, AdviseError> {
        let file = path.display().to_string();
        let text = hemi_text::read(path).map_err(|error| AdviseError::Prices {
            file: file.clone(),
            problem: error.to_string(),
        })?;
        Prices::parse(&file, &text)
    }

    /// Reads prices from text; errors call it `file`.
    ///
    /// # Errors
    /// Fails as [`Prices::load`] does.
    pub fn parse(file: &str, text: &str) -> Result<Prices, AdviseError> {
        let file = file.to_owned();
        match toml::from_str(text) {
            Ok(given) => Ok(Prices { file, given }),
            Err(error) => Err(AdviseError::Prices { file, problem: error.to_string() }),
        }
    }

    /// Returns the currency of the prices, or `None` if the file names none.
    ///
    /// # Errors
    /// Fails if there are several.
    pub fn currency(&self) -> Result<Option<&str>, AdviseError> {
        let mut named =
            self.given.iter().filter_map(|(name, one)| Some((name, one.currency.as_deref()?)));
        let Some((first, currency)) = named.next() else { return Ok(None) };
        match named.find(|(_, other)| *other != currency) {
            None => Ok(Some(currency)),
            Some((name, other)) => Err(self.wrong(format!(
                "{first} is priced in {currency} and {name} in {other}: give all in one currency"
            ))),
        }
    }

    /// Returns the names that have prices.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    /// Returns the error that no preset has this name.
    pub(crate) fn unknown(&self, name: &str) -> AdviseError {
        self.wrong(format!("{name}: is neither a preset with that name nor among --candidates"))
    }

    /// Returns the purchase of a preset: the preset's own, changed by what is given here.
    ///
    /// # Errors
    /// Fails if the result is impossible, naming the key.
    pub(crate) fn of(
        &self,
        name: &str,
        own: Option<&Purchase>,
    ) -> Result<Option<Purchase>, AdviseError> {
        let Some(given) = self.given.get(name) else { return Ok(own.cloned()) };
        let priced = given.price.is_some() || given.monthly.is_some();
        let keep = |value: Option<Size>, own: Option<Size>| value.or(own);
        let own_of = |of: fn(&Purchase) -> Option<String>| own.and_then(of);
        let said = || format!("{}: {name}", self.file);
        let source = |value: Option<Size>, given: &Option<String>, own: Option<String>| {
            given.clone().or_else(|| if value.is_some() { Some(said()) } else { own })
        };
        let purchase = Purchase {
            price: if priced { given.price } else { own.and_then(|own| own.price) },
            monthly: if priced { given.monthly } else { own.and_then(|own| own.monthly) },
            currency: given
                .currency
                .clone()
                .or_else(|| own_of(|own| Some(own.currency.clone())))
                .unwrap_or_else(|| super::CURRENCY.to_owned()),
            date: given
                .date
                .clone()
                .or_else(|| if priced { None } else { own_of(|own| Some(own.date.clone())) })
                .unwrap_or_else(|| "undated".to_owned()),
            source: given
                .source
                .clone()
                .or_else(|| if priced { None } else { own_of(|own| Some(own.source.clone())) })
                .unwrap_or_else(said),
            endurance: keep(given.endurance, own.and_then(|own| own.endurance)),
            endurance_source: source(
                given.endurance,
                &given.endurance_source,
                own_of(|own| own.endurance_source.clone()),
            ),
            workload: keep(given.workload, own.and_then(|own| own.workload)),
            workload_source: source(
                given.workload,
                &given.workload_source,
                own_of(|own| own.workload_source.clone()),
            ),
        };
        match purchase.check() {
            Ok(()) => Ok(Some(purchase)),
            Err((key, problem)) => Err(self.wrong(format!("{name}.{key}: {problem}"))),
        }
    }

    fn wrong(&self, problem: String) -> AdviseError {
        AdviseError::Prices { file: self.file.clone(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hemi_drives::preset::Preset;

    #[test]
    fn a_given_price_replaces_the_presets_and_its_endurance_stays() {
        let own = Preset::built_in("nvme-consumer").unwrap().purchase;
        let prices = Prices::parse("p.toml", "[nvme-consumer]\nprice = 218\n").unwrap();
        let now = prices.of("nvme-consumer", own.as_ref()).unwrap().unwrap();
        assert_eq!((now.price, now.date.as_str()), (Some(218.0), "undated"));
        assert_eq!(now.endurance, own.as_ref().unwrap().endurance);
        assert_eq!(now.source, "p.toml: nvme-consumer");
        assert_eq!(prices.of("qlc", own.as_ref()).unwrap(), own);
        let rented = Prices::parse("p.toml", "[nvme-consumer]\nmonthly = 5\n").unwrap();
        let rented = rented.of("nvme-consumer", own.as_ref()).unwrap().unwrap();
        assert_eq!((rented.price, rented.monthly), (None, Some(5.0)));
    }

    #[test]
    fn wrong_files_are_refused_with_the_key() {
        let error = Prices::parse("p.toml", "[a]\nprize = 1").unwrap_err().to_string();
        assert!(error.contains("p.toml") && error.contains("prize"), "{error}");
        let negative = Prices::parse("p.toml", "[a]\nprice = -1").unwrap();
        let error = negative.of("a", None).unwrap_err().to_string();
        assert!(error.contains("a.price"), "{error}");
        let text = "[a]\nprice = 1\ncurrency = \"EUR\"\n[b]\nprice = 1\ncurrency = \"USD\"";
        let error = Prices::parse("p.toml", text).unwrap().currency().unwrap_err().to_string();
        assert!(error.contains("one currency"), "{error}");
    }
}
