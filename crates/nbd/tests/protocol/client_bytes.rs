//! Tests of the client against bytes written out by hand: the bytes it sends, and its handling
//! of answers that no server should give.

use crate::common::bytes;
use hemi_nbd::client::{
    ClientConfig, ClientError, ClientEvent, ClientSession, Command, HandshakeError, ReplyError,
    Request,
};
use hemi_nbd::codec::{ErrorCode, ReplyStyle, TransmissionFlags};

const GREETING: &str = "4e42444d41474943 49484156454f5054 0003";

fn client(style: ReplyStyle, contexts: &[&str]) -> ClientSession {
    let mut config = ClientConfig::new("vol");
    config.style = style;
    config.contexts = contexts.iter().map(|context| (*context).into()).collect();
    config.in_flight = 4;
    ClientSession::new(config)
}

/// Feeds all of `input`. Returns the events and the bytes that the client sends.
fn feed(
    client: &mut ClientSession,
    input: &[u8],
) -> Result<(Vec<ClientEvent>, Vec<u8>), ClientError> {
    let (mut events, mut output, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let advance = client.advance(&input[at..], &mut output)?;
        at += advance.consumed;
        match advance.event {
            ClientEvent::NeedMore => return Ok((events, output)),
            event => events.push(event),
        }
        if let ClientEvent::Data { length, .. } = advance.event {
            let taken = (length as usize).min(input.len() - at);
            client.payload_taken(taken as u32);
            at += taken;
        }
    }
}

fn send(client: &mut ClientSession, input: &str) -> Vec<u8> {
    feed(client, &bytes(input)).unwrap().1
}

const GO: &str = "49484156454f5054 00000007 0000000f 00000003 766f6c 0003 0001 0002 0003";
const SIZE: &str = "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0dfd";
const ACK: &str = "0003e889045565a9 00000007 00000001 00000000";

#[test]
fn the_whole_handshake_byte_for_byte() {
    let mut client = client(ReplyStyle::Extended, &["base:allocation"]);
    assert_eq!(send(&mut client, GREETING), bytes("00000003 49484156454f5054 0000000b 00000000"));
    // The server refuses extended headers, so structured replies are next.
    let sent = send(&mut client, "0003e889045565a9 0000000b 80000001 00000003 6e6f21");
    assert_eq!(sent, bytes("49484156454f5054 00000008 00000000"));
    let sent = send(&mut client, "0003e889045565a9 00000008 00000001 00000000");
    let query = "49484156454f5054 0000000a 0000001e 00000003 766f6c 00000001
                 0000000f 626173653a616c6c6f636174696f6e";
    assert_eq!(sent, bytes(query));
    let sent = send(
        &mut client,
        "0003e889045565a9 0000000a 00000004 00000013 00000007 626173653a616c6c6f636174696f6e
         0003e889045565a9 0000000a 00000001 00000000",
    );
    assert_eq!(sent, bytes(GO));
    let answer = [
        SIZE,
        "0003e889045565a9 00000007 00000003 0000000e 0003 00000200 00001000 02000000",
        "0003e889045565a9 00000007 00000003 00000006 7777 12345678",
        ACK,
    ];
    let (events, sent) = feed(&mut client, &bytes(&answer.concat())).unwrap();
    assert_eq!((events, sent), (vec![ClientEvent::Ready], vec![]));
    let export = client.export();
    assert_eq!((export.size, export.flags.0), (1 << 20, 0x0dfd));
    assert_eq!((export.block_size.minimum, export.block_size.maximum_payload), (512, 32 << 20));
    assert_eq!(export.contexts, [(7, "base:allocation".into())]);
    assert_eq!(client.style(), ReplyStyle::Structured);
}

#[test]
fn old_servers_are_met_with_export_name() {
    // The server knows neither structured replies nor GO.
    let mut old = client(ReplyStyle::Structured, &[]);
    send(&mut old, "4e42444d41474943 49484156454f5054 0001");
    let sent = send(&mut old, "0003e889045565a9 00000008 80000001 00000000");
    assert_eq!(sent, bytes(GO));
    let sent = send(&mut old, "0003e889045565a9 00000007 80000001 00000000");
    assert_eq!(sent, bytes("49484156454f5054 00000001 00000003 766f6c"));
    let mut answer = bytes("0000000000100000 0001");
    answer.resize(10 + 123, 0);
    assert_eq!(feed(&mut old, &answer).unwrap().0, []);
    assert_eq!(feed(&mut old, &[0]).unwrap().0, [ClientEvent::Ready]);
    // The server does not even answer options.
    let mut older = client(ReplyStyle::Structured, &[]);
    let sent = send(&mut older, "4e42444d41474943 49484156454f5054 0002");
    assert_eq!(sent, bytes("00000002 49484156454f5054 00000001 00000003 766f6c"));
    let ready = feed(&mut older, &bytes("0000000000100000 0001")).unwrap().0;
    assert_eq!(ready, [ClientEvent::Ready]);
}

/// Returns the error that ends a handshake, and the last message of the client.
fn handshake_error(config: ClientConfig, input: &str) -> (HandshakeError, Vec<u8>) {
    let mut client = ClientSession::new(config);
    let (mut output, mut input) = (Vec::new(), &bytes(input)[..]);
    loop {
        output.clear();
        match client.advance(input, &mut output) {
            Ok(advance) => {
                assert_ne!(advance.event, ClientEvent::NeedMore, "no error came");
                input = &input[advance.consumed..];
            }
            Err(ClientError::Handshake(error)) => {
                assert_eq!(client.advance(&[], &mut output), Err(ClientError::Failed));
                return (error, output);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn handshake_failures_say_what_to_do() {
    let simple = || ClientConfig { style: ReplyStyle::Simple, ..ClientConfig::new("vol") };
    let tls = || ClientConfig { tls: true, ..simple() };
    let abort = bytes("49484156454f5054 00000002 00000000");
    let go_error =
        |kind: &str| format!("{GREETING} 0003e889045565a9 00000007 {kind} 00000002 6e6f");
    let cases = [
        (
            simple(),
            "5353482d322e3020 49484156454f5054 0003".into(),
            "this is not an NBD server",
            false,
        ),
        (simple(), "4e42444d41474943 0000420281861253 0003".into(), "oldstyle", false),
        (tls(), "4e42444d41474943 49484156454f5054 0000".into(), "newstyle without options", false),
        (
            tls(),
            format!("{GREETING} 0003e889045565a9 00000005 80000002 00000002 6e6f"),
            "TLS is wanted but the server refuses it: no",
            true,
        ),
        (simple(), go_error("80000005"), "the server requires TLS: use nbds://", true),
        (simple(), go_error("80000006"), "no export named \"vol\": no", true),
        (simple(), go_error("80000002"), "refuses GO: ERR_POLICY: no", true),
        (simple(), go_error("80000007"), "refuses GO: ERR_SHUTDOWN: no", true),
        (simple(), go_error("80001234"), "refuses GO: an unknown error: no", true),
        (simple(), go_error("00000004"), "answers GO with META_CONTEXT of 2 bytes", false),
        (
            simple(),
            format!("{GREETING} 0003e889045565aa 00000007 00000001 00000000"),
            "begins with",
            false,
        ),
        (
            simple(),
            format!("{GREETING} 0003e889045565a9 00000006 00000001 00000000"),
            "answers option 6 while GO",
            false,
        ),
        (
            simple(),
            format!("{GREETING} 0003e889045565a9 00000007 00000003 00010001"),
            "option reply of 65537 bytes",
            false,
        ),
        (simple(), format!("{GREETING} {ACK}"), "without stating its size", false),
        (
            simple(),
            format!(
                "{GREETING} 0003e889045565a9 00000007 00000003 0000000c 0000 ffffffffffffffff 0001"
            ),
            "more than 2^63 - 1",
            false,
        ),
        (
            simple(),
            format!(
                "{GREETING} 0003e889045565a9 00000007 00000003 0000000b 0000 0000000000100000 00"
            ),
            "answers GO with INFO of 11 bytes",
            false,
        ),
        (
            simple(),
            format!(
                "{GREETING} 0003e889045565a9 00000007 00000003 0000000e 0003 00000003 00001000 02000000"
            ),
            "minimum block size 3 is not a power of two",
            false,
        ),
    ];
    for (config, input, part, aborts) in cases {
        let (error, sent) = handshake_error(config, &input);
        assert!(error.to_string().contains(part), "{error} lacks {part:?}");
        assert_eq!(sent.ends_with(&abort), aborts, "{part}");
    }
    let endless =
        format!("{GREETING} {}", "0003e889045565a9 00000007 00000003 00000002 7777 ".repeat(2000));
    let (error, _) = handshake_error(simple(), &endless);
    assert_eq!(error, HandshakeError::TooManyReplies { option: "GO" });
}

#[test]
fn tls_comes_before_everything_else() {
    let mut client = ClientSession::new(ClientConfig { tls: true, ..ClientConfig::new("vol") });
    let sent = send(&mut client, GREETING);
    assert_eq!(sent, bytes("00000003 49484156454f5054 00000005 00000000"));
    let ack = bytes("0003e889045565a9 00000005 00000001 00000000");
    let mut output = Vec::new();
    let advance = client.advance(&ack, &mut output).unwrap();
    assert_eq!((advance.consumed, advance.event), (20, ClientEvent::StartTls));
    client.tls_established(&mut output);
    assert_eq!(output, bytes("49484156454f5054 0000000b 00000000"));
}

/// Returns a client in transmission over 1 MiB with every feature.
fn ready(style: ReplyStyle) -> ClientSession {
    let mut client = client(style, &["base:allocation"]);
    let framing = match style {
        ReplyStyle::Simple => "",
        ReplyStyle::Structured => "0003e889045565a9 00000008 00000001 00000000",
        ReplyStyle::Extended => "0003e889045565a9 0000000b 00000001 00000000",
    };
    let context = match style {
        ReplyStyle::Simple => "",
        _ => {
            "0003e889045565a9 0000000a 00000004 00000013 00000007 626173653a616c6c6f636174696f6e
             0003e889045565a9 0000000a 00000001 00000000"
        }
    };
    send(&mut client, &[GREETING, framing, context, SIZE, ACK].concat());
    assert!(client.is_ready());
    client
}

const READ: Command = Command::Read { unfragmented: false };

fn request(command: Command) -> Request {
    let (offset, length) = if command == Command::Flush { (0, 0) } else { (0x2000, 0x400) };
    Request { command, fua: false, offset, length }
}

#[test]
fn requests_byte_for_byte() {
    let fast = Command::WriteZeroes { no_hole: true, fast: true };
    let cases = [
        (READ, false, "0000 0000", "0000"),
        (Command::Read { unfragmented: true }, false, "0004 0000", "0004"),
        (Command::Write, true, "0001 0001", "0021"),
        (Command::Flush, false, "0000 0003", "0000"),
        (Command::Trim, false, "0000 0004", "0000"),
        (Command::Cache, false, "0000 0005", "0000"),
        (fast, true, "0013 0006", "0013"),
        (Command::BlockStatus { one: true }, false, "0008 0007", "0008"),
    ];
    for (command, fua, compact, extended_flags) in cases {
        let asked = Request { fua, ..request(command) };
        let place = match command {
            Command::Flush => ("0000000000000000", "00000000"),
            _ => ("0000000000002000", "00000400"),
        };
        let packet = ready(ReplyStyle::Structured).submit(5, asked).unwrap();
        let expected = format!("25609513 {compact} 0000000100000000 {} {}", place.0, place.1);
        assert_eq!(packet.to_vec(), bytes(&expected), "{command:?}");
        let packet = ready(ReplyStyle::Extended).submit(5, asked).unwrap();
        let expected = format!(
            "21e41c71 {extended_flags} {} 0000000100000000 {} 00000000{}",
            &compact[5..],
            place.0,
            place.1
        );
        assert_eq!(packet.to_vec(), bytes(&expected), "{command:?}");
    }
    let packet = ready(ReplyStyle::Simple).disconnect();
    assert_eq!(
        packet.to_vec(),
        bytes("25609513 0000 0002 0000000000000000 0000000000000000 00000000")
    );
    let packet = ready(ReplyStyle::Extended).disconnect();
    assert_eq!(packet.len(), 32);
    // DF is meaningless without chunks.
    let unfragmented = request(Command::Read { unfragmented: true });
    let packet = ready(ReplyStyle::Simple).submit(0, unfragmented).unwrap();
    assert_eq!(packet[4..6], [0, 0]);
}

/// Returns the events of a reply to one request. `C` stands for the request's cookie.
fn answer(style: ReplyStyle, command: Command, reply: &str) -> Result<Vec<ClientEvent>, String> {
    let mut client = ready(style);
    client.submit(5, request(command)).unwrap();
    match feed(&mut client, &bytes(&reply.replace('C', "0000000100000000"))) {
        Ok((events, _)) => Ok(events),
        Err(ClientError::Reply(error)) => Err(error.to_string()),
        Err(other) => panic!("{other}"),
    }
}

fn done(result: Result<(), ErrorCode>) -> ClientEvent {
    ClientEvent::Done { token: 5, result }
}

#[test]
fn sound_replies() {
    use ReplyStyle::{Extended, Simple, Structured};
    let status = Command::BlockStatus { one: false };
    let data = "00".repeat(0x400);
    let extent = |length, status| ClientEvent::Extent { token: 5, context: 7, length, status };
    let whole = ClientEvent::Data { token: 5, at: 0, length: 0x400 };
    let cases = [
        (Simple, READ, format!("67446698 00000000 C {data}"), vec![whole, done(Ok(()))]),
        (Simple, READ, "67446698 00000005 C".into(), vec![done(Err(ErrorCode::Io))]),
        (Simple, Command::Flush, "67446698 00000000 C".into(), vec![done(Ok(()))]),
        (Structured, Command::Flush, "67446698 00000000 C".into(), vec![done(Ok(()))]),
        (Structured, Command::Write, "668e33ef 0001 0000 C 00000000".into(), vec![done(Ok(()))]),
        // A hole in half of the request comes before data of the other half.
        (
            Structured,
            READ,
            format!(
                "668e33ef 0000 0002 C 0000000c 0000000000002200 00000200
                 668e33ef 0001 0001 C 00000208 0000000000002000 {}",
                &data[..0x400]
            ),
            vec![
                ClientEvent::Hole { token: 5, at: 0x200, length: 0x200 },
                ClientEvent::Data { token: 5, at: 0, length: 0x200 },
                done(Ok(())),
            ],
        ),
        // An unknown error value counts as EINVAL, and fields after the message are skipped.
        (
            Structured,
            READ,
            "668e33ef 0001 8077 C 0000000a 00001234 0002 6869 ffff".into(),
            vec![done(Err(ErrorCode::Invalid))],
        ),
        (
            Structured,
            READ,
            "668e33ef 0000 8002 C 0000000e 00000005 0000 0000000000002000
             668e33ef 0000 8002 C 0000000e 0000001c 0000 0000000000002200
             668e33ef 0001 0000 C 00000000"
                .into(),
            vec![done(Err(ErrorCode::Io))],
        ),
        (
            Structured,
            status,
            "668e33ef 0001 0005 C 00000014 00000007 00000200 00000003 00001000 00000000".into(),
            vec![extent(0x200, 3), extent(0x1000, 0), done(Ok(()))],
        ),
        (
            Extended,
            status,
            "6e8a278c 0001 0006 C 0000000000002000 0000000000000018 00000007 00000001
             0000000200000000 0000000000000003"
                .into(),
            vec![extent(1 << 33, 3), done(Ok(()))],
        ),
        (
            Extended,
            Command::Trim,
            "6e8a278c 0001 0000 C 0000000000002000 0000000000000000".into(),
            vec![done(Ok(()))],
        ),
    ];
    for (style, command, reply, events) in cases {
        assert_eq!(answer(style, command, &reply), Ok(events), "{style:?} {command:?} {reply}");
    }
}

#[test]
fn replies_that_cannot_be() {
    use ReplyStyle::{Extended, Simple, Structured};
    let status = Command::BlockStatus { one: false };
    let one = Command::BlockStatus { one: true };
    let half = format!("668e33ef 0000 0001 C 00000208 0000000000002000 {}", "00".repeat(0x200));
    let scattered: String = (0..9)
        .map(|i| format!("668e33ef 0000 0002 C 0000000c 0000000000002{:03x} 00000001 ", i * 2))
        .collect();
    let cases = [
        (Simple, READ, "668e33ef 0001 0001 C".into(), "a reply begins with 0x668e33ef"),
        (Structured, READ, "6e8a278c 0001 0001 C".into(), "a reply begins with 0x6e8a278c"),
        (Extended, READ, format!("67446698 00000000 C {}", "00".repeat(16)), "a reply begins with"),
        (Simple, READ, "67446698 00000000 0000000200000000".into(), "not in flight"),
        (Simple, READ, "67446698 00000000 0000000100000009".into(), "not in flight"),
        (
            Structured,
            READ,
            "67446698 00000000 C".into(),
            "a read is answered with chunk type 0x0000",
        ),
        (Structured, status, "67446698 00000000 C".into(), "a block-status is answered with"),
        (
            Structured,
            Command::Write,
            "668e33ef 0001 0001 C 00000010".into(),
            "a write is answered with",
        ),
        (Structured, READ, "668e33ef 0001 0005 C 0000000c".into(), "a read is answered with"),
        (Structured, READ, "668e33ef 0001 0004 C 0000000c".into(), "chunk type 0x0004"),
        (Structured, status, "668e33ef 0001 0006 C 00000018".into(), "chunk type 0x0006"),
        (Structured, READ, "668e33ef 0001 0000 C 00000004".into(), "type 0x0000 has 4 bytes"),
        (Structured, READ, "668e33ef 0000 0000 C 00000000".into(), "type 0x0000 has 0 bytes"),
        (Structured, READ, "668e33ef 0001 0001 C 00000008".into(), "type 0x0001 has 8 bytes"),
        (Structured, READ, "668e33ef 0001 0002 C 0000000d".into(), "type 0x0002 has 13 bytes"),
        (Structured, READ, "668e33ef 0001 8001 C 00000005".into(), "type 0x8001 has 5 bytes"),
        (Structured, READ, "668e33ef 0001 8002 C 0000000d".into(), "type 0x8002 has 13 bytes"),
        (Structured, READ, "668e33ef 0001 8001 C 00100000".into(), "type 0x8001 has 1048576 bytes"),
        (Structured, READ, "668e33ef 0001 8001 C 00000007 00000005 0002".into(), "has 7 bytes"),
        (Structured, READ, "668e33ef 0001 8002 C 0000000e 00000005 0001".into(), "has 14 bytes"),
        (Structured, READ, "668e33ef 0001 8001 C 00000006 00000000 0000".into(), "error value 0"),
        (
            Structured,
            READ,
            "668e33ef 0001 8002 C 0000000e 00000005 0000 0000000000002401".into(),
            "outside the request",
        ),
        (
            Structured,
            READ,
            "668e33ef 0001 0001 C 00000209 0000000000002200".into(),
            "covers 513 bytes at 8704, outside the request for 1024 bytes at 8192",
        ),
        (
            Structured,
            READ,
            "668e33ef 0001 0001 C ffffffff ffffffffffffff00".into(),
            "outside the request",
        ),
        (
            Structured,
            READ,
            "668e33ef 0001 0002 C 0000000c 0000000000001fff 00000001".into(),
            "outside the request",
        ),
        (
            Structured,
            READ,
            "668e33ef 0001 0002 C 0000000c 0000000000002000 00000000".into(),
            "type 0x0002 has 0 bytes",
        ),
        (
            Structured,
            READ,
            format!("{half} 668e33ef 0001 0002 C 0000000c 00000000000021ff 00000001"),
            "two chunks of one reply cover the byte at 8703",
        ),
        (
            Structured,
            READ,
            format!("{half} 668e33ef 0001 0000 C 00000000"),
            "a read of 1024 bytes ends well after 512 bytes",
        ),
        (Structured, READ, scattered, "more than 8 separate pieces"),
        (
            Structured,
            status,
            "668e33ef 0001 0005 C 0000000c 00000008 00000200 00000003".into(),
            "meta context 8 wrongly",
        ),
        (
            Structured,
            status,
            "668e33ef 0000 0005 C 0000000c 00000007 00000200 00000003
             668e33ef 0001 0005 C 0000000c 00000007 00000200 00000003"
                .into(),
            "meta context 7 wrongly",
        ),
        (Structured, status, "668e33ef 0001 0000 C 00000000".into(), "meta context 0 wrongly"),
        (Structured, status, "668e33ef 0001 0005 C 00000004".into(), "type 0x0005 has 4 bytes"),
        (Structured, status, "668e33ef 0001 0005 C 00000010".into(), "type 0x0005 has 16 bytes"),
        (
            Structured,
            status,
            "668e33ef 0001 0005 C 0000000c 00000007 00000000 00000003".into(),
            "an impossible extent of 0 bytes",
        ),
        (
            Structured,
            one,
            "668e33ef 0001 0005 C 00000014 00000007 00000200 00000003 00000200 00000003".into(),
            "an impossible extent of 512 bytes",
        ),
        (
            Structured,
            one,
            "668e33ef 0001 0005 C 0000000c 00000007 00000401 00000003".into(),
            "an impossible extent of 1025 bytes",
        ),
        (
            Extended,
            status,
            "6e8a278c 0001 0006 C 0000000000002000 0000000000000018 00000007 00000002".into(),
            "type 0x0006",
        ),
        (
            Extended,
            READ,
            "6e8a278c 0001 0001 C 0000000000002001 0000000000000408".into(),
            "repeats offset 8193, but the request's is 8192",
        ),
    ];
    for (style, command, reply, part) in cases {
        let error = answer(style, command, &reply).expect_err(part);
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_late_reply_is_not_taken_for_the_next_request() {
    let mut client = ready(ReplyStyle::Simple);
    client.submit(1, request(Command::Flush)).unwrap();
    feed(&mut client, &bytes("67446698 00000000 0000000100000000")).unwrap();
    let packet = client.submit(2, request(Command::Flush)).unwrap();
    assert_eq!(packet[8..16], bytes("0000000200000000"));
    let error = feed(&mut client, &bytes("67446698 00000000 0000000100000000")).unwrap_err();
    assert_eq!(error, ClientError::Reply(ReplyError::Cookie { cookie: 1 << 32 }));
}

#[test]
fn an_error_message_stays_with_its_request() {
    let mut client = ready(ReplyStyle::Structured);
    client.submit(1, request(READ)).unwrap();
    client.submit(2, request(READ)).unwrap();
    let first = "668e33ef 0000 8001 0000000100000000 00000007 00000005 0001 61";
    let second = "668e33ef 0001 8001 0000000100000001 00000007 0000001c 0001 62";
    let (events, _) = feed(&mut client, &bytes(&[first, second].concat())).unwrap();
    assert_eq!(events, [ClientEvent::Done { token: 2, result: Err(ErrorCode::NoSpace) }]);
    assert_eq!(client.error_message(), "b");
    let (events, _) =
        feed(&mut client, &bytes("668e33ef 0001 0000 0000000100000000 00000000")).unwrap();
    assert_eq!(events, [ClientEvent::Done { token: 1, result: Err(ErrorCode::Io) }]);
    assert_eq!(client.error_message(), "", "not the other request's");
}

#[test]
fn a_read_only_export_takes_no_writes() {
    let mut client = client(ReplyStyle::Simple, &[]);
    let flags = TransmissionFlags::HAS_FLAGS | TransmissionFlags::READ_ONLY;
    let size = format!(
        "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 {:04x}",
        flags.0
    );
    send(&mut client, &[GREETING, &size, ACK].concat());
    let refused = client.submit(0, request(Command::Write)).unwrap_err().to_string();
    assert_eq!(refused, "the NBD server does not offer writing: the export is read-only");
    let refused = client.submit(0, request(Command::Flush)).unwrap_err().to_string();
    assert_eq!(refused, "the NBD server does not offer flush");
    let fua = Request { fua: true, ..request(READ) };
    assert!(client.submit(0, fua).unwrap_err().to_string().contains("FUA"));
}
