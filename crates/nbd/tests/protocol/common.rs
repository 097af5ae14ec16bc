//! Helpers that several tests share.
#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod memory;

use std::sync::Arc;

use hemi_nbd::codec::{BlockSize, CONTEXT_BASE_ALLOCATION, CONTEXT_HEMI_COPIES, TransmissionFlags};
use hemi_nbd::server::{Export, ServerConfig, ServerSession, TlsMode};

/// Returns the bytes written as hexadecimal digits. White space is ignored.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        hex.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Returns an export of 1 GiB with every feature.
pub(crate) fn export(name: &str) -> Export {
    Export {
        name: name.into(),
        description: "a test".into(),
        size: 1 << 30,
        features: TransmissionFlags::SEND_FLUSH
            | TransmissionFlags::SEND_FUA
            | TransmissionFlags::SEND_TRIM
            | TransmissionFlags::SEND_WRITE_ZEROES
            | TransmissionFlags::CAN_MULTI_CONN
            | TransmissionFlags::SEND_CACHE
            | TransmissionFlags::SEND_FAST_ZERO,
        block_size: BlockSize { minimum: 512, preferred: 4096, maximum_payload: 32 << 20 },
        contexts: vec![CONTEXT_BASE_ALLOCATION.into(), CONTEXT_HEMI_COPIES.into()],
    }
}

/// Returns a server session and its greeting.
pub(crate) fn session(exports: Vec<Export>, tls: TlsMode) -> (ServerSession, Vec<u8>) {
    let mut greeting = Vec::new();
    let config = ServerConfig::new(exports, tls).unwrap();
    let session = ServerSession::new(Arc::new(config), &mut greeting);
    (session, greeting)
}

/// Returns an option of the handshake.
pub(crate) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Returns the header of a request in the compact form.
pub(crate) fn compact(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    head(0x2560_9513, (flags, command), cookie, offset, &length.to_be_bytes())
}

/// Returns the header of a request in the extended form.
pub(crate) fn extended(flags: u16, command: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    head(0x21e4_1c71, (flags, command), cookie, offset, &length.to_be_bytes())
}

fn head(magic: u32, kind: (u16, u16), cookie: u64, offset: u64, length: &[u8]) -> Vec<u8> {
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(kind.0.to_be_bytes());
    bytes.extend(kind.1.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length);
    bytes
}
