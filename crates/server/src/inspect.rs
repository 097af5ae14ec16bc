//! `hemi inspect`: reports a leg's metadata without changing or locking anything.
//!
//! It reports and decides nothing. Recovery, which sees all legs, decides which leg's word counts.
//! The report shows slot by slot what each leg says of itself and of the others, so that an
//! operator whose volume does not open can see why.

use std::path::PathBuf;

use hemi_engine::format::lost::{self, LostError};
use hemi_engine::format::{
    Block, Id, Layout, Membership, Standby, Superblock, SuperblockError, block,
};
use hemi_engine::io::OutReason;
use hemi_units::Extent;
use serde::Serialize;

use hemi_io::blocking::BlockingLeg;
use hemi_io::config::legs::{LegSpec, LegSpecError};
use hemi_io::leg::apart::MetadataPlace;
use hemi_io::leg::{FileOptions, OpenError, OpenLeg, Purpose};
use hemi_io::probe::{hex, lock_owner, other_spec};

mod compare;
mod content;
mod ledger;
mod report;
mod runs;
mod table;

pub use compare::{Inspection, inspect_all};
pub use content::{Content, ContentError};
pub use ledger::{LedgerAuthority, LedgerContent, LedgerFound, LedgerReport, NextStart};
pub use runs::{RUNS_MAX, Runs};

/// Maximum number of bad page slots listed one by one. All of them are counted.
pub const BAD_SLOTS_MAX: usize = 100;

/// The reason why a leg could not be inspected at all. Problems in its metadata are not errors but
/// part of the report.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Its name was not understood.
    #[error(transparent)]
    Spec(#[from] LegSpecError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The state in which a slot was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// It holds a complete write.
    Valid,
    /// It was never written.
    Blank,
    /// It holds an interrupted write, which does no harm.
    Torn,
    /// Its content is not what was written.
    Damaged,
    /// Reading it failed.
    Unreadable,
    /// It is intact but cannot be understood: another format, a newer version, or nonsense.
    Refused,
}

/// One slot of a superblock, lost list or page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// The state in which it was found.
    pub state: SlotState,
    /// Its sequence, or the highest sequence seen in it, if any.
    pub sequence: Option<u64>,
    /// The problem with it, if any.
    pub problem: Option<String>,
}

/// A leg as recorded in its own superblock or another leg's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegView {
    /// Its slot.
    pub leg: u8,
    /// Its id.
    pub id: String,
    /// The join epoch from which metadata refers to it.
    pub join_epoch: u64,
    /// True if it is out.
    pub out: bool,
    /// The reason why it is out.
    pub reason: Option<OutReason>,
    /// The path or NBD URI by which it was last opened; empty if unknown.
    pub path: String,
    /// Its device's model; empty if unknown.
    pub model: String,
    /// Its device's serial number; empty if unknown.
    pub serial: String,
}

/// A past generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AncestorView {
    /// The generation.
    pub generation: String,
    /// The superblock sequence at which the next generation took over.
    pub sequence: u64,
}

/// The newest valid superblock of a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockView {
    /// The volume's id.
    pub volume: String,
    /// Its name, possibly empty.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its region size in bytes.
    pub region_bytes: u64,
    /// Its smallest request in bytes.
    pub block_bytes: u32,
    /// Offset of the data area in bytes.
    pub data_offset: u64,
    /// Bytes that the leg needs.
    pub leg_bytes: u64,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// This leg's slot.
    pub leg: u8,
    /// This leg's id.
    pub leg_id: String,
    /// The superblock's sequence.
    pub sequence: u64,
    /// The generation.
    pub generation: String,
    /// The earlier generations, newest first.
    pub ancestry: Vec<AncestorView>,
    /// True if the volume is being served or was not closed cleanly.
    pub open: bool,
    /// The volume's highest join epoch.
    pub join_epoch: u64,
    /// The legs, without empty slots.
    pub legs: Vec<LegView>,
}

/// The regions in which a leg is not whole, by another leg's region table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotWhole {
    /// The leg.
    pub leg: u8,
    /// The regions.
    pub regions: Runs,
}

/// A slot of a page that is neither valid nor torn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadSlot {
    /// The page.
    pub page: u32,
    /// Its slot.
    pub slot: u8,
    /// The slot's state and problem.
    pub found: Slot,
}

/// The number of page slots in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotCounts {
    /// Slots with complete writes.
    pub valid: u32,
    /// Slots that were never written.
    pub blank: u32,
    /// Slots with interrupted writes.
    pub torn: u32,
    /// Damaged slots.
    pub damaged: u32,
    /// Slots that could not be read.
    pub unreadable: u32,
    /// Slots that could not be understood.
    pub refused: u32,
}

/// The region table of a leg, read from the newest valid slot of each page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableView {
    /// The number of regions in the volume.
    pub regions: u32,
    /// The number of pages in the table.
    pub pages: u32,
    /// The slots of all pages, counted by state.
    pub slots: SlotCounts,
    /// The first [`BAD_SLOTS_MAX`] slots that are neither valid nor torn.
    pub bad_slots: Vec<BadSlot>,
    /// Regions about which nothing is known, because neither slot of their page is valid.
    pub unknown: Runs,
    /// Regions whose newest page may be the damaged one, so that their entries may be out of date.
    pub doubtful: Runs,
    /// Dirty regions.
    pub dirty: Runs,
    /// Dirty regions by their authority.
    pub authorities: Vec<Authority>,
    /// Regions that are not whole, for each leg that is not whole everywhere.
    pub not_whole: Vec<NotWhole>,
}

/// The number of dirty regions for which a leg is the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Authority {
    /// The leg.
    pub leg: u8,
    /// The number of regions.
    pub regions: u64,
}

/// A lost extent in volume sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostExtent {
    /// First sector.
    pub start: u64,
    /// One past the last sector.
    pub end: u64,
}

/// The lost list of a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostView {
    /// Its slots.
    pub slots: [Slot; 2],
    /// The extents in the newest valid slot; `None` if no slot is valid.
    pub extents: Option<Vec<LostExtent>>,
}

/// The volume that a standby waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StandbyView {
    /// The volume's name, possibly empty.
    pub name: String,
    /// Its id in UUID notation.
    pub volume: String,
}

/// The report on one leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegReport {
    /// The leg as named.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The place of its metadata if that is apart from its data, which then begins at byte 0.
    pub metadata: Option<MetadataPlace>,
    /// A sentence with the right spec, if the path belongs to a leg that has another one.
    pub otherwise: Option<String>,
    /// True if a hemi has locked it, so that the report may be of changing metadata.
    pub in_use: bool,
    /// The process that holds the lock, if the system tells.
    pub used_by: Option<u32>,
    /// The slots of its superblock.
    pub superblock_slots: [Slot; 2],
    /// The newest valid superblock.
    pub superblock: Option<SuperblockView>,
    /// The volume it waits for, if it is a standby.
    pub standby: Option<StandbyView>,
    /// Its region table, if a superblock tells where it is.
    pub table: Option<TableView>,
    /// Its lost list, if a superblock tells where it is.
    pub lost: Option<LostView>,
    #[serde(skip)]
    decoded: Option<Superblock>,
}

/// Inspects the leg named `spec`.
///
/// # Errors
/// See [`InspectError`].
pub fn inspect(spec: &str) -> Result<LegReport, InspectError> {
    let parsed: LegSpec = spec.parse()?;
    let leg = open(&parsed)?;
    let mut report = inspect_leg(spec, &leg, parsed.paths());
    report.metadata = leg.metadata_place();
    if report.superblock.is_none() {
        report.otherwise = other_spec(&parsed);
    }
    Ok(report)
}

/// Opens a leg for inspection, through the page cache if its file system has no direct I/O.
pub(crate) fn open(spec: &LegSpec) -> Result<OpenLeg, OpenError> {
    let open = |direct| {
        let options = FileOptions { direct, ..FileOptions::default() };
        OpenLeg::open(spec, options, Purpose::Inspect)
    };
    match open(true) {
        Err(OpenError::NoDirect { .. }) => open(false),
        opened => opened,
    }
}

/// Reads all bytes before the data area of the leg named `spec`. Returns none if they cannot be
/// read.
fn read_metadata(spec: &str, layout: &Layout) -> Vec<u8> {
    let Some(leg) = spec.parse().ok().and_then(|spec| open(&spec).ok()) else { return Vec::new() };
    let length = layout.data_offset().min(leg.size());
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    match leg.read_at(0, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

/// Inspects an opened leg. `paths` are the files that may be locked.
pub fn inspect_leg(name: &str, leg: &dyn BlockingLeg, paths: &[PathBuf]) -> LegReport {
    let lock = paths.iter().find_map(|path| lock_owner(path));
    let (superblock_slots, decoded) = superblocks(leg);
    let (mut table, mut lost) = (None, None);
    if let Some(superblock) = &decoded {
        table = Some(table::read_table(leg, superblock));
        lost = Some(read_lost(leg, superblock));
    }
    LegReport {
        path: name.into(),
        size_bytes: leg.size(),
        metadata: None,
        otherwise: None,
        in_use: lock.is_some(),
        used_by: lock.flatten(),
        superblock_slots,
        superblock: decoded.as_ref().map(SuperblockView::new),
        standby: if decoded.is_none() { standby(leg) } else { None },
        table,
        lost,
        decoded,
    }
}

impl Slot {
    fn valid(sequence: u64) -> Slot {
        Slot { state: SlotState::Valid, sequence: Some(sequence), problem: None }
    }

    fn bad(state: SlotState, sequence: Option<u64>, problem: impl ToString) -> Slot {
        Slot { state, sequence, problem: Some(problem.to_string()) }
    }
}

fn read_block(leg: &dyn BlockingLeg, address: u64) -> Result<Block, Slot> {
    let mut block = block::blank();
    match leg.read_at(address, &mut block) {
        Ok(()) => Ok(block),
        Err(error) => Err(Slot::bad(SlotState::Unreadable, None, error)),
    }
}

/// Reads a standby's superblock from either slot.
fn standby(leg: &dyn BlockingLeg) -> Option<StandbyView> {
    let found = [0, 1].into_iter().find_map(|slot| {
        let block = read_block(leg, Layout::superblock_address(slot)).ok()?;
        Standby::decode(&block, slot)
    })?;
    Some(StandbyView { name: found.name.as_str().to_owned(), volume: hex(found.volume_id) })
}

/// Reads both superblock slots. Returns their state and the newer valid superblock.
fn superblocks(leg: &dyn BlockingLeg) -> ([Slot; 2], Option<Superblock>) {
    let mut newest: Option<Superblock> = None;
    let slots = [0, 1].map(|slot| {
        let block = match read_block(leg, Layout::superblock_address(slot)) {
            Ok(block) => block,
            Err(unreadable) => return unreadable,
        };
        match Superblock::decode(&block, slot) {
            Ok(superblock) => {
                let found = Slot::valid(superblock.sequence);
                if newest.as_ref().is_none_or(|newest| newest.sequence < superblock.sequence) {
                    newest = Some(superblock);
                }
                found
            }
            Err(error) => {
                let (state, sequence) = match error {
                    SuperblockError::Blank => (SlotState::Blank, None),
                    SuperblockError::Torn { newest } => (SlotState::Torn, Some(newest)),
                    SuperblockError::Damaged { newest } => (SlotState::Damaged, newest),
                    _ => (SlotState::Refused, None),
                };
                Slot::bad(state, sequence, error)
            }
        }
    });
    (slots, newest)
}

impl SuperblockView {
    fn new(superblock: &Superblock) -> SuperblockView {
        let legs = superblock.legs.iter().zip(0u8..).filter_map(|(record, leg)| {
            let (out, reason) = match record.state {
                Membership::Empty => return None,
                Membership::In => (false, None),
                Membership::Out(reason) => (true, Some(reason)),
            };
            let (id, join_epoch) = (hex(record.id), record.join_epoch);
            let last = &superblock.descriptions[usize::from(leg)];
            Some(LegView {
                leg,
                id,
                join_epoch,
                out,
                reason,
                path: last.path().into(),
                model: last.model().into(),
                serial: last.serial().into(),
            })
        });
        let ancestry = superblock.ancestry.as_slice().iter().map(|ancestor| AncestorView {
            generation: hex(ancestor.generation),
            sequence: ancestor.sequence,
        });
        let layout = &superblock.layout;
        SuperblockView {
            volume: hex(superblock.volume_id),
            name: superblock.name.as_str().into(),
            size_bytes: layout.volume_bytes(),
            region_bytes: layout.region_bytes(),
            block_bytes: superblock.block_bytes,
            data_offset: layout.data_offset(),
            leg_bytes: layout.leg_bytes(),
            created: superblock.created,
            leg: superblock.leg.0,
            leg_id: hex(superblock.own_record().id),
            sequence: superblock.sequence,
            generation: hex(superblock.generation),
            ancestry: ancestry.collect(),
            open: superblock.open,
            join_epoch: superblock.join_epoch,
            legs: legs.collect(),
        }
    }
}

fn read_lost(leg: &dyn BlockingLeg, superblock: &Superblock) -> LostView {
    let sectors = superblock.layout.volume_sectors();
    let mut newest = None;
    let mut extents = None;
    let slots = [0, 1].map(|slot| {
        let address = Layout::lost_address(slot);
        let block = match read_block(leg, address) {
            Ok(block) => block,
            Err(unreadable) => return unreadable,
        };
        match lost::open(&block, address, superblock.volume_id, sectors) {
            Ok(list) => {
                if newest.is_none_or(|newest| newest < list.sequence()) {
                    newest = Some(list.sequence());
                    extents = Some(list.extents().map(LostExtent::from).collect());
                }
                Slot::valid(list.sequence())
            }
            Err(error) => {
                let (state, sequence) = match error {
                    LostError::Blank => (SlotState::Blank, None),
                    LostError::Torn { newest } => (SlotState::Torn, Some(newest)),
                    LostError::Damaged { newest } => (SlotState::Damaged, newest),
                    _ => (SlotState::Refused, None),
                };
                Slot::bad(state, sequence, error)
            }
        }
    });
    LostView { slots, extents }
}

impl From<Extent> for LostExtent {
    fn from(extent: Extent) -> LostExtent {
        LostExtent { start: extent.start, end: extent.end }
    }
}

fn short(id: Id) -> String {
    hex(id).chars().take(8).collect()
}
