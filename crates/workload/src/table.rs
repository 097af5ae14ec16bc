//! Tables as Parquet files, written one group of rows at a time.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RecordWriter;

/// The number of rows to write together: enough to compress well, few enough to hold.
pub const GROUP_ROWS: usize = 1 << 17;

/// The reason why a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file or its directory could not be written.
    #[error("{path}: {source}")]
    Io {
        /// The path of the file or directory.
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

impl TableError {
    /// Returns the error of a file or directory.
    pub fn io(path: &Path, source: io::Error) -> TableError {
        TableError::Io { path: path.display().to_string(), source }
    }
}

/// A table while it is written. It holds no rows back.
pub struct TableFile {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
}

impl TableFile {
    /// Creates the file, or truncates it, for rows of type `R`.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    pub fn create<R>(path: &Path) -> Result<TableFile, TableError>
    where
        for<'a> &'a [R]: RecordWriter<R>,
    {
        let file = File::create(path).map_err(|error| TableError::io(path, error))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let none: &[R] = &[];
        none.schema()
            .and_then(|schema| SerializedFileWriter::new(file, schema, Arc::new(properties)))
            .map(|writer| TableFile { path: path.into(), writer })
            .map_err(|source| parquet(path, source))
    }

    /// Adds rows as one group.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write<R>(&mut self, rows: &[R]) -> Result<(), TableError>
    where
        for<'a> &'a [R]: RecordWriter<R>,
    {
        let written = self.writer.next_row_group().and_then(|mut group| {
            rows.write_to_row_group(&mut group)?;
            group.close()
        });
        written.map(drop).map_err(|source| parquet(&self.path, source))
    }

    /// Says something about the whole table in the file's metadata.
    pub fn note(&mut self, key: &str, value: impl ToString) {
        self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value.to_string()));
    }

    /// Writes the file's footer, without which it cannot be read.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn finish(self) -> Result<(), TableError> {
        let TableFile { path, writer } = self;
        writer.close().map(drop).map_err(|source| parquet(&path, source))
    }
}

fn parquet(path: &Path, source: ParquetError) -> TableError {
    TableError::Parquet { path: path.display().to_string(), source }
}

impl std::fmt::Debug for TableFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableFile").field("path", &self.path).finish_non_exhaustive()
    }
}
