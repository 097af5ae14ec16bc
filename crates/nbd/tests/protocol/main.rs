//! The NBD protocol from outside: both ends, byte by byte. One program, so that it links once.

mod arbitrary_bytes;
mod client_bytes;
mod common;
mod conversation;
mod saved_sessions;
mod server_bytes;
