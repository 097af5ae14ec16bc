//! Tencent's cloud block storage: 5,584 volumes over ten days (SNIA IOTTA 27917).
//!
//! A line is `Timestamp,Offset,Size,IOType,VolumeID`. The time is in seconds, so all requests
//! of a second come at its beginning. Offset and size are in 512-byte sectors, and the type is
//! 0 for a read and 1 for a write.

use hemi_units::{Operation, SECOND};

use super::fields::{Fields, Wrong};
use super::{Record, Said, Volumes, extent_of_sectors};

pub(super) fn parse(line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_commas(line);
    let at = fields.next("timestamp")?.number_of(SECOND)?;
    let offset = fields.next("offset")?;
    let size = fields.next("size")?;
    let extent = extent_of_sectors(offset.number()?, size.number()?)
        .ok_or_else(|| offset.wrong("write sectors that, with the size, end below 2^64 B"))?;
    let kind = fields.next("I/O type")?;
    let operation = match kind.text {
        "0" => Operation::Read,
        "1" => Operation::Write { fua: false },
        _ => return Err(kind.wrong("write 0 for a read or 1 for a write")),
    };
    let id = fields.next("volume ID")?.number()?;
    fields.end()?;
    let volume = volumes.number(format_args!("{id}"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded: false, latency: None }))
}
