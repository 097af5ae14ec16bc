//! Flash drives.
