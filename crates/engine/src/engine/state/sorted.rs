//! An ordered index over arena slots: a treap whose nodes are allocated once.
//!
//! Keys are first sectors. The priorities come from a fixed generator, so the same inputs
//! build the same tree on every machine; expected depth is logarithmic whatever the order of
//! insertion, which a plain tree under sequential writes would not give.

use alloc::vec::Vec;

use crate::engine::state::slab::NONE;

#[derive(Clone, Copy)]
struct Node {
    key: u64,
    left: u32,
    right: u32,
    priority: u32,
}

pub(crate) struct SortedIndex {
    nodes: Vec<Node>,
    root: u32,
    state: u32,
}

impl SortedIndex {
    pub(crate) fn new(capacity: u32) -> SortedIndex {
        let nodes = Vec::with_capacity(capacity as usize);
        SortedIndex { nodes, root: NONE, state: 0x9E37_79B9 }
    }

    /// Adds arena slot `slot` under `key`, which must not be there yet.
    pub(crate) fn insert(&mut self, key: u64, slot: u32) {
        // xorshift32: only balance depends on it.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        let priority = self.state;
        let node = Node { key, left: NONE, right: NONE, priority };
        if slot as usize >= self.nodes.len() {
            // Within what was reserved: slots are below the capacity.
            self.nodes.resize(slot as usize + 1, node);
        }
        self.nodes[slot as usize] = node;
        // Walk down to where the new node outranks what is there, then split that subtree.
        let mut parent = NONE;
        let mut went_left = false;
        let mut at = self.root;
        while at != NONE && self.nodes[at as usize].priority >= priority {
            debug_assert!(self.nodes[at as usize].key != key, "key {key} inserted twice");
            parent = at;
            went_left = key < self.nodes[at as usize].key;
            at = if went_left {
                self.nodes[at as usize].left
            } else {
                self.nodes[at as usize].right
            };
        }
        let (left, right) = self.split(at, key);
        self.nodes[slot as usize].left = left;
        self.nodes[slot as usize].right = right;
        self.link(parent, went_left, slot);
    }

    fn link(&mut self, parent: u32, left: bool, child: u32) {
        if parent == NONE {
            self.root = child;
        } else if left {
            self.nodes[parent as usize].left = child;
        } else {
            self.nodes[parent as usize].right = child;
        }
    }

    /// Splits a subtree into keys below `key` and above it.
    fn split(&mut self, at: u32, key: u64) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = self.nodes[at as usize];
        if node.key < key {
            let (left, right) = self.split(node.right, key);
            self.nodes[at as usize].right = left;
            (at, right)
        } else {
            let (left, right) = self.split(node.left, key);
            self.nodes[at as usize].left = right;
            (left, at)
        }
    }

    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE {
            return right;
        }
        if right == NONE {
            return left;
        }
        if self.nodes[left as usize].priority >= self.nodes[right as usize].priority {
            let merged = self.merge(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = merged;
            left
        } else {
            let merged = self.merge(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = merged;
            right
        }
    }

    /// Removes `key`; its slot.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut parent = NONE;
        let mut went_left = false;
        let mut at = self.root;
        while at != NONE && self.nodes[at as usize].key != key {
            parent = at;
            went_left = key < self.nodes[at as usize].key;
            at = if went_left {
                self.nodes[at as usize].left
            } else {
                self.nodes[at as usize].right
            };
        }
        if at == NONE {
            return None;
        }
        let merged = self.merge(self.nodes[at as usize].left, self.nodes[at as usize].right);
        self.link(parent, went_left, merged);
        Some(at)
    }

    /// The slots of the last key at or before `key` and of the first after it, in one walk.
    pub(crate) fn around(&self, key: u64) -> (Option<u32>, Option<u32>) {
        let (mut before, mut after) = (None, None);
        let mut at = self.root;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key <= key {
                before = Some(at);
                at = node.right;
            } else {
                after = Some(at);
                at = node.left;
            }
        }
        (before, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_btree(steps in proptest::collection::vec((any::<bool>(), 0u64..64), 0..300)) {
            let mut index = SortedIndex::new(64);
            let mut free: std::vec::Vec<u32> = (0..64).collect();
            let mut model = BTreeMap::new();
            for (insert, key) in steps {
                if insert && !model.contains_key(&key) {
                    let slot = free.pop().expect("64 keys at most");
                    index.insert(key, slot);
                    model.insert(key, slot);
                } else if !insert {
                    let removed = index.remove(key);
                    prop_assert_eq!(removed, model.remove(&key));
                    free.extend(removed);
                }
                let (before, after) = (model.range(..=key).next_back(), model.range(key + 1..).next());
                prop_assert_eq!(index.around(key), (before.map(|e| *e.1), after.map(|e| *e.1)));
            }
        }
    }
}
