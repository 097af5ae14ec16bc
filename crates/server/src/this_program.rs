//! The running program, for the processes that are started from it.

/// Path of the running program. It names the program even if its file was replaced or removed.
pub(crate) const PATH: &str = "/proc/self/exe";
