//! One leg as the engine sees it: what it owes, what it has in flight, how fast it has been.

mod draining;
mod load;
mod pace;
mod stamps;
mod watch;

pub(in crate::engine) use draining::{DrainRate, Draining};
pub(in crate::engine) use load::Load;
pub(in crate::engine) use pace::{Class, Pace};
pub(in crate::engine) use stamps::Stamps;
pub(in crate::engine) use watch::{Health, Watch};

use crate::engine::state::debt::Debts;
use crate::engine::state::failing::Failing;
use crate::engine::state::operations::operations_max;
use crate::engine::state::window::Window;
use crate::format::Membership;
use crate::identifiers::LegIndex;
use crate::io::LegTraits;
use crate::settings::Settings;
use hemi_units::{Instant, SECOND};

/// One leg. What is in its rooms changes there, and the rest of it here.
pub(in crate::engine) struct Leg {
    pub(in crate::engine) index: LegIndex,
    /// Its membership by the superblock.
    membership: Membership,
    fast_zeroes: bool,
    thin: bool,
    /// Every new write to it is a debt.
    is_lagging: bool,
    /// Earliest time of pages that nobody waits for, while clients write.
    lazy_after: Instant,
    /// Metadata that failed while the leg was out is not tried again at rest before this time.
    retry_pages_after: Instant,
    pub(in crate::engine) debts: Debts,
    pub(in crate::engine) load: Load,
    pub(in crate::engine) stamps: Stamps,
    pub(in crate::engine) watch: Watch,
    pub(in crate::engine) pace: Pace,
    pub(in crate::engine) draining: Draining,
    pub(in crate::engine) drain_rate: DrainRate,
    pub(in crate::engine) failing: Failing,
    /// Writes it is given at once.
    pub(in crate::engine) window: Window,
    counters: Counters,
}

/// Counts of one leg since open.
#[derive(Clone, Default)]
pub(in crate::engine) struct Counters {
    pub(in crate::engine) read_bytes: u64,
    pub(in crate::engine) written_bytes: u64,
    pub(in crate::engine) freezes: u64,
    pub(in crate::engine) frozen_time: u64,
    pub(in crate::engine) longest_freeze: u64,
    pub(in crate::engine) drain_ios: u64,
    pub(in crate::engine) drained_bytes: u64,
    pub(in crate::engine) compared_bytes: u64,
    pub(in crate::engine) metadata_writes: u64,
    pub(in crate::engine) errors: u64,
}

impl Leg {
    pub(in crate::engine) fn new(index: LegIndex, settings: &Settings, present: bool) -> Leg {
        // Beside the debts that have been acknowledged there is room for every operation that
        // can be in flight, and for the splits those can cause: an authority that cannot note
        // a waiting write could not be the authority. There is room for all that is being read for
        // the leg, too: those reads are given up together when their source falls silent, and a
        // region that is owed whole again is begun anew.
        let under_way = 2 * operations_max(settings) + 2 * Window::most(settings);
        let debts_max = if present { settings.owed_extents_max + under_way } else { 0 };
        let mut leg = Leg {
            index,
            membership: Membership::Empty,
            fast_zeroes: false,
            thin: false,
            is_lagging: false,
            lazy_after: Instant(0),
            retry_pages_after: Instant(0),
            debts: Debts::new(debts_max),
            load: Load::new(if present { 2 * Window::most(settings) as usize + 64 } else { 0 }),
            stamps: Stamps::new(0),
            watch: Watch::new(present),
            pace: Pace::default(),
            draining: Draining::default(),
            drain_rate: DrainRate::default(),
            failing: Failing::default(),
            window: Window::new(settings),
            counters: Counters::default(),
        };
        leg.pace.refresh_limits(settings);
        leg
    }

    /// Makes it what the driver and the superblock say of it, with this stamp.
    pub(in crate::engine) fn known(
        mut self,
        traits: &LegTraits,
        membership: Membership,
        done: u64,
    ) -> Leg {
        self.fast_zeroes = traits.fast_zeroes;
        self.thin = traits.thin;
        self.membership = membership;
        self.stamps = Stamps::new(done);
        self
    }

    /// Returns what the superblock that is in effect says of it.
    pub(in crate::engine) fn membership(&self) -> Membership {
        self.membership
    }

    /// Notes what the superblock that is in effect says of it.
    pub(in crate::engine) fn mark(&mut self, membership: Membership) {
        self.membership = membership;
    }

    /// Takes it in: nothing has failed for a while, and it lacks nothing.
    pub(in crate::engine) fn come_in(&mut self) {
        self.membership = Membership::In;
        self.failing = Failing::default();
    }

    /// Returns true if it zeroes ranges without writing them.
    pub(in crate::engine) fn zeroes_fast(&self) -> bool {
        self.fast_zeroes
    }

    /// Returns true if it may unmap what is zeroed.
    pub(in crate::engine) fn is_thin(&self) -> bool {
        self.thin
    }

    /// Returns true if every new write to it is a debt.
    pub(in crate::engine) fn is_lagging(&self) -> bool {
        self.is_lagging
    }

    pub(in crate::engine) fn note_lagging(&mut self, is_lagging: bool) {
        self.is_lagging = is_lagging;
    }

    /// Returns true if it may be given pages that nobody waits for though clients write.
    pub(in crate::engine) fn may_have_pages(&self, now: Instant) -> bool {
        now >= self.lazy_after
    }

    /// Returns true if metadata failed on it while it was out, and it is too early to try again.
    pub(in crate::engine) fn waits_to_retry(&self, now: Instant) -> bool {
        now < self.retry_pages_after
    }

    /// Puts off another try of metadata that failed.
    pub(in crate::engine) fn put_off_retry(&mut self, until: Instant) {
        self.retry_pages_after = until;
    }

    /// Puts off such pages.
    pub(in crate::engine) fn put_off_pages(&mut self, until: Instant) {
        self.lazy_after = until;
    }

    /// Returns what it did since open.
    pub(in crate::engine) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(in crate::engine) fn count_metadata_write(&mut self) {
        self.counters.metadata_writes += 1;
    }

    pub(in crate::engine) fn count_error(&mut self) {
        self.counters.errors += 1;
    }

    pub(in crate::engine) fn count_drain_io(&mut self) {
        self.counters.drain_ios += 1;
    }

    /// Counts bytes of debts that were paid by writing them.
    pub(in crate::engine) fn count_drained(&mut self, bytes: u64) {
        self.counters.drained_bytes += bytes;
        self.drain_rate.add(bytes);
    }

    /// Counts bytes of debts that it was found to hold.
    pub(in crate::engine) fn count_compared(&mut self, bytes: u64) {
        self.counters.compared_bytes += bytes;
        self.drain_rate.add(bytes);
    }

    /// Counts a read that goes in flight.
    pub(in crate::engine) fn begin_read(&mut self, bytes: u64) {
        self.load.begin_read();
        self.counters.read_bytes += bytes;
    }

    /// Counts a write that goes in flight, and the sectors of its buffer.
    pub(in crate::engine) fn begin_write(&mut self, bytes: u64, payload: u64) {
        self.load.begin_write(payload);
        self.counters.written_bytes += bytes;
    }

    /// Takes in how long an I/O took.
    pub(in crate::engine) fn record(
        &mut self,
        class: Class,
        sectors: u64,
        latency: u64,
        settings: &Settings,
    ) {
        let late = self.watch.note_answer(latency < self.pace.wait_limit(class, sectors));
        self.pace.record(class, sectors, latency, late, settings);
    }

    /// Notes that it has frozen.
    pub(in crate::engine) fn freeze(&mut self, since: Instant) {
        self.watch.freeze(since);
        self.counters.freezes += 1;
    }

    /// Ends a freeze. Returns how long it took, nanoseconds.
    pub(in crate::engine) fn thaw(&mut self, since: Instant, now: Instant) -> u64 {
        let duration = self.watch.thaw(since, now);
        self.counters.frozen_time += duration;
        self.counters.longest_freeze = self.counters.longest_freeze.max(duration);
        self.window.reset(now);
        duration
    }

    /// Ends its session. Returns false if its slot holds no device.
    pub(in crate::engine) fn lose_session(&mut self, removed: bool, now: Instant) -> bool {
        match self.watch.health() {
            Health::Absent => return false,
            Health::Gone { since, .. } => self.watch.lose(since, removed),
            Health::Frozen { since } => {
                self.thaw(since, now);
                self.watch.lose(now, removed);
            }
            Health::Answering => self.watch.lose(now, removed),
        }
        true
    }

    /// It holds a copy and takes part: not empty, not out.
    pub(in crate::engine) fn is_in(&self) -> bool {
        matches!(self.membership, Membership::In)
    }

    pub(in crate::engine) fn is_member(&self) -> bool {
        !matches!(self.membership, Membership::Empty)
    }

    pub(in crate::engine) fn answers(&self) -> bool {
        matches!(self.watch.health(), Health::Answering)
    }

    /// It answers, and has done so for longer than its probation.
    pub(in crate::engine) fn is_trusted(&self, now: Instant) -> bool {
        self.answers() && !self.watch.is_on_probation(now)
    }

    /// Returns true if a write of `sectors` may be sent now: any, if none is in flight.
    pub(in crate::engine) fn has_window_for(&self, sectors: u64, settings: &Settings) -> bool {
        self.load.writes() < self.window.size()
            && self.load.has_room_for(sectors, settings.leg_window_bytes)
    }

    /// Expected latency of a read sent now, nanoseconds.
    pub(in crate::engine) fn expected_read(&self, sectors: u64) -> u64 {
        let average = self.pace.average_read(sectors);
        let queued = u64::from(self.load.reads()) + u64::from(self.load.writes()) / 2;
        // Latencies are measured under queueing already; weigh the queue at a quarter.
        average.saturating_mul(4 + queued) / 4
    }

    /// Bytes per second that no drain of it can pass: all its window, of the longest writes, in
    /// the time of a usual one. Zero when that is unknown, or the leg does not answer.
    pub(in crate::engine) fn drain_rate_at_most(&self, settings: &Settings) -> u64 {
        let usual = self.pace.usual_write();
        if usual == 0 || !self.answers() {
            return 0;
        }
        let window = u128::from(self.window.size()) * u128::from(settings.drain_bytes);
        u64::try_from(window * u128::from(SECOND) / u128::from(usual)).unwrap_or(u64::MAX)
    }

    /// Orders legs by their usual write. For one that has written no data yet, the fastest of its
    /// metadata writes and flushes speaks, which takes no less: each leg has written superblocks since
    /// the start, few and some of them beside a rebuild. One that has done neither comes last.
    pub(in crate::engine) fn rank(&self) -> (bool, u64, LegIndex) {
        let usual = match self.pace.usual_write() {
            0 => self.pace.fastest_flush(),
            usual => usual,
        };
        (usual == 0, usual, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hemi_units::MILLISECOND;

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
