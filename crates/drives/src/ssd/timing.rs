//! Durations of operations: dies, channels, the link to the host, the controller's processor.

use super::parameters::Parameters;
use hemi_units::Rate;

/// A resource that serves one request at a time, in order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Serial {
    free_at: u64,
}

impl Serial {
    /// Occupies the resource for `duration`, from `now` or from when it is free. Returns the
    /// end.
    #[inline]
    pub(super) fn take(&mut self, now: u64, duration: u64) -> u64 {
        self.free_at = self.free_at.max(now) + duration;
        self.free_at
    }
}

/// The controller's processor. It handles one task at a time; some may overtake others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Processor {
    all: Serial,
    first: Serial,
}

impl Processor {
    /// Occupies the processor for `duration` after all earlier tasks. Returns the end.
    #[inline]
    pub(super) fn take(&mut self, now: u64, duration: u64) -> u64 {
        self.all.take(now, duration)
    }

    /// Occupies the processor for `duration` after earlier overtaking tasks, ahead of all
    /// others. The others end that much later, except those whose end has already been
    /// returned.
    #[inline]
    pub(super) fn take_first(&mut self, now: u64, duration: u64) -> u64 {
        self.all.take(now, duration);
        self.first.take(now, duration)
    }
}

/// Durations in nanoseconds, from the parameters.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    page_read: Vec<u64>,
    page_program: Vec<u64>,
    cached_read: u64,
    cached_program: u64,
    pub(super) erase: u64,
    pub(super) suspend: Option<u64>,
    /// Rate of all channels of a lane together.
    lane_rate: Rate,
    link_rate: Rate,
    pub(super) lane_page: u64,
    /// Time of a lane's page over the lane's channels.
    page_transfer: u64,
    read_command: u64,
    write_command: u64,
    block_command: u64,
    pub(super) copy_command: u64,
    pub(super) read_latency: u64,
    pub(super) write_latency: u64,
    pub(super) flush: u64,
    pub(super) hold: u64,
}

impl Timing {
    pub(super) fn new(of: &Parameters) -> Timing {
        let times = |times: &[hemi_units::Time]| times.iter().map(|time| time.0).collect();
        let spread = of.gang.min(of.channels);
        let lane_rate = Rate(of.channel_rate.0 * u64::from(spread));
        Timing {
            page_read: times(&of.page_read),
            page_program: times(&of.page_program),
            cached_read: of.slc.as_ref().map_or(0, |slc| slc.page_read.0),
            cached_program: of.slc.as_ref().map_or(0, |slc| slc.page_program.0),
            erase: of.block_erase.0,
            suspend: of.suspend.map(|time| time.0),
            lane_rate,
            link_rate: of.link_rate,
            lane_page: of.lane_page(),
            page_transfer: lane_rate.time_of(of.lane_page()),
            read_command: of.read_command.0,
            write_command: of.write_command.0,
            block_command: of.block_command.0,
            copy_command: of.copy_command.0,
            read_latency: of.read_latency.0,
            write_latency: of.write_latency.0,
            flush: of.flush_time.0,
            hold: of.buffer_hold.0,
        }
    }

    /// Returns the time to sense page `page` of a block.
    #[inline]
    pub(super) fn sense(&self, page: u32, cached: bool) -> u64 {
        if cached {
            return self.cached_read;
        }
        match self.page_read[..] {
            [time] => time,
            ref times => times[page as usize % times.len()],
        }
    }

    /// Returns the time to program page `page` of a block.
    #[inline]
    pub(super) fn program(&self, page: u32, cached: bool) -> u64 {
        if cached {
            return self.cached_program;
        }
        match self.page_program[..] {
            [time] => time,
            ref times => times[page as usize % times.len()],
        }
    }

    /// Returns the time of `bytes` bytes over a lane's channels.
    #[inline]
    pub(super) fn transfer(&self, bytes: u64) -> u64 {
        if bytes == self.lane_page { self.page_transfer } else { self.lane_rate.time_of(bytes) }
    }

    /// Returns the time of `bytes` bytes over the link.
    #[inline]
    pub(super) fn link(&self, bytes: u64) -> u64 {
        self.link_rate.time_of(bytes)
    }

    /// Returns the processor's time for a command.
    #[inline]
    pub(super) fn command(&self, reads: bool, bytes: u64) -> u64 {
        let command = if reads { self.read_command } else { self.write_command };
        command + bytes.div_ceil(4096) * self.block_command
    }
}
