//! What would this pair of drives do under this load? The very engine that serves volumes,
//! over the models of [`hemi_drives`], in virtual time.
//!
//! A [workload](hemi_workload) is what clients ask for: closed or open loops, phases, bursts, traces. What
//! they ask is a drive, or several under a policy that makes one of them: hemi's engine as a
//! [`mirror`], or what it is compared with ([`published`], [`oracle`]). [`run`] lets the one
//! meet the other and [figures](hemi_workload::figures) keeps count. Everything is a state machine on one virtual
//! clock and all chance comes from one seed, so a run is the same to the byte wherever it is
//! made.
#![forbid(unsafe_code)]

pub mod aside;
pub mod card;
pub mod experiment;
pub mod faults;
mod front;
mod lateness;
mod legs;
pub mod mirror;
pub mod oracle;
pub mod published;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod session;
mod slots;
pub mod snapshots;
pub mod spec;
pub mod stock;
pub mod sweep;
pub mod system;
pub mod tables;
