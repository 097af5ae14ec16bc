//! Names for the requests outstanding.

/// Most requests one workload may have outstanding: beyond what any drive or array queues,
/// and few enough that the names of workloads within one another fit 32 bits.
pub(crate) const MOST_OUTSTANDING: u32 = 1 << 24;

/// Hands out the lowest numbers it can, so that tables by name stay as long as the queue was
/// deep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tags {
    free: Vec<u32>,
    used: u32,
}

impl Tags {
    /// A name nobody has.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// A name that is free again.
    pub(crate) fn give(&mut self, tag: u32) {
        debug_assert!(tag < self.used, "{tag} was never issued");
        self.free.push(tag);
    }

    /// How many are in use.
    pub(crate) fn outstanding(&self) -> u32 {
        self.used - self.free.len() as u32
    }
}
