//! vSCSI records as text, in which libCacheSim distributes a trace of CloudPhysics.
//!
//! The first line is [`NAMES`]. The time is in whole seconds, so all requests of a second come at its
//! beginning. The operation is a SCSI operation code in hexadecimal, the size is in bytes, and the
//! address in sectors of 512 bytes. The names and units are those of `data/cloudPhysicsIO.csv`, whose
//! records `data/cloudPhysicsIO.vscsi` has in binary form.

use hemi_units::{Extent, Operation, SECOND, SECTOR_BYTES};

use super::fields::{Fields, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes, vscsi};

/// The names of the columns.
const NAMES: [&str; 5] = ["version", "time", "op", "size", "lbn"];

/// Returns true if a line has the names of the columns.
pub(super) fn is_header(line: &str) -> bool {
    line.split(',').map(str::trim).eq(NAMES)
}

pub(super) fn parse(line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
    let mut fields = Fields::by_commas(line);
    fields.next("version")?.number()?;
    let at = fields.next("time")?.decimal(SECOND)?;
    let code = fields.next("op")?;
    let command = u64::from_str_radix(code.text.trim_start_matches("0x"), 16).map_err(|_| {
        code.wrong("write a SCSI operation code in hexadecimal; 28 reads, 2a writes")
    })?;
    let size = fields.next("size")?;
    let address = fields.next("lbn")?;
    fields.end()?;
    let (offset, length) = (address.number_of(SECTOR_BYTES)?, size.number()?);
    let Some(operation) = vscsi::operation_of(command) else { return Ok(Said::Nothing) };
    let (extent, rounded) = match operation {
        Operation::Flush => (Extent::default(), false),
        _ => extent_of_bytes(offset, length).ok_or_else(|| {
            address.wrong("write an address that, with the size, is below 2^64 B")
        })?,
    };
    let volume = volumes.number(format_args!("disk"));
    Ok(Said::One(Record { at, volume, operation, extent, rounded, latency: None }))
}
