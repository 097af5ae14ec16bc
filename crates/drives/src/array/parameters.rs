//! Parameters of an array.

use serde::Deserialize;

use crate::parameter::{ParameterError, require};
use hemi_units::{Power, Rate, Size, Time};

/// An array's parameters. Its members come from another preset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The members' preset: the name of a built-in one or, in a user's own file, the path of
    /// another file, ending in `.toml`. It may be an array itself.
    pub member: String,
    /// Number of members; at least [`Level::least`], even for RAID-10, at most 256.
    pub count: u32,
    /// RAID level.
    pub level: Level,
    /// Data on one member before the next one's turn; a multiple of 4 KiB.
    pub chunk: Size,
    /// The controller in front of the members. Without one the host does all the work, and
    /// neither its processor nor its memory is a limit.
    pub controller: Option<Controller>,
    /// Share of the power drawn from the wall that reaches drives and controller: above 0, at
    /// most 1. If absent it is 1, and the power counted is the devices' own.
    #[serde(default = "whole")]
    pub supply_efficiency: f64,
}

fn whole() -> f64 {
    1.0
}

/// RAID levels (those of Patterson, Gibson and Katz, SIGMOD 1988, and their successors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Striped, no redundancy. A single member is allowed: a drive behind a controller.
    Raid0,
    /// Mirrored: all members hold the same data.
    Raid1,
    /// Striped with one chunk of parity a row, in rotation.
    Raid5,
    /// Striped with two chunks of parity a row, in rotation.
    Raid6,
    /// Striped over mirrored pairs.
    Raid10,
}

/// A RAID controller.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Processor time for each request from the host.
    pub command: Time,
    /// Processor time for each request to a member.
    pub member_command: Time,
    /// Bandwidth between host and controller, both directions together.
    pub bandwidth: Rate,
    /// Bandwidth between the controller and all members together, parity included.
    pub member_bandwidth: Rate,
    /// Input rate of the parity engine.
    pub parity: Rate,
    /// Computation of the parity if only part of a row is written.
    pub partial_writes: PartialWrites,
    /// Cache for writes; without one they go through to the members.
    pub cache: Option<Cache>,
    /// Data read ahead of a sequential stream; none if absent.
    pub read_ahead: Option<Size>,
    /// Power of the controller itself.
    pub power: Option<Power>,
}

/// The computation of the parity if only part of a row is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartialWrites {
    /// The one of the two methods below that needs fewer reads.
    #[default]
    FewestReads,
    /// Uses the old parity and the old data that is overwritten.
    ReadModifyWrite,
    /// Uses all data of the row; the untouched part is read from the members.
    Reconstruct,
}

/// A write-back cache: a write is done once it is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Maximum amount of unwritten data; at least 64 KiB.
    pub size: Size,
    /// True if the cache survives a power cut (a battery, flash); a flush then does not drain
    /// it.
    pub protected: bool,
    /// Share of the cache that may be unwritten before rows that are not full are destaged, 0
    /// to 1.
    pub destage_from: f64,
    /// Number of rows destaged at once; at least 1.
    pub destage_depth: u32,
    /// Time after the last write at which everything is destaged, full rows or not.
    pub linger: Time,
}

impl Level {
    /// Returns the fewest members the level allows.
    pub fn least(self) -> u32 {
        match self {
            Level::Raid0 => 1,
            Level::Raid1 | Level::Raid10 => 2,
            Level::Raid5 => 3,
            Level::Raid6 => 4,
        }
    }

    /// Returns the number of data chunks in a row over `members` members: those whose capacity is
    /// usable.
    pub fn data(self, members: usize) -> usize {
        match self {
            Level::Raid1 => 1,
            Level::Raid10 => members / 2,
            Level::Raid0 | Level::Raid5 | Level::Raid6 => members - self.parity(),
        }
    }

    /// Returns the number of parity chunks in a row.
    pub fn parity(self) -> usize {
        match self {
            Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
        }
    }
}

/// Granularity of the cache in bytes; chunks are whole multiples.
pub(super) const BLOCK_BYTES: u64 = 4096;

impl Parameters {
    /// Returns an error naming the parameter if no array can have these parameters.
    pub fn check(&self) -> Result<(), ParameterError> {
        let least = match self.level {
            Level::Raid0 => "at least 1 member for RAID-0, and at most 256",
            Level::Raid1 => "at least 2 members for RAID-1, and at most 256",
            Level::Raid5 => "at least 3 members for RAID-5, and at most 256",
            Level::Raid6 => "at least 4 members for RAID-6, and at most 256",
            Level::Raid10 => "an even number of at least 2 members for RAID-10, at most 256",
        };
        let even = self.level != Level::Raid10 || self.count.is_multiple_of(2);
        let count = (self.level.least()..=256).contains(&self.count) && even;
        require(count, "count", self.count, least)?;
        let chunk = self.chunk.0 > 0 && self.chunk.0.is_multiple_of(BLOCK_BYTES);
        let bytes = format!("{} B", self.chunk.0);
        require(chunk, "chunk", bytes, "a multiple of 4 KiB, above zero")?;
        require(!self.member.is_empty(), "member", "empty", "the name of a preset")?;
        let efficiency = self.supply_efficiency;
        let share = efficiency > 0.0 && efficiency <= 1.0;
        require(share, "supply_efficiency", efficiency, "a share above 0, at most 1")?;
        self.controller.as_ref().map_or(Ok(()), Controller::check)
    }
}

impl Controller {
    fn check(&self) -> Result<(), ParameterError> {
        let rates = [
            ("controller.bandwidth", self.bandwidth),
            ("controller.member_bandwidth", self.member_bandwidth),
            ("controller.parity", self.parity),
        ];
        for (name, rate) in rates {
            require(rate.0 > 0, name, "0", "a rate above zero")?;
        }
        let Some(cache) = self.cache else { return Ok(()) };
        let bytes = format!("{} B", cache.size.0);
        require(cache.size.0 >= 64 << 10, "controller.cache.size", bytes, "at least 64 KiB")?;
        let share = (0.0..=1.0).contains(&cache.destage_from);
        let name = "controller.cache.destage_from";
        require(share, name, cache.destage_from, "a share from 0 to 1")?;
        let depth = cache.destage_depth > 0;
        require(depth, "controller.cache.destage_depth", 0, "at least 1")
    }
}
