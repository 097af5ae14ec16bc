//! Recovery: from the metadata found on the legs to a state the engine can go on from, or a
//! refusal that says what is missing and which command decides.
//!
//! Generations and ancestry are compared first, sequences second. Only legs that are in by
//! the newest superblock have a say about regions. What may hide something that was
//! acknowledged (a damaged slot that could be the newest, an absent leg, two histories) is
//! refused; what was provably never durable (a write cut in two) is ignored.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::engine::metadata::ObjectState;
use crate::format::superblock::{Ancestor, SuperblockError};
use crate::format::{BLOCK_BYTES, Block, Id, Layout, Membership, RegionEntry, Superblock};
use crate::format::{lost, page};
use crate::io::OutReason;
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use crate::units::{Extent, LEGS_MAX, LegIndex};

/// Bytes at the beginning of a leg that hold both superblock slots: read these first.
pub const HEAD_BYTES: u64 = 1 << 20;

/// One leg as found: its bytes from the beginning to the data area.
#[derive(Clone, Copy)]
pub struct LegImage<'a> {
    /// At least [`metadata_bytes`] bytes.
    pub bytes: &'a [u8],
}

/// What the engine opens with.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The newest superblock.
    pub superblock: Superblock,
    /// The region table.
    pub table: Vec<RegionEntry>,
    /// Lost extents, sorted and disjoint.
    pub lost: Vec<Extent>,
    /// Per metadata object: pages, the superblock, the lost list.
    pub objects: Vec<ObjectState>,
    /// For each image given: the slot its leg has in the volume.
    pub slots: Vec<LegIndex>,
    /// Whether the volume was closed cleanly.
    pub clean: bool,
    /// Which rare paths recovery took.
    pub marks: Marks,
}

/// Why a volume does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No leg was given.
    NoLegs,
    /// Not a leg of any volume.
    NotALeg {
        /// Which image.
        image: usize,
        /// What was found.
        error: SuperblockError,
    },
    /// A leg of another volume.
    ForeignVolume {
        /// Which image.
        image: usize,
        /// The volume it belongs to.
        name: String,
        /// The volume of the first leg given.
        expected: String,
    },
    /// The same leg twice.
    SameLeg {
        /// One image.
        image: usize,
        /// The other.
        other: usize,
    },
    /// Two legs went on without each other.
    Fork {
        /// One image.
        image: usize,
        /// The other.
        other: usize,
    },
    /// The volume no longer counts this leg among its own.
    Stranger {
        /// Which image.
        image: usize,
        /// Whether it was detached.
        detached: bool,
    },
    /// A leg that is in is not among those given.
    Missing {
        /// Its slot.
        leg: LegIndex,
    },
    /// No leg is in: a promotion was cut short.
    NoneIn,
    /// A superblock slot is damaged and may hide a newer state.
    SuperblockDamaged {
        /// Which image.
        image: usize,
        /// Which slot.
        slot: u8,
    },
    /// A page of the region table is damaged and may hide a newer state.
    PageDamaged {
        /// Which image.
        image: usize,
        /// The page.
        page: u32,
        /// The regions it describes.
        first_region: u32,
        /// One past the last of them.
        end_region: u32,
    },
    /// No leg has a valid copy of a page.
    PageLost {
        /// The page.
        page: u32,
    },
    /// Regions for which no leg that is in counts as whole or decides: no honest history
    /// leaves any, so it takes damage that checksums do not show.
    Undecided {
        /// The first such region.
        region: u32,
        /// How many there are.
        count: u32,
    },
    /// A page has bits this version does not know.
    PageUnsupported {
        /// Which image.
        image: usize,
        /// What is wrong.
        error: page::PageError,
    },
    /// No leg has a valid list of lost extents.
    LostListDamaged,
    /// The image is shorter than the metadata.
    Truncated {
        /// Which image.
        image: usize,
        /// Bytes needed.
        needed: u64,
        /// Bytes found.
        found: u64,
    },
}

/// Every reason why a volume does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl Refusal {
    /// Says it all, a line per problem; `names` are the images' names (paths) in order.
    pub fn describe(&self, names: &[&str]) -> String {
        let lines: Vec<String> = self.problems.iter().map(|p| p.describe(names)).collect();
        lines.join("\n")
    }

    /// A mark for each problem.
    pub fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        self.problems.iter().for_each(|problem| marks.add(problem.mark()));
        marks
    }
}

impl Problem {
    /// The mark of a start refused for this.
    pub fn mark(&self) -> Mark {
        match self {
            Problem::NoLegs | Problem::NotALeg { .. } => Mark::RefusedNotALeg,
            Problem::ForeignVolume { .. } => Mark::RefusedForeign,
            Problem::SameLeg { .. } => Mark::RefusedSameLeg,
            Problem::Fork { .. } => Mark::RefusedFork,
            Problem::Stranger { .. } => Mark::RefusedStranger,
            Problem::Missing { .. } => Mark::RefusedMissing,
            Problem::NoneIn => Mark::RefusedNoneIn,
            Problem::SuperblockDamaged { .. }
            | Problem::PageDamaged { .. }
            | Problem::PageLost { .. }
            | Problem::Undecided { .. }
            | Problem::PageUnsupported { .. }
            | Problem::LostListDamaged => Mark::RefusedDamaged,
            Problem::Truncated { .. } => Mark::RefusedTruncated,
        }
    }

    /// One sentence that names the leg, what is wrong and the way out.
    pub fn describe(&self, names: &[&str]) -> String {
        let name = |image: usize| names.get(image).copied().unwrap_or("?");
        match self {
            Problem::NoLegs => "no leg was given".into(),
            Problem::NotALeg { image, error } => format!(
                "{}: {error}; give the volume's legs only, or make a new leg of it with \
                 'hemi leg add'",
                name(*image)
            ),
            Problem::ForeignVolume { image, name: other, expected } => format!(
                "{}: belongs to volume {other:?}, not to {expected:?}; leave it out",
                name(*image)
            ),
            Problem::SameLeg { image, other } => format!(
                "{} and {}: the same leg twice (one is a copy of the other); leave one out",
                name(*image),
                name(*other)
            ),
            Problem::Fork { image, other } => format!(
                "{} and {}: each was used without the other, so their contents went different \
                 ways and cannot be merged; start with the one to keep alone and make the \
                 other a new leg with 'hemi leg replace'",
                name(*image),
                name(*other)
            ),
            Problem::Stranger { image, detached: true } => format!(
                "{}: was detached from the volume; leave it out, and attach it again with \
                 'hemi leg attach'",
                name(*image)
            ),
            Problem::Stranger { image, detached: false } => {
                format!("{}: is no longer a leg of the volume; leave it out", name(*image))
            }
            Problem::Missing { leg } => format!(
                "leg {}: is missing, and it may hold writes the others do not have; give it \
                 too, or decide with 'hemi promote LEG --accept-loss' for a leg that is there",
                leg.0
            ),
            Problem::NoneIn => "no leg may decide: a promotion was interrupted; run \
                 'hemi promote LEG --accept-loss' again"
                .into(),
            Problem::SuperblockDamaged { image, slot } => format!(
                "{}: superblock slot {slot} is damaged and may have recorded something newer; \
                 decide with 'hemi promote LEG --accept-loss'",
                name(*image)
            ),
            Problem::PageDamaged { image, page, first_region, end_region } => format!(
                "{}: page {page} of the region table is damaged and may have recorded something \
                 newer about regions {first_region} to {}; decide with \
                 'hemi promote LEG --accept-loss'",
                name(*image),
                end_region - 1
            ),
            Problem::PageLost { page } => format!(
                "page {page} of the region table is on no leg; decide with \
                 'hemi promote LEG --accept-loss'"
            ),
            Problem::Undecided { region, count } => format!(
                "no leg that is in decides region {region} ({count} such regions); decide with \
                 'hemi promote LEG --accept-loss'"
            ),
            Problem::PageUnsupported { image, error } => format!("{}: {error}", name(*image)),
            Problem::LostListDamaged => "the list of lost extents is damaged on every leg; \
                 decide with 'hemi promote LEG --accept-loss'"
                .into(),
            Problem::Truncated { image, needed, found } => format!(
                "{}: has {found} bytes, the volume's metadata and data need {needed}; it was \
                 truncated: replace it with 'hemi leg replace'",
                name(*image)
            ),
        }
    }
}

/// How many bytes from the beginning of a leg [`assess`] needs, told by its first
/// [`HEAD_BYTES`].
///
/// # Errors
/// Neither slot holds a superblock; the more telling of the two errors.
pub fn metadata_bytes(head: &[u8]) -> Result<u64, SuperblockError> {
    Ok(newest_of(head)?.layout.data_offset())
}

/// The newest valid superblock of one leg, told by its first [`HEAD_BYTES`].
///
/// # Errors
/// As [`metadata_bytes`].
pub fn newest_of(head: &[u8]) -> Result<Superblock, SuperblockError> {
    let both = [0u8, 1].map(|slot| {
        block_at(head, Layout::superblock_address(slot))
            .map_or(Err(SuperblockError::Blank), |block| Superblock::decode(block, slot))
    });
    match both {
        [Ok(a), Ok(b)] => Ok(if a.sequence >= b.sequence { a } else { b }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(a), Err(SuperblockError::Blank | SuperblockError::NotHemi)] => Err(a),
        [Err(_), Err(b)] => Err(b),
    }
}

fn block_at(bytes: &[u8], address: u64) -> Option<&Block> {
    let start = usize::try_from(address).ok()?;
    bytes.get(start..start.checked_add(BLOCK_BYTES)?)?.try_into().ok()
}

/// Whether history `a` includes `b`'s present: `a` is the same generation and not older, or
/// a later one that came out of it.
///
/// A later one that branched off before `b`'s present (`a` was promoted meanwhile) does so
/// only as long as `b` still counts `a`'s leg as in: once it is out, `b`'s leg goes on alone
/// without a generation of its own.
fn follows(a: &Superblock, b: &Superblock) -> bool {
    if a.generation == b.generation {
        return a.sequence >= b.sequence;
    }
    let Some(branch) = a.ancestry.find(b.generation) else { return false };
    let there = b.legs[a.leg.index()];
    let counts_it = there.state == Membership::In && there.id == a.own_record().id;
    b.sequence <= branch.sequence || counts_it
}

/// Decides what a set of legs says of its volume.
///
/// # Errors
/// Every [`Problem`] found.
pub fn assess(images: &[LegImage]) -> Result<Opening, Refusal> {
    let refuse = |problems: Vec<Problem>| Err(Refusal { problems });
    if images.is_empty() {
        return refuse(vec![Problem::NoLegs]);
    }
    let superblocks = superblocks_of(images).map_err(|problems| Refusal { problems })?;
    let newest =
        newest_history(&superblocks).map_err(|problem| Refusal { problems: vec![problem] })?;
    let superblock = superblocks[newest].clone();
    let problems = membership_problems(images, &superblocks, &superblock);
    if !problems.is_empty() {
        return refuse(problems);
    }
    let slots: Vec<LegIndex> = superblocks.iter().map(|s| s.leg).collect();
    let voters: Vec<usize> = (0..images.len())
        .filter(|&i| {
            superblock.legs[slots[i].index()].state == Membership::In
                || planted::is(Planted::OutLegVotes)
        })
        .collect();
    let mut marks = Marks::default();
    let generations = superblocks.iter().any(|own| own.generation != superblock.generation);
    marks.add_if(generations, Mark::RecoveryChoseGeneration);
    let mut reader =
        Reader { images, slots: &slots, voters: &voters, superblock: &superblock, marks };
    let opening = reader.read()?;
    match undecided(&opening) {
        None => Ok(opening),
        Some(problem) => refuse(vec![problem]),
    }
}

/// What no leg that is in can decide, if there is anything.
fn undecided(opening: &Opening) -> Option<Problem> {
    let legs = opening.superblock.legs.iter().enumerate();
    let is_in = legs
        .fold(0u8, |mask, (leg, record)| mask | u8::from(record.state == Membership::In) << leg);
    let decided = |entry: &RegionEntry| {
        let by = if entry.is_dirty() { entry.authority().bit() } else { entry.whole() };
        by & is_in != 0
    };
    let mut regions = (0..).zip(&opening.table).filter(|(_, entry)| !decided(entry));
    let (region, _) = regions.next()?;
    Some(Problem::Undecided { region, count: 1 + regions.count() as u32 })
}

fn superblocks_of(images: &[LegImage]) -> Result<Vec<Superblock>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut superblocks: Vec<Superblock> = Vec::new();
    for (image, leg) in images.iter().enumerate() {
        match newest_of(leg.bytes) {
            Ok(superblock) => superblocks.push(superblock),
            Err(error) => problems.push(Problem::NotALeg { image, error }),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for image in 0..superblocks.len() {
        let (first, this) = (&superblocks[0], &superblocks[image]);
        if this.volume_id != first.volume_id {
            let name = this.name.as_str().into();
            let expected = first.name.as_str().into();
            problems.push(Problem::ForeignVolume { image, name, expected });
        }
        for (other, before) in superblocks[..image].iter().enumerate() {
            let same = before.volume_id == this.volume_id
                && before.own_record().id == this.own_record().id;
            if same {
                problems.push(Problem::SameLeg { image: other, other: image });
            }
        }
    }
    if problems.is_empty() { Ok(superblocks) } else { Err(problems) }
}

/// The image whose superblock includes every other's history.
fn newest_history(superblocks: &[Superblock]) -> Result<usize, Problem> {
    let leads = |i: usize| superblocks.iter().all(|other| follows(&superblocks[i], other));
    if let Some(newest) = (0..superblocks.len()).find(|&i| leads(i)) {
        return Ok(newest);
    }
    for image in 0..superblocks.len() {
        for other in image + 1..superblocks.len() {
            let (a, b) = (&superblocks[image], &superblocks[other]);
            if !follows(a, b) && !follows(b, a) {
                return Err(Problem::Fork { image, other });
            }
        }
    }
    // A cycle in the ancestries: no honest history makes one.
    Err(Problem::Fork { image: 0, other: superblocks.len() - 1 })
}

fn membership_problems(
    images: &[LegImage],
    superblocks: &[Superblock],
    newest: &Superblock,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut given = 0u8;
    for (image, own) in superblocks.iter().enumerate() {
        let record = newest.legs[own.leg.index()];
        if record.id != own.own_record().id || record.state == Membership::Empty {
            problems.push(Problem::Stranger { image, detached: false });
            continue;
        }
        if record.state == Membership::Out(OutReason::Detached) {
            problems.push(Problem::Stranger { image, detached: true });
            continue;
        }
        given |= own.leg.bit();
        if record.state != Membership::In {
            continue;
        }
        for slot in 0..2 {
            let block = block_at(images[image].bytes, Layout::superblock_address(slot));
            let damaged = match block.map(|block| Superblock::decode(block, slot)) {
                Some(Err(SuperblockError::Damaged { newest: known })) => {
                    known.is_none_or(|known| known > newest.sequence)
                }
                Some(Err(SuperblockError::NotHemi)) => true,
                _ => false,
            };
            if damaged {
                problems.push(Problem::SuperblockDamaged { image, slot });
            }
        }
        let needed = newest.layout.data_offset();
        let found = images[image].bytes.len() as u64;
        if found < needed {
            problems.push(Problem::Truncated { image, needed, found });
        }
    }
    if newest.legs.iter().all(|record| record.state != Membership::In) {
        problems.push(Problem::NoneIn);
    }
    for leg in (0..LEGS_MAX as u8).map(LegIndex) {
        let missing = newest.legs[leg.index()].state == Membership::In && given & leg.bit() == 0;
        let explained = superblocks
            .iter()
            .zip(0..)
            .any(|(own, image)| own.leg == leg && problems.iter().any(|p| is_about(p, image)));
        if missing && !explained {
            problems.push(Problem::Missing { leg });
        }
    }
    problems
}

fn is_about(problem: &Problem, image: usize) -> bool {
    matches!(problem, Problem::Stranger { image: i, .. } if *i == image)
}

/// Reads the tables of the legs that have a say.
struct Reader<'a> {
    images: &'a [LegImage<'a>],
    slots: &'a [LegIndex],
    voters: &'a [usize],
    superblock: &'a Superblock,
    marks: Marks,
}

/// One object's candidates.
struct Found<T> {
    best: Option<(u64, T)>,
    state: ObjectState,
    /// Images with a damaged slot, and the highest sequence it is known to have held.
    damaged: Vec<(usize, Option<u64>)>,
    /// The highest sequence in any slot whose write was cut in two; zero for none.
    torn: u64,
}

impl<T> Found<T> {
    /// Notes a write that was cut in two: it may be ignored, but not its sequence.
    fn note_torn(&mut self, newest: u64) {
        self.torn = self.torn.max(newest);
    }

    /// The state to go on with. Nothing may be written under the sequence of a write cut in
    /// two: cut in two as well, it could make one valid block of two halves.
    fn into_state(self) -> ObjectState {
        let mut state = self.state;
        if self.torn > state.sequence {
            state.sequence = self.torn + 1;
        }
        state
    }
}

impl<T> Default for Found<T> {
    fn default() -> Found<T> {
        Found { best: None, state: ObjectState::default(), damaged: Vec::new(), torn: 0 }
    }
}

impl Reader<'_> {
    fn read(&mut self) -> Result<Opening, Refusal> {
        let layout = self.superblock.layout;
        let mut problems = Vec::new();
        let mut table = Vec::with_capacity(layout.region_count() as usize);
        let mut objects = Vec::with_capacity(layout.page_count() as usize + 2);
        for page in 0..layout.page_count() {
            match self.read_page(page, &mut table) {
                Ok(state) => objects.push(state),
                Err(found) => problems.extend(found),
            }
        }
        objects.push(self.superblock_state());
        let lost = match self.read_lost() {
            Ok((lost, state)) => {
                objects.push(state);
                lost
            }
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        };
        if !problems.is_empty() {
            return Err(Refusal { problems });
        }
        let clean = !self.superblock.open;
        let superblock = self.superblock.clone();
        let mut marks = core::mem::take(&mut self.marks);
        marks.add_if(!clean, Mark::OpenedUnclean);
        let slots = self.slots.to_vec();
        Ok(Opening { superblock, table, lost, objects, slots, clean, marks })
    }

    /// Whether a damaged slot may hide something newer than the best one found.
    fn may_hide<T>(&self, found: &Found<T>, image: usize, known: Option<u64>) -> bool {
        let best = found.best.as_ref().map_or(0, |(sequence, _)| *sequence);
        if known.is_some_and(|known| known <= best) || planted::is(Planted::DamageIgnored) {
            return false;
        }
        // A clean close brought every leg up to date: another one without damage has it all.
        let intact = self
            .voters
            .iter()
            .any(|&v| v != image && !found.damaged.iter().any(|(damaged, _)| *damaged == v));
        self.superblock.open || !intact || known.is_some()
    }

    fn read_page(
        &mut self,
        page: u32,
        table: &mut Vec<RegionEntry>,
    ) -> Result<ObjectState, Vec<Problem>> {
        let layout = self.superblock.layout;
        let mut found: Found<page::Page> = Found::default();
        let mut problems = Vec::new();
        for &image in self.voters {
            for slot in 0..2u8 {
                let address = layout.page_address(page, slot);
                let Some(block) = block_at(self.images[image].bytes, address) else { continue };
                match page::open(block, page, address, self.superblock.volume_id) {
                    Ok(opened) => {
                        self.take(&mut found, image, slot, opened.sequence(), opened);
                    }
                    Err(page::PageError::Damaged { newest }) => {
                        found.damaged.push((image, newest));
                    }
                    Err(page::PageError::Torn { newest }) => found.note_torn(newest),
                    Err(page::PageError::Blank) => {}
                    Err(error) => problems.push(Problem::PageUnsupported { image, error }),
                }
            }
        }
        let regions = layout.page_regions(page);
        for &(image, known) in &found.damaged {
            if self.may_hide(&found, image, known) {
                let (first_region, end_region) = (regions.start, regions.end);
                problems.push(Problem::PageDamaged { image, page, first_region, end_region });
            } else {
                self.marks.add(Mark::DamageIgnored);
            }
        }
        let Some((_, best)) = &found.best else {
            problems.push(Problem::PageLost { page });
            return Err(problems);
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let known = self.known_legs(best.header().join_epoch);
        let mut old = false;
        let entries = best.entries().take(regions.len());
        table.extend(entries.map(|entry| {
            old |= entry.whole() & !known != 0;
            entry.with_whole(entry.whole() & known)
        }));
        self.marks.add_if(old, Mark::OldBitsIgnored);
        let sequences = self.voters.iter().map(|&v| found.state.durable[self.slots[v].index()]);
        let differ = sequences.clone().min() != sequences.max();
        self.marks.add_if(differ, Mark::RecoveryChose);
        self.marks.add_if(found.torn > 0, Mark::TornIgnored);
        Ok(found.into_state())
    }

    /// The legs a page written in `join_epoch` can speak of.
    fn known_legs(&self, join_epoch: u64) -> u8 {
        self.superblock.legs.iter().enumerate().fold(0, |mask, (leg, record)| {
            let known = record.state != Membership::Empty && record.join_epoch <= join_epoch;
            if known { mask | 1 << leg } else { mask }
        })
    }

    fn take<T>(&self, found: &mut Found<T>, image: usize, slot: u8, sequence: u64, value: T) {
        let leg = self.slots[image].index();
        if sequence > found.state.durable[leg] {
            found.state.durable[leg] = sequence;
            found.state.slot[leg] = slot;
        }
        let newer = |best: u64| sequence > best && !planted::is(Planted::OldSlotChosen);
        if found.best.as_ref().is_none_or(|(best, _)| newer(*best)) {
            found.best = Some((sequence, value));
        }
        found.state.sequence = found.state.sequence.max(sequence);
    }

    fn superblock_state(&self) -> ObjectState {
        let mut state = ObjectState { sequence: self.superblock.sequence, ..Default::default() };
        for (image, leg) in self.images.iter().zip(self.slots) {
            for slot in 0..2u8 {
                let block = block_at(image.bytes, Layout::superblock_address(slot));
                let own = match block.map(|block| Superblock::decode(block, slot)) {
                    Some(Ok(own)) => own,
                    Some(Err(
                        SuperblockError::Torn { newest }
                        | SuperblockError::Damaged { newest: Some(newest) },
                    )) => {
                        // The engine changes it at once, and so goes past this.
                        state.sequence = state.sequence.max(newest);
                        continue;
                    }
                    _ => continue,
                };
                if own.sequence > state.durable[leg.index()] {
                    state.durable[leg.index()] = own.sequence;
                    state.slot[leg.index()] = slot;
                }
                state.sequence = state.sequence.max(own.sequence);
            }
        }
        state
    }

    fn read_lost(&mut self) -> Result<(Vec<Extent>, ObjectState), Problem> {
        let volume_sectors = self.superblock.layout.volume_sectors();
        let mut found: Found<lost::LostList> = Found::default();
        for &image in self.voters {
            for slot in 0..2u8 {
                let address = Layout::lost_address(slot);
                let Some(block) = block_at(self.images[image].bytes, address) else { continue };
                match lost::open(block, address, self.superblock.volume_id, volume_sectors) {
                    Ok(list) => self.take(&mut found, image, slot, list.sequence(), list),
                    Err(lost::LostError::Torn { newest }) => found.note_torn(newest),
                    Err(lost::LostError::Blank) => {}
                    Err(lost::LostError::Damaged { newest }) => {
                        found.damaged.push((image, newest));
                    }
                    Err(_) => found.damaged.push((image, None)),
                }
            }
        }
        self.marks.add_if(found.torn > 0, Mark::TornIgnored);
        let hidden = found.damaged.iter().any(|&(i, known)| self.may_hide(&found, i, known));
        match &found.best {
            Some((_, best)) if !hidden => Ok((best.extents().collect(), found.into_state())),
            _ => Err(Problem::LostListDamaged),
        }
    }
}

/// What promoting a leg means, and the blocks that do it.
pub struct Promotion {
    /// The superblock it will have.
    pub superblock: Superblock,
    /// What the leg's own metadata knows it lacks: lost from now on, EIO until rewritten.
    pub lacks: Vec<Extent>,
    /// Regions that were being written under another leg's authority: they may lack the
    /// newest writes without the leg knowing.
    pub uncertain_regions: u32,
    /// Blocks to write, in this order, each made durable before the next: byte address and
    /// content. The superblock comes last.
    pub writes: Vec<(u64, Box<Block>)>,
}

/// Makes one leg decide alone: every other leg is out, with its bits forgotten, and what this
/// leg knows it lacks is lost. A new generation begins, so that the others can only come back
/// as legs that drain from it.
///
/// `generation` is random.
///
/// # Errors
/// The leg has no valid superblock, or is itself not a member.
pub fn promote(image: LegImage, generation: Id) -> Result<Promotion, Refusal> {
    let refuse = |problem| Err(Refusal { problems: vec![problem] });
    let old = match newest_of(image.bytes) {
        Ok(old) => old,
        Err(error) => return refuse(Problem::NotALeg { image: 0, error }),
    };
    let layout = old.layout;
    let found = image.bytes.len() as u64;
    if found < layout.data_offset() {
        let needed = layout.data_offset();
        return refuse(Problem::Truncated { image: 0, needed, found });
    }
    let mut superblock = old.clone();
    superblock.ancestry.push(Ancestor { generation: old.generation, sequence: old.sequence });
    superblock.generation = generation;
    superblock.open = false;
    superblock.join_epoch += 1;
    for (leg, record) in superblock.legs.iter_mut().enumerate() {
        if leg == old.leg.index() {
            record.state = Membership::In;
        } else if record.state != Membership::Empty {
            record.join_epoch = superblock.join_epoch;
            if record.state != Membership::Out(OutReason::Detached) {
                record.state = Membership::Out(OutReason::Removed);
            }
        }
    }
    let mut promotion =
        Promotion { superblock, lacks: Vec::new(), uncertain_regions: 0, writes: Vec::new() };
    // Until its table says so the leg decides nothing, so that a promotion cut short can
    // only be run again: lacks first, the table next, membership last.
    let highest = sequences_of_superblock(image).max(old.sequence);
    let newest_slot = slot_of_newest(image);
    let mut undecided = promotion.superblock.clone();
    undecided.legs[old.leg.index()].state = Membership::Out(OutReason::Removed);
    promotion.write_superblock(&undecided, highest + 1, 1 - newest_slot);
    promotion.write_superblock(&undecided, highest + 2, newest_slot);
    let pages = promote_table(image, &old, &mut promotion);
    promote_lost(image, &old, &mut promotion);
    promotion.writes.extend(pages);
    let decided = promotion.superblock.clone();
    promotion.write_superblock(&decided, highest + 3, 1 - newest_slot);
    promotion.write_superblock(&decided, highest + 4, newest_slot);
    promotion.superblock.sequence = highest + 4;
    Ok(promotion)
}

impl Promotion {
    fn write_superblock(&mut self, superblock: &Superblock, sequence: u64, slot: u8) {
        let mut block = Box::new([0; BLOCK_BYTES]);
        Superblock { sequence, ..superblock.clone() }.encode(&mut block, slot);
        self.writes.push((Layout::superblock_address(slot), block));
    }
}

fn slot_of_newest(image: LegImage) -> u8 {
    let sequence = |slot: u8| {
        block_at(image.bytes, Layout::superblock_address(slot))
            .and_then(|block| Superblock::decode(block, slot).ok())
            .map_or(0, |superblock| superblock.sequence)
    };
    u8::from(sequence(1) > sequence(0))
}

fn sequences_of_superblock(image: LegImage) -> u64 {
    (0..2u8)
        .filter_map(|slot| {
            let block = block_at(image.bytes, Layout::superblock_address(slot))?;
            match Superblock::decode(block, slot) {
                Ok(superblock) => Some(superblock.sequence),
                Err(SuperblockError::Damaged { newest }) => newest,
                Err(SuperblockError::Torn { newest }) => Some(newest),
                Err(_) => None,
            }
        })
        .max()
        .unwrap_or(0)
}

fn promote_table(
    image: LegImage,
    old: &Superblock,
    promotion: &mut Promotion,
) -> Vec<(u64, Box<Block>)> {
    let mut writes = Vec::new();
    let layout = old.layout;
    let leg = old.leg;
    for page in 0..layout.page_count() {
        let mut best: Option<page::Page> = None;
        let mut highest = 0;
        for slot in 0..2u8 {
            let address = layout.page_address(page, slot);
            let Some(block) = block_at(image.bytes, address) else { continue };
            match page::open(block, page, address, old.volume_id) {
                Ok(opened) => {
                    highest = highest.max(opened.sequence());
                    if best.is_none_or(|b| opened.sequence() > b.sequence()) {
                        best = Some(opened);
                    }
                }
                Err(page::PageError::Damaged { newest: Some(known) }) => {
                    highest = highest.max(known);
                }
                Err(page::PageError::Torn { newest }) => highest = highest.max(newest),
                Err(_) => {}
            }
        }
        let regions = layout.page_regions(page);
        let mut entries = Vec::with_capacity(regions.len());
        let mut old_entries = best.as_ref().map(|b| b.entries());
        let own_epoch = old.own_record().join_epoch;
        let speaks = best.is_some_and(|b| b.header().join_epoch >= own_epoch);
        for region in regions {
            let entry = old_entries.as_mut().and_then(|e| e.next()).filter(|_| speaks);
            let holds = match entry {
                Some(entry) if entry.is_dirty() => {
                    if entry.authority() != leg {
                        promotion.uncertain_regions += 1;
                    }
                    true
                }
                Some(entry) => entry.is_whole(leg),
                None => false,
            };
            if !holds {
                push_joined(&mut promotion.lacks, layout.region_extent(region));
            }
            entries.push(RegionEntry::new(leg.bit(), false, LegIndex(0)));
        }
        let header = page::PageHeader {
            page,
            generation: promotion.superblock.generation,
            join_epoch: promotion.superblock.join_epoch,
        };
        for (step, slot) in [(1u64, 0u8), (2, 1)] {
            let address = layout.page_address(page, slot);
            let mut block = Box::new([0; BLOCK_BYTES]);
            let entries = entries.iter().copied();
            page::encode(&mut block, address, old.volume_id, highest + step, &header, entries);
            writes.push((address, block));
        }
    }
    writes
}

fn push_joined(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end == extent.start => last.end = extent.end,
        _ => extents.push(extent),
    }
}

/// Adds what the leg lacks to what was lost already.
fn promote_lost(image: LegImage, old: &Superblock, promotion: &mut Promotion) {
    let volume_sectors = old.layout.volume_sectors();
    let mut highest = 0;
    let mut known: Option<(u64, Vec<Extent>)> = None;
    for slot in 0..2u8 {
        let address = Layout::lost_address(slot);
        let Some(block) = block_at(image.bytes, address) else { continue };
        match lost::open(block, address, old.volume_id, volume_sectors) {
            Ok(list) => {
                highest = highest.max(list.sequence());
                if known.as_ref().is_none_or(|(sequence, _)| list.sequence() > *sequence) {
                    known = Some((list.sequence(), list.extents().collect()));
                }
            }
            Err(
                lost::LostError::Damaged { newest: Some(n) } | lost::LostError::Torn { newest: n },
            ) => {
                highest = highest.max(n);
            }
            Err(_) => {}
        }
    }
    let mut all = promotion.lacks.clone();
    all.extend(known.map(|(_, extents)| extents).unwrap_or_default());
    let merged = merge_bounded(all);
    let header = lost::LostHeader {
        generation: promotion.superblock.generation,
        join_epoch: promotion.superblock.join_epoch,
    };
    for (step, slot) in [(1u64, 0u8), (2, 1)] {
        let address = Layout::lost_address(slot);
        let mut block = Box::new([0; BLOCK_BYTES]);
        lost::encode(
            &mut block,
            address,
            old.volume_id,
            highest + step,
            &header,
            &merged,
            volume_sectors,
        )
        .expect("the list is sorted, disjoint and bounded just above");
        promotion.writes.push((address, block));
    }
    promotion.lacks = merged;
}

/// Sorts and joins extents; when they are too many for a block the nearest become one.
fn merge_bounded(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if extent.start <= last.end => last.end = last.end.max(extent.end),
            _ => merged.push(extent),
        }
    }
    while merged.len() > lost::LOST_EXTENTS_MAX {
        let nearest =
            (0..merged.len() - 1).min_by_key(|&i| merged[i + 1].start - merged[i].end).unwrap_or(0);
        merged[nearest].end = merged[nearest + 1].end;
        merged.remove(nearest + 1);
    }
    merged
}
