//! Errors of traces.

use std::io;

use super::format::{FORMAT_NAMES, FormatError};

/// The reason why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// One of hemi's own recordings cannot be read.
    #[error("{file}: {error}")]
    Capture {
        /// The file.
        file: String,
        /// The reason.
        error: hemi_capture::CaptureError,
    },
    /// The trace has no completion times, but they are needed.
    #[error(
        "{file} does not say how long its requests took, which `pace = \"dependent\"` needs: \
         replay it with `pace = \"timed\"`, or record with hemi serve --record"
    )]
    NoLatencies {
        /// The file.
        file: String,
    },
    /// The file has no byte.
    #[error("{file} is empty")]
    Empty {
        /// The file.
        file: String,
    },
    /// The file is compressed.
    #[error("{file} is compressed: decompress it, as in `{command} {file}`")]
    Compressed {
        /// The file.
        file: String,
        /// The program that decompresses it.
        command: &'static str,
    },
    /// Nothing shows the format of the trace.
    #[error("{file} is in no format that is recognised{begins}: name its format ({FORMAT_NAMES})")]
    Unknown {
        /// The file.
        file: String,
        /// Its first line, in words, if it is text.
        begins: String,
    },
    /// The first line is not understood, and those behind it are.
    #[error("{file}: its first line is `{first}`, and those behind it are like {like}: {right}")]
    FirstLine {
        /// The file.
        file: String,
        /// The line, or its beginning.
        first: String,
        /// The format of the other lines.
        like: &'static str,
        /// The remedy.
        right: &'static str,
    },
    /// The setting of a format is missing or does not belong to it.
    #[error("{file}: {error}")]
    Setting {
        /// The file.
        file: String,
        /// The setting and its remedy.
        error: FormatError,
    },
    /// A line or a record does not parse.
    #[error("{file}, {unit} {number}: {field} is `{value}`: {right}")]
    Field {
        /// The file.
        file: String,
        /// The thing that is counted: `line`, or `record` in a binary format.
        unit: &'static str,
        /// The line or record, counted from 1.
        number: u64,
        /// The field.
        field: &'static str,
        /// Its contents.
        value: String,
        /// The allowed contents.
        right: &'static str,
    },
    /// The trace has several volumes and none was named.
    #[error(
        "{file} has the volumes {volumes}: write which to replay, as in `volume = \"{first}\"`, or \
         `volume = \"*\"` for all of them merged"
    )]
    Volumes {
        /// The file.
        file: String,
        /// Some of the volumes.
        volumes: String,
        /// The first volume.
        first: String,
    },
    /// There is nothing to replay.
    #[error("{file} has no request{of}: {right}")]
    Nothing {
        /// The file.
        file: String,
        /// The volume, if one was named.
        of: String,
        /// The remedy.
        right: String,
    },
    /// The trace does not fit the volume.
    #[error(
        "{file} has requests up to {end} B, and the volume has {volume} B: give it a larger \
         volume, or write `beyond = \"wrap\"` to have them at their address modulo its size"
    )]
    Beyond {
        /// The file.
        file: String,
        /// End of the furthest request, in bytes.
        end: u64,
        /// The volume's size in bytes.
        volume: u64,
    },
    /// A single request does not fit the volume.
    #[error(
        "{file} has a request of {length} B, and the volume has {volume} B: give it a larger volume"
    )]
    Longer {
        /// The file.
        file: String,
        /// The request's length in bytes.
        length: u64,
        /// The volume's size in bytes.
        volume: u64,
    },
}
