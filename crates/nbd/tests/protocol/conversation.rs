//! Tests of client and server against each other: every command in every reply style, with the
//! stream cut at every position.

use crate::common::memory::{Cuts, Outcome, Pair};
use hemi_nbd::client::{Command, Request, SubmitError};
use hemi_nbd::codec::{ErrorCode, ReplyStyle, TransmissionFlags};
use hemi_nbd::server;
use proptest::prelude::*;

const STYLES: [ReplyStyle; 3] = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];

fn request(command: Command, offset: u64, length: u64) -> Request {
    Request { command, fua: false, offset, length }
}

const READ: Command = Command::Read { unfragmented: false };
const ZERO: Command = Command::WriteZeroes { no_hole: false, fast: false };

fn whole() -> Cuts {
    Cuts::of(vec![usize::MAX])
}

#[test]
fn the_handshake_agrees_on_everything() {
    for style in STYLES {
        for tls in [false, true] {
            for cut in [1, 2, 3, 7, 64, usize::MAX] {
                let pair = Pair::new(style, tls, Cuts::of(vec![cut]));
                assert_eq!(pair.client.style(), style);
                assert_eq!(pair.server.style(), style);
                let export = pair.client.export();
                assert_eq!(export.size, 1 << 20);
                assert_eq!(export.block_size, pair.server.export().block_size);
                assert!(export.block_size_stated);
                assert_eq!(export.name.as_deref(), Some("vol"));
                assert_eq!(export.description.as_deref(), Some("a test"));
                let has = |flag| export.flags.contains(flag);
                assert!(has(pair.server.export().features | TransmissionFlags::HAS_FLAGS));
                assert_eq!(has(TransmissionFlags::SEND_DF), style != ReplyStyle::Simple);
                let payload = TransmissionFlags::BLOCK_STATUS_PAYLOAD;
                assert_eq!(has(payload), style == ReplyStyle::Extended);
                let contexts: Vec<_> = match style {
                    ReplyStyle::Simple => vec![],
                    _ => vec![(1, "base:allocation".into()), (2, "hemi:copies".into())],
                };
                assert_eq!(export.contexts, contexts);
            }
        }
    }
}

/// Checks every command, whatever the style and the cuts.
fn every_command(pair: &mut Pair) {
    let data: Vec<u8> = (0..8192_u32).map(|i| (i * 7 + 1) as u8).collect();
    let style = pair.server.style();

    let fua = Request { fua: true, ..request(Command::Write, 4096, 8192) };
    let done = pair.run(&[(fua, &data), (request(Command::Flush, 0, 0), &[])]);
    assert!(done.iter().all(|outcome| outcome.result == Some(Ok(()))));
    assert!(pair.seen[0].fua && !pair.seen[1].fua);
    assert_eq!(&pair.device[4096..12288], &data);

    for sparse in [false, true] {
        pair.sparse = sparse;
        for unfragmented in [false, true] {
            let read = Command::Read { unfragmented };
            let done = pair.run(&[(request(read, 2048, 12288), &[])]);
            assert_eq!(done[0].result, Some(Ok(())));
            assert_eq!(done[0].data[2048..10240], data);
            assert_eq!(done[0].data[..2048], [0; 2048]);
            assert_eq!(done[0].data[10240..], [0; 2048]);
        }
    }

    let fast = Command::WriteZeroes { no_hole: true, fast: true };
    let done = pair.run(&[
        (request(ZERO, 4096, 512), &[]),
        (request(Command::Trim, 4608, 512), &[]),
        (request(Command::Cache, 0, 1 << 20), &[]),
        (request(fast, 8192, 512), &[]),
    ]);
    let results: Vec<_> = done.iter().map(|outcome| outcome.result.unwrap()).collect();
    assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(ErrorCode::NotSupported)]);
    assert_eq!(pair.device[4096..5120], [0; 1024]);
    let last = pair.seen.last().unwrap();
    assert_eq!(last.command, server::Command::WriteZeroes { no_hole: true, fast: true });

    let bad = (1 << 20) - 512;
    let done = pair
        .run(&[(request(READ, bad, 512), &[]), (request(Command::Write, bad, 512), &data[..512])]);
    let message = if style == ReplyStyle::Simple { "" } else { "bad sector" };
    for outcome in done {
        assert_eq!(outcome.result, Some(Err(ErrorCode::Io)));
        assert_eq!(outcome.message, message);
    }

    if style != ReplyStyle::Simple {
        let status = Command::BlockStatus { one: false };
        let one = Command::BlockStatus { one: true };
        let done = pair.run(&[(request(status, 0, 8192), &[]), (request(one, 0, 8192), &[])]);
        assert_eq!(done[0].extents, [(1, 4096, 3), (1, 4096, 0), (2, 4096, 3), (2, 4096, 1)]);
        assert_eq!(done[1].extents, [(1, 4096, 3), (2, 4096, 3)]);
        assert!(done.iter().all(|outcome| outcome.result == Some(Ok(()))));
    }
    pair.disconnect();
    assert_eq!(pair.client.submit(0, request(READ, 0, 512)), Err(SubmitError::NotReady));
}

#[test]
fn every_command_in_every_style() {
    for style in STYLES {
        for cut in [1, 3, 16, 27, 29, 500, 4096, usize::MAX] {
            every_command(&mut Pair::new(style, false, Cuts::of(vec![cut])));
        }
    }
}

/// The first piece ends at every position of the first few hundred bytes in turn.
#[test]
fn a_cut_at_every_byte() {
    for style in STYLES {
        for first in 1..300 {
            let mut pair = Pair::new(style, false, Cuts::of(vec![first, usize::MAX]));
            let outcomes = pair.run(&[
                (request(Command::Write, 512, 512), &[9; 512]),
                (request(READ, 512, 512), &[]),
            ]);
            assert_eq!(outcomes[1].data, [9; 512]);
        }
    }
}

#[test]
fn submissions_the_export_cannot_take() {
    let mut pair = Pair::new(ReplyStyle::Structured, false, whole());
    let mut refused = |command, offset, length| {
        pair.client.submit(0, request(command, offset, length)).unwrap_err().to_string()
    };
    assert!(refused(READ, 1 << 20, 512).contains("not within the export's 1048576 bytes"));
    assert!(refused(READ, u64::MAX - 100, 512).contains("not within"));
    assert!(refused(READ, 0, 0).contains("not within"));
    assert!(refused(READ, 1, 512).contains("not aligned to the server's minimum block of 512"));
    for token in 0..4 {
        pair.client.submit(token, request(READ, 0, 512)).unwrap();
    }
    assert_eq!(pair.client.submit(9, request(READ, 0, 512)), Err(SubmitError::Full));
    assert_eq!(pair.client.in_flight(), 4);
    assert_eq!(pair.client.tokens_in_flight().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let simple = Pair::new(ReplyStyle::Simple, false, whole());
    let status = request(Command::BlockStatus { one: false }, 0, 512);
    let mut client = simple.client;
    assert!(matches!(client.submit(0, status), Err(SubmitError::Unsupported(_))));
}

fn any_request() -> impl Strategy<Value = Request> {
    let command = prop_oneof![
        Just(READ),
        Just(Command::Read { unfragmented: true }),
        Just(Command::Write),
        Just(Command::Flush),
        Just(ZERO),
        Just(Command::Cache),
    ];
    (command, 0_u64..64, 1_u64..32, any::<bool>()).prop_map(|(command, sector, sectors, fua)| {
        Request { command, fua, offset: sector * 512, length: sectors * 512 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random conversations over a randomly cut wire keep a device equal to a model.
    #[test]
    fn conversations_keep_a_model(
        style in prop::sample::select(&STYLES[..]),
        sparse: bool,
        cuts in prop::collection::vec(1_usize..200, 1..8),
        requests in prop::collection::vec((any_request(), any::<u8>()), 1..20),
    ) {
        let mut pair = Pair::new(style, false, Cuts::of(cuts));
        pair.sparse = sparse;
        let mut model = vec![0_u8; 1 << 20];
        for (request, fill) in requests {
            let range = request.offset as usize..(request.offset + request.length) as usize;
            let payload = vec![fill; request.length as usize];
            let writes = request.command == Command::Write;
            let outcome = pair.run(&[(request, if writes { &payload } else { &[] })]).remove(0);
            let data = match request.command {
                Command::Read { .. } => model[range].to_vec(),
                Command::Write => {
                    model[range].fill(fill);
                    vec![]
                }
                Command::WriteZeroes { .. } => {
                    model[range].fill(0);
                    vec![]
                }
                _ => vec![],
            };
            prop_assert_eq!(outcome, Outcome { result: Some(Ok(())), data, ..Outcome::default() });
        }
        prop_assert!(pair.device == model);
    }
}
