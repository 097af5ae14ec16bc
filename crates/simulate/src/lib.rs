//! Simulation of a pair of drives under a load: the engine that serves volumes, over the models
//! of [`hemi_drives`], in virtual time.
//!
//! A [workload](hemi_workload) issues the requests of clients: closed or open loops, phases,
//! bursts, traces. They are served by one drive, or by several under a policy: hemi's engine as
//! a [`mirror`], or one of the alternatives it is compared with ([`published`], [`oracle`]). A
//! [`run`] connects the two, and [figures](hemi_workload::figures) keep the statistics.
//! Everything is a state machine on one virtual clock, and all randomness comes from one seed,
//! so a run is the same to the byte on any machine.
#![forbid(unsafe_code)]

pub mod aside;
pub mod card;
pub mod described;
pub mod experiment;
pub mod faults;
mod front;
mod lateness;
mod legs;
pub mod mirror;
pub mod oracle;
pub mod parallel;
pub mod published;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod session;
pub mod snapshots;
pub mod spec;
pub mod stock;
pub mod sweep;
pub mod system;
pub mod tables;
