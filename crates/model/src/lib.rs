//! What would this pair of drives do under this load? The very engine that serves volumes,
//! over the models of [`hemi_drives`], in virtual time.
//!
//! A [`workload`] is what clients ask for: closed or open loops, phases, bursts, traces.
//! Everything is a state machine on one virtual clock and all chance comes from one seed, so
//! a run is the same to the byte wherever it is made.
#![forbid(unsafe_code)]

pub mod workload;
