//! The metadata blocks: what of them is durable where, and what is to be written.
//!
//! The region table's pages, the superblock and the lost list are all **objects**: each has
//! one sequence that grows with every change, two slots on every leg, and at most one write
//! in flight per leg. Changes made while a write is in flight share the next one: that is
//! the group commit. A write goes to the slot that does not hold the newest durable content,
//! and only its success makes that slot the newest.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::format::{BLOCK_BYTES, Layout};
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::marks::{Mark, Marks};
use crate::planted::{self, Planted};
use crate::settings::Limits;
use hemi_units::{Extent, SECTOR_BYTES};

/// Names a metadata object: pages first, then the superblock, then the lost list.
pub(crate) type ObjectId = u32;

#[derive(Clone, Copy, Default)]
struct OnLeg {
    /// Highest sequence known durable on the leg; zero for none.
    durable: u64,
    /// Sequence in flight; zero for none.
    in_flight: u64,
    /// The slot that holds `durable`.
    slot: u8,
    /// The other slot may hold something newer-looking, from before the leg was out: both
    /// have to be rewritten before it may decide anything.
    other_slot_unknown: bool,
    /// Set while the write in flight is late, or from when one failed until one succeeds: nobody waits
    /// for it who can do without.
    late: bool,
    /// Queued for writing.
    queued: bool,
}

#[derive(Clone, Copy, Default)]
struct Object {
    sequence: u64,
    changed: bool,
    legs: [OnLeg; LEGS_MAX],
}

impl Object {
    /// The sequence that carries everything known of it so far.
    fn newest(&self) -> u64 {
        self.sequence + u64::from(self.changed)
    }

    /// Returns true if `leg` has the newest content, and nothing else.
    fn is_current(&self, leg: LegIndex) -> bool {
        let on_leg = &self.legs[leg.index()];
        let unknown = on_leg.other_slot_unknown && !planted::is(Planted::OldSlotKept);
        on_leg.durable >= self.newest() && !unknown
    }
}

/// A write to submit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockWrite {
    pub(crate) object: ObjectId,
    pub(crate) sequence: u64,
    pub(crate) slot: u8,
    /// Its place on the leg, in sectors.
    pub(crate) extent: Extent,
    /// Byte address of the same.
    pub(crate) address: u64,
    /// The image that holds the bytes.
    pub(crate) image: u32,
    /// Moves of authority made before its content was taken.
    pub(crate) moves: u64,
}

pub(crate) struct Metadata {
    layout: Layout,
    objects: Vec<Object>,
    images: Vec<Box<[u8; BLOCK_BYTES]>>,
    free_images: Vec<u32>,
    /// Writes in flight per leg, at most.
    writes_max: u32,
    /// Writes in flight of content nobody waits for, per leg, at most.
    lazy_writes_max: u32,
    queues: [VecDeque<ObjectId>; LEGS_MAX],
    lazy_cursor: [u32; LEGS_MAX],
    in_flight: [u32; LEGS_MAX],
    /// Per leg: objects but the superblock that are late there.
    late: [u32; LEGS_MAX],
}

/// An object as recovery knows it: its sequence and each leg's durable sequence and slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectState {
    /// The highest valid sequence on any leg that counts.
    pub sequence: u64,
    /// Per leg: the highest valid sequence there, zero for none.
    pub durable: [u64; LEGS_MAX],
    /// Per leg: the slot that holds it.
    pub slot: [u8; LEGS_MAX],
}

impl Metadata {
    /// `states` holds one entry per page, then the superblock's, then the lost list's.
    pub(crate) fn new(layout: Layout, states: &[ObjectState], limits: &Limits) -> Metadata {
        let writes_max = limits.metadata_writes as u32;
        // Legs that fall silent keep the images of what is in flight to them.
        let images = writes_max * LEGS_MAX as u32;
        let objects = states
            .iter()
            .map(|state| Object {
                sequence: state.sequence,
                changed: false,
                legs: core::array::from_fn(|leg| OnLeg {
                    durable: state.durable[leg],
                    in_flight: 0,
                    slot: state.slot[leg],
                    other_slot_unknown: state.durable[leg] == 0,
                    late: false,
                    queued: false,
                }),
            })
            .collect::<Vec<_>>();
        let queue = || VecDeque::with_capacity(objects.len());
        Metadata {
            layout,
            queues: core::array::from_fn(|_| queue()),
            objects,
            images: (0..images).map(|_| Box::new([0; BLOCK_BYTES])).collect(),
            free_images: (0..images).rev().collect(),
            writes_max,
            lazy_writes_max: limits.lazy_writes,
            lazy_cursor: [0; LEGS_MAX],
            in_flight: [0; LEGS_MAX],
            late: [0; LEGS_MAX],
        }
    }

    pub(crate) fn page_of(&self, region: u32) -> ObjectId {
        self.layout.page_of(region)
    }

    /// Returns true if the object is a page of the region table.
    pub(crate) fn is_page(&self, object: ObjectId) -> bool {
        object < self.layout.page_count()
    }

    pub(crate) fn superblock(&self) -> ObjectId {
        self.layout.page_count()
    }

    pub(crate) fn lost_list(&self) -> ObjectId {
        self.layout.page_count() + 1
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Notes a change of the superblock; the sequence that will carry it.
    pub(crate) fn change_superblock(&mut self) -> u64 {
        self.change(self.superblock())
    }

    /// Notes a change of the lost list.
    pub(crate) fn change_lost_list(&mut self) {
        self.change(self.lost_list());
    }

    /// Notes a change; the sequence that will carry it.
    pub(super) fn change(&mut self, object: ObjectId) -> u64 {
        let object = &mut self.objects[object as usize];
        object.changed = true;
        object.sequence + 1
    }

    /// The sequence that carries everything known of the object so far.
    pub(crate) fn newest(&self, object: ObjectId) -> u64 {
        self.objects[object as usize].newest()
    }

    pub(crate) fn durable(&self, object: ObjectId, leg: LegIndex) -> u64 {
        self.objects[object as usize].legs[leg.index()].durable
    }

    /// Returns true if a leg has the list of what is lost: it must not decide a region before, or
    /// recovery would serve from it what is lost.
    pub(crate) fn knows_lost(&self, leg: LegIndex) -> bool {
        !self.lacks(self.lost_list(), leg)
    }

    /// Returns true if the newest content of an object is not durable on `leg`.
    pub(crate) fn lacks(&self, object: ObjectId, leg: LegIndex) -> bool {
        self.durable(object, leg) < self.newest(object)
    }

    /// Returns true if a reader of `leg` can find nothing of the object but what is durable there.
    pub(crate) fn is_settled(&self, object: ObjectId, leg: LegIndex) -> bool {
        let on_leg = &self.objects[object as usize].legs[leg.index()];
        on_leg.durable > 0 && !on_leg.other_slot_unknown
    }

    /// Asks for the newest content to be written to `leg` soon.
    pub(crate) fn request(&mut self, object: ObjectId, leg: LegIndex) {
        let on_leg = &mut self.objects[object as usize].legs[leg.index()];
        if !on_leg.queued {
            on_leg.queued = true;
            self.queues[leg.index()].push_back(object);
        }
    }

    /// Returns true if a request is waiting for `leg`.
    pub(crate) fn has_requests(&self, leg: LegIndex) -> bool {
        !self.queues[leg.index()].is_empty()
    }

    /// Queues some of what `leg` holds in an older version; whether all of it is newest.
    pub(crate) fn request_lazily(&mut self, leg: LegIndex) -> bool {
        let count = self.objects.len() as u32;
        let start = self.lazy_cursor[leg.index()];
        let mut current = true;
        for step in 0..count {
            let object = (start + step) % count;
            if !self.objects[object as usize].is_current(leg) {
                current = false;
                if self.in_flight[leg.index()] + self.queues[leg.index()].len() as u32
                    >= self.lazy_writes_max
                {
                    self.lazy_cursor[leg.index()] = object;
                    break;
                }
                self.request(object, leg);
            }
        }
        current
    }

    /// Returns true if every object's newest content is durable on `leg`.
    pub(crate) fn is_current(&self, leg: LegIndex) -> bool {
        self.objects.iter().all(|object| object.is_current(leg))
    }

    /// Does as [`Metadata::is_current`], with one object left out.
    pub(crate) fn is_current_but(&self, leg: LegIndex, except: ObjectId) -> bool {
        self.objects.iter().zip(0..).all(|(object, id)| id == except || object.is_current(leg))
    }

    /// Nothing that was written to `leg` before counts: it joins anew.
    pub(super) fn forget_leg(&mut self, leg: LegIndex) {
        for object in &mut self.objects {
            let on_leg = &mut object.legs[leg.index()];
            on_leg.durable = 0;
            on_leg.other_slot_unknown = true;
        }
    }

    /// Has all of `leg` written again: its slots may hold nothing of what was written there.
    pub(crate) fn distrust(&mut self, leg: LegIndex) {
        for object in &mut self.objects {
            object.legs[leg.index()].other_slot_unknown = true;
        }
    }

    /// The next block to write to `leg`, its sequence assigned; the caller fills the image.
    /// What is `withheld` stays queued.
    pub(super) fn next_write(
        &mut self,
        leg: LegIndex,
        withheld: Option<ObjectId>,
        marks: &mut Marks,
    ) -> Option<BlockWrite> {
        let in_flight: u32 = self.in_flight.iter().sum();
        let shared = planted::is(Planted::ImagesShared) && in_flight >= self.writes_max;
        if self.in_flight[leg.index()] >= self.writes_max || shared {
            return None;
        }
        for _ in 0..self.queues[leg.index()].len() {
            let id = *self.queues[leg.index()].front()?;
            let pages = self.layout.page_count();
            let object = &mut self.objects[id as usize];
            let current = object.is_current(leg);
            let on_leg = &mut object.legs[leg.index()];
            if on_leg.in_flight != 0 {
                // One write in flight per object and leg: its completion comes back here.
                marks.add(Mark::PageStillInFlight);
                self.queues[leg.index()].rotate_left(1);
                continue;
            }
            if current {
                on_leg.queued = false;
                self.queues[leg.index()].pop_front();
                continue;
            }
            if withheld == Some(id) {
                self.queues[leg.index()].rotate_left(1);
                continue;
            }
            let image = self.free_images.pop()?;
            self.queues[leg.index()].pop_front();
            on_leg.queued = false;
            if object.changed {
                object.changed = false;
                object.sequence += 1;
            }
            on_leg.in_flight = object.sequence;
            let same = planted::is(Planted::NewestSlotOverwritten);
            // Of a leg that was marked out, too: the slot that is left may be its only valid one.
            let slot = if same { on_leg.slot } else { 1 - on_leg.slot };
            self.in_flight[leg.index()] += 1;
            let sequence = object.sequence;
            let address = if id < pages {
                self.layout.page_address(id, slot)
            } else if id == pages {
                Layout::superblock_address(slot)
            } else {
                Layout::lost_address(slot)
            };
            let extent = Extent::new(address / SECTOR_BYTES, BLOCK_BYTES as u64 / SECTOR_BYTES);
            return Some(BlockWrite {
                object: id,
                sequence,
                slot,
                extent,
                address,
                image,
                moves: 0,
            });
        }
        None
    }

    /// Returns true if a write of the object is in flight to `leg`: its outcome is not known.
    pub(crate) fn is_in_flight(&self, object: ObjectId, leg: LegIndex) -> bool {
        self.in_flight(object, leg).is_some()
    }

    /// Returns the sequence of the write of the object that is in flight to `leg`.
    pub(crate) fn in_flight(&self, object: ObjectId, leg: LegIndex) -> Option<u64> {
        let sequence = self.objects[object as usize].legs[leg.index()].in_flight;
        Some(sequence).filter(|&sequence| sequence != 0)
    }

    /// Notes that the write of an object to `leg` is late, or failed. Returns true the first time.
    pub(crate) fn note_late(&mut self, object: ObjectId, leg: LegIndex) -> bool {
        let is_first = !self.is_late(object, leg);
        self.set_late(object, leg, true);
        is_first
    }

    fn set_late(&mut self, object: ObjectId, leg: LegIndex, late: bool) {
        let was =
            core::mem::replace(&mut self.objects[object as usize].legs[leg.index()].late, late);
        if object != self.superblock() {
            let count = &mut self.late[leg.index()];
            *count = *count + u32::from(late) - u32::from(was);
        }
    }

    /// Returns true if a write of the object to `leg` is in flight and late, or the last one failed.
    pub(crate) fn is_late(&self, object: ObjectId, leg: LegIndex) -> bool {
        self.objects[object as usize].legs[leg.index()].late
    }

    /// Returns true if `leg` is late with any object but the superblock.
    pub(crate) fn is_any_late(&self, leg: LegIndex) -> bool {
        self.late[leg.index()] > 0
    }

    pub(crate) fn image(&self, image: u32) -> &[u8; BLOCK_BYTES] {
        &self.images[image as usize]
    }

    pub(crate) fn image_mut(&mut self, image: u32) -> &mut [u8; BLOCK_BYTES] {
        &mut self.images[image as usize]
    }

    /// A write ended. A failed one stays wanted; its slot is written again.
    pub(super) fn complete(&mut self, leg: LegIndex, write: &BlockWrite, succeeded: bool) {
        self.free_images.push(write.image);
        self.in_flight[leg.index()] -= 1;
        if succeeded {
            self.set_late(write.object, leg, false);
        }
        let on_leg = &mut self.objects[write.object as usize].legs[leg.index()];
        on_leg.in_flight = 0;
        if succeeded || planted::is(Planted::FailedPageTrusted) {
            // The first write after a leg was out leaves one slot, the second none.
            on_leg.other_slot_unknown &= on_leg.durable == 0;
            on_leg.durable = on_leg.durable.max(write.sequence);
            on_leg.slot = write.slot;
        }
    }
}
