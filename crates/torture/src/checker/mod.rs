//! The checker: each promise in its place, judged from what clients, disks and operators can
//! see, never from what the engine says of itself.
//!
//! - [`register`]: P1, P2, P3. Per sector, what a disk must do.
//! - [`stall`]: P4. What a client may wait for.
//! - [`exposure`]: P5. What one leg alone may hold, and that the engine counts it all.
//! - [`copies`]: P3 and P5 where legs are lost. What would be left of what was flushed.
//! - [`losses`]: P3. A flush says so where a cache that was lost took something with it.
//! - P6 (legs converge and are identical), P7 (refusals) and P8 (a detached leg is an
//!   image) are checked where they are provoked, in [`crate::operators`] and [`crate::calm`].

pub mod copies;
pub mod exposure;
pub mod losses;
pub mod register;
pub mod stall;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which: `P1` to `P8`, or `engine` for one of its own invariants.
    pub promise: &'static str,
    /// What happened.
    pub text: String,
    /// The sector of the volume it is about, if it is about one.
    pub sector: Option<u64>,
}
