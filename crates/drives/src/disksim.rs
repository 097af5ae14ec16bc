//! Drives described for DiskSim, and requests measured on them.
//!
//! DiskSim (Carnegie Mellon University) comes with descriptions of real disks, extracted by
//! measurement, and with the service times of those disks. [`drive::load`] converts such a
//! description to [`crate::hdd::parameters::Parameters`] and says what it leaves out;
//! [`preset::text`] makes a preset of it, and [`trace::read`] reads the measurements. The format
//! is DiskSim 4.0's; the code is not specific to any drive.

pub mod drive;
mod layout;
mod overheads;
pub mod preset;
mod seek;
mod setup;
mod sources;
pub mod text;
pub mod trace;
pub mod unmodelled;
