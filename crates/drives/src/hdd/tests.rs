//! Tests of the model's physics and book-keeping.

mod bookkeeping;
mod physics;
mod presets;
mod shared_bus;
mod shingled;

use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};

use crate::drive::{Completion, Drive, Request};
use crate::hdd::Hdd;
use crate::hdd::parameters::Parameters;

pub(super) const READ: Operation = Operation::Read;
pub(super) const WRITE: Operation = Operation::Write { fua: false };

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preset {
    pub(super) title: String,
    #[serde(rename = "note")]
    _note: Option<String>,
    #[serde(rename = "purchase")]
    _purchase: Option<toml::Table>,
    pub(super) model: String,
    pub(super) parameters: Parameters,
    pub(super) sources: std::collections::BTreeMap<String, String>,
    #[serde(default, rename = "card")]
    pub(super) cards: Vec<toml::Table>,
}

pub(super) fn preset(name: &str) -> Preset {
    let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect(name);
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(super) fn disk(name: &str, change: impl FnOnce(&mut Parameters)) -> Hdd {
    let mut parameters = preset(name).parameters;
    change(&mut parameters);
    Hdd::new(parameters).expect(name)
}

/// Keeps `depth` requests in flight until `count` are done. Returns the completions, and each
/// request's latency in the order of tags.
pub(super) fn closed_loop(
    disk: &mut Hdd,
    depth: usize,
    count: usize,
    mut next: impl FnMut(usize) -> (Operation, Extent),
) -> (Vec<Completion>, Vec<u64>) {
    let mut now = Instant(0);
    let mut all = Vec::new();
    let mut done = Vec::new();
    let mut issued = Vec::new();
    loop {
        while issued.len() < count && issued.len() - all.len() < depth {
            let (operation, extent) = next(issued.len());
            let tag = issued.len() as u64;
            issued.push(now);
            disk.submit(now, Request { tag, operation, extent });
        }
        if all.len() == count {
            break;
        }
        let event = disk.next_event();
        assert_ne!(event, Instant::NEVER, "it has stopped with {} of {count} done", all.len());
        now = now.max(event);
        disk.advance(event, &mut done);
        all.append(&mut done);
    }
    let mut latencies = vec![0; count];
    for one in &all {
        latencies[one.tag as usize] = one.at.since(issued[one.tag as usize]);
    }
    (all, latencies)
}

pub(super) fn random(disk: &Hdd, rng: &mut Rng, sectors: u64) -> Extent {
    Extent::new(rng.below((disk.sectors() - sectors) / 8) * 8, sectors)
}

pub(super) fn mean(times: &[u64]) -> f64 {
    times.iter().sum::<u64>() as f64 / times.len() as f64
}

/// Returns the rate in bytes per second.
pub(super) fn rate(completions: &[Completion], bytes: u64) -> f64 {
    let end = completions.iter().map(|one| one.at).max().unwrap_or_default();
    bytes as f64 * 1e9 / end.0 as f64
}
