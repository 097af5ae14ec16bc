//! The pace of a leg: its latency histories, the limits that follow, and what of it is usual.

use crate::engine::state::leg::watch::Late;
use crate::histogram::LatencyHistogram;
use crate::settings::Settings;
use hemi_units::{Instant, MICROSECOND, MILLISECOND, SECOND};

/// The wait limit of a leg with too little history to judge by.
const LIMIT_UNKNOWN: u64 = 250 * MILLISECOND;
/// Latencies needed before a leg's own quantile counts.
const HISTORY_MIN: u64 = 64;
/// Latencies from which on the wait limit follows the largest seen, generously.
const HISTORY_SOME: u64 = 8;
const SOME_MULTIPLE: u64 = 10;
/// The least such a first guess may be.
const LIMIT_GUESSED_MIN: u64 = 40 * MILLISECOND;
/// The usual latency is the median of at least this many …
const USUAL_MIN: u64 = 16;
/// … and of this many background ticks: of half a second.
const USUAL_TICKS: u32 = 5;
/// Ticks after which it is no longer current.
const USUAL_CURRENT_TICKS: u32 = 20;
/// Latencies after which the recent history is halved.
const HISTORY_FADE: u64 = 20_000;
/// I/O up to this many sectors is small; larger I/O has a history of its own.
const SMALL_SECTORS: u64 = 128;
/// A leg is slow when its usual write takes this many times the fastest leg's (per cent) …
const SLOW_ENTER_PERCENT: u64 = 200;
/// … and no longer slow below this many.
const SLOW_LEAVE_PERCENT: u64 = 150;
/// An average of reads that none has renewed loses one part in 2 to the power of this at each
/// background tick …
const FADE_SHIFT: u32 = 5;
/// … and after this many trials that confirmed it one part in 2 to the power of this many more.
const FADE_TRIALS_MAX: u32 = 3;
/// A leg is late with a write that takes longer than this many of a thousand do …
const LATE_PERMILLE: u64 = 990;
/// … or this many times as long as half of them do, if that is less: where every hundredth is a long one,
/// the others say when it is late …
const LATE_TIMES: u64 = 8;
/// … but never before this; and, while little is known of it, after this.
const LATE_FLOOR: u64 = 50 * MICROSECOND;
const LATE_UNKNOWN: u64 = MILLISECOND;
/// A leg is steady again when it has not been late for this long.
const STEADY_AFTER: u64 = 10 * SECOND;
/// Part of a leg's limit within which an answer may have overtaken an I/O that is in flight.
const OVERTAKEN_PARTS: u64 = 8;
/// A read is hedged no earlier than this after its submission.
const HEDGE_FLOOR: u64 = 2 * MILLISECOND;

/// The kinds of I/O with a latency history of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Class {
    Read,
    Write,
    Flush,
}

/// A leg's memory of one kind of I/O.
#[derive(Clone, Default)]
struct History {
    /// Fades; the wait limit comes from it.
    recent: LatencyHistogram,
    /// The settings by which the limits have been made from it; `None` once either has changed.
    made_by: Option<[u64; 3]>,
    /// All since open.
    total: LatencyHistogram,
    limit: u64,
    hedge: u64,
    /// Longest a write takes that is not late, nanoseconds; zero before it is first judged.
    late: u64,
    /// Moving average, nanoseconds, weight 1/16; less while it fades.
    average: u64,
    /// The average before it began to fade; zero when it does not.
    faded_from: u64,
    /// Trials in a row that have confirmed it.
    trials: u32,
    /// Latencies recorded until the last background tick.
    seen: u64,
    /// Latencies since the usual was last judged, and the ticks since then. (The long history would
    /// take as many slow latencies as it has fast ones to say that a leg has become slow.)
    lately: LatencyHistogram,
    lately_ticks: u32,
    /// Nanoseconds; zero before it is first judged.
    usual: u64,
}

impl History {
    /// Takes in a latency. A leg that has become steadily slower raises its own limit by `late`
    /// I/O, and does so at once: at the next tick it would have been frozen for it again.
    fn record(&mut self, latency: u64, late: Late, settings: &Settings) {
        self.total.record(latency);
        let limit = self.limit.max(settings.wait_floor);
        let sample = latency.min(limit + limit / 2);
        if self.faded_from > 0 {
            self.end_trial(sample);
        }
        let counts = match late {
            Late::None => latency <= limit,
            Late::Little => latency == sample,
            Late::All => true,
        };
        if !counts {
            return;
        }
        self.recent.record(sample);
        self.made_by = None;
        if latency >= limit {
            self.raise(settings);
        }
        self.lately.record(sample);
        self.average =
            if self.average == 0 { sample } else { self.average - self.average / 16 + sample / 16 };
        if self.recent.count() >= HISTORY_FADE {
            self.recent.fade();
        }
    }

    /// Does as [`History::refresh`], but never lowers the limit.
    fn raise(&mut self, settings: &Settings) {
        let before = self.limit;
        self.refresh(settings);
        self.raise_to(before);
    }

    /// Sets the limit to at least this, until it is made from the latencies again.
    fn raise_to(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        self.made_by = None;
    }

    /// Makes the limits from the latencies, if these or the settings have changed.
    fn refresh(&mut self, settings: &Settings) {
        let by = [settings.wait_floor, settings.wait_ceiling, settings.wait_multiple.into()];
        if self.made_by.replace(by) == Some(by) {
            return;
        }
        if self.recent.count() < HISTORY_MIN {
            let guess = if self.recent.count() < HISTORY_SOME {
                LIMIT_UNKNOWN
            } else {
                let high = self.recent.quantile(999).saturating_mul(SOME_MULTIPLE);
                high.clamp(LIMIT_GUESSED_MIN, LIMIT_UNKNOWN)
            };
            self.limit = guess.clamp(settings.wait_floor, settings.wait_ceiling);
            self.hedge = self.limit;
            self.late = LATE_UNKNOWN;
            return;
        }
        let high = self.recent.quantile(999).saturating_mul(u64::from(settings.wait_multiple));
        self.limit = high.clamp(settings.wait_floor, settings.wait_ceiling);
        self.hedge = (2 * self.recent.quantile(990)).max(HEDGE_FLOOR).min(self.limit);
        let usual = self.recent.quantile(500);
        let late = self.recent.quantile(LATE_PERMILLE).min(LATE_TIMES.saturating_mul(usual));
        self.late = late.max(LATE_FLOOR);
    }

    /// Judges the usual latency anew, at each background tick.
    fn judge_usual(&mut self) {
        self.lately_ticks = self.lately_ticks.saturating_add(1);
        if self.lately_ticks >= USUAL_TICKS && self.lately.count() >= USUAL_MIN {
            self.usual = self.lately.quantile(500);
            self.lately = LatencyHistogram::default();
            self.lately_ticks = 0;
        }
    }

    /// Returns true if there have been any since the last background tick; asked once at each.
    fn is_in_use(&mut self) -> bool {
        let seen = core::mem::replace(&mut self.seen, self.total.count());
        self.seen > seen
    }

    /// Fades the average at a background tick at which others did such I/O and this leg none. The leg is
    /// tried again when its average has fallen below theirs: it may have become faster since.
    fn fade(&mut self) {
        if self.faded_from == 0 {
            self.faded_from = self.average;
        }
        self.average -= self.average >> (FADE_SHIFT + self.trials);
    }

    /// The first latency after a fading says more than all before. If nothing has changed, the
    /// next trial comes later.
    fn end_trial(&mut self, sample: u64) {
        let confirmed = sample >= self.faded_from / 2;
        self.trials = if confirmed { (self.trials + 1).min(FADE_TRIALS_MAX) } else { 0 };
        self.faded_from = 0;
        self.average = sample;
    }

    /// Returns true if the usual has been judged lately.
    fn is_current(&self) -> bool {
        self.usual > 0 && self.lately_ticks <= USUAL_CURRENT_TICKS
    }

    /// Returns the shortest latency since open, nanoseconds; zero before the first.
    fn fastest(&self) -> u64 {
        self.total.quantile(0)
    }

    fn median(&self) -> u64 {
        if self.usual == 0 { self.recent.quantile(500) } else { self.usual }
    }
}

/// The pace of one leg.
#[derive(Default)]
pub(in crate::engine) struct Pace {
    /// A history of each kind, by [`Pace::kind`].
    histories: [History; Pace::KINDS],
    /// Time since which its usual write has taken much longer than the fastest leg's.
    slow_since: Option<Instant>,
    /// The times at which the newest read that it has answered was sent and answered, and those of
    /// the newest write.
    heard: [(Instant, Instant); 2],
    /// The time it was last seen to be late with an I/O that others could do.
    lost_sight: Option<Instant>,
}

impl Pace {
    /// Kinds of I/O with a history of their own: small and large reads and writes, and flushes.
    pub(in crate::engine) const KINDS: usize = 5;

    /// Returns the kind of an I/O, below [`Pace::KINDS`]. All of a kind share their limits.
    pub(in crate::engine) fn kind(class: Class, sectors: u64) -> usize {
        match class {
            Class::Flush => 4,
            Class::Read => usize::from(sectors > SMALL_SECTORS),
            Class::Write => 2 + usize::from(sectors > SMALL_SECTORS),
        }
    }

    fn history(&self, class: Class, sectors: u64) -> &History {
        &self.histories[Pace::kind(class, sectors)]
    }

    /// Takes in how long an I/O took, if it took too long as far as `late` says.
    pub(super) fn record(
        &mut self,
        class: Class,
        sectors: u64,
        latency: u64,
        late: Late,
        settings: &Settings,
    ) {
        let history = &mut self.histories[Pace::kind(class, sectors)];
        history.record(latency, late, settings);
        // Limits are refreshed by the background tick; a new leg's as soon as they can be.
        if matches!(history.recent.count(), HISTORY_SOME | HISTORY_MIN) {
            history.refresh(settings);
        }
    }

    /// Notes that it has answered a read or a write that was sent then.
    pub(in crate::engine) fn note_heard(&mut self, class: Class, submitted: Instant, now: Instant) {
        let heard = match class {
            Class::Read => &mut self.heard[0],
            Class::Write => &mut self.heard[1],
            Class::Flush => return,
        };
        if submitted > heard.0 {
            *heard = (submitted, now);
        }
    }

    /// Returns true if it has answered a read, or else a write, that was sent later than one it has lost
    /// sight of. What was answered within a part of the limit may have overtaken that before the leg
    /// fell silent, and says nothing.
    pub(in crate::engine) fn has_been_heard_since(
        &self,
        class: Class,
        sent: Instant,
        limit: u64,
    ) -> bool {
        let (submitted, answered) = self.heard[usize::from(class != Class::Read)];
        submitted > sent && answered >= sent + limit / OVERTAKEN_PARTS
    }

    /// Notes that it is, or was, late with an I/O that others could do.
    pub(in crate::engine) fn note_lost_sight(&mut self, now: Instant) {
        self.lost_sight = Some(now);
    }

    /// Returns true if it has not been late for a while with anything that others could do.
    pub(in crate::engine) fn is_steady(&self, now: Instant) -> bool {
        self.lost_sight.is_none_or(|lost| now.since(lost) > STEADY_AFTER)
    }

    /// Counts a read that takes this long already, and may take much longer: until it ends the average
    /// would not know of it, and more would be read here.
    pub(in crate::engine) fn note_lost_read(&mut self, sectors: u64, age: u64) {
        let history = &mut self.histories[Pace::kind(Class::Read, sectors)];
        let sample = age.min(history.limit);
        history.average = history.average - history.average / 16 + sample / 16;
    }

    pub(in crate::engine) fn refresh_limits(&mut self, settings: &Settings) {
        let [data @ .., flush] = &mut self.histories;
        for history in data.iter_mut() {
            history.refresh(settings);
            history.judge_usual();
        }
        flush.refresh(settings);
        // A flush is a different animal: its cost is that of everything before it.
        let write = data[Pace::kind(Class::Write, 0)].limit;
        flush.raise_to((2 * write).min(settings.wait_ceiling));
    }

    /// Returns whether it did small reads, and large ones, since the last background tick.
    pub(in crate::engine) fn reads_in_use(&mut self) -> [bool; 2] {
        let [small, large, ..] = &mut self.histories;
        [small.is_in_use(), large.is_in_use()]
    }

    /// Fades the average of reads at a background tick at which they went to others alone.
    pub(in crate::engine) fn fade_reads(&mut self, large: usize) {
        self.histories[large].fade();
    }

    /// Returns how long an I/O of this kind may take before the leg counts as frozen.
    pub(in crate::engine) fn wait_limit(&self, class: Class, sectors: u64) -> u64 {
        self.limit_of(Pace::kind(class, sectors))
    }

    /// Does as [`Pace::wait_limit`], by [`Pace::kind`].
    pub(in crate::engine) fn limit_of(&self, kind: usize) -> u64 {
        self.histories[kind].limit
    }

    /// Returns how long a read may take before another leg is asked too.
    pub(in crate::engine) fn hedge_delay(&self, sectors: u64) -> u64 {
        self.history(Class::Read, sectors).hedge
    }

    /// Returns the time after which a write of this size is later than usual, nanoseconds.
    pub(in crate::engine) fn late_after(&self, sectors: u64) -> u64 {
        self.history(Class::Write, sectors).late
    }

    /// Returns the moving average of reads of this size, nanoseconds.
    pub(super) fn average_read(&self, sectors: u64) -> u64 {
        self.history(Class::Read, sectors).average
    }

    /// Returns the shortest flush or metadata write since open, nanoseconds; zero before the first.
    pub(super) fn fastest_flush(&self) -> u64 {
        self.history(Class::Flush, 0).fastest()
    }

    /// The usual latency of a small write, nanoseconds; zero when unknown.
    pub(in crate::engine) fn usual_write(&self) -> u64 {
        let [.., small, large, _] = &self.histories;
        let of_large = large.median() / 4;
        match (small.is_current(), large.is_current()) {
            // What it did when it last got any of the others says nothing of now.
            (true, false) => small.median(),
            (false, true) => of_large,
            _ => small.median().max(of_large),
        }
    }

    /// Judges whether the leg is slow beside the fastest, whose usual write takes `fastest` nanoseconds;
    /// zero if that is not known.
    pub(in crate::engine) fn judge_slow(&mut self, fastest: u64, now: Instant) {
        let own = self.usual_write();
        let percent = if self.is_slow() { SLOW_LEAVE_PERCENT } else { SLOW_ENTER_PERCENT };
        let is_slow = fastest > 0 && own.saturating_mul(100) > fastest.saturating_mul(percent);
        self.slow_since = is_slow.then(|| self.slow_since.unwrap_or(now));
    }

    /// Returns true if its usual write takes much longer than the fastest leg's.
    pub(in crate::engine) fn is_slow(&self) -> bool {
        self.slow_since.is_some()
    }

    /// Returns true if it has been slow for so long, nanoseconds.
    pub(in crate::engine) fn has_been_slow_for(&self, time: u64, now: Instant) -> bool {
        self.slow_since.is_some_and(|since| now.since(since) >= time)
    }

    pub(in crate::engine) fn totals(&self, class: Class) -> LatencyHistogram {
        let mut sum = self.history(class, 0).total.clone();
        if class != Class::Flush {
            sum.merge(&self.history(class, u64::MAX).total);
        }
        sum
    }
}
