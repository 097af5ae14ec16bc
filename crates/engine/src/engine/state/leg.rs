//! One leg as the engine sees it: what it owes, what it has in flight, how fast it has been.

mod draining;
mod load;
mod stamps;

pub(in crate::engine) use draining::{DrainRate, Draining};
pub(in crate::engine) use load::Load;
pub(in crate::engine) use stamps::Stamps;

use crate::engine::state::debt::Debts;
use crate::engine::state::failing::Failing;
use crate::engine::state::window::Window;
use crate::format::Membership;
use crate::histogram::LatencyHistogram;
use crate::identifiers::LegIndex;
use crate::planted::{self, Planted};
use crate::settings::Settings;
use hemi_units::{Instant, MICROSECOND, MILLISECOND, SECOND};

/// The wait limit of a leg with too little history to judge by.
const LIMIT_UNKNOWN: u64 = 250 * MILLISECOND;
/// Latencies needed before a leg's own quantile counts.
const HISTORY_MIN: u64 = 64;
/// From this many on the wait limit follows the largest seen, generously.
const HISTORY_SOME: u64 = 8;
const SOME_MULTIPLE: u64 = 10;
/// The least such a first guess may be.
const LIMIT_GUESSED_MIN: u64 = 40 * MILLISECOND;
/// What is usual is the median of so many latencies at least …
const USUAL_MIN: u64 = 16;
/// … and of so many background ticks: of half a second.
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
/// First probation after a thaw; doubles each time the leg fails it.
const PROBATION_FIRST: u64 = 20 * MILLISECOND;
/// I/O answered in time in a row after which earlier freezes are forgotten.
const STRIKES_FORGET: u32 = 16;
/// From so many strikes on, I/O that is a little late counts as the leg's usual …
const STRIKES_USUAL: u32 = 2;
/// … and from this probation on all its late I/O does.
const RELAPSES_FROM: u64 = 8 * PROBATION_FIRST;
/// Longest probation.
const PROBATION_MAX: u64 = 5 * SECOND;
/// A leg that stayed well for this long starts over with the first probation.
const PROBATION_FORGET: u64 = 30 * SECOND;
/// An average of reads that none has renewed loses one part in 2 to the power of this at each
/// background tick …
const FADE_SHIFT: u32 = 5;
/// … and after so many trials that confirmed it one part in 2 to the power of this many more.
const FADE_TRIALS_MAX: u32 = 3;
/// A leg is late with a write that takes longer than so many of a thousand do …
const LATE_PERMILLE: u64 = 990;
/// … or so many times as long as half of them do, if that is less: where every hundredth is a long one,
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

/// Whether and how a leg answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The slot holds no device of the driver's.
    Absent,
    /// I/O completes within the wait limit.
    Answering,
    /// An I/O outlived its limit and is still out.
    Frozen { since: Instant },
    /// The driver says it does not answer.
    Gone { since: Instant, removed: bool },
}

/// The kinds of I/O with a latency history of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    Flush,
}

/// Late I/O that a history takes in for the leg's usual.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    /// None: one freeze says nothing of the usual.
    None,
    /// What has passed the limit by no more than half of it.
    Little,
    /// All.
    All,
}

/// A leg's memory of one kind of I/O.
#[derive(Clone, Default)]
pub(crate) struct History {
    /// Fades; the wait limit comes from it.
    recent: LatencyHistogram,
    /// Since open.
    pub(crate) total: LatencyHistogram,
    limit: u64,
    hedge: u64,
    /// Longest a write takes that is not late, nanoseconds; zero before it is first judged.
    late: u64,
    /// Moving average, nanoseconds, weight 1/16; less while it fades.
    average: u64,
    /// What the average was before it began to fade; zero when it does not.
    faded_from: u64,
    /// How many trials in a row have confirmed it.
    trials: u32,
    /// Latencies recorded until the last background tick.
    seen: u64,
    /// Since the usual was last judged, and how many ticks that is. (The long history would
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

    /// As [`History::refresh`], but never lowers the limit.
    fn raise(&mut self, settings: &Settings) {
        let before = self.limit;
        self.refresh(settings);
        self.limit = self.limit.max(before);
    }

    fn refresh(&mut self, settings: &Settings) {
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

    /// At each background tick.
    fn judge_usual(&mut self) {
        self.lately_ticks = self.lately_ticks.saturating_add(1);
        if self.lately_ticks >= USUAL_TICKS && self.lately.count() >= USUAL_MIN {
            self.usual = self.lately.quantile(500);
            self.lately = LatencyHistogram::default();
            self.lately_ticks = 0;
        }
    }

    /// Whether there have been any since the last background tick; asked once at each.
    fn is_in_use(&mut self) -> bool {
        let seen = core::mem::replace(&mut self.seen, self.total.count());
        self.seen > seen
    }

    /// At each background tick at which others did such I/O and this leg none. It will be tried
    /// again when the average has fallen below theirs: it may have become faster since.
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

    /// Whether the usual has been judged lately.
    fn is_current(&self) -> bool {
        self.usual > 0 && self.lately_ticks <= USUAL_CURRENT_TICKS
    }

    /// Returns the shortest latency since open, nanoseconds; zero before the first.
    fn fastest(&self) -> u64 {
        self.total.quantile(0)
    }

    pub(crate) fn median(&self) -> u64 {
        if self.usual == 0 { self.recent.quantile(500) } else { self.usual }
    }
}

pub(crate) struct Leg {
    pub(crate) index: LegIndex,
    pub(crate) health: Health,
    /// What the superblock says of it.
    pub(crate) membership: Membership,
    pub(crate) fast_zeroes: bool,
    pub(crate) thin: bool,
    pub(crate) lagging: bool,
    /// Since when its usual write has taken much longer than the fastest leg's.
    slow_since: Option<Instant>,
    pub(crate) debts: Debts,
    pub(crate) load: Load,
    /// When its I/O in flight is to be looked at next.
    pub(crate) next_scan: Instant,
    /// The last scan came late and was put off once.
    pub(crate) scan_was_late: bool,
    pub(crate) stamps: Stamps,
    /// Earliest time of pages that nobody waits for, while clients write.
    pub(crate) lazy_after: Instant,
    histories: [[History; 2]; 2],
    flush_history: History,
    probation: u64,
    pub(crate) probation_until: Instant,
    last_thaw: Instant,
    /// Freezes since it last answered in time for long.
    pub(crate) strikes: u32,
    /// How long the last freeze, or absence of its session, took, nanoseconds.
    pub(crate) last_freeze: u64,
    /// I/O it has answered in time since one was late.
    in_time: u32,
    /// I/O it has answered late without so much in time between.
    lates: u32,
    /// When the newest read was sent that it has answered, and the newest write, and when it was
    /// answered.
    heard: [(Instant, Instant); 2],
    /// When it was last seen to be late with an I/O that others could do.
    lost_sight: Option<Instant>,
    pub(crate) draining: Draining,
    pub(crate) failing: Failing,
    pub(crate) drain_rate: DrainRate,
    /// Writes it is given at once.
    pub(crate) window: Window,
    pub(crate) counters: Counters,
}

/// What a leg did since open.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) freezes: u64,
    pub(crate) frozen_time: u64,
    pub(crate) longest_freeze: u64,
    pub(crate) drain_ios: u64,
    pub(crate) drained_bytes: u64,
    pub(crate) compared_bytes: u64,
    pub(crate) metadata_writes: u64,
    pub(crate) errors: u64,
}

impl Leg {
    pub(crate) fn new(index: LegIndex, settings: &Settings, present: bool) -> Leg {
        // Beside the debts that have been acknowledged there is room for every operation that
        // can be under way, and for the splits those can cause: an authority that cannot note
        // a waiting write could not be the authority. There is room for all that is being read for
        // the leg, too: those reads are given up together when their source falls silent, and a
        // region that is owed whole again is begun anew.
        let under_way = 2 * crate::engine::operations_max(settings) + 2 * Window::most(settings);
        let debts_max = if present { settings.owed_extents_max + under_way } else { 0 };
        let mut leg = Leg {
            index,
            health: if present { Health::Answering } else { Health::Absent },
            membership: Membership::Empty,
            fast_zeroes: false,
            thin: false,
            lagging: false,
            slow_since: None,
            debts: Debts::new(debts_max),
            load: Load::new(if present { 2 * Window::most(settings) as usize + 64 } else { 0 }),
            next_scan: Instant::NEVER,
            scan_was_late: false,
            stamps: Stamps::new(0),
            lazy_after: Instant(0),
            histories: Default::default(),
            flush_history: History::default(),
            probation: PROBATION_FIRST,
            probation_until: Instant(0),
            last_thaw: Instant(0),
            strikes: 0,
            last_freeze: 0,
            in_time: 0,
            lates: 0,
            heard: [(Instant(0), Instant(0)); 2],
            lost_sight: None,
            draining: Draining::default(),
            failing: Failing::default(),
            drain_rate: DrainRate::default(),
            window: Window::new(settings),
            counters: Counters::default(),
        };
        leg.refresh_limits(settings);
        leg
    }

    /// It holds a copy and takes part: not empty, not out.
    pub(crate) fn is_in(&self) -> bool {
        self.membership == Membership::In
    }

    pub(crate) fn is_member(&self) -> bool {
        self.membership != Membership::Empty
    }

    pub(crate) fn answers(&self) -> bool {
        self.health == Health::Answering
    }

    /// It answers, and has done so for longer than its probation.
    pub(crate) fn is_trusted(&self, now: Instant) -> bool {
        self.answers() && now >= self.probation_until
    }

    fn history(&self, class: Class, sectors: u64) -> &History {
        match class {
            Class::Flush => &self.flush_history,
            Class::Read => &self.histories[0][usize::from(sectors > SMALL_SECTORS)],
            Class::Write => &self.histories[1][usize::from(sectors > SMALL_SECTORS)],
        }
    }

    pub(crate) fn record(&mut self, class: Class, sectors: u64, latency: u64, settings: &Settings) {
        let large = usize::from(sectors > SMALL_SECTORS);
        if latency < self.wait_limit(class, sectors) {
            self.in_time += 1;
        } else {
            self.in_time = 0;
            self.lates += 1;
        }
        if self.in_time >= STRIKES_FORGET {
            self.strikes = 0;
            self.lates = 0;
        }
        let late = if self.probation >= RELAPSES_FROM {
            Late::All
        } else if self.strikes.max(self.lates) >= STRIKES_USUAL {
            Late::Little
        } else {
            Late::None
        };
        let history = match class {
            Class::Flush => &mut self.flush_history,
            Class::Read => &mut self.histories[0][large],
            Class::Write => &mut self.histories[1][large],
        };
        history.record(latency, late, settings);
        // Limits are refreshed by the background tick; a new leg's as soon as they can be.
        if matches!(history.recent.count(), HISTORY_SOME | HISTORY_MIN) {
            history.refresh(settings);
        }
    }

    /// Notes that it has answered a read or a write that was sent then.
    pub(crate) fn note_heard(&mut self, class: Class, submitted: Instant, now: Instant) {
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
    pub(crate) fn has_been_heard_since(&self, class: Class, sent: Instant, limit: u64) -> bool {
        let (submitted, answered) = self.heard[usize::from(class != Class::Read)];
        submitted > sent && answered >= sent + limit / OVERTAKEN_PARTS
    }

    /// Notes that it is, or was, late with an I/O that others could do.
    pub(crate) fn note_lost_sight(&mut self, now: Instant) {
        self.lost_sight = Some(now);
    }

    /// Returns true if it has not been late for a while with anything that others could do.
    pub(crate) fn is_steady(&self, now: Instant) -> bool {
        self.lost_sight.is_none_or(|lost| now.since(lost) > STEADY_AFTER)
    }

    /// Counts a read that takes this long already, and may take much longer: until it ends the average
    /// would not know of it, and more would be read here.
    pub(crate) fn note_lost_read(&mut self, sectors: u64, age: u64) {
        let history = &mut self.histories[0][usize::from(sectors > SMALL_SECTORS)];
        let sample = age.min(history.limit);
        history.average = history.average - history.average / 16 + sample / 16;
    }

    pub(crate) fn refresh_limits(&mut self, settings: &Settings) {
        for history in self.histories.iter_mut().flatten() {
            history.refresh(settings);
            history.judge_usual();
        }
        self.flush_history.refresh(settings);
        // A flush is a different animal: its cost is that of everything before it.
        let write = self.histories[1][0].limit;
        self.flush_history.limit =
            self.flush_history.limit.max(2 * write).min(settings.wait_ceiling);
    }

    /// Whether it did reads since the last background tick, small ones and large ones.
    pub(crate) fn reads_in_use(&mut self) -> [bool; 2] {
        self.histories[0].each_mut().map(History::is_in_use)
    }

    /// At each background tick, of reads that went to others alone.
    pub(crate) fn fade_reads(&mut self, large: usize) {
        self.histories[0][large].fade();
    }

    /// Returns true if a write of so many sectors may be sent now: any, if none is in flight.
    pub(crate) fn has_window_for(&self, sectors: u64, settings: &Settings) -> bool {
        self.load.writes() < self.window.size()
            && self.load.has_room_for(sectors, settings.leg_window_bytes)
    }

    /// How long an I/O of this kind may take before the leg counts as frozen.
    pub(crate) fn wait_limit(&self, class: Class, sectors: u64) -> u64 {
        self.history(class, sectors).limit
    }

    /// How long a read may take before another leg is asked too.
    pub(crate) fn hedge_delay(&self, sectors: u64) -> u64 {
        self.history(Class::Read, sectors).hedge
    }

    /// Returns the time after which a write of this size is later than usual, nanoseconds.
    pub(crate) fn late_after(&self, sectors: u64) -> u64 {
        self.history(Class::Write, sectors).late
    }

    /// Expected latency of a read sent now, nanoseconds.
    pub(crate) fn expected_read(&self, sectors: u64) -> u64 {
        let average = self.history(Class::Read, sectors).average;
        let queued = u64::from(self.load.reads()) + u64::from(self.load.writes()) / 2;
        // Latencies are measured under queueing already; weigh the queue at a quarter.
        average.saturating_mul(4 + queued) / 4
    }

    /// The usual latency of a small write, nanoseconds; zero when unknown.
    pub(crate) fn usual_write(&self) -> u64 {
        let [small, large] = &self.histories[1];
        let of_large = large.median() / 4;
        match (small.is_current(), large.is_current()) {
            // What it did when it last got any of the others says nothing of now.
            (true, false) => small.median(),
            (false, true) => of_large,
            _ => small.median().max(of_large),
        }
    }

    /// Bytes per second that no drain of it can pass: all its window, of the longest writes, in
    /// the time of a usual one. Zero when that is unknown, or the leg does not answer.
    pub(crate) fn drain_rate_at_most(&self, settings: &Settings) -> u64 {
        let usual = self.usual_write();
        if usual == 0 || !self.answers() {
            return 0;
        }
        let window = u128::from(self.window.size()) * u128::from(settings.drain_bytes);
        u64::try_from(window * u128::from(SECOND) / u128::from(usual)).unwrap_or(u64::MAX)
    }

    /// Orders legs by their usual write. For one that has written no data yet, the fastest of its
    /// metadata writes and flushes speaks, which takes no less: each leg has written superblocks since
    /// the start, few and some of them beside a rebuild. One that has done neither comes last.
    pub(crate) fn rank(&self) -> (bool, u64, LegIndex) {
        let usual = match self.usual_write() {
            0 => self.flush_history.fastest(),
            usual => usual,
        };
        (usual == 0, usual, self.index)
    }

    /// Judges whether the leg is slow beside the fastest, whose usual write takes so many nanoseconds; zero
    /// if that is not known.
    pub(crate) fn judge_slow(&mut self, fastest: u64, now: Instant) {
        let own = self.usual_write();
        let percent = if self.is_slow() { SLOW_LEAVE_PERCENT } else { SLOW_ENTER_PERCENT };
        let is_slow = fastest > 0 && own.saturating_mul(100) > fastest.saturating_mul(percent);
        self.slow_since = is_slow.then(|| self.slow_since.unwrap_or(now));
    }

    /// Returns true if its usual write takes much longer than the fastest leg's.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow_since.is_some()
    }

    /// Returns true if it has been slow for so long, nanoseconds.
    pub(crate) fn has_been_slow_for(&self, time: u64, now: Instant) -> bool {
        self.slow_since.is_some_and(|since| now.since(since) >= time)
    }

    pub(crate) fn totals(&self, class: Class) -> LatencyHistogram {
        match class {
            Class::Flush => self.flush_history.total.clone(),
            Class::Read | Class::Write => {
                let pair = &self.histories[usize::from(class == Class::Write)];
                let mut sum = pair[0].total.clone();
                sum.merge(&pair[1].total);
                sum
            }
        }
    }

    /// Its last thaw came soon after the one before.
    pub(crate) fn has_relapsed(&self) -> bool {
        self.probation > PROBATION_FIRST
    }

    /// Ends a freeze. The probation doubles if the leg failed it: if the I/O that took too long
    /// was sent after the last thaw, and soon after it. I/O sent before that thaw is of the same
    /// trouble and says nothing of how the leg has been since.
    pub(crate) fn thaw(&mut self, since: Instant, now: Instant) -> u64 {
        let duration = now.since(since);
        self.counters.frozen_time += duration;
        self.counters.longest_freeze = self.counters.longest_freeze.max(duration);
        let well = since.since(self.last_thaw);
        let tried = since >= self.last_thaw || planted::is(Planted::ProbationDoublesAnyway);
        self.probation = if self.last_thaw == Instant(0) || well > PROBATION_FORGET {
            PROBATION_FIRST
        } else if tried && well < 4 * self.probation {
            (2 * self.probation).min(PROBATION_MAX)
        } else {
            self.probation
        };
        self.last_thaw = now;
        self.last_freeze = duration;
        self.health = Health::Answering;
        self.window.reset(now);
        self.probation_until = now + self.probation;
        duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(index: u8, class: Class, latencies: &[u64]) -> Leg {
        let settings = Settings::default();
        let mut leg = Leg::new(LegIndex(index), &settings, true);
        for latency in latencies {
            leg.record(class, 8, latency * MILLISECOND, &settings);
        }
        leg
    }

    #[test]
    fn the_fastest_metadata_write_ranks_a_leg_that_has_written_no_data() {
        let beside_a_rebuild = leg(1, Class::Flush, &[80, 270, 1, 90]);
        let slow = leg(0, Class::Flush, &[40, 41, 42, 41]);
        let unknown = leg(0, Class::Flush, &[]);
        assert!(beside_a_rebuild.rank() < slow.rank());
        assert!(slow.rank() < unknown.rank());
    }

    #[test]
    fn data_ranks_a_leg_as_soon_as_it_has_written_any() {
        let mut one = leg(0, Class::Flush, &[1, 1]);
        let other = leg(1, Class::Write, &[10; 20]);
        assert!(one.rank() < other.rank());
        for _ in 0..20 {
            one.record(Class::Write, 8, 30 * MILLISECOND, &Settings::default());
        }
        assert!(other.rank() < one.rank());
    }
}
