//! What a flash drive is made of.

use serde::Deserialize;

use super::translation::Shape;
use super::victim::Policy;
use hemi_units::{Power, Rate, Size, Time};

/// The parameters of a flash drive, as a preset gives them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// What the user sees.
    pub capacity: Size,
    /// Raw flash / capacity, α: above 1. The one number over-provisioning is kept as; see
    /// [`Parameters::spare_of_raw`] and [`Parameters::spare_of_user`] for its two names.
    pub alpha: f64,
    /// Share of the raw flash that can hold neither data nor spare: parity over dies, tables.
    #[serde(default)]
    pub raw_loss: f64,
    /// Divides capacity and blocks, to save time and memory; no rate changes. The blocks of
    /// the pool of free ones stay as many, so that the spare left to data keeps its share.
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
    /// Dies in lockstep, as early controllers had them: together they are one lane, whose
    /// page and block are so many times as large.
    #[serde(default = "one")]
    pub gang: u32,
    /// What the table maps: several to a flash page, or as large as many of them (to a whole
    /// block of a lane), where a smaller write costs copying the rest.
    pub mapping_unit: Size,

    /// Whether a write smaller than the unit goes to a log block first and is merged from
    /// there into the unit (hybrid mapping, as early controllers had it): it is programmed
    /// twice.
    #[serde(default)]
    pub log_blocks: bool,

    /// Sensing a page; by type of page where there are several (page p of a block has type
    /// p modulo their number).
    pub page_read: Vec<Time>,
    /// Programming a page; by type of page, as for reads.
    pub page_program: Vec<Time>,
    /// Erasing a block.
    pub block_erase: Time,
    /// What suspending a program or an erase for a read takes, and again for resuming;
    /// without it reads wait.
    pub suspend: Option<Time>,
    /// Bytes a second over one channel.
    pub channel_rate: Rate,
    /// Copies stay within the die (copyback) instead of going over the channel and back.
    #[serde(default)]
    pub copyback: bool,

    /// Bytes a second between host and drive.
    pub link_rate: Rate,
    /// Both ways at once (PCI Express), or one (SATA).
    #[serde(default)]
    pub full_duplex: bool,
    /// Commands the drive takes at a time; the others wait in the host.
    pub queue_depth: u32,
    /// Time the controller's processor takes for each read, one after another …
    pub read_command: Time,
    /// … for each other command …
    pub write_command: Time,
    /// … for each 4 KiB moved between host and drive …
    pub block_command: Time,
    /// … and for each unit copied. (Where the translation runs on the host's processor: that
    /// of its driver.)
    pub copy_command: Time,
    /// Whether that processor looks at reads (and flushes and trims) before the writes and
    /// copies that wait for it.
    #[serde(default)]
    pub reads_overtake: bool,
    /// Time each read takes besides, during which others go on: protocol, firmware.
    pub read_latency: Time,
    /// The same for each other command.
    pub write_latency: Time,

    /// DRAM for data not yet programmed. A write is done when it is there.
    pub buffer: Size,
    /// How long data may wait in the buffer for more to fill its page or unit.
    pub buffer_hold: Time,
    /// Whether the buffer survives a power cut: a flush then has nothing to wait for.
    #[serde(default)]
    pub power_loss_protection: bool,
    /// Whether a write is done when it is in the buffer; otherwise when it is on flash.
    #[serde(default = "yes")]
    pub write_cache: bool,
    /// What a flush takes beyond programming the buffer (tables to be written).
    #[serde(default)]
    pub flush_time: Time,
    /// Whether trimmed sectors become spare.
    #[serde(default = "yes")]
    pub trim: bool,
    /// DRAM for the table, where it does not hold all of it; a miss costs reading flash.
    pub map_cache: Option<Size>,
    /// The SLC cache, if there is one.
    pub slc: Option<SlcParameters>,

    /// How blocks to collect are chosen.
    pub victim: Policy,
    /// Whether collected units are written apart from the host's.
    #[serde(default)]
    pub hot_cold: bool,
    /// Free blocks of each lane that are collection's alone; at least 1, 2 with `hot_cold`.
    pub reserve: u32,
    /// Free blocks of a lane below which it is collected.
    pub collection_start: u32,
    /// The largest share of what is programmed that may be copies while the host writes, as
    /// long as there are free blocks: above 0, below 1.
    pub collection_share: f64,
    /// Blocks that are freed before the host writes on, once free blocks have run out;
    /// 0 where only the lanes that ran out wait.
    #[serde(default)]
    pub collection_burst: u32,
    /// Lanes that may be collected at a time.
    pub collectors: u32,
    /// Idle time after which free blocks are made beyond what is needed now; never without.
    pub background_after: Option<Time>,
    /// Free blocks of a lane that are made when idle.
    #[serde(default)]
    pub background_blocks: u32,
    /// Difference in erases from which on the least worn block is moved; never without.
    pub wear_threshold: Option<u32>,

    /// Power of the drive when idle …
    pub power_idle: Power,
    /// … with a command under way, however few dies work; as when idle where absent …
    pub power_active: Option<Power>,
    /// … with all dies reading …
    pub power_read: Power,
    /// … and with all dies programming or erasing.
    pub power_write: Power,
}

/// The parameters of an SLC cache: blocks of which each cell holds one bit for a while.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlcParameters {
    /// Bits a cell holds otherwise: 2 (MLC), 3 (TLC), 4 (QLC).
    pub bits: u32,
    /// Bytes the cache can always hold.
    pub fixed: Size,
    /// Bytes it can hold besides while there are free blocks.
    pub dynamic: Size,
    /// Sensing a page of it.
    pub page_read: Time,
    /// Programming a page of it.
    pub page_program: Time,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

impl Parameters {
    /// Over-provisioning as share of the raw flash: (raw − user) / raw.
    pub fn spare_of_raw(&self) -> f64 {
        1.0 - 1.0 / self.alpha
    }

    /// Over-provisioning as share of what the user sees: (raw − user) / user.
    pub fn spare_of_user(&self) -> f64 {
        self.alpha - 1.0
    }

    /// Lanes: what works by itself, a die or a gang of them.
    pub fn lanes(&self) -> u32 {
        self.channels * self.dies_per_channel / self.gang
    }

    /// Bytes of a page of a lane: of all planes of all dies in lockstep.
    pub fn lane_page(&self) -> u64 {
        self.page.0 * u64::from(self.planes) * u64::from(self.gang)
    }

    /// Pages of a lane that a unit takes; 1 if several units share one.
    pub fn pages_per_unit(&self) -> u32 {
        (self.mapping_unit.0 / self.lane_page()).max(1) as u32
    }

    /// Blocks of the whole drive before scaling, and those of them in the pool.
    pub(super) fn blocks(&self) -> (f64, f64) {
        let block = (self.lane_page() * u64::from(self.pages_per_block)) as f64;
        let raw = self.capacity.0 as f64 * self.alpha * (1.0 - self.raw_loss);
        // Free blocks hover a little below the start of collection; those open and those
        // being collected are half used.
        let pool = f64::from(self.collection_start) + 0.5 * f64::from(u32::from(self.hot_cold));
        (raw / block, pool * f64::from(self.lanes()))
    }

    /// Sizes of the translation layer. Only of parameters that were checked.
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
