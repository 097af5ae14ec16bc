//! Drives the engine by hand: a mirror of two legs in memory, one of which stops answering.
//!
//! `cargo run -p hemi-engine --example two_legs` prints when each of ten writes is acknowledged,
//! in virtual time. From the fifth on, leg 1 answers nothing for a second. A driver has four
//! duties, all of them below: perform each leg I/O and report it once, call `tick` when
//! `deadline` says so, take actions until there are none, and lend buffers.

use std::collections::BTreeMap;

use hemi_engine::engine::Engine;
use hemi_engine::format::Layout;
use hemi_engine::format::create::NewVolume;
use hemi_engine::format::superblock::Name;
use hemi_engine::identifiers::{BufferAt, BufferId, IoId, LEGS_MAX, LegIndex};
use hemi_engine::io::{Action, Buffers, LegIo, LegOperation, LegTraits, Operation, Request};
use hemi_engine::recovery::{self, LegImage};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND};

const MIB: usize = 1 << 20;
/// Time that a leg takes for an I/O.
const LATENCY: u64 = 100 * MICROSECOND;
/// Time at which leg 1 stops answering, and for how long.
const FREEZE: (Instant, u64) = (Instant(SECOND), SECOND);

/// Buffers of bytes, counted by reference.
#[derive(Default)]
struct Memory {
    buffers: BTreeMap<u32, (u32, Vec<u8>)>,
    next: u32,
}

impl Memory {
    fn range(at: BufferAt, sectors: u32) -> std::ops::Range<usize> {
        at.offset as usize * 512..(at.offset + sectors) as usize * 512
    }

    fn bytes(&self, at: BufferAt, sectors: u32) -> &[u8] {
        &self.buffers[&at.buffer.0].1[Memory::range(at, sectors)]
    }

    fn bytes_mut(&mut self, at: BufferAt, sectors: u32) -> &mut [u8] {
        let (_, bytes) = self.buffers.get_mut(&at.buffer.0).expect("the engine holds a reference");
        &mut bytes[Memory::range(at, sectors)]
    }
}

impl Buffers for Memory {
    fn allocate(&mut self, sectors: u32) -> Option<BufferId> {
        self.next += 1;
        self.buffers.insert(self.next, (1, vec![0; sectors as usize * 512]));
        Some(BufferId(self.next))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.buffers.get_mut(&buffer.0).expect("a buffer in use").0 += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        let (references, _) = self.buffers.get_mut(&buffer.0).expect("a buffer in use");
        *references -= 1;
        if *references == 0 {
            self.buffers.remove(&buffer.0);
        }
    }

    fn copy(&mut self, from: BufferAt, to: BufferAt, sectors: u32) {
        let bytes = self.bytes(from, sectors).to_vec();
        self.bytes_mut(to, sectors).copy_from_slice(&bytes);
    }

    fn zero(&mut self, at: BufferAt, sectors: u32) {
        self.bytes_mut(at, sectors).fill(0);
    }

    fn equal(&self, a: BufferAt, b: BufferAt, sectors: u32) -> bool {
        self.bytes(a, sectors) == self.bytes(b, sectors)
    }

    fn is_zero(&self, at: BufferAt, sectors: u32) -> bool {
        self.bytes(at, sectors).iter().all(|&byte| byte == 0)
    }

    fn free_bytes(&self) -> u64 {
        64 * MIB as u64
    }
}

struct Driver {
    engine: Engine<Memory>,
    legs: Vec<Vec<u8>>,
    now: Instant,
    /// I/O in flight, with the time at which each ends.
    in_flight: Vec<(Instant, LegIo)>,
    /// Requests that wait for their reply, with the time at which each was submitted.
    waiting: BTreeMap<u64, Instant>,
}

impl Driver {
    /// Performs an I/O on the leg's bytes. Its completion is reported later.
    fn start(&mut self, io: LegIo) {
        let bytes = &mut self.legs[io.leg.index()];
        let place = io.extent.start as usize * 512..io.extent.end as usize * 512;
        let sectors = io.extent.sectors() as u32;
        match (io.operation, io.buffer) {
            (LegOperation::Write { .. }, Some(at)) => {
                bytes[place].copy_from_slice(self.engine.buffers().bytes(at, sectors));
            }
            (LegOperation::Read, Some(at)) => {
                self.engine.buffers_mut().bytes_mut(at, sectors).copy_from_slice(&bytes[place]);
            }
            (LegOperation::WriteMetadata, _) => {
                bytes[place].copy_from_slice(self.engine.metadata_bytes(io.id));
            }
            (LegOperation::WriteZeroes { .. }, _) => bytes[place].fill(0),
            _ => {}
        }
        let (begins, length) = FREEZE;
        let mut ends = self.now + LATENCY;
        if io.leg == LegIndex(1) && ends > begins {
            ends = ends.max(begins + length);
        }
        self.in_flight.push((ends, io));
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match action {
                Action::Leg(io) => self.start(io),
                Action::Reply(reply) => {
                    if let Some(submitted) = self.waiting.remove(&reply.token) {
                        let milliseconds = self.now.since(submitted) as f64 / MILLISECOND as f64;
                        println!("write {:>2}: {milliseconds:>6.2} ms", reply.token);
                    }
                }
                Action::Notice(notice) => println!("          {notice:?}"),
                Action::CommandDone { .. } | Action::Closed => {}
            }
        }
    }

    /// Goes on until `until`, from one completion or deadline to the next.
    fn run(&mut self, until: Instant) {
        loop {
            self.take_actions();
            let ends = self.in_flight.iter().map(|(ends, _)| *ends).min();
            let next = ends.unwrap_or(Instant::NEVER).min(self.engine.deadline());
            if next > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(next);
            let now = self.now;
            let (done, rest) = self.in_flight.iter().partition(|(ends, _)| *ends <= now);
            self.in_flight = rest;
            let done: Vec<(Instant, LegIo)> = done;
            let done: Vec<IoId> = done.into_iter().map(|(_, io)| io.id).collect();
            for id in done {
                self.engine.complete(self.now, id, Ok(()));
            }
            self.engine.tick(self.now);
        }
    }

    fn write(&mut self, token: u64, first_sector: u64) {
        let buffer = self.engine.buffers_mut().allocate(8);
        let request = Request {
            token,
            operation: Operation::Write,
            extent: Extent::new(first_sector, 8),
            buffer,
            fua: false,
            connection: 0,
        };
        self.waiting.insert(token, self.now);
        self.engine.submit(self.now, request);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layout = Layout::new(8 * MIB as u64, 1 << 20)?;
    let volume = NewVolume {
        id: [1; 16],
        generation: [2; 16],
        legs: &[[3; 16], [4; 16]],
        name: Name::new("example")?,
        layout,
        block_bytes: 512,
        created: 0,
    };
    let mut legs = vec![vec![0; layout.leg_bytes() as usize]; 2];
    for (leg, bytes) in (0..).zip(&mut legs) {
        volume.blocks(LegIndex(leg), |address, block| {
            bytes[address as usize..][..block.len()].copy_from_slice(block);
        });
    }
    let images: Vec<LegImage> = legs.iter().map(|bytes| LegImage { bytes }).collect();
    let opening = recovery::assess(&images).map_err(|refusal| format!("{refusal:?}"))?;
    let mut traits = [LegTraits::default(); LEGS_MAX];
    for leg in &mut traits[..2] {
        *leg = LegTraits { present: true, ..LegTraits::default() };
    }
    let memory = Memory::default();
    let engine = Engine::open(opening, Settings::default(), traits, None, memory, Instant(1), 7);
    let mut driver =
        Driver { engine, legs, now: Instant(1), in_flight: Vec::new(), waiting: BTreeMap::new() };
    driver.run(Instant(SECOND / 2));
    for token in 0..10 {
        driver.write(token, token * 8);
        driver.run(driver.now + SECOND / 8);
    }
    driver.run(Instant(4 * SECOND));
    // Past their metadata, the legs are alike again: the debt has been paid.
    let data = layout.data_offset() as usize;
    assert!(driver.legs[0][data..] == driver.legs[1][data..], "the legs are alike");
    println!("the legs are alike");
    Ok(())
}
