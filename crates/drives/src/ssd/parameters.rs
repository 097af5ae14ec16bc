//! Parameters of a flash drive.

use serde::Deserialize;

use super::translation::Shape;
use super::victim::Policy;
use hemi_units::{Power, Rate, Size, Time};

/// The parameters of a flash drive, as a preset gives them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Capacity seen by the host.
    pub capacity: Size,
    /// Raw flash / capacity, α: above 1. Over-provisioning is stored as this one number;
    /// [`Parameters::spare_of_raw`] and [`Parameters::spare_of_user`] give its two common
    /// forms.
    pub alpha: f64,
    /// Share of the raw flash that can hold neither data nor spare: parity over dies, tables.
    #[serde(default)]
    pub raw_loss: f64,
    /// Divides capacity and blocks, to save time and memory; rates stay the same. The pool of
    /// free blocks keeps its size, so that the spare left to data keeps its share.
    #[serde(default = "one")]
    pub scale: u32,

    /// Data bytes of a flash page, of one plane of one die.
    pub page: Size,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Channels between controller and dies.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die, always read, programmed and erased together.
    pub planes: u32,
    /// Dies in lockstep, as in early controllers. Together they are one lane, whose page and
    /// block are that many times as large.
    #[serde(default = "one")]
    pub gang: u32,
    /// Unit of the mapping table: several to a flash page, or as large as many pages (up to a
    /// whole block of a lane), where a smaller write costs copying the rest.
    pub mapping_unit: Size,

    /// True if a write smaller than the unit goes to a log block first and is merged from there
    /// into the unit (hybrid mapping, as in early controllers); it is then programmed twice.
    #[serde(default)]
    pub log_blocks: bool,

    /// Time to sense a page, by type of page if there are several (page p of a block has type p
    /// modulo their number).
    pub page_read: Vec<Time>,
    /// Time to program a page, by type of page as for reads.
    pub page_program: Vec<Time>,
    /// Time to erase a block.
    pub block_erase: Time,
    /// Time to suspend a program or an erase for a read, and again to resume it. If absent,
    /// reads wait.
    pub suspend: Option<Time>,
    /// Rate of one channel.
    pub channel_rate: Rate,
    /// True if copies stay within the die (copyback) instead of crossing the channel and back.
    #[serde(default)]
    pub copyback: bool,

    /// Rate of the link between host and drive.
    pub link_rate: Rate,
    /// True if the link carries both directions at once (PCI Express), false if one (SATA).
    #[serde(default)]
    pub full_duplex: bool,
    /// Commands the drive takes at a time; the others wait in the host.
    pub queue_depth: u32,
    /// Time of the controller's processor for each read; commands are processed one at a time.
    pub read_command: Time,
    /// Time of the processor for each other command.
    pub write_command: Time,
    /// Time of the processor for each 4 KiB moved between host and drive.
    pub block_command: Time,
    /// Time of the processor for each unit copied. (If the translation layer runs on the host's
    /// processor, this is the time of its driver.)
    pub copy_command: Time,
    /// True if the processor handles reads (and flushes and trims) before the writes and copies
    /// that wait for it.
    #[serde(default)]
    pub reads_overtake: bool,
    /// Additional latency of each read, during which others proceed: protocol, firmware.
    pub read_latency: Time,
    /// The same for each other command.
    pub write_latency: Time,

    /// DRAM for data not yet programmed. A write is done when it is there.
    pub buffer: Size,
    /// Time that data may wait in the buffer for more to fill its page or unit.
    pub buffer_hold: Time,
    /// True if the buffer survives a power cut; a flush then need not wait.
    #[serde(default)]
    pub power_loss_protection: bool,
    /// True if a write is done when it is in the buffer, false if only on flash.
    #[serde(default = "yes")]
    pub write_cache: bool,
    /// Time of a flush in addition to programming the buffer (writing tables).
    #[serde(default)]
    pub flush_time: Time,
    /// True if trimmed sectors become spare.
    #[serde(default = "yes")]
    pub trim: bool,
    /// DRAM for the table, if it does not hold all of it; a miss costs reading flash.
    pub map_cache: Option<Size>,
    /// The SLC cache, if any.
    pub slc: Option<SlcParameters>,

    /// Choice of the blocks to collect.
    pub victim: Policy,
    /// True if collected units are written apart from the host's.
    #[serde(default)]
    pub hot_cold: bool,
    /// Free blocks of each lane reserved for collection; at least 1, 2 with `hot_cold`.
    pub reserve: u32,
    /// Free blocks of a lane below which it is collected.
    pub collection_start: u32,
    /// Largest share of programmed data that may be copies while the host writes, as long as
    /// there are free blocks: above 0, below 1.
    pub collection_share: f64,
    /// Blocks freed before the host continues to write, once free blocks have run out; 0 if
    /// only the lanes without blocks wait.
    #[serde(default)]
    pub collection_burst: u32,
    /// Maximum number of lanes collected at a time.
    pub collectors: u32,
    /// Idle time after which more blocks are freed than are needed now; never if absent.
    pub background_after: Option<Time>,
    /// Free blocks of a lane up to which idle time is used.
    #[serde(default)]
    pub background_blocks: u32,
    /// Difference in erases from which on the least worn block is moved; never if absent.
    pub wear_threshold: Option<u32>,

    /// Program/erase cycles of a block that the flash is rated for; unknown if absent.
    pub rated_cycles: Option<u32>,

    /// Power when idle.
    pub power_idle: Power,
    /// Power with a command in flight, even if no die works; as when idle if absent.
    pub power_active: Option<Power>,
    /// Power with all dies reading.
    pub power_read: Power,
    /// Power with all dies programming or erasing.
    pub power_write: Power,
}

/// Parameters of an SLC cache: blocks whose cells hold one bit for a while.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlcParameters {
    /// Bits a cell otherwise holds: 2 (MLC), 3 (TLC), 4 (QLC).
    pub bits: u32,
    /// Bytes the cache can always hold.
    pub fixed: Size,
    /// Bytes it can hold in addition while there are free blocks.
    pub dynamic: Size,
    /// Time to sense a page of the cache.
    pub page_read: Time,
    /// Time to program a page of the cache.
    pub page_program: Time,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Parameters {
    /// Returns over-provisioning as a share of the raw flash: (raw − user) / raw.
    pub fn spare_of_raw(&self) -> f64 {
        1.0 - 1.0 / self.alpha
    }

    /// Returns over-provisioning as a share of the user's capacity: (raw − user) / user.
    pub fn spare_of_user(&self) -> f64 {
        self.alpha - 1.0
    }

    /// Returns the number of lanes: units of parallelism, each a die or a gang of dies.
    pub fn lanes(&self) -> u32 {
        self.channels * self.dies_per_channel / self.gang
    }

    /// Returns the bytes of a lane's page, over all planes of all dies in lockstep.
    pub fn lane_page(&self) -> u64 {
        self.page.0 * u64::from(self.planes) * u64::from(self.gang)
    }

    /// Returns the number of lane pages that a unit takes; 1 if several units share one.
    pub fn pages_per_unit(&self) -> u32 {
        (self.mapping_unit.0 / self.lane_page()).max(1) as u32
    }

    /// Returns the blocks of the whole drive before scaling, and the number of them in the
    /// pool.
    pub(super) fn blocks(&self) -> (f64, f64) {
        let block = (self.lane_page() * u64::from(self.pages_per_block)) as f64;
        let raw = self.capacity.0 as f64 * self.alpha * (1.0 - self.raw_loss);
        // Free blocks stay a little below the start of collection. Open blocks and victims are
        // half used.
        let pool = f64::from(self.collection_start) + 0.5 * f64::from(u32::from(self.hot_cold));
        (raw / block, pool * f64::from(self.lanes()))
    }

    /// Returns the sizes of the translation layer. The parameters must have been checked.
    pub fn shape(&self) -> Shape {
        let page_slots = (self.lane_page() / self.mapping_unit.0).max(1) as u32;
        let slots = self.pages_per_block / self.pages_per_unit() * page_slots;
        let (blocks, pool) = self.blocks();
        let scale = f64::from(self.scale);
        let cached = self.slc.as_ref().map_or(0, |slc| slots / slc.bits);
        Shape {
            units: (self.capacity.0 / u64::from(self.scale) / self.mapping_unit.0) as u32,
            lanes: self.lanes(),
            blocks: libm::round((blocks - pool) / scale + pool) as u32,
            slots,
            page_slots,
            cached_slots: cached / page_slots * page_slots,
            reserve: self.reserve,
            kept_free: self.collection_start - 1,
            policy: self.victim,
            hot_cold: self.hot_cold,
            wear_threshold: self.wear_threshold,
        }
    }
}
