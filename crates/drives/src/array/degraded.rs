//! Members that fail.
//!
//! A member that goes away, or fails a write, a flush or a trim, is *out* if the array can go on
//! without it. Nothing more is given to it, and it stays out though it may return: no member is
//! rebuilt. Reads of its data go to another copy, or are computed from the other members of the
//! row. Writes to it are left out. Sectors that a member cannot read are had in the same way, and
//! are written to it again.
//!
//! A member that the array cannot do without is never out. Its errors are the array's. While it
//! is away, so is the array, and every request fails when that member refuses it.

use hemi_units::{Extent, Instant, Operation, SECTOR_BYTES};

use super::flow::{WRITE, time_of};
use super::job::{MemberIo, Owner};
use super::layout::{Piece, Run};
use super::{Array, Pass};
use crate::drive::{Drive, Failure};

/// Data of one row that is computed from the other members of the row.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    row: u64,
    /// First sector within the chunk that is computed.
    start: u64,
    /// One past the last.
    end: u64,
    /// Parts of the row that the owner reads as well.
    runs: Vec<Run>,
    owner: Owner,
    /// Members that could not be read.
    failed: Vec<usize>,
    /// The owner's failure if too few members are left.
    failure: Failure,
    /// The member whose sectors are bad and are written again, with the sectors.
    repairs: Option<Piece>,
    /// Requests to members that are still in flight.
    left: u32,
    /// True if one of them failed, and others have to be read.
    again: bool,
}

impl Recovery {
    fn blank() -> Recovery {
        Recovery {
            row: 0,
            start: 0,
            end: 0,
            runs: Vec::new(),
            owner: Owner::Repair,
            failed: Vec::new(),
            failure: Failure::Gone,
            repairs: None,
            left: 0,
            again: false,
        }
    }
}

impl<D: Drive> Array<D> {
    /// Takes note of members that went away or returned.
    pub(super) fn note_presence(&mut self) {
        for member in 0..self.members.len() {
            if self.members.is_missing(member) {
                self.put_out(member);
            }
        }
        self.missing = self.members.missing();
    }

    /// Goes on without the member, if the array can.
    fn put_out(&mut self, member: usize) {
        let out = self.members.count_out(self.layout.group_of(member));
        if !self.members.is_out(member) && out < self.layout.spare() {
            self.members.put_out(member);
            self.counters.members_out += 1;
        }
    }

    /// Asks a member that the array needs, and that is away, on behalf of a request: the request
    /// fails when the member refuses.
    pub(super) fn probe(&mut self, now: Instant, member: usize, job: u32) {
        let (operation, extent) = (Operation::Flush, Extent::default());
        self.issue(now, MemberIo::new(member, operation, extent, Owner::Probe(job)));
    }

    pub(super) fn probed(&mut self, now: Instant, job: u32, result: Result<(), Failure>) {
        match result {
            // The member has returned meanwhile.
            Ok(()) => self.begin(now, job),
            Err(_) => {
                self.fail_job(job, result);
                self.complete(now, job);
            }
        }
    }

    /// Handles a request that a member failed.
    pub(super) fn member_failed(&mut self, now: Instant, io: u32, failure: Failure) {
        let failed = self.ios[io];
        self.ios.free(io);
        let reads = failed.operation == Operation::Read;
        if !reads || failure != Failure::Medium {
            self.put_out(failed.member);
        }
        if reads {
            return self.read_elsewhere(now, failed, failure);
        }
        let left_out = self.members.is_out(failed.member);
        self.part_done(now, failed.owner, if left_out { Ok(()) } else { Err(failure) });
    }

    /// Reads from other members what one could not read.
    fn read_elsewhere(&mut self, now: Instant, failed: MemberIo, failure: Failure) {
        let MemberIo { member, extent, owner, tries, repairs, .. } = failed;
        if let Owner::Recovery(place) = owner {
            let recovery = &mut self.recoveries[place];
            recovery.failed.push(member);
            recovery.again = true;
            return self.part_done(now, owner, Ok(()));
        }
        if self.layout.parity() > 0 {
            return self.recover_extent(now, member, extent, owner, failure);
        }
        let bad = failure == Failure::Medium;
        let repairs = if bad { member as u32 } else { repairs };
        let copies = self.layout.group_of(member);
        let untried = tries + 1 < copies.len() as u32;
        match self.members.next_of(copies, member).filter(|_| untried) {
            Some(member) => {
                self.issue(now, MemberIo { member, tries: tries + 1, repairs, ..failed })
            }
            None => self.part_done(now, owner, Err(failure)),
        }
    }

    /// Returns true if one of `runs` is on a member that is out, and has to be computed.
    pub(super) fn lacks(&self, row: u64, runs: &[Run]) -> bool {
        let is_out = |run: &Run| self.members.is_out(self.layout.data_member(row, run.index));
        self.layout.parity() > 0 && self.members.any_out() && runs.iter().any(is_out)
    }

    /// Reads `runs` of a row that [lacks](Array::lacks) some of them.
    pub(super) fn recover_runs(&mut self, now: Instant, row: u64, runs: &[Run], owner: Owner) {
        if let Owner::Job(job) = owner {
            self.jobs[job].left += 1;
        }
        let place = self.begin_recovery(row, owner, Failure::Gone);
        let recovery = &mut self.recoveries[place];
        (recovery.start, recovery.end) = (self.layout.chunk, 0);
        for run in runs {
            if self.members.is_out(self.layout.data_member(row, run.index)) {
                recovery.start = recovery.start.min(run.start);
                recovery.end = recovery.end.max(run.end);
            } else {
                recovery.runs.push(*run);
            }
        }
        self.read_the_rest(now, place);
    }

    /// Computes what a member of an array with parity could not read.
    fn recover_extent(
        &mut self,
        now: Instant,
        member: usize,
        extent: Extent,
        owner: Owner,
        failure: Failure,
    ) {
        let chunk = self.layout.chunk;
        let (first, last) = (extent.start / chunk, (extent.end - 1) / chunk);
        if let Owner::Job(job) = owner {
            // One part has become as many as there are rows. No other owner reads more than one.
            self.jobs[job].left += (last - first) as u32;
        }
        for row in first..=last {
            let begin = row * chunk;
            let of_row =
                Extent { start: extent.start.max(begin), end: extent.end.min(begin + chunk) };
            let place = self.begin_recovery(row, owner, failure);
            let recovery = &mut self.recoveries[place];
            (recovery.start, recovery.end) = (of_row.start - begin, of_row.end - begin);
            recovery.failed.push(member);
            let bad = failure == Failure::Medium;
            recovery.repairs = bad.then_some(Piece { member, extent: of_row });
            self.read_the_rest(now, place);
        }
    }

    fn begin_recovery(&mut self, row: u64, owner: Owner, failure: Failure) -> u32 {
        let place = self.recoveries.take(Recovery::blank);
        let recovery = &mut self.recoveries[place];
        (recovery.row, recovery.owner, recovery.failure) = (row, owner, failure);
        recovery.repairs = None;
        recovery.runs.clear();
        recovery.failed.clear();
        place
    }

    /// Reads as many of the row's other members as are needed.
    fn read_the_rest(&mut self, now: Instant, place: u32) {
        let mut reads = std::mem::take(&mut self.scratch.rest);
        reads.clear();
        let layout = &self.layout;
        let recovery = &mut self.recoveries[place];
        let &mut Recovery { row, start, end, ref runs, ref failed, .. } = recovery;
        let out = |member| self.members.is_out(member) || failed.contains(&member);
        for member in layout.left_of(row, out) {
            let own = runs.iter().filter(|run| layout.data_member(row, run.index) == member);
            let hull = (start, end);
            let (start, end) = own.fold(hull, |(s, e), run| (s.min(run.start), e.max(run.end)));
            reads.push(Piece { member, extent: layout.on_member(row, start, end) });
        }
        let enough = reads.len() == layout.data;
        recovery.left = reads.len() as u32;
        recovery.again = false;
        if enough {
            for &Piece { member, extent } in &reads {
                let owner = Owner::Recovery(place);
                self.issue(now, MemberIo::new(member, Operation::Read, extent, owner));
            }
        }
        self.scratch.rest = reads;
        if !enough {
            let failure = self.recoveries[place].failure;
            self.end_recovery(now, place, Err(failure));
        }
    }

    pub(super) fn recovery_io_done(&mut self, now: Instant, place: u32) {
        let recovery = &mut self.recoveries[place];
        recovery.left -= 1;
        if recovery.left > 0 {
            return;
        }
        if recovery.again {
            return self.read_the_rest(now, place);
        }
        let sectors = (recovery.end - recovery.start) * self.layout.data as u64;
        let lasts = time_of(self.front.parity_rate, sectors * SECTOR_BYTES);
        self.front.parity.book(now, lasts, Pass::Recovery(place));
    }

    /// Handles data that has been computed.
    pub(super) fn recovered(&mut self, now: Instant, place: u32) {
        self.end_recovery(now, place, Ok(()));
    }

    fn end_recovery(&mut self, now: Instant, place: u32, result: Result<(), Failure>) {
        let Recovery { owner, repairs, .. } = self.recoveries[place];
        self.recoveries.free(place);
        if let (Some(Piece { member, extent }), Ok(())) = (repairs, result) {
            self.repair(now, member, extent);
        }
        self.part_done(now, owner, result);
    }

    /// Writes bad sectors of a member again, which have been read elsewhere.
    pub(super) fn repair(&mut self, now: Instant, member: usize, extent: Extent) {
        if !self.members.is_out(member) {
            self.issue(now, MemberIo::new(member, WRITE, extent, Owner::Repair));
        }
    }
}
