//! The host's side: commands pass the processor and the link, go into the buffer or to the
//! lanes, and back.

use hemi_units::{Operation, SECTOR_BYTES};

use super::Ssd;
use super::lanes::PageRead;
use super::map_cache::Lookup;
use super::mapping::NONE;

impl Ssd {
    /// Starts a command that has a slot in the drive's queue: the processor handles it, and a
    /// write's data crosses the link.
    pub(super) fn command_started(&mut self, command: u32) {
        let it = *self.commands.get(command);
        let read = it.operation == Operation::Read;
        let moved = if it.operation == Operation::Trim { 0 } else { it.bytes };
        let write = matches!(it.operation, Operation::Write { .. });
        let time = self.timing.command(read, moved);
        let seen = if self.parameters.reads_overtake && !write {
            self.processor.take_first(self.now, time)
        } else {
            self.processor.take(self.now, time)
        };
        if write {
            let here = self.link[0].take(seen, self.timing.link(it.bytes));
            self.arriving_writes.push_back((here, command));
        } else {
            self.arriving_reads.push_back((seen, command));
        }
    }

    /// Handles a command that has reached the controller, with a write's data.
    pub(super) fn command_arrived(&mut self, command: u32) {
        let it = *self.commands.get(command);
        match it.operation {
            Operation::Read => self.read(command),
            Operation::Write { .. } => {
                if !self.stalled.is_empty() || !self.admit(command) {
                    self.stalled.push_back(command);
                }
            }
            Operation::Trim => {
                if self.parameters.trim {
                    self.trim(it.from, it.to);
                }
                self.commands.end(command, self.now + self.timing.write_latency);
            }
            Operation::Flush if self.parameters.power_loss_protection => {
                self.commands.end(command, self.now + self.timing.write_latency);
            }
            Operation::Flush => self.wait_for_flash(command),
        }
    }

    fn unit_sectors(&self) -> u64 {
        self.parameters.mapping_unit.0 / SECTOR_BYTES
    }

    /// Puts the rest of a write into the buffer; returns true if all of it found space.
    pub(super) fn admit(&mut self, command: u32) -> bool {
        let it = *self.commands.get(command);
        let unit_sectors = self.unit_sectors();
        // A write larger than half the buffer is put in piece by piece.
        let most = (self.parameters.buffer.0 / 2 / SECTOR_BYTES).max(8);
        let mut from = it.from;
        while from < it.to {
            let unit = from / unit_sectors;
            let first = unit * unit_sectors;
            let to = it.to.min(first + unit_sectors).min(from + most);
            let (start, end) = ((from - first) as u32, (to - first) as u32);
            if !self.buffer.put(unit as u32, start, end, self.now) {
                self.commands.get(command).from = from;
                return false;
            }
            self.hold_blocked = false;
            from = to;
        }
        let durable = self.parameters.power_loss_protection;
        let through = it.operation == Operation::Write { fua: true } && !durable;
        if through || !self.parameters.write_cache {
            self.wait_for_flash(command);
        } else {
            self.commands.end(command, self.now + self.timing.write_latency);
        }
        true
    }

    /// Completes the command when everything now in the buffer is on flash.
    fn wait_for_flash(&mut self, command: u32) {
        let epoch = self.buffer.fence();
        self.flushing.push_back((epoch, command));
        self.end_flushes();
    }

    /// Ends the flushes whose data is on flash.
    pub(super) fn end_flushes(&mut self) {
        while let Some(&(epoch, command)) = self.flushing.front() {
            if !self.buffer.is_durable(epoch) {
                break;
            }
            self.flushing.pop_front();
            let flush = self.commands.get(command).operation == Operation::Flush;
            let beyond = if flush { self.timing.flush } else { 0 };
            self.commands.end(command, self.now + self.timing.write_latency + beyond);
        }
    }

    /// Admits writes that waited for space, as far as there is any.
    pub(super) fn admit_stalled(&mut self) {
        while let Some(&command) = self.stalled.front() {
            if !self.admit(command) {
                break;
            }
            self.stalled.pop_front();
        }
    }

    fn trim(&mut self, from: u64, to: u64) {
        let unit_sectors = self.unit_sectors();
        for unit in from.div_ceil(unit_sectors)..to / unit_sectors {
            self.buffer.discard(unit as u32);
            self.translation.trim(unit as u32);
        }
        self.end_flushes();
        self.admit_stalled();
    }

    /// Looks up the place of a read's data, which may require reading the table.
    fn read(&mut self, command: u32) {
        let it = *self.commands.get(command);
        let Some(cache) = &mut self.map_cache else { return self.read_data(command) };
        let unit_sectors = self.parameters.mapping_unit.0 / SECTOR_BYTES;
        let (first, last) = (it.from / unit_sectors, (it.to.max(1) - 1) / unit_sectors);
        let mut missed = 0;
        for unit in (first..=last.max(first)).step_by(1024) {
            let Lookup::Miss { written } = cache.look_up(unit as u32, false) else { continue };
            missed += 1;
            let lane = (unit / 1024 % self.lanes.len() as u64) as u32;
            if written {
                self.lanes[lane as usize].debt += self.timing.program(0, false);
            }
            let read = PageRead::new(command, 4096, self.timing.sense(0, false), 0);
            self.page_reads.push(&mut self.lanes[lane as usize], read);
        }
        if missed == 0 {
            return self.read_data(command);
        }
        let it = self.commands.get(command);
        it.pending = missed;
        it.looking_up = true;
        for unit in (first..=last.max(first)).step_by(1024) {
            self.reads_wait((unit / 1024 % self.lanes.len() as u64) as u32);
        }
    }

    /// Sends a read to the lanes that hold its data; each page is read once.
    fn read_data(&mut self, command: u32) {
        let it = *self.commands.get(command);
        let unit_sectors = self.unit_sectors();
        let page_slots = self.translation.shape().page_slots;
        let mut from = it.from;
        let mut pending = 0;
        // The page collected so far: its number and its bytes.
        let mut page = (NONE, 0);
        let mut last_slot = NONE;
        while from < it.to {
            let unit = from / unit_sectors;
            let first = unit * unit_sectors;
            let to = it.to.min(first + unit_sectors);
            let (start, end) = ((from - first) as u32, (to - first) as u32);
            from = to;
            if self.buffer.holds(unit as u32, start, end) {
                continue;
            }
            let slot = self.translation.slot_of(unit as u32);
            if slot == NONE {
                continue;
            }
            let bytes = u64::from(end - start) * SECTOR_BYTES;
            if slot / page_slots == page.0 {
                page.1 += bytes;
                continue;
            }
            pending += self.read_page(command, last_slot, page.1);
            page = (slot / page_slots, bytes);
            last_slot = slot;
        }
        pending += self.read_page(command, last_slot, page.1);
        self.commands.get(command).pending = pending;
        if pending == 0 {
            self.end_read(command);
        }
    }

    /// Queues a read of `bytes` bytes of the page (or pages) that holds the slot. Returns the
    /// number of reads queued.
    fn read_page(&mut self, command: u32, slot: u32, bytes: u64) -> u32 {
        if slot == NONE {
            return 0;
        }
        let lane = self.translation.lane_of(slot);
        let pages = bytes.div_ceil(self.timing.lane_page).max(1);
        let per_unit = self.parameters.pages_per_unit();
        let page = self.translation.page_of(slot) * per_unit;
        let sense = self.timing.sense(page, self.translation.is_cached(slot));
        // The next page is sensed while one is moved.
        let moving = self.timing.transfer(bytes.min(self.timing.lane_page));
        let more = (pages - 1) * sense.saturating_sub(moving);
        let read = PageRead::new(command, bytes, sense, more);
        self.page_reads.push(&mut self.lanes[lane as usize], read);
        self.reads_wait(lane);
        1
    }

    /// Handles the end of a page read for the command.
    pub(super) fn page_was_read(&mut self, command: u32) {
        let it = self.commands.get(command);
        it.pending -= 1;
        if it.pending > 0 {
            return;
        }
        if std::mem::take(&mut it.looking_up) {
            self.read_data(command);
        } else {
            self.end_read(command);
        }
    }

    /// Sends a read's data to the host.
    fn end_read(&mut self, command: u32) {
        let bytes = self.commands.get(command).bytes;
        let way = usize::from(self.parameters.full_duplex);
        let there = self.link[way].take(self.now, self.timing.link(bytes));
        self.commands.end(command, there + self.timing.read_latency);
    }
}
