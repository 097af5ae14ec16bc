//! What nobody waits for: paying debts, settling regions, comparing, and mending what was lost.

pub(super) mod clean;
pub(super) mod compare;
pub(super) mod drain;
pub(super) mod lost;
pub(super) mod lost_cache;
pub(super) mod scrub;
pub(super) mod sieve;
pub(super) mod unreadable;
