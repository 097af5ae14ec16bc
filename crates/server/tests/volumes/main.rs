//! Volumes on real files: made, served, joined, promoted. One program, so that it links once. Only `scale`
//! is another, since it measures the memory of its process.

mod create_devices;
mod create_files;
mod join;
mod promote;
mod serve;
