//! Reading of a preset's text. Errors are reported with line, column and key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use hemi_text::{Place, for_each_key};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::base::{self, Origin};
use super::card::Figure;
use super::purchase::Purchase;
use super::{Model, PresetError};
use crate::parameter::ParameterError;
use crate::{hdd, ssd};

/// The parts of every preset's file, whatever its model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<P> {
    title: String,
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(rename = "model")]
    _model: String,
    parameters: P,
    #[serde(rename = "sources")]
    _sources: toml::Table,
    #[serde(default)]
    card: Vec<Figure>,
    #[serde(default, rename = "purchase")]
    _purchase: Option<Purchase>,
}

/// A preset's parsed contents.
pub(super) struct Contents {
    pub(super) title: String,
    pub(super) model: Model,
    /// Source of each parameter's value, by its path: `iops`, `controller.parity`.
    pub(super) sources: BTreeMap<String, String>,
    pub(super) card: Vec<Figure>,
    pub(super) note: Option<String>,
    pub(super) purchase: Option<Purchase>,
    /// Directory in which an array's member is looked for if it is given by its path.
    pub(super) member_folder: Option<PathBuf>,
    /// Name of the model.
    pub(super) model_name: String,
    /// Parameters as they are written, including those of the base.
    pub(super) parameters: toml::Table,
}

/// A text with its parsed table, to find the places of errors.
pub(super) struct Text<'t> {
    pub(super) file: &'t str,
    pub(super) text: &'t str,
    table: DeTable<'t>,
}

/// Reads `text`.
pub(super) fn read(origin: &Origin, text: &str) -> Result<Contents, PresetError> {
    let text = Text::parse(&origin.file, text)?;
    if text.table.contains_key("base") {
        return base::read(&text, origin);
    }
    let (title, model, card) = text.understood()?;
    let sources = text.sources()?;
    text.check_card(&card)?;
    let written: Written = toml::from_str(text.text)
        .map_err(|error| text.wrong(error.span().unwrap_or(0..0), error.message().trim_end()))?;
    Ok(Contents {
        title,
        model,
        sources,
        card,
        note: written.note,
        purchase: text.checked(written.purchase)?,
        member_folder: origin.folder.clone(),
        model_name: written.model,
        parameters: written.parameters,
    })
}

/// The parts that are the same for every model and need no check.
#[derive(Deserialize)]
struct Written {
    model: String,
    note: Option<String>,
    parameters: toml::Table,
    purchase: Option<Purchase>,
}

type Read = fn(&Text<'_>) -> Result<(String, Model, Vec<Figure>), PresetError>;

/// The function that reads each model's parameters.
const MODELS: &[(&str, Read)] = &[
    ("hdd", |text| text.typed(|of| Model::Hdd(Box::new(of)), |of: &hdd::Parameters| of.check())),
    ("ssd", |text| text.typed(|of| Model::Ssd(Box::new(of)), |of: &ssd::Parameters| of.check())),
    ("network", |text| text.typed(Model::Network, |parameters| parameters.check())),
    ("array", |text| text.typed(Model::Array, |parameters| parameters.check())),
];

impl<'t> Text<'t> {
    /// Parses `text`, which errors call `file`.
    pub(super) fn parse(file: &'t str, text: &'t str) -> Result<Text<'t>, PresetError> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let text = Text { file, text, table: table.into_inner() };
        match errors.first() {
            Some(error) => {
                Err(text.wrong(error.span().unwrap_or(0..0), error.message().trim_end()))
            }
            None => Ok(text),
        }
    }

    /// Returns the title, the model and the card.
    pub(super) fn understood(&self) -> Result<(String, Model, Vec<Figure>), PresetError> {
        let model = self.model()?;
        let read = MODELS.iter().find(|(name, _)| *name == model.get_ref());
        let Some((_, read)) = read else {
            let names: Vec<_> = MODELS.iter().map(|(name, _)| format!("`{name}`")).collect();
            let problem = format!("`{}` is not a model: {}", model.get_ref(), names.join(", "));
            return Err(self.wrong(model.span(), &problem));
        };
        read(self)
    }

    /// Returns the name of the model.
    fn model(&self) -> Result<Spanned<String>, PresetError> {
        let names = MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" | ");
        let Some(value) = self.table.get("model") else {
            return Err(self.wrong(0..0, &format!("`model` is missing: {names}")));
        };
        match value.get_ref().as_str() {
            Some(name) => Ok(Spanned::new(value.span(), name.to_owned())),
            None => Err(self.wrong(value.span(), &format!("the name of a model: {names}"))),
        }
    }

    /// Reads the file as a model with parameters `P`.
    fn typed<P: DeserializeOwned>(
        &self,
        model: impl FnOnce(P) -> Model,
        check: impl FnOnce(&P) -> Result<(), ParameterError>,
    ) -> Result<(String, Model, Vec<Figure>), PresetError> {
        let file: File<P> = toml::from_str(self.text).map_err(|error| {
            self.wrong(error.span().unwrap_or(0..0), error.message().trim_end())
        })?;
        check(&file.parameters).map_err(|error| {
            let path = format!("parameters.{}", error.parameter);
            let problem = format!("{}: {}", error.value, error.right);
            self.wrong_at(&path, self.span_of(&path), &problem)
        })?;
        Ok((file.title, model(file.parameters), file.card))
    }

    /// Returns the sources: exactly one for each parameter.
    pub(super) fn sources(&self) -> Result<BTreeMap<String, String>, PresetError> {
        let table = |name| self.table.get(name).and_then(|value| value.get_ref().as_table());
        let mut sources = BTreeMap::new();
        if let (Some(parameters), Some(given)) = (table("parameters"), table("sources")) {
            self.match_sources(parameters, given, "", &mut sources)?;
        }
        Ok(sources)
    }

    /// Compares the sources `given` with `parameters`, both found at `path`.
    fn match_sources(
        &self,
        parameters: &DeTable<'_>,
        given: &DeTable<'_>,
        path: &str,
        sources: &mut BTreeMap<String, String>,
    ) -> Result<(), PresetError> {
        for (key, _) in parameters {
            if !given.contains_key(key.get_ref().as_ref()) {
                let problem = format!(
                    "has no source: say in `[sources{}{}]` where the value comes from",
                    if path.is_empty() { "" } else { "." },
                    path.trim_end_matches('.')
                );
                let key_path = format!("parameters.{path}{}", key.get_ref());
                return Err(self.wrong_at(&key_path, key.span(), &problem));
            }
        }
        for (key, source) in given {
            let key_path = format!("{path}{}", key.get_ref());
            let full_path = format!("sources.{key_path}");
            let Some(parameter) = parameters.get(key.get_ref().as_ref()) else {
                let problem = "is the source of no parameter: leave it out, or correct its name";
                return Err(self.wrong_at(&full_path, key.span(), problem));
            };
            match (source.get_ref(), parameter.get_ref()) {
                (DeValue::String(said), _) if !said.trim().is_empty() => {
                    sources.insert(key_path, said.to_string());
                }
                (DeValue::Table(each), DeValue::Table(inner)) => {
                    self.match_sources(inner, each, &format!("{key_path}."), sources)?;
                }
                _ => {
                    let problem = "a source is a text: a publication, a data sheet, a formula, \
                                   \"fitted: ...\" or \"estimate: ...\"";
                    return Err(self.wrong_at(&full_path, source.span(), problem));
                }
            }
        }
        Ok(())
    }

    /// Returns the purchase if it is possible.
    pub(super) fn checked(
        &self,
        purchase: Option<Purchase>,
    ) -> Result<Option<Purchase>, PresetError> {
        if let Some(Err((key, problem))) = purchase.as_ref().map(Purchase::check) {
            let path = format!("purchase.{key}");
            return Err(self.wrong_at(&path, self.span_of(&path), &problem));
        }
        Ok(purchase)
    }

    /// Returns an error for a figure that cannot be simulated.
    pub(super) fn check_card(&self, card: &[Figure]) -> Result<(), PresetError> {
        for (index, figure) in card.iter().enumerate() {
            let load = &figure.load;
            let wrong = |key: &str, problem: &str| {
                let path = format!("card[{index}].{key}");
                Err(self.wrong_at(&path, self.span_of(&path), problem))
            };
            if load.read_percent > 100 {
                return wrong("load.read_percent", "a share of reads from 0 to 100");
            }
            if load.size.0 == 0 || !load.size.0.is_multiple_of(512) {
                return wrong("load.size", "a multiple of 512 bytes, above zero");
            }
            if load.queue_depth == 0 {
                return wrong("load.queue_depth", "at least 1");
            }
            if load.span.is_some_and(|span| span < load.size) {
                return wrong("load.span", "room for at least one request");
            }
            if load.bytes.is_some_and(|bytes| bytes < load.size) {
                return wrong("load.bytes", "room for at least one request");
            }
            if load.bytes.is_some() && load.after.is_some() {
                return wrong(
                    "load.after",
                    "not with `bytes`: a burst is measured from its first request on",
                );
            }
            if !(figure.published > 0.0 && figure.published.is_finite()) {
                return wrong("published", "a number above zero");
            }
        }
        Ok(())
    }

    /// Returns an error at `span`; its key is the innermost one there.
    pub(super) fn wrong(&self, span: Range<usize>, problem: &str) -> PresetError {
        let mut innermost = None;
        for_each_key(&self.table, &mut |path, key, value| {
            for within in [key, value] {
                let length = within.len();
                let best = innermost.as_ref().is_none_or(|&(_, best)| length <= best);
                if within.contains(&span.start) && best {
                    innermost = Some((path.to_owned(), length));
                }
            }
        });
        let path = innermost.map(|(path, _)| path).unwrap_or_default();
        self.wrong_at(&path, span, problem)
    }

    /// Returns an error about `key` at `span`.
    pub(super) fn wrong_at(&self, key: &str, span: Range<usize>, problem: &str) -> PresetError {
        let Place { line, column } = Place::at(self.text, span.start);
        PresetError::Wrong {
            file: self.file.to_owned(),
            line,
            column,
            key: key.to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// Returns the span of the key at path `wanted`, or of its innermost ancestor that exists.
    pub(super) fn span_of(&self, wanted: &str) -> Range<usize> {
        let mut longest = (0, 0..0);
        for_each_key(&self.table, &mut |path, key, _| {
            let rest = wanted.strip_prefix(path);
            let is_above = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            if is_above && path.len() > longest.0 {
                longest = (path.len(), key);
            }
        });
        longest.1
    }
}
