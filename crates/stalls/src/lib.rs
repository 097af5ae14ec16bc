//! Stalls of single requests, as on cloud volumes: a share of the reads and a share of the
//! writes take longer by a delay, while the others proceed as usual.
//!
//! A [`Schedule`] has phases, each with its shares and [`Delays`]; the published
//! [`Experiment`]s are available by name. [`Stalls`] is a schedule in force and gives the delay
//! of each request. The delay of the n-th read follows from the seed, n and the phase alone, so
//! a run can be repeated.
#![forbid(unsafe_code)]

mod delays;
mod experiment;
mod schedule;
mod share;
mod spec;
mod stalls;

pub use delays::{DELAY_MAX, Delays};
pub use experiment::{Experiment, SCALE_MAX};
pub use schedule::{LENGTH_MAX, PHASES_MAX, Phase, Schedule, ScheduleError};
pub use share::Share;
pub use spec::PhaseSpec;
pub use stalls::{Count, Kind, Progress, Stalls};
