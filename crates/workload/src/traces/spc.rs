//! SPC, the format of the UMass repository's Financial and WebSearch traces.
//!
//! A line is `ASU,LBA,Size,Opcode,Timestamp`; further fields are ignored. The address is in
//! 512-byte blocks, the size in bytes, the time in seconds. The volume is the ASU.

use hemi_units::{SECOND, SECTOR_BYTES};

use super::fields::{Fields, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes};

pub(super) fn parse(line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_commas(line);
    let unit = fields.next("ASU")?.number()?;
    let address = fields.next("LBA")?;
    let size = fields.next("size")?;
    let (extent, rounded) = extent_of_bytes(address.number_of(SECTOR_BYTES)?, size.number()?)
        .ok_or_else(|| address.wrong("write an address that, with the size, is below 2^64 B"))?;
    let operation = fields.next("opcode")?.read_or_write()?;
    let at = fields.next("timestamp")?.decimal(SECOND)?;
    let volume = volumes.number(format_args!("{unit}"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded, latency: None }))
}
