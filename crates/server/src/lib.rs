//! hemi.
pub mod config;
