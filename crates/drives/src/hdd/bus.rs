//! A bus that a drive shares with others and leaves while its arm works (parallel SCSI).
//!
//! A drive on a wire of its own moves data as soon as there is some. On a shared bus a drive
//! leaves after the command (it disconnects), takes the bus again when enough data is there (it
//! reselects the host), and reports the end. Each of these takes time.
//!
//! Source: the meaning of DiskSim's parameters (Bucy and others, "The DiskSim simulation
//! environment version 4.0 reference manual", CMU-PDL-08-101).

use hemi_units::{Extent, Instant, Rate, Time};
use serde::{Deserialize, Serialize};

use super::Hdd;
use super::parameters::Overhead;
use crate::parameter::{ParameterError, require};

/// Times of a shared bus, beside those of moving data. All zero in a drive that has a wire of
/// its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bus {
    /// Rate between the host and the drive's buffer during writes; `host_rate` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_rate: Option<Rate>,
    /// Time from when the drive has the bus until data crosses it.
    pub data_preparation: Time,
    /// Time to report the end of a read.
    pub read_completion: Time,
    /// Time to report the end of a write.
    pub write_completion: Time,
    /// Rules of a drive that leaves the bus while the arm works; one that keeps it if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnection: Option<Disconnection>,
}

/// Times and rules of leaving the bus.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Disconnection {
    /// Time to leave the bus after the command of a read.
    pub after_read_command: Overhead,
    /// Time to leave the bus after the data of a write.
    pub after_write_data: Time,
    /// Time to take the bus again.
    pub reselection: Time,
    /// Share of a read, from 0 to 1, that must be in the buffer before the drive takes the bus
    /// again; at least a sector.
    pub read_watermark: f64,
    /// True if the watermark is a share of a segment of the read cache rather than of the read.
    pub watermark_of_segment: bool,
    /// Times of a drive that also leaves the bus between command and data of a write that
    /// follows another write, but does not continue it. Such a drive begins to write once some
    /// sectors have come: 10, or 15 of a write of at least 45.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_writes: Option<SplitWrites>,
}

/// Times of a write whose command and data cross the bus apart from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitWrites {
    /// Time of the command, instead of [`Overheads::write_miss`](super::parameters::Overheads).
    pub command: Time,
    /// Time to leave the bus after the command.
    pub after_command: Time,
    /// Time off the bus before the drive takes it for the data.
    pub pause: Time,
    /// Time to leave the bus after the data.
    pub after_data: Time,
    /// Time to take the bus for the report of the end.
    pub reselection: Time,
    /// Time from the end of `command` until the arm moves.
    pub seek_delay: Time,
}

impl Bus {
    /// Returns an error if no bus can be so.
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        if let Some(rate) = self.write_rate {
            require(rate.0 >= 1_000, "bus.write_rate", rate.0, "at least 1 kB/s")?;
        }
        let share = self.disconnection.as_ref().map_or(0.0, |rules| rules.read_watermark);
        let right = (0.0..=1.0).contains(&share);
        require(right, "bus.disconnection.read_watermark", share, "a share from 0 to 1")
    }
}

/// The passage of a write's data over the bus. Unused by reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteData {
    /// Time from which the data crosses the bus.
    from: Instant,
    /// True if command and data cross the bus apart from each other.
    split: bool,
}

/// The arrival in the buffer of data that is to be written to the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Time at which enough is there to begin.
    pub(super) enough: Instant,
    /// Time at which all is there.
    pub(super) all: Instant,
    /// One past the last sector on the medium.
    end: u64,
    /// Time between a sector and the next, in nanoseconds × 2¹⁶.
    bus_sector: u64,
}

impl Arrival {
    /// Returns the arrival of data that is all there at `at`.
    pub(super) fn at_once(at: Instant, end: u64) -> Arrival {
        Arrival { enough: at, all: at, end, bus_sector: 0 }
    }

    /// Returns the time from which on the sectors from `first` to before `end` may pass, each in
    /// `sector_time` nanoseconds × 2¹⁶: each is there before it begins to pass.
    pub(super) fn lets_pass(&self, first: u64, end: u64, sector_time: u64) -> Instant {
        let there = |sector: u64| {
            let behind = (self.end.saturating_sub(sector + 1) * self.bus_sector) >> 16;
            self.enough.max(self.all - behind)
        };
        let passing = ((end - 1 - first) * sector_time) >> 16;
        there(first).max(there(end - 1) - passing)
    }
}

/// Sectors of any write that must have come before the first is written by a drive that splits
/// some: these, or [`SECTORS_FIRST_OF_LONG`] of a write of at least [`LONG`] sectors. The rule
/// and its numbers are DiskSim's, measured on an HP C2247A.
const SECTORS_FIRST: u64 = 10;
const SECTORS_FIRST_OF_LONG: u64 = 15;
const LONG: u64 = 45;

impl Hdd {
    /// Returns the time at which the data of a read begins to cross the bus. The command was
    /// worked out at `ready`. The cache answers if `enough` is absent. Otherwise the medium
    /// does, and the data up to the watermark is in the buffer at `enough`.
    pub(super) fn read_crosses_from(&self, ready: Instant, enough: Option<Instant>) -> Instant {
        let bus = &self.parameters.bus;
        let begin = match (&bus.disconnection, enough) {
            (Some(rules), Some(enough)) => {
                let left = ready + self.by_previous(rules.after_read_command).0;
                left.max(enough) + rules.reselection.0
            }
            _ => ready,
        };
        begin + bus.data_preparation.0
    }

    /// Returns the number of sectors of a read that have to be in the buffer before the drive
    /// takes the bus again.
    pub(super) fn watermark(&self, sectors: u64) -> u64 {
        let Some(rules) = &self.parameters.bus.disconnection else { return 1 };
        let segment = self.parameters.read_cache.segment_size.0 / 512;
        let wanted = if rules.watermark_of_segment {
            libm::ceil(segment as f64 * rules.read_watermark)
        } else {
            libm::floor(segment.min(sectors) as f64 * rules.read_watermark)
        };
        (wanted as u64).clamp(1, sectors.max(1))
    }

    /// Works out the command of a write that bypasses the cache and came at `now`. Returns the
    /// time from which the arm may move, and the passage of the data.
    pub(super) fn write_command(&mut self, now: Instant, extent: Extent) -> (Instant, WriteData) {
        let bus = &self.parameters.bus;
        let preparation = bus.data_preparation.0;
        let follows = !self.after_read && extent.start != self.last_write_end;
        let rules = bus.disconnection.as_ref().filter(|_| follows);
        let split = rules.and_then(|rules| rules.split_writes.map(|one| (one, rules.reselection)));
        self.last_write_end = extent.end;
        let Some((split, reselection)) = split else {
            let ready = self.command(now, self.parameters.overheads.write_miss);
            return (ready, WriteData { from: ready + preparation, split: false });
        };
        let both = Overhead { after_read: split.command, after_write: split.command };
        let ready = self.command(now, both);
        let off = split.after_command.0 + split.pause.0 + reselection.0;
        let data = WriteData { from: ready + off + preparation, split: true };
        (ready + split.seek_delay.0, data)
    }

    /// Returns the arrival of a write's data.
    pub(super) fn write_arrival(&self, data: WriteData, extent: Extent) -> Arrival {
        let sectors = extent.sectors();
        let rules = self.parameters.bus.disconnection.as_ref();
        let splits = rules.is_some_and(|rules| rules.split_writes.is_some());
        let first = match splits {
            true if sectors >= LONG => SECTORS_FIRST_OF_LONG,
            true => sectors.min(SECTORS_FIRST),
            false => 1,
        };
        let there = (data.from + self.write_bus(first), data.from + self.write_bus(sectors));
        self.arrival(there, extent.end)
    }

    /// Returns the arrival of data for sectors up to `end` on the medium: enough of it to begin
    /// and all of it are there at the two times in `there`.
    pub(super) fn arrival(&self, there: (Instant, Instant), end: u64) -> Arrival {
        Arrival { enough: there.0, all: there.1, end, bus_sector: self.write_bus_sector }
    }

    /// Returns the time at which the host learns that a write has ended. It was on the medium
    /// at `written`, and its data had crossed the bus at `crossed`.
    pub(super) fn write_reported(
        &self,
        data: WriteData,
        written: Instant,
        crossed: Instant,
    ) -> Instant {
        let bus = &self.parameters.bus;
        let Some(rules) = &bus.disconnection else { return written + bus.write_completion.0 };
        let (leave, reselection) = match rules.split_writes.filter(|_| data.split) {
            Some(split) => (split.after_data, split.reselection),
            None => (rules.after_write_data, rules.reselection),
        };
        written.max(crossed + leave.0) + reselection.0 + bus.write_completion.0
    }

    /// Takes the bus for a write's data.
    pub(super) fn take_bus_for(&mut self, data: WriteData, sectors: u64) {
        self.take_bus(data.from, self.write_bus(sectors));
    }
}
