//! The units of hemi: instants, extents, sizes, times, rates, power.
//!
//! Every part of hemi counts in these. One type per thing keeps a byte from passing for a sector
//! and a duration for a point in time. [`Instant`] and [`Extent`] are all that the engine needs,
//! and they take neither an allocator nor the standard library. With the feature `text`, [`Size`],
//! [`Time`], [`Rate`] and [`Power`] are read from text and printed, by one grammar for command
//! lines, configurations, presets and specs: `64MiB`, `32 GB`, `8.9 ms`, `1m 30s`, `100 MB/s`,
//! `6.8 W`. What is printed reads back as the same value. [`prose`] has the same for sentences, rounded.
//!
//! ```
//! # #[cfg(feature = "text")] {
//! use hemi_units::{Extent, Rate, Size, Time};
//!
//! assert_eq!("64MiB".parse(), Ok(Size::mib(64)));
//! assert_eq!("32 GB".parse(), Ok(Size(32_000_000_000)));
//! assert_eq!("1m 30s".parse(), Ok(Time::seconds(90)));
//! assert_eq!("100 MB/s".parse::<Rate>().map(|rate| rate.time_of(4096)), Ok(40_960));
//! assert!("20".parse::<Time>().is_err(), "a duration needs its unit");
//! # }
//! # use hemi_units::Extent;
//! let written = Extent::new(16, 8);
//! assert_eq!(written.bytes(), 4096);
//! assert!(written.overlaps(Extent::new(20, 100)));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#[cfg(feature = "text")]
extern crate std;

mod extent;
mod instant;
mod operation;
#[cfg(feature = "text")]
pub mod prose;
#[cfg(feature = "text")]
mod text;

pub use extent::{Extent, SECTOR_BYTES};
pub use instant::{Instant, MICROSECOND, MILLISECOND, SECOND};
pub use operation::Operation;
#[cfg(feature = "text")]
pub use text::{Percent, Power, Rate, Size, Time, UnitError};
