//! The work that nobody waits for: paying debts, settling regions, comparing, and mending what was lost.

pub(super) mod choose;
pub(super) mod clean;
pub(super) mod compare;
pub(super) mod differences;
pub(super) mod drain;
pub(super) mod drain_read;
pub(super) mod elsewhere;
pub(super) mod lost;
pub(super) mod lost_cache;
pub(super) mod passing;
pub(super) mod rebuild;
pub(super) mod scrub;
pub(super) mod sieve;
pub(super) mod unreadable;
