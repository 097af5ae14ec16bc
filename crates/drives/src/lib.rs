//! Simulated drives, as pure state machines on a virtual clock.
//!
//! A [`drive::Drive`] takes requests and reports, in virtual time, when each one ends. A hard
//! disk ([`hdd`]) takes time to move its arm and turn its platters. A flash drive ([`ssd`]) has
//! busy dies, not least while it collects garbage. A network volume ([`network`]) may have
//! empty token buckets, and an array ([`array`]) waits for its members. Freezes and stalls
//! follow from the model; only faults of the path in front of the drive are scripted
//! ([`faulty`]). The models hold no payload, read no clock, draw all randomness from a seed and
//! avoid the platform's floating-point library, so the same seed gives the same run to the byte
//! on any machine.
//!
//! A drive is described by a preset: a TOML file in `presets/` that gives every parameter with
//! its unit and its source ([`preset`]).
//!
//! ```
//! use hemi_drives::drive::{Drive, Request};
//! use hemi_drives::preset::Preset;
//! use hemi_units::{Extent, Instant, MILLISECOND, Operation};
//!
//! let mut disk = Preset::built_in("wd-1tb-2009")?.drive(1)?;
//! let extent = Extent::new(1 << 30, 8);
//! disk.submit(Instant(0), Request { tag: 1, operation: Operation::Read, extent });
//! let mut done = Vec::new();
//! while done.is_empty() {
//!     let next = disk.next_event();
//!     disk.advance(next, &mut done);
//! }
//! // A seek over half of the disk, and at most a revolution.
//! assert!((5 * MILLISECOND..30 * MILLISECOND).contains(&done[0].at.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod any;
pub mod array;
pub mod disksim;
pub mod drive;
pub mod faulty;
pub mod folded;
pub mod hdd;
pub mod network;
pub mod parameter;
pub mod preset;
pub mod server;
pub mod ssd;
#[cfg(test)]
mod testing;
