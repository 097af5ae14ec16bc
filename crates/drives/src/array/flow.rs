//! The path of a request through an array.

use hemi_units::{Extent, Instant, Operation, Rate};

use super::job::{MemberIo, Owner};
use super::slab::NONE;
use super::{Array, Task, Transfer, count};
use crate::drive::{Completion, Drive, Failure, Request};

/// Returns the time that `bytes` take at `rate`, or zero without a limit.
pub(super) fn time_of(rate: Option<Rate>, bytes: u64) -> u64 {
    rate.map_or(0, |rate| rate.time_of(bytes))
}

/// The operation of a write to a member.
pub(super) const WRITE: Operation = Operation::Write { fua: false };

impl<D: Drive> Array<D> {
    /// Begins a request that the controller has understood.
    pub(super) fn begin(&mut self, now: Instant, job: u32) {
        if let Some(member) = self.missing {
            return self.probe(now, member, job);
        }
        match self.jobs[job].operation {
            Operation::Read => self.read(now, job),
            Operation::Write { .. } => {
                let lasts = time_of(self.front.link_rate, self.jobs[job].extent.bytes());
                self.front.link.book(now, lasts, Transfer::In(job));
            }
            Operation::Trim => {
                self.jobs[job].left = 1;
                if self.passes_trim {
                    self.spread(now, job, Operation::Trim);
                }
                self.release(now, job);
            }
            Operation::Flush => self.flush(now, job),
        }
    }

    /// Ends one of the parts a request waits for, and the request itself after the last part.
    pub(super) fn release(&mut self, now: Instant, job: u32) {
        let ended = &mut self.jobs[job];
        ended.left -= 1;
        if ended.left > 0 {
            return;
        }
        if ended.operation == Operation::Read && ended.result.is_ok() {
            let lasts = time_of(self.front.link_rate, ended.extent.bytes());
            self.front.link.book(now, lasts, Transfer::Out(job));
        } else {
            self.complete(now, job);
        }
    }

    /// Completes a request.
    pub(super) fn complete(&mut self, now: Instant, job: u32) {
        let ended = self.jobs[job];
        count(&mut self.counters, &ended);
        self.done.push(Completion { tag: ended.tag, at: now, result: ended.result });
        self.jobs.free(job);
    }

    /// Reads the sectors that are neither in the cache nor read ahead.
    fn read(&mut self, now: Instant, job: u32) {
        let extent = self.jobs[job].extent;
        // One extra part, until everything has been issued.
        self.jobs[job].left = 1;
        let mut unread = extent;
        if let Some(ahead) = &mut self.read_ahead {
            let mut fetch = std::mem::take(&mut self.scratch.fetch);
            let (rest, waits) = ahead.read(job, extent, &mut fetch);
            unread = rest;
            self.jobs[job].left += waits;
            self.read_members(now, unread, Owner::Job(job));
            for &(segment, extent) in &fetch {
                if self.read_members(now, extent, Owner::Segment(segment)) == 0 {
                    self.segment_done(now, segment, Ok(()));
                }
            }
            self.scratch.fetch = fetch;
        } else {
            self.read_members(now, unread, Owner::Job(job));
        }
        self.release(now, job);
    }

    /// Reads an extent with as few requests to each member as possible. Returns the number of
    /// requests.
    fn read_members(&mut self, now: Instant, extent: Extent, owner: Owner) -> u32 {
        let mut requests = 0;
        let mut gathered = std::mem::take(&mut self.scratch.gathered);
        let mut runs = std::mem::take(&mut self.scratch.runs);
        let layout = self.layout;
        layout.rows_of(extent, |row, start, end| {
            runs.clear();
            layout.runs_of(start, end, |run| runs.push(run));
            runs.retain(|run| {
                let before = run.index as u64 * layout.chunk;
                let held = self.caching.as_ref().is_some_and(|caching| {
                    let (start, end) = (before + run.start, before + run.end);
                    !caching.blocks.is_empty() && caching.blocks.holds(row, start, end)
                });
                !held
            });
            if self.lacks(row, &runs) {
                self.recover_runs(now, row, &runs, owner);
                requests += 1;
                return;
            }
            for run in &runs {
                let first = layout.data_member(row, run.index);
                let on = layout.on_member(row, run.start, run.end);
                if gathered[first].end == on.start {
                    gathered[first].end = on.end;
                } else {
                    let before = std::mem::replace(&mut gathered[first], on);
                    requests += self.read_one(now, first, before, owner);
                }
            }
        });
        for (first, gathered) in gathered.iter_mut().enumerate() {
            requests += self.read_one(now, first, std::mem::take(gathered), owner);
        }
        self.scratch.gathered = gathered;
        self.scratch.runs = runs;
        requests
    }

    /// Reads an extent, unless it is empty, from one of the members from `first` on that hold
    /// it.
    fn read_one(&mut self, now: Instant, first: usize, extent: Extent, owner: Owner) -> u32 {
        if extent.is_empty() {
            return 0;
        }
        let member = self.members.to_read(first, self.layout.copies(), extent.start);
        if let Owner::Job(job) = owner {
            self.jobs[job].left += 1;
        }
        self.issue(now, MemberIo::new(member, Operation::Read, extent, owner));
        1
    }

    /// Hands a request to a member to the controller's processor.
    pub(super) fn issue(&mut self, now: Instant, io: MemberIo) {
        self.members.expect(io.member, io.operation, io.extent);
        let place = self.ios.take(|| io);
        self.ios[place] = io;
        self.front.processor.book(now, self.front.member_command, Task::Member(place));
    }

    /// Sends a request to a member once the processor is done with it. A write's data crosses
    /// the members' side first, a read's when it comes back.
    pub(super) fn send(&mut self, now: Instant, io: u32) {
        let MemberIo { operation, extent, .. } = self.ios[io];
        if operation == WRITE {
            self.front.side.book(now, time_of(self.front.side_rate, extent.bytes()), io);
        } else {
            self.submit_to_member(now, io);
        }
    }

    fn submit_to_member(&mut self, now: Instant, io: u32) {
        let MemberIo { member, operation, extent, .. } = self.ios[io];
        let request = Request { tag: u64::from(io), operation, extent };
        self.members.submit(now, member, request, &mut self.scratch.completions);
    }

    /// Handles the completion of a member's request.
    pub(super) fn member_done(&mut self, now: Instant, io: u32, result: Result<(), Failure>) {
        let MemberIo { operation, extent, .. } = self.ios[io];
        if let Err(failure) = result {
            self.member_failed(now, io, failure);
        } else if operation == Operation::Read {
            self.front.side.book(now, time_of(self.front.side_rate, extent.bytes()), io);
        } else {
            self.io_done(now, io);
        }
    }

    /// Handles data that has crossed the members' side.
    pub(super) fn passed_side(&mut self, now: Instant, io: u32) {
        if self.ios[io].operation == WRITE {
            self.submit_to_member(now, io);
        } else {
            self.io_done(now, io);
        }
    }

    fn io_done(&mut self, now: Instant, io: u32) {
        let MemberIo { extent, owner, repairs, .. } = self.ios[io];
        self.ios.free(io);
        if repairs != NONE {
            self.repair(now, repairs as usize, extent);
        }
        self.part_done(now, owner, Ok(()));
    }

    /// Ends a part of what the owner waits for.
    pub(super) fn part_done(&mut self, now: Instant, owner: Owner, result: Result<(), Failure>) {
        match owner {
            Owner::Job(job) => {
                self.fail_job(job, result);
                self.release(now, job);
            }
            Owner::Row(write) => self.row_io_done(now, write, result),
            Owner::Segment(segment) => self.segment_done(now, segment, result),
            Owner::Recovery(recovery) => self.recovery_io_done(now, recovery),
            Owner::Probe(job) => self.probed(now, job, result),
            Owner::Cache | Owner::Repair => {}
        }
    }

    /// Notes the outcome of a part in its request. The first failure counts.
    pub(super) fn fail_job(&mut self, job: u32, result: Result<(), Failure>) {
        let so_far = &mut self.jobs[job].result;
        *so_far = so_far.and(result);
    }

    /// Handles the arrival of a segment read ahead.
    fn segment_done(&mut self, now: Instant, segment: u32, result: Result<(), Failure>) {
        let mut woken = std::mem::take(&mut self.scratch.woken);
        if let Some(ahead) = &mut self.read_ahead {
            ahead.arrived(segment, |job| woken.push(job));
        }
        for job in woken.drain(..) {
            self.fail_job(job, result);
            self.release(now, job);
        }
        self.scratch.woken = woken;
    }

    /// Sends a write or trim to every copy of its extent, on a level without parity.
    pub(super) fn spread(&mut self, now: Instant, job: u32, operation: Operation) {
        let mut gathered = std::mem::take(&mut self.scratch.gathered);
        let layout = self.layout;
        layout.rows_of(self.jobs[job].extent, |row, start, end| {
            layout.runs_of(start, end, |run| {
                let first = layout.data_member(row, run.index);
                let on = layout.on_member(row, run.start, run.end);
                // Without parity, the part of a request on one member is always contiguous.
                if gathered[first].is_empty() {
                    gathered[first] = on;
                } else {
                    gathered[first].end = on.end;
                }
            });
        });
        for (first, gathered) in gathered.iter_mut().enumerate() {
            let extent = std::mem::take(gathered);
            if extent.is_empty() {
                continue;
            }
            for member in first..first + layout.copies() {
                if self.members.is_out(member) {
                    continue;
                }
                self.jobs[job].left += 1;
                self.issue(now, MemberIo::new(member, operation, extent, Owner::Job(job)));
            }
        }
        self.scratch.gathered = gathered;
    }

    fn flush(&mut self, now: Instant, job: u32) {
        match &mut self.caching {
            Some(caching) if caching.protected => self.complete(now, job),
            Some(caching) => {
                let epoch = caching.blocks.close_epoch();
                caching.queues.flushes.push_back((epoch, job));
                self.after_destage(now);
            }
            None => self.flush_members(now, job),
        }
    }

    pub(super) fn flush_members(&mut self, now: Instant, job: u32) {
        let all = 0..self.members.len();
        self.jobs[job].left = (all.len() - self.members.count_out(all.clone())) as u32;
        for member in all {
            if self.members.is_out(member) {
                continue;
            }
            let (operation, extent) = (Operation::Flush, Extent::default());
            self.issue(now, MemberIo::new(member, operation, extent, Owner::Job(job)));
        }
    }
}
