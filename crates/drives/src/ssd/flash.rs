//! Work of the lanes: reads first, then suspended operations, then collection and host data
//! according to the pacing.

use std::cmp::Reverse;

use super::Ssd;
use super::frontier::Stream;
use super::lanes::{Activity, Suspended};
use super::map_cache::Lookup;
use super::mapping::NONE;

/// Times a program or erase may be suspended, limited so that reads cannot starve it.
const SUSPENDS: u32 = 16;

impl Ssd {
    /// Starts `activity` on the lane, from now until `until`.
    fn occupy(&mut self, lane: u32, activity: Activity, until: u64) {
        let duration = until - self.now;
        match activity {
            Activity::Sense | Activity::Move => self.meter.reads(duration),
            Activity::Idle => {}
            _ => self.meter.writes(duration),
        }
        let it = &mut self.lanes[lane as usize];
        self.working += u32::from(it.activity == Activity::Idle);
        (it.activity, it.until) = (activity, until);
        self.events.push(Reverse((until, lane)));
    }

    /// Handles the end of the lane's activity, unless it has been suspended meanwhile.
    pub(super) fn end_of_activity(&mut self, lane: u32) {
        let it = &mut self.lanes[lane as usize];
        if it.until != self.now || it.activity == Activity::Idle {
            return;
        }
        match it.activity {
            Activity::Idle => {}
            Activity::Sense => {
                let read = self.page_reads.first(it);
                let channel = &mut self.channels[it.channel as usize];
                let until = channel.take(self.now, self.timing.transfer(read.bytes)) + read.more;
                return self.occupy(lane, Activity::Move, until);
            }
            Activity::Move => {
                let read = self.page_reads.pop(it);
                self.page_was_read(read.command);
            }
            Activity::Program => {
                for (bytes, epoch) in it.programming.drain(..) {
                    self.buffer.programmed(bytes, epoch);
                }
                self.admit_stalled();
                self.end_flushes();
            }
            Activity::Copy | Activity::Suspend => {}
            Activity::Erase => {
                self.translation.erase(lane);
                if self.collector.erased(&self.translation, lane) {
                    self.work_blocked();
                }
            }
        }
        // The lane must not become idle in between, since nothing above may give it work.
        self.work(lane);
    }

    /// Handles reads queued on the lane: an idle lane starts them, and a busy one suspends its
    /// activity if it can.
    pub(super) fn reads_wait(&mut self, lane: u32) {
        let it = &mut self.lanes[lane as usize];
        match it.activity {
            Activity::Idle => self.work(lane),
            Activity::Program | Activity::Copy | Activity::Erase => {
                let Some(suspend) = self.timing.suspend else { return };
                let remaining = it.until - self.now;
                // Near its end, waiting is quicker than suspending.
                if it.suspends_left == 0 || remaining <= suspend || !it.has_reads() {
                    return;
                }
                it.suspends_left -= 1;
                it.suspended = Some(Suspended { activity: it.activity, remaining });
                self.occupy(lane, Activity::Suspend, self.now + suspend);
            }
            Activity::Sense | Activity::Move | Activity::Suspend => {}
        }
    }

    /// Gives the lane work if it is idle.
    pub(super) fn work_if_idle(&mut self, lane: u32) {
        if self.lanes[lane as usize].activity == Activity::Idle {
            self.work(lane);
        }
    }

    /// Finds work for a lane that is idle or has ended its activity.
    fn work(&mut self, lane: u32) {
        let it = &mut self.lanes[lane as usize];
        if it.has_reads() {
            let sense = self.page_reads.first(it).sense;
            return self.occupy(lane, Activity::Sense, self.now + sense);
        }
        if let Some(Suspended { activity, remaining }) = it.suspended.take() {
            let resume = self.timing.suspend.unwrap_or(0);
            return self.occupy(lane, activity, self.now + resume + remaining);
        }
        it.suspends_left = SUSPENDS;
        let host_waits = self.has_data(false);
        let has_room = self.has_room(lane);
        if self.translation.is_collecting(lane) {
            if self.translation.left_in_victim(lane) == 0 {
                return self.occupy(lane, Activity::Erase, self.now + self.timing.erase);
            }
            if self.collector.may_copy(self.host_writes(), has_room) {
                return self.copy(lane);
            }
            let it = &mut self.lanes[lane as usize];
            if !it.blocked {
                it.blocked = true;
                self.blocked.push_back(lane);
            }
        }
        if host_waits && has_room && !self.collector.is_frozen() {
            return self.program(lane, false);
        }
        if self.lanes[lane as usize].activity != Activity::Idle {
            self.working -= 1;
            self.lanes[lane as usize].activity = Activity::Idle;
        }
        self.list_if_idle(lane);
    }

    /// Lets lanes that were not allowed to copy try again.
    fn work_blocked(&mut self) {
        for _ in 0..self.blocked.len() {
            if !self.collector.may_copy(self.host_writes(), true) {
                break;
            }
            if let Some(lane) = self.blocked.pop_front() {
                self.lanes[lane as usize].blocked = false;
                self.work_if_idle(lane);
            }
        }
    }

    /// Adds the lane to the list of idle lanes if it is idle and has room.
    pub(super) fn list_if_idle(&mut self, lane: u32) {
        let has_room = self.has_room(lane);
        let it = &mut self.lanes[lane as usize];
        if it.activity == Activity::Idle && !it.listed && has_room {
            it.listed = true;
            self.idle.push_back(lane);
            self.hold_blocked = false;
        }
    }

    fn stream(&self, lane: u32) -> Stream {
        match &self.slc {
            Some(slc) if slc.takes(&self.translation, lane) => Stream::Cached,
            _ => Stream::Host,
        }
    }

    fn has_room(&self, lane: u32) -> bool {
        self.translation.has_room(lane, self.stream(lane))
    }

    /// Returns true if the host is writing. Collection then keeps its pace, even if there
    /// happens to be no data for a die.
    fn host_writes(&self) -> bool {
        !self.arriving_writes.is_empty() || !self.stalled.is_empty() || self.has_data(false)
    }

    /// Returns true if a page's worth of data can be programmed, or less if it has been held
    /// too long (`overdue`), if a flush waits, or if writes wait for space.
    fn has_data(&self, overdue: bool) -> bool {
        let waiting = self.buffer.waiting();
        if waiting == 0 {
            return false;
        }
        self.buffer.ready() >= self.translation.shape().page_slots
            || overdue
            || !self.flushing.is_empty()
            || (!self.stalled.is_empty() && (self.buffer.ready() > 0 || self.takes_partial(false)))
    }

    /// Returns true if incomplete units may be programmed too.
    fn takes_partial(&self, overdue: bool) -> bool {
        overdue
            || !self.flushing.is_empty()
            || (!self.stalled.is_empty()
                && self.buffer.waiting_bytes() * 2 > self.parameters.buffer.0)
    }

    /// Hands data to idle lanes; returns true if any lane got data.
    pub(super) fn dispatch(&mut self, overdue: bool) -> bool {
        let mut any = false;
        while !self.collector.is_frozen() && self.has_data(overdue) {
            let Some(lane) = self.idle.pop_front() else { break };
            self.lanes[lane as usize].listed = false;
            if self.lanes[lane as usize].activity != Activity::Idle {
                continue;
            }
            if !self.has_room(lane) {
                continue;
            }
            self.program(lane, overdue);
            any = true;
        }
        self.work_blocked();
        any
    }

    /// Programs the next page of host data.
    fn program(&mut self, lane: u32, overdue: bool) {
        let stream = self.stream(lane);
        let cached = stream == Stream::Cached;
        let page = self.translation.frontier_page(lane, stream);
        let most = self.translation.rest_of_page(lane, stream);
        let partial = self.takes_partial(overdue);
        let awaited = self.flushing.front().map(|&(epoch, _)| epoch);
        let mut besides = std::mem::take(&mut self.lanes[lane as usize].debt);
        let mut units = 0;
        let mut filled = false;
        while units < most {
            let Some(taken) = self.buffer.take(partial, awaited) else { break };
            units += 1;
            self.lanes[lane as usize].programming.push((taken.bytes, taken.epoch));
            self.host_bytes += self.parameters.mapping_unit.0;
            besides += self.fill_in(taken.unit, taken.missing);
            besides += self.change_table(taken.unit);
            filled |= self.translation.place(taken.unit, lane, stream);
        }
        if !filled {
            self.translation.pad(lane, stream);
        }
        self.collector.host_wrote(&self.translation, lane, units);
        let pages = u64::from(self.parameters.pages_per_unit());
        let time = self.timing.program(page * pages as u32, cached);
        let until = self.transfer_and_program(lane, pages, time) + besides;
        self.occupy(lane, Activity::Program, until);
    }

    /// Moves `pages` pages to the lane and programs them, overlapping the two. Returns the time
    /// at which that is done.
    fn transfer_and_program(&mut self, lane: u32, pages: u64, time: u64) -> u64 {
        let transfer = self.timing.transfer(self.timing.lane_page);
        let channel = &mut self.channels[self.lanes[lane as usize].channel as usize];
        let end = channel.take(self.now, pages * transfer);
        let first = end - (pages - 1) * transfer;
        (first + pages * time).max(end + time)
    }

    /// Returns the time to read the part of a unit that the host did not write.
    fn fill_in(&mut self, unit: u32, missing: u64) -> u64 {
        if missing == 0 {
            return 0;
        }
        self.host_bytes -= missing;
        self.copied_bytes += missing;
        let slot = self.translation.slot_of(unit);
        if slot == NONE {
            return 0;
        }
        let mut log = 0;
        if self.parameters.log_blocks {
            let written = self.parameters.mapping_unit.0 - missing;
            self.copied_bytes += written;
            log = written.div_ceil(self.timing.lane_page) * self.timing.program(0, false);
        }
        let pages = missing.div_ceil(self.timing.lane_page);
        let sense = self.timing.sense(0, self.translation.is_cached(slot));
        let moving = self.timing.transfer(missing.min(self.timing.lane_page));
        log + sense + moving + (pages - 1) * sense.max(moving)
    }

    /// Returns the time to load the part of the table that holds the unit.
    fn change_table(&mut self, unit: u32) -> u64 {
        match self.map_cache.as_mut().map(|cache| cache.look_up(unit, true)) {
            None | Some(Lookup::Hit) => 0,
            Some(Lookup::Miss { written }) => {
                let program = if written { self.timing.program(0, false) } else { 0 };
                self.timing.sense(0, false) + self.timing.transfer(4096) + program
            }
        }
    }

    /// Copies the next page's worth of valid units from the lane's victim.
    fn copy(&mut self, lane: u32) {
        let most = self.translation.rest_of_page(lane, Stream::Collected);
        let page = self.translation.frontier_page(lane, Stream::Collected);
        let from_cache = self.translation.collects_cached(lane);
        let moved = self.translation.step(lane, most);
        self.collector.copied(moved.units);
        let unit = self.parameters.mapping_unit.0;
        let bytes = u64::from(moved.units) * unit;
        self.copied_bytes += bytes;
        let processor = u64::from(moved.units) * self.timing.copy_command;
        let seen = self.processor.take(self.now, processor);
        let pages_per_unit = u64::from(self.parameters.pages_per_unit());
        let senses = u64::from(moved.pages_read) * pages_per_unit;
        let pages = u64::from(moved.pages_filled) * pages_per_unit;
        let sense = self.timing.sense(page, from_cache) * senses;
        let program = self.timing.program(page * pages_per_unit as u32, false) * pages;
        let moving = if self.parameters.copyback {
            0
        } else {
            let ways = 2 * self.timing.transfer(bytes);
            let channel = &mut self.channels[self.lanes[lane as usize].channel as usize];
            channel.take(self.now, ways) - self.now
        };
        let until = seen.max(self.now + moving) + sense + program;
        self.occupy(lane, Activity::Copy, until);
    }
}
