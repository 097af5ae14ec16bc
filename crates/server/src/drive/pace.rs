//! Samples of the legs' I/O for the judges of [`crate::fail_slow`], and the resulting verdicts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hemi_engine::status::{LegState, LegStatus};

use super::keep::Memory;
use super::{DriveKind, DriveStatus, Drives, LegDrives};
use crate::control::volume::{Phase, Snapshot};
use crate::fail_slow::{Finding, Judge, Sample, Work};

/// Length of a sample.
const SAMPLE_EVERY: Duration = Duration::from_secs(60);
/// Longest sample that counts. If it is longer, the machine slept or this thread hung.
const SAMPLE_MAX: Duration = Duration::from_secs(600);
/// Interval between two writes of the legs' past paces.
const KEEP_EVERY: Duration = Duration::from_secs(3600);

/// A leg under judgement.
#[derive(Debug)]
struct Judged {
    /// The key by which it is recognised after a restart. Another leg in the slot starts anew.
    key: String,
    kind: DriveKind,
    judge: Judge,
}

/// The judges of a volume's legs.
#[derive(Debug)]
pub(super) struct Pace {
    /// The snapshot at the beginning of the next sample.
    base: Option<Arc<Snapshot>>,
    judged: HashMap<u8, Judged>,
    kept: Instant,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { base: None, judged: HashMap::new(), kept: Instant::now() }
    }
}

impl Pace {
    /// Takes a sample if one is due, and publishes the verdicts.
    pub(super) fn look(
        &mut self,
        snapshot: &Arc<Snapshot>,
        drives: &Drives,
        memory: &mut Memory,
        at_ms: u64,
    ) {
        if snapshot.phase != Phase::Serving {
            self.base = None;
            return;
        }
        let Some(base) = &self.base else {
            self.base = Some(Arc::clone(snapshot));
            return;
        };
        let span = snapshot.taken.saturating_duration_since(base.taken);
        if span < SAMPLE_EVERY {
            return;
        }
        let base = Arc::clone(base);
        self.base = Some(Arc::clone(snapshot));
        // Counters restart with the volume.
        if span > SAMPLE_MAX || base.opened != snapshot.opened {
            return;
        }
        self.meet(snapshot, drives, memory);
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let mut findings: Vec<(u8, Finding)> = Vec::new();
        for (slot, judged) in &self.judged {
            if let Some((then, now)) = counters(&base, snapshot, *slot) {
                let sample = sample_of(then, now, judged.kind, at_ms, span_ms);
                findings.push((*slot, judged.judge.look(sample, judged.kind)));
            }
        }
        let slower = findings.iter().filter(|(_, finding)| finding.is_slower_than_before());
        if slower.count() > 1 {
            findings.iter_mut().for_each(|(_, finding)| finding.excuse());
        }
        for (slot, finding) in findings {
            let Some(judged) = self.judged.get_mut(&slot) else { continue };
            if judged.judge.take(finding, judged.kind) {
                announce(slot, &judged.judge, drives);
            }
        }
        let mut known = drives.lock();
        for (slot, judged) in &self.judged {
            if let Some(leg) = known.get_mut(slot) {
                leg.verdict = judged.judge.verdict().cloned();
            }
        }
        drop(known);
        if self.kept.elapsed() >= KEEP_EVERY {
            self.kept = Instant::now();
            for judged in self.judged.values() {
                memory.set_past(&judged.key, judged.judge.past());
            }
        }
    }

    /// Gives a judge to each leg whose drives are known, and a new one to each leg that is new in its slot.
    fn meet(&mut self, snapshot: &Snapshot, drives: &Drives, memory: &Memory) {
        let known = drives.lock();
        self.judged.retain(|slot, _| known.contains_key(slot));
        for identity in snapshot.legs.iter() {
            let Some(leg) = known.get(&identity.leg).filter(|leg| leg.spec == identity.path) else {
                continue;
            };
            let (key, kind) = (key_of(leg), kind_of(&leg.drives));
            let is_same = |judged: &Judged| judged.key == key && judged.kind == kind;
            if !self.judged.get(&identity.leg).is_some_and(is_same) {
                let judge = Judge::new(memory.past(&key));
                self.judged.insert(identity.leg, Judged { key, kind, judge });
            }
        }
    }
}

/// Returns the key by which a leg is recognised: the serial numbers of its drives, else its spec.
fn key_of(leg: &LegDrives) -> String {
    let serials: Option<Vec<&str>> =
        leg.drives.iter().map(|drive| drive.serial.as_deref()).collect();
    match serials {
        Some(serials) if !serials.is_empty() => serials.join("+"),
        _ => leg.spec.clone(),
    }
}

/// Returns the kind that all drives of a leg share.
fn kind_of(drives: &[DriveStatus]) -> DriveKind {
    let mut kinds = drives.iter().map(|drive| drive.kind);
    let first = kinds.next().unwrap_or_default();
    if kinds.all(|kind| kind == first) { first } else { DriveKind::Unknown }
}

/// Returns the counters of a leg that was in at both times.
fn counters<'a>(
    base: &'a Snapshot,
    now: &'a Snapshot,
    slot: u8,
) -> Option<(&'a LegStatus, &'a LegStatus)> {
    let find = |snapshot: &'a Snapshot| {
        let spec = snapshot.legs.iter().find(|leg| leg.leg == slot)?;
        let leg = snapshot.status.legs.iter().find(|leg| leg.leg == slot)?;
        let is_in = matches!(leg.state, LegState::Healthy | LegState::Lagging | LegState::Frozen);
        is_in.then_some((&spec.path, leg))
    };
    let ((path_then, then), (path_now, now)) = (find(base)?, find(now)?);
    let counts_on =
        then.reads.count() <= now.reads.count() && then.writes.count() <= now.writes.count();
    (path_then == path_now && counts_on).then_some((then, now))
}

fn sample_of(
    then: &LegStatus,
    now: &LegStatus,
    kind: DriveKind,
    at_ms: u64,
    span_ms: u64,
) -> Sample {
    let read = now.read_bytes.saturating_sub(then.read_bytes);
    let written = now.written_bytes.saturating_sub(then.written_bytes);
    Sample {
        at_ms,
        span_ms,
        reads: Work::between(&then.reads, &now.reads, read, kind),
        writes: Work::between(&then.writes, &now.writes, written, kind),
    }
}

fn announce(leg: u8, judge: &Judge, drives: &Drives) {
    drives.judge(leg, judge.verdict().cloned());
    match judge.verdict() {
        Some(verdict) => tracing::warn!(leg, verdict = verdict.text, "slower than it should be"),
        None => tracing::info!(leg, "as fast as it should be again"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keep::Memory;
    use super::*;
    use crate::control::volume::{Identity, LegIdentity};

    const MINUTE: Duration = Duration::from_secs(60);
    const MILLISECOND: u64 = 1_000_000;

    /// A volume of two legs whose I/O the test generates.
    struct Made {
        snapshot: Snapshot,
        drives: Drives,
        memory: Memory,
        pace: Pace,
        minutes: u64,
    }

    impl Made {
        fn new(kinds: [DriveKind; 2]) -> Made {
            let path = |leg: usize| format!("/dev/made{leg}");
            let legs = (0..2)
                .map(|leg| LegIdentity { leg: leg as u8, name: path(leg), path: path(leg) })
                .collect();
            let mut snapshot = Snapshot::opening(Identity::default(), legs);
            snapshot.phase = Phase::Serving;
            snapshot.status.legs = (0..2)
                .map(|leg| LegStatus { leg, state: LegState::Healthy, ..Default::default() })
                .collect();
            let drives = Drives::default();
            for (leg, kind) in kinds.into_iter().enumerate() {
                let drive = DriveStatus { kind, ..DriveStatus::default() };
                let known = LegDrives { spec: path(leg), drives: vec![drive], verdict: None };
                drives.lock().insert(leg as u8, known);
            }
            let (memory, pace) = (Memory::at(None), Pace::default());
            let mut made = Made { snapshot, drives, memory, pace, minutes: 0 };
            made.look();
            made
        }

        fn look(&mut self) {
            let snapshot = Arc::new(self.snapshot.clone());
            let at_ms = 1_700_000_000_000 + self.minutes * 60_000;
            self.pace.look(&snapshot, &self.drives, &mut self.memory, at_ms);
        }

        /// Simulates a minute in which each leg completes `count` writes of 4 KiB, each leg with its own
        /// latency.
        fn minute(&mut self, count: u64, latencies: [u64; 2]) {
            for (leg, latency) in self.snapshot.status.legs.iter_mut().zip(latencies) {
                (0..count).for_each(|_| leg.writes.record(latency));
                leg.written_bytes += count * 4096;
            }
            self.snapshot.taken += MINUTE;
            self.minutes += 1;
            self.look();
        }

        fn verdict(&self, leg: u8) -> Option<String> {
            let known = self.drives.lock();
            let verdict = known.get(&leg)?.verdict.as_ref()?;
            Some(verdict.text.clone())
        }
    }

    #[test]
    fn a_leg_that_is_always_slow_is_found_by_its_kind() {
        let mut made = Made::new([DriveKind::Nvme; 2]);
        let mut minutes = 0;
        while made.verdict(1).is_none() {
            made.minute(600, [30_000, 7_200_000]);
            minutes += 1;
            assert!(minutes <= 60, "not found within an hour");
        }
        let text = made.verdict(1).unwrap_or_default();
        assert!(text.contains("answers writes in 7.2 ms, where an NVMe drive takes"), "{text}");
        assert_eq!(made.verdict(0), None);
        let told = made.drives.take_judged();
        assert!(matches!(&told[..], [(1, Some(verdict))] if verdict.text == text), "{told:?}");
        assert!(made.drives.take_judged().is_empty(), "once");
        for _ in 0..60 {
            made.minute(600, [30_000, 30_000]);
        }
        assert_eq!(made.verdict(1), None, "it is well again");
    }

    #[test]
    fn what_slows_both_legs_is_no_legs_fault() {
        let mut made = Made::new([DriveKind::Ssd, DriveKind::Nvme]);
        for _ in 0..60 {
            made.minute(600, [200_000, 100_000]);
        }
        for _ in 0..60 {
            made.minute(600, [5 * MILLISECOND, MILLISECOND]);
        }
        assert_eq!((made.verdict(0), made.verdict(1)), (None, None));
        for _ in 0..20 {
            made.minute(600, [5 * MILLISECOND, 100_000]);
        }
        let text = made.verdict(0).unwrap_or_default();
        assert!(text.contains("under the same load before"), "{text}");
    }

    #[test]
    fn another_leg_in_the_slot_begins_anew() {
        let mut made = Made::new([DriveKind::Nvme; 2]);
        for _ in 0..20 {
            made.minute(600, [30_000, 7_200_000]);
        }
        assert!(made.verdict(1).is_some());
        let mut legs = made.snapshot.legs.to_vec();
        legs[1].path = "/dev/other".into();
        made.snapshot.legs = Arc::new(legs);
        made.snapshot.status.legs[1] =
            LegStatus { leg: 1, state: LegState::Healthy, ..Default::default() };
        let drives = vec![DriveStatus { kind: DriveKind::Nvme, ..DriveStatus::default() }];
        let known = LegDrives { spec: "/dev/other".into(), drives, verdict: None };
        made.drives.lock().insert(1, known);
        made.minute(600, [30_000, 30_000]);
        assert_eq!(made.verdict(1), None);
    }

    #[test]
    fn a_stripe_of_unlike_drives_is_of_no_kind() {
        let drive = |kind| DriveStatus { kind, ..DriveStatus::default() };
        assert_eq!(kind_of(&[]), DriveKind::Unknown);
        assert_eq!(kind_of(&[drive(DriveKind::Hdd), drive(DriveKind::Hdd)]), DriveKind::Hdd);
        assert_eq!(kind_of(&[drive(DriveKind::Hdd), drive(DriveKind::Ssd)]), DriveKind::Unknown);
    }
}
