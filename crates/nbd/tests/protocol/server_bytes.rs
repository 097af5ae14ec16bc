//! Tests of the server against bytes written out by hand, so that the same mistake in encoder
//! and decoder does not go unnoticed.

use std::sync::Arc;

use crate::common::{bytes, export, option, session};
use hemi_nbd::codec::{
    BlockSize, CONTEXT_BASE_ALLOCATION, ErrorCode, ReplyStyle, TransmissionFlags,
};
use hemi_nbd::server::{
    Command, Export, ReplyTo, Request, ServerConfig, ServerEvent, ServerSession, SessionEnd,
    StatusExtent, TlsMode,
};

const TO: ReplyTo = ReplyTo { cookie: 0x0102_0304_0506_0708, offset: 0x1000 };

/// Feeds all of `input`, which must end a step exactly. Returns the last event and all output.
fn feed(session: &mut ServerSession, input: &[u8]) -> Result<(ServerEvent, Vec<u8>), SessionEnd> {
    let mut output = Vec::new();
    let mut at = 0;
    loop {
        let advance = session.advance(&input[at..], &mut output)?;
        at += advance.consumed;
        if at == input.len() {
            return Ok((advance.event, output));
        }
    }
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Returns the type and message of the only reply in `output`.
fn refusal(output: &[u8]) -> (u32, String) {
    let kind = u32::from_be_bytes(output[12..16].try_into().unwrap());
    let length = u32::from_be_bytes(output[16..20].try_into().unwrap()) as usize;
    assert_eq!(output.len(), 20 + length, "exactly one reply");
    (kind & 0x7fff_ffff, String::from_utf8(output[20..].to_vec()).unwrap())
}

fn greeted(tls: TlsMode) -> ServerSession {
    let (mut session, _) = session(vec![export("vol")], tls);
    feed(&mut session, &[0, 0, 0, 3]).unwrap();
    session
}

fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.to_be_bytes()));
    data
}

fn query_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}

#[test]
fn greeting() {
    let (_, greeting) = session(vec![export("vol")], TlsMode::Off);
    assert_eq!(greeting, bytes("4e42444d41474943 49484156454f5054 0003"));
}

#[test]
fn unknown_client_flags_end_the_session() {
    let (mut session, _) = session(vec![export("vol")], TlsMode::Off);
    let end = feed(&mut session, &[0, 0, 0, 7]).unwrap_err();
    assert_eq!(end, SessionEnd::UnknownClientFlags { flags: 4 });
}

#[test]
fn go_with_every_information() {
    let mut session = greeted(TlsMode::Off);
    let (event, output) = feed(&mut session, &option(7, &go_data("vol", &[0, 1, 2, 3]))).unwrap();
    assert_eq!(event, ServerEvent::Ready);
    let expected = [
        // Size 1 GiB; flags: HAS_FLAGS FLUSH FUA TRIM WRITE_ZEROES MULTI_CONN CACHE FAST_ZERO.
        reply(7, 3, &bytes("0000 0000000040000000 0d6d")),
        reply(7, 3, &bytes("0001 766f6c")),
        reply(7, 3, &bytes("0002 61 20 74 65 73 74")),
        reply(7, 3, &bytes("0003 00000200 00001000 02000000")),
        reply(7, 1, &[]),
    ];
    assert_eq!(output, expected.concat());
    assert!(session.in_transmission());
}

#[test]
fn info_stays_in_the_handshake_and_the_empty_name_is_the_default() {
    let mut session = greeted(TlsMode::Off);
    let (event, output) = feed(&mut session, &option(6, &go_data("", &[1]))).unwrap();
    assert_eq!(event, ServerEvent::Reply);
    let expected = [
        reply(6, 3, &bytes("0000 0000000040000000 0d6d")),
        reply(6, 3, &bytes("0001 766f6c")),
        reply(6, 1, &[]),
    ];
    assert_eq!(output, expected.concat());
    assert!(!session.in_transmission());
}

#[test]
fn export_name_with_and_without_zeroes() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let (mut session, _) = session(vec![export("vol")], TlsMode::Off);
        feed(&mut session, &[0, 0, 0, flags]).unwrap();
        let (event, output) = feed(&mut session, &option(1, b"vol")).unwrap();
        assert_eq!(event, ServerEvent::Ready);
        let mut expected = bytes("0000000040000000 0d6d");
        expected.resize(10 + zeroes, 0);
        assert_eq!(output, expected);
        assert_eq!(session.style(), ReplyStyle::Simple);
    }
}

#[test]
fn export_name_of_an_unknown_export_ends_the_session() {
    let mut session = greeted(TlsMode::Off);
    let end = feed(&mut session, &option(1, b"other")).unwrap_err();
    assert_eq!(end.to_string(), "EXPORT_NAME refused: no export named \"other\"");
}

#[test]
fn list_names_every_export() {
    let (mut session, _) = session(vec![export("a"), export("bc")], TlsMode::Off);
    feed(&mut session, &[0, 0, 0, 3]).unwrap();
    let (_, output) = feed(&mut session, &option(3, &[])).unwrap();
    let expected = [
        reply(3, 2, &bytes("00000001 61 612074657374")),
        reply(3, 2, &bytes("00000002 6263 612074657374")),
        reply(3, 1, &[]),
    ];
    assert_eq!(output, expected.concat());
    let (_, output) = feed(&mut session, &option(3, b"x")).unwrap();
    assert_eq!(refusal(&output), (3, "LIST takes no data, but 1 bytes came".into()));
}

#[test]
fn abort_is_acknowledged_even_with_data() {
    let mut session = greeted(TlsMode::Required);
    let (event, output) = feed(&mut session, &option(2, b"bye")).unwrap();
    assert_eq!(event, ServerEvent::Abort);
    assert_eq!(output, reply(2, 1, &[]));
}

#[test]
fn unknown_options_are_refused_and_skipped() {
    let mut session = greeted(TlsMode::Off);
    let (_, output) = feed(&mut session, &option(99, b"whatever")).unwrap();
    assert_eq!(refusal(&output), (1, "unknown option 99".into()));
    let (_, output) = feed(&mut session, &option(99, &[0; 100_000])).unwrap();
    assert_eq!(refusal(&output).0, 9);
    let (event, _) = feed(&mut session, &option(7, &go_data("vol", &[]))).unwrap();
    assert_eq!(event, ServerEvent::Ready);
}

#[test]
fn malformed_go_is_refused() {
    let mut long = go_data("vol", &[]);
    long.push(0);
    let cases = [
        (&b""[..], 3, "the fields of GO do not add up to its 0 bytes of data"),
        (&[0, 0, 0, 9, b'v', 0, 0], 3, "the fields of GO do not add up to its 7 bytes of data"),
        (&long, 3, "the fields of GO do not add up to its 10 bytes of data"),
        (&[0, 0, 0x10, 1], 3, "export name of 4097 bytes is longer than 4096"),
        (&go_data("nope", &[]), 6, "no export named \"nope\""),
    ];
    for (data, kind, message) in cases {
        let mut session = greeted(TlsMode::Off);
        let (event, output) = feed(&mut session, &option(7, data)).unwrap();
        assert_eq!((event, refusal(&output)), (ServerEvent::Reply, (kind, message.into())));
    }
}

#[test]
fn endless_options_end_the_session() {
    let mut session = greeted(TlsMode::Off);
    let list = option(3, &[]);
    let end = (0..1000).find_map(|_| feed(&mut session, &list).err());
    assert_eq!(end, Some(SessionEnd::TooManyOptions));
}

#[test]
fn required_tls_comes_before_everything() {
    let mut session = greeted(TlsMode::Required);
    for number in [3, 6, 7, 8, 9, 10, 11, 99] {
        let (_, output) = feed(&mut session, &option(number, &[])).unwrap();
        assert_eq!(refusal(&output).0, 5, "option {number}");
    }
    assert!(feed(&mut greeted(TlsMode::Required), &option(1, b"vol")).is_err());
    let (event, output) = feed(&mut session, &option(5, &[])).unwrap();
    assert_eq!((event, output), (ServerEvent::StartTls, reply(5, 1, &[])));
    let waiting = session.advance(b"\x16\x03", &mut Vec::new()).unwrap();
    assert_eq!((waiting.consumed, waiting.event), (0, ServerEvent::StartTls));
    session.tls_established();
    let (_, output) = feed(&mut session, &option(5, &[])).unwrap();
    assert_eq!(refusal(&output), (3, "TLS is already in use".into()));
    let (event, _) = feed(&mut session, &option(7, &go_data("vol", &[]))).unwrap();
    assert_eq!(event, ServerEvent::Ready);
}

#[test]
fn tls_forgets_what_was_negotiated_in_the_clear() {
    let mut session = greeted(TlsMode::Allowed);
    feed(&mut session, &option(11, &[])).unwrap();
    feed(&mut session, &option(10, &query_data("vol", &[CONTEXT_BASE_ALLOCATION]))).unwrap();
    feed(&mut session, &option(5, &[])).unwrap();
    session.tls_established();
    feed(&mut session, &option(7, &go_data("vol", &[]))).unwrap();
    assert_eq!(session.style(), ReplyStyle::Simple);
}

#[test]
fn tls_off_refuses_by_policy() {
    let mut session = greeted(TlsMode::Off);
    let (_, output) = feed(&mut session, &option(5, &[])).unwrap();
    assert_eq!(refusal(&output), (2, "this server is configured without TLS".into()));
}

#[test]
fn framing_options_and_their_precedence() {
    let mut session = greeted(TlsMode::Off);
    let (_, output) = feed(&mut session, &option(8, b"x")).unwrap();
    assert_eq!(refusal(&output).0, 3);
    let (_, output) = feed(&mut session, &option(8, &[])).unwrap();
    assert_eq!(output, reply(8, 1, &[]));
    let (_, output) = feed(&mut session, &option(8, &[])).unwrap();
    assert_eq!(refusal(&output).0, 3);
    let (_, output) = feed(&mut session, &option(11, &[])).unwrap();
    assert_eq!(output, reply(11, 1, &[]));
    let (_, output) = feed(&mut session, &option(8, &[])).unwrap();
    assert_eq!(refusal(&output).0, 10);
    assert!(feed(&mut session, &option(1, b"vol")).is_err(), "EXPORT_NAME after extended headers");
}

#[test]
fn meta_contexts_are_listed_and_selected() {
    let mut session = greeted(TlsMode::Off);
    let (_, output) = feed(&mut session, &option(9, &query_data("vol", &[]))).unwrap();
    assert_eq!(refusal(&output), (3, "LIST_META_CONTEXT needs structured replies first".into()));
    feed(&mut session, &option(8, &[])).unwrap();

    let base = [&[0, 0, 0, 0], &b"base:allocation"[..]].concat();
    let copies = [&[0, 0, 0, 0], &b"hemi:copies"[..]].concat();
    let cases: [(&[&str], &[&[u8]]); 5] = [
        (&[], &[&base, &copies]),
        (&["base:"], &[&base]),
        (&["hemi:", "base:allocation"], &[&base, &copies]),
        (&["qemu:dirty-bitmap:x"], &[]),
        (&["base:alloc"], &[]),
    ];
    for (queries, contexts) in cases {
        let (_, output) = feed(&mut session, &option(9, &query_data("vol", queries))).unwrap();
        let mut expected: Vec<u8> = contexts.iter().flat_map(|data| reply(9, 4, data)).collect();
        expected.extend(reply(9, 1, &[]));
        assert_eq!(output, expected, "{queries:?}");
    }

    let (_, output) = feed(&mut session, &option(10, &query_data("vol", &["base:"]))).unwrap();
    assert_eq!(output, reply(10, 1, &[]), "a wildcard selects nothing");
    let data = query_data("vol", &["hemi:copies", "other:x"]);
    let (_, output) = feed(&mut session, &option(10, &data)).unwrap();
    let copies = [&[0, 0, 0, 2], &b"hemi:copies"[..]].concat();
    assert_eq!(output, [reply(10, 4, &copies), reply(10, 1, &[])].concat());

    let mut truncated = query_data("vol", &["base:allocation"]);
    truncated.pop();
    for (data, kind) in [
        (truncated, 3),
        (query_data("nope", &[]), 6),
        (query_data("vol", &["base"]), 3),
        (query_data("vol", &["base:allocation"; 100]), 9),
    ] {
        let (_, output) = feed(&mut session, &option(10, &data)).unwrap();
        assert_eq!(refusal(&output).0, kind);
    }
}

/// Returns a session in transmission over an export of 1 GiB.
fn transmitting(style: ReplyStyle) -> ServerSession {
    let mut session = greeted(TlsMode::Off);
    let framing = match style {
        ReplyStyle::Simple => None,
        ReplyStyle::Structured => Some(8),
        ReplyStyle::Extended => Some(11),
    };
    if let Some(number) = framing {
        feed(&mut session, &option(number, &[])).unwrap();
        let contexts = query_data("vol", &["base:allocation", "hemi:copies"]);
        feed(&mut session, &option(10, &contexts)).unwrap();
    }
    feed(&mut session, &option(7, &go_data("vol", &[3]))).unwrap();
    session
}

fn compact(flags: u16, command: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(TO.cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn extended(flags: u16, command: u16, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = 0x21e4_1c71_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(TO.cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn request(command: Command, fua: bool, offset: u64, length: u64) -> ServerEvent {
    ServerEvent::Request(Request { command, fua, offset, length, cookie: TO.cookie })
}

#[test]
fn every_command_is_understood() {
    let read = Command::Read { unfragmented: false };
    let cases = [
        (compact(0, 0, 4096, 512), request(read, false, 4096, 512)),
        (compact(1, 0, 4096, 512), request(read, true, 4096, 512)),
        (compact(0, 3, 0, 0), request(Command::Flush, false, 0, 0)),
        (compact(0, 4, 0, 1 << 30), request(Command::Trim, false, 0, 1 << 30)),
        (compact(0, 5, 512, 512), request(Command::Cache, false, 512, 512)),
        (
            compact(0b1_0011, 6, 0, 512),
            request(Command::WriteZeroes { no_hole: true, fast: true }, true, 0, 512),
        ),
    ];
    for (input, event) in cases {
        let mut session = transmitting(ReplyStyle::Simple);
        assert_eq!(feed(&mut session, &input).unwrap(), (event, vec![]));
    }
    let mut session = transmitting(ReplyStyle::Structured);
    let unfragmented = Command::Read { unfragmented: true };
    let event = feed(&mut session, &compact(4, 0, 0, 512)).unwrap().0;
    assert_eq!(event, request(unfragmented, false, 0, 512));
    let ServerEvent::Request(status) = feed(&mut session, &compact(8, 7, 0, 512)).unwrap().0 else {
        panic!("block status is a request");
    };
    let Command::BlockStatus { one: true, contexts } = status.command else {
        panic!("{status:?}");
    };
    assert_eq!(contexts.indices().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(feed(&mut session, &compact(0, 2, 0, 0)).unwrap().0, ServerEvent::Disconnect);
}

#[test]
fn a_write_names_its_payload_and_waits_for_it() {
    for style in [ReplyStyle::Simple, ReplyStyle::Extended] {
        let mut session = transmitting(style);
        let mut input = match style {
            ReplyStyle::Extended => extended(0x21, 1, 8192, 1024),
            _ => compact(1, 1, 8192, 1024),
        };
        let header = input.len();
        input.extend([7; 1024]);
        let advance = session.advance(&input, &mut Vec::new()).unwrap();
        assert_eq!(advance.consumed, header);
        assert_eq!(advance.event, request(Command::Write, true, 8192, 1024));
        session.payload_taken(1000);
        let advance = session.advance(&input, &mut Vec::new()).unwrap();
        assert_eq!((advance.consumed, advance.event), (0, ServerEvent::Payload { remaining: 24 }));
        session.payload_taken(24);
        let advance = session.advance(&input, &mut Vec::new()).unwrap();
        assert_eq!(advance.event, request(Command::Write, true, 8192, 1024));
    }
}

/// Returns the error value of the only reply in `output`, and its message if it has one.
fn error_of(style: ReplyStyle, output: &[u8]) -> (u32, String) {
    let number = |at: usize| u32::from_be_bytes(output[at..at + 4].try_into().unwrap());
    let body = match style {
        ReplyStyle::Simple => {
            assert_eq!(output.len(), 16);
            return (number(4), String::new());
        }
        ReplyStyle::Structured => 20,
        ReplyStyle::Extended => 32,
    };
    (number(body), String::from_utf8(output[body + 6..].to_vec()).unwrap())
}

#[test]
fn invalid_requests_are_refused_with_the_named_error_and_the_connection_goes_on() {
    let gib = 1 << 30;
    let cases = [
        // flags, command, offset, length, error, part of the message
        (0, 0, gib, 512, 22, "read of 512 bytes at offset 1073741824 ends past the export's"),
        (0, 1, gib, 512, 28, "write of 512 bytes at offset 1073741824 ends past the export's"),
        (0, 6, gib - 512, 1024, 28, "ends past the export's 1073741824 bytes"),
        (0, 4, u64::MAX - 511, 512, 22, "ends past"),
        (0, 7, gib, 512, 22, "ends past"),
        (0, 3, 512, 0, 22, "flush with offset 512 and length 0: both must be 0"),
        (2, 0, 0, 512, 22, "read does not take the flags 0x2"),
        (4, 1, 0, 512, 22, "write does not take the flags 0x4"),
        (8, 5, 0, 512, 22, "cache does not take the flags 0x8"),
        (0x8000, 4, 0, 512, 22, "trim does not take the flags 0x8000"),
        (0, 8, 0, 512, 22, "unknown command 8"),
        (0, 0, 0, 33 << 20, 75, "read of 34603008 bytes is longer than the maximum payload"),
        (0, 1, 0, 33 << 20, 22, "write of 34603008 bytes is longer than the maximum payload"),
        (0, 0, 100, 512, 22, "read of 512 bytes at offset 100 is not aligned to the minimum"),
        (0, 1, 0, 100, 22, "write of 100 bytes at offset 0 is not aligned to the minimum"),
        (0, 7, 0, 0, 22, "block-status of 0 bytes"),
    ];
    for (flags, command, offset, length, error, message) in cases {
        let mut session = transmitting(ReplyStyle::Structured);
        let mut input = compact(flags, command, offset, length);
        if command == 1 {
            input.resize(28 + length as usize, 0xaa);
        }
        let mut output = Vec::new();
        let advance = session.advance(&input, &mut output).unwrap();
        assert_eq!(advance.consumed, 28);
        let refused = matches!(advance.event, ServerEvent::Refused { cookie, code }
            if cookie == TO.cookie && code.to_wire() == error);
        assert!(refused, "{advance:?} for {message}");
        let (code, text) = error_of(ReplyStyle::Structured, &output);
        assert_eq!(code, error);
        assert!(text.contains(message), "{text:?} lacks {message:?}");
        input.extend(compact(0, 3, 0, 0));
        let (event, _) = feed(&mut session, &input[28..]).unwrap();
        assert_eq!(event, request(Command::Flush, false, 0, 0), "after {message}");
    }
}

#[test]
fn features_not_offered_are_refused() {
    let plain = Export { features: TransmissionFlags::NONE, contexts: vec![], ..export("vol") };
    for (flags, command) in [(0, 3), (0, 4), (0, 5), (0, 6), (1, 1), (4, 0), (16, 6), (0, 7)] {
        let (mut session, _) = session(vec![plain.clone()], TlsMode::Off);
        feed(&mut session, &[0, 0, 0, 3]).unwrap();
        feed(&mut session, &option(7, &go_data("vol", &[]))).unwrap();
        let length = if command == 3 { 0 } else { 512 };
        let mut output = Vec::new();
        let input = compact(flags, command, 0, length);
        let event = session.advance(&input, &mut output).unwrap().event;
        let refused = ServerEvent::Refused { cookie: TO.cookie, code: ErrorCode::Invalid };
        assert_eq!(event, refused, "flags {flags} command {command}");
        assert_eq!(error_of(ReplyStyle::Simple, &output).0, 22);
    }
}

#[test]
fn a_read_only_export_refuses_writes() {
    let features = export("vol").features | TransmissionFlags::READ_ONLY;
    for command in [1, 4, 6] {
        let (mut session, _) = session(vec![Export { features, ..export("vol") }], TlsMode::Off);
        feed(&mut session, &[0, 0, 0, 3]).unwrap();
        feed(&mut session, &option(7, &go_data("vol", &[]))).unwrap();
        let event = session.advance(&compact(0, command, 0, 512), &mut Vec::new()).unwrap().event;
        let refused = ServerEvent::Refused { cookie: TO.cookie, code: ErrorCode::NotPermitted };
        assert_eq!(event, refused);
    }
}

#[test]
fn requests_for_nothing_succeed() {
    let mut session = transmitting(ReplyStyle::Structured);
    let (event, output) = feed(&mut session, &compact(0, 0, 0, 0)).unwrap();
    assert_eq!(event, ServerEvent::Reply);
    assert_eq!(output, bytes("668e33ef 0001 0000 0102030405060708 00000000"));
    let (event, output) = feed(&mut session, &compact(0, 1, 1 << 30, 0)).unwrap();
    assert_eq!(event, ServerEvent::Reply);
    assert_eq!(output, bytes("67446698 00000000 0102030405060708"));
}

#[test]
fn payloads_too_long_to_skip_end_the_session() {
    let mut session = transmitting(ReplyStyle::Simple);
    let end = feed(&mut session, &compact(0, 1, 0, 65 << 20)).unwrap_err();
    let expected = SessionEnd::PayloadTooLong { command: "write", length: 65 << 20 };
    assert_eq!(end, expected);
    let mut session = transmitting(ReplyStyle::Extended);
    assert!(feed(&mut session, &extended(0x20, 0, 0, u64::MAX)).is_err());
}

#[test]
fn wrong_magic_ends_the_session() {
    let mut session = transmitting(ReplyStyle::Simple);
    let end = feed(&mut session, &extended(0, 0, 0, 512)[..28]).unwrap_err();
    assert_eq!(end.to_string(), "request begins with 0x21e41c71 instead of 0x25609513");
    let mut session = transmitting(ReplyStyle::Extended);
    assert!(feed(&mut session, &[compact(0, 0, 0, 512), vec![0; 4]].concat()).is_err());
    let mut session = greeted(TlsMode::Off);
    assert!(feed(&mut session, b"IHAVEOPx\0\0\0\0\0\0\0\0").is_err());
}

#[test]
fn extended_payload_rules() {
    // A write must announce its payload. Nothing else may.
    for (flags, command, payload) in [(0, 1, 0), (0x20, 0, 512), (0x20, 4, 512), (0x20, 77, 512)] {
        let mut session = transmitting(ReplyStyle::Extended);
        let mut input = extended(flags, command, 0, 512);
        input.resize(32 + payload, 0);
        let mut output = Vec::new();
        let event = session.advance(&input, &mut output).unwrap().event;
        assert_eq!(event, ServerEvent::Refused { cookie: TO.cookie, code: ErrorCode::Invalid });
        input.extend(extended(0, 3, 0, 0));
        let (event, _) = feed(&mut session, &input[32..]).unwrap();
        assert_eq!(event, request(Command::Flush, false, 0, 0));
    }
}

#[test]
fn block_status_payload_chooses_contexts() {
    let ask = |ids: &[u32]| {
        let mut payload = 4096_u64.to_be_bytes().to_vec();
        ids.iter().for_each(|id| payload.extend(id.to_be_bytes()));
        [extended(0x20, 7, 512, payload.len() as u64), payload].concat()
    };
    let mut session = transmitting(ReplyStyle::Extended);
    let ServerEvent::Request(status) = feed(&mut session, &ask(&[2])).unwrap().0 else {
        panic!("a valid request");
    };
    assert_eq!((status.offset, status.length), (512, 4096));
    let Command::BlockStatus { one: false, contexts } = status.command else { panic!() };
    assert_eq!(contexts.indices().collect::<Vec<_>>(), [1]);
    for ids in [&[][..], &[3], &[1, 1], &[0], &[1; 40]] {
        let mut session = transmitting(ReplyStyle::Extended);
        let input = [ask(ids), extended(0, 3, 0, 0)].concat();
        let mut output = Vec::new();
        let event = session.advance(&input, &mut output).unwrap();
        let refused = ServerEvent::Refused { cookie: TO.cookie, code: ErrorCode::Invalid };
        assert_eq!(event.event, refused, "{ids:?}");
        let (event, _) = feed(&mut session, &input[event.consumed..]).unwrap();
        assert_eq!(event, request(Command::Flush, false, 0, 0), "{ids:?}");
    }
}

#[test]
fn replies_byte_for_byte() {
    use ReplyStyle::{Extended, Simple, Structured};
    let data = |style: ReplyStyle| style.read_data(TO, 0x2000, 0x200, true).to_vec();
    assert_eq!(data(Simple), bytes("67446698 00000000 0102030405060708"));
    assert_eq!(
        data(Structured),
        bytes("668e33ef 0001 0001 0102030405060708 00000208 0000000000002000")
    );
    assert_eq!(
        data(Extended),
        bytes(
            "6e8a278c 0001 0001 0102030405060708 0000000000001000 0000000000000208
             0000000000002000"
        )
    );
    let hole =
        |style: ReplyStyle| style.read_hole(TO, 0x2000, 0x200, false).map(|packet| packet.to_vec());
    assert_eq!(hole(Simple), None);
    assert_eq!(
        hole(Structured).unwrap(),
        bytes("668e33ef 0000 0002 0102030405060708 0000000c 0000000000002000 00000200")
    );
    assert_eq!(
        hole(Extended).unwrap(),
        bytes(
            "6e8a278c 0000 0002 0102030405060708 0000000000001000 000000000000000c
             0000000000002000 00000200"
        )
    );
    assert_eq!(Simple.success(TO).to_vec(), bytes("67446698 00000000 0102030405060708"));
    assert_eq!(Structured.success(TO).to_vec(), bytes("67446698 00000000 0102030405060708"));
    assert_eq!(
        Extended.success(TO).to_vec(),
        bytes("6e8a278c 0001 0000 0102030405060708 0000000000001000 0000000000000000")
    );
    assert_eq!(Structured.end(TO).to_vec(), bytes("668e33ef 0001 0000 0102030405060708 00000000"));
}

#[test]
fn errors_byte_for_byte() {
    use ReplyStyle::{Extended, Simple, Structured};
    let error = |style: ReplyStyle| {
        let mut output = Vec::new();
        style.error(TO, ErrorCode::Io, "bad", &mut output);
        output
    };
    assert_eq!(error(Simple), bytes("67446698 00000005 0102030405060708"));
    assert_eq!(
        error(Structured),
        bytes("668e33ef 0001 8001 0102030405060708 00000009 00000005 0003 626164")
    );
    assert_eq!(
        error(Extended),
        bytes(
            "6e8a278c 0001 8001 0102030405060708 0000000000001000 0000000000000009
             00000005 0003 626164"
        )
    );
    let mut output = Vec::new();
    Structured.error_at(TO, ErrorCode::Io, "bad", 0x2000, &mut output);
    assert_eq!(
        output,
        bytes("668e33ef 0001 8002 0102030405060708 00000011 00000005 0003 626164 0000000000002000")
    );
    let mut output = Vec::new();
    Structured.error(TO, ErrorCode::Io, &"ä".repeat(5000), &mut output);
    assert_eq!(output.len(), 20 + 6 + 4096);
}

#[test]
fn block_status_byte_for_byte() {
    let extents =
        [StatusExtent { length: 512, status: 3 }, StatusExtent { length: 1024, status: 0 }];
    let mut output = Vec::new();
    ReplyStyle::Structured.block_status(TO, 1, &extents, true, &mut output);
    assert_eq!(
        output,
        bytes(
            "668e33ef 0001 0005 0102030405060708 00000014 00000002
             00000200 00000003 00000400 00000000"
        )
    );
    output.clear();
    ReplyStyle::Extended.block_status(TO, 0, &extents, false, &mut output);
    assert_eq!(
        output,
        bytes(
            "6e8a278c 0000 0006 0102030405060708 0000000000001000 0000000000000028
             00000001 00000002
             0000000000000200 0000000000000003 0000000000000400 0000000000000000"
        )
    );
    // An extent longer than 32 bits is cut, and the extents after it are left out.
    output.clear();
    let long = [StatusExtent { length: 1 << 33, status: 2 }, extents[0]];
    ReplyStyle::Structured.block_status(TO, 0, &long, true, &mut output);
    assert_eq!(
        output,
        bytes("668e33ef 0001 0005 0102030405060708 0000000c 00000001 ffff0000 00000002")
    );
}

#[test]
fn configurations_no_server_can_offer() {
    use hemi_nbd::server::ServerConfig;
    let refused = |exports| ServerConfig::new(exports, TlsMode::Off).unwrap_err().to_string();
    assert_eq!(refused(vec![]), "a server offers 1 to 1024 exports, not 0");
    assert!(refused(vec![export("a"), export("a")]).contains("two exports are named \"a\""));
    let long = Export { name: "n".repeat(4097), ..export("") };
    assert!(refused(vec![long]).contains("must be at most 4096 bytes"));
    let block_size = BlockSize { minimum: 513, ..BlockSize::UNSPECIFIED };
    let odd = refused(vec![Export { block_size, ..export("a") }]);
    assert!(odd.contains("minimum block size 513 is not a power of two"), "{odd}");
    let contexts = vec!["nocolon".into()];
    assert!(refused(vec![Export { contexts, ..export("a") }]).contains("namespace:leaf"));
    let huge = Export { size: u64::MAX, ..export("a") };
    assert!(refused(vec![huge]).contains("2^63 - 1"));
}

#[test]
fn the_kernel_asks_without_a_handshake() {
    let config = ServerConfig::new(vec![export("vol")], TlsMode::Off).unwrap();
    let mut session = ServerSession::past_handshake(Arc::new(config));
    assert!(session.in_transmission());
    assert_eq!(session.style(), ReplyStyle::Simple);
    // This is a write with FUA, as announced.
    let head = bytes("25609513 0001 0001 0102030405060708 0000000000001000 00000200");
    let (event, output) = feed(&mut session, &head).unwrap();
    let ServerEvent::Request(request) = event else { panic!("{event:?}") };
    assert_eq!((request.offset, request.length, request.fua), (0x1000, 0x200, true));
    assert!(output.is_empty());
    session.payload_taken(0x200);
    // This is beyond the end. The error's reply is a simple one.
    let head = bytes("25609513 0000 0000 0102030405060708 0000000040000000 00001000");
    let (_, output) = feed(&mut session, &head).unwrap();
    assert_eq!(output, bytes("67446698 00000016 0102030405060708"));
}
