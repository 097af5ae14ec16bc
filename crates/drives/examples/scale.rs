//! Measures how far the capacity of a flash preset can be divided before its speed changes:
//! write amplification and requests per second under random overwrites of 4 KiB in steady
//! state, for every divisor from the first one that fits in memory.
//!
//! `cargo run --release -p hemi-drives --example scale [PRESET ...]`

use hemi_drives::drive::{Counters, Drive, Request};
use hemi_drives::preset::{Model, Precondition, Preset};
use hemi_drives::ssd::{Parameters, Ssd};
use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};

/// The most units of the largest drive simulated.
const UNITS_MOST: u64 = 16 << 20;
const QUEUE_DEPTH: usize = 32;
/// The fewest writes measured, for drives of few units.
const WRITES_LEAST: u64 = 1_000_000;
const BLOCK_SECTORS: u64 = 8;

/// The figures of one drive.
struct Figures {
    amplification: f64,
    writes_per_second: f64,
}

/// Keeps a number of writes in flight until `count` have ended.
fn overwrite(drive: &mut Ssd, now: &mut Instant, rng: &mut Rng, in_flight: &mut usize, count: u64) {
    let places = drive.sectors() / BLOCK_SECTORS;
    let mut done = Vec::new();
    let mut ended = 0;
    while ended < count {
        while *in_flight < QUEUE_DEPTH {
            let extent = Extent::new(rng.below(places) * BLOCK_SECTORS, BLOCK_SECTORS);
            let operation = Operation::Write { fua: false };
            drive.submit(*now, Request { tag: 0, operation, extent });
            *in_flight += 1;
        }
        *now = drive.next_event();
        drive.advance(*now, &mut done);
        *in_flight -= done.len();
        ended += done.len() as u64;
        done.clear();
    }
}

fn measure(parameters: &Parameters) -> Result<Figures, Box<dyn std::error::Error>> {
    let mut drive = Ssd::new(parameters, 1)?;
    drive.precondition(Precondition::Steady, 1);
    let count = (drive.sectors() / BLOCK_SECTORS / 2).max(WRITES_LEAST);
    let (mut now, mut rng, mut in_flight) = (Instant(0), Rng::new(2, 0), 0);
    overwrite(&mut drive, &mut now, &mut rng, &mut in_flight, count);
    let (since, before): (Instant, Counters) = (now, drive.counters());
    overwrite(&mut drive, &mut now, &mut rng, &mut in_flight, count);
    let counters = drive.counters().since(&before);
    Ok(Figures {
        amplification: counters.write_amplification(),
        writes_per_second: count as f64 * 1e9 / now.since(since) as f64,
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    println!("preset                          scale  lanes    data   spare      WA         IOPS");
    for name in Preset::names() {
        let preset = Preset::built_in(name)?;
        let Model::Ssd(parameters) = preset.model else { continue };
        if !asked.is_empty() && !asked.iter().any(|word| word == name) {
            continue;
        }
        let mut parameters = *parameters;
        parameters.scale = 1;
        while parameters.capacity.0 / u64::from(parameters.scale) / parameters.mapping_unit.0
            > UNITS_MOST
        {
            parameters.scale *= 2;
        }
        let mut largest = None;
        while parameters.check().is_ok() {
            let shape = parameters.shape();
            let figures = measure(&parameters)?;
            let first = largest.get_or_insert((figures.amplification, figures.writes_per_second));
            let lanes = f64::from(shape.lanes);
            let data = f64::from(shape.units) / f64::from(shape.slots) / lanes;
            let kept = f64::from(parameters.collection_start);
            let spare = f64::from(shape.blocks) / lanes - kept - data;
            println!(
                "{name:<30} {:>6} {:>6} {data:>7.1} {spare:>7.2} {:>7.3} {:>+6.1} % {:>8.0} {:>+6.1} %",
                parameters.scale,
                shape.lanes,
                figures.amplification,
                100.0 * (figures.amplification / first.0 - 1.0),
                figures.writes_per_second,
                100.0 * (figures.writes_per_second / first.1 - 1.0),
            );
            parameters.scale *= 2;
        }
    }
    Ok(())
}
