//! Alibaba's block traces of 2020: 1,000 virtual disks over a month.
//!
//! A line is `device_id,opcode,offset,length,timestamp`, in bytes and microseconds.

use hemi_units::MICROSECOND;

use super::fields::{Fields, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes};

pub(super) fn parse(line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_commas(line);
    let device = fields.next("device_id")?.number()?;
    let operation = fields.next("opcode")?.read_or_write()?;
    let offset = fields.next("offset")?;
    let length = fields.next("length")?;
    let (extent, rounded) = extent_of_bytes(offset.number()?, length.number()?)
        .ok_or_else(|| offset.wrong("write an offset that, with the length, is below 2^64"))?;
    let at = fields.next("timestamp")?.number_of(MICROSECOND)?;
    fields.end()?;
    let volume = volumes.number(format_args!("{device}"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded, latency: None }))
}
