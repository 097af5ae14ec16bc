//! hemi under torture: the very engine that serves volumes, in virtual time, against
//! simulated disks, clients and operators, and a checker that knows what a disk must do.
//!
//! A **seed** names a run. [`plan`] draws everything it asks for up front: the volume, every
//! request, every fault. [`run`] plays the plan in a [`world`] whose only clock is an agenda
//! of [`events`] and whose only chance is [`hemi_random`]; so the same seed and the same code give
//! the same run to the byte, and [`trace`] has its hash. [`disk`] says what disks may do;
//! [`faults`], [`operators`] and [`starts`] what goes wrong and who does what; [`checker`]
//! what has to hold all the same. A failing run is made smaller by [`shrink`]; [`torture`]
//! runs many seeds, [`guided`] changes plans that took new paths, and [`exhaustive`] plays a small
//! thing in every order. How to use it and how to read a failure: `docs/torture.md`.
#![forbid(unsafe_code)]

pub mod buffers;
mod calm;
pub mod checker;
pub mod clients;
mod create;
pub mod disk;
pub mod events;
pub mod exhaustive;
pub mod faults;
pub mod guided;
mod halts;
mod hangs;
mod ledgers;
pub mod lies;
mod moments;
pub mod operators;
pub mod plan;
#[cfg(feature = "planted")]
pub mod planted;
pub mod run;
mod scenes;
pub mod shrink;
pub mod starts;
pub mod torture;
pub mod trace;
pub mod wider;
pub mod world;
