//! Preconditioning: brings a drive into the state of long use without simulating that use.

use hemi_random::Rng;

use super::Ssd;
use super::mapping::AHEAD;
use super::translation::Translation;
use crate::preset::Precondition;

/// Share by which two successive windows differ, below which write amplification has settled.
const SETTLED: f64 = 0.01;

/// Maximum number of windows, each of half the drive's units.
const WINDOWS: u32 = 24;

impl Ssd {
    /// Brings an idle drive into the state, untimed, through the same translation layer.
    /// Returns the write amplification of the last window of overwrites, or 1 without
    /// overwrites.
    pub fn precondition(&mut self, state: Precondition, seed: u64) -> f64 {
        let amplification = match state {
            Precondition::None => return 1.0,
            Precondition::Cached => {
                self.fill_cache();
                1.0
            }
            Precondition::Sequential => {
                fill(&mut self.translation);
                1.0
            }
            Precondition::Steady => {
                fill(&mut self.translation);
                overwrite(&mut self.translation, seed)
            }
        };
        // In use, collection keeps more blocks free than strictly necessary.
        for lane in 0..self.translation.shape().lanes {
            while self.translation.free_in(lane) < self.parameters.collection_start
                && self.translation.collect(lane)
            {}
            self.collector.enqueue(&self.translation, lane);
        }
        self.begin_life_of_run();
        amplification
    }

    /// Writes from the beginning until the SLC cache takes no more; everything without one.
    fn fill_cache(&mut self) {
        let translation = &mut self.translation;
        let Some(slc) = &self.slc else { return fill(translation) };
        for unit in 0..translation.shape().units {
            if !slc.takes(translation, translation.turn()) {
                break;
            }
            translation.write_cached(unit);
        }
    }
}

fn fill(translation: &mut Translation) {
    for unit in 0..translation.shape().units {
        translation.write(unit);
    }
}

fn overwrite(translation: &mut Translation, seed: u64) -> f64 {
    let mut rng = Rng::new(seed, 0x09e);
    let units = u64::from(translation.shape().units);
    let mut last = 0.0;
    for window in 0..WINDOWS {
        let before = translation.work().copied;
        let count = units.div_ceil(2);
        for begin in (0..count).step_by(AHEAD as usize) {
            let mut ahead = [0; AHEAD as usize];
            let ahead = &mut ahead[..(count - begin).min(AHEAD.into()) as usize];
            ahead.fill_with(|| rng.below(units) as u32);
            translation.fetch(ahead);
            ahead.iter().for_each(|&unit| translation.write(unit));
        }
        let copied = translation.work().copied - before;
        let amplification = 1.0 + copied as f64 / count as f64;
        // A drive just filled in order has no copies to make at first: go round it twice.
        let change = libm::fabs(amplification - last) / amplification;
        if window >= 4 && change < SETTLED {
            return amplification;
        }
        last = amplification;
    }
    last
}
