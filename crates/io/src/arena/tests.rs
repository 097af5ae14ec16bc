use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// An odd number of mebibytes, so that blocks of several sizes lie at its end.
const BUDGET: u64 = 77 << 20;

fn at(buffer: BufferId, offset: u32) -> BufferAt {
    BufferAt { buffer, offset }
}

#[test]
fn the_budget_is_spent_to_the_last_page_and_comes_back_whole() {
    let mut arena = Arena::new(BUDGET).unwrap();
    assert_eq!(arena.budget(), BUDGET);
    let mut all = Vec::new();
    while let Some(buffer) = arena.allocate(8) {
        all.push(buffer);
    }
    assert_eq!(all.len() as u64, BUDGET / 4096);
    assert_eq!(arena.free_bytes(), 0);
    for buffer in all {
        arena.release(buffer);
    }
    assert_eq!(arena.free_bytes(), arena.budget());
    let largest = (BLOCK_MAX_BYTES / 512) as u32;
    assert!(arena.allocate(largest).is_some());
    assert!(arena.allocate(largest).is_some());
    assert!(arena.allocate(largest).is_none());
}

#[test]
fn budgets_are_brought_within_their_bounds() {
    assert_eq!(Arena::new(0).unwrap().budget(), BUDGET_MIN_BYTES);
    assert_eq!(Arena::new((20 << 20) + 1).unwrap().budget(), 21 << 20);
}

#[test]
fn an_arena_of_several_mappings_keeps_blocks_within_one() {
    let mut arena = Arena::new((2 << 30) + (5 << 20)).unwrap();
    assert_eq!(arena.memory_mut().len(), 3);
    let largest = (BLOCK_MAX_BYTES / 512) as u32;
    let mut count = 0;
    while let Some(buffer) = arena.allocate(largest) {
        assert_eq!(arena.span(at(buffer, 0), largest).length(), BLOCK_MAX_BYTES);
        count += 1;
    }
    assert_eq!(count, 64);
}

#[test]
fn a_buffer_larger_than_the_largest_is_refused() {
    let mut arena = Arena::new(BUDGET).unwrap();
    assert!(arena.allocate((BLOCK_MAX_BYTES / 512) as u32 + 1).is_none());
    assert!(arena.allocate(u32::MAX).is_none());
}

#[test]
fn contents_are_copied_compared_and_zeroed() {
    let mut arena = Arena::new(BUDGET).unwrap();
    let (a, b) = (arena.allocate(16).unwrap(), arena.allocate(16).unwrap());
    arena.span(at(a, 3), 1).copy_from(&[7; 512]);
    arena.copy(at(a, 3), at(b, 9), 1);
    assert!(arena.equal(at(a, 3), at(b, 9), 1));
    arena.zero(at(b, 9), 1);
    assert!(!arena.equal(at(a, 3), at(b, 9), 1));
}

#[test]
#[should_panic(expected = "leaves a span")]
fn a_span_past_its_buffer_is_refused() {
    let mut arena = Arena::new(BUDGET).unwrap();
    let buffer = arena.allocate(8).unwrap();
    let _ = arena.span(at(buffer, 1), 8);
}

#[test]
#[should_panic(expected = "is not in use")]
fn a_freed_buffer_is_refused() {
    let mut arena = Arena::new(BUDGET).unwrap();
    let buffer = arena.allocate(8).unwrap();
    arena.release(buffer);
    arena.release(buffer);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    Retain(usize),
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sectors = prop_oneof![4 => 1_u32..64, 2 => 1_u32..4096, 1 => 1_u32..70_000];
    let step = prop_oneof![
        5 => sectors.prop_map(Step::Allocate),
        1 => any::<usize>().prop_map(Step::Retain),
        4 => any::<usize>().prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the arena with a plain map of the buffers in use. Buffers never overlap, are
    /// large enough and aligned to their size. The free count is exact, an allocation fails
    /// only if nothing fits, and in the end all blocks join again.
    #[test]
    fn buffers_never_overlap_and_all_come_back(steps in steps()) {
        let mut arena = Arena::new(BUDGET).unwrap();
        let mut used: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Allocate(sectors) => match arena.allocate(sectors) {
                    Some(buffer) => {
                        let bytes = arena.capacity(buffer) as u64;
                        prop_assert!(bytes >= u64::from(sectors) * 512);
                        prop_assert!(bytes < (u64::from(sectors) * 1024).max(8192));
                        let start = u64::from(buffer.0) * 4096;
                        prop_assert_eq!(start % bytes, 0);
                        let before = used.range(..=buffer.0).next_back();
                        if let Some((first, (length, _))) = before {
                            prop_assert!(u64::from(*first) * 4096 + length <= start);
                        }
                        if let Some((first, _)) = used.range(buffer.0..).next() {
                            prop_assert!(start + bytes <= u64::from(*first) * 4096);
                        }
                        used.insert(buffer.0, (bytes, 1));
                    }
                    None => {
                        let blocks = u64::from(sectors).div_ceil(8).next_power_of_two();
                        let bytes = blocks * 4096;
                        let fits = bytes <= BLOCK_MAX_BYTES as u64
                            && (0..arena.budget() / bytes).any(|slot| {
                                let range = slot * bytes..(slot + 1) * bytes;
                                used.iter().all(|(first, (length, _))| {
                                    let start = u64::from(*first) * 4096;
                                    start + length <= range.start || range.end <= start
                                })
                            });
                        prop_assert!(!fits, "refused {sectors} sectors although they fit");
                    }
                },
                Step::Retain(which) if !used.is_empty() => {
                    let key = *used.keys().nth(which % used.len()).unwrap();
                    arena.retain(BufferId(key));
                    used.get_mut(&key).unwrap().1 += 1;
                }
                Step::Release(which) if !used.is_empty() => {
                    let key = *used.keys().nth(which % used.len()).unwrap();
                    arena.release(BufferId(key));
                    let entry = used.get_mut(&key).unwrap();
                    entry.1 -= 1;
                    if entry.1 == 0 {
                        used.remove(&key);
                    }
                }
                _ => {}
            }
            let in_use: u64 = used.values().map(|(bytes, _)| bytes).sum();
            prop_assert_eq!(arena.free_bytes(), arena.budget() - in_use);
        }
        for (buffer, (_, references)) in used {
            for _ in 0..references {
                arena.release(BufferId(buffer));
            }
        }
        let largest = (BLOCK_MAX_BYTES / 512) as u32;
        prop_assert_eq!(arena.free_bytes(), arena.budget());
        for _ in 0..arena.budget() / BLOCK_MAX_BYTES as u64 {
            prop_assert!(arena.allocate(largest).is_some());
        }
    }
}
