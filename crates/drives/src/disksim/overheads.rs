//! Overheads of commands, and the bus, of a DiskSim description.

use super::drive::{HUGE, milliseconds, time};
use super::text::{Block, DescriptionError};
use crate::hdd::bus::{Bus, Disconnection, SplitWrites};
use crate::hdd::parameters::{Overhead, Overheads};
use hemi_units::{Rate, Time};

/// The rate that stands for a transfer that takes no time.
const NO_TIME: Rate = Rate(1 << 40);

/// Converts the overheads of commands.
pub(super) fn overheads(disk: &Block) -> Result<Overheads, DescriptionError> {
    let each = disk.number("Per-request overhead time", (0.0, 1e6), Some(0.0))?;
    let both = |name: &str| {
        Ok(Overhead {
            after_read: scaled(disk, &format!("{name} over. after read"), each)?,
            after_write: scaled(disk, &format!("{name} over. after write"), each)?,
        })
    };
    Ok(Overheads {
        read_hit: both("Read hit")?,
        read_miss: both("Read miss")?,
        write_hit: both("Write hit")?,
        write_miss: both("Write miss")?,
        flush: Time(0),
    })
}

/// Reads an overhead, multiplies it by the file's scale and adds `more` milliseconds.
fn scaled(disk: &Block, key: &str, more: f64) -> Result<Time, DescriptionError> {
    let scale = disk.number("Time scale for overheads", (0.0, 1e3), Some(1.0))?;
    let time = disk.number(key, (0.0, 1e6), Some(0.0))?;
    Ok(milliseconds(time * scale + more))
}

/// Converts the bus. `path` has the buses and controllers between host and disk, if they are
/// known. Returns the rate of reads and the rest.
pub(super) fn bus(disk: &Block, path: &[Block]) -> Result<(Rate, Bus), DescriptionError> {
    let own = disk.number("Bulk sector transfer time", (0.0, HUGE), Some(0.0))?;
    let rate = |key: &str| -> Result<Rate, DescriptionError> {
        // A sector crosses as fast as the slowest of the disk, its bus and the controllers lets it.
        let mut slowest = own;
        for one in path {
            let key = if one.kind == "disksim_bus" { key } else { "Bulk sector transfer time" };
            slowest = slowest.max(one.number(key, (0.0, HUGE), Some(0.0))?);
        }
        Ok(if slowest > 0.0 { Rate(libm::round(512e3 / slowest) as u64) } else { NO_TIME })
    };
    let (read, write) = (rate("Read block transfer time")?, rate("Write block transfer time")?);
    let one = |key: &str| scaled(disk, key, 0.0);
    let bus = Bus {
        write_rate: (write != read).then_some(write),
        data_preparation: one("Data preparation overhead")?,
        read_completion: one("Read completion overhead")?,
        write_completion: one("Write completion overhead")?,
        disconnection: disconnection(disk)?,
    };
    Ok((read, bus))
}

/// Converts the rules of leaving the bus. Returns `None` if they change nothing.
fn disconnection(disk: &Block) -> Result<Option<Disconnection>, DescriptionError> {
    let one = |key: &str| scaled(disk, key, 0.0);
    let split_writes = SplitWrites {
        command: one("Extradisc command overhead")?,
        after_command: one("Extradisc disconnect overhead")?,
        // Not an overhead, so the scale does not apply.
        pause: time(disk, "Extradisc inter-disconnect delay", Some(0.0))?,
        after_data: one("Extradisc 2nd disconnect overhead")?,
        reselection: one("Other reselect overhead")?,
        seek_delay: one("Extradisc seek delta")?,
    };
    let rules = Disconnection {
        after_read_command: Overhead {
            after_read: one("Read disconnect afterread")?,
            after_write: one("Read disconnect afterwrite")?,
        },
        after_write_data: one("Write disconnect overhead")?,
        reselection: one("First reselect overhead")?,
        read_watermark: disk.number("High (read) water mark", (0.0, 1.0), Some(0.0))?,
        watermark_of_segment: !disk.flag("Set watermark by reqsize", true)?,
        split_writes: disk.flag("Extra write disconnect", false)?.then_some(split_writes),
    };
    let stays = disk.flag("Never disconnect", false)?;
    let nothing = Disconnection {
        watermark_of_segment: rules.watermark_of_segment,
        ..Disconnection::default()
    };
    Ok((!stays && rules != nothing).then_some(rules))
}
