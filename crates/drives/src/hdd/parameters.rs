//! What a hard disk is made of.

use serde::Deserialize;

use super::geometry::Layout;
use super::seek::SeekCurve;
use crate::parameter::{ParameterError, require};
use hemi_units::{Power, Rate, Size, Time};

/// A hard disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Revolutions a minute; 1,000 to 60,000.
    pub revolutions_per_minute: u32,
    /// Share by which one disk's speed may differ from that, either way: each is drawn from its
    /// seed. At most 0.001, so that no skew comes too short; 0 where absent.
    #[serde(default)]
    pub speed_tolerance: f64,
    /// Zones, heads, skews.
    pub layout: Layout,
    /// How long the arm takes, by distance.
    pub seek: SeekCurve,
    /// Switching to another head of the same cylinder, and the least time a seek to another
    /// head takes; at most a revolution.
    pub head_switch: Time,
    /// Settling added before a write wherever the arm has moved or the head was switched.
    #[serde(default)]
    pub write_settle: Time,
    /// Between the drive's buffer and the host.
    pub host_rate: Rate,
    /// What a command costs before anything else happens.
    #[serde(default)]
    pub overheads: Overheads,
    /// Whether a transfer may begin in the middle of the wanted part of a track, so that a
    /// whole track never takes more than one revolution.
    #[serde(default)]
    pub access_on_arrival: bool,
    /// Segments and read-ahead.
    pub read_cache: ReadCache,
    /// Writes reported done before they are.
    pub write_cache: WriteCache,
    /// Commands the drive takes at a time, and in which order.
    pub queue: Queue,
    /// Watts.
    #[serde(default)]
    pub power: PowerStates,
    /// Overlapping tracks, managed by the drive; absent in a conventional disk.
    pub shingles: Option<Shingles>,
}

/// What commands cost, by what they are and by what was done before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overheads {
    /// A read that the cache answers, at least in part.
    pub read_hit: Overhead,
    /// A read from the medium: before the arm moves.
    pub read_miss: Overhead,
    /// A write into the cache.
    pub write_hit: Overhead,
    /// A write to the medium: before the arm moves.
    pub write_miss: Overhead,
    /// A flush.
    pub flush: Time,
}

/// A command's cost after a read and after a write; in a preset one time for both, or
/// `{ after_read = …, after_write = … }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "OverheadText")]
pub struct Overhead {
    /// Where the command done before was a read.
    pub after_read: Time,
    /// Where it was a write.
    pub after_write: Time,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OverheadText {
    Same(Time),
    ByPrevious { after_read: Time, after_write: Time },
}

impl From<OverheadText> for Overhead {
    fn from(text: OverheadText) -> Overhead {
        match text {
            OverheadText::Same(time) => Overhead { after_read: time, after_write: time },
            OverheadText::ByPrevious { after_read, after_write } => {
                Overhead { after_read, after_write }
            }
        }
    }
}

/// Where read-ahead stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// At once: only what was asked for is read.
    None,
    /// At the end of the track.
    Track,
    /// At the end of the track; at the end of the next where the stream began on an earlier
    /// one, and so looks sequential.
    GrowingTrack,
    /// At the end of the cylinder.
    Cylinder,
    /// [`ReadCache::maximum_read_ahead`] past the request.
    Segment,
}

/// The read cache: segments, each holding one run of sectors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCache {
    /// How many; 1 to 4096.
    pub segments: u32,
    /// Of each; at least a sector.
    pub segment_size: Size,
    /// Where reading on after a request stops.
    pub read_ahead: ReadAhead,
    /// Most that is read past a request with [`ReadAhead::Segment`]; the segment's size where
    /// absent.
    pub maximum_read_ahead: Option<Size>,
    /// Whether what passes under the head before the wanted sector comes is kept.
    #[serde(default)]
    pub keeps_passing_sectors: bool,
    /// Whether the cache answers while the arm works for something else; otherwise a hit waits
    /// for it as a miss would.
    #[serde(default = "yes")]
    pub hits_while_busy: bool,
    /// Whether a hit makes read-ahead that had stopped go on.
    #[serde(default = "yes")]
    pub restarts_on_hit: bool,
    /// Whether a request that begins with the very sector that is read ahead next goes on with
    /// it; otherwise the arm starts anew.
    #[serde(default = "yes")]
    pub continues_at_end: bool,
}

/// The write cache: runs of sectors that are not on the medium yet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCache {
    /// Whether writes are reported before they are on the medium.
    pub enabled: bool,
    /// Most that is held.
    pub size: Size,
    /// Most runs that are held, adjacent writes being one; 1 to 65,536.
    pub runs: u32,
    /// Whether what is held, and what was, answers reads.
    #[serde(default = "yes")]
    pub answers_reads: bool,
    /// Whether a run takes one of the read cache's segments.
    #[serde(default)]
    pub shares_segments: bool,
    /// How long the arm must have had nothing else to do before it writes back.
    #[serde(default)]
    pub delay: Time,
    /// Share of size or of runs from which on writing back no longer yields to other requests.
    #[serde(default = "most")]
    pub urgent_at: f64,
    /// Age from which on it no longer yields either, and a run is next whatever it costs;
    /// 30 s where absent: far above what a full cache takes in the best order.
    #[serde(default = "cache_age_limit")]
    pub age_limit: Time,
}

/// In which order the medium is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As requests came.
    FirstComeFirstServed,
    /// The one that the head reaches first.
    ShortestPositioningFirst,
}

/// The command queue (NCQ, tagged queueing).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Most commands the drive takes at a time; 1 without queueing, 32 with SATA's, at most
    /// 65,536.
    pub depth: u32,
    /// Which is next.
    pub order: Order,
    /// A request that has waited longer comes first whatever it costs; 500 ms where absent.
    #[serde(default = "queue_age_limit")]
    pub age_limit: Time,
    /// Whether a flush is one of the queued commands, as SCSI has it. ATA's is not: it begins
    /// when those before it are done, and those after it begin when it is.
    #[serde(default)]
    pub flush_is_queued: bool,
}

/// Watts by state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerStates {
    /// While the arm works.
    pub active: Power,
    /// Spinning, with nothing to do.
    pub idle: Power,
    /// Not spinning.
    pub standby: Power,
    /// How long without a request until the spindle stops; never where absent.
    pub spin_down_after: Option<Time>,
    /// From standstill until requests are served again.
    #[serde(default)]
    pub spin_up: Time,
}

/// Shingled recording managed by the drive: writes out of order go to a zone of their own
/// first (the persistent cache) and from there into their band, which is read and rewritten
/// whole.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shingles {
    /// A band: tracks that can only be rewritten together.
    pub band: Size,
    /// The persistent cache, at the disk's outer edge, beyond the host's sectors.
    pub persistent_cache: Size,
    /// How long without a request until cleaning begins.
    pub clean_when_idle_for: Time,
    /// Share of the persistent cache in use from which on cleaning no longer waits for
    /// idleness …
    pub clean_from: f64,
    /// … until this share is.
    pub clean_to: f64,
}

fn yes() -> bool {
    true
}

fn most() -> f64 {
    0.75
}

fn queue_age_limit() -> Time {
    Time(500_000_000)
}

fn cache_age_limit() -> Time {
    Time(30_000_000_000)
}

impl Parameters {
    /// A revolution, nanoseconds.
    pub fn revolution(&self) -> f64 {
        60e9 / f64::from(self.revolutions_per_minute)
    }

    /// Refuses what no disk can be.
    pub fn check(&self) -> Result<(), ParameterError> {
        let rpm = self.revolutions_per_minute;
        require((1_000..=60_000).contains(&rpm), "revolutions_per_minute", rpm, "1000 to 60000")?;
        let tolerance = self.speed_tolerance;
        let right = "a share from 0 to 0.001";
        require((0.0..=0.001).contains(&tolerance), "speed_tolerance", tolerance, right)?;
        self.layout.check()?;
        self.seek.check()?;
        let turn = self.revolution() as u64;
        let switch = self.head_switch.0;
        require(switch <= turn, "head_switch", format!("{switch} ns"), "at most a revolution")?;
        let settle = self.write_settle.0;
        require(settle <= turn, "write_settle", format!("{settle} ns"), "at most a revolution")?;
        let rate = self.host_rate.0;
        require(rate >= 1_000, "host_rate", rate, "at least 1 kB/s")?;
        let read = &self.read_cache;
        let (segments, size) = (read.segments, read.segment_size.0);
        require((1..=4096).contains(&segments), "read_cache.segments", segments, "1 to 4096")?;
        require(size >= 512, "read_cache.segment_size", size, "at least 512 B")?;
        let write = &self.write_cache;
        let (runs, size) = (write.runs, write.size.0);
        require((1..=65_536).contains(&runs), "write_cache.runs", runs, "1 to 65536")?;
        require(size >= 512, "write_cache.size", size, "at least 512 B")?;
        let share = |share: f64| (0.0..=1.0).contains(&share);
        let urgent = write.urgent_at;
        require(share(urgent), "write_cache.urgent_at", urgent, "a share from 0 to 1")?;
        let depth = self.queue.depth;
        require((1..=65_536).contains(&depth), "queue.depth", depth, "1 to 65536")?;
        if let Some(shingles) = &self.shingles {
            let band = shingles.band.0;
            require(band >= 1 << 20, "shingles.band", band, "at least 1 MiB")?;
            let cache = shingles.persistent_cache.0;
            let enough = cache >= 4 * band;
            require(enough, "shingles.persistent_cache", cache, "at least four bands")?;
            let (from, to) = (shingles.clean_from, shingles.clean_to);
            require(
                from > 0.0 && from <= 0.95,
                "shingles.clean_from",
                from,
                "above 0, at most 0.95",
            )?;
            require(
                (0.0..from).contains(&to),
                "shingles.clean_to",
                to,
                "from 0 to below clean_from",
            )?;
        }
        Ok(())
    }
}
