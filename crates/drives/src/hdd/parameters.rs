//! Parameters of a hard disk.

use serde::{Deserialize, Serialize};

use super::bus::Bus;
use super::geometry::Layout;
use super::seek::SeekCurve;
use crate::parameter::{ParameterError, require};
use hemi_units::{Power, Rate, Size, Time};

/// A hard disk.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Revolutions per minute; 1,000 to 60,000.
    pub revolutions_per_minute: u32,
    /// Largest deviation of one disk's speed from nominal, as a share, in either direction;
    /// each disk draws its own from its seed. At most 0.001, so that no skew becomes too short;
    /// 0 if absent.
    #[serde(default)]
    pub speed_tolerance: f64,
    /// Layout: zones, heads, skews.
    pub layout: Layout,
    /// Seek time by distance.
    pub seek: SeekCurve,
    /// Time to switch to another head of the same cylinder, and the least time of a seek to
    /// another head. At most a revolution.
    pub head_switch: Time,
    /// Settling time added before a write if the arm has moved or the head was switched.
    #[serde(default)]
    pub write_settle: Time,
    /// Time by which a write may begin sooner than a read after the same movement, where a disk
    /// was measured so; at most `head_switch`.
    #[serde(default)]
    pub write_advance: Time,
    /// Least time of the arm's movement before a write, even to the track it is on.
    #[serde(default)]
    pub least_write_seek: Time,
    /// Rate between the drive's buffer and the host.
    pub host_rate: Rate,
    /// Times of a drive on a shared bus, beside those of moving data.
    #[serde(default)]
    pub bus: Bus,
    /// Cost of a command before anything else happens.
    #[serde(default)]
    pub overheads: Overheads,
    /// True if a transfer may begin in the middle of the wanted part of a track, so that a
    /// whole track never takes more than one revolution.
    #[serde(default)]
    pub access_on_arrival: bool,
    /// The same for writes; as for reads if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_on_arrival: Option<bool>,
    /// The read cache: segments and read-ahead.
    pub read_cache: ReadCache,
    /// Writes reported as done before they are on the medium.
    pub write_cache: WriteCache,
    /// Number of commands the drive takes at a time, and their order.
    pub queue: Queue,
    /// Power by state.
    #[serde(default)]
    pub power: PowerStates,
    /// Overlapping tracks, managed by the drive; absent in a conventional disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shingles: Option<Shingles>,
}

/// Costs of commands, by kind and by the command before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overheads {
    /// A read answered by the cache, at least in part.
    pub read_hit: Overhead,
    /// A read from the medium, before the arm moves.
    pub read_miss: Overhead,
    /// A write into the cache.
    pub write_hit: Overhead,
    /// A write to the medium, before the arm moves.
    pub write_miss: Overhead,
    /// A flush.
    pub flush: Time,
}

/// The cost of a command after a read and after a write. A preset gives one time for both, or
/// `{ after_read = …, after_write = … }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(from = "OverheadText", into = "OverheadText")]
pub struct Overhead {
    /// Cost if the previous command was a read.
    pub after_read: Time,
    /// Cost if the previous command was a write.
    pub after_write: Time,
}

#[derive(Deserialize, Serialize)]
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

impl From<Overhead> for OverheadText {
    fn from(Overhead { after_read, after_write }: Overhead) -> OverheadText {
        if after_read == after_write {
            return OverheadText::Same(after_read);
        }
        OverheadText::ByPrevious { after_read, after_write }
    }
}

/// The place at which read-ahead stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAhead {
    /// Stops at the end of the request: there is no read-ahead.
    None,
    /// Stops at the end of the track.
    Track,
    /// Stops at the end of the track, or at the end of the next one if the stream began on an
    /// earlier track and so looks sequential.
    GrowingTrack,
    /// Stops at the end of the cylinder.
    Cylinder,
    /// Stops [`ReadCache::maximum_read_ahead`] past the request.
    Segment,
}

/// The read cache: segments, each holding one run of sectors.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadCache {
    /// Number of segments, 1 to 4096.
    pub segments: u32,
    /// Size of each segment, at least a sector.
    pub segment_size: Size,
    /// Place at which read-ahead stops.
    pub read_ahead: ReadAhead,
    /// Maximum amount of data read past a request. If absent, the segment's size with
    /// [`ReadAhead::Segment`] and no other limit with the rest. [`ReadAhead::GrowingTrack`] has
    /// no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_read_ahead: Option<Size>,
    /// True if sectors that pass under the head before the wanted one are kept.
    #[serde(default)]
    pub keeps_passing_sectors: bool,
    /// True if the cache answers while the arm does other work; otherwise a hit waits for the
    /// arm as a miss would.
    #[serde(default = "yes")]
    pub hits_while_busy: bool,
    /// True if a hit restarts read-ahead that had stopped.
    #[serde(default = "yes")]
    pub restarts_on_hit: bool,
    /// True if a request that begins with the very sector to be read ahead next continues the
    /// read-ahead; otherwise the arm starts anew.
    #[serde(default = "yes")]
    pub continues_at_end: bool,
    /// True if reading ahead stops in the middle of a sector, not at its end.
    #[serde(default)]
    pub stops_within_sector: bool,
    /// True if the cache forgets sectors once they are sent, so that only what was read ahead
    /// answers.
    #[serde(default)]
    pub forgets_sent: bool,
}

/// The write cache: runs of sectors that are not on the medium yet.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCache {
    /// True if writes are reported before they are on the medium.
    pub enabled: bool,
    /// Maximum amount of data held.
    pub size: Size,
    /// Maximum number of runs held, where adjacent writes are one run; 1 to 65,536.
    pub runs: u32,
    /// True if sectors held, or written back from here, answer reads.
    #[serde(default = "yes")]
    pub answers_reads: bool,
    /// True if a run takes one of the read cache's segments.
    #[serde(default)]
    pub shares_segments: bool,
    /// Time the arm must have been free of other work before it writes back.
    #[serde(default)]
    pub delay: Time,
    /// Share of size or of runs from which on writing back no longer yields to other requests.
    #[serde(default = "most")]
    pub urgent_at: f64,
    /// Age from which on writing back no longer yields either, and a run is next whatever its
    /// cost. 30 s if absent, far above the time a full cache takes in the best order.
    #[serde(default = "cache_age_limit")]
    pub age_limit: Time,
}

/// The order in which the medium is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The request that arrived first.
    FirstComeFirstServed,
    /// The request that the head reaches first.
    ShortestPositioningFirst,
}

/// The command queue (NCQ, tagged queueing).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Maximum number of commands the drive takes at a time: 1 without queueing, 32 with
    /// SATA's, at most 65,536.
    pub depth: u32,
    /// Order in which they are served.
    pub order: Order,
    /// Age from which on a request comes first whatever its cost; 500 ms if absent.
    #[serde(default = "queue_age_limit")]
    pub age_limit: Time,
    /// True if a flush is a queued command, as in SCSI. ATA's is not: it begins when the
    /// commands before it are done, and later ones begin when it is.
    #[serde(default)]
    pub flush_is_queued: bool,
}

/// Power by state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PowerStates {
    /// Power while the arm works.
    pub active: Power,
    /// Power while spinning and idle.
    pub idle: Power,
    /// Power while not spinning.
    pub standby: Power,
    /// Time without a request after which the spindle stops; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_down_after: Option<Time>,
    /// Time from standstill until requests are served again.
    #[serde(default)]
    pub spin_up: Time,
}

/// Shingled recording managed by the drive. Writes out of order first go to a zone of their own
/// (the persistent cache), and from there into their band, which is read and rewritten as a
/// whole.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shingles {
    /// Size of a band: tracks that can only be rewritten together.
    pub band: Size,
    /// Size of the persistent cache, at the disk's outer edge, outside the host's sectors.
    pub persistent_cache: Size,
    /// Idle time after which cleaning begins.
    pub clean_when_idle_for: Time,
    /// Share of the persistent cache in use from which on cleaning no longer waits for
    /// idleness.
    pub clean_from: f64,
    /// Share down to which it then cleans.
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
    /// Returns the time of a revolution, in nanoseconds.
    pub fn revolution(&self) -> f64 {
        60e9 / f64::from(self.revolutions_per_minute)
    }

    /// Returns an error if no disk can have these parameters.
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
        let advance = self.write_advance.0;
        let right = advance <= switch;
        require(right, "write_advance", format!("{advance} ns"), "at most head_switch")?;
        let least = self.least_write_seek.0;
        let right = least <= turn;
        require(right, "least_write_seek", format!("{least} ns"), "at most a revolution")?;
        self.bus.check()?;
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
