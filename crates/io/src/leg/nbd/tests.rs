//! Tests of the NBD leg through a real ring, against other people's servers and a faulty one of
//! ours.

mod secure;
mod servers;

use hemi_engine::format::superblock::Name;
use hemi_engine::format::{Layout, LegRecord, Membership, Superblock};
use hemi_engine::identifiers::{IoId, LegIndex};
use hemi_engine::io::LegOperation;

use super::*;
use crate::config::legs::{LegConfig, LegSpec};
use crate::leg::{Leg, LegOutcome, OpenError, OpenLeg, Purpose};
use crate::memory::Mapping;
use rustix::io::Errno;
use servers::{Fault, Nbdkit, Own, QemuNbd};

const MIB: usize = 1 << 20;
const SIZE: u64 = 16 << 20;
const WRITE: LegOperation = LegOperation::Write { fua: false };
const FUA: LegOperation = LegOperation::Write { fua: true };
/// A quarantine longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

struct Bench {
    ring: Ring,
    leg: Leg,
    memory: Mapping,
    /// The test's own clock. Nothing here depends on wall time.
    now: u64,
    next: u64,
    ended: Vec<(IoId, Result<(), LegError>)>,
    events: Vec<LegEvent>,
    /// The server's error of the last I/O that failed by one.
    errno: Option<Errno>,
}

fn options(connections: u8, quarantine: Duration) -> LegConfig {
    let spec: LegSpec = "nbd://unused/".parse().unwrap();
    LegConfig {
        connections: Some(connections),
        quarantine: Some(format!("{}s", quarantine.as_secs()).parse().unwrap()),
        ..LegConfig::new(spec)
    }
}

impl Bench {
    fn new(uri: &str) -> Bench {
        Bench::with(uri, options(1, HOUR))
    }

    fn with(uri: &str, config: LegConfig) -> Bench {
        let config = LegConfig { path: uri.parse().unwrap(), ..config };
        let opened = OpenLeg::configured(&config, Purpose::Serve).unwrap();
        let mut ring = Ring::new().unwrap();
        let mut memory = Mapping::new(16 * MIB, false).unwrap();
        ring.add_memory(&mut memory);
        let leg = Leg::attach(opened, 3, false).unwrap();
        let (ended, events) = (Vec::new(), Vec::new());
        Bench { ring, leg, memory, now: 1, next: 0, ended, events, errno: None }
    }

    fn submit(&mut self, operation: LegOperation, offset: u64, length: u64, at: usize) -> IoId {
        let moves = !matches!(operation, LegOperation::WriteZeroes { .. } | LegOperation::Flush);
        let data = moves.then(|| self.memory.span(at, length as usize));
        self.next += 1;
        let io = ResolvedIo { id: IoId(self.next), operation, offset, length, data };
        let mut outcomes = Vec::new();
        self.leg.submit(
            &mut LegContext {
                ring: &mut self.ring,
                now: Instant(self.now),
                owner: 3,
                outcomes: &mut outcomes,
            },
            io,
        );
        self.take(outcomes);
        io.id
    }

    fn take(&mut self, outcomes: Vec<LegOutcome>) {
        for outcome in outcomes {
            match outcome {
                LegOutcome::Done { id, result } => {
                    self.leg.settle(id);
                    self.ended.push((id, result));
                }
                LegOutcome::Event(event) => self.events.push(event),
                LegOutcome::Failed(errno) => self.errno = Some(errno),
                LegOutcome::Progress(_) => {}
            }
        }
    }

    /// Runs one turn of a reactor's loop. The clock moves a little each time.
    fn turn(&mut self) {
        let (mut outcomes, mut completions) = (Vec::new(), Vec::new());
        self.ring.wait(Some(3_000_000)).unwrap();
        self.ring.completions(&mut completions);
        self.now += 50_000_000;
        let mut cx = LegContext {
            ring: &mut self.ring,
            now: Instant(self.now),
            owner: 3,
            outcomes: &mut outcomes,
        };
        for completion in completions {
            self.leg.completion(&mut cx, completion);
        }
        if self.leg.deadline() <= cx.now {
            self.leg.tick(&mut cx);
        }
        self.take(outcomes);
    }

    fn until(&mut self, what: &str, reached: impl Fn(&Bench) -> bool) {
        // Two minutes: a turn waits for at most 3 ms.
        for _ in 0..40_000 {
            if reached(self) {
                return;
            }
            self.turn();
        }
        panic!("waited in vain for {what}; events {:?}, ended {:?}", self.events, self.ended);
    }

    fn result(&self, id: IoId) -> Option<Result<(), LegError>> {
        self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, result)| *result)
    }

    fn one(
        &mut self,
        operation: LegOperation,
        offset: u64,
        length: u64,
        at: usize,
    ) -> Result<(), LegError> {
        let id = self.submit(operation, offset, length, at);
        self.until("an I/O", |bench| bench.result(id).is_some());
        self.result(id).unwrap()
    }

    fn fill(&self, at: usize, length: usize, seed: u8) {
        let bytes: Vec<u8> = (0..length).map(|i| (i / 512) as u8 ^ seed).collect();
        self.memory.span(at, length).copy_from(&bytes);
    }

    fn same(&self, a: usize, b: usize, length: usize) -> bool {
        self.memory.span(a, length).to_vec() == self.memory.span(b, length).to_vec()
    }
}

/// Checks everything that every server must do, whatever it offers.
fn exercise(uri: &str, config: LegConfig) {
    let mut bench = Bench::with(uri, config);
    bench.fill(0, 4 * MIB, 0x5A);
    // Many small I/Os at once, and large ones.
    let mut ids = Vec::new();
    for block in 0..200 {
        let at = block * 4096;
        let operation = if block % 3 == 0 { FUA } else { WRITE };
        ids.push(bench.submit(operation, 4096 + at as u64, 4096, at));
    }
    let (start, large) = (200 * 4096, 4 * MIB - 200 * 4096);
    ids.push(bench.submit(WRITE, 4096 + start as u64, large as u64, start));
    bench.until("writes", |bench| bench.ended.len() == ids.len());
    assert!(bench.ended.iter().all(|(_, result)| result.is_ok()), "{uri}: {:?}", bench.ended);
    assert_eq!(bench.one(LegOperation::Flush, 0, 0, 0), Ok(()), "{uri}");
    assert_eq!(bench.one(LegOperation::Read, 4096, 4 * MIB as u64, 8 * MIB), Ok(()), "{uri}");
    assert!(bench.same(0, 8 * MIB, 4 * MIB), "{uri}");
    bench.memory.span(8 * MIB, 4 * MIB).zero();
    let before = bench.ended.len();
    for block in 0..200 {
        let at = block * 4096;
        bench.submit(LegOperation::Read, 4096 + at as u64, 4096, 8 * MIB + at);
    }
    bench.until("reads", |bench| bench.ended.len() == before + 200);
    assert!(bench.same(0, 8 * MIB, 200 * 4096), "{uri}");

    for (may_unmap, fua) in [(false, true), (true, false)] {
        let zero = LegOperation::WriteZeroes { may_unmap, fua };
        assert_eq!(bench.one(zero, 8192, 2 * MIB as u64, 0), Ok(()), "{uri}");
        assert_eq!(bench.one(LegOperation::Read, 4096, 4 * MIB as u64, 8 * MIB), Ok(()));
        assert!(bench.same(0, 8 * MIB, 4096), "{uri}");
        let zeros = bench.memory.span(8 * MIB + 4096, 2 * MIB);
        assert!(zeros.to_vec().iter().all(|byte| *byte == 0), "{uri}");
        let after = 2 * MIB + 4096;
        assert!(bench.same(after, 8 * MIB + after, 2 * MIB - 4096), "{uri}");
        assert_eq!(bench.one(WRITE, 4096, 4 * MIB as u64, 0), Ok(()), "{uri}");
    }

    bench.next += 1;
    let id = IoId(bench.next);
    let page = bench.leg.stage_metadata(id, &[0x77; 4096]).unwrap();
    let operation = LegOperation::WriteMetadata;
    let io = ResolvedIo { id, operation, offset: 1 << 20, length: 4096, data: Some(page) };
    let mut outcomes = Vec::new();
    let Bench { ring, leg, now, .. } = &mut bench;
    leg.submit(&mut LegContext { ring, now: Instant(*now), owner: 3, outcomes: &mut outcomes }, io);
    bench.until("metadata", |bench| bench.result(id).is_some());
    assert_eq!(bench.result(id), Some(Ok(())), "{uri}");
    assert_eq!(bench.one(LegOperation::Read, 1 << 20, 4096, 0), Ok(()));
    assert_eq!(bench.memory.span(0, 4096).to_vec(), [0x77; 4096]);
    assert_eq!(bench.events, [], "{uri}");
    bench.leg.detach(&mut bench.ring);
}

#[test]
fn nbdkit_whatever_it_offers() {
    let kinds: [&[&str]; 9] = [
        &["memory", "16M"],
        &["--filter=fua", "memory", "16M"],
        &["--filter=fua", "memory", "16M", "fuamode=emulate"],
        &["--filter=nozero", "memory", "16M"],
        &["--filter=nozero", "memory", "16M", "zeromode=plugin", "fastzeromode=slow"],
        &["--filter=multi-conn", "memory", "16M", "multi-conn-mode=disable"],
        &["--no-sr", "memory", "16M"],
        &[
            "--filter=blocksize-policy",
            "memory",
            "16M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        &["--threads=1", "--filter=delay", "memory", "16M", "delay-read=1ms", "delay-write=1ms"],
    ];
    for arguments in kinds {
        let server = Nbdkit::start(arguments);
        exercise(&server.uri(), options(4, HOUR));
    }
}

#[test]
fn nbdkit_over_tcp() {
    let server = Nbdkit::start_tcp(&["memory", "16M"]);
    exercise(&server.uri(), options(1, HOUR));
    exercise(&server.uri(), options(8, HOUR));
}

#[test]
fn qemu_nbd() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let server = QemuNbd::start(&image, &["--discard=unmap", "--detect-zeroes=on"]);
    exercise(&server.uri(), options(1, HOUR));
    drop(server);
    let server = QemuNbd::start(&image, &["--shared=8"]);
    exercise(&server.uri(), options(4, HOUR));
}

#[test]
fn our_own_server_in_every_style() {
    for style in ["simple", "structured", "extended"] {
        let server = Own::start(SIZE, style, Fault::None);
        exercise(&server.uri(), options(3, HOUR));
    }
}

#[test]
fn a_servers_errors_become_the_legs() {
    let kinds = [
        ("EIO", LegError::Media, 5),
        ("ENOSPC", LegError::NoSpace, 28),
        ("EPERM", LegError::Other, 1),
    ];
    for (errno, error, number) in kinds {
        let server = Nbdkit::start(&[
            "--filter=error",
            "memory",
            "16M",
            &format!("error={errno}"),
            "error-pwrite-rate=100%",
            "error-zero-rate=100%",
        ]);
        let mut bench = Bench::new(&server.uri());
        assert_eq!(bench.one(WRITE, 4096, 4096, 0), Err(error), "{errno}");
        assert_eq!(bench.errno.take().map(Errno::raw_os_error), Some(number), "{errno}");
        assert_eq!(bench.one(LegOperation::Read, 4096, 4096, 0), Ok(()), "{errno}");
        let zero = LegOperation::WriteZeroes { may_unmap: true, fua: false };
        assert_eq!(bench.one(zero, 0, 8192, 0), Err(error), "{errno}");
        assert_eq!(bench.events, []);
    }
}

#[test]
fn unfit_exports_are_refused_with_the_reason() {
    let open = |uri: &str, purpose| match OpenLeg::open(
        &uri.parse().unwrap(),
        crate::leg::FileOptions::default(),
        purpose,
    ) {
        Err(error @ OpenError::Nbd { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let server = Nbdkit::start(&["-r", "memory", "16M"]);
    let message = open(&server.uri(), Purpose::Serve);
    assert!(message.contains("the export is read-only"), "{message}");
    assert!(message.contains(&server.uri()), "{message}");
    let spec = server.uri().parse().unwrap();
    let looked_at = OpenLeg::open(&spec, Default::default(), Purpose::Inspect).unwrap();
    assert_eq!((looked_at.size(), looked_at.block()), (SIZE, 512));
    let server = Nbdkit::start(&["memory", "16M"]);
    let message = open(&server.uri(), Purpose::Create { size: SIZE + 1, data_offset: 0 });
    assert!(message.contains("16777216 bytes now, 16777217 are needed"), "{message}");
    let socket = server.socket().to_owned();
    drop(server);
    let message = open(&format!("nbd+unix:///?socket={}", socket.display()), Purpose::Serve);
    assert!(message.contains("no connection to the server"), "{message}");
    let message = open("nbd://host.invalid/", Purpose::Serve);
    assert!(message.contains("cannot be resolved"), "{message}");
    let server = Nbdkit::start(&["--tls=require", "--tls-psk=/dev/null", "memory", "16M"]);
    let message = open(&server.uri(), Purpose::Serve);
    assert!(message.contains("TLS"), "{message}");
}

#[test]
fn the_blocking_view_reads_and_writes_at_any_alignment() {
    let server = Nbdkit::start(&[
        "--filter=blocksize-policy",
        "memory",
        "16M",
        "blocksize-minimum=4096",
        "blocksize-preferred=4096",
        "blocksize-maximum=64K",
        "blocksize-error-policy=error",
    ]);
    let spec = server.uri().parse().unwrap();
    let leg = OpenLeg::open(&spec, Default::default(), Purpose::Serve).unwrap();
    assert_eq!((leg.size(), leg.block()), (SIZE, 4096));
    let data: Vec<u8> = (0..200 << 10).map(|i| (i / 512) as u8).collect();
    leg.write_at(8192, &data).unwrap();
    leg.flush().unwrap();
    for (offset, length) in [(8192, 200 << 10), (8193, 1), (8000, 512), (12287, 130_000), (0, 0)] {
        let mut back = vec![0xEE; length];
        leg.read_at(offset, &mut back).unwrap();
        for (i, byte) in back.iter().enumerate() {
            let expected = (offset as usize + i).checked_sub(8192).map_or(0, |at| data[at]);
            assert_eq!(*byte, expected, "{offset}+{i}");
        }
    }
    let mut back = [0; 512];
    let error = leg.read_at(SIZE - 100, &mut back).unwrap_err().to_string();
    assert!(error.contains("not within the export's 16777216 bytes"), "{error}");
}

/// Writes in flight when the server dies stay open for the quarantine. Everything else ends at
/// once, and the leg goes on with the server's successor.
#[test]
fn writes_of_a_lost_session_stay_open_for_the_quarantine() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let image = image.to_str().unwrap();
    let delayed =
        ["--filter=delay", "file", image, "delay-read=3600", "delay-write=3600", "delay-zero=3600"];
    let mut server = Nbdkit::start(&delayed);
    // The superblock slots are read first, and the delay holds those reads too.
    let mut bench = Bench::new(&server.uri());
    let write = bench.submit(WRITE, 1 << 20, 4096, 0);
    let read = bench.submit(LegOperation::Read, 2 << 20, 4096, 8192);
    let zero = LegOperation::WriteZeroes { may_unmap: true, fua: false };
    let zero = bench.submit(zero, 3 << 20, 4096, 0);
    for _ in 0..5 {
        bench.turn();
    }
    assert_eq!((bench.ended.as_slice(), bench.events.as_slice()), (&[][..], &[][..]));

    server.kill();
    bench.until("the loss", |bench| !bench.events.is_empty());
    assert_eq!(bench.events, [LegEvent::Gone { removed: false }]);
    let late = bench.submit(WRITE, 4 << 20, 4096, 0);
    assert_eq!(bench.result(late), Some(Err(LegError::Gone)), "nothing was sent");
    bench.until("the read's end", |bench| bench.result(read).is_some());
    assert_eq!(bench.result(read), Some(Err(LegError::Gone)));

    server.restart(&["file", image]);
    bench.until("the reconnect", |bench| bench.events.len() == 2);
    assert_eq!(bench.events[1], LegEvent::Back);
    bench.fill(0, 4096, 9);
    assert_eq!(bench.one(WRITE, 5 << 20, 4096, 0), Ok(()));
    assert_eq!(bench.one(LegOperation::Read, 5 << 20, 4096, 8192), Ok(()));
    assert!(bench.same(0, 8192, 4096));
    assert_eq!((bench.result(write), bench.result(zero)), (None, None), "still in quarantine");

    bench.now += HOUR.as_nanos() as u64;
    bench.until("the quarantine's end", |bench| bench.result(write).is_some());
    assert_eq!(bench.result(write), Some(Err(LegError::Gone)));
    assert_eq!(bench.result(zero), Some(Err(LegError::Gone)));
    assert_eq!(bench.leg.in_flight(), 0);
    assert_eq!(bench.events.len(), 2);
}

#[test]
fn a_frozen_server_freezes_the_leg_and_nothing_else() {
    let server = Nbdkit::start(&["memory", "16M"]);
    let mut bench = Bench::new(&server.uri());
    assert_eq!(bench.one(WRITE, 0, 4096, 0), Ok(()));
    server.stop();
    let write = bench.submit(WRITE, 4096, 4096, 0);
    for _ in 0..300 {
        bench.turn();
    }
    assert_eq!((bench.result(write), bench.events.as_slice()), (None, &[][..]));
    server.go_on();
    bench.until("the write", |bench| bench.result(write).is_some());
    assert_eq!(bench.result(write), Some(Ok(())));
    assert_eq!(bench.events, []);
}

#[test]
fn attempts_to_reconnect_go_on_with_growing_pauses() {
    let mut server = Nbdkit::start(&["memory", "16M"]);
    let mut bench = Bench::new(&server.uri());
    bench.turn();
    server.kill();
    bench.until("the loss", |bench| !bench.events.is_empty());
    let mut pauses = Vec::new();
    while pauses.len() < 9 {
        let (from, due) = (bench.now, bench.leg.deadline());
        pauses.push(due.since(Instant(from)));
        bench.now = due.0;
        bench.until("an attempt", |bench| bench.leg.deadline() != due);
        // Time passes only up to the attempt's own deadline, until the refusal arrives.
        bench.until("a refusal", |bench| {
            bench.leg.deadline().since(Instant(bench.now)) < RECONNECT_TIME_MAX / 2 + 1
        });
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1] + 200_000_000), "{pauses:?}");
    assert!(pauses[0] <= RECONNECT_PAUSE_MIN, "{pauses:?}");
    assert!(pauses[8] > RECONNECT_PAUSE_MAX - 200_000_000, "{pauses:?}");
    assert_eq!(bench.events, [LegEvent::Gone { removed: false }]);
}

/// Returns the superblock of a leg in a volume of 8 MiB.
fn superblock(leg: u8, sequence: u64) -> hemi_engine::format::Block {
    let mut superblock = Superblock {
        volume_id: [1; 16],
        name: Name::new("test").unwrap(),
        layout: Layout::new(8 << 20, 1 << 20).unwrap(),
        block_bytes: 4096,
        created: 0,
        leg: LegIndex(0),
        sequence,
        generation: [2; 16],
        ancestry: Default::default(),
        open: true,
        ledger: None,
        join_epoch: 1,
        legs: Default::default(),
        descriptions: Default::default(),
    };
    superblock.legs[0] = LegRecord { id: [leg; 16], join_epoch: 1, state: Membership::default() };
    superblock.legs[0].state = Membership::In;
    let mut block = hemi_engine::format::block::blank();
    superblock.encode(&mut block, 1);
    block
}

/// Creates an image, with this superblock if any. Returns its path.
fn image(
    folder: &std::path::Path,
    name: &str,
    superblock: Option<hemi_engine::format::Block>,
) -> String {
    use std::os::unix::fs::FileExt;
    let path = folder.join(name);
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    if let Some(block) = superblock {
        file.write_all_at(&block, Layout::superblock_address(1)).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

/// A server that comes back with another image does not pass for the leg.
#[test]
fn only_the_same_leg_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = |name, block| image(folder.path(), name, block);
    let original = image("original", Some(superblock(1, 5)));
    let blank = image("blank", None);
    let foreign = image("foreign", Some(superblock(2, 9)));
    let older = image("older", Some(superblock(1, 5)));
    let short = image("short", Some(superblock(1, 9)));
    std::fs::OpenOptions::new().write(true).open(&short).unwrap().set_len(SIZE / 2).unwrap();

    let mut server = Nbdkit::start(&["file", &original]);
    let mut bench = Bench::new(&server.uri());
    // A newer superblock makes the copy old.
    bench.next += 1;
    let id = IoId(bench.next);
    let page = bench.leg.stage_metadata(id, &superblock(1, 6)).unwrap();
    let (operation, offset) = (LegOperation::WriteMetadata, Layout::superblock_address(1));
    let io = ResolvedIo { id, operation, offset, length: 4096, data: Some(page) };
    let mut outcomes = Vec::new();
    let Bench { ring, leg, now, .. } = &mut bench;
    leg.submit(&mut LegContext { ring, now: Instant(*now), owner: 3, outcomes: &mut outcomes }, io);
    bench.until("the superblock", |bench| bench.result(id).is_some());

    for other in [&blank, &foreign, &older, &short] {
        server.kill();
        server.restart(&["file", other]);
        for _ in 0..400 {
            bench.turn();
        }
        assert_eq!(bench.events, [LegEvent::Gone { removed: false }], "{other}");
        assert_eq!(bench.one(LegOperation::Read, 0, 4096, 0), Err(LegError::Gone));
    }
    server.kill();
    server.restart(&["file", &original]);
    bench.until("the leg", |bench| bench.events.len() == 2);
    assert_eq!(bench.events[1], LegEvent::Back);
    assert_eq!(bench.one(LegOperation::Read, 0, 4096, 0), Ok(()));
}

/// A server restarted on a snapshot does not pass for the leg if anything was reported durable
/// since. If nothing was, it does, and the engine owes it the rest.
#[test]
fn a_leg_that_went_back_behind_what_was_durable_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let original = image(folder.path(), "original", Some(superblock(1, 5)));
    let snapshot = folder.path().join("snapshot").to_str().unwrap().to_owned();
    let mut server = Nbdkit::start(&["file", &original]);
    let mut bench = Bench::new(&server.uri());
    let mut events = 0;
    for durable in [FUA, LegOperation::Flush] {
        assert_eq!(bench.one(WRITE, 4 << 20, 4096, 0), Ok(()));
        assert_eq!(bench.one(LegOperation::Flush, 0, 0, 0), Ok(()));
        std::fs::copy(&original, &snapshot).unwrap();
        let (offset, length) = if durable == FUA { (4 << 20, 4096) } else { (0, 0) };
        assert_eq!(bench.one(WRITE, 5 << 20, 4096, 0), Ok(()));
        assert_eq!(bench.one(durable, offset, length, 0), Ok(()));

        server.kill();
        server.restart(&["file", &snapshot]);
        for _ in 0..400 {
            bench.turn();
        }
        events += 1;
        assert_eq!(bench.events.len(), events, "{durable:?}: {:?}", bench.events);
        assert_eq!(bench.one(LegOperation::Read, 0, 4096, 0), Err(LegError::Gone));

        server.kill();
        server.restart(&["file", &original]);
        events += 1;
        bench.until("the leg", |bench| bench.events.len() == events);
        assert_eq!(bench.events.last(), Some(&LegEvent::Back));
    }
    std::fs::copy(&original, &snapshot).unwrap();
    assert_eq!(bench.one(WRITE, 6 << 20, 4096, 0), Ok(()));
    server.kill();
    server.restart(&["file", &snapshot]);
    bench.until("the leg", |bench| bench.events.len() == events + 2);
    assert_eq!(bench.events.last(), Some(&LegEvent::Back), "nothing was promised since");
}

/// A server that answers nothing for a minute is left for another session.
#[test]
fn a_request_without_an_answer_costs_the_session() {
    let server = Nbdkit::start(&["memory", "16M"]);
    let mut bench = Bench::new(&server.uri());
    assert_eq!(bench.one(WRITE, 0, 4096, 0), Ok(()));
    server.stop();
    let write = bench.submit(WRITE, 4096, 4096, 0);
    bench.until("the loss", |bench| !bench.events.is_empty());
    assert!(bench.now >= REQUEST_TIME_MAX, "not before its time");
    assert_eq!(bench.events, [LegEvent::Gone { removed: false }]);
    assert_eq!(bench.result(write), None, "it may still land");
    server.go_on();
    bench.until("the reconnect", |bench| bench.events.contains(&LegEvent::Back));
    bench.now += HOUR.as_nanos() as u64;
    bench.until("the end of the write", |bench| bench.result(write).is_some());
    assert_eq!(bench.result(write), Some(Err(LegError::Gone)));
}

/// A connection cut at any byte, or a nonsensical answer, loses the session and nothing more.
/// I/Os already answered stand, the rest end as gone, and the next session works.
#[test]
fn a_vicious_server_costs_a_session() {
    let faults = (0..40)
        .map(|i| Fault::CloseAfter(1 + i * 97))
        .chain([0, 4124, 4136].map(Fault::GarbageAfter));
    for fault in faults {
        let server = Own::start(SIZE, "structured", fault);
        let mut bench = Bench::with(&server.uri(), options(1, Duration::from_secs(1)));
        let mut ids = Vec::new();
        for block in 0..8 {
            ids.push(bench.submit(WRITE, 1 << 20 | block << 12, 4096, 0));
            ids.push(bench.submit(LegOperation::Read, block << 12, 4096, 1 << 20 | block as usize));
        }
        bench.until("the ends", |bench| ids.iter().all(|id| bench.result(*id).is_some()));
        bench.until("the reconnect", |bench| bench.events.contains(&LegEvent::Back));
        for id in ids {
            let result = bench.result(id).unwrap();
            assert!(matches!(result, Ok(()) | Err(LegError::Gone)), "{fault:?}: {result:?}");
        }
        assert_eq!(bench.one(WRITE, 0, 4096, 0), Ok(()), "{fault:?}");
        assert_eq!(bench.events, [LegEvent::Gone { removed: false }, LegEvent::Back], "{fault:?}");
    }
}

/// A server that announces its shutdown is left. Since it has answered everything, nothing
/// stays open for the quarantine.
#[test]
fn a_server_that_shuts_down_is_left_without_quarantine() {
    for last in [3, 6, 18] {
        let server = Own::start(SIZE, "extended", Fault::ShutdownAfter(last));
        let mut bench = Bench::new(&server.uri());
        let mut ids = Vec::new();
        for block in 0..16 {
            ids.push(bench.submit(WRITE, block << 12, 4096, 0));
            ids.push(bench.submit(LegOperation::Read, block << 12, 4096, 8192));
        }
        bench.until("the ends", |bench| ids.iter().all(|id| bench.result(*id).is_some()));
        // Three requests went to the superblock and the stamps.
        let answered = ids.iter().filter(|id| bench.result(**id) == Some(Ok(()))).count();
        assert_eq!(answered, last - 3);
        let gone = |id: &&IoId| bench.result(**id) == Some(Err(LegError::Gone));
        assert_eq!(ids.iter().filter(gone).count(), 32 - answered);
        bench.until("the reconnect", |bench| bench.events.contains(&LegEvent::Back));
        assert_eq!(bench.events, [LegEvent::Gone { removed: false }, LegEvent::Back]);
        assert_eq!(bench.one(WRITE, 0, 4096, 0), Ok(()));
    }
}

/// The requests of one turn of the loop leave in one send.
#[test]
fn requests_of_a_turn_are_sent_together() {
    let server = Nbdkit::start(&["memory", "16M"]);
    let mut bench = Bench::new(&server.uri());
    assert_eq!(bench.one(LegOperation::Flush, 0, 0, 0), Ok(()));
    let entries = |bench: &Bench| match &bench.leg.driver {
        crate::leg::Driver::Nbd(leg) => leg.entries.len(),
        other => panic!("{other:?}"),
    };
    bench.until("the superblock", |bench| entries(bench) == 1);
    let before = bench.ended.len();
    for block in 0..20 {
        bench.submit(WRITE, block << 12, 4096, 0);
        assert_eq!(entries(&bench), 2, "a receive and one send");
    }
    bench.until("writes", |bench| bench.ended.len() == before + 20);
    // A send has space for 64 pieces, or 32 writes. The rest follows when those are out.
    for block in 0..100 {
        bench.submit(WRITE, block << 12, 4096, 0);
    }
    assert_eq!(entries(&bench), 2);
    bench.until("writes", |bench| bench.ended.len() == before + 120);
    assert!(bench.ended.iter().all(|(_, result)| result.is_ok()));
}

/// The session of several connections is lost with one of them.
#[test]
fn several_connections_come_and_go_together() {
    let mut server = Nbdkit::start(&["memory", "16M"]);
    let mut bench = Bench::with(&server.uri(), options(4, HOUR));
    bench.turn();
    server.kill();
    server.restart(&["memory", "16M"]);
    bench.until("the reconnect", |bench| bench.events.len() == 2);
    assert_eq!(bench.events, [LegEvent::Gone { removed: false }, LegEvent::Back]);
    let before = bench.ended.len();
    for block in 0..64 {
        bench.submit(WRITE, block << 12, 4096, 0);
    }
    bench.until("writes", |bench| bench.ended.len() == before + 64);
    assert!(bench.ended.iter().all(|(_, result)| result.is_ok()));
}
