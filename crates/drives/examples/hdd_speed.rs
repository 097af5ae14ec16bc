//! Measures the speed of the hard disk model: simulated requests per second, 4 KiB at random,
//! queue depth 32.

use std::time::Instant as Clock;

use hemi_drives::drive::{Drive, Request};
use hemi_drives::hdd::Hdd;
use hemi_drives::hdd::parameters::Parameters;
use hemi_random::Rng;
use hemi_units::{Extent, Instant, Operation};

const REQUESTS: u64 = 2_000_000;

fn parameters(name: &str) -> Result<Parameters, Box<dyn std::error::Error>> {
    let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let preset: toml::Table = std::fs::read_to_string(path)?.parse()?;
    let parameters = preset.get("parameters").ok_or("no [parameters]")?.clone();
    Ok(parameters.try_into()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = ["wd-1tb-2009", "cheetah-15k5-300gb", "hdd-20tb", "smr-hdd"];
    let asked = std::env::args().nth(1);
    for name in names.into_iter().filter(|name| asked.as_deref().is_none_or(|word| word == *name)) {
        for reads in [100_u64, 70, 0] {
            let mut disk = Hdd::new(parameters(name)?)?;
            let mut rng = Rng::new(1, 0);
            let (mut now, mut done, mut ended) = (Instant(0), Vec::new(), 0);
            let begun = Clock::now();
            let issue = |disk: &mut Hdd, rng: &mut Rng, now| {
                let extent = Extent::new(rng.below(disk.sectors() / 8 - 1) * 8, 8);
                let read = rng.below(100) < reads;
                let operation =
                    if read { Operation::Read } else { Operation::Write { fua: false } };
                disk.submit(now, Request { tag: 0, operation, extent });
            };
            for _ in 0..32 {
                issue(&mut disk, &mut rng, now);
            }
            while ended < REQUESTS {
                now = disk.next_event();
                disk.advance(now, &mut done);
                ended += done.len() as u64;
                for _ in done.drain(..) {
                    issue(&mut disk, &mut rng, now);
                }
            }
            let took = begun.elapsed().as_secs_f64();
            println!(
                "{name:<20} {reads:>3} % reads: {:>5.2} million requests a second; the disk: {:.0} a second",
                ended as f64 / took / 1e6,
                ended as f64 * 1e9 / now.0 as f64
            );
        }
    }
    Ok(())
}
