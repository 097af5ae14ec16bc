//! Tests of a drive that leaves its bus while the arm works.

use hemi_units::{Extent, Instant, Operation, Rate, Time};

use super::{READ, WRITE, disk};
use crate::drive::{Drive, Request};
use crate::hdd::Hdd;
use crate::hdd::bus::{Bus, Disconnection, SplitWrites};
use crate::hdd::parameters::{Overhead, Parameters};

/// Returns the time in nanoseconds of a request alone, a second after the one before.
fn alone(disk: &mut Hdd, at: &mut Instant, operation: Operation, extent: Extent) -> u64 {
    let mut done = Vec::new();
    *at = *at + 1_000_000_000;
    disk.advance(*at, &mut done);
    done.clear();
    disk.submit(*at, Request { tag: 1, operation, extent });
    while done.is_empty() {
        let next = disk.next_event();
        disk.advance(next, &mut done);
    }
    done[0].at.since(*at)
}

fn overhead(micros: u64) -> Overhead {
    Overhead { after_read: Time::micros(micros), after_write: Time::micros(micros) }
}

/// A disk without caches whose commands take no time by themselves.
fn plain(change: impl FnOnce(&mut Parameters)) -> Hdd {
    disk("wd-1tb-2009", |of| {
        of.overheads = crate::hdd::parameters::Overheads::default();
        of.write_cache.enabled = false;
        of.access_on_arrival = false;
        of.read_cache.keeps_passing_sectors = false;
        change(of);
    })
}

#[test]
fn leaving_the_bus_costs_the_way_back_and_the_rest_of_the_transfer() {
    let slow = Rate(2_560_000);
    let far = Extent::new(1_000_000, 10);
    let mut at = Instant(0);
    let on_wire = alone(&mut plain(|of| of.host_rate = slow), &mut at, READ, far);
    let with = |watermark: f64| {
        let mut leaving = plain(|of| {
            of.host_rate = slow;
            of.bus = Bus {
                data_preparation: Time::micros(20),
                read_completion: Time::micros(50),
                disconnection: Some(Disconnection {
                    after_read_command: overhead(30),
                    reselection: Time::micros(160),
                    read_watermark: watermark,
                    ..Disconnection::default()
                }),
                ..Bus::default()
            };
        });
        alone(&mut leaving, &mut Instant(0), READ, far)
    };
    // The bus takes 0.2 ms a sector and the medium far less: it ends as long after its beginning
    // in every case.
    assert_eq!(with(0.0), on_wire + 230_000);
    // With the watermark at the end, the transfer begins nine sectors later.
    let nine_sectors = with(1.0) - with(0.0);
    assert!((20_000..50_000).contains(&nine_sectors), "{nine_sectors}");
}

#[test]
fn a_read_from_the_cache_does_not_leave_the_bus() {
    let mut leaving = plain(|of| {
        of.bus.data_preparation = Time::micros(20);
        let rules = Disconnection { reselection: Time::millis(5), ..Disconnection::default() };
        of.bus.disconnection = Some(rules);
    });
    let mut at = Instant(0);
    alone(&mut leaving, &mut at, READ, Extent::new(1_000_000, 10));
    let hit = alone(&mut leaving, &mut at, READ, Extent::new(1_000_010, 10));
    assert_eq!(hit, 20_000 + 10 * 512 * 1_000_000_000 / 300_000_000 / 1_000 * 1_000 + 66);
}

#[test]
fn a_write_is_reported_after_the_bus_is_taken_again() {
    let far = Extent::new(1_000_000, 8);
    let time = |bus: Bus| alone(&mut plain(|of| of.bus = bus), &mut Instant(0), WRITE, far);
    let on_wire = time(Bus::default());
    let rules = Disconnection {
        after_write_data: Time::micros(165),
        reselection: Time::micros(160),
        ..Disconnection::default()
    };
    let write_completion = Time::micros(50);
    let left = time(Bus { write_completion, disconnection: Some(rules), ..Bus::default() });
    assert_eq!(left, on_wire + 210_000);
}

#[test]
fn only_a_write_behind_another_that_it_does_not_continue_is_split() {
    let split = SplitWrites { pause: Time::millis(40), ..SplitWrites::default() };
    let rules = Disconnection { split_writes: Some(split), ..Disconnection::default() };
    let mut disk = plain(|of| of.bus.disconnection = Some(rules));
    let mut at = Instant(0);
    // Its data is late by more than the longest seek and two revolutions.
    let mut is_split =
        |operation, start| alone(&mut disk, &mut at, operation, Extent::new(start, 8)) > 40_000_000;
    assert!(!is_split(WRITE, 1_000_000), "behind nothing");
    assert!(is_split(WRITE, 5_000_000), "behind a write");
    assert!(!is_split(WRITE, 5_000_008), "goes on");
    assert!(!is_split(READ, 9_000_000), "a read");
    assert!(!is_split(WRITE, 1_000_000), "behind a read");
}

#[test]
fn a_write_to_the_track_under_the_head_waits_for_the_least_movement() {
    let here = Extent::new(0, 8);
    let least = Time::millis(3);
    let free = alone(&mut plain(|_| ()), &mut Instant(0), WRITE, here);
    let held = alone(&mut plain(|of| of.least_write_seek = least), &mut Instant(0), WRITE, here);
    // Until the sector comes by again, if that is within the wait.
    let turn = 60_000_000_000 / 7_200;
    assert!(held == free || held.abs_diff(free + turn) < 1_000, "{free} {held}");
    assert!(held >= least.0);
}
