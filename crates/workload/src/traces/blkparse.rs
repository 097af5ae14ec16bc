//! The text of blkparse, in its default format.
//!
//! A line is `major,minor cpu sequence seconds pid action RWBS sector + count [process]`. Only
//! one of a request's many events is used: either its queueing or its dispatch to the driver.
//! In the RWBS letters, an F before the operation asks for a flush first and an F after it for
//! force unit access; a plain flush has no sectors. The summary at the end of the text ends the
//! trace.

use hemi_units::{Extent, Operation, SECOND};

use super::fields::{Field, Fields, Wrong};
use super::format::Event;
use super::{Record, Said, Volumes, extent_of_sectors};

pub(super) fn parse(line: &str, event: Event, volumes: &mut Volumes) -> Result<Said, Wrong> {
    // "CPU0 (sda):" or "Total (sda):".
    if line.starts_with("CPU") || line.starts_with("Total") {
        return Ok(Said::End);
    }
    let mut fields = Fields::by_space(line);
    let device = fields.next("device")?;
    let numbers = device.text.split_once(',');
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !numbers.is_some_and(|(major, minor)| digits(major) && digits(minor)) {
        return Err(device.wrong("write the device's numbers, as in 8,0"));
    }
    fields.next("CPU")?.number()?;
    fields.next("sequence number")?.number()?;
    let at = fields.next("time")?.decimal(SECOND)?;
    fields.next("process ID")?.number()?;
    let wanted = match event {
        Event::Queue => "Q",
        Event::Dispatch => "D",
    };
    if fields.next("action")?.text != wanted {
        return Ok(Said::Nothing);
    }
    let letters = fields.next("RWBS")?;
    let Asked { flush_before, operation } = asked(letters)?;
    let extent = match operation {
        Some(_) => extent(&mut fields)?,
        None => Extent::default(),
    };
    let volume = volumes.number(format_args!("{}", device.text));
    let record =
        |operation, extent| Record { at, volume, operation, extent, rounded: false, latency: None };
    let flush = record(Operation::Flush, Extent::default());
    Ok(match operation {
        // A pass-through command touches neither the drive's data nor its cache.
        None if !flush_before => Said::Nothing,
        None => Said::One(flush),
        Some(operation) if flush_before => Said::Two(flush, record(operation, extent)),
        Some(operation) => Said::One(record(operation, extent)),
    })
}

/// The operation given by RWBS letters.
struct Asked {
    flush_before: bool,
    /// `None` if there is no data.
    operation: Option<Operation>,
}

fn asked(letters: Field<'_>) -> Result<Asked, Wrong> {
    let right = "write R, W, D or N (no data), with F before for a flush and F after for FUA";
    let text = letters.text;
    let (flush_before, text) = match text.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut rest = text.chars();
    let kind = rest.next();
    let modifiers = rest.as_str();
    let all_known = modifiers.chars().all(|letter| "FSAMEB".contains(letter));
    let operation = match kind {
        Some('R') => Some(Operation::Read),
        Some('W') => Some(Operation::Write { fua: modifiers.contains('F') }),
        Some('D') => Some(Operation::Trim),
        Some('N' | 'S') => None,
        // The separate flush that the block layer splits off a write.
        Some('F') if flush_before => None,
        None if flush_before => None,
        _ => return Err(letters.wrong(right)),
    };
    if !all_known {
        return Err(letters.wrong(right));
    }
    Ok(Asked { flush_before, operation })
}

/// Reads `sector + count`, or nothing for a write that is only a flush.
fn extent(fields: &mut Fields<'_>) -> Result<Extent, Wrong> {
    let sector = fields.next("sector")?;
    if sector.text.starts_with('[') {
        return Ok(Extent::default());
    }
    let plus = fields.next("plus sign")?;
    if plus.text != "+" {
        return Err(plus.wrong("write sector + count"));
    }
    let count = fields.next("count")?;
    extent_of_sectors(sector.number()?, count.number()?)
        .ok_or_else(|| sector.wrong("write sectors that, with the count, end below 2^64 B"))
}
