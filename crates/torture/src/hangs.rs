//! I/O that never ends on its own. It lasts until a restart, until the end of the run's weather, or
//! until everything that waits may rightly wait for it, at which point the operator repairs the
//! leg. Requests that need only what other legs have must go on (P4), and once the leg is out, the
//! others must converge (P6).

use std::collections::BTreeSet;

use hemi_engine::identifiers::LegIndex;
use hemi_engine::io::Operation;
use hemi_engine::settings::{FlushCopies, Policy};
use hemi_engine::status::{LegState, LegStatus};
use hemi_units::{Extent, Instant, MICROSECOND, MILLISECOND, SECOND, SECTOR_BYTES};
use hemi_world::disk::Disk;
use hemi_world::register::Asked;

use crate::checker::exposure::is_in;
use crate::events::Event;
use crate::world::World;

/// The longest that other legs may take, after a leg went out, to answer the requests that waited
/// for it.
const OUT_SETTLES: u64 = 10 * SECOND;
/// The time that a hanging leg is given beyond `out_after` at the end of a run, before the others
/// are judged.
const OUT_SLACK: u64 = 5 * SECOND;
/// The longest `out_after` that is waited for.
const OUT_AFTER_MAX: u64 = 60 * SECOND;
/// The longest that convergence of the other legs may take.
const CONVERGENCE: u64 = 120 * SECOND;

fn writes(asked: &Asked) -> bool {
    !matches!(asked.operation, Operation::Read | Operation::Flush)
}

impl World {
    /// Returns the leg with some I/O that never ends, if there is one.
    pub(crate) fn hung_leg(&self) -> Option<u8> {
        let hangs = |leg: usize| {
            let behaviour = &self.legs[leg];
            behaviour.frozen_until == Instant::NEVER
                || behaviour.hung_until.contains(&Instant::NEVER)
                || behaviour.loses.iter().any(|count| *count > 0)
                || self.ios.iter().any(|io| io.live && io.stuck && io.io.leg.index() == leg)
        };
        (0..self.legs.len()).find(|&leg| hangs(leg)).map(|leg| leg as u8)
    }

    /// Returns true if I/O of a leg may hang forever from now on. Only one leg may hang at a time,
    /// and only beside a healthy one.
    pub(crate) fn may_hang_forever(&mut self, leg: u8) -> bool {
        if self.engine.is_none() || self.hung_leg().is_some_and(|hung| hung != leg) {
            return false;
        }
        let status = self.refresh_status();
        status.legs.iter().any(|other| other.leg != leg && other.state == LegState::Healthy)
    }

    /// Ends everything that would never have ended.
    pub(crate) fn end_hangs(&mut self) {
        let now = self.now;
        if let Some(hung) = self.hung_leg() {
            self.legs[usize::from(hung)].disturbed = now;
        }
        for leg in &mut self.legs {
            let times = leg.hung_until.iter_mut();
            for time in times.chain([&mut leg.frozen_until, &mut leg.disturbed]) {
                if *time == Instant::NEVER {
                    *time = now;
                }
            }
            leg.loses.fill(0);
        }
        for slot in 0..self.ios.len() {
            let in_flight = &mut self.ios[slot];
            if std::mem::take(&mut in_flight.stuck) && in_flight.live && !in_flight.zombie {
                let uses = in_flight.uses;
                let due = now + self.random.below(1000);
                self.events.at(due, Event::IoEnds(slot as u32, uses));
            }
        }
    }

    /// Handles a run in which nothing has been answered for `limit`. If everything may rightly wait
    /// for a leg that hangs, the hang ends. Otherwise that breaks P4.
    pub(crate) fn hang(&mut self, limit: u64) {
        if let Some(hung) = self.hung_leg()
            && self.may_all_wait_for(hung)
        {
            self.tell(|| format!("all that waits may wait for leg {hung}, which now answers"));
            self.counts.hangs_waited_for += 1;
            self.stall.close();
            self.end_hangs();
            return;
        }
        if self.may_wait_for_bad_block() {
            self.tell(|| "what waits may wait for a bad block, which is now good".into());
            self.counts.hangs_waited_for += 1;
            self.stall.close();
            self.legs.iter_mut().for_each(|leg| leg.bad_block = None);
            return;
        }
        if self.may_wait_for_errors() {
            self.tell(|| {
                "what waits for several copies may wait for errors and late legs, which end".into()
            });
            self.counts.hangs_waited_for += 1;
            self.stall.close();
            self.end_errors();
            return;
        }
        let waiting: Vec<Asked> =
            self.requests.iter().filter(|p| p.live).map(|p| p.asked).take(4).collect();
        let status = self.refresh_status();
        let legs: Vec<_> = status.legs.iter().map(|l| (l.leg, l.state, l.owed_bytes)).collect();
        let text = format!(
            "{} requests unanswered after {} ms: {waiting:?}; legs {legs:?}",
            self.under_way,
            limit / (1000 * MICROSECOND)
        );
        self.broken("P4", text);
    }

    /// Returns true if each request in flight may wait because reads or flushes keep failing.
    ///
    /// A flush of several copies waits until legs have everything. Each unreadable block takes
    /// seconds, and a leg that fails flushes may lose data faster than slow legs give it back. The
    /// same holds for a leg that takes longer than any is given: it counts as frozen again and
    /// again, and the other is paid from it one read at a time. Where all legs must have a write,
    /// writes may wait, and so may reads behind them. Where no leg that is in has everything, all
    /// requests may.
    fn may_wait_for_errors(&mut self) -> bool {
        let legs = &self.refresh_status().legs;
        let owes = legs.iter().any(|leg| leg.owed_bytes > 0);
        let none_has_all = legs.iter().all(|leg| !is_in(leg.state) || leg.owed_bytes > 0);
        let on_all = matches!(self.settings.policy, Policy::All | Policy::WriteBehind);
        let flushes = |asked: &Asked| asked.fua || asked.operation == Operation::Flush;
        let waiting = || self.requests.iter().filter(|p| p.live).map(|p| &p.asked);
        let may_wait = |asked: &Asked| {
            let behind = |write: &Asked| writes(write) && write.extent.overlaps(asked.extent);
            flushes(asked) || none_has_all || on_all && (writes(asked) || waiting().any(behind))
        };
        let all_may = waiting().all(may_wait);
        let fails = self.legs.iter().any(|leg| leg.read_errors > 0 || leg.flush_errors > 0)
            || self.disks.iter().any(Disk::has_unreadable)
            || (0..self.legs.len()).any(|leg| self.is_always_late(leg));
        let several = self.settings.policy != Policy::First
            || self.settings.flush_copies != FlushCopies::Count(1)
            || none_has_all;
        all_may && fails && owes && several
    }

    /// Returns true if a leg may take longer for an I/O than any leg is given.
    fn is_always_late(&self, leg: usize) -> bool {
        self.legs[leg].longest() >= self.settings.wait_ceiling
    }

    /// Ends all errors, those of the medium included, and restores the pace of legs that are always
    /// late.
    fn end_errors(&mut self) {
        let now = self.now;
        for leg in (0..self.legs.len()).filter(|&leg| self.is_always_late(leg)).collect::<Vec<_>>()
        {
            self.end_faults_of(leg);
        }
        for leg in &mut self.legs {
            (leg.read_errors, leg.write_errors, leg.flush_errors) = (0, 0, 0);
            leg.disturbed = now;
        }
        self.disks.iter_mut().for_each(Disk::heal);
    }

    /// Returns true if each request in flight may wait for a leg that does not answer: see P4.
    fn may_all_wait_for(&mut self, hung: u8) -> bool {
        let settings = self.settings;
        self.refresh_status();
        let status = &self.status;
        // A leg that is being marked out decides nothing: the leg that hangs may have it on record.
        let engine = self.engine.as_ref().expect("something is in flight");
        let is_leaving = |leg: &LegStatus| engine.is_leaving(LegIndex(leg.leg));
        let others = || status.legs.iter().filter(|leg| leg.leg != hung && is_in(leg.state));
        let settled = |leg: &LegStatus| matches!(leg.state, LegState::Healthy | LegState::Lagging);
        let alone = others().all(is_leaving);
        let all_well = others().all(settled);
        let stays = status.legs.iter().any(|leg| leg.leg == hung && is_in(leg.state));
        let since_out = self.now.since(self.legs[usize::from(hung)].went_out);
        if alone || !all_well || settings.policy != Policy::First || self.changing.is_some() {
            return true;
        }
        if !stays && since_out < OUT_SETTLES {
            return true;
        }
        let exposed = status.exposure_bytes;
        self.look_for_what_is_alone(usize::from(hung));
        let mut waiting: Vec<(Asked, bool)> = (self.requests.iter())
            .filter(|pending| pending.live)
            .map(|pending| (pending.asked, self.may_wait_itself(&pending.asked, hung)))
            .collect();
        self.let_wait_behind(&mut waiting, exposed);
        waiting.iter().all(|(_, waits)| *waits)
    }

    /// Marks the requests that may wait because of others that wait: behind their ranges, or
    /// because those take shared resources. A read that was given up starts over behind writes that
    /// came after it.
    fn let_wait_behind(&self, waiting: &mut [(Asked, bool)], exposed: u64) {
        let capacity = self.settings.requests_max + self.settings.limits.operations_more;
        let mut found = true;
        while std::mem::take(&mut found) {
            let who_waits = || waiting.iter().filter(|(_, waits)| *waits).map(|(asked, _)| asked);
            // Two legs may each lack the data in flight.
            let bytes = |asked: &Asked| if writes(asked) { 2 * asked.extent.bytes() } else { 0 };
            let exposed = exposed + who_waits().map(bytes).sum::<u64>();
            let taken: u32 = who_waits().map(|asked| self.operations_of(asked)).sum();
            for at in 0..waiting.len() {
                let (asked, waits) = waiting[at];
                let behind = waiting.iter().any(|(other, waits)| {
                    let either_writes = writes(&asked) || writes(other);
                    *waits && either_writes && other.extent.overlaps(asked.extent)
                });
                let held_back =
                    self.throttles() && exposed + bytes(&asked) > self.settings.exposure_bytes;
                let kept = if writes(&asked) { capacity / 8 } else { 0 };
                let no_room = writes(&asked) && held_back || taken + kept >= capacity;
                if !waits && asked.operation != Operation::Flush && (behind || no_room) {
                    (waiting[at].1, found) = (true, true);
                }
            }
        }
    }

    /// Returns the most operations that a request is split into at once.
    fn operations_of(&self, asked: &Asked) -> u32 {
        const PIECE_MIN: u64 = 16 << 10;
        let limits = &self.settings.limits;
        let regions = self.whole_regions(asked.extent).bytes() / self.shape.region_bytes;
        let pieces = asked.extent.bytes() / limits.operation_bytes.min(PIECE_MIN);
        limits.operations_per_request.min((regions + pieces) as u32 + 1)
    }

    /// Returns true if a request may wait for the leg on its own account, regardless of the
    /// requests ahead of it.
    fn may_wait_itself(&self, asked: &Asked, hung: u8) -> bool {
        let writes = writes(asked);
        let flushes = asked.operation == Operation::Flush || asked.fua;
        let strict = self.settings.flush_copies != FlushCopies::Count(1);
        let held_back = self.throttles() && self.is_much_exposed();
        if flushes && strict || writes && held_back || self.has_no_memory(asked, hung) {
            return true;
        }
        if !self.deceives() && self.is_excused(asked) {
            return true;
        }
        // Data counts as missing on another leg if that leg is not known to have it, because a
        // cache or a write may be lost or because it owes the whole region.
        let extent = match asked.operation {
            Operation::Flush => Extent { start: 0, end: self.sectors() },
            Operation::Read => asked.extent,
            _ => self.whole_regions(asked.extent),
        };
        let unreadable =
            asked.operation == Operation::Read && self.others_cannot_read(extent, hung);
        unreadable || !self.others_have(extent, hung)
    }

    /// Returns true if each other leg has a block of an extent that its medium cannot read. Data
    /// that the hanging leg may still have is not given up as long as it may answer.
    fn others_cannot_read(&self, extent: Extent, hung: u8) -> bool {
        self.status.legs.iter().filter(|leg| leg.leg != hung && is_in(leg.state)).all(|leg| {
            let disk = &self.disks[usize::from(leg.leg)];
            disk.is_unreadable(disk.of_volume(extent))
        })
    }

    /// Returns true if I/O that a leg never ends takes so much memory that a request has to wait
    /// for a buffer. A read that starts over needs one of its own, a write those of data to be
    /// drained.
    fn has_no_memory(&self, asked: &Asked, hung: u8) -> bool {
        match asked.operation {
            Operation::Read => self.has_no_buffer(asked.extent.sectors(), hung),
            _ => self.keeps_all_memory(hung),
        }
    }

    /// Returns true if nothing can be drained because of the memory that such I/O takes.
    fn keeps_all_memory(&self, hung: u8) -> bool {
        self.has_no_buffer(u64::from(self.settings.drain_bytes) / SECTOR_BYTES, hung)
    }

    fn has_no_buffer(&self, sectors: u64, hung: u8) -> bool {
        let Some(engine) = &self.engine else { return false };
        let of_leg = self.ios.iter().filter(|io| io.live && io.io.leg.0 == hung);
        let buffers: BTreeSet<u32> =
            of_leg.filter_map(|io| io.io.buffer.map(|at| at.buffer.0)).collect();
        let (pool, memory) = (engine.buffers(), self.shape.memory_sectors);
        let kept = pool.sectors_of(&buffers);
        kept >= memory / 4 && pool.used_sectors() + sectors.next_power_of_two() > memory
    }

    /// Returns true if legs other than this one have all of an extent, by the volume's own account.
    fn others_have(&self, extent: Extent, hung: u8) -> bool {
        let engine = self.engine.as_ref().expect("something is in flight");
        let answers = |leg: &&LegStatus| leg.leg != hung && is_in(leg.state);
        let answering =
            self.status.legs.iter().filter(answers).fold(0, |mask, l| mask | 1 << l.leg);
        let mut at = extent.start;
        while at < extent.end {
            let (part, fresh) = engine.copies(Extent { start: at, end: extent.end });
            if fresh & answering == 0 {
                return false;
            }
            at = part.end;
        }
        true
    }

    /// Checks at the end of a run that, if a leg still hangs and is out, the others converge
    /// without it.
    pub(crate) fn converge_beside_hang(&mut self) {
        let Some(hung) = self.hung_leg() else { return };
        for leg in (0..self.legs.len()).filter(|&leg| leg != usize::from(hung)) {
            self.end_faults_of(leg);
        }
        self.wait(self.settings.out_after.min(OUT_AFTER_MAX) + OUT_SLACK);
        let is_judged = |world: &mut World| {
            let changes = world.changing.is_some() || world.hung_leg() != Some(hung);
            let status = world.refresh_status();
            let out = status.legs.iter().any(|l| l.leg == hung && l.state == LegState::Out);
            let stay = status.legs.iter().filter(|l| l.leg != hung);
            // Another leg that is out may wait for data that the hanging one alone has.
            let judged = stay.clone().count() > 1 && stay.clone().all(|l| is_in(l.state));
            out && !changes
                && judged
                && !world.keeps_all_memory(hung)
                && !world.is_newest_alone(usize::from(hung))
        };
        let end = self.now + CONVERGENCE;
        while self.violation.is_none() && is_judged(self) {
            self.rewrite_lost();
            let status = self.refresh_status();
            let touched = status.dirty_regions - status.armed_regions;
            let mut stay = status.legs.iter().filter(|l| l.leg != hung);
            let well = stay.all(|l| l.state == LegState::Healthy && l.owed_bytes == 0);
            if well && touched == 0 {
                self.counts.hangs_beside += 1;
                self.compare_all_but(hung);
                return;
            }
            if self.now >= end {
                let status = self.refresh_status();
                let legs: Vec<_> =
                    status.legs.iter().map(|l| (l.leg, l.state, l.owed_bytes)).collect();
                let text =
                    format!("not converged beside leg {hung}: {legs:?}, {touched} regions touched");
                self.broken("P6", text);
            }
            self.wait(50 * MILLISECOND);
        }
    }

    /// Returns true if this leg alone has the newest version of some sector: an authority has lost
    /// it with its cache, and waits for the leg that may still have it. P1 comes before P6.
    fn is_newest_alone(&self, leg: usize) -> bool {
        let others: Vec<&[u64]> = (0..self.disks.len())
            .filter(|&other| other != leg)
            .map(|other| self.disks[other].contents())
            .collect();
        let newest = self.disks[leg].contents().iter().enumerate();
        newest
            .into_iter()
            .any(|(sector, &version)| others.iter().all(|disk| disk[sector] < version))
    }

    fn compare_all_but(&mut self, hung: u8) {
        let members: Vec<usize> =
            self.members().into_iter().filter(|&leg| leg != hung).map(usize::from).collect();
        self.compare(&members);
    }
}
