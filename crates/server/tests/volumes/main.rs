//! Volumes on real files: made, served, joined, promoted. One program, so that it links once.

mod create_devices;
mod create_files;
mod join;
mod promote;
mod scale;
mod serve;
