//! The regions of the volume: the one room that holds what is recorded of each, decides who
//! decides it, and knows what each leg has of it.
//!
//! Every region has a persistent entry (dirty, authority, whole legs) and one bit per leg that
//! says the leg owes all of it. A dirty region is either **touched**, written to since every whole
//! leg had flushed it, or **armed**, and then as good as clean for as long as the volume is served.
//! Regions that are touched, have exact debts or carry traffic also have a record of their working
//! state; those are bounded and kept in order of last use.
//!
//! An entry changes in few ways: a region becomes dirty (`begin_intent`), its authority moves
//! (`try_move`, `return_region`), it settles (`settle`) or becomes clean ([`Regions::clean`]), a leg
//! is found whole there ([`Regions::note_whole`]) or joins ([`Regions::take_bits`]). Each changes
//! the entry and its page together. Nobody outside writes either. Where to look: `deciding` who
//! decides, `armed` what is dirty in its page alone, `content` what each leg has, `waiting` who
//! waits for a decision, `metadata` what is durable where.

mod active;
mod armed;
mod bitmap;
mod content;
mod deciding;
mod ledger;
pub(in crate::engine) mod metadata;
mod moves;
mod order;
mod sound;
mod uncompared;
mod unflushed;
mod unrecorded;
mod waiting;

use alloc::vec::Vec;
use core::ops::Range;

use crate::engine::state::slab::Key;
use crate::format::{Id, Ledger, RegionEntry, page};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::planted::{self, Planted};
use crate::recovery::Opening;
use crate::settings::Settings;
use hemi_units::{Extent, Instant, SECTOR_BYTES};

use crate::engine::state::leg::Leg;
use active::InUse;
use armed::Armed;
use bitmap::Bitmap;
pub(in crate::engine) use deciding::{Candidates, FlushWanted, Moved};
use ledger::RecordInForce;
use metadata::{BlockWrite, Metadata};
use moves::Moves;
pub(in crate::engine) use order::{Wait, Walk};
use sound::Sound;
use unflushed::Unflushed;
use unrecorded::Unrecorded;
use waiting::Waiting;

/// Records of regions that are kept for exact debts, at most: some 40 MiB.
const EXACT_RECORDS_MAX: u32 = 1 << 17;
/// The share of free records below which clean regions give theirs back.
const RECORDS_SHORT_PERMILLE: usize = 125;

pub(in crate::engine) struct Regions {
    region_sectors: u64,
    region_shift: u32,
    volume_sectors: u64,
    table: Vec<RegionEntry>,
    /// Looks at entries, for tests that count steps.
    #[cfg(debug_assertions)]
    looks: core::cell::Cell<u64>,
    metadata: Metadata,
    /// The other record of the same: at once, for as long as the machine runs.
    ledger: Option<Ledger>,
    /// The record that acknowledgements, moves and the ledger's removal go by.
    in_force: RecordInForce,
    /// The ledger stays as it is: the engine has halted.
    ledger_is_left: bool,
    active: InUse,
    armed: Armed,
    moves: Moves,
    unflushed: Unflushed,
    flushes: Flushes,
    waiting: Waiting,
    stale: [Bitmap; LEGS_MAX],
    /// Owed regions that a leg was whole in before an unclean stop: it may have them.
    comparable: [Bitmap; LEGS_MAX],
    /// Regions found dirty, where no leg that was whole has been seen to have everything since.
    uncompared: Bitmap,
    /// Clean regions a leg has drained but is not yet recorded whole for.
    healing: [Bitmap; LEGS_MAX],
    /// Those of them that the flush in flight covers.
    healed: [Bitmap; LEGS_MAX],
    /// Regions each leg would lose if it were the only one left, for all its own metadata says.
    unrecorded: [Unrecorded; LEGS_MAX],
    /// Legs that have a slot, as a mask.
    members: u8,
    dirty: u32,
    touched: u32,
    /// Regions that may be touched at once.
    touched_max: u32,
    /// Touched regions that each leg decides.
    authorities: [u32; LEGS_MAX],
    /// Armed regions that each leg would decide.
    armed_under: [u32; LEGS_MAX],
    sound: Sound,
}

/// Flushes of clients.
struct Flushes {
    /// Those that have arrived; one for those before an unclean stop.
    arrived: u64,
    /// A client has asked for something to be durable.
    used: bool,
}

impl Regions {
    /// Takes over what recovery found of the regions. A leg that is not whole in a region owes it;
    /// a dirty region is owed by all but its authority. What a dirty region holds may still be in
    /// its legs' caches, from before the start: it counts as written at that stamp.
    pub(in crate::engine) fn new(
        opening: &mut Opening,
        settings: &Settings,
        operations_max: u32,
        members: u8,
        ledger: Option<Ledger>,
        now: Instant,
        stamp: u64,
    ) -> Regions {
        let layout = opening.superblock.layout;
        let table = core::mem::take(&mut opening.table);
        let count = table.len() as u32;
        let dirty = table.iter().filter(|entry| entry.is_dirty()).count() as u32;
        let region_sectors = layout.region_bytes() / SECTOR_BYTES;
        let active = InUse::new(count, records_max(settings, dirty));
        let records = active.capacity();
        let is_member = |leg: usize| members >> leg & 1 == 1;
        let bitmap =
            |leg: usize| if is_member(leg) { Bitmap::new(count) } else { Bitmap::default() };
        let unrecorded = |leg: usize| {
            if is_member(leg) { Unrecorded::new(count) } else { Unrecorded::default() }
        };
        let mut regions = Regions {
            region_sectors,
            region_shift: region_sectors.trailing_zeros(),
            volume_sectors: layout.volume_bytes() / SECTOR_BYTES,
            table,
            #[cfg(debug_assertions)]
            looks: Default::default(),
            metadata: Metadata::new(layout, &opening.objects, &settings.limits),
            ledger: None,
            in_force: RecordInForce::Pages,
            ledger_is_left: false,
            active,
            armed: Armed::new(
                count,
                layout.page_count(),
                armed::dirty_max(settings, layout.region_bytes()),
            ),
            moves: Moves::new(records as u32, layout.page_count()),
            unflushed: Unflushed::default(),
            flushes: Flushes { arrived: u64::from(!opening.clean), used: !opening.clean },
            waiting: Waiting::new(operations_max, records),
            stale: core::array::from_fn(bitmap),
            comparable: core::array::from_fn(bitmap),
            uncompared: Bitmap::new(count),
            healing: core::array::from_fn(bitmap),
            healed: core::array::from_fn(bitmap),
            unrecorded: core::array::from_fn(unrecorded),
            members,
            dirty: 0,
            touched: 0,
            touched_max: touched_max(settings, dirty),
            authorities: [0; LEGS_MAX],
            armed_under: [0; LEGS_MAX],
            sound: Sound::new(),
        };
        regions.note_what_pages_lack(opening);
        for region in 0..count {
            regions.adopt(region, opening, now, stamp);
        }
        regions.unrecord_older_pages();
        regions.unrecord_doubted(opening.doubted);
        regions.begin_ledger(ledger, opening);
        regions
    }

    fn adopt(&mut self, region: u32, opening: &Opening, now: Instant, stamp: u64) {
        let touched = opening.is_touched(region, self.entry(region));
        if touched {
            let record = self.active.add(region, now);
            let record = record.expect("there are records for all regions found dirty");
            self.active[record].touched = true;
            self.active[record].is_found = true;
            self.adopt_authority(record, opening, now, stamp);
        } else if self.entry(region).is_dirty() {
            self.adopt_armed(region);
        }
        self.count_in(region);
        let entry = self.entry(region);
        self.note_unrecorded(region, entry);
        for leg in self.member_legs() {
            let fresh = if touched { entry.authority() == leg } else { entry.is_whole(leg) };
            if !fresh {
                self.set_stale(leg, region);
                if touched && entry.is_whole(leg) {
                    self.comparable[leg.index()].insert(region);
                    self.uncompared.insert(region);
                }
            }
        }
    }

    fn member_legs(&self) -> impl Iterator<Item = LegIndex> + use<> {
        let members = self.members;
        (0..LEGS_MAX as u8).map(LegIndex).filter(move |leg| members & leg.bit() != 0)
    }

    /// Makes room for a leg that joins. It owes everything, and nothing is durable on it.
    pub(in crate::engine) fn add_leg(&mut self, leg: LegIndex, epoch: u64) {
        self.drop_leg(leg);
        let count = self.count();
        self.stale[leg.index()] = Bitmap::new(count);
        self.comparable[leg.index()] = Bitmap::new(count);
        self.healing[leg.index()] = Bitmap::new(count);
        self.healed[leg.index()] = Bitmap::new(count);
        self.unrecorded[leg.index()] = Unrecorded::new(count);
        self.members |= leg.bit();
        self.unflushed.forget(leg);
        self.forget_metadata(leg);
        self.take_bits(leg);
        self.note_epoch(leg, epoch);
    }

    /// Forgets all about a leg that left.
    pub(in crate::engine) fn drop_leg(&mut self, leg: LegIndex) {
        let mut from = 0;
        while let Some(region) = self.next_stale(leg, from) {
            from = region + 1;
            self.clear_stale(leg, region);
        }
        self.stale[leg.index()] = Bitmap::default();
        self.comparable[leg.index()] = Bitmap::default();
        self.healing[leg.index()] = Bitmap::default();
        self.healed[leg.index()] = Bitmap::default();
        self.unrecorded[leg.index()] = Unrecorded::default();
        self.members &= !leg.bit();
        self.active.forget_waits();
    }

    /// Counts the regions of the volume.
    pub(in crate::engine) fn count(&self) -> u32 {
        self.table.len() as u32
    }

    /// The size of the volume.
    pub(in crate::engine) fn volume_sectors(&self) -> u64 {
        self.volume_sectors
    }

    pub(in crate::engine) fn of_sector(&self, sector: u64) -> u32 {
        (sector >> self.region_shift) as u32
    }

    /// The part of `region` inside the volume.
    pub(in crate::engine) fn extent(&self, region: u32) -> Extent {
        let start = u64::from(region) << self.region_shift;
        Extent { start, end: (start + self.region_sectors).min(self.volume_sectors) }
    }

    pub(in crate::engine) fn entry(&self, region: u32) -> RegionEntry {
        #[cfg(debug_assertions)]
        self.looks.set(self.looks.get() + 1);
        self.table[region as usize]
    }

    /// Counts the looks at entries since open.
    #[cfg(debug_assertions)]
    pub(in crate::engine) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// Returns true if a region has been written to since every whole leg had flushed it: its
    /// authority decides. Elsewhere whoever is whole has everything, durably.
    pub(in crate::engine) fn is_touched(&self, region: u32) -> bool {
        let is_touched = |record: u32| self.active[record].touched;
        self.entry(region).is_dirty() && self.slot(region).is_some_and(is_touched)
    }

    /// Returns true if a region is touched and this leg its authority.
    pub(in crate::engine) fn decides(&self, leg: LegIndex, region: u32) -> bool {
        self.entry(region).authority() == leg && self.is_touched(region)
    }

    /// Returns what is durable where of the pages, the superblock and the lost list, and what of them is
    /// to be written.
    pub(in crate::engine) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the metadata to ask for writes and to make them. The content of pages is changed here
    /// only.
    pub(in crate::engine) fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Returns the page that a region's entry is in.
    pub(in crate::engine) fn page_of(&self, region: u32) -> u32 {
        self.metadata.page_of(region)
    }

    /// Asks for a region's page to be written to a leg soon.
    pub(in crate::engine) fn request_page_of(&mut self, region: u32, leg: LegIndex) {
        self.metadata.request(self.metadata.page_of(region), leg);
    }

    /// Fills the image of a page that is to be written.
    pub(in crate::engine) fn fill_page(
        &mut self,
        write: &BlockWrite,
        generation: Id,
        join_epoch: u64,
    ) {
        let header = page::PageHeader { page: write.object, generation, join_epoch };
        let regions = self.metadata.layout().page_regions(write.object);
        let entries = &self.table[regions.start as usize..regions.end as usize];
        page::fill(self.metadata.image_mut(write.image), &header, entries);
    }

    /// Replaces an entry, in the ledger at once, keeping all that is counted of it. Its page changes
    /// with it: the caller notes that. A region that was and stays armed keeps its place in the order
    /// of last use.
    fn set_state(&mut self, region: u32, entry: RegionEntry, touched: bool) {
        let was_armed = self.is_armed(region);
        let was_used = self.is_touched(region);
        self.count_out(region);
        self.table[region as usize] = entry;
        match self.slot(region) {
            Some(record) => self.active[record].touched = touched && entry.is_dirty(),
            None => debug_assert!(!touched, "region {region} is touched without a record"),
        }
        self.count_in(region);
        match (was_armed, self.is_armed(region)) {
            (true, false) => self.armed.remove(region),
            (false, true) => self.armed.insert(region, was_used),
            _ => {}
        }
        if let Some(record) = self.slot(region) {
            self.wake_move(record);
            if !entry.is_dirty() {
                self.note_undecided(record);
            }
        }
        self.note_unrecorded(region, entry);
        self.enter_in_ledger(region);
    }

    /// Does as [`Regions::set_state`] for a region that stays touched or untouched.
    fn set_entry(&mut self, region: u32, entry: RegionEntry) {
        self.set_state(region, entry, self.is_touched(region));
    }

    fn count_in(&mut self, region: u32) {
        let entry = self.entry(region);
        self.dirty += u32::from(entry.is_dirty());
        if let Some((leg, stamp)) = self.decided_at(region) {
            self.touched += 1;
            self.authorities[leg.index()] += 1;
            self.unflushed.add(leg, stamp);
            return;
        }
        self.armed_under[entry.authority().index()] += u32::from(entry.is_dirty());
        self.sound.add(entry.whole(), self.sound(region));
    }

    fn count_out(&mut self, region: u32) {
        let entry = self.entry(region);
        self.dirty -= u32::from(entry.is_dirty());
        if let Some((leg, stamp)) = self.decided_at(region) {
            self.touched -= 1;
            self.authorities[leg.index()] -= 1;
            self.unflushed.take(leg, stamp);
            return;
        }
        self.armed_under[entry.authority().index()] -= u32::from(entry.is_dirty());
        self.sound.remove(entry.whole(), self.sound(region));
    }

    /// Returns the authority of a touched region, and its stamp at its last write there.
    fn decided_at(&self, region: u32) -> Option<(LegIndex, u64)> {
        let leg = self.entry(region).authority();
        let record = self.slot(region).filter(|_| self.is_touched(region))?;
        Some((leg, self.active[record].last_done[leg.index()]))
    }

    /// Makes a dirty region clean: these legs, as a mask, hold everything there, durably. The
    /// caller has seen to it that the authority is one of them and recorded as such.
    pub(in crate::engine) fn clean(&mut self, region: u32, whole: u8) {
        self.note_settled(region);
        let entry = self.entry(region).with_whole(whole).cleaned();
        self.set_state(region, entry, false);
        self.metadata.change(self.metadata.page_of(region));
    }

    /// A leg holds everything in an untouched region, durably, after it was behind.
    pub(in crate::engine) fn note_whole(&mut self, leg: LegIndex, region: u32) {
        let entry = self.entry(region);
        self.set_entry(region, entry.with_whole(entry.whole() | leg.bit()));
        self.metadata.change(self.metadata.page_of(region));
    }

    /// A leg joins: whatever the slot's last leg had, this one has nothing.
    fn take_bits(&mut self, leg: LegIndex) {
        for region in 0..self.count() {
            let entry = self.entry(region);
            if !planted::is(Planted::JoinKeepsBits) {
                self.set_entry(region, entry.with_whole(entry.whole() & !leg.bit()));
            }
            self.set_stale(leg, region);
        }
        for page in 0..self.metadata.superblock() {
            self.metadata.change(page);
        }
    }

    /// Any page that is written from now on may say that legs are not whole in this region.
    fn note_unrecorded(&mut self, region: u32, entry: RegionEntry) {
        let mut legs = if entry.is_dirty() { 0 } else { self.members & !entry.whole() };
        while legs != 0 {
            self.unrecorded[legs.trailing_zeros() as usize].insert(region);
            legs &= legs - 1;
        }
    }

    /// Counts regions as unrecorded: what the leg has of their page says nothing for it.
    fn unrecord(&mut self, leg: LegIndex, regions: Range<u32>) {
        regions.for_each(|region| self.unrecorded[leg.index()].insert(region));
    }

    /// Counts the regions of older pages as unrecorded: such a page may say that the leg is not whole
    /// where the newest does not.
    fn unrecord_older_pages(&mut self) {
        for page in 0..self.metadata.superblock() {
            let regions = self.metadata.layout().page_regions(page);
            for leg in self.member_legs() {
                if self.metadata.durable(page, leg) != self.metadata.newest(page) {
                    self.unrecord(leg, regions.clone());
                }
            }
        }
    }

    /// Counts all regions as unrecorded for legs that recovery doubts: every page is written again, and
    /// says so under a newer sequence.
    fn unrecord_doubted(&mut self, doubted: u8) {
        if doubted == 0 || planted::is(Planted::DoubtForgotten) {
            return;
        }
        for leg in self.member_legs().filter(|leg| doubted & leg.bit() != 0) {
            self.unrecord(leg, 0..self.count());
        }
        for page in 0..self.metadata.superblock() {
            self.metadata.change(page);
        }
    }

    /// Forgets what was durable of the metadata on a leg, which joins anew.
    pub(in crate::engine) fn forget_metadata(&mut self, leg: LegIndex) {
        self.metadata.forget_leg(leg);
        self.active.forget_waits();
        self.forget_durable(leg);
        self.unrecord(leg, 0..self.count());
    }

    /// A page is durable on a leg: what it says there for the leg holds from now on.
    pub(in crate::engine) fn note_recorded(&mut self, leg: LegIndex, write: &BlockWrite) {
        if !self.metadata.is_settled(write.object, leg) {
            return;
        }
        let regions = self.metadata.layout().page_regions(write.object);
        let unrecorded = &mut self.unrecorded[leg.index()];
        if unrecorded.next(regions.start).is_none_or(|region| region >= regions.end) {
            return;
        }
        let holds = |entry: RegionEntry| entry.is_dirty() || entry.is_whole(leg);
        for (region, entry) in regions.zip(page::entries(self.metadata.image(write.image))) {
            if holds(entry) && holds(self.table[region as usize]) {
                unrecorded.remove(region);
            }
        }
    }

    /// Returns true if the leg's own metadata says, or may say, that it is not whole in a clean region.
    pub(in crate::engine) fn is_unrecorded(&self, leg: LegIndex, region: u32) -> bool {
        self.unrecorded[leg.index()].contains(region)
    }

    /// Returns the generation of the regions that become unrecorded for a leg now.
    pub(in crate::engine) fn unrecorded_generation(&self, leg: LegIndex) -> u64 {
        self.unrecorded[leg.index()].generation()
    }

    /// Returns true if none of the regions is left that were unrecorded for the leg in that
    /// generation or before. Asking may begin the next one.
    pub(in crate::engine) fn is_recorded(&mut self, leg: LegIndex, generation: u64) -> bool {
        self.unrecorded[leg.index()].is_over(generation)
    }

    /// Counts the dirty regions, armed ones included.
    pub(in crate::engine) fn dirty_count(&self) -> u32 {
        self.dirty
    }

    /// Counts the touched regions.
    pub(in crate::engine) fn touched_count(&self) -> u32 {
        self.touched
    }

    /// Returns true if a region that is touched, or one more, may be.
    pub(in crate::engine) fn may_be_touched(&self, region: u32) -> bool {
        self.touched < self.touched_max || self.is_touched(region)
    }

    /// Counts the touched regions whose authority `leg` is.
    pub(in crate::engine) fn authority_count(&self, leg: LegIndex) -> u32 {
        self.authorities[leg.index()]
    }

    /// Returns the record of a region, if it is in use.
    pub(in crate::engine) fn slot(&self, region: u32) -> Option<u32> {
        self.active.slot(region)
    }

    /// Returns the region of a record.
    pub(in crate::engine) fn region_of(&self, record: u32) -> u32 {
        self.active[record].region
    }

    /// Takes a region into use; `None` when all records are.
    ///
    /// A leg that is not recorded whole there may hold what it has in its cache alone, from
    /// before the region was cleaned without it.
    pub(in crate::engine) fn activate(
        &mut self,
        region: u32,
        legs: &[Leg],
        now: Instant,
    ) -> Option<u32> {
        if let Some(record) = self.slot(region) {
            return Some(record);
        }
        let record = self.active.add(region, now)?;
        let entry = self.entry(region);
        let active = &mut self.active[record];
        for leg in legs.iter().filter(|leg| !entry.is_whole(leg.index)) {
            active.last_done[leg.index.index()] = leg.stamps.done();
            active.acknowledged_done[leg.index.index()] = leg.stamps.done();
        }
        Some(record)
    }

    /// Frees the record of an untouched region with nothing left to do.
    pub(in crate::engine) fn retire(&mut self, record: u32) {
        let active = &self.active[record];
        if active.is_idle() && !active.touched {
            self.moves.forget(record);
            self.active.free(record);
        }
    }

    /// A client's operation begins in a region.
    pub(in crate::engine) fn begin_operation(&mut self, record: u32, now: Instant) {
        self.active[record].operations += 1;
        self.active[record].is_found = false;
        self.active.touch(record, now);
    }

    /// A client's operation in a region is over.
    pub(in crate::engine) fn end_operation(&mut self, record: u32, now: Instant) {
        let active = &mut self.active[record];
        active.operations -= 1;
        active.last_use = now;
    }

    /// Returns true if what operations rewrite must stay on the lost list: the region's authority moves
    /// to a leg that may not have it.
    pub(in crate::engine) fn rewrites_wait(&self, record: u32) -> bool {
        self.active[record].rewrites_wait
    }

    /// Returns true if clients' operations are running in a region.
    pub(in crate::engine) fn has_operations(&self, record: u32) -> bool {
        self.active[record].operations > 0
    }

    /// Returns when any region in use was last used.
    pub(in crate::engine) fn last_use_of_any(&self) -> Option<Instant> {
        Some(self.last_use(self.active.newest()?))
    }

    /// Returns since when a region has been left alone.
    pub(in crate::engine) fn last_use(&self, record: u32) -> Instant {
        self.active[record].last_use
    }

    /// Returns the least recently used record.
    pub(in crate::engine) fn oldest(&self) -> Option<u32> {
        self.active.oldest()
    }

    /// Returns the next record used after this one was.
    pub(in crate::engine) fn newer(&self, record: u32) -> Option<u32> {
        self.active.newer(record)
    }

    /// Notes what a record waits for. It is forgotten when anything that is known of the region changes.
    pub(in crate::engine) fn note_wait(&mut self, record: u32, wait: Wait) {
        self.active.note_wait(record, wait);
    }

    /// Forgets what records wait for that wait for flushes of one of these legs, as a mask.
    pub(in crate::engine) fn forget_waits_for(&mut self, legs: u8) {
        self.active.forget_waits_for(legs);
    }

    /// Forgets what all records wait for.
    pub(in crate::engine) fn forget_waits(&mut self) {
        self.active.forget_waits();
    }

    /// Passes over at most `most` records, in order of last use and this one first, that just go on
    /// waiting. Returns the one after them, and how many they are.
    pub(in crate::engine) fn pass_waiting(
        &mut self,
        record: u32,
        most: usize,
        walk: &Walk,
    ) -> (Option<u32>, usize) {
        self.active.pass_waiting(record, most, walk)
    }

    /// Returns true if the record of an untouched region stays as it is for now: it is not retired, and
    /// no leg has what it was rebuilt for.
    pub(in crate::engine) fn is_kept(&self, record: u32) -> bool {
        let active = &self.active[record];
        let is_rebuilt = |leg: usize| active.rebuilding >> leg & 1 == 1 && active.lacks[leg] == 0;
        !active.touched && !active.is_idle() && !(0..LEGS_MAX).any(is_rebuilt)
    }

    /// Returns true if a record is in use.
    pub(in crate::engine) fn is_used(&self, record: u32) -> bool {
        self.active.is_used(record)
    }

    /// Returns the first record in use that is not below this one.
    pub(in crate::engine) fn record_from(&self, record: u32) -> Option<u32> {
        self.active.first_from(record)
    }

    /// Names a record so that it is not taken for another that gets its slot later.
    pub(in crate::engine) fn key(&self, record: u32) -> Key {
        self.active.key(record)
    }

    /// Returns the record of that name, if it is still in use.
    pub(in crate::engine) fn keyed(&self, key: Key) -> Option<u32> {
        self.active.is_live(key).then_some(key.slot)
    }

    /// Counts the records in use.
    pub(in crate::engine) fn in_use(&self) -> usize {
        self.active.count()
    }

    /// Counts all records, in use or not.
    pub(in crate::engine) fn records(&self) -> u32 {
        self.active.capacity() as u32
    }

    /// Returns true if few records are free, and there are fewer than regions.
    pub(in crate::engine) fn records_are_short(&self) -> bool {
        self.active.capacity() < self.count() as usize
            && self.active.free_slots() * 1000 < self.active.capacity() * RECORDS_SHORT_PERMILLE
            && !planted::is(Planted::RecordsKeptForDebts)
    }
}

/// Returns how many regions may be touched at once, with `dirty` at open: those that may stay
/// so, and those that requests in flight need.
fn touched_max(settings: &Settings, dirty: u32) -> u32 {
    let under_way = settings.limits.records_per_request * settings.requests_max;
    settings.dirty_regions_max.max(dirty) + under_way
}

/// Returns how many regions may be in use at once: those that are touched, and those that a leg owes
/// exactly.
fn records_max(settings: &Settings, dirty: u32) -> u32 {
    let too_few = planted::is(Planted::RecordsKeptForDebts);
    let exact = if too_few { 0 } else { settings.owed_extents_max.min(EXACT_RECORDS_MAX) };
    touched_max(settings, dirty) + exact
}
