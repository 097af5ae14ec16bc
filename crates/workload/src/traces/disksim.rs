//! DiskSim's ASCII format, which MQSim adopted with another unit of time.
//!
//! A line is `time device block count flags`. The time is a number in the given unit, block and
//! count are in 512-byte sectors, and the flags are hexadecimal; bit 0 is set for a read.

use hemi_units::Operation;

use super::fields::{Fields, Wrong};
use super::format::TimeUnit;
use super::{Record, Said, Volumes, extent_of_sectors};

pub(super) fn parse(line: &str, unit: TimeUnit, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_space(line);
    let at = fields.next("time")?.decimal(unit.nanoseconds())?;
    let device = fields.next("device")?.number()?;
    let block = fields.next("block")?;
    let count = fields.next("count")?;
    let extent = extent_of_sectors(block.number()?, count.number()?)
        .ok_or_else(|| block.wrong("write sectors that, with the count, end below 2^64 B"))?;
    let flags = fields.next("flags")?;
    let bits = u32::from_str_radix(flags.text.trim_start_matches("0x"), 16)
        .map_err(|_| flags.wrong("write a hexadecimal number; 1 is a read, 0 a write"))?;
    fields.end()?;
    let operation = match bits & 1 {
        1 => Operation::Read,
        _ => Operation::Write { fua: false },
    };
    let volume = volumes.number(format_args!("{device}"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded: false, latency: None }))
}
