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
#![forbid(unsafe_code)]

pub mod any;
pub mod array;
pub mod disksim;
pub mod drive;
pub mod faulty;
pub mod hdd;
pub mod network;
pub mod parameter;
pub mod preset;
pub mod server;
pub mod ssd;
#[cfg(test)]
mod testing;
