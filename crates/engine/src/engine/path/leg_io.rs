//! Leg I/O: what a leg has room for is started, and what has ended is given to whoever waits for it.

use crate::engine::Engine;
use crate::engine::state::debt::Source;
use crate::engine::state::in_flight::{Io, Purpose};
use crate::engine::state::leg::Class;
use crate::identifiers::{IoId, LegIndex};
use crate::io::{Buffers, LegError, LegIo, LegOperation, Notice};
use hemi_units::Extent;

impl<B: Buffers> Engine<B> {
    /// Starts what a leg has room for: metadata, then a flush, then drains.
    pub(in crate::engine) fn pump_leg(&mut self, leg: usize) {
        let state = &self.legs[leg];
        if !state.answers() {
            return;
        }
        if self.regions.metadata().has_requests(state.index) {
            self.pump_metadata(leg);
        }
        let state = &self.legs[leg];
        if state.stamps.wants_flush() {
            self.start_flush(leg);
        }
        let state = &self.legs[leg];
        if !state.debts.is_empty() || self.regions.stale_count(state.index) > 0 {
            self.pump_drain(leg);
        }
    }

    fn pump_metadata(&mut self, leg: usize) {
        let index = LegIndex(leg as u8);
        while self.ios.free_slots() > 0 {
            let withheld = (!self.may_be_told(index)).then(|| self.regions.metadata().superblock());
            let write = self.regions.next_metadata_write(index, withheld, &mut self.marks);
            let Some(write) = write else { return };
            self.encode_object(index, &write);
            self.legs[leg].count_metadata_write();
            let io = Io::new(leg as u8, Purpose::Metadata(write), write.extent, Source::Leg);
            self.start_io(io, LegOperation::WriteMetadata);
        }
    }

    /// Hands an I/O to the driver. The caller has seen to a free slot.
    pub(in crate::engine) fn start_io(&mut self, mut io: Io, operation: LegOperation) -> u32 {
        io.submitted = self.clock.now();
        let is_data = !matches!(io.purpose, Purpose::Metadata(_));
        let leg = usize::from(io.leg);
        let class = io.purpose.class();
        let key = self.ios.start(io);
        let wait = self.first_look(leg, class, io.extent.sectors());
        let state = &mut self.legs[leg];
        state.watch.look_by(self.clock.now() + wait);
        match operation {
            LegOperation::Read => {
                state.begin_read(io.extent.bytes());
            }
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => {
                state.begin_write(io.extent.bytes(), io.payload_sectors());
            }
            _ => {}
        }
        let offset = if is_data {
            self.regions.metadata().layout().data_offset() / hemi_units::SECTOR_BYTES
        } else {
            0
        };
        let extent = if operation == LegOperation::Flush {
            Extent::default()
        } else {
            Extent { start: io.extent.start + offset, end: io.extent.end + offset }
        };
        self.outbox.start(LegIo {
            leg: LegIndex(io.leg),
            id: IoId(key.to_u64()),
            operation,
            extent,
            buffer: io.buffer(),
        });
        key.slot
    }

    /// Takes an ended I/O off its leg and gives it to whoever waits for it.
    pub(in crate::engine) fn io_done(&mut self, slot: u32, result: Result<(), LegError>) {
        let io = self.ios[slot];
        let leg = usize::from(io.leg);
        let class = io.purpose.class();
        self.ios.end(slot);
        let state = &mut self.legs[leg];
        match class {
            Class::Read => state.load.end_read(),
            Class::Write => state.load.end_write(io.payload_sectors()),
            Class::Flush => {}
        }
        let latency = self.clock.now().since(io.submitted);
        let late = latency >= self.hand_over_after(leg, class, io.extent.sectors());
        let state = &mut self.legs[leg];
        match result {
            Ok(()) => {
                state.pace.note_heard(class, io.submitted, self.clock.now());
                if late {
                    state.pace.note_lost_sight(self.clock.now());
                }
                state.record(class, io.extent.sectors(), latency, &self.settings);
            }
            Err(error) => self.note_leg_error(leg, error, io.extent.start),
        }
        match io.purpose {
            Purpose::Read { operation } => self.read_done(&io, operation, result),
            Purpose::Hedge { operation } => self.hedge_done(&io, operation, result),
            Purpose::Write { operation, since, drain, repair, gaps } => {
                self.legs[leg].load.unhold(slot);
                if gaps > 0 {
                    self.legs[leg].load.end_sieve();
                }
                let paid = drain.then(|| io.extent.sectors() - u64::from(gaps));
                self.write_done(&io, operation, since, paid, repair, result);
            }
            Purpose::DrainRead { .. } => self.drain_read_done(slot, &io, result),
            Purpose::Sieve { .. } => self.sieve_read_done(slot, &io, result),
            Purpose::Compare { .. } => self.compare_done(slot, &io, result),
            Purpose::LateRead { .. } => self.late_read_done(&io, result),
            Purpose::Abandoned => io.source.release(&mut self.buffers),
            Purpose::Flush => self.flush_done(slot, &io, result),
            Purpose::Metadata(write) => {
                self.regions.complete_metadata(LegIndex(io.leg), &write, result.is_ok());
                self.metadata_done(leg, &write, result);
            }
            Purpose::Scrub => self.scrub_read_done(&io, result),
        }
        self.ios.forget(slot);
        self.consider_thaw(leg);
    }

    fn note_leg_error(&mut self, leg: usize, error: LegError, sector: u64) {
        let state = &mut self.legs[leg];
        state.count_error();
        let notice = Notice::LegError { leg: state.index, error, sector };
        self.outbox.notice(notice);
    }
}
