//! Nothing is lost, counted twice or drawn differently.

use proptest::prelude::*;

use super::super::buffer::Buffer;
use super::super::frontier::Stream;
use super::super::mapping::NONE;
use super::super::translation::{Shape, Translation};
use super::super::victim::Policy;
use super::{WRITE, closed, drive, random};
use crate::drive::Drive;
use hemi_units::Operation;

fn shape(policy: Policy, hot_cold: bool) -> Shape {
    Shape {
        units: 400,
        lanes: 2,
        blocks: 36,
        slots: 16,
        page_slots: 2,
        cached_slots: 0,
        reserve: 1 + u32::from(hot_cold),
        kept_free: 2,
        policy,
        hot_cold,
        wear_threshold: Some(8),
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Greedy),
        Just(Policy::Fifo),
        Just(Policy::Choices(3)),
        Just(Policy::CostBenefit),
        Just(Policy::Random),
    ]
}

/// Checks that every mapped unit has a slot of its own and that the blocks' valid counts are
/// right.
fn check(translation: &Translation, mapped: &[bool]) {
    let slots = translation.shape().slots;
    let mut valid = vec![0; translation.blocks.len()];
    for (unit, &is_mapped) in mapped.iter().enumerate() {
        let slot = translation.slot_of(unit as u32);
        assert_eq!(slot != NONE, is_mapped, "unit {unit}");
        if is_mapped {
            assert_eq!(translation.mapping.unit_in(slot), unit as u32);
            valid[(slot / slots) as usize] += 1;
        }
    }
    let counted: Vec<u32> = translation.blocks.iter().map(|block| block.valid).collect();
    assert_eq!(counted, valid);
    let free: u32 = (0..translation.shape().lanes).map(|lane| translation.free_in(lane)).sum();
    assert_eq!(free, translation.free_blocks());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_and_the_counts_agree(
        policy in policies(),
        hot_cold: bool,
        operations in prop::collection::vec((0..10_u8, 0..400_u32), 1..3_000),
    ) {
        let mut translation = Translation::new(shape(policy, hot_cold), 1);
        let mut mapped = vec![false; 400];
        for (what, unit) in operations {
            match what {
                0 => translation.trim(unit),
                1 => {
                    translation.collect(unit % 2);
                }
                _ => translation.write(unit),
            }
            match what {
                0 => mapped[unit as usize] = false,
                1 => {}
                _ => mapped[unit as usize] = true,
            }
        }
        check(&translation, &mapped);
    }

    #[test]
    fn greedy_takes_the_least(units in prop::collection::vec(0..400_u32, 600..2_000)) {
        let mut translation = Translation::new(shape(Policy::Greedy, false), 1);
        translation.shape.wear_threshold = None;
        for unit in units {
            translation.write(unit);
        }
        use super::super::victim::State;
        let full = |block: &&super::super::victim::Block| block.state == State::Full && block.lane == 0;
        let least = translation.blocks.iter().filter(full).map(|block| block.valid).min();
        if translation.begin(0) {
            prop_assert_eq!(Some(translation.left_in_victim(0)), least);
        }
    }

    #[test]
    fn the_buffer_gives_back_what_it_took(
        operations in prop::collection::vec((0..4_u8, 0..40_u32, 0..16_u32, 1..17_u32), 1..400),
    ) {
        let mut buffer = Buffer::new(64 << 10, 16);
        let mut inside: std::collections::BTreeMap<u32, u16> = Default::default();
        let mut taken = Vec::new();
        for (what, unit, from, count) in operations {
            let to = (from + count).min(16);
            match what {
                0 | 1 => {
                    if buffer.put(unit, from, to, 0) {
                        let bits = (((1_u32 << to) - 1) & !((1 << from) - 1)) as u16;
                        *inside.entry(unit).or_default() |= bits;
                    }
                }
                2 => {
                    if let Some(entry) = buffer.take(true, None) {
                        let bits = inside.remove(&entry.unit).expect("it was put");
                        prop_assert_eq!(entry.missing, u64::from(bits.count_zeros()) * 512);
                        taken.push(entry);
                    }
                }
                _ => {
                    if let Some(entry) = taken.pop() {
                        buffer.programmed(entry.bytes, entry.epoch);
                    }
                }
            }
            prop_assert_eq!(buffer.waiting() as usize, inside.len());
            for (&unit, &bits) in &inside {
                prop_assert!(!buffer.holds(unit, 0, 16) || bits == u16::MAX);
            }
        }
        let epoch = buffer.fence();
        while let Some(entry) = buffer.take(true, None) {
            taken.push(entry);
        }
        prop_assert_eq!(buffer.is_durable(epoch), taken.is_empty());
        for entry in taken {
            buffer.programmed(entry.bytes, entry.epoch);
        }
        prop_assert!(buffer.is_durable(epoch));
        prop_assert!((0..8).all(|unit| buffer.put(unit, 0, 16, 0)), "all of it is free again");
        prop_assert!(!buffer.put(9, 0, 16, 0));
    }
}

#[test]
fn the_lane_with_room_is_chosen() {
    let mut translation = Translation::new(shape(Policy::Greedy, false), 1);
    let mut unit = 0;
    while translation.has_room(0, Stream::Host) {
        translation.place(unit % 400, 0, Stream::Host);
        unit += 1;
    }
    assert_eq!(translation.free_in(0), 1);
    assert_eq!(translation.free_in(1), 18);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: u64| {
        let mut drive = drive(|of| {
            of.victim = Policy::Choices(4);
            of.suspend = Some(hemi_units::Time(10_000));
        });
        let mut rng = hemi_random::Rng::new(seed, 3);
        let places = drive.sectors() - 64;
        let mut next = |_| {
            let operation = match rng.below(20) {
                0 => Operation::Flush,
                1 => Operation::Trim,
                2 => Operation::Write { fua: true },
                3..=9 => Operation::Read,
                _ => WRITE,
            };
            (operation, hemi_units::Extent::new(rng.below(places), 1 + rng.below(64)))
        };
        let run = closed(&mut drive, 0, 100, 40_000, &mut next);
        (run.completions, format!("{:?}", drive.counters()))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).1, run(2).1);
}

#[test]
fn little_s_law_holds() {
    let mut drive = drive(|_| {});
    drive.precondition(crate::preset::Precondition::Steady, 1);
    let mut next = random(&drive, 1, 4096, WRITE);
    let run = closed(&mut drive, 0, 32, 50_000, &mut next);
    let outstanding = run.rate(0) * run.mean() * 1e-9;
    assert!((outstanding / 32.0 - 1.0).abs() < 0.02, "{outstanding}");
}
