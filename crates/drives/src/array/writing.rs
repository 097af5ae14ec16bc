//! Writes of an array: through the cache or past it, row by row if there is parity.

use hemi_units::{Instant, Operation};

use super::flow::{WRITE, time_of};
use super::job::{Job, MemberIo, Owner, RowWrite};
use super::layout::{Piece, Run};
use super::slab::NONE;
use super::{Array, Pass, row};
use crate::drive::{Drive, Failure};

impl<D: Drive> Array<D> {
    /// Handles a write whose data has arrived: it goes into the cache or through to the
    /// members.
    pub(super) fn write(&mut self, now: Instant, job: u32) {
        let through = self.jobs[job].operation == Operation::Write { fua: true };
        match &mut self.caching {
            Some(caching) if caching.protected || !through => {
                caching.queues.writes.push_back(job);
                caching.quiet_at = now + caching.linger;
                self.fill_cache(now);
            }
            _ => self.write_through(now, job),
        }
    }

    /// Takes waiting writes into the cache, in order, while there is room, and destages.
    fn fill_cache(&mut self, now: Instant) {
        while let Some(caching) = &mut self.caching
            && let Some(&job) = caching.queues.writes.front()
        {
            let Job { extent, mut reached, .. } = self.jobs[job];
            let width = self.layout.row_sectors();
            while reached < extent.end {
                let row = reached / width;
                let end = extent.end.min((row + 1) * width) - row * width;
                let until = row * width + caching.blocks.insert(row, reached - row * width, end);
                let stuck = until < row * width + end;
                reached = until;
                if stuck {
                    break;
                }
            }
            self.jobs[job].reached = reached;
            if reached < extent.end {
                break;
            }
            caching.queues.writes.pop_front();
            self.complete(now, job);
        }
        self.destage(now);
    }

    /// Destages rows from the cache to the members, as many at once as are allowed.
    pub(super) fn destage(&mut self, now: Instant) {
        let mut runs = std::mem::take(&mut self.scratch.destaged);
        while let Some(caching) = &mut self.caching
            && caching.flying < caching.depth
        {
            // Rows in flight make room for a waiting write; a flush waits for all of them.
            let stuck = caching.flying == 0 && !caching.queues.writes.is_empty();
            let flushes = !caching.queues.flushes.is_empty();
            let urgent = stuck || flushes || caching.quiet_at <= now;
            let Some(row) = caching.blocks.next_row(urgent) else { break };
            caching.blocks.send(row, &self.layout, &mut runs);
            caching.flying += 1;
            self.start_row(now, row, &runs, Owner::Cache);
        }
        self.scratch.destaged = runs;
    }

    /// Writes a request to the members before it is done.
    fn write_through(&mut self, now: Instant, job: u32) {
        let extent = self.jobs[job].extent;
        let layout = self.layout;
        if let Some(caching) = &mut self.caching {
            // The cache's contents there are older.
            layout.rows_of(extent, |row, start, end| caching.blocks.forget(row, start, end));
        }
        self.jobs[job].left = 1;
        if layout.parity() == 0 {
            self.spread(now, job, WRITE);
        } else {
            let mut runs = std::mem::take(&mut self.scratch.runs);
            layout.rows_of(extent, |row, start, end| {
                runs.clear();
                layout.runs_of(start, end, |run| runs.push(run));
                self.jobs[job].left += 1;
                self.start_row(now, row, &runs, Owner::Job(job));
            });
            self.scratch.runs = runs;
        }
        if self.caching.is_some() {
            self.after_destage(now);
        }
        self.release(now, job);
    }

    /// Writes `runs` of a row, after earlier writes to the row are done.
    fn start_row(&mut self, now: Instant, row: u64, runs: &[Run], owner: Owner) {
        let place = self.row_writes.take(RowWrite::blank);
        let write = &mut self.row_writes[place];
        (write.row, write.owner, write.next, write.result) = (row, owner, NONE, Ok(()));
        write.runs.clear();
        write.runs.extend_from_slice(runs);
        match self.locked.insert(row, place) {
            Some(last) => self.row_writes[last].next = place,
            None => self.enter_row(now, place),
        }
    }

    /// Starts a write whose row is free: reads the blocks it needs.
    fn enter_row(&mut self, now: Instant, place: u32) {
        let mut reads = std::mem::take(&mut self.scratch.reads);
        let layout = &self.layout;
        let write = &mut self.row_writes[place];
        write.writing = false;
        if layout.parity() == 0 {
            reads.clear();
            write.writes.clear();
            for run in &write.runs {
                let first = layout.data_member(write.row, run.index);
                let extent = layout.on_member(write.row, run.start, run.end);
                let copies = first..first + layout.copies();
                write.writes.extend(copies.map(|member| Piece { member, extent }));
            }
            write.parity_bytes = 0;
        } else {
            let partial = self.front.partial_writes;
            let members = &self.members;
            let is_out = |member| members.is_out(member);
            let out = members.any_out().then_some(&is_out as &dyn Fn(usize) -> bool);
            let RowWrite { row, runs, writes, .. } = write;
            write.parity_bytes = row::plan(layout, *row, runs, partial, out, &mut reads, writes);
        }
        write.left = reads.len() as u32;
        for &Piece { member, extent } in &reads {
            let owner = Owner::Row(place);
            self.issue(now, MemberIo::new(member, Operation::Read, extent, owner));
        }
        if reads.is_empty() {
            self.make_parity(now, place);
        }
        self.scratch.reads = reads;
    }

    fn make_parity(&mut self, now: Instant, place: u32) {
        let bytes = self.row_writes[place].parity_bytes;
        self.front.parity.book(now, time_of(self.front.parity_rate, bytes), Pass::Row(place));
    }

    /// Writes the data with the parity, which has been computed, to the members that are left.
    pub(super) fn write_row(&mut self, now: Instant, place: u32) {
        let mut writes = std::mem::take(&mut self.row_writes[place].writes);
        writes.retain(|piece| !self.members.is_out(piece.member));
        for &Piece { member, extent } in &writes {
            self.issue(now, MemberIo::new(member, WRITE, extent, Owner::Row(place)));
        }
        let write = &mut self.row_writes[place];
        write.left = writes.len() as u32;
        write.writing = true;
        write.writes = writes;
        if write.left == 0 {
            self.row_done(now, place);
        }
    }

    pub(super) fn row_io_done(&mut self, now: Instant, place: u32, result: Result<(), Failure>) {
        let write = &mut self.row_writes[place];
        write.left -= 1;
        write.result = write.result.and(result);
        if write.left > 0 {
            return;
        }
        if write.writing || write.result.is_err() {
            self.row_done(now, place);
        } else {
            self.make_parity(now, place);
        }
    }

    /// Ends a write to a row, and lets the next one begin.
    fn row_done(&mut self, now: Instant, place: u32) {
        let RowWrite { row, owner, next, result, .. } = self.row_writes[place];
        if next == NONE {
            self.locked.remove(&row);
        } else {
            self.enter_row(now, next);
        }
        self.row_writes.free(place);
        match owner {
            Owner::Job(job) => {
                self.fail_job(job, result);
                self.release(now, job);
            }
            // What the cache could not destage is lost with the member.
            _ => {
                if let Some(caching) = &mut self.caching {
                    caching.blocks.arrived(row);
                    caching.flying -= 1;
                }
                self.after_destage(now);
            }
        }
    }

    /// Continues after a row has been destaged: the cache has room, and flushes may be
    /// complete.
    pub(super) fn after_destage(&mut self, now: Instant) {
        while let Some(caching) = &mut self.caching
            && let Some(&(epoch, job)) = caching.queues.flushes.front()
            && caching.blocks.is_past(epoch)
        {
            caching.queues.flushes.pop_front();
            self.flush_members(now, job);
        }
        self.fill_cache(now);
    }
}
