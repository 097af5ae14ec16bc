//! The ledger: who decides each region, in shared memory that outlives the process and not the
//! machine.
//!
//! One 32-bit word per region is stored at once, before anything relies on it, for the price of a
//! store. There is no log, no checkpoint and nothing to tear: a word certifies itself, and every
//! other value is one aligned store. Before the words lies a header: which volume, which boot of the
//! machine, which **opening** of the volume, and what was known durable of each metadata object on
//! each leg, so that a leg put back to an older state is noticed.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0 | magic, format version, number of regions |
//! | 16 | volume id, boot id |
//! | 48 | opening, next opening |
//! | 64 | per slot: the join epoch that bits of words are of |
//! | 128 | number of metadata objects; CRC-32C of what never changes |
//! | 256 | per slot, 48 bytes: how far a remote leg has come, as a stamp's number, its writer, and the next writer |
//! | 4096 | per metadata object and slot: the highest sequence known durable |
//! | next multiple of 4096 | per region: its word |

mod simulated;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crc32c::{crc32c, crc32c_append};

use super::stamp::{Progress, Stamp};
use super::{Id, Layout, RegionEntry};
use crate::identifiers::{LEGS_MAX, LegIndex};

pub use simulated::SimulatedMemory;

const MAGIC: u64 = u64::from_le_bytes(*b"HEMILGR\0");
/// The ledger's version. Another one is no ledger: the machine has to be restarted, or
/// `hemi settle` of the version that made it be run.
const VERSION: u32 = 1;
const VOLUME_AT: usize = 16;
const BOOT_AT: usize = 32;
const OPENING_AT: usize = 48;
const NEXT_AT: usize = 56;
const EPOCHS_AT: usize = 64;
const OBJECTS_AT: usize = 128;
const STAMPS_AT: usize = 256;
const STAMP_BYTES: usize = 48;
const DURABLE_AT: usize = 4096;
const PAGE_BYTES: usize = 4096;

const TOUCHED: u32 = 1 << 12;
const STATE_BITS: u32 = 13;
const STATE: u32 = (1 << STATE_BITS) - 1;
/// Values a word's check can have; zero is none, so that a word never stored is not valid.
const CHECKS: u64 = (1 << (32 - STATE_BITS)) - 1;

/// Shared memory as the driver gives it: all zeros when a ledger begins there. Each store takes
/// effect at once and whole, and in the order of the calls.
pub trait LedgerMemory {
    /// Stores 32 bits at a byte address that is a multiple of four.
    fn store_u32(&mut self, at: usize, value: u32);
    /// Stores 64 bits at a byte address that is a multiple of eight.
    fn store_u64(&mut self, at: usize, value: u64);
    /// No superblock relies on the ledger any more: it may be removed.
    fn retire(&mut self);
}

/// Names the ledger that a volume relies on, in its superblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerMark {
    /// The opening, not zero.
    pub opening: u64,
    /// The boot of the machine that the ledger is good for, not zeros.
    pub boot: Id,
}

/// Lays out a ledger's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    regions: u32,
    objects: u32,
}

impl Places {
    fn of(layout: &Layout) -> Places {
        Places { regions: layout.region_count(), objects: layout.page_count() + 2 }
    }

    fn durable(object: u32, leg: LegIndex) -> usize {
        DURABLE_AT + (object as usize * LEGS_MAX + leg.index()) * 8
    }

    fn stamp(leg: LegIndex) -> usize {
        STAMPS_AT + leg.index() * STAMP_BYTES
    }

    fn words_at(&self) -> usize {
        Places::durable(self.objects, LegIndex(0)).next_multiple_of(PAGE_BYTES)
    }

    fn word(&self, region: u32) -> usize {
        self.words_at() + 4 * region as usize
    }

    fn bytes(&self) -> usize {
        self.word(self.regions).next_multiple_of(PAGE_BYTES)
    }
}

/// Returns how many bytes of shared memory a volume's ledger takes.
pub fn ledger_bytes(layout: &Layout) -> usize {
    Places::of(layout).bytes()
}

/// Returns the word of a region in this state.
fn word_of(region: u32, entry: RegionEntry, touched: bool) -> u32 {
    let state = u32::from(entry.0) & (TOUCHED - 1) | if touched { TOUCHED } else { 0 };
    let mixed = (u64::from(region) << STATE_BITS | u64::from(state))
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let check = 1 + ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) % CHECKS;
    state | (check as u32) << STATE_BITS
}

/// Returns the state that a region's word stands for; `None` if it does not certify itself.
fn state_of(region: u32, word: u32) -> Option<(RegionEntry, bool)> {
    let state = word & STATE;
    let entry = RegionEntry((state & (TOUCHED - 1)) as u16);
    let touched = state & TOUCHED != 0;
    let sound = word_of(region, entry, touched) == word && (entry.is_dirty() || !touched);
    sound.then_some((entry, touched))
}

/// The ledger of a volume that is served: the only way to write one.
pub struct Ledger {
    memory: Box<dyn LedgerMemory + Send>,
    boot: Id,
    places: Places,
}

impl Ledger {
    /// Begins a ledger in memory that is all zeros. Nothing relies on it before a superblock
    /// names it.
    pub fn begin(
        mut memory: Box<dyn LedgerMemory + Send>,
        layout: &Layout,
        volume_id: Id,
        boot: Id,
    ) -> Ledger {
        let places = Places::of(layout);
        let header = fixed_header(places, volume_id, boot);
        for (at, bytes) in header {
            memory.store_u64(at, bytes);
        }
        Ledger { memory, boot, places }
    }

    /// Goes on with the ledger that recovery has found valid.
    pub fn adopt(memory: Box<dyn LedgerMemory + Send>, layout: &Layout, boot: Id) -> Ledger {
        Ledger { memory, boot, places: Places::of(layout) }
    }

    /// The boot of the machine it is good for.
    pub(crate) fn boot(&self) -> Id {
        self.boot
    }

    pub(crate) fn store(&mut self, region: u32, entry: RegionEntry, touched: bool) {
        self.memory.store_u32(self.places.word(region), word_of(region, entry, touched));
    }

    pub(crate) fn store_durable(&mut self, object: u32, leg: LegIndex, sequence: u64) {
        self.memory.store_u64(Places::durable(object, leg), sequence);
    }

    pub(crate) fn store_epoch(&mut self, leg: LegIndex, epoch: u64) {
        self.memory.store_u64(EPOCHS_AT + 8 * leg.index(), epoch);
    }

    /// Stores how far a leg has come. A kill in the middle leaves that nothing is known.
    pub(crate) fn store_progress(&mut self, leg: LegIndex, progress: &Progress) {
        let at = Places::stamp(leg);
        self.memory.store_u64(at, 0);
        let Some(known) = progress.known else { return };
        for (id, at) in [(known.writer, at + 8), (progress.writer, at + 24)] {
            self.memory.store_u64(at, half(&id, 0));
            self.memory.store_u64(at + 8, half(&id, 8));
        }
        self.memory.store_u64(at, known.number);
    }

    pub(crate) fn store_opening(&mut self, opening: u64) {
        self.memory.store_u64(OPENING_AT, opening);
    }

    pub(crate) fn store_next(&mut self, opening: u64) {
        self.memory.store_u64(NEXT_AT, opening);
    }

    pub(crate) fn retire(&mut self) {
        self.memory.retire();
    }
}

/// Returns eight bytes of an id, from the first or the ninth on.
fn half(id: &Id, from: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|at| id[from + at]))
}

/// Returns the part of the header that never changes, in pieces of eight bytes.
fn fixed_header(places: Places, volume_id: Id, boot: Id) -> [(usize, u64); 7] {
    let numbers = u64::from(VERSION) | u64::from(places.regions) << 32;
    let ids = [half(&volume_id, 0), half(&volume_id, 8), half(&boot, 0), half(&boot, 8)];
    let mut check = crc32c(&numbers.to_le_bytes());
    for id in ids {
        check = crc32c_append(check, &id.to_le_bytes());
    }
    check = crc32c_append(check, &places.objects.to_le_bytes());
    [
        (0, MAGIC),
        (8, numbers),
        (VOLUME_AT, ids[0]),
        (VOLUME_AT + 8, ids[1]),
        (BOOT_AT, ids[2]),
        (BOOT_AT + 8, ids[3]),
        (OBJECTS_AT, u64::from(places.objects) | u64::from(check) << 32),
    ]
}

/// The reason why bytes are not the ledger that a volume relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// No ledger of this version, volume and boot.
    #[error("it is no ledger of this volume, machine start and version of hemi")]
    Foreign,
    /// It is shorter than the volume's ledger has to be.
    #[error("it has {found} bytes and should have {needed}")]
    Short {
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// The legs were opened with another one, or without one, since.
    #[error("the legs have been served without it since")]
    Older,
    /// A leg is older than the ledger knows: it was put back to an earlier state.
    #[error("leg {leg} is older than it was when the volume was last served")]
    LegOlder {
        /// The slot.
        leg: u8,
    },
    /// A word does not certify itself.
    #[error("its record of region {region} is damaged")]
    Damaged {
        /// The region.
        region: u32,
    },
}

/// Returns the boot of the machine that bytes are a ledger of; `None` if they are no ledger of this
/// version. Says nothing about the rest of them.
pub fn boot_of(bytes: &[u8]) -> Option<Id> {
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let is_ledger = long(0)? == MAGIC && long(8)? as u32 == VERSION;
    is_ledger.then(|| bytes.get(BOOT_AT..BOOT_AT + 16)?.try_into().ok()).flatten()
}

/// A ledger as it was left, read but not yet held against the legs.
pub struct FoundLedger<'a> {
    bytes: &'a [u8],
    places: Places,
}

impl<'a> FoundLedger<'a> {
    /// Takes bytes for the ledger of a volume.
    ///
    /// # Errors
    /// They are not: [`LedgerError::Foreign`] or [`LedgerError::Short`].
    pub fn read(
        bytes: &'a [u8],
        layout: &Layout,
        volume_id: Id,
        boot: Id,
    ) -> Result<FoundLedger<'a>, LedgerError> {
        let found = FoundLedger { bytes, places: Places::of(layout) };
        let needed = found.places.bytes();
        let header = fixed_header(found.places, volume_id, boot);
        // So that a ledger of another volume is not called too short.
        if header[..6].iter().any(|&(at, value)| found.u64_at(at).is_some_and(|is| is != value)) {
            return Err(LedgerError::Foreign);
        }
        if bytes.len() < needed {
            return Err(LedgerError::Short { found: bytes.len(), needed });
        }
        let sound = header.iter().all(|&(at, value)| found.u64_at(at) == Some(value));
        if sound { Ok(found) } else { Err(LedgerError::Foreign) }
    }

    fn u64_at(&self, at: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    fn long(&self, at: usize) -> u64 {
        self.u64_at(at).expect("the length was checked")
    }

    /// The opening that was being served.
    pub fn opening(&self) -> u64 {
        self.long(OPENING_AT)
    }

    /// The opening that was to follow, or the same.
    pub fn next(&self) -> u64 {
        self.long(NEXT_AT)
    }

    /// The join epoch of the leg that a slot's bits are about.
    pub fn epoch(&self, leg: LegIndex) -> u64 {
        self.long(EPOCHS_AT + 8 * leg.index())
    }

    /// The highest sequence of a metadata object known durable on a leg; zero for none.
    pub fn durable(&self, object: u32, leg: LegIndex) -> u64 {
        self.long(Places::durable(object, leg))
    }

    /// Returns the progress that was stored last for a leg.
    pub fn progress(&self, leg: LegIndex) -> Progress {
        let at = Places::stamp(leg);
        let id = |at: usize| {
            let mut id = Id::default();
            id[..8].copy_from_slice(&self.long(at).to_le_bytes());
            id[8..].copy_from_slice(&self.long(at + 8).to_le_bytes());
            id
        };
        let number = self.long(at);
        let known = (number > 0).then(|| Stamp { writer: id(at + 8), number });
        Progress { known, writer: id(at + 24) }
    }

    /// Every region's entry, and whether it is touched.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`] names the first that does not certify itself.
    pub fn regions(&self) -> Result<Vec<(RegionEntry, bool)>, LedgerError> {
        let words = self.bytes[self.places.words_at()..].chunks_exact(4);
        (0..self.places.regions)
            .zip(words)
            .map(|(region, word)| {
                let word = u32::from_le_bytes(word.try_into().expect("chunks of four bytes"));
                state_of(region, word).ok_or(LedgerError::Damaged { region })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_was_stored_and_certifies_its_region() {
        let mut mistaken = 0;
        for region in [0, 1, 77, (1 << 24) - 1] {
            for state in 0..1u32 << 12 {
                let entry = RegionEntry(state as u16);
                for touched in [false, true] {
                    let word = word_of(region, entry, touched);
                    let sound = entry.is_dirty() || !touched;
                    assert_eq!(state_of(region, word), sound.then_some((entry, touched)));
                    mistaken += u32::from(state_of(region + 1, word).is_some());
                }
            }
            assert_eq!(state_of(region, 0), None, "a word never stored");
        }
        assert!(mistaken < 8, "{mistaken} of 32,768 words pass for another region's");
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let entry = RegionEntry::new(0b11, true, LegIndex(1));
        let word = word_of(9, entry, true);
        for bit in 0..32 {
            assert_eq!(state_of(9, word ^ 1 << bit), None, "bit {bit}");
        }
    }
}
