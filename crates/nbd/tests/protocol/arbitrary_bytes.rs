//! Tests that no bytes make either end panic, use more input than it was given, or answer
//! without bound.

use crate::common::{export, memory, session};
use hemi_nbd::client::{ClientConfig, ClientEvent, ClientSession, Command, Request};
use hemi_nbd::codec::ReplyStyle;
use hemi_nbd::server::{ServerEvent, ServerSession, TlsMode};
use proptest::prelude::*;

/// Generates messages to a server that are nearly right, and plain noise.
fn client_message() -> impl Strategy<Value = Vec<u8>> {
    let option =
        (0_u32..13, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(option, data)| {
            let mut bytes = b"IHAVEOPT".to_vec();
            bytes.extend(option.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
            bytes
        });
    let go = prop::sample::select(vec![6_u8, 7, 9, 10]).prop_map(|option| {
        let mut bytes = b"IHAVEOPT\0\0\0".to_vec();
        bytes.push(option);
        bytes.extend([0, 0, 0, 9, 0, 0, 0, 3, b'v', b'o', b'l', 0, 0]);
        bytes
    });
    let compact = (0_u16..64, 0_u16..9, any::<u64>(), 0_u64..1 << 31, 0_u32..1 << 18).prop_map(
        |(flags, command, cookie, offset, length)| {
            crate::common::compact(flags, command, cookie, offset, length)
        },
    );
    let extended = (0_u16..64, 0_u16..9, any::<u64>(), 0_u64..1 << 31, 0_u64..1 << 18).prop_map(
        |(flags, command, cookie, offset, length)| {
            crate::common::extended(flags, command, cookie, offset, length)
        },
    );
    prop_oneof![
        option,
        go,
        compact,
        extended,
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(Just(0_u8), 0..600),
    ]
}

/// Feeds a server until it needs more or ends. Returns the number of bytes it sent.
fn drive_server(session: &mut ServerSession, mut input: &[u8]) -> usize {
    let mut output = Vec::new();
    loop {
        let Ok(advance) = session.advance(input, &mut output) else { return output.len() };
        assert!(advance.consumed <= input.len());
        input = &input[advance.consumed..];
        match advance.event {
            ServerEvent::NeedMore => {
                assert!(input.is_empty());
                return output.len();
            }
            ServerEvent::Payload { remaining } => {
                let taken = input.len().min(remaining as usize);
                if taken == 0 {
                    return output.len();
                }
                session.payload_taken(taken as u64);
                input = &input[taken..];
            }
            ServerEvent::StartTls => session.tls_established(),
            ServerEvent::Request(request) => {
                let inside = request.offset.checked_add(request.length);
                assert!(inside.is_some_and(|end| end <= session.export().size));
                assert_eq!((request.offset | request.length) % 512, 0);
            }
            ServerEvent::Abort | ServerEvent::Disconnect => return output.len(),
            ServerEvent::Reply | ServerEvent::Ready | ServerEvent::Refused { .. } => {}
        }
    }
}

/// Feeds a client until it needs more or fails.
fn drive_client(client: &mut ClientSession, mut input: &[u8]) {
    let mut output = Vec::new();
    loop {
        let Ok(advance) = client.advance(input, &mut output) else { return };
        assert!(advance.consumed <= input.len());
        input = &input[advance.consumed..];
        match advance.event {
            ClientEvent::NeedMore => {
                assert!(input.is_empty());
                return;
            }
            ClientEvent::Payload { remaining } => {
                let taken = input.len().min(remaining as usize);
                if taken == 0 {
                    return;
                }
                client.payload_taken(taken as u32);
                input = &input[taken..];
            }
            ClientEvent::Data { token, at, length } | ClientEvent::Hole { token, at, length } => {
                assert!(token < 3 && at + length <= 4096);
            }
            ClientEvent::StartTls => client.tls_established(&mut output),
            _ => {}
        }
    }
}

/// Returns a client in transmission with a read, a write and a block status in flight.
fn busy_client(style: ReplyStyle) -> ClientSession {
    let cuts = memory::Cuts::of(vec![usize::MAX]);
    let mut client = memory::Pair::new(style, false, cuts).client;
    let mut submit = |token, command| {
        let request = Request { command, fua: false, offset: 8192, length: 4096 };
        client.submit(token, request).map(|_| ())
    };
    submit(0, Command::Read { unfragmented: false }).unwrap();
    submit(1, Command::Write).unwrap();
    let status = submit(2, Command::BlockStatus { one: false });
    assert_eq!(status.is_ok(), style != ReplyStyle::Simple);
    client
}

/// Generates replies that are nearly right, and plain noise.
fn server_message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![0_u16, 1, 2, 5, 6, 0x8001, 0x8002, 3]);
    let cookie = (0_u64..3).prop_map(|index| 1 << 32 | index);
    let length = prop_oneof![Just(12_u32), Just(20), Just(4104), Just(0), 0_u32..64];
    let body = prop_oneof![
        Just(8192_u64.to_be_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::collection::vec(Just(0_u8), 0..4104),
    ];
    let chunk = (0_u16..2, kind, cookie.clone(), length, any::<bool>(), body).prop_map(
        |(flags, kind, cookie, length, extended, body)| {
            let magic = if extended { 0x6e8a_278c_u32 } else { 0x668e_33ef };
            let mut bytes = magic.to_be_bytes().to_vec();
            bytes.extend(flags.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend(cookie.to_be_bytes());
            if extended {
                bytes.extend(8192_u64.to_be_bytes());
                bytes.extend([0; 4]);
            }
            bytes.extend(length.to_be_bytes());
            bytes.extend(body);
            bytes
        },
    );
    let simple = (0_u32..2, cookie).prop_map(|(error, cookie)| {
        let mut bytes = 0x6744_6698_u32.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes
    });
    prop_oneof![chunk, simple, prop::collection::vec(any::<u8>(), 0..64)]
}

/// Generates handshake messages of a server that are nearly right.
fn handshake_message() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![1_u32, 2, 3, 4, 0x8000_0001, 0x8000_0006]);
    let option = prop::sample::select(vec![7_u32, 8, 10, 11]);
    let body = prop_oneof![
        Just([&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let reply = (option, kind, body).prop_map(|(option, kind, body)| {
        let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(body);
        bytes
    });
    prop_oneof![reply, prop::collection::vec(any::<u8>(), 0..64)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn server_from_the_start(
        messages in prop::collection::vec(client_message(), 0..12),
        tls in prop::sample::select(vec![TlsMode::Off, TlsMode::Allowed, TlsMode::Required]),
        style: Option<bool>,
    ) {
        let (mut session, _) = session(vec![export("vol")], tls);
        let mut input = vec![0, 0, 0, 3];
        if let Some(extended) = style {
            input.extend(b"IHAVEOPT\0\0\0");
            input.extend([if extended { 11 } else { 8 }, 0, 0, 0, 0]);
        }
        input.extend(messages.concat());
        let sent = drive_server(&mut session, &input);
        // The longest answer to the shortest message (LIST, refused requests) is well below
        // this.
        prop_assert!(sent <= 512 + 64 * input.len(), "{sent} bytes for {}", input.len());
    }

    #[test]
    fn client_handshake(messages in prop::collection::vec(handshake_message(), 0..12)) {
        let mut client = ClientSession::new(ClientConfig::new("vol"));
        let mut input = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
        input.extend(messages.concat());
        drive_client(&mut client, &input);
    }

    #[test]
    fn client_in_transmission(
        style in prop::sample::select(
            vec![ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended]
        ),
        messages in prop::collection::vec(server_message(), 0..12),
    ) {
        drive_client(&mut busy_client(style), &messages.concat());
    }
}
