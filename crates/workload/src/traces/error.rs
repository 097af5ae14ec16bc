//! What is wrong with a trace.

use std::io;

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        error: io::Error,
    },
    /// A recording of hemi's that cannot be read.
    #[error("{file}: {error}")]
    Capture {
        /// The file.
        file: String,
        /// Why not.
        error: hemi_capture::CaptureError,
    },
    /// No completion times, where they are needed.
    #[error(
        "{file} does not say how long its requests took, which `pace = \"dependent\"` needs: \
         replay it with `pace = \"timed\"`, or record with hemi serve --record"
    )]
    NoLatencies {
        /// The file.
        file: String,
    },
    /// A line that does not parse.
    #[error("{file}, line {line}: {field} is `{value}`: {right}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What would be right.
        right: &'static str,
    },
    /// Several volumes, and none named.
    #[error(
        "{file} has the volumes {volumes}: write which to replay, as in `volume = \"{first}\"`, or \
         `volume = \"*\"` for all of them laid over one another"
    )]
    Volumes {
        /// The file.
        file: String,
        /// Some of them.
        volumes: String,
        /// The first.
        first: String,
    },
    /// Nothing to replay.
    #[error("{file} has no request{of}: {right}")]
    Nothing {
        /// The file.
        file: String,
        /// Of which volume.
        of: String,
        /// What would be right.
        right: String,
    },
    /// It does not fit the volume.
    #[error(
        "{file} has requests up to {end} B, and the volume has {volume} B: give it a larger \
         volume, or write `beyond = \"wrap\"` to have them at their address modulo its size"
    )]
    Beyond {
        /// The file.
        file: String,
        /// Where the furthest request ends, bytes.
        end: u64,
        /// The volume's size, bytes.
        volume: u64,
    },
    /// One request alone does not fit the volume.
    #[error(
        "{file} has a request of {length} B, and the volume has {volume} B: give it a larger volume"
    )]
    Longer {
        /// The file.
        file: String,
        /// The request's length, bytes.
        length: u64,
        /// The volume's size, bytes.
        volume: u64,
    },
}
