//! Changes of the volume: opening, closing, and which legs take part and answer.

pub(super) mod configure;
pub(super) mod freeze;
pub(super) mod halt;
pub(super) mod leaving;
pub(super) mod membership;
