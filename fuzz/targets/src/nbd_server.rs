//! Fuzz target for the server's end of NBD: handshake and transmission.

use std::sync::Arc;

use hemi_nbd::codec::{BlockSize, TransmissionFlags};
use hemi_nbd::server::{Export, ServerConfig, ServerEvent, ServerSession, TlsMode};

const SIZE: u64 = 1 << 20;

/// Feeds any client's bytes to the server's session, in pieces of any size. It must not panic or
/// consume more than it was given, and every request it passes on must be valid, wherever the
/// session is saved and restored.
pub(crate) fn nbd_server(input: &[u8]) {
    let Some((&[mode, cut], mut input)) = input.split_first_chunk::<2>() else { return };
    let export = Export {
        name: "vol".into(),
        description: String::new(),
        size: SIZE,
        features: TransmissionFlags::KNOWN.without(TransmissionFlags::READ_ONLY),
        block_size: BlockSize { minimum: 512, preferred: 4096, maximum_payload: 1 << 16 },
        contexts: vec!["base:allocation".into(), "hemi:copies".into()],
    };
    let tls = [TlsMode::Off, TlsMode::Allowed, TlsMode::Required][usize::from(mode) % 3];
    let config = ServerConfig::new(vec![export], tls).expect("a sound configuration");
    let mut output = Vec::new();
    let config = Arc::new(config);
    let mut session = ServerSession::new(Arc::clone(&config), &mut output);
    let mut saved = Vec::new();
    let cut = usize::from(cut).max(1);
    while !input.is_empty() {
        let (mut piece, rest) = input.split_at(cut.min(input.len()));
        input = rest;
        // Another program takes over here, where the session can be saved.
        saved.clear();
        if session.save(&mut saved) {
            session = ServerSession::restore(Arc::clone(&config), &saved).expect("it was saved");
        }
        loop {
            output.clear();
            let Ok(advance) = session.advance(piece, &mut output) else { return };
            piece = &piece[advance.consumed..];
            match advance.event {
                ServerEvent::NeedMore => {
                    assert!(piece.is_empty());
                    break;
                }
                ServerEvent::Payload { remaining } => {
                    let taken = piece.len().min(remaining as usize);
                    session.payload_taken(taken as u64);
                    piece = &piece[taken..];
                    if piece.is_empty() {
                        break;
                    }
                }
                ServerEvent::Request(request) => {
                    let end = request.offset.checked_add(request.length);
                    assert!(end.is_some_and(|end| end <= SIZE));
                    assert_eq!((request.offset | request.length) % 512, 0);
                    assert!(request.payload_length() <= 1 << 16);
                }
                ServerEvent::StartTls => session.tls_established(),
                ServerEvent::Abort | ServerEvent::Disconnect => return,
                ServerEvent::Reply | ServerEvent::Ready | ServerEvent::Refused { .. } => {}
            }
        }
    }
}
