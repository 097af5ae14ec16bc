//! Fuzz targets for every parser of bytes in hemi: bytes from drives, clients, servers, operators
//! and files.
//!
//! A target takes any bytes and panics if a promise about them does not hold: the parser never
//! panics or reads beyond its input, and a value that it accepts stays the same when it is written
//! and read again. The same bodies run in two ways:
//!
//! - under libFuzzer, guided by coverage, for as long as wanted (`make fuzz`). The thin binaries
//!   are in `fuzz/`, a workspace of its own;
//! - in `cargo test` (`tests/replay.rs`): every input of the corpus in `fuzz/corpus/`, then random
//!   changes of these inputs.

mod capture;
mod control;
mod disksim;
mod format;
mod nbd_client;
mod nbd_server;
mod recovery;
mod text;
mod trace;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its corpus's directory.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// The number of changed inputs that `cargo test` tries, which take about a second.
    pub cases: u32,
}

/// Every target, by name.
pub const TARGETS: [Target; 13] = [
    Target { name: "capture", run: capture::capture, cases: 5000 },
    Target { name: "config", run: text::config, cases: 1500 },
    Target { name: "control", run: control::control, cases: 2000 },
    Target { name: "disksim", run: disksim::disksim, cases: 1000 },
    Target { name: "leg_spec", run: text::leg_spec, cases: 10_000 },
    Target { name: "lost", run: format::lost, cases: 2000 },
    Target { name: "nbd_client", run: nbd_client::nbd_client, cases: 5000 },
    Target { name: "nbd_server", run: nbd_server::nbd_server, cases: 5000 },
    Target { name: "page", run: format::page, cases: 1000 },
    Target { name: "recovery", run: recovery::recovery, cases: 300 },
    Target { name: "stamp", run: format::stamp, cases: 2000 },
    Target { name: "superblock", run: format::superblock, cases: 2000 },
    Target { name: "trace", run: trace::trace, cases: 2000 },
];

/// Runs one input of the target of this name.
///
/// # Panics
/// Panics if there is no such target, or if the input breaks a promise.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("there is no fuzz target {name:?}")).run)(input);
}
