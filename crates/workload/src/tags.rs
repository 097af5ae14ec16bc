//! Tags of the requests in flight.

/// Maximum number of requests one workload may have in flight. It is more than any drive or
/// array queues, and few enough that the tags of nested workloads fit 32 bits.
pub(crate) const MOST_OUTSTANDING: u32 = 1 << 24;

/// An allocator that prefers low numbers, so that tables indexed by tag stay as short as the
/// queue was deep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tags {
    free: Vec<u32>,
    used: u32,
}

impl Tags {
    /// Returns a free tag.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// Frees a tag.
    pub(crate) fn give(&mut self, tag: u32) {
        debug_assert!(tag < self.used, "{tag} was never issued");
        self.free.push(tag);
    }

    /// Returns the number of tags in use.
    pub(crate) fn outstanding(&self) -> u32 {
        self.used - self.free.len() as u32
    }
}
