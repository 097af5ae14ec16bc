//! Wider seeds. Those from [`WIDER_FROM`] on have more than those below: small constants, I/O that
//! never ends, more legs, scrubs in every weather, and judges of copies. All of it is drawn from a
//! random stream of its own and added to a finished plan, so that the seeds below stay as they are.
//! From [`ARMED_FROM`] on volumes may also have regions that stay armed, all or some of them.

use hemi_engine::format::page::ENTRIES_PER_PAGE;
use hemi_engine::io::Operation;
use hemi_engine::settings::{ExposureMode, FlushCopies, Limits, Settings};
use hemi_units::{MICROSECOND, MILLISECOND, SECOND, SECTOR_BYTES};

use crate::faults::Kind;
use crate::plan::{FOREVER, Fault, OPERATIONS, Pace, Plan, PlannedFault, Weather};
use hemi_random::Rng;

/// The first wider seed. New seeds come from here on.
pub const WIDER_FROM: u64 = 8_000_000_000_000;
/// The first seed whose regions may stay armed.
pub const ARMED_FROM: u64 = 9_000_000_000_000;
/// The first seed whose volumes may be served with a ledger.
pub const LEDGER_FROM: u64 = 10_000_000_000_000;
/// The first seed with orderly ends of every kind: see [`crate::endings`].
pub const ENDINGS_FROM: u64 = 41_000_000_000_000;
/// One volume in this many of those is served without one.
const WITHOUT_LEDGER: u64 = 6;

/// One in this many of these seeds has small constants …
const SMALL: u64 = 3;
/// … and one in this many of those has a volume of many regions and pages.
const LARGE: u64 = 24;
/// One seed in this many has more legs than others.
const MANY_LEGS: u64 = 8;
/// The latency of a leg that is much slower than another in scenes, in nanoseconds.
const FAR: u64 = 4 * MILLISECOND;
/// The number of judges of copies in a seed.
const JUDGES: u64 = 12;

/// Adds the features of wider seeds to a plan.
pub(crate) fn widen(plan: &mut Plan) {
    let random = &mut Rng::new(plan.seed, 5);
    let is_ordinary = !plan.is_of_scenes() && !plan.weather.lies;
    if plan.seed.is_multiple_of(SMALL) {
        make_small(plan, random);
        if is_ordinary && random.one_in(LARGE) {
            make_large(plan, random);
        }
        if plan.is_of_scenes() && plan.weather == Weather::default() {
            let far = plan.shape.paces.iter().any(|pace| pace.latency == FAR);
            if far && random.one_in(2) {
                return_one_at_a_time(plan);
            } else {
                write_sparsely(plan, random);
            }
        }
    }
    if is_ordinary && random.one_in(MANY_LEGS) {
        add_legs(plan, random);
    }
    if random.one_in(3) {
        let legs = plan.shape.legs as u8;
        let copies = [2, 2, 3, legs].map(FlushCopies::Count);
        let copies = random.pick(&[copies[0], copies[1], copies[2], copies[3], FlushCopies::All]);
        for_each_settings(plan, |settings| settings.flush_copies = copies);
    }
    if is_ordinary && random.one_in(2) {
        add_scrubs(plan, random);
    }
    if is_ordinary && random.one_in(2) {
        add_hangs(plan, random);
    }
    if !plan.weather.lies {
        for _ in 0..random.below(JUDGES) {
            add(plan, random, 0, Fault::Judge);
        }
    }
    if plan.seed >= ARMED_FROM {
        arm(plan);
    }
    if plan.seed >= LEDGER_FROM {
        plan.shape.ledger = !Rng::new(plan.seed, 7).one_in(WITHOUT_LEDGER);
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

/// Lets idle regions stay armed: a few, so that the bound presses, or as many as there are.
fn arm(plan: &mut Plan) {
    let random = &mut Rng::new(plan.seed, 6);
    let regions = random.pick(&[0, 1, 2, 4, 6, 20, 1 << 20, 1 << 20]);
    let resync_bytes = regions * plan.shape.region_bytes;
    let many = random.one_in(2);
    for_each_settings(plan, |settings| {
        settings.resync_bytes = resync_bytes;
        if many {
            settings.dirty_regions_max = 1024;
        }
    });
}

/// Adds a fault at a random request and returns that request's number.
fn add(plan: &mut Plan, random: &mut Rng, steps: u32, fault: Fault) -> u32 {
    let after = random.below(u64::from(OPERATIONS)) as u32;
    let steps = steps + random.below(40) as u32;
    plan.faults.push(PlannedFault { after, steps, fault });
    after
}

/// Changes all settings of a plan.
pub(crate) fn for_each_settings(plan: &mut Plan, mut change: impl FnMut(&mut Settings)) {
    change(&mut plan.settings);
    for planned in &mut plan.faults {
        match &mut planned.fault {
            Fault::Restart { settings, .. } | Fault::Ambush { settings, .. } => change(settings),
            _ => {}
        }
    }
}

/// Makes pages of few regions, and batches that end in the middle.
fn make_small(plan: &mut Plan, random: &mut Rng) {
    plan.shape.page_regions = random.pick(&[1, 1, 2, 3, 5, ENTRIES_PER_PAGE as u32]);
    for_each_settings(plan, |settings| {
        settings.limits = draw_limits(random);
        settings.requests_max = random.pick(&[3, 6, 16, 64]);
        settings.dirty_regions_max = random.pick(&[1, 2, 3, 8, 64]);
    });
}

/// Keeps regions in use, and lets each tick check only one of them for whether its authority can
/// return from a slow leg.
fn return_one_at_a_time(plan: &mut Plan) {
    for_each_settings(plan, |settings| {
        settings.limits.returns_per_tick = 1;
        settings.dirty_regions_max = 64;
        settings.clean_after = 5000 * MILLISECOND;
    });
}

/// Writes here and there while a leg is frozen, to more regions than may be dirty.
fn write_sparsely(plan: &mut Plan, random: &mut Rng) {
    for_each_settings(plan, |settings| {
        settings.limits.records_per_request = 1;
        settings.requests_max = 3;
        settings.dirty_regions_max = 8;
        settings.owed_extents_max = 512;
        settings.exposure_mode = ExposureMode::FallBehind;
        settings.clean_after = 30 * MILLISECOND;
    });
    let regions = plan.shape.volume_bytes / plan.shape.region_bytes;
    let first = random.below(plan.requests.len() as u64 - 4 * regions) as usize;
    let leg = random.below(plan.shape.legs as u64) as u8;
    let fault = Fault::Freeze(leg, 2 * SECOND);
    plan.faults.push(PlannedFault { after: first as u32, steps: 0, fault });
    plan.requests[first].gap = 2 * SECOND;
    for number in 1..3 * regions {
        let request = &mut plan.requests[first + number as usize];
        request.operation = Operation::Write;
        request.gap = 10 * MILLISECOND;
        request.start = number % regions * plan.shape.region_bytes / SECTOR_BYTES;
        request.sectors = 4;
        request.fua = false;
    }
}

fn draw_limits(random: &mut Rng) -> Limits {
    let usual = Limits::default();
    let mut count = |few: &[usize], usual: usize| match random.below(3) {
        0 => usual,
        _ => random.pick(few),
    };
    let operations_more = count(&[1, 2, 8], usual.operations_more as usize);
    // Each leg's room for debts grows with operations.
    let pieces_max = operations_more.max(4);
    Limits {
        operations_per_request: count(&[1, 2, 3], usual.operations_per_request as usize) as u32,
        operations_more: operations_more as u32,
        operation_bytes: count(&[16 << 10, 64 << 10], usual.operation_bytes as usize) as u64,
        records_per_request: count(&[1], usual.records_per_request as usize) as u32,
        returns_per_tick: count(&[1, 2, 4], usual.returns_per_tick),
        cleans_per_tick: count(&[1, 2, 4], usual.cleans_per_tick),
        heals_per_tick: count(&[1, 2, 4], usual.heals_per_tick),
        moves_looked_at: count(&[1, 2], usual.moves_looked_at),
        moves_per_input: usual.moves_per_input,
        region_pieces: count(&[1, 2, 8], usual.region_pieces).min(pieces_max),
        sweep_skips: count(&[1, 2, 4], usual.sweep_skips),
        oldest_looked_at: count(&[1, 2, 4], usual.oldest_looked_at),
        urgent_looked_at: count(&[1, 2, 4], usual.urgent_looked_at),
        sieves: count(&[1, 2], usual.sieves as usize) as u32,
        metadata_writes: count(&[2, 4, 8], usual.metadata_writes),
        lazy_writes: count(&[1, 2], usual.lazy_writes as usize) as u32,
        scrub_bytes: count(&[4 << 10, 16 << 10], usual.scrub_bytes as usize) as u64,
        scrub_pieces: count(&[1, 2], usual.scrub_pieces),
    }
}

/// Makes hundreds of regions on many pages, with requests all over them.
fn make_large(plan: &mut Plan, random: &mut Rng) {
    let regions = 200 + random.below(200);
    plan.shape.region_bytes = 64 << 10;
    plan.shape.volume_bytes = regions * plan.shape.region_bytes;
    plan.shape.page_regions = random.pick(&[4, 7, 30]);
    let block = plan.shape.block_sectors;
    let blocks = plan.shape.volume_bytes / 512 / block;
    for request in plan.requests.iter_mut().filter(|request| request.sectors > 0) {
        if random.one_in(2) {
            request.start = random.below(blocks - request.sectors / block) * block;
        } else {
            // Requests near the end may have been cut to a smaller volume.
            request.start = request.start.min(blocks * block - request.sectors);
        }
    }
    for_each_settings(plan, |settings| {
        settings.dirty_regions_max = random.pick(&[8, 64, 1024]);
        let limits = &mut settings.limits;
        // Checking one region per tick would take longer than the run allows.
        for per_tick in
            [&mut limits.returns_per_tick, &mut limits.cleans_per_tick, &mut limits.heals_per_tick]
        {
            *per_tick = random.pick(&[16, 64, 4096]);
        }
    });
}

/// Makes five to eight legs. Faults of the original legs may hit any of them.
fn add_legs(plan: &mut Plan, random: &mut Rng) {
    let legs = 5 + random.below(4);
    while plan.shape.paces.len() < legs as usize {
        let latency = random.pick(&[50, 200, 1000]) * MICROSECOND;
        let jitter = random.pick(&[0, 100, 3000]) * MICROSECOND;
        plan.shape.paces.push(Pace { latency, jitter, serial: 0 });
    }
    plan.shape.legs = legs as usize;
    for planned in &mut plan.faults {
        if let Some(leg) = planned.fault.leg_mut() {
            *leg = random.below(legs) as u8;
        }
    }
    let slow_leg = random.below(legs) as u8;
    for_each_settings(plan, |settings| settings.slow_leg = slow_leg);
}

/// Adds scrubs, in any weather.
fn add_scrubs(plan: &mut Plan, random: &mut Rng) {
    plan.weather.scrub = true;
    for _ in 0..3 + random.below(6) {
        let repair = random.one_in(2);
        let after = add(plan, random, 0, Fault::Scrub(repair));
        let leg = random.below(plan.shape.legs as u64) as u8;
        let fault = match random.below(4) {
            0 => Fault::Freeze(leg, (10 + random.below(400)) * MILLISECOND),
            1 => Fault::Hang { leg, kind: Kind::OwnReads, time: 200 * MILLISECOND },
            _ => continue,
        };
        let steps = 40 + random.below(30) as u32;
        plan.faults.push(PlannedFault { after, steps, fault });
    }
}

/// Adds I/O that never ends: of one kind, a few or all of them, or everything of a leg.
fn add_hangs(plan: &mut Plan, random: &mut Rng) {
    for _ in 0..1 + random.below(4) {
        let leg = random.below(plan.shape.legs as u64) as u8;
        let kind = random.pick(&Kind::ALL);
        let count = 1 + random.below(4) as u32;
        let fault = match random.below(6) {
            0 => Fault::Freeze(leg, FOREVER),
            1..=2 => Fault::Hang { leg, kind, time: FOREVER },
            _ => Fault::Lose { leg, kind, count },
        };
        let after = add(plan, random, 0, fault);
        if kind == Kind::OwnReads {
            // Something has to read: a scrub, or the drain of what a leg could not take.
            let other = (leg + 1) % plan.shape.legs as u8;
            let cause = match random.below(2) {
                0 if !plan.weather.lies => Fault::Scrub(true),
                _ => Fault::Freeze(other, (50 + random.below(300)) * MILLISECOND),
            };
            let after = after.saturating_sub(random.below(10) as u32);
            plan.faults.push(PlannedFault { after, steps: 0, fault: cause });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WIDER_FROM;
    use crate::plan::{FOREVER, Fault, Plan};

    #[test]
    fn seeds_below_the_threshold_are_what_they_were() {
        for seed in (0..40).chain(WIDER_FROM - 40..WIDER_FROM) {
            let plan = Plan::of_seed(seed);
            assert_eq!(plan.shape.page_regions, u32::MAX, "seed {seed}");
            assert!(plan.shape.legs <= 4, "seed {seed}");
            for planned in &plan.faults {
                let wider = match planned.fault {
                    Fault::Judge | Fault::Lose { .. } => true,
                    Fault::Freeze(_, time) | Fault::Hang { time, .. } => time == FOREVER,
                    _ => false,
                };
                assert!(!wider, "seed {seed}: {planned:?}");
            }
        }
    }

    #[test]
    fn a_third_of_the_seeds_above_has_small_constants() {
        let plans = || (WIDER_FROM..WIDER_FROM + 300).map(Plan::of_seed);
        assert_eq!(plans().filter(|plan| plan.shape.page_regions != u32::MAX).count(), 100);
        let larger = |plan: &Plan| plan.shape.volume_bytes > 24 * (256 << 10);
        assert!(plans().any(|plan| larger(&plan)), "none has a large volume");
        assert!(plans().any(|plan| plan.shape.legs == 8), "none has eight legs");
    }
}
