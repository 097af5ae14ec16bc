//! Flash drives.

pub mod frontier;
pub mod mapping;
pub mod translation;
pub mod victim;
