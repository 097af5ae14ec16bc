//! hemi's own comma-separated values, as `hemi trace convert --to csv` writes them.
//!
//! The first line names the columns, in any order. `at_ns` (or `at`, whose unit has to be given),
//! `operation`, `offset` and `length` are required, the last two in bytes. `fua` is 1 or 0. An empty
//! `latency_ns` says that the latency is unknown. `volume` names the volume, `volume` if absent.
//! A first line of other names stands for [`vscsi_text`].

use hemi_units::{Extent, Operation};

use super::fields::{Field, Fields, Wrong};
use super::format::TimeUnit;
use super::{Record, Said, Volumes, extent_of_bytes, vscsi_text};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    AtNanoseconds,
    At,
    Operation,
    Fua,
    Offset,
    Length,
    Latency,
    Volume,
}

/// The columns by their names.
const COLUMNS: [(&str, Column); 8] = [
    ("at_ns", Column::AtNanoseconds),
    ("at", Column::At),
    ("operation", Column::Operation),
    ("fua", Column::Fua),
    ("offset", Column::Offset),
    ("length", Column::Length),
    ("latency_ns", Column::Latency),
    ("volume", Column::Volume),
];

/// The operations, which go by their names.
const OPERATIONS: [Operation; 4] =
    [Operation::Read, Operation::Write { fua: false }, Operation::Trim, Operation::Flush];

/// Returns true if a line names columns of this format.
pub(super) fn is_header(line: &str) -> bool {
    columns(line).is_ok() || vscsi_text::is_header(line)
}

/// The state of reading a file: its columns, once they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    columns: Vec<(&'static str, Column)>,
    is_vscsi: bool,
}

fn columns(line: &str) -> Result<Vec<(&'static str, Column)>, Wrong> {
    let mut found: Vec<(&'static str, Column)> = Vec::new();
    for name in line.split(',').map(str::trim) {
        let known = COLUMNS.iter().find(|(known, _)| *known == name);
        let Some(&column) = known.filter(|&column| !found.contains(column)) else {
            let right = "name each column once in the first line, of at_ns (or at), operation, \
                         offset, length, fua, latency_ns, volume";
            return Err(Wrong::new("column", name, right));
        };
        found.push(column);
    }
    let has = |wanted| found.iter().any(|&(_, column)| column == wanted);
    if has(Column::At) == has(Column::AtNanoseconds)
        || ![Column::Operation, Column::Offset, Column::Length].into_iter().all(has)
    {
        let right = "name at_ns (or at, in the unit given), operation, offset and length";
        return Err(Wrong::new("first line", line, right));
    }
    Ok(found)
}

impl State {
    pub(super) fn parse(
        &mut self,
        line: &str,
        unit: Option<TimeUnit>,
        volumes: &mut Volumes,
    ) -> Result<Said, Wrong> {
        if self.is_vscsi {
            return vscsi_text::parse(line, volumes);
        }
        if self.columns.is_empty() && vscsi_text::is_header(line) {
            self.is_vscsi = true;
            return match unit {
                None => Ok(Said::Nothing),
                Some(_) => {
                    let right = "leave the time unit out: these times are in seconds";
                    Err(Wrong::new("column", "time", right))
                }
            };
        }
        if self.columns.is_empty() {
            self.columns = columns(line)?;
            let has_unit = self.columns.iter().any(|&(_, column)| column == Column::AtNanoseconds);
            return if unit.is_some() && has_unit {
                let right = "leave the time unit out: at_ns says it";
                Err(Wrong::new("column", "at_ns", right))
            } else {
                Ok(Said::Nothing)
            };
        }
        let mut fields = Fields::by_commas(line);
        let (mut at, mut operation, mut fua, mut latency) = (0, Operation::Read, false, None);
        let (mut offset, mut length, mut volume) = (None, 0, "volume");
        for &(name, column) in &self.columns {
            let field = fields.next(name)?;
            match column {
                Column::AtNanoseconds => at = field.number()?,
                Column::At => {
                    let right = "name the unit of these times, or name the column at_ns";
                    at = field.decimal(unit.ok_or_else(|| field.wrong(right))?.nanoseconds())?;
                }
                Column::Operation => operation = operation_of(field)?,
                Column::Fua => {
                    fua = match field.text {
                        "0" => false,
                        "1" => true,
                        _ => return Err(field.wrong("write 0, or 1 for force unit access")),
                    };
                }
                Column::Offset => offset = Some((field, field.number()?)),
                Column::Length => length = field.number()?,
                Column::Latency if field.text.is_empty() => {}
                Column::Latency => latency = Some(field.number()?),
                Column::Volume => volume = field.text,
            }
        }
        fields.end()?;
        if fua && !matches!(operation, Operation::Write { .. }) {
            return Err(Wrong::new("fua", "1", "only a write can have force unit access"));
        }
        if let Operation::Write { fua: of_write } = &mut operation {
            *of_write = fua;
        }
        let (extent, rounded) = match (operation, offset) {
            (Operation::Flush, _) | (_, None) => (Extent::default(), false),
            (_, Some((field, offset))) => extent_of_bytes(offset, length).ok_or_else(|| {
                field.wrong("write an offset that, with the length, is below 2^64")
            })?,
        };
        let volume = volumes.number(format_args!("{volume}"));
        Ok(Said::One(Record { at, volume, operation, extent, rounded, latency }))
    }
}

fn operation_of(field: Field<'_>) -> Result<Operation, Wrong> {
    let known = OPERATIONS.into_iter().find(|operation| operation.name() == field.text);
    known.ok_or_else(|| field.wrong("write read, write, trim or flush"))
}
