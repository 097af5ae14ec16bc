//! What does this file, drive or export really do under this load? The workloads of
//! [`hemi_workload`], issued in real time through io_uring.
//!
//! Everything is measured from the time a request was **intended** for, so that a target that
//! stalls is charged with the requests that waited meanwhile. The engine in turn is charged
//! with its own **lateness**, from when a request might have gone to when it went; a run whose
//! lateness is beyond its bound reports no latency at all.
//!
//! [`schedule`] says which request may go when, without a clock or I/O of its own. [`engine`]
//! drives it with the real clock: one thread, one ring, nothing allocated and nothing locked
//! for each request. Finished requests leave as [`segments`] of plain rows to a second
//! thread, which keeps the [`account`] and writes the [`rows`]. [`report`] is what comes out.
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
