//! Presets that give only their changes to another preset, their base.
//!
//! Tables of parameters merge key by key; anything else is replaced. An error in the merged
//! preset is reported at the key that changed it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Spanned, Table, Value};

use super::built_in::{BUILT_IN, instead_of};
use super::card::Figure;
use super::file::{self, Contents, Text};
use super::purchase::Purchase;
use super::{Model, PresetError};

/// The source of a preset's text and the chain of presets that led to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// Name used in errors.
    pub(super) file: String,
    /// The file's directory, if it is a user's file.
    pub(super) folder: Option<PathBuf>,
    /// Identities of the presets that have this one as their base: built-in names or real
    /// paths.
    above: Vec<String>,
    /// Identity of this preset in the same form.
    identity: String,
}

impl Origin {
    /// Returns the origin of a text that has no file.
    pub(super) fn text(file: &str) -> Origin {
        Origin { file: file.to_owned(), ..Origin::default() }
    }

    /// Returns the origin of a built-in preset.
    pub(super) fn built_in(name: &str) -> Origin {
        let file = format!("presets/{name}.toml");
        Origin { file, identity: name.to_owned(), ..Origin::default() }
    }

    /// Returns the origin of a file.
    pub(super) fn path(path: &Path) -> Origin {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Origin {
            file: path.display().to_string(),
            folder: path.parent().map(Path::to_owned),
            above: Vec::new(),
            identity: real.display().to_string(),
        }
    }

    /// Returns the origin and the text of the base with this name or path.
    fn base(&self, name: &str) -> Result<(Origin, String), String> {
        let (mut origin, text) = if name.contains('/') || name.ends_with(".toml") {
            let Some(folder) = &self.folder else {
                return Err(format!("`{name}`: only a file may name its base by path"));
            };
            let path = folder.join(name);
            let text =
                hemi_text::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            (Origin::path(&path), text)
        } else {
            let found = BUILT_IN.iter().find(|(known, _)| *known == name);
            let Some((_, text)) = found else {
                return Err(format!("no preset is named `{name}`; {}", instead_of(name)));
            };
            (Origin::built_in(name), (*text).to_owned())
        };
        origin.above.clone_from(&self.above);
        origin.above.push(self.identity.clone());
        if origin.above.contains(&origin.identity) {
            let round = [&origin.above[..], std::slice::from_ref(&origin.identity)].concat();
            return Err(format!("a preset cannot be its own base: {}", round.join(" -> ")));
        }
        Ok((origin, text))
    }
}

/// The contents of a file with a base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    title: String,
    note: Option<String>,
    base: Spanned<String>,
    model: Option<Spanned<String>>,
    #[serde(default)]
    parameters: Table,
    #[serde(default, rename = "sources")]
    _sources: Table,
    #[serde(default)]
    card: Vec<Figure>,
    purchase: Option<Purchase>,
}

/// Reads the text of a file that has a base.
pub(super) fn read(text: &Text<'_>, origin: &Origin) -> Result<Contents, PresetError> {
    let changes: Changes = toml::from_str(text.text)
        .map_err(|error| text.wrong(error.span().unwrap_or(0..0), error.message().trim_end()))?;
    let at_base = |problem: &str| text.wrong(changes.base.span(), problem);
    let (from, base) = origin.base(changes.base.get_ref()).map_err(|problem| at_base(&problem))?;
    let base = file::read(&from, &base)?;
    if let Some(model) = &changes.model
        && *model.get_ref() != base.model_name
    {
        let problem = format!("its base is of the model `{}`: leave it out", base.model_name);
        return Err(text.wrong(model.span(), &problem));
    }
    let mut parameters = base.parameters;
    let mut path = "parameters".to_owned();
    merge(&mut parameters, changes.parameters.clone(), &mut path)
        .map_err(|(path, problem)| text.wrong_at(&path, text.span_of(&path), &problem))?;
    let model = understood(text, &base.model_name, &parameters)?;
    let mut sources = base.sources;
    for (path, said) in text.sources()? {
        let below = format!("{path}.");
        sources.retain(|known, _| *known != path && !known.starts_with(&below));
        sources.insert(path, said);
    }
    text.check_card(&changes.card)?;
    let own_member = changes.parameters.contains_key("member");
    Ok(Contents {
        title: changes.title,
        model,
        sources,
        card: changes.card,
        note: changes.note.or(base.note),
        // A changed drive is another one: the price of its base is not its own.
        purchase: text.checked(changes.purchase)?,
        member_folder: if own_member { origin.folder.clone() } else { base.member_folder },
        model_name: base.model_name,
        parameters,
    })
}

/// Reads the merged parameters as a model. Errors are reported at the key in `text` they are
/// about.
fn understood(text: &Text<'_>, model: &str, whole: &Table) -> Result<Model, PresetError> {
    let table = |value: Table| Value::Table(value);
    let file: Table = [
        ("title".to_owned(), Value::String(String::new())),
        ("model".to_owned(), Value::String(model.to_owned())),
        ("parameters".to_owned(), table(whole.clone())),
        ("sources".to_owned(), table(Table::new())),
    ]
    .into_iter()
    .collect();
    let written = file.to_string();
    let whole = Text::parse(text.file, &written)?;
    whole.understood().map(|(_, model, _)| model).map_err(|error| match error {
        PresetError::Wrong { key, problem, .. } => {
            let span: Range<usize> = text.span_of(&key);
            text.wrong_at(&key, span, &problem)
        }
        other => other,
    })
}

/// Merges `changes` into `base`; both are at `path`. A change that has no effect is an error
/// with its path.
fn merge(base: &mut Table, changes: Table, path: &mut String) -> Result<(), (String, String)> {
    for (key, change) in changes {
        let length = path.len();
        path.push('.');
        path.push_str(&key);
        match (base.get_mut(&key), change) {
            (Some(Value::Table(inner)), Value::Table(change)) => merge(inner, change, path)?,
            (Some(value), change) if same(value, &change) => {
                let problem = format!("is {value} in the base already: leave it out");
                return Err((path.clone(), problem));
            }
            (_, change) => {
                base.insert(key, change);
            }
        }
        path.truncate(length);
    }
    Ok(())
}

/// Returns true if two values are equal; 1 equals 1.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Integer(whole), Value::Float(number))
        | (Value::Float(number), Value::Integer(whole)) => *whole as f64 == *number,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
