//! The requests of a load as rows of a Parquet file, written while the load runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hemi_units::{Operation, SECTOR_BYTES};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;
use parquet_derive::ParquetRecordWriter;

use crate::account::name_of;
use crate::segments::{Outcome, Row};

/// The number of rows written together.
const GROUP: usize = 1 << 17;

/// The reason why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file could not be written.
    #[error("{path}: {source}")]
    Io {
        /// The path of the file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The Parquet writer failed.
    #[error("{path}: {source}")]
    Parquet {
        /// The path of the file.
        path: String,
        /// The writer's error.
        source: ParquetError,
    },
}

/// A row as the file has it: times in nanoseconds since the load began.
#[derive(ParquetRecordWriter)]
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
pub struct RowsFile {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    rows: Vec<FileRow>,
}

impl RowsFile {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn create(path: &Path) -> Result<RowsFile, RowsError> {
        let io = |source| RowsError::Io { path: path.display().to_string(), source };
        let file = File::create(path).map_err(io)?;
        let parquet = |source| RowsError::Parquet { path: path.display().to_string(), source };
        let none: &[FileRow] = &[];
        let schema = none.schema().map_err(parquet)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer =
            SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(parquet)?;
        Ok(RowsFile { path: path.into(), writer, rows: Vec::with_capacity(GROUP) })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&mut self, rows: &[Row]) -> Result<(), RowsError> {
        self.rows.extend(rows.iter().map(file_row));
        if self.rows.len() >= GROUP { self.group() } else { Ok(()) }
    }

    fn group(&mut self) -> Result<(), RowsError> {
        let written = self.writer.next_row_group().and_then(|mut group| {
            self.rows.as_slice().write_to_row_group(&mut group)?;
            group.close()
        });
        written.map_err(|source| self.parquet(source))?;
        self.rows.clear();
        Ok(())
    }

    /// Writes the remaining rows and the file's footer, without which it cannot be read.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(mut self) -> Result<(), RowsError> {
        if !self.rows.is_empty() {
            self.group()?;
        }
        let path = self.path.display().to_string();
        self.writer.close().map(drop).map_err(|source| RowsError::Parquet { path, source })
    }

    fn parquet(&self, source: ParquetError) -> RowsError {
        RowsError::Parquet { path: self.path.display().to_string(), source }
    }
}

impl std::fmt::Debug for RowsFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn file_row(row: &Row) -> FileRow {
    FileRow {
        intended: row.intended as i64,
        due: row.due as i64,
        issued: row.issued as i64,
        completed: row.completed as i64,
        operation: name_of(row.operation),
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
