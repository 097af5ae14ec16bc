//! Measures a file, drive or export under load: the workloads of [`hemi_workload`], issued in real
//! time through io_uring.
//!
//! Everything is measured from the time a request was **intended** for, so that a target that
//! stalls is charged with the requests that waited meanwhile. The engine in turn is charged with
//! its own **lateness**, from when a request might have been issued to when it was. A run whose
//! lateness exceeds its bound reports no latency at all.
//!
//! [`schedule`] decides which request may go when, without a clock or I/O of its own. [`engine`]
//! drives it with the real clock: one thread, one ring, no allocation and no lock per request.
//! Finished requests leave as [`segments`] of plain rows to a second thread, which keeps the
//! [`account`] and writes the [`rows`]. [`report`] has the results.
#![forbid(unsafe_code)]

pub mod account;
pub mod backend;
pub mod buffers;
pub mod engine;
pub mod report;
pub mod rows;
pub mod run;
pub mod schedule;
pub mod segments;
pub mod spec;
pub mod target;
