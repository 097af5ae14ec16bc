//! Both ends of the NBD protocol, without I/O.
//!
//! A session is a state machine. The caller receives bytes from any source and passes them to
//! [`server::ServerSession::advance`] or [`client::ClientSession::advance`], which return the
//! number of bytes used and the event they caused. Sessions own no socket, clock or thread.
//!
//! Payload never passes through a session. When it has parsed a write's header (server) or a
//! read's reply header (client), it returns the length of the payload and pauses. The caller
//! copies the bytes it already holds, receives the rest straight into the destination buffer,
//! and then reports them with `payload_taken`. Headers are encoded into a small array
//! ([`codec::Packet`]) for a gather send. The handshake, and the answers to invalid requests,
//! are appended to a `Vec` that the caller keeps. Nothing else allocates.
//!
//! The source of all rules is the NBD protocol document, `doc/proto.md` of the reference
//! implementation, with its extension `EXTENDED_HEADERS`. Section names in these docs refer to
//! it.
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
