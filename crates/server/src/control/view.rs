//! Builds the answer of `GET /v1/status` from a snapshot.

use std::time::Instant;

use hemi_engine::settings::Settings;
use hemi_engine::status::{LegState, LegStatus as EngineLeg, Status};
use hemi_units::SECTOR_BYTES;

use super::api::{ClientStatus, EngineCounters, Exposure, LegStatus, ScrubStatus, VolumeStatus};
use super::health::{Health, Summary};
use super::hidden::HiddenStall;
use super::history::{History, latencies};
use super::progress::{Pace, permille};
use super::usage::ProcessStatus;
use super::volume::Snapshot;
use hemi_io::probe::hex;

/// Time beyond its wait limit after which an I/O makes its leg count as stalled, in nanoseconds.
const STALLED_AFTER: u64 = 1_000_000_000;

/// Returns the answer, not judged yet ([`health::fill_in`](super::health::fill_in)). `history` supplies recent figures, and `now` the ages.
pub fn volume_status(
    snapshot: &Snapshot,
    settings: &Settings,
    history: &History,
    now: Instant,
) -> VolumeStatus {
    // Counters restart with the volume, so a snapshot from before that is no base.
    let base = history.base().filter(|base| base.opened == snapshot.opened);
    let status = &snapshot.status;
    let mut view = VolumeStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: snapshot.identity.name.clone(),
        id: hex(snapshot.identity.id),
        size_bytes: snapshot.identity.size_bytes,
        block_bytes: snapshot.identity.block_bytes,
        region_bytes: snapshot.identity.region_bytes,
        ledger: snapshot.identity.ledger.clone(),
        device: snapshot.device.clone(),
        given_up: snapshot.identity.given_up.clone(),
        config_file: None,
        phase: snapshot.phase,
        health: Health::NotServing,
        waits_for: None,
        policy: settings.policy,
        uptime_ns: nanoseconds(now, snapshot.opened),
        age_ns: nanoseconds(now, snapshot.taken),
        recent_ns: nanoseconds(snapshot.taken, base.map_or(snapshot.opened, |base| base.taken)),
        degraded: false,
        one_copy_bytes: 0,
        one_copy_region_bytes: 0,
        converged: status.converged,
        lost_bytes: status.lost_bytes,
        legs: Vec::with_capacity(status.legs.len()),
        standbys: Vec::new(),
        exposure: Exposure {
            bytes: status.exposure_bytes,
            age_ns: status.exposure_age,
            peak_bytes: status.exposure_peak,
            bound_bytes: status.exposure_bytes_bound,
            bound_age_ns: status.exposure_age_bound,
            mode: settings.exposure_mode,
            throttling: status.throttling,
        },
        clients: clients(snapshot, base.map(|base| &base.status)),
        engine: EngineCounters {
            dirty_regions: status.dirty_regions,
            armed_regions: status.armed_regions,
            regions_dirtied: status.regions_dirtied,
            regions_cleaned: status.regions_cleaned,
            authority_moves: status.authority_moves,
            hedges: status.hedges,
            hedges_won: status.hedges_won,
            repairs: status.repairs,
        },
        scrub: scrub(status, history),
        buffers: snapshot.buffers,
        taken_over: snapshot.taken_over.clone(),
        risks: Vec::new(),
        at_ms: 0,
        hidden: HiddenStall::default(),
        process: ProcessStatus::default(),
        summary: Summary::default(),
    };
    for leg in status.legs.iter().filter(|leg| leg.state != LegState::Empty) {
        let before = base
            .and_then(|base| base.status.legs.iter().find(|before| before.leg == leg.leg))
            // A new leg in the slot counts from zero.
            .filter(|before| before.writes.count() <= leg.writes.count());
        let mut shown = leg_status(leg, before);
        shown.state_age_ns = history.state_age(leg.leg, leg.state, now).map(as_nanoseconds);
        drain(&mut shown, snapshot.identity.size_bytes, history);
        if let Some(identity) = snapshot.legs.iter().find(|identity| identity.leg == leg.leg) {
            shown.name.clone_from(&identity.name);
            shown.path.clone_from(&identity.path);
        }
        let mut faults = snapshot.injected.iter();
        shown.injected =
            faults.find(|(slot, _)| *slot == leg.leg).map(|(_, state)| (*state).into());
        let mut reasons = snapshot.no_session.iter();
        shown.no_session =
            reasons.find(|(slot, _)| *slot == leg.leg).map(|(_, reason)| reason.to_string());
        if shown.no_session.is_some() {
            // Nothing goes to it.
            shown.progress_permille = None;
            (shown.remaining_ns, shown.drain_bytes_per_s) = (None, None);
        }
        view.legs.push(shown);
    }
    view
}

fn scrub(status: &Status, history: &History) -> ScrubStatus {
    let mut shown = ScrubStatus {
        running: status.scrub.is_some(),
        mismatched_bytes: status.scrub_mismatches * SECTOR_BYTES,
        unreadable_bytes: status.scrub_unreadable * SECTOR_BYTES,
        different_bytes: status.different * SECTOR_BYTES,
        ..ScrubStatus::default()
    };
    if let Some((done, total)) = status.scrub {
        shown.compared_bytes = done * SECTOR_BYTES;
        shown.total_bytes = total * SECTOR_BYTES;
        shown.permille = Some(permille(total, total.saturating_sub(done)));
        let pace = history.scrub();
        shown.remaining_ns = pace.and_then(Pace::remaining).map(as_nanoseconds);
        shown.bytes_per_s = pace.and_then(Pace::bytes_per_second);
    }
    shown
}

/// Fills in the progress of a leg that owes something.
fn drain(leg: &mut LegStatus, volume_bytes: u64, history: &History) {
    let Some(pace) = history.drain(leg.leg).filter(|_| leg.owed_bytes > 0) else { return };
    leg.remaining_ns = pace.remaining().map(as_nanoseconds);
    leg.drain_bytes_per_s = pace.bytes_per_second();
    // A leg that has just joined owes the whole volume.
    let joins = leg.out_reason == Some(super::api::OutReason::Joining);
    let answers = matches!(leg.state, LegState::Healthy | LegState::Lagging);
    let is_paid = answers || leg.drain_bytes_per_s.is_some_and(|rate| rate > 0);
    if joins || is_paid && leg.owed_region_bytes > 0 {
        leg.progress_permille = Some(pace.permille(joins.then_some(volume_bytes)));
    }
}

fn clients(snapshot: &Snapshot, base: Option<&Status>) -> ClientStatus {
    let status = &snapshot.status;
    ClientStatus {
        connections: snapshot.connections,
        requests: status.requests,
        failed: status.failed,
        read_bytes: status.read_bytes,
        written_bytes: status.written_bytes,
        reads: latencies(&status.client_reads, base.map(|base| &base.client_reads)),
        writes: latencies(&status.client_writes, base.map(|base| &base.client_writes)),
        zeroes: latencies(&status.client_zeroes, base.map(|base| &base.client_zeroes)),
        flushes: latencies(&status.client_flushes, base.map(|base| &base.client_flushes)),
    }
}

fn leg_status(leg: &EngineLeg, before: Option<&EngineLeg>) -> LegStatus {
    LegStatus {
        leg: leg.leg,
        name: format!("leg {}", leg.leg),
        path: String::new(),
        state: leg.state,
        state_age_ns: None,
        out_reason: leg.out_reason.map(Into::into),
        slow: leg.slow,
        owed_bytes: leg.owed_bytes,
        owed_region_bytes: leg.owed_region_bytes,
        owed_age_ns: leg.owed_age,
        in_flight: leg.in_flight,
        stalled: leg.oldest_io > leg.longest_wait_limit.saturating_add(STALLED_AFTER),
        read_wait_limit_ns: leg.read_wait_limit,
        write_wait_limit_ns: leg.write_wait_limit,
        reads: latencies(&leg.reads, before.map(|before| &before.reads)),
        writes: latencies(&leg.writes, before.map(|before| &before.writes)),
        flushes: latencies(&leg.flushes, before.map(|before| &before.flushes)),
        read_bytes: leg.read_bytes,
        written_bytes: leg.written_bytes,
        freezes: leg.freezes,
        frozen_ns: leg.frozen_time,
        longest_freeze_ns: leg.longest_freeze,
        drain_ios: leg.drain_ios,
        drained_bytes: leg.drained_bytes,
        compared_bytes: leg.compared_bytes,
        metadata_writes: leg.metadata_writes,
        errors: leg.errors,
        authority_regions: leg.authority_regions,
        metadata_lost: None,
        remaining_ns: None,
        drain_bytes_per_s: None,
        progress_permille: None,
        injected: None,
        no_session: None,
        drive: None,
        drives: Vec::new(),
        verdict: None,
    }
}

fn nanoseconds(later: Instant, earlier: Instant) -> u64 {
    as_nanoseconds(later.saturating_duration_since(earlier))
}

fn as_nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
