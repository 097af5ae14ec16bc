//! Conversion of a DiskSim description to parameters of [`crate::hdd`].

use std::path::Path;

use super::layout::layout;
use super::overheads::{bus, overheads};
use super::seek::seek;
use super::setup;
use super::sources::{FILE_BYTES_MAX, Files};
use super::text::{Block, DescriptionError, Value};
use super::unmodelled::{self, Ignored};
use crate::hdd::parameters::{
    Order, Parameters, PowerStates, Queue, ReadAhead, ReadCache, WriteCache,
};
use hemi_units::{Size, Time};

/// A function that reads a file named by a description. Returns its text, or the reason it
/// cannot be read.
pub type Reader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

pub(super) const HUGE: f64 = 1e12;

/// A time that never comes: a hundred years.
const NEVER: Time = Time::seconds(3_155_760_000);

/// A described drive.
#[derive(Clone, Debug)]
pub struct Description {
    /// The name given to it in the file.
    pub name: String,
    /// Its parameters.
    pub parameters: Parameters,
    /// The values of the description that have no effect here.
    pub ignored: Vec<Ignored>,
    pub(super) parts: Parts,
}

/// The blocks that describe a drive.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) disk: Block,
    pub(super) model: Block,
    pub(super) mechanics: Block,
    pub(super) layout: Block,
    /// Buses and controllers between host and disk, if a parameter file tells them.
    pub(super) path: Vec<Block>,
}

/// Loads the drive that the file at `path` describes, as [`load`] does. The files that it names
/// are beside it.
///
/// # Errors
/// Returns those of [`load`].
pub fn load_file(path: &Path) -> Result<Description, DescriptionError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = |name: &str| {
        let text = hemi_text::read_up_to(&folder.join(name), FILE_BYTES_MAX);
        text.map_err(|error| error.to_string())
    };
    load(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy(), &read)
}

/// Loads the drive that `file` describes: a file with a `disksim_disk` (`.diskspecs`), or a
/// parameter file (`.parv`) whose topology has one; `read` reads it and the files it names.
///
/// # Errors
/// [`DescriptionError`] with file, line and key if it is not such a file, or describes what no
/// disk can be.
pub fn load(file: &str, read: &Reader<'_>) -> Result<Description, DescriptionError> {
    let files = Files::new(read);
    let (disk, path, others) = if file.ends_with(".parv") {
        let setup = setup::read(file, &files)?;
        (setup.disk, setup.path, setup.others)
    } else {
        (files.block(file)?, Vec::new(), Vec::new())
    };
    let parts = Parts::of(disk, path)?;
    let parameters = parameters(&parts, &files)?;
    parameters.check().map_err(|error| {
        let problem =
            format!("`{}` comes out as {}, expected {}", error.parameter, error.value, error.right);
        parts.disk.error(parts.disk.line, &parts.disk.name, problem)
    })?;
    let mut ignored = unmodelled::in_parts(&parts, &parameters);
    for other in others {
        ignored.push(Ignored::disk(file, &other));
    }
    Ok(Description { name: parts.disk.name.clone(), parameters, ignored, parts })
}

impl Parts {
    fn of(disk: Block, path: Vec<Block>) -> Result<Parts, DescriptionError> {
        if disk.kind != "disksim_disk" {
            let problem = format!("is a `{}`, expected a `disksim_disk`", disk.kind);
            let (file, line) = (disk.file, disk.line);
            return Err(DescriptionError { file, line, key: "the block".to_owned(), problem });
        }
        let model = match disk.need("Model", "a `dm_disk`, or `source` and its file")? {
            (_, Value::Block(block)) => block.clone(),
            _ => return Err(disk.refuse("Model", "a `dm_disk`, or `source` and its file")),
        };
        let part = |key: &str, kind: &str| match model.need(key, kind)? {
            (_, Value::Block(block)) if block.kind == kind => Ok(block.clone()),
            (_, Value::Block(block)) => {
                let problem =
                    format!("is a `{}`, which is not supported; a `{kind}` is", block.kind);
                Err(block.error(block.line, key, problem))
            }
            _ => Err(model.refuse(key, &format!("a `{kind}`"))),
        };
        let mechanics = part("Mechanical Model", "dm_mech_g1")?;
        let layout = part("Layout Model", "dm_layout_g1")?;
        Ok(Parts { disk, model, mechanics, layout, path })
    }
}

fn parameters(parts: &Parts, files: &Files<'_>) -> Result<Parameters, DescriptionError> {
    let Parts { disk, model, mechanics, .. } = parts;
    let kind = "Access time type";
    let expected = "trackSwitchPlusRotation";
    match mechanics.need(kind, expected)? {
        (_, Value::Word(word)) if word == expected => {}
        _ => return Err(mechanics.refuse(kind, expected)),
    }
    let rpm = mechanics.number("Rotation speed (in rpms)", (1e3, 6e4), None)?;
    // A negative settling time means that the curve of seeks, measured on reads, is too slow for
    // writes by so much.
    let settle = mechanics.number("Add. write settling delay", (-1e6, 1e6), Some(0.0))?;
    let (host_rate, bus) = bus(disk, &parts.path)?;
    let read_on_arrival = disk.flag("Immediate buffer read", false)?;
    let write_on_arrival = disk.flag("Immediate buffer write", read_on_arrival)?;
    Ok(Parameters {
        revolutions_per_minute: libm::round(rpm) as u32,
        speed_tolerance: 0.0,
        seek: seek(mechanics, files)?,
        layout: layout(model, &parts.layout)?,
        head_switch: time(mechanics, "Head switch time", None)?,
        write_settle: milliseconds(settle),
        write_advance: milliseconds(-settle),
        least_write_seek: time(disk, "Minimum seek delay", Some(0.0))?,
        host_rate,
        bus,
        overheads: overheads(disk)?,
        access_on_arrival: read_on_arrival,
        write_on_arrival: (write_on_arrival != read_on_arrival).then_some(write_on_arrival),
        read_cache: read_cache(disk)?,
        write_cache: write_cache(disk)?,
        queue: queue(disk)?,
        power: PowerStates::default(),
        shingles: None,
    })
}

/// Reads the number and the size of the buffer's segments, in sectors.
fn segments(disk: &Block) -> Result<(u64, u64), DescriptionError> {
    let count = disk.whole("Number of buffer segments", (0, 1 << 32), Some(0))?;
    let size = disk.whole("Segment size (in blks)", (0, 1 << 32), Some(0))?;
    Ok((count, size.max(1)))
}

fn read_cache(disk: &Block) -> Result<ReadCache, DescriptionError> {
    let (segments, size) = segments(disk)?;
    let apart = disk.flag("Use separate write segment", false)?;
    let ahead = disk.whole("Maximum read-ahead (blks)", (0, 1 << 32), Some(0))?;
    let over = disk.number("Read-ahead over requested", (-1.0, 1.0), Some(1.0))?;
    Ok(ReadCache {
        segments: (segments - u64::from(apart && segments > 1)).max(1) as u32,
        segment_size: Size(size * 512),
        read_ahead: match disk.whole("Buffer continuous read", (0, 4), Some(0))? {
            0 => ReadAhead::None,
            1 => ReadAhead::Track,
            2 => ReadAhead::Cylinder,
            3 => ReadAhead::Segment,
            _ => ReadAhead::GrowingTrack,
        },
        maximum_read_ahead: Some(Size(512 * if ahead > 0 { ahead } else { size })),
        keeps_passing_sectors: disk.flag("Read any free blocks", false)?,
        hits_while_busy: disk.flag("Allow sneaky full read hits", false)?,
        restarts_on_hit: disk.flag("Read-ahead on idle hit", false)?,
        continues_at_end: disk.flag("Allow almost read hits", false)?,
        stops_within_sector: disk.flag("Stop prefetch in sector", false)?,
        forgets_sent: over < 0.0,
    })
}

fn write_cache(disk: &Block) -> Result<WriteCache, DescriptionError> {
    let (_, size) = segments(disk)?;
    let runs = disk.whole("Maximum number of write segments", (0, 65_536), Some(1))?.max(1);
    Ok(WriteCache {
        enabled: disk.whole("Fast write level", (0, 2), Some(0))? > 0,
        size: Size(size * 512 * runs),
        runs: runs as u32,
        answers_reads: disk.flag("Allow read hits on write data", false)?,
        shares_segments: !disk.flag("Use separate write segment", false)?,
        delay: Time(0),
        urgent_at: 1.0,
        age_limit: NEVER,
    })
}

fn queue(disk: &Block) -> Result<Queue, DescriptionError> {
    Ok(Queue {
        depth: disk.whole("Max queue length", (1, 65_536), Some(1))? as u32,
        order: Order::FirstComeFirstServed,
        age_limit: NEVER,
        // The measured disks are SCSI.
        flush_is_queued: true,
    })
}

/// Converts milliseconds; a negative time is none.
pub(super) fn milliseconds(milliseconds: f64) -> Time {
    Time(libm::round(milliseconds.max(0.0) * 1e6) as u64)
}

/// Reads a time given in milliseconds.
pub(super) fn time(
    block: &Block,
    key: &str,
    default: Option<f64>,
) -> Result<Time, DescriptionError> {
    block.number(key, (0.0, 1e6), default).map(milliseconds)
}

#[cfg(test)]
mod tests;
