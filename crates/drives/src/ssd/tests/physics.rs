//! Tests of the times operations take.

use hemi_units::{Extent, Operation, Rate, Size, Time};

use super::{WRITE, closed, drive, random, sequential};
use crate::drive::Drive;
use crate::preset::Precondition;
use hemi_random::Rng;

const READ: Operation = Operation::Read;

#[test]
fn a_read_takes_the_sum_of_its_parts() {
    let mut drive = drive(|_| {});
    drive.precondition(Precondition::Sequential, 1);
    let mut next = random(&drive, 1, 4096, READ);
    let run = closed(&mut drive, 0, 1, 100, &mut next);
    // Processor 1 us, sense 50, 4 KiB over the channel 20.48 and over the link 4.096, latency
    // 5.
    assert!(run.latencies.iter().all(|&latency| latency == 80_576), "{:?}", run.latencies);
}

#[test]
fn a_write_is_done_when_it_is_in_the_buffer_or_on_flash_without_one() {
    let mut with = drive(|_| {});
    let mut next = sequential(&with, 8192, WRITE);
    let run = closed(&mut with, 0, 1, 10, &mut next);
    // Processor 1 us, link 8.192, latency 5.
    assert_eq!(run.max(), 14_192);
    let mut without = drive(|of| of.write_cache = false);
    let run = closed(&mut without, 0, 1, 10, &mut next);
    // In addition, the page takes 40.96 us over the channel and 500 for its program.
    assert!(run.latencies.iter().all(|&latency| latency == 14_192 + 540_960));
}

#[test]
fn never_written_sectors_and_those_in_the_buffer_are_read_without_flash() {
    let mut drive = drive(|of| of.buffer_hold = Time(1_000_000_000));
    let read = |_| (READ, Extent::new(800, 8));
    let run = closed(&mut drive, 0, 1, 1, &mut { read });
    assert_eq!(run.max(), 1_000 + 4_096 + 5_000);
    let end = closed(&mut drive, run.end, 1, 1, &mut |_| (WRITE, Extent::new(800, 8))).end;
    let run = closed(&mut drive, end, 1, 1, &mut { read });
    assert_eq!(run.max(), 1_000 + 4_096 + 5_000);
}

#[test]
fn a_flush_waits_for_flash_unless_power_loss_does_not_matter() {
    let one_then_flush = |protected: bool| {
        let mut drive = drive(|of| {
            of.power_loss_protection = protected;
            of.flush_time = Time(300_000);
        });
        let mut next = |tag| {
            if tag == 0 {
                (WRITE, Extent::new(0, 8))
            } else {
                (Operation::Flush, Extent::new(0, 0))
            }
        };
        closed(&mut drive, 0, 1, 2, &mut next).latencies[1]
    };
    // The page is programmed half empty: 40.96 us over the channel, 500, 300 for tables.
    assert_eq!(one_then_flush(false), 1_000 + 40_960 + 500_000 + 300_000 + 5_000);
    assert_eq!(one_then_flush(true), 6_000);
}

#[test]
fn a_full_buffer_holds_writes_at_the_speed_of_the_dies() {
    let mut drive = drive(|_| {});
    let mut next = sequential(&drive, 8192, WRITE);
    let run = closed(&mut drive, 0, 64, 6_000, &mut next);
    // Eight dies program 8 KiB each in 540.96 us.
    let dies = 8.0 / 540.96e-6;
    assert!((run.rate(0) / dies - 1.0).abs() < 0.03, "{} of {dies}", run.rate(0));
}

#[test]
fn the_processor_bounds_commands_and_the_link_bytes() {
    let mut drive = drive(|of| {
        of.read_command = Time(100_000);
        of.link_rate = Rate(100_000_000);
    });
    let mut next = random(&drive, 1, 4096, READ);
    let rate = closed(&mut drive, 0, 32, 2_000, &mut next).rate(0);
    assert!((rate / 10_000.0 - 1.0).abs() < 0.02, "{rate}");
    let mut next = random(&drive, 1, 65_536, READ);
    let rate = closed(&mut drive, 1 << 40, 32, 2_000, &mut next).rate(1 << 40) * 65_536.0;
    assert!((rate / 100e6 - 1.0).abs() < 0.02, "{rate}");
}

#[test]
fn a_small_write_into_a_large_unit_costs_the_unit() {
    let coarse = || {
        drive(|of| {
            of.mapping_unit = Size(64 << 10);
            of.buffer = Size(1 << 20);
        })
    };
    let mut large = coarse();
    let mut next = random(&large, 1, 64 << 10, WRITE);
    let whole = closed(&mut large, 0, 32, 3_000, &mut next).rate(0);
    let mut small = coarse();
    small.precondition(Precondition::Sequential, 1);
    let mut next = random(&small, 1, 8192, WRITE);
    let part = closed(&mut small, 0, 32, 3_000, &mut next).rate(0);
    assert!(part < 1.2 * whole, "{part} of 8 KiB, {whole} of 64 KiB a second");
    assert!(small.counters().write_amplification() > 4.0);
    // In order, small writes fill whole units and cost nothing extra.
    let mut ordered = coarse();
    ordered.precondition(Precondition::Sequential, 1);
    let mut next = sequential(&ordered, 8192, WRITE);
    let rate = closed(&mut ordered, 0, 32, 6_000, &mut next).rate(0);
    assert!(rate > 6.0 * whole, "{rate} of 8 KiB in order, {whole} of 64 KiB a second");
}

#[test]
fn log_blocks_program_small_writes_twice() {
    let rate = |log_blocks: bool| {
        let mut drive = drive(|of| {
            // Enough spare that there is hardly any collection.
            of.alpha = 4.0;
            of.mapping_unit = Size(64 << 10);
            of.log_blocks = log_blocks;
        });
        drive.precondition(Precondition::Sequential, 1);
        let mut next = random(&drive, 1, 32 << 10, WRITE);
        closed(&mut drive, 0, 32, 2_000, &mut next).rate(0)
    };
    // Four pages to the log and eight into the unit, instead of eight.
    let (with, without) = (rate(true), rate(false));
    assert!(with < 0.75 * without && with > 0.55 * without, "{with} and {without}");
}

#[test]
fn suspending_programs_lets_reads_through() {
    let worst = |suspend: Option<Time>| {
        let mut drive = drive(|of| {
            of.suspend = suspend;
            of.page_program = vec![Time(5_000_000)];
        });
        drive.precondition(Precondition::Sequential, 1);
        let mut rng = hemi_random::Rng::new(1, 1);
        let mut next = |tag: u64| {
            let extent = Extent::new(rng.below(10_000) * 8, 8);
            (if tag.is_multiple_of(2) { READ } else { WRITE }, extent)
        };
        let run = closed(&mut drive, 0, 4, 2_000, &mut next);
        run.latencies.iter().step_by(2).sum::<u64>() / 1_000
    };
    let (with, without) = (worst(Some(Time(10_000))), worst(None));
    assert!(with * 3 < without, "{with} and {without} ns");
}

#[test]
fn a_table_that_is_not_in_memory_costs_reads() {
    let mean = |map_cache: Option<Size>| {
        let mut drive = drive(|of| of.map_cache = map_cache);
        drive.precondition(Precondition::Sequential, 1);
        let mut next = random(&drive, 1, 4096, READ);
        closed(&mut drive, 0, 1, 2_000, &mut next).mean()
    };
    // The table has sixteen pages; with one in memory nearly every read waits for another.
    let (all, one) = (mean(Some(Size(64 << 10))), mean(Some(Size(4096))));
    assert!((mean(None) - 80_576.0).abs() < 1.0);
    assert!(all < 84_000.0, "{all}");
    assert!(one > 140_000.0 && one < 152_000.0, "{one}");
}

#[test]
fn energy_is_rest_and_what_the_dies_do() {
    let mut idle = drive(|_| {});
    idle.advance(hemi_units::Instant(2_000_000_000), &mut Vec::new());
    assert!((idle.counters().energy - 2.0).abs() < 1e-9);
    let mut busy = drive(|_| {});
    let mut next = sequential(&busy, 8192, WRITE);
    let run = closed(&mut busy, 0, 64, 6_000, &mut next);
    let watts = busy.counters().energy / (run.end as f64 * 1e-9);
    assert!((watts - 3.0).abs() < 0.1, "{watts}");
}

#[test]
fn reads_wait_behind_writes_for_the_processor_unless_they_overtake() {
    let read_after_writes = |overtake: bool| {
        let mut drive = drive(|of| {
            of.write_command = Time(100_000);
            of.reads_overtake = overtake;
        });
        let mut next = |tag| {
            if tag < 20 { (WRITE, Extent::new(tag * 8, 8)) } else { (READ, Extent::new(80_000, 8)) }
        };
        let run = closed(&mut drive, 0, 21, 21, &mut next);
        (run.latencies[20], run.end)
    };
    let (behind, end) = read_after_writes(false);
    let (ahead, same_end) = read_after_writes(true);
    // Twenty writes of 0.1 ms before it, or none: 1 us, 4.096 over the link and 5.
    assert_eq!((behind, ahead), (2_000_000 + 10_096, 10_096));
    assert!(same_end <= end, "the work is the same");
}

#[test]
fn a_drive_with_a_command_under_way_draws_more_than_at_rest() {
    let joules = |active: Option<f64>| {
        let mut drive = drive(|of| {
            of.read_latency = Time(1_000_000);
            of.power_active = active.map(hemi_units::Power);
        });
        let read = |_| (READ, Extent::new(0, 8));
        let end = closed(&mut drive, 0, 1, 1_000, &mut { read }).end;
        let mut done = Vec::new();
        // Idle for the same time again.
        drive.advance(hemi_units::Instant(2 * end), &mut done);
        drive.counters().energy / (end as f64 / 1e9)
    };
    // No die works, since nothing was ever written.
    assert!((joules(None) - 2.0).abs() < 0.01);
    assert!((joules(Some(4.0)) - 5.0).abs() < 0.01);
}

#[test]
fn a_small_durable_write_ends_beside_whole_units_that_go_on_coming() {
    let mut drive = drive(|of| {
        of.mapping_unit = Size(64 << 10);
        of.buffer = Size(1 << 20);
    });
    let places = drive.sectors() / 128;
    let mut rng = Rng::new(3, 9);
    let run = closed(&mut drive, 0, 32, 6_000, &mut |index| {
        if index == 100 {
            return (Operation::Write { fua: true }, Extent::new(8, 8));
        }
        (WRITE, Extent::new((1 + rng.below(places - 1)) * 128, 128))
    });
    let mut usual = run.latencies.clone();
    usual.sort_unstable();
    let median = usual[usual.len() / 2];
    assert!(run.latencies[100] < 20 * median, "{} of {median}", run.latencies[100]);
}
