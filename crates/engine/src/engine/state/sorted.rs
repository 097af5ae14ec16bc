//! An ordered index over arena slots: a B-tree whose nodes are allocated once.
//!
//! Keys are first sectors. A node has up to 32 keys, so that a walk down the tree reads a few cache
//! lines at each of three or four levels. An inner node keeps with each child a lower bound of its
//! keys. Nodes of one level are linked: a walk along the keys goes down the tree once.

use alloc::vec::Vec;

use crate::engine::state::slab::NONE;

/// Keys of a full node.
const WIDTH: usize = 32;
/// Fewest keys of a node, the root left out.
const LEAST: usize = WIDTH / 2;

/// A node: slots in a leaf, nodes of the next level in an inner node, by key.
#[derive(Clone, Copy)]
struct Node {
    keys: [u64; WIDTH],
    values: [u32; WIDTH],
    len: u32,
    /// Neighbours on the same level. Of a free node, `after` is the next free one.
    before: u32,
    after: u32,
}

impl Node {
    const EMPTY: Node =
        Node { keys: [0; WIDTH], values: [NONE; WIDTH], len: 0, before: NONE, after: NONE };

    fn len(&self) -> usize {
        self.len as usize
    }

    fn keys(&self) -> &[u64] {
        &self.keys[..self.len()]
    }

    /// Returns the place of the child that `key` belongs to.
    fn child_of(&self, key: u64) -> usize {
        self.keys().partition_point(|&bound| bound <= key).saturating_sub(1)
    }

    /// Inserts an entry; there is room.
    fn insert(&mut self, place: usize, key: u64, value: u32) {
        let len = self.len();
        self.keys.copy_within(place..len, place + 1);
        self.values.copy_within(place..len, place + 1);
        (self.keys[place], self.values[place]) = (key, value);
        self.len += 1;
    }

    fn remove(&mut self, place: usize) -> (u64, u32) {
        let (entry, len) = ((self.keys[place], self.values[place]), self.len());
        self.keys.copy_within(place + 1..len, place);
        self.values.copy_within(place + 1..len, place);
        self.len -= 1;
        entry
    }

    /// Appends the entries of `other` from `place` on; there is room.
    fn append(&mut self, other: &Node, place: usize) {
        let (at, more) = (self.len(), other.len() - place);
        self.keys[at..at + more].copy_from_slice(&other.keys[place..other.len()]);
        self.values[at..at + more].copy_from_slice(&other.values[place..other.len()]);
        self.len += more as u32;
    }
}

/// The index.
pub(crate) struct SortedIndex {
    nodes: Vec<Node>,
    /// Nodes that are not in the tree.
    free: u32,
    root: u32,
    /// Levels above the leaves.
    height: u32,
}

impl SortedIndex {
    /// Reserves memory for `capacity` keys.
    pub(crate) fn new(capacity: u32) -> SortedIndex {
        // Half full leaves, and a level of half full nodes above each level: below a 15th of the keys.
        let nodes = capacity as usize / (LEAST - 1) + 2;
        let mut index =
            SortedIndex { nodes: Vec::with_capacity(nodes), free: NONE, root: NONE, height: 0 };
        index.root = index.add_node();
        index
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn add_node(&mut self) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node::EMPTY);
            return self.nodes.len() as u32 - 1;
        }
        let at = self.free;
        self.free = self.node(at).after;
        *self.node_mut(at) = Node::EMPTY;
        at
    }

    fn free_node(&mut self, at: u32) {
        self.node_mut(at).after = self.free;
        self.free = at;
    }

    /// Adds arena slot `slot` under `key`, which must not be there yet.
    pub(crate) fn insert(&mut self, key: u64, slot: u32) {
        let left = self.root;
        if let Some((bound, right)) = self.insert_below(left, self.height, key, slot) {
            self.root = self.add_node();
            let root = self.root;
            self.node_mut(root).insert(0, 0, left);
            self.node_mut(root).insert(1, bound, right);
            self.height += 1;
        }
    }

    /// Inserts below a node that is so high above the leaves. Returns the lower bound of the keys and
    /// the new node if the node has been split.
    fn insert_below(&mut self, at: u32, height: u32, key: u64, slot: u32) -> Option<(u64, u32)> {
        let node = self.node(at);
        if height == 0 {
            let place = node.keys().partition_point(|&other| other < key);
            debug_assert!(node.keys().get(place) != Some(&key), "key {key} inserted twice");
            return self.put(at, place, key, slot);
        }
        let child = node.child_of(key);
        let below = node.values[child];
        let (bound, right) = self.insert_below(below, height - 1, key, slot)?;
        self.put(at, child + 1, bound, right)
    }

    /// Inserts an entry into a node, which is split if it is full.
    fn put(&mut self, at: u32, place: usize, key: u64, value: u32) -> Option<(u64, u32)> {
        if self.node(at).len() < WIDTH {
            self.node_mut(at).insert(place, key, value);
            return None;
        }
        let right = self.split(at);
        let left_len = self.node(at).len();
        if place <= left_len {
            self.node_mut(at).insert(place, key, value);
        } else {
            self.node_mut(right).insert(place - left_len, key, value);
        }
        Some((self.node(right).keys[0], right))
    }

    /// Moves the upper half of a full node to a new one after it.
    fn split(&mut self, at: u32) -> u32 {
        let right = self.add_node();
        let mut left = *self.node(at);
        let mut new = Node { before: at, after: left.after, ..Node::EMPTY };
        new.append(&left, LEAST);
        left.len = LEAST as u32;
        left.after = right;
        if new.after != NONE {
            self.node_mut(new.after).before = right;
        }
        (*self.node_mut(at), *self.node_mut(right)) = (left, new);
        right
    }

    /// Removes `key` and returns its slot.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let removed = self.remove_below(self.root, self.height, key);
        let root = self.root;
        if self.height > 0 && self.node(root).len() == 1 {
            self.root = self.node(root).values[0];
            self.height -= 1;
            self.free_node(root);
        }
        removed
    }

    fn remove_below(&mut self, at: u32, height: u32, key: u64) -> Option<u32> {
        let node = self.node_mut(at);
        if height == 0 {
            let place = node.keys().binary_search(&key).ok()?;
            return Some(node.remove(place).1);
        }
        let child = node.child_of(key);
        let below = node.values[child];
        let removed = self.remove_below(below, height - 1, key)?;
        if self.node(below).len() < LEAST {
            self.fill(at, child);
        }
        Some(removed)
    }

    /// Joins a child that has too few keys with a neighbour, or moves one of the neighbour's keys to it.
    fn fill(&mut self, parent: u32, child: usize) {
        let place = child.max(1);
        let [left_at, right_at] = [place - 1, place].map(|place| self.node(parent).values[place]);
        let (mut left, mut right) = (*self.node(left_at), *self.node(right_at));
        if left.len() + right.len() <= WIDTH {
            left.append(&right, 0);
            left.after = right.after;
            if left.after != NONE {
                self.node_mut(left.after).before = left_at;
            }
            *self.node_mut(left_at) = left;
            self.node_mut(parent).remove(place);
            self.free_node(right_at);
            return;
        }
        if left.len() < right.len() {
            let (key, value) = right.remove(0);
            left.insert(left.len(), key, value);
        } else {
            let (key, value) = left.remove(left.len() - 1);
            right.insert(0, key, value);
        }
        self.node_mut(parent).keys[place] = right.keys[0];
        (*self.node_mut(left_at), *self.node_mut(right_at)) = (left, right);
    }

    /// Returns the slots by key, beginning with the last key at or before `key`, or with the first of all
    /// if there is none.
    pub(crate) fn from(&self, key: u64) -> impl Iterator<Item = u32> {
        let mut at = self.root;
        for _ in 0..self.height {
            let node = self.node(at);
            at = node.values[node.child_of(key)];
        }
        let mut place = self.node(at).keys().partition_point(|&other| other <= key);
        if place > 0 {
            place -= 1;
        } else if self.node(at).before != NONE {
            at = self.node(at).before;
            place = self.node(at).len() - 1;
        }
        core::iter::from_fn(move || {
            if place == self.node(at).len() && self.node(at).after != NONE {
                (at, place) = (self.node(at).after, 0);
            }
            let slot = self.node(at).values[..self.node(at).len()].get(place).copied();
            place += usize::from(slot.is_some());
            slot
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl SortedIndex {
        /// Checks that the nodes below `at` are filled and bounded as they must be. Returns the leaves
        /// from left to right.
        fn check(&self, at: u32, height: u32, range: core::ops::Range<u64>) -> std::vec::Vec<u32> {
            let node = self.node(at);
            assert!(at == self.root || node.len() >= LEAST, "{} keys", node.len());
            assert!(node.keys().is_sorted_by(|a, b| a < b));
            if height == 0 {
                assert!(node.keys().iter().all(|key| range.contains(key)));
                return std::vec![at];
            }
            assert!(node.len() > 1);
            assert_eq!(node.keys[0], range.start);
            let ends = node.keys()[1..].iter().copied().chain([range.end]);
            let children = node.keys().iter().zip(ends).zip(node.values);
            children
                .flat_map(|((&start, end), child)| self.check(child, height - 1, start..end))
                .collect()
        }

        fn check_all(&self) {
            let leaves = self.check(self.root, self.height, 0..u64::MAX);
            for pair in leaves.windows(2) {
                assert_eq!(self.node(pair[0]).after, pair[1]);
                assert_eq!(self.node(pair[1]).before, pair[0]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The tree grows and shrinks in turn, as phases say: how many steps, how many of eight insert,
        /// and from which range of keys.
        #[test]
        fn agrees_with_a_btree(
            phases in proptest::collection::vec((0usize..1500, 0u64..=8, 1u64..6000), 1..6),
            seed in any::<u64>(),
        ) {
            const CAPACITY: u32 = 2000;
            let mut index = SortedIndex::new(CAPACITY);
            let reserved = index.nodes.capacity();
            let mut free: std::vec::Vec<u32> = (0..CAPACITY).collect();
            let mut model = BTreeMap::new();
            let mut random = seed;
            for (steps, inserts, keys) in phases {
                for _ in 0..steps {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let key = (random >> 33) % keys;
                    if (random >> 29) % 8 < inserts {
                        if !model.contains_key(&key) && let Some(slot) = free.pop() {
                            index.insert(key, slot);
                            model.insert(key, slot);
                        }
                    } else {
                        // A key that is there, if there is one.
                        let there = model.range(key..).next().map_or(key, |entry| *entry.0);
                        let removed = index.remove(there);
                        prop_assert_eq!(removed, model.remove(&there));
                        free.extend(removed);
                    }
                    let before = model.range(..=key).next_back().map(|entry| *entry.1);
                    let after = model.range(key + 1..).next().map(|entry| *entry.1);
                    let near: std::vec::Vec<u32> = before.into_iter().chain(after).collect();
                    let found = index.from(key).take(near.len());
                    prop_assert_eq!(found.collect::<std::vec::Vec<u32>>(), near);
                }
                let start = random % keys;
                let begin = model.range(..=start).next_back().map_or(0, |entry| *entry.0);
                let all: std::vec::Vec<u32> = model.range(begin..).map(|entry| *entry.1).collect();
                prop_assert_eq!(index.from(start).collect::<std::vec::Vec<u32>>(), all);
                index.check_all();
            }
            prop_assert_eq!(index.nodes.capacity(), reserved);
        }
    }

    #[test]
    fn the_nodes_reserved_are_enough_for_any_order() {
        for step in [1_u32, 7, 2999] {
            let mut index = SortedIndex::new(3000);
            let reserved = index.nodes.capacity();
            for slot in 0..3000 {
                index.insert(u64::from(slot * step % 3001), slot);
            }
            index.check_all();
            assert_eq!(index.nodes.capacity(), reserved);
        }
    }
}
