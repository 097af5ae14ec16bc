//! A served volume and its clients: real legs, real sockets, the real engine.

mod client;
mod secure;

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use hemi_engine::command::Command;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::settings::Settings;
use hemi_engine::status::LegState;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::config::tls::TlsConfig;
use hemi_io::leg::{Injection, OpenError};
use hemi_server::config::exports::{ExportConfig, Listen};
use hemi_server::config::place::Place;
use hemi_server::control::volume::{Identity, Phase, RefusalKind, Request, Snapshot, Volume as _};
use hemi_server::create::{CreateOptions, create};
use hemi_server::export::{ExportOptions, GateFiles, Listener};
use hemi_server::ledger::LedgerStatus;
use hemi_server::messages::{ReactorError, ReactorMessage, ReplyTo};
use hemi_server::opening::{OpenOptions, OpenedVolume, open};
use hemi_server::serve::{ReactorOptions, Running, ServeError, start};
use hemi_server::volume::ServedVolume;

use client::{Client, DISCONNECT, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 96 * MIB;
/// Longest time that a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

struct Served {
    folder: tempfile::TempDir,
    legs: Vec<LegConfig>,
    budget: u64,
    running: Running,
}

impl Served {
    fn new(budget: u64) -> Served {
        Served::with(budget, None)
    }

    fn exports(&self) -> ExportOptions {
        ExportOptions { volume: "v".into(), size: 0, block: 512, buffer_budget: self.budget }
    }

    fn with_tls(tls: TlsConfig) -> Served {
        Served::with(64 * MIB, Some(tls))
    }

    fn with(budget: u64, tls: Option<TlsConfig>) -> Served {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let stripe = format!("stripe:{},{},chunk=64K", path("b"), path("c"));
        let names = vec![path("a"), stripe];
        create(&CreateOptions {
            size: SIZE.into(),
            legs: names.clone(),
            name: "db".into(),
            ..CreateOptions::default()
        })
        .unwrap_or_else(|error| panic!("{error}"));
        let legs = names
            .iter()
            .map(|name| LegConfig::new(name.parse::<LegSpec>().expect("it was created so")))
            .collect::<Vec<_>>();
        let running = run(&folder, &legs, budget, tls);
        Served { folder, legs, budget, running }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket())
    }

    fn ask(
        &self,
        make: impl FnOnce(ReplyTo<Result<(), ReactorError>>) -> ReactorMessage,
    ) -> Result<(), ReactorError> {
        let (sender, receiver) = sync_channel(1);
        let reply: ReplyTo<_> = Box::new(move |result| {
            let _ = sender.try_send(result);
        });
        self.running.handle.send(make(reply))?;
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            panic!("the reactor does not answer ({error}): {:?}", self.running.handle.snapshot())
        })
    }

    fn inject(&self, leg: u8, injection: Injection) {
        let leg = LegIndex(leg);
        self.ask(|reply| ReactorMessage::Inject { leg, injection, reply }).expect("it is allowed");
    }

    fn until(&self, what: &str, is: impl Fn(&Snapshot) -> bool) {
        let begun = Instant::now();
        while !is(&self.running.handle.snapshot()) {
            assert!(begun.elapsed() < PATIENCE, "waiting until {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn shutdown(self) -> (tempfile::TempDir, Vec<LegConfig>, u64) {
        self.ask(|reply| ReactorMessage::Shutdown { drain: PATIENCE.as_nanos() as u64, reply })
            .expect("it closes");
        self.running.join().expect("it ends well");
        (self.folder, self.legs, self.budget)
    }

    /// Stops the server and serves again. The volume was closed clean.
    fn restart(self) -> Served {
        let (folder, legs, budget) = self.shutdown();
        assert!(open_again(&legs).opening.clean);
        let running = run(&folder, &legs, budget, None);
        Served { folder, legs, budget, running }
    }
}

/// Options to open at once, without a ledger.
const WITHOUT_LEDGER: OpenOptions<'static> = OpenOptions {
    waiting: None,
    file: None,
    scan: None,
    patience: Duration::ZERO,
    start_degraded: false,
    ledger: &Place::None,
    settle: false,
    accept_loss: false,
    settled: false,
};

/// Opens legs that this same process has served until now. The kernel releases the ring that held
/// their locks in its own time.
fn open_again(legs: &[LegConfig]) -> OpenedVolume {
    let begun = Instant::now();
    loop {
        match open(legs, WITHOUT_LEDGER) {
            Err(ServeError::Open { source: OpenError::InUse { by, .. }, .. })
                if by == Some(std::process::id()) && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened.unwrap_or_else(|error| panic!("{error}")),
        }
    }
}

fn run(
    folder: &tempfile::TempDir,
    legs: &[LegConfig],
    budget: u64,
    tls: Option<TlsConfig>,
) -> Running {
    let opened = open_again(legs);
    let layout = opened.opening.superblock.layout;
    let block_bytes = opened.opening.superblock.block_bytes;
    let mut listen = ExportConfig::new(Listen::Unix(folder.path().join("nbd")));
    listen.tls = tls;
    let options = ExportOptions {
        volume: opened.name(),
        size: layout.volume_bytes(),
        block: block_bytes,
        buffer_budget: budget,
    };
    let listeners = Listener::bind(0, &listen, &options).unwrap_or_else(|error| panic!("{error}"));
    let identity = Identity {
        name: opened.name(),
        id: opened.opening.superblock.volume_id,
        size_bytes: layout.volume_bytes(),
        block_bytes,
        region_bytes: layout.region_bytes(),
        ledger: LedgerStatus::default(),
        given_up: None,
    };
    let options =
        ReactorOptions { settings: Settings::default(), buffer_budget: budget, allow_inject: true };
    start(opened, options, listeners, Snapshot::opening(identity, Vec::new()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns bytes that differ from sector to sector and from seed to seed.
fn pattern(seed: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length as usize);
    for sector in 0..length / 512 {
        let word = (seed << 32 ^ sector).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        bytes.extend(word.to_le_bytes().repeat(64));
    }
    bytes
}

/// A random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % bound
    }
}

#[test]
fn every_command_does_what_a_plain_array_would() {
    let mut served = Served::new(64 * MIB);
    let mut model = vec![0_u8; SIZE as usize];
    let mut random = Random(7);
    for round in 0..2 {
        let mut client = served.client();
        assert_eq!(client.size, SIZE);
        for step in 0..300 {
            let largest = if step % 10 == 0 { 8 * MIB } else { 64 << 10 } / 512;
            let sectors = 1 + random.below(largest);
            let offset = random.below(SIZE / 512 - sectors) * 512;
            let length = sectors * 512;
            let range = offset as usize..(offset + length) as usize;
            match random.below(6) {
                0..=2 => {
                    let bytes = pattern(round << 20 | step, length);
                    let flags = if random.below(4) == 0 { FUA } else { 0 };
                    assert_eq!(client.write(flags, offset, &bytes), Ok(()));
                    model[range].copy_from_slice(&bytes);
                }
                3 => {
                    assert_eq!(client.plain(0, WRITE_ZEROES, offset, length), Ok(()));
                    model[range].fill(0);
                }
                4 => {
                    assert_eq!(client.plain(0, FLUSH, 0, 0), Ok(()));
                }
                _ => {
                    assert!(client.read(offset, length).expect("it reads") == model[range]);
                }
            }
        }
        served = served.restart();
        let mut client = served.client();
        for offset in (0..SIZE).step_by(32 << 20) {
            let read = client.read(offset, 32 << 20).expect("it reads");
            assert!(read == model[offset as usize..][..32 << 20], "from {offset} on");
        }
    }
    let (folder, ..) = served.shutdown();
    assert!(!folder.path().join("nbd").exists(), "the socket's file goes with the volume");
}

/// A client that has an answer and then asks for the status sees that the volume is served.
#[test]
fn a_change_of_phase_is_published_before_the_first_answer() {
    let served = Served::new(32 * MIB);
    let mut client = served.client();
    client.read(0, 4096).expect("it reads");
    assert_eq!(served.running.handle.snapshot().phase, Phase::Serving);
}

/// The control socket answers before the loop's first turn.
#[test]
fn the_states_of_the_legs_are_published_from_the_start() {
    let served = Served::new(32 * MIB);
    let legs = served.running.handle.snapshot().status.legs.clone();
    let known = legs.iter().filter(|leg| leg.state != LegState::Empty).count();
    assert_eq!(known, 2, "{legs:?}");
}

#[test]
fn trimmed_extents_read_as_zeros_or_as_they_were() {
    let served = Served::new(32 * MIB);
    let mut client = served.client();
    let bytes = pattern(1, MIB);
    assert_eq!(client.write(0, MIB, &bytes), Ok(()));
    assert_eq!(client.plain(0, TRIM, MIB, MIB), Ok(()));
    let read = client.read(MIB, MIB).expect("it reads");
    assert!(read == bytes || read.iter().all(|byte| *byte == 0));
}

#[test]
fn hundreds_of_requests_in_flight_are_answered_each_once() {
    let served = Served::new(16 * MIB);
    let mut clients: Vec<Client> = (0..4).map(|_| served.client()).collect();
    let count = 600_u64;
    for (index, client) in clients.iter_mut().enumerate() {
        let base = index as u64 * 20 * MIB;
        let mut sender = client.socket.try_clone().expect("a socket can be cloned");
        // A thread writes the requests while nobody reads the answers, so the server must neither
        // run out of room nor wait forever.
        let writer = std::thread::spawn(move || {
            for request in 0..count {
                let mut message = Vec::new();
                message.extend(0x2560_9513_u32.to_be_bytes());
                message.extend(0_u16.to_be_bytes());
                message.extend(WRITE.to_be_bytes());
                message.extend(request.to_be_bytes());
                message.extend((base + request * 8192).to_be_bytes());
                message.extend(8192_u32.to_be_bytes());
                message.extend(pattern(request, 8192));
                std::io::Write::write_all(&mut sender, &message).expect("the server takes it");
            }
        });
        let mut seen = vec![false; count as usize];
        for _ in 0..count {
            let (cookie, error) = client.answer();
            assert_eq!(error, 0);
            assert!(!std::mem::replace(&mut seen[cookie as usize], true));
        }
        writer.join().expect("the writer ends");
        for request in (0..count).step_by(37) {
            let read = client.read(base + request * 8192, 8192).expect("it reads");
            assert!(read == pattern(request, 8192));
        }
    }
}

#[test]
fn requests_out_of_bounds_are_refused_and_the_connection_goes_on() {
    let served = Served::new(64 * MIB);
    let mut client = served.client();
    assert_eq!(client.read(SIZE - 512, 1024), Err(22));
    assert_eq!(client.write(0, SIZE - 512, &[0; 1024]), Err(28));
    assert_eq!(client.read(0, 33 * MIB), Err(22));
    assert_eq!(client.write(0, 0, &vec![0; 33 * MIB as usize]), Err(22));
    assert_eq!(client.read(100, 512), Err(22));
    assert_eq!(client.plain(0, 77, 0, 512), Err(22));
    assert_eq!(client.read(0, 512), Ok(vec![0; 512]));
}

#[test]
fn clients_that_die_or_babble_harm_nobody() {
    let served = Served::new(16 * MIB);
    let mut steady = served.client();
    for round in 0..20_u64 {
        let mut victim = served.client();
        match round % 4 {
            // Cut off in a payload, in a header, with answers not taken, and after garbage.
            0 => {
                victim.header(0, WRITE, 0, 4 * MIB);
                let part = pattern(round, 512 * (round + 1) * 100);
                std::io::Write::write_all(&mut victim.socket, &part).expect("it takes some");
            }
            1 => {
                std::io::Write::write_all(&mut victim.socket, &[0x25, 0x60]).expect("two bytes");
            }
            2 => {
                for _ in 0..8 {
                    victim.header(0, READ, 0, MIB);
                }
            }
            _ => {
                std::io::Write::write_all(&mut victim.socket, &[0xFF; 100]).expect("it listens");
                assert!(victim.is_closed());
            }
        }
        drop(victim);
        let bytes = pattern(round, 8192);
        assert_eq!(steady.write(0, 64 * MIB, &bytes), Ok(()));
        assert!(steady.read(64 * MIB, 8192).expect("it reads") == bytes);
    }
    let cookie = steady.header(0, FLUSH, 0, 0);
    assert_eq!(steady.answer(), (cookie, 0));
    served.until("every buffer is back", |snapshot| snapshot.buffers.used_bytes == 0);
    served.until("one client is left", |snapshot| snapshot.connections.open == 1);
    steady.header(0, DISCONNECT, 0, 0);
    assert!(steady.is_closed());
}

#[test]
fn clients_that_do_not_take_their_answers_are_cut_off_only_when_others_wait() {
    let served = Served::new(16 * MIB);
    // These clients ask for more than all buffers hold and take nothing.
    let mut dawdlers: Vec<Client> = (0..6).map(|_| served.client()).collect();
    for dawdler in &mut dawdlers {
        for _ in 0..4 {
            dawdler.header(0, READ, 0, 4 * MIB);
        }
    }
    let mut steady = served.client();
    let bytes = pattern(3, 4 * MIB);
    assert_eq!(steady.write(0, 0, &bytes), Ok(()));
    assert!(steady.read(0, 4 * MIB).expect("it reads") == bytes);
}

#[test]
fn a_frozen_leg_stops_nobody_and_owes_afterwards() {
    let served = Served::new(64 * MIB);
    let mut client = served.client();
    for leg in [0, 1] {
        let bytes = pattern(u64::from(leg), MIB);
        assert_eq!(client.write(0, 0, &bytes), Ok(()));
        // The freeze lasts until it is cleared: however slow this machine is, the leg answers
        // nothing meanwhile.
        served.inject(leg, Injection::Freeze(3_600_000_000_000));
        for index in 0..16 {
            let bytes = pattern(100 + index, 65536);
            assert_eq!(client.write(0, index * MIB, &bytes), Ok(()));
            assert!(client.read(index * MIB, 65536).expect("it reads") == bytes);
        }
        assert_eq!(client.plain(0, FLUSH, 0, 0), Ok(()));
        served.until("the leg counts as frozen", |snapshot| {
            snapshot.status.legs.iter().any(|status| status.leg == leg && status.freezes > 0)
        });
        served.inject(leg, Injection::Clear);
        served.until("it has caught up", |snapshot| {
            snapshot.status.legs.iter().all(|leg| leg.owed_bytes == 0)
        });
    }
}

#[test]
fn a_detached_leg_is_let_go_and_can_come_back() {
    let served = Served::new(64 * MIB);
    let mut client = served.client();
    let bytes = pattern(5, 4 * MIB);
    assert_eq!(client.write(0, 8 * MIB, &bytes), Ok(()));
    let leg = LegIndex(0);
    let command = Command::Detach { leg };
    served.ask(|reply| ReactorMessage::Command { command, reply }).expect("it is whole");
    let image = std::fs::read(served.folder.path().join("a")).expect("it can be read");
    let position = image.windows(512).step_by(512).position(|sector| *sector == bytes[..512]);
    assert!(position.is_some(), "the leg holds the data as a plain image");

    assert_eq!(client.write(0, 0, &bytes), Ok(()));
    let gates = GateFiles { exports: Vec::new(), options: served.exports() };
    let volume = ServedVolume::unwatched(served.running.handle.clone(), gates);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let config = served.legs[0].clone();
    let attach = |wipe| volume.request(Request::Attach { config: config.clone(), wipe });
    let refusal = runtime.block_on(attach(false)).expect_err("it may have been written since");
    assert_eq!(refusal.kind, RefusalKind::Unsafe);
    assert!(refusal.way_out.contains("--wipe"), "{refusal:?}");
    let now = std::fs::read(served.folder.path().join("a")).expect("it can be read");
    assert!(now == image, "a refusal changes nothing");
    runtime.block_on(attach(true)).expect("it was its leg");
    served.until("it is whole again", |snapshot| {
        snapshot.status.converged && snapshot.status.legs.len() == 2
    });
    let (_folder, legs, _) = served.shutdown();
    let opened = open(&legs, WITHOUT_LEDGER).unwrap_or_else(|error| panic!("{error}"));
    assert!(opened.opening.clean);
}
