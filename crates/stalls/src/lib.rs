//! Stalls of single requests, as on cloud volumes: a share of the reads and a share of the
//! writes take longer by a delay, while the others proceed as usual.
//!
//! A [`Schedule`] has phases, each with its shares and [`Delays`]; the published
//! [`Experiment`]s are available by name. [`Stalls`] is a schedule in force and gives the delay
//! of each request. The delay of the n-th read follows from the seed, n and the phase alone, so
//! a run can be repeated.
//!
//! ```
//! use hemi_stalls::{Kind, PhaseSpec, Stalls};
//! use hemi_units::{Instant, SECOND};
//!
//! // Half of the reads take half a second longer, for a minute.
//! let phase: PhaseSpec = "reads:0.5,by:500ms,for:1m".parse()?;
//! let schedule = PhaseSpec::schedule(&[phase]).map_err(|error| error.to_string())?;
//! let mut stalls = Stalls::new(schedule, 7, Instant(0));
//! let stalled = (0..1000).filter(|_| stalls.draw(Instant(SECOND), Kind::Read) > 0).count();
//! assert!((400..600).contains(&stalled));
//! assert_eq!(stalls.draw(Instant(SECOND), Kind::Write), 0);
//! # Ok::<(), String>(())
//! ```
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
