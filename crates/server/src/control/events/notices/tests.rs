//! Tests of the engine's notices as events.

use hemi_engine::io::LegError;
use hemi_engine::status::LegState;
use hemi_units::Extent;

use super::super::made::snapshot;
use super::*;

const NOW: u64 = 1_700_000_000_000;
const SECOND: u64 = 1_000_000_000;
const HDD: LegIndex = LegIndex(1);

fn noticed(notice: Notice) -> Noticed {
    Noticed { at: hemi_units::Instant(0), notice, errno: None }
}

/// Takes notices at times in milliseconds, then looks once more at `end`. Returns the texts of the events.
fn said(notices: &[(u64, Notice)], end: u64) -> Vec<String> {
    let calm = snapshot(|_| {});
    let mut events = Vec::new();
    let mut of_notices = NoticeEvents::default();
    for &(at, notice) in notices {
        of_notices.take(NOW + at, &noticed(notice), &calm, &calm, &mut events);
    }
    of_notices.tick(NOW + end, &calm, &mut events);
    events.into_iter().map(|event| format!("{} {}", event.kind, event.text)).collect()
}

#[test]
fn a_freeze_says_its_limit_and_who_serves_clients() {
    let before = snapshot(|_| {});
    let after = snapshot(|snapshot| {
        for _ in 0..9 {
            snapshot.status.client_reads.record(1_000_000);
        }
    });
    let (mut of_notices, mut events) = (NoticeEvents::default(), Vec::new());
    let frozen = Notice::Frozen { leg: HDD, limit: 20_000_000 };
    of_notices.take(NOW, &noticed(frozen), &before, &before, &mut events);
    let thawed = Notice::Thawed { leg: HDD, duration: 2 * SECOND };
    of_notices.take(NOW + 2000, &noticed(thawed), &after, &after, &mut events);
    let [freeze, thaw] = &events[..] else { panic!("{events:?}") };
    assert_eq!(
        freeze.text,
        "hdd (leg 1) does not answer: an I/O has taken longer than its limit of 20 ms; clients go on \
         with ssd."
    );
    assert_eq!((freeze.leg, freeze.name.as_deref(), freeze.at), (Some(1), Some("hdd"), NOW));
    assert_eq!(
        thaw.text,
        "hdd (leg 1) answers again after 2 s; meanwhile 9 client requests were answered, the slowest \
         after 1 ms."
    );
    assert_eq!(thaw.values["frozen_ns"], 2 * SECOND);
}

#[test]
fn a_freeze_that_nobody_else_covers_or_that_was_injected_says_so() {
    let alone = snapshot(|snapshot| {
        snapshot.status.legs[0].state = LegState::Gone;
        snapshot.injected.push((1, hemi_io::leg::InjectionState::default()));
    });
    let text = frozen(&alone, HDD, SECOND).text;
    assert!(text.contains("a fault is injected; no other leg answers, so clients wait"), "{text}");
}

#[test]
fn a_leg_that_flaps_is_told_of_in_sum() {
    let flaps = (0..50).flat_map(|index| {
        let at = index * 1000;
        [
            (at, Notice::Frozen { leg: HDD, limit: 20_000_000 }),
            (at + 100, Notice::Thawed { leg: HDD, duration: 100_000_000 }),
        ]
    });
    let texts = said(&flaps.collect::<Vec<_>>(), 61_000);
    assert_eq!(texts.len(), 2 * FREEZES_TOLD as usize + 1, "{texts:?}");
    assert_eq!(
        texts.last().map(String::as_str),
        Some("freeze hdd (leg 1) froze 44 more times within a minute, for 4.4 s in all.")
    );
}

#[test]
fn errors_and_losses_are_told_of_in_sum() {
    let failed = |at, sector| (at, Notice::LegError { leg: HDD, error: LegError::Media, sector });
    let lost = |start| (5, Notice::Lost { extent: Extent { start, end: start + 8 } });
    let texts = said(&[failed(1, 8), failed(2, 16), failed(3, 24), lost(0), lost(8)], 60_001);
    assert_eq!(
        texts,
        [
            "errors An I/O of hdd (leg 1) failed at byte 4096: the medium failed.",
            "lost No leg holds 8 KiB of acknowledged data any more: reading them fails until they are \
             written again.",
            "errors 2 more I/Os of hdd (leg 1) failed within a minute.",
        ]
    );
}

#[test]
fn an_error_is_told_in_the_systems_words() {
    let notice = Notice::LegError { leg: HDD, error: LegError::Other, sector: 0 };
    let failed = Noticed { errno: Some(rustix::io::Errno::STALE), ..noticed(notice) };
    let (calm, mut events) = (snapshot(|_| {}), Vec::new());
    NoticeEvents::default().take(NOW, &failed, &calm, &calm, &mut events);
    let [event] = &events[..] else { panic!("{events:?}") };
    let words = std::io::Error::from(rustix::io::Errno::STALE).to_string();
    assert!(words.contains("116"), "{words}");
    assert_eq!(event.text, format!("An I/O of hdd (leg 1) failed at byte 0: {words}."));
    assert_eq!(event.values["error"], words);
}

#[test]
fn a_rebuild_has_a_beginning_and_an_end_with_its_rate() {
    let joining = (0, Notice::Out { leg: HDD, reason: OutReason::Joining });
    let texts = said(&[joining, joining, (4_000, Notice::In { leg: HDD })], 4_000);
    assert_eq!(
        texts,
        [
            "rebuild The rebuild of hdd (leg 1) began: 1 GiB have to be filled.",
            "rebuild The rebuild of hdd (leg 1) is done: 1 GiB were filled in 4 s, 256 MiB a second.",
        ]
    );
    let out = Notice::Out { leg: HDD, reason: OutReason::Unresponsive };
    let texts = said(&[(0, out), (9, Notice::In { leg: HDD })], 9);
    assert_eq!(
        texts,
        [
            "out hdd (leg 1) is out, because it did not answer for too long; the volume goes on without \
             it.",
            "in hdd (leg 1) is in again: it holds everything.",
        ]
    );
}

#[test]
fn throttling_has_a_beginning_and_an_end() {
    let texts = said(&[(0, Notice::Throttling), (1500, Notice::ThrottlingEnded)], 1500);
    assert!(
        texts[0].starts_with("throttle Writers are slowed down, because exposure"),
        "{texts:?}"
    );
    assert_eq!(texts[1], "throttle-end Writers are no longer slowed down, after 1.5 s.");
}
