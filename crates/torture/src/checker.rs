//! The checker: each promise has a module, and is judged from what clients, disks and operators can
//! see, never from what the engine reports of itself.
//!
//! - [`hemi_world::register`]: P1, P2, P3. Per sector, the values that reads may return.
//! - [`stall`]: P4. The time that a client may wait.
//! - [`exposure`]: P5. The data that one leg alone may hold, and that the engine counts all of it.
//! - [`copies`]: P3 and P5 where legs are lost. The data that would be left of what was flushed.
//! - [`losses`]: P3. A flush reports an error where a lost cache took acknowledged data.
//! - P6 (legs converge and are identical), P7 (refusals) and P8 (a detached leg is an image) are
//!   checked where they are provoked, in [`crate::operators`] and [`crate::calm`].

pub mod copies;
pub mod exposure;
pub mod losses;
pub mod stall;
