//! The places of keys in a TOML file, for errors about a value that is well written and still
//! cannot be meant.
//!
//! The types that a file is read into stay plain: a check names its key by a dotted path, and
//! the path is looked up here.
//!
//! ```
//! use hemi_text::Places;
//!
//! let places = Places::new("night.toml", "[workload.closed]\nthreads = 0\n");
//! assert_eq!(places.of("workload.closed.threads"), "night.toml:2:1");
//! assert_eq!(places.of("workload.closed.requests"), "night.toml:1:11", "the section lacks it");
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Place {
    /// Returns the place of the byte at `offset` of `text`, or of its end if it has fewer.
    pub fn at(text: &str, offset: usize) -> Place {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// The places of all keys of a file. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Name of the file in messages.
    file: String,
    /// Path that every path looked up is below, with its dot; empty for the whole file.
    above: String,
    places: Arc<BTreeMap<String, Place>>,
}

impl Places {
    /// Finds the keys of `text`, which messages call `file`. A text that is not TOML has those
    /// before its first error.
    pub fn new(file: &str, text: &str) -> Places {
        let (table, _) = DeTable::parse_recoverable(text);
        let mut places = BTreeMap::new();
        for_each_key(table.get_ref(), &mut |path, key, _| {
            places.insert(path.to_owned(), Place::at(text, key.start));
        });
        Places { file: file.to_owned(), above: String::new(), places: Arc::new(places) }
    }

    /// Returns the places of the keys below `path`, which are then looked up without it.
    #[must_use]
    pub fn below(&self, path: &str) -> Places {
        Places { above: format!("{}{path}.", self.above), ..self.clone() }
    }

    /// Returns the file and the place of the key at `path`, as in `night.toml:7:1`. A path
    /// names the keys of tables with dots and the entries of arrays from 0, as in
    /// `phases[1].requests`. The place of a key that the file does not have is the one of the
    /// innermost key around it, or the file as a whole if it has none.
    pub fn of(&self, path: &str) -> String {
        let path = format!("{}{path}", self.above);
        let mut rest = path.as_str();
        loop {
            if let Some(place) = self.places.get(rest) {
                return format!("{}:{place}", self.file);
            }
            match rest.rfind(['.', '[']) {
                Some(end) => rest = &rest[..end],
                None => return self.file.clone(),
            }
        }
    }
}

/// Calls `visit` with the path and the spans of key and value of every entry in `table`, outer
/// ones first. An entry of an array has the span of its value for both.
pub fn for_each_key(table: &DeTable<'_>, visit: &mut impl FnMut(&str, Range<usize>, Range<usize>)) {
    in_table(table, "", visit);
}

fn in_table(
    table: &DeTable<'_>,
    path: &str,
    visit: &mut impl FnMut(&str, Range<usize>, Range<usize>),
) {
    for (key, value) in table {
        let path = format!("{path}{}", key.get_ref());
        in_value(&path, key.span(), value, visit);
    }
}

fn in_value(
    path: &str,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    visit: &mut impl FnMut(&str, Range<usize>, Range<usize>),
) {
    visit(path, key, value.span());
    match value.get_ref() {
        DeValue::Table(inner) => in_table(inner, &format!("{path}."), visit),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                in_value(&format!("{path}[{index}]"), item.span(), item, visit);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = \"é\" # a comment\n\
        size = { b = 1, é = { c = 2 }, d = 3 }\n\
        [[phases]]\n\
        requests = 1\n\
        [[phases]]\n  \
          [phases.workload.open]\n  \
          rate = 2\n\
        [list]\n\
        of = [{ a = 1 },\n    { a = 2 }]\n\
        \"x.y\" = 1\n";

    #[test]
    fn keys_are_found_in_every_form_of_toml() {
        let places = Places::new("f.toml", TEXT);
        for (path, place) in [
            ("title", "f.toml:1:1"),
            ("size", "f.toml:2:1"),
            ("size.b", "f.toml:2:10"),
            ("size.é.c", "f.toml:2:23"),
            ("size.d", "f.toml:2:32"),
            ("phases[0].requests", "f.toml:4:1"),
            ("phases[1].workload.open.rate", "f.toml:7:3"),
            ("list.of[1].a", "f.toml:10:7"),
            ("list.x.y", "f.toml:11:1"),
        ] {
            assert_eq!(places.of(path), place, "{path}");
        }
    }

    #[test]
    fn a_key_that_is_missing_has_the_place_around_it() {
        let places = Places::new("f.toml", TEXT);
        assert_eq!(places.of("phases[0].duration"), places.of("phases[0]"));
        assert_eq!(places.of("phases[0]"), "f.toml:3:1");
        assert_eq!(places.of("phases[1]"), "f.toml:5:1");
        assert_eq!(places.of("phases[7].duration"), places.of("phases"));
        assert_eq!(places.of("size.é.c.deeper[3]"), "f.toml:2:23");
        assert_eq!(places.of("none.such"), "f.toml");
        assert_eq!(places.of(""), "f.toml");
    }

    #[test]
    fn a_part_of_a_file_is_looked_up_without_its_path() {
        let places = Places::new("f.toml", TEXT).below("phases[1]").below("workload");
        assert_eq!(places.of("open.rate"), "f.toml:7:3");
        assert_eq!(places.of("open.nothing"), "f.toml:6:20");
    }

    #[test]
    fn a_text_that_is_not_toml_has_no_places_after_its_error() {
        let places = Places::new("f.toml", "a = 1\nb = = 2\n");
        assert_eq!(places.of("a"), "f.toml:1:1");
        assert_eq!(Places::new("f.toml", "\u{0}").of("a"), "f.toml");
    }
}
