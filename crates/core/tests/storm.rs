//! Storms: everything at once, seed by seed. See `world/storm.rs`.

mod world;

use world::runner::seeds;
use world::storm::{Weather, storm};

fn storms(default: u64, weather: Weather) {
    for seed in seeds(default) {
        let legs = 2 + (seed % 3) as usize;
        let result = std::panic::catch_unwind(|| storm(seed, legs, weather));
        if let Err(cause) = result {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

#[test]
fn freezes_and_restarts() {
    storms(40, Weather { scrub: true, ..Weather::default() });
}

#[test]
fn errors() {
    storms(40, Weather { errors: true, scrub: true, ..Weather::default() });
}

#[test]
fn flush_errors() {
    storms(40, Weather { flush_errors: true, caches: true, ..Weather::default() });
}

#[test]
fn sessions() {
    storms(40, Weather { gone: true, ..Weather::default() });
}

#[test]
fn caches() {
    storms(40, Weather { gone: true, caches: true, ..Weather::default() });
}

#[test]
fn removals() {
    storms(40, Weather { gone: true, removed: true, ..Weather::default() });
}

#[test]
fn members() {
    storms(40, Weather { members: true, scrub: true, ..Weather::default() });
}

#[test]
fn policies() {
    storms(40, Weather { policies: true, ..Weather::default() });
}

#[test]
fn blocks() {
    storms(40, Weather { blocks: true, errors: true, scrub: true, ..Weather::default() });
}

#[test]
fn promotions() {
    storms(40, Weather { promotions: true, ..Weather::default() });
}

#[test]
fn rot() {
    storms(40, Weather { rot: true, ..Weather::default() });
}

#[test]
fn everything() {
    let weather = Weather {
        errors: true,
        flush_errors: true,
        gone: true,
        caches: true,
        removed: true,
        members: true,
        scrub: false,
        blocks: false,
        policies: true,
        promotions: false,
        rot: false,
        keen: false,
    };
    storms(60, weather);
}
