//! Failures of a leg: tells one that passes from one that lasts.
//!
//! One failure says little: a session drops, a sector is bad, a disk is full for a moment. A leg
//! whose failures last keeps everything waiting that waits for it. It is told in two ways. Writes
//! and flushes may fail time and again while others succeed, or one kind of what a leg is to do
//! never succeeds, even if its session ends each time: a leg that takes data but never the
//! superblock keeps the volume from opening.

use crate::io::LegError;
use crate::planted::{self, Planted};
use hemi_units::{Instant, MILLISECOND, SECOND};

/// A leg whose writes or flushes have failed for this long is marked out.
const WRITE_ERRORS_OUT_AFTER: u64 = 5 * SECOND;
/// A failed write is tried again after this, and at most …
const RETRY_FIRST: u64 = 20 * MILLISECOND;
/// … this long after each further failure.
const RETRY_MAX: u64 = 2_000 * MILLISECOND;
/// Failures of a leg further apart than this have nothing to do with each other.
const FAILURES_APART: u64 = 2 * RETRY_MAX;

/// Tasks of a leg whose failures are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A write of data.
    Write,
    /// A write of the superblock.
    Superblock,
    /// A write of any other metadata.
    Page,
    /// A flush.
    Flush,
}

/// Failures that belong together: how many, the first and the last.
#[derive(Clone, Copy, Debug)]
struct Spell {
    count: u32,
    first: Instant,
    last: Instant,
    /// Set if the leg's session ended with one of them.
    ended: bool,
}

impl Spell {
    /// Adds a failure, which begins a new spell if the last is longer ago than `apart`.
    fn extend(spell: &mut Option<Spell>, ended: bool, apart: u64, now: Instant) {
        let last = spell.filter(|spell| now.since(spell.last) <= apart);
        let begun = last.unwrap_or(Spell { count: 0, first: now, last: now, ended });
        let count = begun.count.saturating_add(1);
        *spell = Some(Spell { count, last: now, ended: begun.ended || ended, ..begun });
    }
}

/// Failures of one leg.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failing {
    /// Errors of each task since it last succeeded.
    in_a_row: [Option<Spell>; 4],
    /// Errors of writes and flushes. Those that succeed in between do not matter: a full disk still
    /// takes overwrites.
    errors: Option<Spell>,
    /// Failures of each task, the end of the session included, since it last succeeded.
    without_success: [Option<Spell>; 4],
}

impl Failing {
    /// Notes that a task has succeeded.
    pub(crate) fn note_success(&mut self, task: Task) {
        self.without_success[task as usize] = None;
        if planted::is(Planted::AnySuccessForgives) {
            self.without_success = Default::default();
        }
        let only_data_ends_a_row = planted::is(Planted::PagesFailOn);
        if task == Task::Write || !only_data_ends_a_row {
            self.in_a_row[task as usize] = None;
        }
    }

    /// Notes that a task has failed. Failures without success that are further apart than `apart`,
    /// nanoseconds, do not belong together. Returns when to try again.
    pub(crate) fn note_failure(
        &mut self,
        task: Task,
        error: LegError,
        apart: u64,
        now: Instant,
    ) -> Instant {
        let ended = error == LegError::Gone;
        Spell::extend(&mut self.without_success[task as usize], ended, apart, now);
        if ended {
            // A session that dropped says nothing of the leg's medium.
            return now + RETRY_FIRST;
        }
        Spell::extend(&mut self.errors, false, FAILURES_APART, now);
        let in_a_row = &mut self.in_a_row[task as usize];
        Spell::extend(in_a_row, false, apart.max(FAILURES_APART), now);
        now + (RETRY_FIRST << (self.in_a_row(task) - 1).min(8)).min(RETRY_MAX)
    }

    /// Returns how many errors a task has had in a row.
    pub(crate) fn in_a_row(&self, task: Task) -> u32 {
        self.in_a_row[task as usize].map_or(0, |spell| spell.count)
    }

    /// Returns true if every write of one kind has failed for long, and the next failure would belong
    /// together with the last (see `apart` of [`Failing::note_failure`]).
    pub(crate) fn every_write_fails(&self, apart: u64, now: Instant) -> bool {
        let apart = apart.max(FAILURES_APART);
        [Task::Write, Task::Superblock, Task::Page].iter().any(|&task| {
            self.in_a_row[task as usize].is_some_and(|spell| {
                spell.count > 2 && is_long(spell.first, now) && now.since(spell.last) <= apart
            })
        })
    }

    /// Returns true if writes or flushes have kept failing for long, even if others succeed.
    pub(crate) fn errors_last(&self, now: Instant) -> bool {
        self.had_errors_of_late(now) && self.errors.is_some_and(|spell| is_long(spell.first, now))
    }

    /// Returns true if the next error belongs together with the last.
    pub(crate) fn had_errors_of_late(&self, now: Instant) -> bool {
        self.errors.is_some_and(|spell| now.since(spell.last) <= FAILURES_APART)
    }

    /// Returns true if the superblock has failed for long and not succeeded.
    pub(crate) fn lacks_superblock(&self, now: Instant) -> bool {
        let spell = self.without_success[Task::Superblock as usize];
        spell.is_some_and(|spell| is_long(spell.first, now))
    }

    /// Returns true if its sessions have ended for this time, nanoseconds, and one task has not
    /// succeeded meanwhile. What failed once says nothing, if it is not tried again.
    pub(crate) fn never_succeeds_for(&self, time: u64, now: Instant) -> bool {
        self.without_success.iter().flatten().any(|spell| {
            spell.ended
                && spell.last > spell.first
                && now.since(spell.first) >= time
                && now.since(spell.last) < time
        })
    }
}

/// Returns true if a failing leg is to be marked out for what has lasted since then.
pub(crate) fn is_long(since: Instant, now: Instant) -> bool {
    now.since(since) >= WRITE_ERRORS_OUT_AFTER
}

#[cfg(test)]
mod tests {
    use super::{FAILURES_APART, Failing, Task, WRITE_ERRORS_OUT_AFTER};
    use crate::io::LegError;
    use hemi_units::{Instant, MILLISECOND, SECOND};

    const OUT_AFTER: u64 = 10 * SECOND;

    fn fail(failing: &mut Failing, task: Task, error: LegError, at: u64) -> u64 {
        let now = Instant(at);
        failing.note_failure(task, error, OUT_AFTER, now).since(now)
    }

    #[test]
    fn a_failed_write_is_tried_again_later_and_later() {
        let mut failing = Failing::default();
        let pauses: [u64; 9] =
            core::array::from_fn(|at| fail(&mut failing, Task::Write, LegError::Media, at as u64));
        assert_eq!(
            pauses.map(|pause| pause / MILLISECOND),
            [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]
        );
        failing.note_success(Task::Write);
        assert_eq!(fail(&mut failing, Task::Write, LegError::Media, 9), 20 * MILLISECOND);
        assert_eq!(fail(&mut failing, Task::Write, LegError::Gone, 9), 20 * MILLISECOND);
        assert_eq!(failing.in_a_row(Task::Write), 1, "the end of a session is no error");
    }

    #[test]
    fn each_kind_of_write_has_its_own_row() {
        let mut failing = Failing::default();
        for at in 0..3 {
            assert!(!failing.every_write_fails(OUT_AFTER, Instant(WRITE_ERRORS_OUT_AFTER)));
            fail(&mut failing, Task::Page, LegError::Media, at);
            failing.note_success(Task::Write);
        }
        assert!(failing.every_write_fails(OUT_AFTER, Instant(WRITE_ERRORS_OUT_AFTER)));
        assert!(failing.every_write_fails(OUT_AFTER, Instant(OUT_AFTER)));
        assert!(!failing.every_write_fails(OUT_AFTER, Instant(OUT_AFTER + 3)), "long ago");
        failing.note_success(Task::Page);
        assert!(!failing.every_write_fails(OUT_AFTER, Instant(WRITE_ERRORS_OUT_AFTER)));
    }

    #[test]
    fn errors_last_though_others_succeed_and_not_over_a_pause() {
        let mut failing = Failing::default();
        for at in (0..=WRITE_ERRORS_OUT_AFTER).step_by(SECOND as usize) {
            assert_eq!(failing.errors_last(Instant(at)), at == WRITE_ERRORS_OUT_AFTER);
            fail(&mut failing, Task::Flush, LegError::Media, at);
            failing.note_success(Task::Flush);
            failing.note_success(Task::Write);
        }
        assert!(failing.errors_last(Instant(WRITE_ERRORS_OUT_AFTER)));
        assert!(!failing.every_write_fails(OUT_AFTER, Instant(WRITE_ERRORS_OUT_AFTER)));
        let later = WRITE_ERRORS_OUT_AFTER + FAILURES_APART + 1;
        assert!(!failing.errors_last(Instant(later)));
        fail(&mut failing, Task::Flush, LegError::Media, later);
        assert!(!failing.errors_last(Instant(later)), "it begins anew");
    }

    #[test]
    fn one_task_that_never_succeeds_is_enough() {
        let mut failing = Failing::default();
        for at in (0..=OUT_AFTER).step_by(SECOND as usize) {
            assert_eq!(failing.never_succeeds_for(OUT_AFTER, Instant(at)), at == OUT_AFTER);
            fail(&mut failing, Task::Superblock, LegError::Gone, at);
            failing.note_success(Task::Write);
        }
        assert!(failing.never_succeeds_for(OUT_AFTER, Instant(OUT_AFTER)));
        assert!(!failing.never_succeeds_for(OUT_AFTER, Instant(2 * OUT_AFTER)), "it has ceased");
        failing.note_success(Task::Superblock);
        assert!(!failing.never_succeeds_for(OUT_AFTER, Instant(OUT_AFTER)));
        // Two ends of a session far apart have nothing to do with each other.
        for at in [100, 200] {
            fail(&mut failing, Task::Page, LegError::Gone, at * SECOND);
            assert!(!failing.never_succeeds_for(OUT_AFTER, Instant(at * SECOND)));
        }
    }
}
