//! Tests of the count of hidden stall time.

use super::*;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

fn volume() -> Status {
    let leg = |leg| LegStatus {
        leg,
        state: LegState::Healthy,
        read_wait_limit: 20 * MILLISECOND,
        write_wait_limit: 20 * MILLISECOND,
        longest_wait_limit: 40 * MILLISECOND,
        ..LegStatus::default()
    };
    Status { legs: vec![leg(0), leg(1)], ..Status::default() }
}

/// Takes seconds, to each of which a change is applied, and returns the stall time that each adds.
fn counted(seconds: &[&dyn Fn(&mut Status)]) -> Vec<u64> {
    let mut hidden = Hidden::default();
    let mut now = volume();
    let take = |change: &&dyn Fn(&mut Status)| {
        let before = now.clone();
        change(&mut now);
        hidden.take(&before, &now, SECOND, 0)
    };
    seconds.iter().map(take).collect()
}

fn served(status: &mut Status, latency: u64) {
    status.client_writes.record(latency);
}

#[test]
fn a_freeze_is_hidden_while_clients_are_served() {
    let frozen = |status: &mut Status| {
        status.legs[1].frozen_time += 300 * MILLISECOND;
        served(status, MILLISECOND);
    };
    let alone = |status: &mut Status| status.legs[1].frozen_time += 300 * MILLISECOND;
    let calm = |status: &mut Status| served(status, MILLISECOND);
    assert_eq!(counted(&[&frozen, &alone, &calm]), [300 * MILLISECOND, 0, 0]);
}

#[test]
fn what_clients_waited_is_not_hidden() {
    let stalled = |status: &mut Status| {
        status.legs[1].frozen_time += 900 * MILLISECOND;
        served(status, 500 * MILLISECOND);
    };
    let counted = counted(&[&stalled])[0];
    // The bucket of 500 ms begins at 470 ms, of which 20 ms are the wait limit.
    assert!((420 * MILLISECOND..=520 * MILLISECOND).contains(&counted), "{counted}");
}

#[test]
fn two_legs_that_stall_at_once_count_once() {
    let both = |status: &mut Status| {
        status.legs[0].frozen_time += 200 * MILLISECOND;
        status.legs[1].frozen_time += 500 * MILLISECOND;
        served(status, MILLISECOND);
    };
    assert_eq!(counted(&[&both]), [500 * MILLISECOND]);
}

#[test]
fn a_late_request_counts_beyond_the_limit_and_once() {
    let late = |status: &mut Status| {
        status.legs[1].writes.record(700 * MILLISECOND);
        served(status, MILLISECOND);
    };
    let calm = |status: &mut Status| served(status, MILLISECOND);
    let after = counted(&[&calm, &late, &late, &calm]);
    assert_eq!(after[0], 0);
    assert!((500 * MILLISECOND..=660 * MILLISECOND).contains(&after[1]), "{after:?}");
    assert!(after[1] + after[2] <= 2 * SECOND && after[3] == 0, "{after:?}");
    // A latency within the limits of larger requests does not count.
    let usual = |status: &mut Status| {
        status.legs[1].writes.record(39 * MILLISECOND);
        served(status, MILLISECOND);
    };
    assert_eq!(counted(&[&usual]), [0]);
}

#[test]
fn io_that_comes_back_after_a_freeze_is_not_counted_again() {
    let frozen = |status: &mut Status| {
        status.legs[1].frozen_time += SECOND;
        served(status, MILLISECOND);
    };
    let back = |status: &mut Status| {
        status.legs[1].writes.record(SECOND);
        served(status, MILLISECOND);
    };
    assert_eq!(counted(&[&frozen, &back]), [SECOND, 0]);
}

#[test]
fn a_leg_that_is_out_hides_nothing() {
    let out = |status: &mut Status| {
        status.legs[1].state = LegState::Out;
        status.legs[1].frozen_time += SECOND;
        served(status, MILLISECOND);
    };
    assert_eq!(counted(&[&out]), [0]);
}

#[test]
fn days_weeks_and_the_total_go_by_the_hour_and_outlive_a_restart() {
    let mut hidden = Hidden::default();
    for hour in 0..200 {
        hidden.add(hour * HOUR_MS, 10);
    }
    let figures = hidden.figures(199 * HOUR_MS);
    assert_eq!(figures, HiddenStall { day_ns: 240, week_ns: 1680, total_ns: 2000 });
    assert_eq!(hidden.hours.len() as u64, HOURS);

    let kept: Vec<Hour> = hidden.hours.iter().copied().collect();
    let again: Vec<Hour> =
        kept.iter().map(|hour| Hour::decode(&hour.encode()).expect("24 bytes")).collect();
    assert_eq!(kept, again);
    let mut next = Hidden::default();
    next.add(199 * HOUR_MS, 5);
    next.restore(&kept);
    let figures = next.figures(199 * HOUR_MS);
    assert_eq!(figures, HiddenStall { day_ns: 245, week_ns: 1685, total_ns: 2005 });
    assert_eq!(next.newest().map(|hour| hour.total), Some(2005));
    assert!(Hour::decode(&[0; 23]).is_none() && Hour::decode(&[0; 32]).is_none());
}
