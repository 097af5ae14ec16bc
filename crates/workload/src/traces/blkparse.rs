//! The text of blkparse, in its default format.
//!
//! A line is `major,minor cpu sequence seconds pid action RWBS sector + count [process]`. Only
//! one of a request's many events is used: either its queueing or its dispatch to the driver.
//! In the RWBS letters, an F before the operation asks for a flush first and an F after it for
//! force unit access; a plain flush has no sectors. A command passed through to the drive has its
//! bytes in the place of `sector + count`. It is not a request.
//!
//! blkparse names its input files on standard output, and writes the events to the same place
//! through another buffer. The names come first on a terminal, and last in a pipe. If they are more
//! than the buffer holds, some come first, the last of them without its end, and the rest comes
//! behind the events. The summary, if there is one, comes behind the events, too.

use hemi_units::{Extent, Operation, SECOND};

use super::fields::{Field, Fields, Wrong};
use super::format::Event;
use super::{Record, Said, Volumes, extent_of_sectors};

/// The beginning of a line that names an input file.
const INPUT_FILE: &str = "Input file ";

/// 2^64 ns as blkparse prints them: the seconds as a signed number of 32 bits. blkparse counts
/// from the first event it takes, and one that is a little older wraps around.
const WRAPPED: u64 = 1_266_874_889_709_551_616;

/// The most by which it is older, in nanoseconds: processors hand over their events in their own order.
const OLDER: u64 = 3600 * SECOND;

/// The state of reading a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// True once an event was read.
    begun: bool,
    /// True once something was read that blkparse writes behind the events.
    ended: bool,
    /// True if the last event's text may go on in the next line.
    open: bool,
    /// True if the rest of the names of input files comes behind the events, its first line
    /// without its beginning.
    parted: bool,
}

impl State {
    pub(super) fn parse(
        &mut self,
        line: &str,
        event: Event,
        volumes: &mut Volumes,
    ) -> Result<Said, Wrong> {
        let mut fields = Fields::by_space(line);
        let device = fields.next("device")?;
        if is_device(device.text) {
            if self.ended {
                let right = "these events come behind the end of a text of blkparse; give each text \
                             by itself";
                return Err(Wrong::new("line", line, right));
            }
            self.begun = true;
            return self.event(line, event, volumes);
        }
        if !self.begun {
            return self.before(line, device, event, volumes);
        }
        if is_end(line) || (!self.open && std::mem::take(&mut self.parted)) {
            self.ended = true;
        }
        if self.ended || self.open {
            return Ok(Said::Nothing);
        }
        Err(device.wrong("write the device's numbers, as in 8,0"))
    }

    /// Parses a line before the first event.
    fn before(
        &mut self,
        line: &str,
        device: Field<'_>,
        event: Event,
        volumes: &mut Volumes,
    ) -> Result<Said, Wrong> {
        if let Some(at) = event_in(line) {
            self.begun = true;
            self.parted = true;
            return self.event(&line[at..], event, volumes);
        }
        if line.starts_with(INPUT_FILE) {
            return Ok(Said::Nothing);
        }
        if is_end(line) {
            return Ok(Said::End);
        }
        Err(device.wrong("write the device's numbers, as in 8,0"))
    }

    /// Parses a line of an event.
    fn event(&mut self, line: &str, event: Event, volumes: &mut Volumes) -> Result<Said, Wrong> {
        let mut fields = Fields::by_space(line);
        let device = fields.next("device")?;
        fields.next("CPU")?.number()?;
        let sequence = fields.next("sequence number")?;
        // It is printed as a signed number.
        Field { text: sequence.text.trim_start_matches('-'), ..sequence }.number()?;
        let at = fields.next("time")?.decimal(SECOND)?;
        let at = if WRAPPED.checked_sub(at).is_some_and(|before| before < OLDER) { 0 } else { at };
        fields.next("process ID")?.number()?;
        let action = fields.next("action")?.text;
        // A message has any bytes, and so does the name of a process.
        self.open = action == "m" || (line.contains('[') && !line.contains(']'));
        let wanted = match event {
            Event::Queue => "Q",
            Event::Dispatch => "D",
        };
        if action != wanted {
            return Ok(Said::Nothing);
        }
        let letters = fields.next("RWBS")?;
        let Asked { flush_before, operation } = asked(letters)?;
        let extent = match operation {
            Some(_) => match extent(&mut fields)? {
                Some(extent) => extent,
                None => return Ok(Said::Nothing),
            },
            None => Extent::default(),
        };
        let volume = volumes.number(format_args!("{}", device.text));
        let record = |operation, extent| Record {
            at,
            volume,
            operation,
            extent,
            rounded: false,
            latency: None,
        };
        let flush = record(Operation::Flush, Extent::default());
        Ok(match operation {
            // A pass-through command touches neither the drive's data nor its cache.
            None if !flush_before => Said::Nothing,
            None => Said::One(flush),
            Some(operation) if flush_before => Said::Two(flush, record(operation, extent)),
            Some(operation) => Said::One(record(operation, extent)),
        })
    }
}

/// Returns true if a text begins with an input file's name, and so is of blkparse.
pub(super) fn is_input_file(line: &str) -> bool {
    line.starts_with(INPUT_FILE) && (line.ends_with(" added") || event_in(line).is_some())
}

/// Returns true if a field has a device's numbers.
fn is_device(field: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    field.split_once(',').is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// Returns true for a line that blkparse writes behind the events: the name of an input file, the
/// beginning of the summary of a process (`name (pid)` or `name (pid, ...)`), of a processor or of
/// all, or a remark.
fn is_end(line: &str) -> bool {
    let of_a_process = || {
        let (_, rest) = line.rsplit_once(" (")?;
        let pid = rest.strip_suffix(')')?;
        let pid = pid.strip_suffix(", ...").unwrap_or(pid);
        (!pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())).then_some(())
    };
    ["CPU", "Total (", INPUT_FILE, "discarded traces "].iter().any(|begin| line.starts_with(begin))
        || of_a_process().is_some()
}

/// Returns the place at which an event begins in a line that begins with a part of an input file's
/// name. The device's major number is three characters wide, or wider.
fn event_in(line: &str) -> Option<usize> {
    let is_part = |before: &str| before.starts_with(INPUT_FILE) || INPUT_FILE.starts_with(before);
    let places = line.char_indices().skip(1).map(|(at, _)| at);
    places.take_while(|&at| is_part(&line[..at])).find(|&at| {
        let mut fields = Fields::by_space(&line[at..]);
        line[at..].find(',') == Some(3)
            && fields.optional("device").is_some_and(|device| is_device(device.text))
            && fields.optional("CPU").is_some_and(|processor| processor.number().is_ok())
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

/// Reads `sector + count`, or nothing for a write that is only a flush. Returns `None` for a
/// passed-through command: `bytes (command) [process]`, without its command while it is queued.
fn extent(fields: &mut Fields<'_>) -> Result<Option<Extent>, Wrong> {
    let sector = fields.next("sector")?;
    // The process, or before it the time since the request was queued.
    if sector.text.starts_with(['[', '(']) {
        return Ok(Some(Extent::default()));
    }
    let plus = fields.next("plus sign")?;
    if plus.text.starts_with(['[', '(']) {
        sector.number()?;
        return Ok(None);
    }
    if plus.text != "+" {
        return Err(plus.wrong("write sector + count"));
    }
    let count = fields.next("count")?;
    let extent = extent_of_sectors(sector.number()?, count.number()?);
    let right = "write sectors that, with the count, end below 2^64 B";
    extent.map(Some).ok_or_else(|| sector.wrong(right))
}
