//! Makes steps of the history from snapshots. The engine's counters are cumulative, so a step is the
//! difference between two snapshots. All other figures are read from every snapshot in between.

use std::sync::Arc;

use hemi_engine::histogram::LatencyHistogram;
use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::status::{LegState, LegStatus, Status};

use super::rings::Resolution;
use super::row::{Column, LegColumn, Row};
use crate::control::hidden::Hidden;
use crate::control::usage;
use crate::control::volume::Snapshot;

/// Figures that are not counters, summed over the snapshots of a step.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: u32,
    in_flight: u64,
    exposure: u64,
    exposure_age: u64,
    throttled: u32,
    legs: [LegLooks; LEGS_MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct LegLooks {
    in_flight: u64,
    out: u32,
    owed: u64,
}

impl Looks {
    fn take(&mut self, status: &Status) {
        self.count += 1;
        self.in_flight += u64::from(status.requests);
        self.exposure = self.exposure.max(status.exposure_bytes);
        self.exposure_age = self.exposure_age.max(status.exposure_age);
        self.throttled += u32::from(status.throttling);
        for leg in &status.legs {
            let looks = &mut self.legs[usize::from(leg.leg)];
            looks.in_flight += u64::from(leg.in_flight);
            looks.out += u32::from(matches!(leg.state, LegState::Out | LegState::Gone));
            looks.owed = looks.owed.max(leg.owed_bytes);
        }
    }
}

/// A step in progress.
#[derive(Debug)]
struct Step {
    resolution: Resolution,
    /// The snapshot at its beginning, and the processor time then.
    base: Option<(Arc<Snapshot>, u64)>,
    /// The number of the step since 1970.
    number: u64,
    looks: Looks,
    hidden: u64,
}

impl Step {
    fn new(resolution: Resolution) -> Step {
        Step { resolution, base: None, number: 0, looks: Looks::default(), hidden: 0 }
    }

    /// Takes a snapshot. Returns the step that it ends, with the snapshot at its beginning and its length in
    /// nanoseconds.
    fn take(&mut self, snapshot: &Arc<Snapshot>, now_ms: u64) -> Option<(Row, Arc<Snapshot>, u64)> {
        self.looks.take(&snapshot.status);
        let number = now_ms / self.resolution.step_ms();
        if self.base.is_some() && number == self.number {
            return None;
        }
        let cpu = usage::cpu_ns();
        let base = self.base.replace((Arc::clone(snapshot), cpu));
        let looks = std::mem::take(&mut self.looks);
        // A step that began in the middle of its interval is left out, and so is one that lasted too long
        // because the control thread did not run or the clock was set.
        let is_whole = number == self.number + 1;
        self.number = number;
        let (base, base_cpu) = base.filter(|(base, _)| base.opened == snapshot.opened)?;
        let length = snapshot.taken.saturating_duration_since(base.taken).as_nanos() as u64;
        let mut row = Row::unknown(number * self.resolution.step_ms());
        if length > 0 && is_whole {
            fill(&mut row, &base.status, &snapshot.status, &looks, length);
            let permille = cpu.saturating_sub(base_cpu) as f64 * 1000.0 / length as f64;
            row.set(Column::Cpu, permille as f32);
            row.set(Column::Resident, usage::resident_bytes() as f32);
        }
        Some((row, base, length))
    }
}

/// Makes steps of both resolutions, and counts the hidden stall time.
#[derive(Debug)]
pub(in crate::control) struct Sampler {
    fine: Step,
    coarse: Step,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { fine: Step::new(Resolution::Fine), coarse: Step::new(Resolution::Coarse) }
    }
}

impl Sampler {
    /// Takes a snapshot, and passes the steps that it ends to `push`.
    pub(in crate::control) fn take(
        &mut self,
        snapshot: &Arc<Snapshot>,
        now_ms: u64,
        hidden: &mut Hidden,
        mut push: impl FnMut(Resolution, Row),
    ) {
        if let Some((mut row, base, length)) = self.fine.take(snapshot, now_ms) {
            let added = hidden.take(&base.status, &snapshot.status, length, now_ms);
            row.set(Column::Hidden, added as f32);
            self.coarse.hidden += added;
            push(Resolution::Fine, row);
        }
        if let Some((mut row, _, _)) = self.coarse.take(snapshot, now_ms) {
            row.set(Column::Hidden, std::mem::take(&mut self.coarse.hidden) as f32);
            push(Resolution::Coarse, row);
        }
    }
}

fn fill(row: &mut Row, before: &Status, now: &Status, looks: &Looks, length: u64) {
    let a_second = |count: u64| (count as f64 * 1e9 / length as f64) as f32;
    let rate = |now: u64, before: u64| a_second(now.saturating_sub(before));
    let mean = |sum: u64| sum as f32 / looks.count.max(1) as f32;
    let reads = now.client_reads.since(&before.client_reads);
    let writes = now.client_writes.since(&before.client_writes);
    row.set(Column::Reads, a_second(reads.count()));
    row.set(Column::Writes, a_second(writes.count()));
    row.set(Column::ReadBytes, rate(now.read_bytes, before.read_bytes));
    row.set(Column::WrittenBytes, rate(now.written_bytes, before.written_bytes));
    row.set(Column::InFlight, mean(looks.in_flight));
    let mut all = reads;
    all.merge(&writes);
    // Without any request there is no latency.
    if all.count() > 0 {
        row.set(Column::P50, all.quantile(500) as f32);
        row.set(Column::P99, all.quantile(990) as f32);
        row.set(Column::P999, all.quantile(999) as f32);
        row.set(Column::Max, all.max() as f32);
    }
    row.set_heat(&all);
    row.set(Column::Exposure, looks.exposure as f32);
    row.set(Column::ExposureAge, looks.exposure_age as f32);
    row.set(Column::Throttled, mean(u64::from(looks.throttled) * 1000));
    for leg in now.legs.iter().filter(|leg| leg.state != LegState::Empty) {
        let empty = LegStatus::default();
        // A new leg in the slot counts from zero.
        let is_same = |before: &&LegStatus| {
            before.leg == leg.leg && before.writes.count() <= leg.writes.count()
        };
        let before = before.legs.iter().find(is_same).unwrap_or(&empty);
        fill_leg(row, before, leg, &looks.legs[usize::from(leg.leg)], looks.count, length);
    }
}

fn fill_leg(
    row: &mut Row,
    before: &LegStatus,
    now: &LegStatus,
    looks: &LegLooks,
    count: u32,
    length: u64,
) {
    let slot = usize::from(now.leg);
    let a_second = |count: u64| (count as f64 * 1e9 / length as f64) as f32;
    let rate = |now: u64, before: u64| a_second(now.saturating_sub(before));
    let mean = |sum: u64| sum as f32 / count.max(1) as f32;
    let reads = now.reads.since(&before.reads);
    let writes = now.writes.since(&before.writes);
    let mut set = |column, value| row.set_leg(slot, column, value);
    set(LegColumn::Reads, a_second(reads.count()));
    set(LegColumn::Writes, a_second(writes.count()));
    set(LegColumn::ReadBytes, rate(now.read_bytes, before.read_bytes));
    set(LegColumn::WrittenBytes, rate(now.written_bytes, before.written_bytes));
    let frozen = now.frozen_time.saturating_sub(before.frozen_time) as f64;
    set(LegColumn::Frozen, (frozen * 1000.0 / length as f64).min(1000.0) as f32);
    set(LegColumn::Out, mean(u64::from(looks.out) * 1000));
    set(LegColumn::Owed, looks.owed as f32);
    set(LegColumn::InFlight, mean(looks.in_flight));
    let mut all: LatencyHistogram = reads;
    all.merge(&writes);
    if all.count() > 0 {
        set(LegColumn::P50, all.quantile(500) as f32);
        set(LegColumn::P99, all.quantile(990) as f32);
        set(LegColumn::Max, all.max() as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::volume::Identity;
    use super::*;
    use std::time::{Duration, Instant};

    const NOW: u64 = 1_700_000_000_000;

    fn snapshot(opened: Instant, after_ms: u64, change: impl FnOnce(&mut Status)) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::opening(Identity::default(), Vec::new());
        (snapshot.opened, snapshot.taken) = (opened, opened + Duration::from_millis(after_ms));
        let leg = LegStatus {
            leg: 1,
            state: LegState::Healthy,
            read_wait_limit: 20_000_000,
            write_wait_limit: 20_000_000,
            longest_wait_limit: 20_000_000,
            ..LegStatus::default()
        };
        snapshot.status.legs.push(leg);
        change(&mut snapshot.status);
        Arc::new(snapshot)
    }

    #[test]
    fn a_step_is_the_difference_of_two_snapshots() {
        let opened = Instant::now();
        let (mut sampler, mut hidden) = (Sampler::default(), Hidden::default());
        let mut rows = Vec::new();
        let mut take = |sampler: &mut Sampler, at: u64, snapshot: &Arc<Snapshot>| {
            sampler.take(snapshot, NOW + at, &mut hidden, |resolution, row| {
                rows.push((resolution, row));
            });
        };
        take(&mut sampler, 0, &snapshot(opened, 0, |_| {}));
        take(&mut sampler, 500, &snapshot(opened, 500, |status| status.exposure_bytes = 4096));
        let busy = snapshot(opened, 1000, |status| {
            for _ in 0..50 {
                status.client_writes.record(30_000);
            }
            status.written_bytes = 1 << 20;
            status.legs[0].frozen_time = 250_000_000;
        });
        take(&mut sampler, 1000, &busy);
        // Half a minute later, without a sample in between.
        take(&mut sampler, 30_000, &busy);
        let fine: Vec<Row> = rows
            .iter()
            .filter(|(resolution, _)| *resolution == Resolution::Fine)
            .map(|(_, row)| *row)
            .collect();
        assert_eq!(fine.len(), 2);
        let row = &fine[0];
        assert_eq!(row.at_ms, NOW + 1000);
        assert_eq!(row.get(Column::Writes), 50.0);
        assert_eq!(row.get(Column::Reads), 0.0);
        assert_eq!(row.get(Column::WrittenBytes), (1 << 20) as f32);
        assert_eq!(row.get(Column::Exposure), 4096.0, "the greatest in between");
        assert_eq!(row.leg(1, LegColumn::Frozen), 250.0);
        assert_eq!(row.get(Column::Hidden), 250_000_000.0);
        assert!(row.leg(1, LegColumn::P50).is_nan(), "the leg answered nothing");
        assert_eq!(row.heat().iter().sum::<f32>(), 50.0);
        assert!(fine[1].get(Column::Writes).is_nan(), "nobody knows when within so long");
    }
}
