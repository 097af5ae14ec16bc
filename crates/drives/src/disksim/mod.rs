//! Drives described for DiskSim, and the requests measured on them.
//!
//! DiskSim (Carnegie Mellon University) comes with descriptions of real disks, extracted from
//! them by measurement, and with the service times those disks took. [`drive::load`] makes
//! [`crate::hdd::parameters::Parameters`] of such a description, [`trace::read`] reads the
//! measurements. The format is DiskSim 4.0's; nothing here knows a particular drive.

pub mod drive;
pub mod text;
pub mod trace;
