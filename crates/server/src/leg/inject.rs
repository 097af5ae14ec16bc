//! Faults on demand: a leg that freezes, dawdles or fails, inside a healthy drive.
//!
//! Applied before an I/O reaches the driver. It shows how the engine behaves, not how a drive
//! does; a fault from outside (nbdkit's filters) is the honest proof.

use std::collections::BinaryHeap;

use hemi_core::io::{LegError, LegOperation};
use hemi_core::units::Instant;

use super::ResolvedIo;

/// Longest freeze and largest delay that can be injected, in nanoseconds: one hour.
pub const INJECTION_TIME_MAX: u64 = 3_600_000_000_000;

/// A fault to put on a leg. Each kind replaces its own predecessor only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Nothing submitted from now on is done before this many nanoseconds have passed.
    Freeze(u64),
    /// Every I/O starts this many nanoseconds later; zero ends it.
    Delay(u64),
    /// This many of a thousand reads fail with [`LegError::Media`], without reaching the
    /// drive; zero ends it.
    ReadErrors(u16),
    /// The same of writes, write-zeroes and metadata.
    WriteErrors(u16),
    /// The same of flushes.
    FlushErrors(u16),
    /// Ends all of them; held I/O goes on at once.
    Clear,
}

/// The faults in force on a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectionState {
    /// Nanoseconds the freeze still lasts.
    pub frozen_for: u64,
    /// Added delay, nanoseconds.
    pub delay: u64,
    /// Failing reads, per mille.
    pub reads: u16,
    /// Failing writes, per mille.
    pub writes: u16,
    /// Failing flushes, per mille.
    pub flushes: u16,
    /// I/Os being held back.
    pub held: usize,
}

/// What becomes of an I/O.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Submit,
    Held,
    Fail(LegError),
}

/// An I/O to be submitted later. Ordered by time, then arrival; the earliest is greatest.
#[derive(Debug)]
struct Held {
    due: Instant,
    arrival: u64,
    io: ResolvedIo,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.arrival == other.arrival
    }
}
impl Eq for Held {}
impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (other.due, other.arrival).cmp(&(self.due, self.arrival))
    }
}

/// The faults of one leg.
#[derive(Debug)]
pub(super) struct Injector {
    frozen_until: Instant,
    delay: u64,
    reads: u16,
    writes: u16,
    flushes: u16,
    held: BinaryHeap<Held>,
    arrivals: u64,
    random: u64,
}

impl Injector {
    pub(super) fn new() -> Injector {
        Injector {
            frozen_until: Instant(0),
            delay: 0,
            reads: 0,
            writes: 0,
            flushes: 0,
            held: BinaryHeap::new(),
            arrivals: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    pub(super) fn apply(&mut self, now: Instant, injection: Injection) {
        match injection {
            Injection::Freeze(duration) => {
                self.frozen_until = now + duration.min(INJECTION_TIME_MAX);
            }
            Injection::Delay(delay) => self.delay = delay.min(INJECTION_TIME_MAX),
            Injection::ReadErrors(rate) => self.reads = rate,
            Injection::WriteErrors(rate) => self.writes = rate,
            Injection::FlushErrors(rate) => self.flushes = rate,
            Injection::Clear => {
                self.frozen_until = now;
                self.delay = 0;
                (self.reads, self.writes, self.flushes) = (0, 0, 0);
            }
        }
        self.reschedule(now);
    }

    /// A freeze holds what was already waiting; an end of it lets go.
    fn reschedule(&mut self, now: Instant) {
        let (frozen_until, delay) = (self.frozen_until, self.delay);
        let held = std::mem::take(&mut self.held);
        self.held = held
            .into_iter()
            .map(|held| Held { due: held.due.min(now + delay).max(frozen_until), ..held })
            .collect();
    }

    pub(super) fn state(&self, now: Instant) -> InjectionState {
        InjectionState {
            frozen_for: self.frozen_until.since(now),
            delay: self.delay,
            reads: self.reads,
            writes: self.writes,
            flushes: self.flushes,
            held: self.held.len(),
        }
    }

    pub(super) fn judge(&mut self, now: Instant, io: ResolvedIo) -> Verdict {
        let rate = match io.operation {
            LegOperation::Read => self.reads,
            LegOperation::Flush => self.flushes,
            LegOperation::Write { .. }
            | LegOperation::WriteZeroes { .. }
            | LegOperation::WriteMetadata => self.writes,
        };
        if rate > 0 && self.roll() < u64::from(rate) {
            return Verdict::Fail(LegError::Media);
        }
        let due = (now + self.delay).max(self.frozen_until);
        if due <= now {
            return Verdict::Submit;
        }
        self.held.push(Held { due, arrival: self.arrivals, io });
        self.arrivals += 1;
        Verdict::Held
    }

    /// A number below 1000 (xorshift64).
    fn roll(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    pub(super) fn deadline(&self) -> Instant {
        self.held.peek().map_or(Instant::NEVER, |held| held.due)
    }

    /// The next I/O whose time has come.
    pub(super) fn release(&mut self, now: Instant) -> Option<ResolvedIo> {
        if self.deadline() > now {
            return None;
        }
        self.held.pop().map(|held| held.io)
    }
}

#[cfg(test)]
mod tests {
    use hemi_core::units::IoId;

    use super::*;

    fn io(id: u64) -> ResolvedIo {
        let operation = LegOperation::Flush;
        ResolvedIo { id: IoId(id), operation, offset: 0, length: 0, data: None }
    }

    fn released(injector: &mut Injector, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| injector.release(Instant(now))).map(|io| io.id.0).collect()
    }

    #[test]
    fn a_freeze_holds_everything_and_releases_it_in_order() {
        let mut injector = Injector::new();
        assert!(matches!(injector.judge(Instant(0), io(0)), Verdict::Submit));
        injector.apply(Instant(0), Injection::Freeze(100));
        assert!(matches!(injector.judge(Instant(1), io(1)), Verdict::Held));
        assert!(matches!(injector.judge(Instant(2), io(2)), Verdict::Held));
        assert_eq!(injector.deadline(), Instant(100));
        assert!(released(&mut injector, 99).is_empty());
        assert_eq!(released(&mut injector, 100), [1, 2]);
        assert!(matches!(injector.judge(Instant(100), io(3)), Verdict::Submit));
    }

    #[test]
    fn a_delay_adds_to_each_and_clearing_releases_at_once() {
        let mut injector = Injector::new();
        injector.apply(Instant(0), Injection::Delay(10));
        assert!(matches!(injector.judge(Instant(0), io(1)), Verdict::Held));
        assert!(matches!(injector.judge(Instant(5), io(2)), Verdict::Held));
        assert_eq!(released(&mut injector, 12), [1]);
        injector.apply(Instant(13), Injection::Clear);
        assert_eq!(released(&mut injector, 13), [2]);
        assert_eq!(injector.state(Instant(13)), InjectionState::default());
    }

    #[test]
    fn errors_come_at_their_rate_and_for_their_kind_only() {
        let mut injector = Injector::new();
        injector.apply(Instant(0), Injection::ReadErrors(1000));
        injector.apply(Instant(0), Injection::FlushErrors(250));
        let failed = (0..4000)
            .filter(|id| matches!(injector.judge(Instant(0), io(*id)), Verdict::Fail(_)))
            .count();
        assert!((800..1200).contains(&failed), "{failed} of 4000 at 250 per mille");
        let read = ResolvedIo { operation: LegOperation::Read, ..io(0) };
        assert!(matches!(injector.judge(Instant(0), read), Verdict::Fail(LegError::Media)));
        let write = ResolvedIo { operation: LegOperation::WriteMetadata, ..io(0) };
        assert!(matches!(injector.judge(Instant(0), write), Verdict::Submit));
    }
}
