//! The choice among runs, compared with a walk over all of them, and the order that it needs.

use hemi_random::Rng;
use hemi_units::{Extent, Instant};
use proptest::prelude::*;

use super::{BySector, Run, WriteCache};
use crate::hdd::mechanism::{Arm, Mechanism};
use crate::hdd::tests::preset;

/// Returns the index and the cost of the run that the arm reaches first, by a walk over all from
/// the arm outwards.
fn walk(
    cache: &WriteCache,
    now: Instant,
    arm: Arm,
    mechanism: &Mechanism,
    generation: Option<u64>,
) -> Option<(usize, u64)> {
    let runs: Vec<Run> = (0..cache.order.len()).map(|index| *cache.run(index)).collect();
    let middle = runs.iter().filter(|run| run.place.cylinder < arm.cylinder).count();
    let outwards = (0..runs.len()).flat_map(|step| [middle + step, middle.wrapping_sub(step + 1)]);
    let old = outwards.filter(|&index| {
        let run = runs.get(index);
        run.is_some_and(|run| generation.is_none_or(|generation| run.generation <= generation))
    });
    let costs = old.map(|index| (index, runs[index].cost(now, arm, mechanism)));
    costs.min_by_key(|(_, cost)| *cost)
}

/// Returns the sectors held and not being written back; panics if the order is not that of the runs.
fn checked(cache: &WriteCache) -> u64 {
    assert_eq!(cache.order.len(), cache.runs.len());
    let mut sectors = 0;
    let mut end = 0;
    for (index, spot) in cache.order.iter().enumerate() {
        let run = cache.run(index);
        let BySector { start, cylinder, angle, .. } = *spot;
        assert_eq!((start, cylinder), (run.extent.start, run.place.cylinder));
        assert_eq!(angle, run.place.angle);
        assert!(index == 0 || end < start, "runs that touch are one run");
        assert!(!run.extent.is_empty());
        end = run.extent.end;
        sectors += run.extent.sectors();
    }
    sectors
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_that_of_a_walk(
        seed in any::<u64>(),
        most in 1_u32..700,
        part in prop::sample::select(vec![10_000_u64, 1_000_000, 100_000_000]),
        name in prop::sample::select(vec!["wd-1tb-2009", "cheetah-15k5-300gb", "hdd-20tb"]),
    ) {
        let mut parameters = preset(name).parameters;
        parameters.write_cache.runs = most;
        parameters.write_cache.age_limit = hemi_units::Time(u64::MAX);
        let mut rng = Rng::new(seed, 0);
        let mechanism = Mechanism::new(&parameters).spinning(rng.draw() as u32, -200_000);
        let first = rng.below(mechanism.geometry.sectors() - part - 10_000);
        let mut cache = WriteCache::new(&parameters.write_cache);
        let mut written_back: Vec<Run> = Vec::new();
        let mut flush = None;
        let mut now = Instant(rng.below(1 << 40));
        let extent = |rng: &mut Rng| {
            let sectors = if rng.one_in(20) { 1 + rng.below(9_000) } else { 8 };
            Extent::new(first + rng.below(part), sectors)
        };
        for _ in 0..1_500 {
            now = now + rng.below(2_000_000);
            let extent = extent(&mut rng);
            match rng.below(20) {
                0 => cache.drop_range(extent, &mechanism),
                1 => flush = Some(cache.begin_flush()),
                2 => {
                    written_back.drain(..).for_each(|run| cache.written_back(&run));
                    flush = flush.filter(|&generation| !cache.is_flushed(generation));
                }
                3..7 => {
                    let at = mechanism.geometry.place(extent.start);
                    let arm = Arm { cylinder: at.cylinder, head: at.head };
                    let limit = if rng.one_in(2) { u64::MAX } else { rng.below(6_000_000) };
                    let choice = cache.choose(now, arm, &mechanism, flush, limit);
                    let expected = walk(&cache, now, arm, &mechanism, flush);
                    prop_assert_eq!(choice, expected.filter(|(_, cost)| *cost <= limit));
                    if let Some((index, _)) = choice {
                        let whole = cache.extent(index);
                        let run = cache.take(index, 1 + rng.below(5_000), &mechanism);
                        prop_assert_eq!(run.extent.start, whole.start);
                        written_back.push(run);
                    }
                }
                _ => {
                    let room = cache.room(extent);
                    if room > 0 {
                        let there = now + rng.below(3_000_000);
                        let part = Extent::new(extent.start, room);
                        cache.hold(part, now, (there, there + room), &mechanism);
                        prop_assert!(cache.holds(part));
                    }
                }
            }
            let held = checked(&cache);
            let away: u64 = written_back.iter().map(|run| run.extent.sectors()).sum();
            prop_assert_eq!(cache.held, held + away);
            let runs = (cache.order.len() + written_back.len()) as u64;
            prop_assert_eq!(cache.generations.iter().sum::<u64>(), runs);
        }
    }
}
