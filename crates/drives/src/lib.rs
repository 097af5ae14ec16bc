//! Drives one does not have at hand, as pure state machines on a virtual clock.
//!
//! A [`drive::Drive`] takes requests and says, in virtual time, when each ends: a hard disk
//! ([`hdd`]) because its arm has to move and its platter to turn, a flash drive ([`ssd`])
//! because its dies are busy, not least with collecting garbage, a network volume
//! ([`network`]) because its buckets have run dry, an array ([`array`]) because its members
//! take that long. Freezes and stalls come out of what the drive does; only what happens to
//! the path in front of it is scripted ([`faulty`]). No payload exists and no clock is read; chance comes from a seed, and no function
//! of the platform's floating-point library is used, so the same seed gives the same run to
//! the byte on any machine.
//!
//! What a drive is made of is a preset: a TOML file in `presets/` that gives every parameter
//! with its unit and its source ([`preset`]).
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
