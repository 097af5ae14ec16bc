//! `hemi inspect`: what a leg's metadata says, read without changing or locking anything.
//!
//! It reports; it decides nothing. Which leg's word counts is for recovery, which has all
//! legs before it; what is here is what each leg says of itself and of the others, slot by
//! slot, so that an operator facing a volume that does not open can see why.

use std::path::PathBuf;

use hemi_engine::format::lost::{self, LostError};
use hemi_engine::format::{Block, Id, Layout, Membership, Superblock, SuperblockError, block};
use hemi_engine::io::OutReason;
use hemi_units::Extent;
use serde::Serialize;

use hemi_io::blocking::BlockingLeg;
use hemi_io::config::legs::{LegSpec, LegSpecError};
use hemi_io::leg::apart::MetadataPlace;
use hemi_io::leg::{FileOptions, OpenError, OpenLeg, Purpose};
use hemi_io::probe::{hex, lock_owner, other_spec};

mod compare;
mod ledger;
mod report;
mod runs;
mod table;

pub use compare::{Inspection, inspect_all};
pub use ledger::{LedgerAuthority, LedgerContent, LedgerFound, LedgerReport, NextStart};
pub use runs::{RUNS_MAX, Runs};

/// Most bad page slots listed one by one; all are counted.
pub const BAD_SLOTS_MAX: usize = 100;

/// Why a leg could not be inspected at all. What is wrong with its metadata is no error but
/// the report.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// Its name was not understood.
    #[error(transparent)]
    Spec(#[from] LegSpecError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// How a slot was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotState {
    /// A complete write.
    Valid,
    /// Never written.
    Blank,
    /// An interrupted write; of no consequence.
    Torn,
    /// Not what was written.
    Damaged,
    /// The leg gave an error.
    Unreadable,
    /// Intact, but not to be understood: another format, a newer version, or nonsense.
    Refused,
}

/// One slot of a superblock, lost list or page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// How it was found.
    pub state: SlotState,
    /// Its sequence, or the highest seen in it, where any is.
    pub sequence: Option<u64>,
    /// What is wrong with it, if anything.
    pub problem: Option<String>,
}

/// A leg as another leg's superblock, or its own, records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegView {
    /// Its slot.
    pub leg: u8,
    /// Its id.
    pub id: String,
    /// The join epoch from which metadata speaks of it.
    pub join_epoch: u64,
    /// Whether it is out.
    pub out: bool,
    /// Why it is out.
    pub reason: Option<OutReason>,
    /// The path by which it was last opened, or its NBD URI; empty if unknown.
    pub path: String,
    /// Its device's model, empty if unknown.
    pub model: String,
    /// Its device's serial number, empty if unknown.
    pub serial: String,
}

/// A past generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AncestorView {
    /// The generation.
    pub generation: String,
    /// The superblock sequence at which the next one took over.
    pub sequence: u64,
}

/// The newest valid superblock of a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockView {
    /// The volume's id.
    pub volume: String,
    /// Its name, perhaps empty.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its region size in bytes.
    pub region_bytes: u64,
    /// Its smallest request in bytes.
    pub block_bytes: u32,
    /// Where the data begins, in bytes.
    pub data_offset: u64,
    /// How many bytes the leg needs.
    pub leg_bytes: u64,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// Which leg this is.
    pub leg: u8,
    /// This leg's id.
    pub leg_id: String,
    /// The superblock's sequence.
    pub sequence: u64,
    /// The generation.
    pub generation: String,
    /// The generations before, newest first.
    pub ancestry: Vec<AncestorView>,
    /// Being served, or not closed when it last was.
    pub open: bool,
    /// The volume's highest join epoch.
    pub join_epoch: u64,
    /// The leg set, empty slots left out.
    pub legs: Vec<LegView>,
}

/// What a leg's region table says of one leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotWhole {
    /// The leg.
    pub leg: u8,
    /// The regions it is not whole in.
    pub regions: Runs,
}

/// A slot of a page that is neither valid nor torn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadSlot {
    /// The page.
    pub page: u32,
    /// Its slot.
    pub slot: u8,
    /// How it was found.
    pub found: Slot,
}

/// How many page slots were found in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlotCounts {
    /// Complete writes.
    pub valid: u32,
    /// Never written.
    pub blank: u32,
    /// Interrupted writes.
    pub torn: u32,
    /// Damaged.
    pub damaged: u32,
    /// The leg gave an error.
    pub unreadable: u32,
    /// Not understood.
    pub refused: u32,
}

/// The region table of a leg: of each page the newest valid slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TableView {
    /// How many regions the volume has.
    pub regions: u32,
    /// How many pages the table has.
    pub pages: u32,
    /// The slots of all pages by their state.
    pub slots: SlotCounts,
    /// The first [`BAD_SLOTS_MAX`] slots that are neither valid nor torn.
    pub bad_slots: Vec<BadSlot>,
    /// Regions of which nothing is known: neither slot of their page is valid.
    pub unknown: Runs,
    /// Regions whose newest page may be the damaged one, so that what is said of them may be
    /// out of date.
    pub doubtful: Runs,
    /// Dirty regions.
    pub dirty: Runs,
    /// Dirty regions by their authority.
    pub authorities: Vec<Authority>,
    /// Regions not whole, for each leg that is not whole everywhere.
    pub not_whole: Vec<NotWhole>,
}

/// How many dirty regions a leg decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Authority {
    /// The leg.
    pub leg: u8,
    /// How many.
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
    /// The extents of the newest valid slot; none where no slot is valid.
    pub extents: Option<Vec<LostExtent>>,
}

/// What a leg says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegReport {
    /// The leg as named.
    pub path: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The place of its metadata, if that is apart from its data. The data then begins at byte 0.
    pub metadata: Option<MetadataPlace>,
    /// A sentence with the right spec, if the path belongs to a leg that is named otherwise.
    pub otherwise: Option<String>,
    /// Whether it is locked by a hemi; what is read may then be changing.
    pub in_use: bool,
    /// By which process, where the system tells.
    pub used_by: Option<u32>,
    /// The slots of its superblock.
    pub superblock_slots: [Slot; 2],
    /// The newest valid one.
    pub superblock: Option<SuperblockView>,
    /// Its region table, where there is a superblock that says how to find it.
    pub table: Option<TableView>,
    /// Its lost list, likewise.
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

/// Reads all that is in front of the data area of the leg named `spec`; nothing if that cannot be
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

/// Inspects an opened leg. `paths` are where a lock would be.
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

/// Both superblock slots, and the newer valid one.
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
