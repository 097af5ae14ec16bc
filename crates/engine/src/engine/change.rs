//! Changes of the volume: opening, closing, and which legs take part and answer.

pub(super) mod closing;
pub(super) mod command;
pub(super) mod configure;
pub(super) mod detach;
pub(super) mod freeze;
pub(super) mod halt;
pub(super) mod leaving;
pub(super) mod leg_set;
pub(super) mod life;
pub(super) mod sessions;
pub(super) mod superblock;
