//! Judges what would be left if legs were lost now. At moments of the plan the disks are copied.
//! The copies lose power, and each leg that is in is promoted, as an operator would who has only
//! that one left. The run itself goes on undisturbed.
//!
//! - **P3**: after a flush that succeeded with `flush_copies` of N, N legs have everything it
//!   covered, each by itself: whichever N − 1 are lost, one of them is left. This is judged from
//!   the first such flush after a change of the legs that are in. A region of which a leg missed a
//!   write since then may be lost with the others, because the leg cannot know which part it
//!   missed. So may any region of a leg that may have lost its cache since then.
//! - **P5**: a leg lacks no more acknowledged data than the volume reports it owes.

use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::io::LegOperation;
use hemi_engine::recovery::LegImage;
use hemi_engine::settings::{FlushCopies, Policy};
use hemi_units::{Extent, SECTOR_BYTES};
use hemi_world::Violation;
use hemi_world::disk::{Cache, Disk};
use hemi_world::register::Asked;

use crate::checker::exposure::is_in;
use crate::plan::{Fault, Plan};
use crate::world::World;
use hemi_random::Rng;

/// The number of flushes judged as they are answered after each moment of the plan. I/O in flight
/// counts for nothing at that time.
const LOOKS: u32 = 2;

/// The state of the check.
pub struct Copies {
    /// This run is judged at all.
    is_on: bool,
    /// The last change of the legs that are in, by the register's clock.
    since: u32,
    /// The legs that have been in since that change.
    legs: Vec<usize>,
    /// The time at which the last successful flush since that change was sent, and the number of
    /// legs that had to have what it covered. Zero if there was none.
    flushed: u32,
    wanted: usize,
    /// The number of flushes still to be judged as they are answered.
    looks: u32,
    /// The time at which each leg was last found to have lost, or possibly lost, its unflushed
    /// data.
    lost_cache: [u32; LEGS_MAX],
    /// Draws what the caches of a copied disk keep.
    random: Rng,
    /// The copy that is judged, kept for its memory.
    copy: Disk,
}

impl Default for Copies {
    fn default() -> Copies {
        let random = Rng::new(0, 6);
        Copies {
            is_on: false,
            since: 0,
            legs: Vec::new(),
            flushed: 0,
            wanted: 0,
            looks: 0,
            lost_cache: [0; LEGS_MAX],
            random,
            copy: Disk::default(),
        }
    }
}

impl Copies {
    pub(crate) fn reset(&mut self, plan: &Plan) {
        self.is_on = plan.faults.iter().any(|planned| matches!(planned.fault, Fault::Judge));
        (self.since, self.flushed, self.wanted, self.looks) = (0, 0, 0, 0);
        self.lost_cache = [0; LEGS_MAX];
        self.random = Rng::new(plan.seed, 6);
    }
}

impl World {
    /// Begins a new period: the legs that are in have changed, or hemi has been started.
    pub(crate) fn begin_period(&mut self) {
        self.copies.since = self.register.now();
        self.copies.legs = self.legs_in();
        self.copies.flushed = 0;
    }

    /// Notes a flush that succeeded.
    pub(crate) fn note_flushed(&mut self, asked: &Asked) {
        if !self.copies.is_on || asked.sent <= self.copies.since {
            return;
        }
        let legs = self.legs_in();
        if legs != self.copies.legs {
            // A leg has just come in, and the volume is about to report it. Earlier FUA writes need
            // not be on it, and the flush does not cover it.
            return;
        }
        let in_legs = legs.len();
        self.copies.flushed = self.copies.flushed.max(asked.sent);
        self.copies.wanted = match (self.settings.policy, self.settings.flush_copies) {
            (Policy::All | Policy::WriteBehind, _) | (_, FlushCopies::All) => in_legs,
            (_, FlushCopies::Count(count)) => usize::from(count).min(in_legs),
        };
        if self.copies.looks > 0 && self.changing.is_none() {
            self.copies.looks -= 1;
            self.judge_owed();
            self.judge_flushed();
        }
    }

    /// Notes that the volume was told of a leg that may have lost its unflushed data.
    pub(crate) fn note_cache_lost(&mut self, leg: u8) {
        self.copies.lost_cache[usize::from(leg)] = self.register.now();
    }

    fn legs_in(&mut self) -> Vec<usize> {
        let status = self.refresh_status();
        let legs = status.legs.iter().filter(|leg| is_in(leg.state));
        legs.map(|leg| usize::from(leg.leg)).collect()
    }

    /// Judges what would be left if legs were lost now.
    pub(crate) fn judge_copies(&mut self) {
        if self.engine.is_some() && self.changing.is_none() {
            self.judge_owed();
            self.judge_flushed();
            self.copies.looks = LOOKS;
        }
    }

    /// Checks P5: each leg lacks no more than it is reported to owe.
    fn judge_owed(&mut self) {
        if self.deceives() {
            return;
        }
        self.counts.judged_owed += 1;
        let legs = self.legs_in();
        for leg in legs {
            let contents = self.disks[leg].contents().iter().enumerate();
            let lacks =
                |(sector, version): &(usize, &u64)| self.register.is_outdated(*sector, **version);
            let lacked = contents.filter(lacks).count() as u64 * SECTOR_BYTES;
            let status = self.status.legs.iter().find(|l| usize::from(l.leg) == leg);
            let said = status.map_or(0, |l| l.owed_bytes);
            if lacked > said {
                let text = format!("leg {leg} lacks {lacked} bytes, hemi says {said}");
                self.broken("P5", text);
            }
        }
    }

    /// Checks P3: data that flushes covered is on as many legs as the flushes had to wait for.
    fn judge_flushed(&mut self) {
        let wanted = self.copies.wanted;
        let covered = self.copies.flushed != 0 && self.copies.flushed == self.register.horizon();
        if !covered || wanted < 2 {
            return;
        }
        self.counts.judged_flushed += 1;
        let legs = self.legs_in();
        let lost: Vec<Option<(u64, Option<u64>)>> =
            legs.iter().map(|&leg| self.lost_without_the_others(leg)).collect();
        let have = lost.iter().filter(|lost| lost.is_none()).count();
        if have >= wanted || self.violation.is_some() {
            return;
        }
        let told: Vec<String> = legs
            .iter()
            .zip(&lost)
            .filter_map(|(leg, lost)| lost.map(|lost| (leg, lost)))
            .map(|(leg, (sector, value))| match value {
                Some(value) => format!("leg {leg} alone reads sector {sector} as version {value}"),
                None => format!("leg {leg} alone has lost sector {sector}"),
            })
            .collect();
        let sector = lost.iter().flatten().map(|(sector, _)| *sector).next();
        let text = format!(
            "flushed on {wanted} legs, yet only {have} of {legs:?} have it all: {}; {}",
            told.join(", "),
            sector.map(|sector| self.register.tell(sector as usize)).unwrap_or_default()
        );
        self.violate(Violation { promise: "P3", text, sector });
    }

    /// Cuts power to a copy of this leg and promotes it as the only one left. Returns the first
    /// sector that lacks what was flushed, with the version it reads as (`None` if it cannot be
    /// read).
    fn lost_without_the_others(&mut self, leg: usize) -> Option<(u64, Option<u64>)> {
        let mut copy = std::mem::take(&mut self.copies.copy);
        copy.copy_from(&self.disks[leg]);
        let random = &mut self.copies.random;
        if random.one_in(2) {
            self.land_on_copy(leg, &mut copy);
        }
        let random = &mut self.copies.random;
        let cache = random.pick(&[Cache::Kept, Cache::Dropped, Cache::Any]);
        copy.lose_cache(cache, random);
        let found = self.lost_on(leg, &mut copy);
        self.copies.copy = copy;
        found
    }

    /// Lets I/O in flight land on the copy in part.
    fn land_on_copy(&mut self, leg: usize, copy: &mut Disk) {
        let engine = self.engine.as_ref().expect("the volume is open");
        let random = &mut self.copies.random;
        let live = self.ios.iter().filter(|i| i.live && i.io.leg.index() == leg);
        for (io, block) in live.map(|in_flight| (in_flight.io, &in_flight.block)) {
            match (io.operation, io.buffer) {
                (LegOperation::Write { .. }, Some(at)) => {
                    let data = engine.buffers().part(at, io.extent.sectors());
                    copy.write(io.extent, Some(data), false, || random.one_in(2));
                }
                (LegOperation::WriteZeroes { .. }, _) => {
                    copy.write(io.extent, None, false, || random.one_in(2));
                }
                (LegOperation::WriteMetadata, _) => {
                    let parts = random.pick(&[0, 0xFF, random.clone().draw() as u8]);
                    copy.write_metadata(io.extent.start * SECTOR_BYTES, block, parts);
                }
                _ => {}
            }
        }
    }

    /// Returns true if any write in a region is not covered by the flush being judged.
    fn is_written_since(&self, region: Extent) -> bool {
        (region.start..region.end)
            .any(|sector| self.register.is_written_since(sector as usize, self.copies.flushed))
    }

    fn lost_on(&mut self, leg: usize, copy: &mut Disk) -> Option<(u64, Option<u64>)> {
        let generation = [0xC0; 16];
        let Ok(promotion) = self.promotion_of(LegImage { bytes: &copy.metadata }, generation)
        else {
            self.broken("P7", format!("leg {leg}, which is in, cannot be promoted"));
            return None;
        };
        for (address, block) in &promotion.writes {
            copy.write_metadata(*address, block, 0xFF);
        }
        if let Err(refusal) = self.assess_images(&[LegImage { bytes: &copy.metadata }]) {
            let text = crate::starts::describe([leg as u8].into_iter(), &refusal);
            self.broken("P7", format!("a promoted leg does not open: {text}"));
            return None;
        }
        let layout = promotion.superblock.layout;
        let engine = self.engine.as_ref().expect("the volume is open");
        let among = |extents: &[Extent], sector: u64| {
            extents.iter().any(|extent| extent.start <= sector && sector < extent.end)
        };
        (0..self.sectors()).find_map(|sector| {
            // Losses on record have been reported.
            if among(engine.lost_extents(), sector) {
                return None;
            }
            let value = copy.contents()[sector as usize];
            let lacks = among(&promotion.lacks, sector);
            let region = layout.region_extent(layout.region_of(sector));
            let lost_cache = self.copies.lost_cache[leg] > self.copies.flushed;
            if lacks && (lost_cache || self.is_written_since(region)) {
                return None;
            }
            let value = (!lacks).then_some(value);
            (!self.register.keeps(sector as usize, value)).then_some((sector, value))
        })
    }
}
