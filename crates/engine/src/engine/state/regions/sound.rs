//! Counts the untouched regions by the legs that are **sound** there: recorded whole, and lacking
//! nothing. Whether any region depends on one leg is asked at every tick while that leg is dead, and
//! answered without a look at the table.

use alloc::vec;
use alloc::vec::Vec;

use super::Regions;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::planted::{self, Planted};

/// Sets of legs.
const MASKS: usize = 1 << LEGS_MAX;

/// For each leg, the untouched regions it is recorded whole in, by the mask of those sound there.
#[derive(PartialEq, Eq)]
pub(super) struct Sound {
    regions: Vec<[u32; MASKS]>,
}

impl Sound {
    pub(super) fn new() -> Sound {
        Sound { regions: vec![[0; MASKS]; LEGS_MAX] }
    }

    /// Counts a region in which legs are whole, and some of them sound.
    pub(super) fn add(&mut self, whole: u8, sound: u8) {
        self.each(whole, sound, |regions| *regions += 1);
    }

    /// Counts such a region no more.
    pub(super) fn remove(&mut self, whole: u8, sound: u8) {
        self.each(whole, sound, |regions| *regions -= 1);
    }

    fn each(&mut self, whole: u8, sound: u8, change: impl Fn(&mut u32)) {
        let mut legs = whole;
        while legs != 0 {
            change(&mut self.regions[legs.trailing_zeros() as usize][usize::from(sound)]);
            legs &= legs - 1;
        }
    }

    /// Returns true if in a region that this leg is whole in none of these others is sound.
    fn depend_on(&self, leg: LegIndex, others: u8) -> bool {
        let mut regions = self.regions[leg.index()].iter().enumerate();
        regions.any(|(sound, &regions)| regions > 0 && sound & usize::from(others) == 0)
    }
}

impl Regions {
    /// Returns true if an untouched region is recorded whole on this leg, and none of these others, as a
    /// mask, is recorded whole there and lacks nothing. One whose medium could not read all of it is
    /// recorded whole, too, and owes that.
    pub(in crate::engine) fn depend_on(&self, leg: LegIndex, others: u8) -> bool {
        self.sound.depend_on(leg, others)
    }

    /// Returns the legs, as a mask, that are recorded whole in a region and lack nothing of it.
    pub(super) fn sound(&self, region: u32) -> u8 {
        let whole = self.entry(region).whole();
        let legs = (0..LEGS_MAX as u8).map(LegIndex).filter(|leg| whole & leg.bit() != 0);
        let sound = legs.filter(|&leg| self.is_complete(leg, region));
        sound.fold(0, |sound, leg| sound | leg.bit())
    }

    /// A leg may have become complete in a region, or behind. It was complete before, or not.
    pub(super) fn note_complete_or_behind(&mut self, leg: LegIndex, region: u32, was: bool) {
        if self.is_complete(leg, region) == was {
            return;
        }
        let entry = self.entry(region);
        if let Some(record) = self.slot(region).filter(|_| self.is_touched(region)) {
            self.wake_move(record);
            return;
        }
        if !entry.is_whole(leg) || planted::is(Planted::UnreadableUncounted) {
            return;
        }
        let sound = self.sound(region);
        self.sound.remove(entry.whole(), sound ^ leg.bit());
        self.sound.add(entry.whole(), sound);
    }

    /// Returns true if the counts are what a count of all regions comes to.
    pub(in crate::engine) fn sound_is_counted(&self) -> bool {
        let mut sound = Sound::new();
        for region in (0..self.count()).filter(|&region| !self.is_touched(region)) {
            sound.add(self.entry(region).whole(), self.sound(region));
        }
        sound == self.sound
    }
}
