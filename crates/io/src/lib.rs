//! The I/O of hemi: one io_uring, the memory it works on, and the legs behind it.
//!
//! A [`ring`] takes many operations with one system call and gives back their completions, each with
//! the tag it was given. Payload lies in an [`arena`] of registered memory and is copied at most once.
//! A [`leg`] is a place that holds a copy of the volume: a file or block device, a stripe of several, or
//! an NBD export. All kinds obey one contract: they take I/O, answer each exactly once, and report when
//! they are lost and back. [`probe`] learns from the outside what a path is and who uses it. [`config`]
//! has the options of legs and of TLS. Nothing here knows of volumes, regions or clients: the server and
//! the load generator both stand on this crate. All of its threads belong to its callers.
//!
//! `docs/design/legs.md` describes the legs, `docs/design/reactor.md` the ring.

pub mod arena;
pub mod blocking;
pub mod clock;
pub mod config;
pub mod leg;
pub mod memory;
pub mod probe;
pub mod process;
pub mod random;
pub mod ring;
pub mod ring_message;
pub mod signature;
pub mod slots;
pub mod tls;
pub mod twin;
