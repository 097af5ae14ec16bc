//! The choice among waiting requests, compared with a walk over all of them.

use hemi_random::Rng;
use hemi_units::{Extent, Instant};
use proptest::prelude::*;

use super::{Pending, PendingQueue, cost};
use crate::hdd::bus::WriteData;
use crate::hdd::mechanism::{Arm, Mechanism};
use crate::hdd::tests::preset;

/// Returns the index and the cost of the request that the head reaches first, by a walk over all
/// in the order of the queue.
fn walk(
    waiting: &[Pending],
    now: Instant,
    arm: Arm,
    streamed: Option<Extent>,
    mechanism: &Mechanism,
) -> Option<(usize, u64)> {
    let all = || waiting.iter().enumerate();
    if let Some(streamed) = streamed {
        let begins = |one: &Pending| (streamed.start..=streamed.end).contains(&one.extent.start);
        let reads = all().filter(|(_, one)| !one.write && begins(one));
        if let Some((index, _)) = reads.min_by_key(|(_, one)| one.extent.start) {
            return Some((index, 0));
        }
    }
    let costs = all().map(|(index, one)| (index, cost(one, now, arm, mechanism)));
    costs.min_by_key(|(_, cost)| *cost)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_that_of_a_walk(
        seed in any::<u64>(),
        most in 1_usize..300,
        // The part of the disk that is used: from some tracks, with many equal costs, to all.
        part in prop::sample::select(vec![100_u64, 10_000, 1_000_000, 100_000_000]),
        name in prop::sample::select(vec!["wd-1tb-2009", "cheetah-15k5-300gb", "hdd-20tb"]),
    ) {
        let mut parameters = preset(name).parameters;
        parameters.queue.age_limit = hemi_units::Time(u64::MAX);
        let mut rng = Rng::new(seed, 0);
        let mechanism = Mechanism::new(&parameters).spinning(rng.draw() as u32, 200_000);
        let sectors = mechanism.geometry.sectors();
        let first = rng.below(sectors - part);
        let mut queue = PendingQueue::new(&parameters.queue);
        let mut plain: Vec<Pending> = Vec::new();
        let mut now = Instant(rng.below(1 << 40));
        let place = |rng: &mut Rng| first + rng.below(part);
        for number in 0..600 {
            now = now + rng.below(3_000_000);
            let start = place(&mut rng);
            let pending = Pending {
                tag: number,
                extent: Extent::new(start, 8),
                place: mechanism.geometry.place(start),
                write: rng.one_in(3),
                data: WriteData::default(),
                came: now,
                ready: if rng.one_in(4) { now + rng.below(5_000_000) } else { now },
                number,
            };
            queue.push(pending);
            plain.push(pending);
            while plain.len() > rng.below(most as u64) as usize {
                now = now + rng.below(1_000_000);
                let at = mechanism.geometry.place(place(&mut rng));
                let arm = Arm { cylinder: at.cylinder, head: at.head };
                let streamed = rng.one_in(3).then(|| Extent::new(start, rng.below(part / 50)));
                let choice = queue.choose(now, arm, streamed, &mechanism);
                let choice = choice.expect("requests wait");
                let expected = walk(&plain, now, arm, streamed, &mechanism);
                prop_assert_eq!(Some((choice.index, choice.cost)), expected);
                let taken = queue.take(choice);
                prop_assert_eq!(taken.number, plain.swap_remove(choice.index).number);
            }
            prop_assert_eq!(queue.is_empty(), plain.is_empty());
        }
    }
}
