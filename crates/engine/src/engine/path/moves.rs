//! Makes the moves of authority that are wanted, a bounded number with each input. What an input leaves over
//! is looked at soon after.

use crate::engine::Engine;
use crate::engine::state::leg::Health;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::Buffers;
use crate::planted::{self, Planted};
use hemi_units::{Instant, MICROSECOND, SECOND};

/// Moves that an input leaves over are tried after this.
const MORE_AFTER: u64 = 100 * MICROSECOND;
/// Every move that is wanted is tried this often: some wait for time to pass.
const ALL_AFTER: u64 = SECOND;
/// Records looked at in the time that one move is tried in.
const LOOKS_PER_TRY: usize = 16;

/// Conditions that moves depend on beside their own regions and flushes. When one changes, each move is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Circumstances {
    legs: [u16; LEGS_MAX],
    is_flush_awaited: bool,
    lost_list: u64,
    rewriters: usize,
}

/// The moves of authority in progress.
#[derive(Default)]
pub(in crate::engine) struct Moving {
    seen: Circumstances,
    /// The time to look at more; `None` if nothing is left over.
    more_at: Option<Instant>,
    /// The time from which on all are tried again.
    all_at: Instant,
    /// Counts the moves tried and the records looked at.
    steps: u64,
}

impl Moving {
    pub(in crate::engine) fn deadline(&self) -> Instant {
        self.more_at.unwrap_or(Instant::NEVER)
    }
}

impl<B: Buffers> Engine<B> {
    /// Counts the moves of authority that have been tried, and the records looked at for more.
    pub fn move_steps(&self) -> u64 {
        self.moving.steps
    }

    /// Tries moves that are wanted. Those that cannot go yet stay wanted.
    pub(in crate::engine) fn retry_moves(&mut self) {
        self.look_for_moves();
        let mut left_late_page = false;
        let most = self.settings.limits.moves_per_input as u64;
        self.wake_what_may_move(most);
        let due = self.regions.moves_due().min(most);
        for _ in 0..due {
            let Some(record) = self.regions.next_move() else { break };
            left_late_page |= self.retry_move(record);
        }
        if self.regions.moves_wanted() > most {
            for _ in 0..self.regions.moves_awaited().min(most - due) {
                let Some(record) = self.regions.next_awaited_move() else { break };
                left_late_page |= self.retry_move(record);
            }
        }
        if left_late_page && self.flushing.is_awaited() {
            // They wait for the page of the next leg. Any other move is looked at later: it may be
            // undone by then, and its page would be written for nothing, mostly on a slower leg.
            self.consider_flushes();
            self.look_for_moves();
        }
        let more = self.regions.has_moves_to_look_at();
        self.moving.more_at = more.then_some(self.clock.now() + MORE_AFTER);
    }

    /// Has those moves tried that may have become possible: all, if they are few.
    fn wake_what_may_move(&mut self, few: u64) {
        let wanted = self.regions.moves_wanted();
        if wanted == 0 {
            return;
        }
        let now = self.clock.now();
        let is_time = now >= self.moving.all_at;
        if wanted <= few || is_time {
            self.moving.all_at = now + ALL_AFTER;
            self.regions.wake_moves();
            return;
        }
        let circumstances = self.circumstances();
        if circumstances != self.moving.seen && !planted::is(Planted::MovesSleepOn) {
            self.moving.seen = circumstances;
            self.regions.wake_moves();
        }
    }

    fn circumstances(&self) -> Circumstances {
        let now = self.clock.now();
        let metadata = self.regions.metadata();
        let mut legs = [0; LEGS_MAX];
        for leg in self.legs.in_use() {
            let index = leg.index;
            let flags = [
                leg.is_in(),
                leg.answers(),
                self.unfit_to_decide() & index.bit() != 0,
                metadata.knows_lost(index),
                metadata.is_any_late(index),
                leg.stamps.may_retry(now),
                self.flush_is_late(index.index()),
                leg.pace.is_steady(now),
            ];
            let bits = flags.iter().fold(0, |bits, &flag| bits << 1 | u16::from(flag));
            legs[index.index()] = bits;
        }
        Circumstances {
            legs,
            is_flush_awaited: self.flushing.is_awaited(),
            lost_list: metadata.newest(metadata.lost_list()),
            rewriters: self.lost.rewriters(),
        }
    }

    /// Looks for regions that have to move, and asks for the pages of moves that are waited for.
    fn look_for_moves(&mut self) {
        let most = self.settings.limits.moves_per_input * LOOKS_PER_TRY;
        let looked_at = self.regions.search_moves(most, &self.legs, &mut self.marks);
        let until = self.flushing.moves_awaited();
        let asked = self.regions.ask_for_pages(most, until, &self.legs, self.clock.now());
        self.moving.steps += (looked_at + asked) as u64;
    }

    /// Tries one move. Returns true if it went off a leg that is late with the region's page.
    fn retry_move(&mut self, record: u32) -> bool {
        self.moving.steps += 1;
        let region = self.regions.region_of(record);
        let from = self.regions.entry(region).authority();
        let before = self.regions.moves_made();
        let held = self.regions.rewrites_wait(record);
        let failed = self.has_failed_on_authority(record);
        let late = self.relief_of_late_authority(record);
        let moved = self.try_move(record, failed, late);
        for (leg, stamp) in moved.flushes.into_iter().flatten() {
            self.legs[leg.index()].stamps.want_flush(stamp);
        }
        let holds = self.regions.rewrites_wait(record);
        if holds {
            self.lose_rewritten_in(region);
        }
        if moved.settled || held && !holds {
            self.retry_waiting(record);
        }
        if self.regions.moves_made() == before {
            return false;
        }
        self.reconsider_region(region);
        let page = self.regions.page_of(region);
        self.regions.metadata().is_late(page, from) && !planted::is(Planted::LeftPageAwaited)
    }

    /// Returns true if an operation that waits in a region failed on the region's authority.
    fn has_failed_on_authority(&self, record: u32) -> bool {
        let authority = self.regions.entry(self.regions.region_of(record)).authority();
        let mut waiters = self.regions.waiters(record);
        waiters.any(|operation| self.operations[operation].failed & authority.bit() != 0)
    }

    /// Regions under a leg that stopped answering have to move.
    pub(in crate::engine) fn want_moves_from(&mut self, leg: LegIndex) {
        let gone = matches!(self.legs[leg.index()].watch.health(), Health::Gone { .. });
        self.regions.want_moves_from(leg, gone);
    }
}
