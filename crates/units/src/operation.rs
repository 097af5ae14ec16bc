//! The operations of a block device.

/// An operation of a block device, as drive models serve it and workloads issue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the extent.
    Read,
    /// Write the extent; with `fua`, on the medium before it is done.
    Write {
        /// Past the volatile cache.
        fua: bool,
    },
    /// The extent's content is no longer needed (TRIM, UNMAP).
    Trim,
    /// Everything done before is on the medium when this is done.
    Flush,
}

impl Operation {
    /// Returns its name in tables and reports: `read`, `write`, `trim` or `flush`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write { .. } => "write",
            Operation::Trim => "trim",
            Operation::Flush => "flush",
        }
    }
}
