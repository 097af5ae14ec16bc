//! Whole simulations. One program, so that it links once.

mod cards;
mod experiments;
mod faults;
mod sessions;
mod snapshots;
mod stalls;
mod systems;
