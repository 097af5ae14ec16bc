//! Tests of every kind of local leg through a real ring, on real files.

use hemi_engine::io::LegOperation;

use super::*;
use crate::config::legs::LegSpec;
use crate::memory::Mapping;

struct Bench {
    ring: Ring,
    leg: Leg,
    memory: Mapping,
    now: u64,
    next: u64,
    /// The system's error of the last I/O that failed by one.
    errno: Option<Errno>,
}

impl Bench {
    fn new((spec, options): &Kind, size: u64) -> Bench {
        let mut opened =
            OpenLeg::open(spec, *options, Purpose::Create { size, data_offset: 0 }).unwrap();
        opened.format().unwrap();
        let mut ring = Ring::new().unwrap();
        let mut memory = Mapping::new(4 << 20, false).unwrap();
        ring.add_memory(&mut memory);
        let leg = Leg::attach(opened, 3, true).unwrap();
        Bench { ring, leg, memory, now: 0, next: 0, errno: None }
    }

    fn io(&mut self, operation: LegOperation, offset: u64, length: u64, at: usize) -> ResolvedIo {
        let moves_data = matches!(operation, LegOperation::Read | LegOperation::Write { .. });
        let data = moves_data.then(|| self.memory.span(at, length as usize));
        self.next += 1;
        ResolvedIo { id: IoId(self.next), operation, offset, length, data }
    }

    fn run(&mut self, ios: &[ResolvedIo]) -> Vec<(IoId, Result<(), LegError>)> {
        let (mut outcomes, mut ended, mut completions) = (Vec::new(), Vec::new(), Vec::new());
        let Bench { ring, leg, now, .. } = self;
        let now = Instant(*now);
        let mut cx = LegContext { ring, now, owner: 3, outcomes: &mut outcomes };
        ios.iter().for_each(|io| leg.submit(&mut cx, *io));
        for _ in 0..1200 {
            for outcome in outcomes.drain(..) {
                match outcome {
                    LegOutcome::Done { id, result } => {
                        leg.settle(id);
                        ended.push((id, result));
                    }
                    LegOutcome::Failed(errno) => self.errno = Some(errno),
                    other @ (LegOutcome::Event(_) | LegOutcome::Progress(_)) => panic!("{other:?}"),
                }
            }
            if ended.len() == ios.len() {
                return ended;
            }
            ring.wait(Some(100_000_000)).unwrap();
            ring.completions(&mut completions);
            let mut cx = LegContext { ring, now, owner: 3, outcomes: &mut outcomes };
            for completion in completions.drain(..) {
                assert_eq!((completion.tag.source, completion.tag.owner), (Source::Leg, 3));
                leg.completion(&mut cx, completion);
            }
        }
        panic!("{} of {} ended", ended.len(), ios.len());
    }

    fn one(
        &mut self,
        operation: LegOperation,
        offset: u64,
        length: u64,
        at: usize,
    ) -> Result<(), LegError> {
        let io = self.io(operation, offset, length, at);
        self.run(&[io])[0].1
    }

    fn fill(&self, at: usize, length: usize, seed: u8) {
        let bytes: Vec<u8> = (0..length).map(|i| (i / 512) as u8 ^ seed).collect();
        self.memory.span(at, length).copy_from(&bytes);
    }
}

/// The spec of a leg and its options.
type Kind = (LegSpec, FileOptions);

fn kinds(folder: &tempfile::TempDir) -> Vec<Kind> {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stripe = format!("stripe:{},{},{},chunk=16K", path("a"), path("b"), path("c"));
    let cached = FileOptions { direct: false, ..FileOptions::default() };
    vec![
        (path("plain").parse().unwrap(), FileOptions::default()),
        (path("cached").parse().unwrap(), cached),
        (stripe.parse().unwrap(), FileOptions::default()),
    ]
}

const WRITE: LegOperation = LegOperation::Write { fua: false };
const FUA: LegOperation = LegOperation::Write { fua: true };
const MIB: usize = 1 << 20;

#[test]
fn what_is_written_is_read_back_on_every_kind_of_leg() {
    let folder = tempfile::tempdir().unwrap();
    for kind in kinds(&folder) {
        let mut bench = Bench::new(&kind, 4 << 20);
        bench.fill(0, MIB, 0x5A);
        let half = MIB as u64 / 2;
        let ios = [bench.io(WRITE, 8192, half, 0), bench.io(FUA, 8192 + half, half, MIB / 2)];
        assert!(bench.run(&ios).iter().all(|(_, result)| result.is_ok()), "{kind:?}");
        assert_eq!(bench.one(LegOperation::Flush, 0, 0, 0), Ok(()), "{kind:?}");
        assert_eq!(bench.one(LegOperation::Read, 8192, MIB as u64, 2 * MIB), Ok(()), "{kind:?}");
        let (wrote, read) = (bench.memory.span(0, MIB), bench.memory.span(2 * MIB, MIB));
        assert!(wrote.to_vec() == read.to_vec(), "{kind:?}");
    }
}

#[test]
fn zeroes_read_as_zeros_whatever_means_the_leg_has() {
    for (may_unmap, fua) in [(false, false), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        for kind in kinds(&folder) {
            let mut bench = Bench::new(&kind, 4 << 20);
            bench.fill(0, 3 * MIB, 1);
            assert_eq!(bench.one(WRITE, 0, 3 * MIB as u64, 0), Ok(()), "{kind:?}");
            let zero = LegOperation::WriteZeroes { may_unmap, fua };
            let length = 2 * MIB as u64 + 4096;
            assert_eq!(bench.one(zero, 4096, length, 0), Ok(()), "{kind:?}");
            let back = bench.memory.span(0, 3 * MIB);
            assert_eq!(bench.one(LegOperation::Read, 0, 3 * MIB as u64, 0), Ok(()), "{kind:?}");
            let found = back.to_vec();
            let (before, rest) = found.split_at(4096);
            let (zeros, after) = rest.split_at(length as usize);
            assert!(before[511] == 1 && after.iter().any(|byte| *byte != 0), "{kind:?}");
            assert!(zeros.iter().all(|byte| *byte == 0), "{kind:?} {may_unmap} {fua}");
        }
    }
}

#[test]
fn a_device_that_cannot_zero_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, options) = kinds(&folder).remove(0);
    let mut opened =
        OpenLeg::open(&spec, options, Purpose::Create { size: 4 << 20, data_offset: 0 }).unwrap();
    if let OpenLeg::File(device) = &mut opened {
        (device.punch, device.zero_range) = (false, false);
    }
    let ring = Ring::new().unwrap();
    let memory = Mapping::new(4 << 20, false).unwrap();
    let leg = Leg::attach(opened, 3, false).unwrap();
    let mut bench = Bench { ring, leg, memory, now: 0, next: 0, errno: None };
    bench.fill(0, 3 * MIB, 7);
    assert_eq!(bench.one(WRITE, 0, 3 * MIB as u64, 0), Ok(()));
    let zero = LegOperation::WriteZeroes { may_unmap: true, fua: true };
    assert_eq!(bench.one(zero, 512 * 8, 2 * MIB as u64 + 8192, 0), Ok(()));
    assert_eq!(bench.one(LegOperation::Read, 0, 3 * MIB as u64, 0), Ok(()));
    let back = bench.memory.span(0, 3 * MIB);
    assert!(back.to_vec()[4096..2 * MIB + 12288].iter().all(|byte| *byte == 0));
    assert!(back.to_vec()[2 * MIB + 12288] != 0);
}

#[test]
fn metadata_is_copied_when_taken_and_its_page_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    for kind in kinds(&folder) {
        let mut bench = Bench::new(&kind, 4 << 20);
        for round in 0..100_u8 {
            let mut io = bench.io(LegOperation::WriteMetadata, 4096, 4096, 0);
            io.data = Some(bench.leg.stage_metadata(io.id, &[round; 4096]).unwrap());
            assert_eq!(bench.run(&[io]), [(io.id, Ok(()))], "{kind:?}");
            assert!(bench.leg.metadata.is_empty());
        }
        assert_eq!(bench.one(LegOperation::Read, 4096, 4096, 0), Ok(()));
        assert_eq!(bench.memory.span(0, 4096).to_vec(), [99; 4096]);
    }
}

#[test]
fn a_file_cut_short_behind_our_back_is_a_media_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain");
    let mut bench = Bench::new(&kinds(&folder)[0], 4 << 20);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let end = MIB as u64;
    assert_eq!(bench.one(LegOperation::Read, end, 4096, 0), Err(LegError::Media));
    assert_eq!(bench.one(LegOperation::Read, end - 4096, 8192, 0), Err(LegError::Media));
    assert_eq!(bench.one(LegOperation::Read, end - 4096, 4096, 0), Ok(()));
}

#[test]
fn a_file_cut_short_is_found_out_without_being_read() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, name) in kinds(&folder).iter().zip(["plain", "cached", "b"]) {
        let mut bench = Bench::new(kind, 4 << 20);
        let Bench { ring, leg, .. } = &mut bench;
        let mut outcomes = Vec::new();
        let mut completions = Vec::new();
        for round in 0..3 {
            if round == 2 {
                let path = folder.path().join(name);
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(8192).unwrap();
            }
            let now = leg.deadline() + 1;
            leg.tick(&mut LegContext { ring, now, owner: 3, outcomes: &mut outcomes });
            assert!(leg.deadline() > now);
            let expected = if name == "b" { 3 } else { 1 };
            while completions.len() < expected {
                ring.wait(Some(100_000_000)).unwrap();
                ring.completions(&mut completions);
            }
            let mut cx = LegContext { ring, now, owner: 3, outcomes: &mut outcomes };
            completions.drain(..).for_each(|completion| leg.completion(&mut cx, completion));
            if round < 2 {
                assert!(outcomes.is_empty(), "{kind:?}");
            }
        }
        assert_eq!(outcomes, [LegOutcome::Event(LegEvent::Gone { removed: true })], "{kind:?}");
    }
}

#[test]
fn a_read_only_descriptor_fails_writes_and_the_leg_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, options) = kinds(&folder).remove(0);
    drop(OpenLeg::open(&spec, options, Purpose::Create { size: 4 << 20, data_offset: 0 }).unwrap());
    let opened = OpenLeg::open(&spec, options, Purpose::Inspect).unwrap();
    let ring = Ring::new().unwrap();
    let leg = Leg::attach(opened, 3, false).unwrap();
    let memory = Mapping::new(4096, false).unwrap();
    let mut bench = Bench { ring, leg, memory, now: 0, next: 0, errno: None };
    assert_eq!(bench.one(WRITE, 0, 4096, 0), Err(LegError::Other));
    assert_eq!(bench.errno.take(), Some(Errno::BADF), "the log names the system's error");
    assert_eq!(bench.one(LegOperation::Read, 0, 4096, 0), Ok(()));
    assert_eq!(bench.errno, None);
}

#[test]
fn an_injected_freeze_holds_io_until_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(&kinds(&folder)[0], 4 << 20);
    assert!(bench.leg.inject(Instant(0), Injection::Freeze(1000)));
    let io = bench.io(LegOperation::Read, 0, 4096, 0);
    let mut outcomes = Vec::new();
    let Bench { ring, leg, .. } = &mut bench;
    leg.submit(&mut LegContext { ring, now: Instant(1), owner: 3, outcomes: &mut outcomes }, io);
    assert!(leg.deadline() <= Instant(1000));
    assert_eq!(leg.injected(Instant(1)).map(|state| state.held), Some(1));
    let early = Instant(999);
    leg.tick(&mut LegContext { ring, now: early, owner: 3, outcomes: &mut outcomes });
    assert_eq!(leg.injected(early).map(|state| state.held), Some(1));
    leg.tick(&mut LegContext { ring, now: Instant(1000), owner: 3, outcomes: &mut outcomes });
    assert_eq!(leg.injected(Instant(1000)).map(|state| state.held), Some(0));
    let mut completions = Vec::new();
    // The size check of the first tick completes too.
    while outcomes.is_empty() {
        ring.wait(Some(100_000_000)).unwrap();
        ring.completions(&mut completions);
        let mut cx = LegContext { ring, now: Instant(1000), owner: 3, outcomes: &mut outcomes };
        completions.drain(..).for_each(|completion| leg.completion(&mut cx, completion));
    }
    assert_eq!(outcomes, [LegOutcome::Done { id: io.id, result: Ok(()) }]);
}

/// A ring that outlives its process for the sake of one leg that hangs must not keep the locks of others.
#[test]
fn a_ring_without_io_in_flight_keeps_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let kind = kinds(&folder).remove(0);
    let mut bench = Bench::new(&kind, 4 << 20);
    let flush = bench.io(LegOperation::Flush, 0, 0, 0);
    assert_eq!(bench.run(&[flush]), [(flush.id, Ok(()))]);
    let Bench { ring, leg, .. } = bench;
    drop(leg);
    assert!(OpenLeg::open(&kind.0, kind.1, Purpose::Serve).is_ok());
    drop(ring);
}
