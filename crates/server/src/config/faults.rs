//! All faults of a configuration's file, in its order, each with its place.

use std::ops::Range;
use std::path::Path;

use hemi_io::config::ConfigError;
use hemi_text::{Place, for_each_key};
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Config;

/// The whole numbers that a type can hold, in serde's words and in those of people.
const NUMBERS: [(&str, &str); 4] = [
    ("expected u8", "a whole number up to 255 is expected"),
    ("expected u16", "a whole number up to 65535 is expected"),
    ("expected u32", "a whole number up to 4294967295 is expected"),
    ("expected u64", "a whole number that is not negative is expected"),
];

/// A fault, with its offset in the text if it has one.
type Found = (Option<usize>, String);

/// Returns the error of a text that is no configuration. It has the faults of form and, if the rest is sound
/// enough to be judged, those of sense.
pub(super) fn of_text(text: &str, path: &Path) -> ConfigError {
    let (mut table, errors) = DeTable::parse_recoverable(text);
    let offset = |error: &toml::de::Error| error.span().map(|span| span.start);
    let mut found: Vec<Found> =
        errors.iter().map(|error| (offset(error), error.message().to_owned())).collect();
    let mut removed = Vec::new();
    while errors.is_empty() {
        match Config::deserialize(Deserializer::from(table.clone())) {
            Ok(config) => {
                let faults = config.faults().into_iter();
                let faults = faults.filter(|fault| !follows(fault, &removed));
                found.extend(faults.map(|fault| placed(fault, &table, &removed)));
                break;
            }
            Err(error) => {
                let entry = error.span().and_then(|span| take(&mut table, &span));
                let message = in_words(error.message());
                let (text, go_on) = match &entry {
                    Some(entry) if !entry.is_key => {
                        (format!("{}: {message}", original(&entry.path, &removed)), true)
                    }
                    entry => (message, entry.is_some()),
                };
                found.push((offset(&error), text));
                removed.extend(entry);
                if !go_on {
                    break;
                }
            }
        }
    }
    in_order(found, text, path)
}

/// Returns the error of a configuration with faults of sense. Those that its file has by itself have their
/// place there; the command line has added the others.
pub(super) fn of_sense(config: &Config, faults: Vec<ConfigError>) -> ConfigError {
    let read = config.file.as_deref().and_then(|file| Some((file, hemi_text::read(file).ok()?)));
    let Some((file, text)) = read else {
        return ConfigError::Faults(faults.iter().map(ToString::to_string).collect());
    };
    let own = toml::from_str(&text).map(|config: Config| config.faults()).unwrap_or_default();
    let own: Vec<String> = own.iter().map(ToString::to_string).collect();
    let (table, _) = DeTable::parse_recoverable(&text);
    let (inside, outside): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|fault| own.contains(&fault.to_string()));
    let mut lines: Vec<String> = outside.iter().map(ToString::to_string).collect();
    let inside = inside.into_iter().map(|fault| placed(fault, &table, &[])).collect();
    let here = std::env::current_dir().unwrap_or_default();
    if let ConfigError::Faults(more) =
        in_order(inside, &text, file.strip_prefix(here).unwrap_or(file))
    {
        lines.extend(more);
    }
    ConfigError::Faults(lines)
}

fn in_order(mut found: Vec<Found>, text: &str, path: &Path) -> ConfigError {
    found.sort_by_key(|(offset, _)| *offset);
    let line = |(offset, fault): Found| {
        let path = path.display();
        match offset {
            Some(offset) => format!("{path}:{}: {}", Place::at(text, offset), fault.trim_end()),
            None => format!("{path}: {}", fault.trim_end()),
        }
    };
    ConfigError::Faults(found.into_iter().map(line).collect())
}

fn in_words(message: &str) -> String {
    let number = NUMBERS.into_iter().find(|(serdes, _)| message.ends_with(serdes));
    number.map_or_else(|| message.to_owned(), |(serdes, ours)| message.replace(serdes, ours))
}

/// An entry that was removed from a table.
struct Removed {
    /// Its path, with the entries of arrays counted without those removed earlier.
    path: String,
    /// True if its key was at fault, not its value.
    is_key: bool,
}

/// Removes the innermost entry around a span.
fn take(table: &mut Spanned<DeTable<'_>>, span: &Range<usize>) -> Option<Removed> {
    let has = |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let mut innermost: Option<(Removed, Range<usize>, Range<usize>)> = None;
    for_each_key(table.get_ref(), &mut |path, key, value| {
        // Inner entries come after the ones around them.
        if has(&key) || has(&value) {
            let is_key = has(&key) && key != value;
            innermost = Some((Removed { path: path.to_owned(), is_key }, key, value));
        }
    });
    let (removed, key, value) = innermost?;
    remove(table.get_mut(), &key, &value).then_some(removed)
}

fn remove(table: &mut DeTable<'_>, key: &Range<usize>, value: &Range<usize>) -> bool {
    let is_it = |name: &Range<usize>, of: &Range<usize>| name == key && of == value;
    let found = table.iter().find(|(name, of)| is_it(&name.span(), &of.span()));
    if let Some(name) = found.map(|(name, _)| name.clone()) {
        return table.remove(&name).is_some();
    }
    table.iter_mut().any(|(_, inner)| remove_in(inner, key, value))
}

fn remove_in(inner: &mut Spanned<DeValue<'_>>, key: &Range<usize>, value: &Range<usize>) -> bool {
    match inner.get_mut() {
        DeValue::Table(table) => remove(table, key, value),
        DeValue::Array(items) => {
            let count = items.len();
            // An entry of an array has one span for both.
            let others = items.iter().filter(|item| key != value || item.span() != *key);
            *items = others.cloned().collect();
            items.len() < count || items.iter_mut().any(|item| remove_in(item, key, value))
        }
        _ => false,
    }
}

/// Returns true if a fault may only follow from a value that was removed: a list lacks an entry, or the reason
/// names an option that has its default now.
fn follows(fault: &ConfigError, removed: &[Removed]) -> bool {
    let (key, text) = (fault.key().unwrap_or_default(), fault.to_string());
    let reason = text.strip_prefix(key).unwrap_or(&text);
    removed.iter().filter(|entry| !entry.is_key).any(|entry| match indexed(&entry.path) {
        Some((array, _)) => key == array,
        None => reason.contains(&entry.path),
    })
}

/// Returns a fault with its offset, and with its key as the whole file has it.
fn placed(mut fault: ConfigError, table: &Spanned<DeTable<'_>>, removed: &[Removed]) -> Found {
    let mut best: Option<(usize, usize)> = None;
    let key = fault.key().unwrap_or_default().to_owned();
    for_each_key(table.get_ref(), &mut |path, name, _| {
        // A key that the file lacks has the place of the innermost one around it.
        let rest = key.strip_prefix(path);
        let is_around = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        if is_around && best.is_none_or(|(length, _)| length < path.len()) {
            best = Some((path.len(), name.start));
        }
    });
    fault.rename(original(&key, removed));
    (best.map(|(_, offset)| offset), fault.to_string())
}

/// Returns a path with the entries of arrays counted as in the whole file.
fn original(path: &str, removed: &[Removed]) -> String {
    let mut path = path.to_owned();
    for entry in removed.iter().rev() {
        let Some((array, index)) = indexed(&entry.path) else { continue };
        let Some(rest) = path.strip_prefix(array).and_then(|rest| rest.strip_prefix('[')) else {
            continue;
        };
        let Some((count, rest)) = rest.split_once(']') else { continue };
        if let Ok(count) = count.parse::<usize>()
            && count >= index
        {
            path = format!("{array}[{}]{rest}", count + 1);
        }
    }
    path
}

/// Splits the path of an entry of an array into the array's path and the index.
fn indexed(path: &str) -> Option<(&str, usize)> {
    let (array, index) = path.strip_suffix(']')?.rsplit_once('[')?;
    Some((array, index.parse().ok()?))
}
