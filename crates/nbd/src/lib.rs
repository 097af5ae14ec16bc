//! The NBD protocol, both ends, without I/O.
//!
//! A session is a state machine: the caller receives bytes from wherever they come, hands
//! them to [`server::ServerSession::advance`] or [`client::ClientSession::advance`], and is
//! told how many were used and what they mean. Sessions own no socket, clock or thread.
//!
//! Payload never passes through a session. When a write's header (server) or a read's
//! reply header (client) has been parsed, the session names the payload's length and stands
//! aside: the caller copies what it already holds and receives the rest straight into the
//! buffer where the data is wanted, then reports it with `payload_taken`. Headers are
//! encoded into a small array ([`codec::Packet`]) for a gather send. The handshake, and the
//! answers to invalid requests, are appended to a `Vec` the caller keeps; nothing else
//! allocates.
//!
//! Source of all rules: the NBD protocol document, `doc/proto.md` of the reference
//! implementation, with its extension `EXTENDED_HEADERS`. Section names in these docs
//! refer to it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod codec;
mod gather;
pub mod limits;
pub mod server;
pub mod uri;
