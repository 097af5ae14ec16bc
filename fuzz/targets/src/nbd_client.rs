//! Fuzz target for the client's end of NBD: handshake and transmission.

use hemi_nbd::client::{ClientConfig, ClientEvent, ClientSession, Command, Request};
use hemi_nbd::codec::ReplyStyle;

const LENGTH: u32 = 4096;

/// Returns a session after a successful handshake, so that the fuzzer need not find one.
fn shaken(style: ReplyStyle) -> ClientSession {
    let mut config = ClientConfig::new("vol");
    config.style = style;
    config.in_flight = 4;
    let mut client = ClientSession::new(config);
    let mut input = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        input.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        input.extend(option.to_be_bytes());
        input.extend(kind.to_be_bytes());
        input.extend((data.len() as u32).to_be_bytes());
        input.extend(data);
    };
    match style {
        ReplyStyle::Simple => {}
        ReplyStyle::Structured => reply(8, 1, &[]),
        ReplyStyle::Extended => reply(11, 1, &[]),
    }
    reply(7, 3, &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0x0d, 0xfd]);
    reply(7, 1, &[]);
    let (mut at, mut output) = (0, Vec::new());
    while !client.is_ready() {
        at += client.advance(&input[at..], &mut output).expect("a sound handshake").consumed;
    }
    client
}

/// Feeds any server's bytes to the client's session, in pieces of any size. It must not panic or
/// consume more than it was given, and data it announces must lie within its request.
pub(crate) fn nbd_client(input: &[u8]) {
    let Some((&[mode, cut], mut input)) = input.split_first_chunk::<2>() else { return };
    let styles = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];
    let mut client = match styles.get(usize::from(mode) % 4) {
        Some(style) => shaken(*style),
        None => ClientSession::new(ClientConfig::new("vol")),
    };
    let commands = [Command::Read { unfragmented: false }, Command::Write, Command::Flush];
    for (token, command) in commands.into_iter().enumerate() {
        let request = Request { command, fua: false, offset: 8192, length: u64::from(LENGTH) };
        // Nothing can be submitted during the handshake.
        let _ = client.submit(token as u64, request);
    }
    let cut = usize::from(cut).max(1);
    let mut output = Vec::new();
    while !input.is_empty() {
        let (mut piece, rest) = input.split_at(cut.min(input.len()));
        input = rest;
        loop {
            output.clear();
            let Ok(advance) = client.advance(piece, &mut output) else { return };
            piece = &piece[advance.consumed..];
            match advance.event {
                ClientEvent::NeedMore => {
                    assert!(piece.is_empty());
                    break;
                }
                ClientEvent::Data { token, at, length }
                | ClientEvent::Hole { token, at, length } => {
                    assert!(token == 0 && length > 0 && at + length <= LENGTH);
                }
                ClientEvent::Payload { remaining } => {
                    let taken = (remaining as usize).min(piece.len());
                    client.payload_taken(taken as u32);
                    piece = &piece[taken..];
                    if piece.is_empty() {
                        break;
                    }
                }
                ClientEvent::StartTls => client.tls_established(&mut output),
                _ => {}
            }
        }
    }
}
