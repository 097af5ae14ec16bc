//! Serves a hemi volume: the io_uring reactor, its legs and its NBD export.
//!
//! One thread per volume, the **reactor**, owns the engine, one io_uring, the legs and the
//! client sockets. Each turn of its loop submits everything new and waits with a single system
//! call, feeds all completions to the engine, and carries out the engine's actions. A request
//! needs no lock, no hand-off to another thread and no heap, because payload lies in one
//! registered arena from the socket to the drives and back. Control runs on another thread and
//! exchanges messages with the reactor.
//!
//! `docs/design/reactor.md` describes the loop and its bounds, `docs/design/legs.md` the legs.

pub mod config;
pub mod control;
pub mod create;
mod dashboard;
pub mod descriptors;
pub mod device;
pub mod differences;
pub mod drive;
pub mod export;
pub mod fail_slow;
pub mod grow;
pub mod handover;
pub mod inspect;
pub mod ledger;
pub mod messages;
mod notices;
pub mod opening;
mod populating;
pub mod preflight;
mod priority;
pub mod promote;
mod quarantine;
mod reactor;
pub mod record;
pub mod scan;
pub mod serve;
pub mod settle;
mod standby;
pub mod state;
mod this_program;
pub mod vhost;
pub mod volume;
