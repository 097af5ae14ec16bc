//! The state of the engine: rooms whose fields are private to their modules.
//!
//! Nothing here decides what happens next, nor calls a method of [`Engine`](super::Engine).

pub(super) mod clock;
pub(super) mod debt;
pub(super) mod failing;
pub(super) mod in_flight;
pub(super) mod leg;
pub(super) mod legs;
pub(super) mod lost_list;
pub(super) mod operations;
pub(super) mod outbox;
pub(super) mod ranges;
pub(super) mod regions;
pub(super) mod requests;
pub(super) mod slab;
pub(super) mod sorted;
pub(super) mod volume;
pub(super) mod window;
