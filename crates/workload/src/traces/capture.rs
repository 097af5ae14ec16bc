//! hemi's own recordings (`docs/design/capture-format.md`).
//!
//! Every request is recorded with its latency. A recording holds one volume, by its name.
//! Failed requests count as requests. Zeros written as such become trims.

use std::io::Read;

use hemi_capture::{CaptureError, Kind};
use hemi_units::{Extent, Operation};

use super::{Record, Said, Volumes};

pub(super) fn next<R: Read>(
    capture: &mut hemi_capture::Reader<R>,
    volumes: &mut Volumes,
) -> Result<Said, CaptureError> {
    let Some(record) = capture.record()? else { return Ok(Said::End) };
    let volume = volumes.number(format_args!("{}", capture.head()?.name));
    let operation = match record.kind {
        Kind::Read => Operation::Read,
        Kind::Write => Operation::Write { fua: record.fua },
        Kind::Trim | Kind::WriteZeroes => Operation::Trim,
        Kind::Flush => Operation::Flush,
    };
    let extent = match record.sectors {
        0 => Extent::default(),
        sectors => Extent::new(record.start, sectors),
    };
    let latency = Some(record.latency);
    Ok(Said::One(Record { at: record.at, volume, operation, extent, rounded: false, latency }))
}
