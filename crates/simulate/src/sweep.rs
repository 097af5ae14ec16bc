//! Sweeps: a spec with a case for every combination of the values its `[sweep]` lists.

use toml::{Table, Value};

/// One combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The value chosen for each key, in order of keys.
    pub choices: Vec<(String, Value)>,
    /// The spec with the values applied, without its `[sweep]`.
    pub spec: Table,
}

/// The reason why a `[sweep]` was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The value is not a list, or is an empty one.
    #[error("sweep: `{key}` = {value}: write a list of one value or more, as in [1, 2]")]
    NotAList {
        /// Dotted key.
        key: String,
        /// The value as written.
        value: String,
    },
    /// A key leads through a value that is not a table.
    #[error("sweep: `{key}`: `{part}` is a value, not a section with keys of its own")]
    NotATable {
        /// Dotted key.
        key: String,
        /// The part of the key that is not a table.
        part: String,
    },
    /// There are too many combinations.
    #[error("sweep: {0} cases; at most {MOST}")]
    TooMany(usize),
}

impl SweepError {
    /// Returns the dotted key in the sweep that the error is about; empty if it is about all.
    pub(crate) fn key(&self) -> &str {
        match self {
            SweepError::NotAList { key, .. } | SweepError::NotATable { key, .. } => key,
            SweepError::TooMany(_) => "",
        }
    }
}

/// Maximum number of cases of one spec.
const MOST: usize = 10_000;

/// Returns the cases of a spec, or a single one without a sweep. The last key by name changes
/// fastest.
///
/// # Errors
/// See [`SweepError`].
pub fn cases(mut spec: Table) -> Result<Vec<Case>, SweepError> {
    let sweep = match spec.remove("sweep") {
        Some(Value::Table(sweep)) => sweep,
        _ => Table::new(),
    };
    let mut cases = vec![Case { choices: Vec::new(), spec }];
    for (key, values) in flattened(sweep) {
        let list = match &values {
            Value::Array(list) if !list.is_empty() => list,
            _ => return Err(SweepError::NotAList { key, value: values.to_string() }),
        };
        let count = cases.len() * list.len();
        if count > MOST {
            return Err(SweepError::TooMany(count));
        }
        let mut more = Vec::with_capacity(count);
        for case in &cases {
            for value in list {
                let mut case = case.clone();
                put(&mut case.spec, &key, value)?;
                case.choices.push((key.clone(), value.clone()));
                more.push(case);
            }
        }
        cases = more;
    }
    Ok(cases)
}

/// Flattens the sweep: `system.policy = […]` may be one quoted key or TOML's dotted key.
fn flattened(sweep: Table) -> Vec<(String, Value)> {
    let mut flat = Vec::new();
    for (key, value) in sweep {
        match value {
            Value::Table(inner) => {
                let inner = flattened(inner).into_iter();
                flat.extend(inner.map(|(rest, value)| (format!("{key}.{rest}"), value)));
            }
            value => flat.push((key, value)),
        }
    }
    flat
}

fn put(spec: &mut Table, key: &str, value: &Value) -> Result<(), SweepError> {
    let (sections, last) = match key.rsplit_once('.') {
        Some((sections, last)) => (sections.split('.').collect(), last),
        None => (Vec::new(), key),
    };
    let mut table = spec;
    for section in sections {
        let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        table = inner.as_table_mut().ok_or_else(|| SweepError::NotATable {
            key: key.to_owned(),
            part: section.to_owned(),
        })?;
    }
    table.insert(last.to_owned(), value.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use toml::Value;

    use super::{SweepError, cases};

    fn parsed(text: &str) -> toml::Table {
        text.parse().expect("good TOML")
    }

    #[test]
    fn every_combination_is_a_case() {
        let spec = "a = 1\n[b]\nc = 2\n[sweep]\na = [1, 5]\nb.d = [\"x\", \"y\", \"z\"]";
        let cases = cases(parsed(spec)).unwrap();
        assert_eq!(cases.len(), 6);
        assert_eq!(cases[5].spec, parsed("a = 5\n[b]\nc = 2\nd = \"z\""));
        let choice = ("b.d".to_owned(), Value::String("y".to_owned()));
        assert_eq!(cases[1].choices[1], choice);
    }

    #[test]
    fn a_spec_without_a_sweep_is_one_case() {
        let cases = cases(parsed("a = 1")).unwrap();
        assert_eq!((cases.len(), cases[0].choices.len()), (1, 0));
    }

    #[test]
    fn sweeps_that_cannot_be_made_are_refused() {
        let refused = |text: &str| cases(parsed(text)).unwrap_err();
        assert!(matches!(refused("[sweep]\na = 1"), SweepError::NotAList { .. }));
        assert!(matches!(refused("[sweep]\na = []"), SweepError::NotAList { .. }));
        let through = refused("a = 1\n[sweep]\n\"a.b\" = [1]");
        assert!(matches!(through, SweepError::NotATable { .. }));
    }
}
