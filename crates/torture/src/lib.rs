//! Torture of hemi: the engine that serves volumes runs in virtual time against simulated disks,
//! clients and operators, and a checker verifies that it behaves as a disk must.
//!
//! A **seed** names a run. [`plan`] draws all of its input in advance: the volume, every request,
//! every fault. [`run`] plays the plan in a [`world`] whose only clock is an agenda of [`events`]
//! and whose only randomness is [`hemi_random`]. The same seed and the same code therefore give the
//! same run to the byte, and [`trace`] keeps its hash. [`disk`] is the fault model of disks.
//! [`faults`], [`operators`] and [`starts`] carry out the faults and the operators' reactions, and
//! [`checker`] checks every promise throughout. [`shrink`] reduces a failing run. [`torture`] runs
//! many seeds, [`guided`] mutates plans that took new paths, and [`exhaustive`] plays a small
//! scenario in every order. `docs/torture.md` explains how to use it and how to read a failure.
#![forbid(unsafe_code)]

mod bad_blocks;
mod calm;
pub mod checker;
pub mod clients;
pub mod endings;
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
mod put_back;
pub mod run;
mod scenes;
pub mod shrink;
pub mod starts;
pub mod torture;
pub mod trace;
mod walking;
pub mod wider;
pub mod world;
