//! The requests of a load as rows of a Parquet file, written while the load runs.

use std::path::Path;

use hemi_units::{Operation, SECTOR_BYTES};
use hemi_workload::table::{GROUP_ROWS, TableError, TableFile};
use parquet_derive::ParquetRecordWriter;

use crate::segments::{Outcome, Row};

/// A row as the file has it: times in nanoseconds since the load began.
#[derive(Debug, ParquetRecordWriter)]
struct FileRow {
    intended: i64,
    due: i64,
    issued: i64,
    completed: i64,
    operation: &'static str,
    fua: bool,
    offset: i64,
    length: i64,
    phase: i32,
    measured: bool,
    error: Option<&'static str>,
}

/// The rows' file while it is written. Memory is bounded by one group of rows.
#[derive(Debug)]
pub struct RowsFile {
    table: TableFile,
    rows: Vec<FileRow>,
}

impl RowsFile {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn create(path: &Path) -> Result<RowsFile, TableError> {
        let table = TableFile::create::<FileRow>(path)?;
        Ok(RowsFile { table, rows: Vec::with_capacity(GROUP_ROWS) })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&mut self, rows: &[Row]) -> Result<(), TableError> {
        self.rows.extend(rows.iter().map(file_row));
        if self.rows.len() >= GROUP_ROWS { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), TableError> {
        self.table.write(&self.rows)?;
        self.rows.clear();
        Ok(())
    }

    /// Writes the remaining rows and the file's footer, without which it cannot be read.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> Result<(), TableError> {
        if !self.rows.is_empty() {
            self.group()?;
        }
        self.table.finish()
    }
}

fn file_row(row: &Row) -> FileRow {
    FileRow {
        intended: row.intended as i64,
        due: row.due as i64,
        issued: row.issued as i64,
        completed: row.completed as i64,
        operation: row.operation.name(),
        fua: row.operation == Operation::Write { fua: true },
        offset: (row.start * SECTOR_BYTES) as i64,
        length: i64::from(row.sectors) * SECTOR_BYTES as i64,
        phase: row.phase.into(),
        measured: row.measured,
        error: error_of(row.outcome),
    }
}

/// Returns a failure's kind as results name it, or `None` for a request that succeeded.
pub fn error_of(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Done => None,
        Outcome::Media => Some("media"),
        Outcome::NoSpace => Some("no space"),
        Outcome::Gone => Some("gone"),
        Outcome::Other => Some("other"),
    }
}
