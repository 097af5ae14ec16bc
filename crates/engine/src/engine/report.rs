//! The status: what the volume tells of itself.

use super::Engine;
use crate::engine::state::leg::{Class, Health};
use crate::engine::state::requests::RequestState;
use crate::format::Membership;
use crate::histogram::LatencyHistogram;
use crate::identifiers::{LEGS_MAX, LegIndex};
use crate::io::{Buffers, Operation, OutReason, RequestError};
use crate::status::{LegState, LegStatus, Status};
use hemi_units::{Extent, Instant, SECTOR_BYTES};

/// Sectors in the request whose wait limits the status shows: 4 KiB.
const USUAL_SECTORS: u64 = 8;
/// Sectors in a request that counts among the large ones: 1 MiB.
const LARGE_SECTORS: u64 = 2048;

/// Counts since open, apart from those of each leg.
#[derive(Default)]
pub(super) struct Counters {
    reads: u64,
    writes: u64,
    zeroes: u64,
    flushes: u64,
    failed: u64,
    read_bytes: u64,
    written_bytes: u64,
    regions_dirtied: u64,
    regions_cleaned: u64,
    repairs: u64,
    client_reads: LatencyHistogram,
    client_writes: LatencyHistogram,
    client_zeroes: LatencyHistogram,
    client_flushes: LatencyHistogram,
}

impl Counters {
    /// Counts a region that was clean and is to be written to.
    pub(super) fn region_dirtied(&mut self) {
        self.regions_dirtied += 1;
    }

    /// Counts a region that has become clean.
    pub(super) fn region_cleaned(&mut self) {
        self.regions_cleaned += 1;
    }

    /// Counts an extent rewritten that a medium could not read.
    pub(super) fn repaired(&mut self) {
        self.repairs += 1;
    }

    /// Counts a request that is answered now.
    pub(super) fn count_reply(
        &mut self,
        request: &RequestState,
        result: Result<(), RequestError>,
        now: Instant,
    ) {
        let latency = now.since(request.started);
        let counters = self;
        if result.is_err() {
            counters.failed += 1;
            return;
        }
        match request.operation {
            Operation::Read => {
                counters.reads += 1;
                counters.read_bytes += request.extent.bytes();
                counters.client_reads.record(latency);
            }
            Operation::Flush => {
                counters.flushes += 1;
                counters.client_flushes.record(latency);
            }
            Operation::Write => {
                counters.writes += 1;
                counters.written_bytes += request.extent.bytes();
                counters.client_writes.record(latency);
            }
            // One of these may be gigabytes: among the writes it would be a stall that no
            // write had.
            Operation::WriteZeroes { .. } | Operation::Discard => {
                counters.zeroes += 1;
                counters.client_zeroes.record(latency);
            }
        }
    }
}

impl<B: Buffers> Engine<B> {
    /// Acknowledged bytes held by one leg only: [`Status::exposure_bytes`] at the cost of a
    /// few additions, for who looks after every step.
    pub fn exposure_bytes(&self) -> u64 {
        self.exposure()
    }

    /// Extents no leg holds any more, in order: reads of them fail until they are rewritten.
    pub fn lost_extents(&self) -> &[Extent] {
        self.lost.extents()
    }

    /// Fills in a snapshot.
    pub fn status(&self, now: Instant, into: &mut Status) {
        into.legs.clear();
        for leg in 0..LEGS_MAX {
            if self.legs[leg].is_member() {
                into.legs.push(self.leg_status(leg, now));
            }
        }
        let counters = &self.counters;
        into.exposure_bytes = self.exposure();
        into.exposure_age = self.exposure_age();
        into.exposure_peak = self.throttle.peak().max(into.exposure_bytes);
        into.exposure_bytes_bound = self.settings.exposure_bytes;
        into.exposure_age_bound = self.settings.exposure_age;
        into.throttling = self.throttle.is_active();
        into.converged = self.is_converged();
        into.lost_bytes = self.lost.extents().iter().map(|extent| extent.bytes()).sum();
        into.dirty_regions = self.regions.dirty_count();
        into.armed_regions = self.regions.armed_count();
        into.requests = self.requests.len() as u32;
        into.reads = counters.reads;
        into.writes = counters.writes;
        into.zeroes = counters.zeroes;
        into.flushes = counters.flushes;
        into.failed = counters.failed;
        into.read_bytes = counters.read_bytes;
        into.written_bytes = counters.written_bytes;
        into.hedges = self.hedging.sent();
        into.hedges_won = self.hedging.won();
        into.authority_moves = self.regions.moves_made();
        into.regions_dirtied = counters.regions_dirtied;
        into.regions_cleaned = counters.regions_cleaned;
        into.repairs = counters.repairs;
        into.scrub = self.scrubbing.progress();
        into.scrub_mismatches = self.scrubbing.mismatches();
        into.different = self.differences.sectors();
        into.scrub_unreadable = self.scrubbing.unreadable();
        into.client_reads = counters.client_reads.clone();
        into.client_writes = counters.client_writes.clone();
        into.client_zeroes = counters.client_zeroes.clone();
        into.client_flushes = counters.client_flushes.clone();
    }

    fn leg_status(&self, leg: usize, now: Instant) -> LegStatus {
        let state = &self.legs[leg];
        let index = LegIndex(leg as u8);
        let region_bytes = self.volume.region_bytes();
        let owed_regions = self.regions.stale_count(index) * region_bytes
            + state.debts.rebuild_bytes()
            + (state.load.rebuild() + state.load.carried().rebuild) * SECTOR_BYTES;
        let exact = self.lacked_bytes(leg);
        let in_flight = self.ios.on(leg).count() as u32;
        let (leg_state, out_reason) = match (state.membership(), state.watch.health()) {
            (Membership::Empty, _) => (LegState::Empty, None),
            (Membership::Out(reason), _) => (LegState::Out, Some(reason)),
            (_, Health::Absent | Health::Gone { .. }) => (LegState::Gone, None),
            (_, Health::Frozen { .. }) => (LegState::Frozen, None),
            _ if state.is_lagging() || owed_regions > 0 => (LegState::Lagging, None),
            _ => (LegState::Healthy, None),
        };
        let is_out =
            matches!(state.membership(), Membership::Out(reason) if reason != OutReason::Detached);
        let dead = is_out
            && (state.watch.is_removed() || self.is_long_silent(leg) || self.keeps_failing(state));
        let frozen_now = match state.watch.health() {
            Health::Frozen { since } => now.since(since),
            _ => 0,
        };
        LegStatus {
            leg: index.0,
            state: leg_state,
            slow: state.pace.is_slow(),
            out_reason,
            dead,
            owed_bytes: exact + owed_regions,
            owed_region_bytes: owed_regions,
            owed_age: state.debts.oldest_since().map_or(0, |since| now.since(since)),
            in_flight,
            oldest_io: self.ios.oldest(leg).map_or(0, |at| now.since(self.ios[at].submitted)),
            write_wait_limit: state.pace.wait_limit(Class::Write, USUAL_SECTORS),
            read_wait_limit: state.pace.wait_limit(Class::Read, USUAL_SECTORS),
            longest_wait_limit: [Class::Read, Class::Write]
                .into_iter()
                .flat_map(|class| {
                    [USUAL_SECTORS, LARGE_SECTORS]
                        .map(|sectors| state.pace.wait_limit(class, sectors))
                })
                .max()
                .unwrap_or(0),
            reads: state.pace.totals(Class::Read),
            writes: state.pace.totals(Class::Write),
            flushes: state.pace.totals(Class::Flush),
            read_bytes: state.counters().read_bytes,
            written_bytes: state.counters().written_bytes,
            freezes: state.counters().freezes,
            frozen_time: state.counters().frozen_time + frozen_now,
            longest_freeze: state.counters().longest_freeze.max(frozen_now),
            drain_ios: state.counters().drain_ios,
            drained_bytes: state.counters().drained_bytes,
            compared_bytes: state.counters().compared_bytes,
            metadata_writes: state.counters().metadata_writes,
            errors: state.counters().errors,
            authority_regions: self.regions.authority_count(index),
        }
    }
}
