//! Fault injection: a leg on a healthy drive freezes, slows down, stalls or fails.
//!
//! Faults apply before an I/O reaches the driver. They show the behaviour of the engine and not
//! that of a drive. For that, inject faults from outside, for example with nbdkit's filters.

use std::collections::BinaryHeap;

use hemi_engine::io::{LegError, LegOperation};
use hemi_stalls::{Kind, Progress, Schedule, Stalls};
use hemi_units::Instant;

use super::ResolvedIo;

/// Longest freeze and largest delay that can be injected, in nanoseconds: one hour.
pub const INJECTION_TIME_MAX: u64 = 3_600_000_000_000;

/// A fault to put on a leg. Each kind replaces only its own predecessor.
#[derive(Clone, Debug, PartialEq)]
pub enum Injection {
    /// Holds everything submitted from now on until this many nanoseconds have passed.
    Freeze(u64),
    /// Delays the start of every I/O by this many nanoseconds. Zero ends the delay.
    Delay(u64),
    /// Delays shares of the reads, and of the writes and all other I/O, by the phases of a
    /// schedule. I/O held by an earlier schedule keeps its time.
    Stall {
        /// The schedule, which begins now.
        schedule: Schedule,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Fails this many of a thousand reads with [`LegError::Media`] before they reach the
    /// drive. Zero ends it.
    ReadErrors(u16),
    /// Likewise for writes, write-zeroes and metadata.
    WriteErrors(u16),
    /// Likewise for flushes.
    FlushErrors(u16),
    /// Ends all faults. Held I/O continues at once.
    Clear,
}

/// The faults in force on a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectionState {
    /// Time the freeze still lasts, in nanoseconds.
    pub frozen_for: u64,
    /// Added delay, in nanoseconds.
    pub delay: u64,
    /// The schedule of stalls, until it is replaced or cleared.
    pub stalls: Option<Progress>,
    /// Failing reads, per mille.
    pub reads: u16,
    /// Failing writes, per mille.
    pub writes: u16,
    /// Failing flushes, per mille.
    pub flushes: u16,
    /// Number of I/Os held back.
    pub held: usize,
}

/// The decision on an I/O.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Submit,
    Held,
    Fail(LegError),
}

/// An I/O to submit later. Ordered by time, then arrival. The earliest is greatest.
#[derive(Debug)]
struct Held {
    due: Instant,
    /// The time it would be due without a freeze or a stall.
    delayed: Instant,
    /// Duration of its stall in nanoseconds.
    stall: u64,
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
    stalls: Option<Stalls>,
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
            stalls: None,
            reads: 0,
            writes: 0,
            flushes: 0,
            held: BinaryHeap::new(),
            arrivals: 0,
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    pub(super) fn apply(&mut self, now: Instant, injection: Injection) {
        let clears = injection == Injection::Clear;
        match injection {
            Injection::Freeze(duration) => {
                self.frozen_until = now + duration.min(INJECTION_TIME_MAX);
            }
            Injection::Delay(delay) => self.delay = delay.min(INJECTION_TIME_MAX),
            Injection::Stall { schedule, seed } => {
                self.stalls = Some(Stalls::new(schedule, seed, now));
            }
            Injection::ReadErrors(rate) => self.reads = rate,
            Injection::WriteErrors(rate) => self.writes = rate,
            Injection::FlushErrors(rate) => self.flushes = rate,
            Injection::Clear => {
                self.frozen_until = now;
                self.delay = 0;
                self.stalls = None;
                (self.reads, self.writes, self.flushes) = (0, 0, 0);
            }
        }
        self.reschedule(now, clears);
    }

    /// Recomputes the times of held I/O after a change. A freeze also holds I/O that was
    /// already waiting, and the end of a freeze or a delay releases it. Stalls end early only
    /// if everything is cleared (`clears`).
    fn reschedule(&mut self, now: Instant, clears: bool) {
        let (frozen_until, delay) = (self.frozen_until, self.delay);
        let held = std::mem::take(&mut self.held);
        let reschedule = |held: Held| {
            let delayed = held.delayed.min(now + delay);
            let stall = if clears { 0 } else { held.stall };
            Held { due: (delayed + stall).max(frozen_until), delayed, stall, ..held }
        };
        self.held = held.into_iter().map(reschedule).collect();
    }

    pub(super) fn state(&self, now: Instant) -> InjectionState {
        InjectionState {
            frozen_for: self.frozen_until.since(now),
            delay: self.delay,
            stalls: self.stalls.as_ref().map(|stalls| stalls.progress(now)),
            reads: self.reads,
            writes: self.writes,
            flushes: self.flushes,
            held: self.held.len(),
        }
    }

    pub(super) fn judge(&mut self, now: Instant, io: ResolvedIo) -> Verdict {
        let (rate, kind) = match io.operation {
            LegOperation::Read => (self.reads, Kind::Read),
            LegOperation::Flush => (self.flushes, Kind::Write),
            LegOperation::Write { .. }
            | LegOperation::WriteZeroes { .. }
            | LegOperation::WriteMetadata => (self.writes, Kind::Write),
        };
        if rate > 0 && self.roll() < u64::from(rate) {
            return Verdict::Fail(LegError::Media);
        }
        let delayed = now + self.delay;
        let stall = self.stalls.as_mut().map_or(0, |stalls| stalls.draw(now, kind));
        let due = (delayed + stall).max(self.frozen_until);
        if due <= now {
            return Verdict::Submit;
        }
        self.held.push(Held { due, delayed, stall, arrival: self.arrivals, io });
        self.arrivals += 1;
        Verdict::Held
    }

    /// Returns a pseudo-random number below 1000 (xorshift64).
    fn roll(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    pub(super) fn deadline(&self) -> Instant {
        self.held.peek().map_or(Instant::NEVER, |held| held.due)
    }

    /// Returns the next I/O that is due.
    pub(super) fn release(&mut self, now: Instant) -> Option<ResolvedIo> {
        if self.deadline() > now {
            return None;
        }
        self.held.pop().map(|held| held.io)
    }
}

#[cfg(test)]
mod tests {
    use hemi_engine::identifiers::IoId;
    use hemi_stalls::{Delays, Phase, Share};

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

    fn stall(reads: u32, writes: u32, delay: u64, length: Option<u64>) -> Injection {
        let (reads, writes) = (Share::per_mille(reads), Share::per_mille(writes));
        let phase = Phase { reads, writes, delays: Delays::Fixed(delay), length };
        Injection::Stall { schedule: Schedule::new(vec![phase]).expect("it is right"), seed: 7 }
    }

    fn read(id: u64) -> ResolvedIo {
        ResolvedIo { operation: LegOperation::Read, ..io(id) }
    }

    #[test]
    fn what_stalls_holds_up_nothing_else() {
        let mut injector = Injector::new();
        injector.apply(Instant(0), stall(0, 1000, 50, Some(20)));
        assert!(matches!(injector.judge(Instant(1), io(1)), Verdict::Held));
        assert!(matches!(injector.judge(Instant(2), read(2)), Verdict::Submit));
        assert!(matches!(injector.judge(Instant(19), io(3)), Verdict::Held));
        assert!(matches!(injector.judge(Instant(20), io(4)), Verdict::Submit), "the phase is over");
        assert!(released(&mut injector, 50).is_empty());
        assert_eq!(released(&mut injector, 51), [1], "its own time after it came, no longer");
        assert_eq!(released(&mut injector, 69), [3]);
        let stalls = injector.state(Instant(69)).stalls.expect("it is still shown");
        assert_eq!((stalls.seed, stalls.phase), (7, None));
        assert_eq!((stalls.reads.seen, stalls.reads.stalled), (1, 0));
        assert_eq!((stalls.writes.seen, stalls.writes.stalled), (2, 2));
    }

    #[test]
    fn only_clearing_ends_a_stall_early() {
        let mut injector = Injector::new();
        injector.apply(Instant(0), Injection::Delay(10));
        injector.apply(Instant(0), stall(0, 1000, 50, None));
        assert!(matches!(injector.judge(Instant(0), io(1)), Verdict::Held));
        assert_eq!(injector.deadline(), Instant(60), "delays and stalls add up");
        injector.apply(Instant(5), Injection::Delay(0));
        assert_eq!(injector.deadline(), Instant(55), "the delay ends, the stall does not");
        injector.apply(Instant(6), stall(0, 0, 0, None));
        assert_eq!(injector.deadline(), Instant(55));
        injector.apply(Instant(7), Injection::Freeze(100));
        assert_eq!(injector.deadline(), Instant(107));
        injector.apply(Instant(8), Injection::Clear);
        assert_eq!(released(&mut injector, 8), [1]);
        assert_eq!(injector.state(Instant(8)), InjectionState::default());
    }

    #[test]
    fn the_same_seed_stalls_the_same_requests() {
        let chosen = || {
            let mut injector = Injector::new();
            injector.apply(Instant(0), stall(300, 0, 50, None));
            (0..2000)
                .filter(|id| matches!(injector.judge(Instant(0), read(*id)), Verdict::Held))
                .collect::<Vec<u64>>()
        };
        let first = chosen();
        assert!((500..700).contains(&first.len()), "{} of 2000 at 0.3", first.len());
        assert_eq!(first, chosen());
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
