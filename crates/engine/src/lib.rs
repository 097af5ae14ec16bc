//! The hemi engine: a mirror over unlike drives, as a pure state machine.
//!
//! The engine owns no thread, clock, socket, file or payload byte. A driver feeds it client
//! requests, leg completions, timer ticks and commands, each with the current time; it
//! answers with leg I/O, replies and notices, and moves data only as buffer handles. A write
//! is acknowledged at the first completion that recovery would honour: each region of the
//! volume has one **authority** leg, durably recorded, and what the other legs miss is a
//! **debt** in their delay queues, drained in LBA order. Lag, freeze, outage, rejoin and
//! rebuild are that one mechanism. The same code runs under the io_uring server and under
//! the simulator; `docs/design/engine.md` gives the reasons, `docs/design/disk-format.md`
//! the bytes. `examples/two_legs.rs` drives a mirror in memory by hand and freezes one of its legs.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod command;
pub mod engine;
pub mod format;
pub mod histogram;
pub mod identifiers;
pub mod io;
pub mod marks;
pub mod planted;
pub mod recovery;
pub mod settings;
pub mod status;
