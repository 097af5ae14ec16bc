use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use hemi_units::Instant;
use hemi_workload::any::AnyWorkload;
use hemi_workload::spec::WorkloadSpec;

use super::{Ready, Schedule};

const ACCESS: &str = "access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                      mix = { read_percent = 50, flush_every = 8 } }";

fn schedule(text: &str, cap: u32) -> Schedule<AnyWorkload> {
    let spec: WorkloadSpec = toml::from_str(&format!("{text}\n{ACCESS}")).expect("a workload");
    Schedule::new(spec.build(1 << 20, 1, Path::new("")).expect("it fits"), cap)
}

/// A request that is done.
#[derive(Clone, Copy, Debug)]
struct Done {
    ready: Ready,
    issued: Instant,
    at: Instant,
}

/// Runs a schedule in virtual time on a target that takes `service` for each request, regardless of
/// their number, under an engine that looks at the clock only every `step` nanoseconds.
fn run(schedule: &mut Schedule<AnyWorkload>, service: u64, step: u64) -> (Vec<Done>, usize) {
    let mut under_way: BinaryHeap<Reverse<(Instant, u32)>> = BinaryHeap::new();
    let mut by_tag: Vec<Option<(Ready, Instant)>> = Vec::new();
    let (mut log, mut most, mut now) = (Vec::new(), 0, Instant(0));
    while !schedule.is_over() {
        let done = under_way.peek().map_or(Instant::NEVER, |Reverse((at, _))| *at);
        let next = done.min(schedule.next_event());
        assert!(next != Instant::NEVER, "not over, but nothing will happen");
        now = Instant(next.max(now).0.next_multiple_of(step));
        schedule.advance(now);
        while let Some(&Reverse((at, tag))) = under_way.peek() {
            if at > now {
                break;
            }
            under_way.pop();
            let (ready, issued) = by_tag[tag as usize].take().expect("it is in flight");
            log.push(Done { ready, issued, at: now });
            schedule.completed(now, tag);
        }
        while let Some(ready) = schedule.take() {
            let tag = ready.issue.tag as usize;
            by_tag.resize(by_tag.len().max(tag + 1), None);
            assert!(by_tag[tag].replace((ready, now)).is_none(), "{tag} is in flight already");
            under_way.push(Reverse((now + service, ready.issue.tag)));
        }
        assert_eq!(schedule.under_way() as usize, under_way.len());
        most = most.max(under_way.len());
    }
    (log, most)
}

#[test]
fn without_a_cap_everything_goes_when_it_was_intended() {
    let mut open = schedule("[open]\nrate = 2000\nduration = \"5 s\"", u32::MAX);
    let (log, _) = run(&mut open, 5_000_000, 1);
    assert!(log.len() > 9_000);
    for done in &log {
        assert_eq!((done.issued, done.ready.due), (done.ready.issue.intended, done.issued));
    }
}

#[test]
fn what_waits_for_the_cap_is_not_late_but_its_wait_is_latency() {
    // 2,000 per second are intended, but 8 at a time of 5 ms each make 1,600.
    let mut open = schedule("[open]\nrate = 2000\nduration = \"5 s\"", 8);
    let (log, most) = run(&mut open, 5_000_000, 1);
    assert_eq!(most, 8);
    assert!(log.iter().all(|done| done.issued == done.ready.due));
    let last = log.last().expect("requests");
    // After 5 s a fifth of the requests is left. The last waits a quarter of 5 s for the others.
    let wait = last.at.since(last.ready.issue.intended);
    assert!((900_000_000..1_500_000_000).contains(&wait), "{wait}");
    // First come, first served, and the same requests as without a cap.
    assert!(log.windows(2).all(|w| w[0].ready.issue.intended <= w[1].ready.issue.intended));
    let mut free = schedule("[open]\nrate = 2000\nduration = \"5 s\"", u32::MAX);
    let (all, _) = run(&mut free, 1, 1);
    let asked = |log: &[Done]| -> Vec<_> {
        log.iter().map(|done| (done.ready.issue.intended, done.ready.issue.extent)).collect()
    };
    assert_eq!(asked(&log), asked(&all));
}

#[test]
fn an_engine_that_sleeps_is_late_by_as_much() {
    let mut open =
        schedule("[open]\nrate = 1000\narrivals = \"fixed\"\nduration = \"2 s\"", u32::MAX);
    let (log, _) = run(&mut open, 1_000, 300_000);
    let late: Vec<u64> = log.iter().map(|done| done.issued.since(done.ready.due)).collect();
    assert!(late.iter().all(|&late| late < 300_000));
    // Intended at every whole millisecond: late by 200, 100 and 0 µs in turn.
    assert_eq!(late.iter().max(), Some(&200_000));
}

#[test]
fn a_full_cap_hides_no_lateness_once_there_is_room_again() {
    // Bursts of 20 go through a cap of 4. Between them the engine is late with every burst.
    let text = "[bursts]\nevery = \"10 ms\"\npages = 20\npage = \"4 KiB\"\n\
                addresses = \"uniform\"\nduration = \"95 ms\"";
    let spec: WorkloadSpec = toml::from_str(text).expect("a workload");
    let workload = spec.build(1 << 20, 1, Path::new("")).expect("it fits");
    let mut bursts = Schedule::new(workload, 4);
    let (log, most) = run(&mut bursts, 10_000, 7_000);
    assert_eq!((log.len(), most), (180, 4));
    for (index, done) in log.iter().enumerate() {
        let late = done.issued.since(done.ready.due);
        // The first four of a burst were due at its time, the rest when a place was seen.
        assert_eq!(late, if index % 20 < 4 { done.issued.0 % 10_000_000 } else { 0 });
    }
}

#[test]
fn a_backlog_of_any_length_stays_with_a_workload_that_knows_the_cap() {
    let text = format!("[open]\nrate = 1e6\nrequests = 300_000\n{ACCESS}");
    let spec: WorkloadSpec = toml::from_str(&text).expect("a workload");
    let mut workload = spec.build(1 << 20, 1, Path::new("")).expect("it fits");
    workload.cap(3);
    let mut open = Schedule::new(workload, 3);
    let (mut most, mut now, mut count) = (0, Instant(0), 0_u64);
    while !open.is_over() {
        now = now + 1_000_000;
        open.advance(now);
        most = most.max(open.waiting());
        while let Some(ready) = open.take() {
            assert!(ready.issue.intended <= now && ready.due <= now);
            count += 1;
            open.completed(now, ready.issue.tag);
            most = most.max(open.waiting());
        }
    }
    assert_eq!(count, 300_000);
    assert!(most <= 3, "{most}");
}

#[test]
fn a_stopped_schedule_ends_with_what_is_under_way() {
    let mut closed = schedule("[closed]\nthreads = 2\nqueue_depth = 4", 6);
    closed.advance(Instant(0));
    let tags: Vec<u32> = std::iter::from_fn(|| closed.take()).map(|r| r.issue.tag).collect();
    assert_eq!((tags.len(), closed.waiting()), (6, 2));
    assert_eq!(closed.stop(), 2);
    assert_eq!(closed.next_event(), Instant::NEVER);
    for tag in tags {
        assert!(!closed.is_over());
        closed.completed(Instant(5), tag);
        assert_eq!(closed.take(), None);
    }
    assert!(closed.is_over());
}
