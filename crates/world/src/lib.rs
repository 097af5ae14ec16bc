//! The parts that the engine's simulated worlds share. There are two such worlds: the torture's,
//! which draws every fault from a seed, and that of the engine's scripted tests, which end each I/O
//! by hand. Both carry out the engine's actions on the same media and judge reads alike.
//!
//! A payload is one number for each sector, its **version**: unique to the request that wrote it,
//! and zero for zeros. [`buffers`] hold versions, [`disk`] is the medium of a leg with everything
//! that may happen to it, [`create`] formats one, [`machine`] keeps what outlives hemi, and
//! [`register`] is the volume as its clients know it.
//!
//! The two worlds differ in who decides when an I/O ends and how, so each has its own queue of what
//! is in flight and its own loop: see `docs/design/decisions/0023-two-worlds-one-medium.md`.
#![forbid(unsafe_code)]

pub mod buffers;
pub mod create;
pub mod disk;
pub mod machine;
pub mod register;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise: `P1` to `P8`, or `engine` for one of the engine's own invariants.
    pub promise: &'static str,
    /// A description of the failure.
    pub text: String,
    /// The sector of the volume concerned, if there is one.
    pub sector: Option<u64>,
}
