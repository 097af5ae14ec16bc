//! Tests that a session saved and restored anywhere in the stream continues as if nothing had
//! happened, and that no bytes make a restored one misbehave.

use std::sync::Arc;

use crate::common::{bytes, compact, export, extended, option};
use hemi_nbd::server::{
    Command, ContextSet, Request, SAVED_FORMAT, SavedError, ServerConfig, ServerEvent,
    ServerSession, TlsMode,
};
use proptest::prelude::*;

fn config() -> Arc<ServerConfig> {
    Arc::new(ServerConfig::new(vec![export("vol")], TlsMode::Off).unwrap())
}

/// Returns `SET_META_CONTEXT` for `base:` of `vol`, then `GO`.
fn choose() -> Vec<u8> {
    let mut meta = b"\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec();
    meta = option(10, &meta);
    meta.extend(option(7, b"\0\0\0\x03vol\0\0"));
    meta
}

/// Returns a whole conversation: a handshake of some style, then requests of every kind.
fn conversation(style: u32) -> Vec<u8> {
    let mut all = vec![0, 0, 0, 3];
    all.extend(option(99, &[7; 300]));
    match style {
        0 => all.extend(option(7, b"\0\0\0\x03vol\0\0")),
        1 => {
            all.extend(option(8, &[]));
            all.extend(choose());
        }
        _ => {
            all.extend(option(11, &[]));
            all.extend(choose());
        }
    }
    if style < 2 {
        all.extend(compact(0, 0, 1, 4096, 8192));
        all.extend(compact(1, 1, 2, 512, 1024));
        all.extend([9; 1024]);
        all.extend(compact(0, 1, 3, 1 << 40, 700));
        all.extend([8; 700]);
        all.extend(compact(0, 3, 4, 0, 0));
        all.extend(compact(2, 6, 5, 0, 1 << 20));
        all.extend(compact(0, 7, 6, 0, 1 << 20));
        all.extend(compact(0, 2, 7, 0, 0));
    } else {
        all.extend(extended(0, 0, 1, 4096, 8192));
        all.extend(extended(0x21, 1, 2, 512, 1024));
        all.extend([9; 1024]);
        // A status request that names its contexts.
        all.extend(extended(0x20, 7, 3, 0, 12));
        all.extend([0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 1]);
        all.extend(extended(0, 7, 4, 0, 1 << 20));
        all.extend(extended(0, 2, 7, 0, 0));
    }
    all
}

/// Feeds all of `input` and collects the output. Returns the events, without those that ask for
/// more input or payload. Stops before the rest of a payload, as a server does.
fn feed(
    session: &mut ServerSession,
    mut input: &[u8],
    payload: &mut u64,
    output: &mut Vec<u8>,
) -> Vec<ServerEvent> {
    let mut events = Vec::new();
    loop {
        let taken = (*payload).min(input.len() as u64);
        session.payload_taken(taken);
        *payload -= taken;
        input = &input[taken as usize..];
        if input.is_empty() {
            return events;
        }
        let Ok(advance) = session.advance(input, output) else { return events };
        input = &input[advance.consumed..];
        match advance.event {
            ServerEvent::NeedMore => return events,
            ServerEvent::Request(request) => *payload = request.payload_length(),
            ServerEvent::Payload { .. } => return events,
            _ => {}
        }
        events.push(advance.event);
        let ended = matches!(
            advance.event,
            ServerEvent::Disconnect | ServerEvent::Abort | ServerEvent::StartTls
        );
        if ended {
            return events;
        }
    }
}

fn save(session: &ServerSession) -> Option<Vec<u8>> {
    let mut saved = Vec::new();
    session.save(&mut saved).then_some(saved)
}

proptest! {
    #[test]
    fn a_session_goes_on_wherever_it_was_saved(
        style in 0_u32..3,
        cuts in prop::collection::vec(0_usize..3000, 1..6),
    ) {
        let whole = conversation(style);
        let (mut expected, mut payload) = (Vec::new(), 0);
        let mut session = ServerSession::new(config(), &mut expected);
        let mut events = feed(&mut session, &whole, &mut payload, &mut expected);
        prop_assert_eq!(events.last(), Some(&ServerEvent::Disconnect));
        prop_assert!(events.len() > 6, "{events:?}");
        events.retain(|event| !matches!(event, ServerEvent::Reply));

        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
        cuts.sort_unstable();
        cuts.push(whole.len());
        let (mut output, mut payload, mut seen, mut from) = (Vec::new(), 0, Vec::new(), 0);
        let mut session = ServerSession::new(config(), &mut output);
        for cut in cuts {
            seen.extend(feed(&mut session, &whole[from..cut], &mut payload, &mut output));
            let saved = save(&session).expect("it can go on elsewhere");
            session = ServerSession::restore(config(), &saved).expect("it was saved");
            prop_assert_eq!(save(&session), Some(saved));
            from = cut;
        }
        seen.retain(|event| !matches!(event, ServerEvent::Reply));
        prop_assert_eq!(seen, events);
        prop_assert_eq!(output, expected);
    }

    /// Bytes with one bit flipped, truncated or made up are refused, or make a session that
    /// continues.
    #[test]
    fn damaged_bytes_are_refused_or_harmless(
        style in 0_u32..3,
        cut in 0_usize..3000,
        bit in 0_usize..1024,
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let whole = conversation(style);
        let (mut output, mut payload) = (Vec::new(), 0);
        let mut session = ServerSession::new(config(), &mut output);
        feed(&mut session, &whole[..cut.min(whole.len())], &mut payload, &mut output);
        let Some(mut saved) = save(&session) else { return Ok(()) };
        prop_assert!(ServerSession::restore(config(), &saved[..saved.len() - 1]).is_err());
        let at = bit / 8 % saved.len();
        saved[at] ^= 1 << (bit % 8);
        if let Ok(mut session) = ServerSession::restore(config(), &saved) {
            feed(&mut session, &rest, &mut payload, &mut output);
        }
        let mut noise = vec![SAVED_FORMAT];
        noise.extend(rest);
        let _ = ServerSession::restore(config(), &noise);
        let _ = Request::restore(&noise);
    }

    #[test]
    fn requests_come_back(
        kind in 0_u8..7, set in any::<bool>(), fua in any::<bool>(),
        offset: u64, length: u64, cookie: u64,
    ) {
        let command = match kind {
            0 => Command::Read { unfragmented: set },
            1 => Command::Write,
            2 => Command::Flush,
            3 => Command::Trim,
            4 => Command::Cache,
            5 => Command::WriteZeroes { no_hole: set, fast: !set },
            _ => Command::BlockStatus { one: set, contexts: ContextSet::EMPTY },
        };
        let request = Request { command, fua, offset, length, cookie };
        let mut saved = Vec::new();
        request.save(&mut saved);
        prop_assert_eq!(Request::restore(&saved), Ok(request));
    }
}

/// Other programs read these bytes than those that wrote them.
#[test]
fn the_format_stays() {
    let mut output = Vec::new();
    let mut session = ServerSession::new(config(), &mut output);
    let whole = conversation(1);
    let first_read = 4 + 16 + 300 + 16 + choose().len() + 28;
    feed(&mut session, &whole[..first_read + 5], &mut 0, &mut output);
    let expected = bytes(
        "01 04 0000000000000000 0000000000000000 00000000 ed0d 01 01 05 2560951300 \
         0b 00000000 01 04000000 00000000",
    );
    let saved = save(&session).unwrap();
    assert_eq!(saved, expected, "{saved:02x?}");

    let request = Request {
        command: Command::WriteZeroes { no_hole: true, fast: false },
        fua: true,
        offset: 0x1000,
        length: 0x200,
        cookie: 7,
    };
    let mut saved = Vec::new();
    request.save(&mut saved);
    let expected = bytes("01 05 03 00 0010000000000000 0002000000000000 0700000000000000");
    assert_eq!(saved, expected, "{saved:02x?}");
}

#[test]
fn another_format_is_refused() {
    let other = SAVED_FORMAT + 1;
    assert_eq!(ServerSession::restore(config(), &[other]).unwrap_err(), SavedError::Format(other));
    assert_eq!(Request::restore(&[other]).unwrap_err(), SavedError::Format(other));
}
