//! hemi.
fn main() {}
