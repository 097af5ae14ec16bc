//! hemi.
