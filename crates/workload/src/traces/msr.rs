//! MSR Cambridge: 36 volumes of 13 servers over a week (SNIA IOTTA 388).
//!
//! A line is `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. The timestamp is a
//! Windows file time; it and the response time are in units of 100 ns. A volume is called
//! `host.disk`, for example `hm.1`.

use hemi_units::Operation;

use super::fields::{Fields, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes};

pub(super) fn parse(line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_commas(line);
    let at = fields.next("timestamp")?.number_of(100)?;
    let host = fields.next("host name")?;
    if host.text.is_empty() {
        return Err(host.wrong("write the server's name"));
    }
    let disk = fields.next("disk number")?.number()?;
    let kind = fields.next("type")?;
    let operation = match kind.text {
        "Read" => Operation::Read,
        "Write" => Operation::Write { fua: false },
        _ => return Err(kind.wrong("write Read or Write")),
    };
    let offset = fields.next("offset")?;
    let size = fields.next("size")?;
    let (extent, rounded) = extent_of_bytes(offset.number()?, size.number()?)
        .ok_or_else(|| offset.wrong("write an offset that, with the size, is below 2^64"))?;
    let latency = Some(fields.next("response time")?.number_of(100)?);
    fields.end()?;
    let volume = volumes.number(format_args!("{}.{disk}", host.text));
    Ok(Said::One(Record { at, volume, operation, extent, rounded, latency }))
}
