//! Any drive behind scripted faults.
//!
//! A drive's own behaviour follows from its model. What goes wrong with it does not, and is added
//! here:
//!
//! - *Freezes* and *stalls* are faults of the path or a service in front of the drive. During a
//!   freeze the drive is cut off in both directions: requests reach it, and completions leave it,
//!   when the freeze is over. A request that stalls reaches the drive later by its delay, and other
//!   requests pass it.
//! - A *slow* drive is slow inside ([`slow`]).
//! - A drive that goes *away*, or dies, answers nothing: what it was given fails, and what it is
//!   given until it returns. The model goes on by itself meanwhile.
//! - *Bad* sectors fail reads until they are written again; *errors* hit requests by chance. The
//!   drive takes its usual time first, then that of its own attempts.
//! - Flash *ends* when its cycles are used up ([`EndOfLife`]).

mod bad;
mod failing;
mod freezes;
mod published;
mod slow;
mod spell;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hemi_stalls::{Kind, Stalls};
use hemi_units::{Instant, Operation};

pub use self::bad::Bad;
use self::bad::BadSectors;
use self::failing::Absences;
pub use self::failing::{Absence, EndOfLife, Errors};
use self::freezes::Freezes;
pub use self::published::SlowExperiment;
use self::slow::Clock;
pub use self::slow::{Affected, FACTOR_MAX, Slow};
pub use self::spell::Spell;
use crate::drive::{Completion, Counters, Drive, Failed, Failure, Presence, Request};

/// All faults of a drive.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Times in which the drive does not answer.
    pub freezes: Vec<Spell>,
    /// Stalls of single requests. Delays of several schedules add up.
    pub stalls: Vec<Stalls>,
    /// Times in which the drive is slow. Factors of several multiply.
    pub slow: Vec<Slow>,
    /// Times in which the drive is away.
    pub absences: Vec<Absence>,
    /// Sectors that go bad.
    pub bad: Vec<Bad>,
    /// Errors by chance.
    pub errors: Vec<Errors>,
    /// The end of its flash.
    pub end: Option<EndOfLife>,
}

impl Faults {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.freezes.is_empty() && self.stalls.is_empty() && self.slow.is_empty() && !self.track()
    }

    /// Returns true if requests have to be followed through the drive.
    fn track(&self) -> bool {
        self.slow.iter().any(|slow| slow.affected != Affected::All)
            || !self.absences.is_empty()
            || !self.bad.is_empty()
            || !self.errors.is_empty()
            || self.end.is_some()
    }
}

/// A request on its way to the drive, ordered by the time it reaches the drive, then by
/// arrival.
#[derive(Clone, Debug)]
struct Held {
    due: Instant,
    arrival: u64,
    request: Request,
}

/// An answer on its way to the host, ordered by the time it is due, then by the order in which it
/// was given.
#[derive(Clone, Debug)]
struct Answer {
    due: Instant,
    order: u64,
    tag: u64,
    operation: Operation,
    result: Result<(), Failure>,
    /// The request's number, if it is still followed.
    followed: Option<u64>,
}

/// Orders by two fields.
macro_rules! ordered_by {
    ($name:ident: $first:ident, $second:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for $name {}
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $name {
            fn cmp(&self, other: &$name) -> std::cmp::Ordering {
                (self.$first, self.$second).cmp(&(other.$first, other.$second))
            }
        }
    };
}

ordered_by!(Held: due, arrival);
ordered_by!(Answer: due, order);

/// A request that is followed through the drive.
#[derive(Clone, Copy, Debug)]
struct Followed {
    tag: u64,
    operation: Operation,
    given: Instant,
    /// Nanoseconds by which its error comes after the drive's answer, if it fails.
    error_after: Option<u64>,
    /// True once the host has been told that it failed, or will be.
    lost: bool,
}

/// A drive behind faults.
#[derive(Clone, Debug)]
pub struct Faulty<D> {
    drive: D,
    freezes: Freezes,
    stalls: Vec<Stalls>,
    clock: Clock,
    slow: Vec<Slow>,
    absences: Absences,
    bad: BadSectors,
    errors: Vec<Errors>,
    end: Option<EndOfLife>,

    held: BinaryHeap<Reverse<Held>>,
    arrivals: u64,
    answers: BinaryHeap<Reverse<Answer>>,
    answered: u64,
    /// True if requests are followed. Otherwise the drive is given the caller's tags.
    follows: bool,
    /// Requests that the drive or an answer still refers to, by number.
    followed: BTreeMap<u64, Followed>,
    numbered: u64,
    /// Completions of the drive in one step.
    done: Vec<Completion>,
    now: Instant,

    failed: Failed,
    /// The drive's counters when its clock last changed, and what it has worked and drawn beyond
    /// its own account because its clock went slowly.
    counted: Counters,
    excess_busy: u64,
    excess_energy: f64,
}

impl<D: Drive> Faulty<D> {
    /// Puts a drive behind faults.
    pub fn new(drive: D, faults: Faults) -> Faulty<D> {
        let follows = faults.track();
        let Faults { freezes, stalls, slow, absences, bad, errors, end } = faults;
        Faulty {
            freezes: Freezes::new(freezes),
            stalls,
            clock: Clock::new(slow.iter().copied()),
            slow,
            absences: Absences::new(absences),
            bad: BadSectors::new(bad),
            errors,
            end,
            held: BinaryHeap::new(),
            arrivals: 0,
            answers: BinaryHeap::new(),
            answered: 0,
            follows,
            followed: BTreeMap::new(),
            numbered: 0,
            done: Vec::new(),
            now: Instant(0),
            failed: Failed::default(),
            counted: drive.counters(),
            excess_busy: 0,
            excess_energy: 0.0,
            drive,
        }
    }

    /// Returns the drive behind the faults.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }

    /// Returns the time at which the next request reaches the drive.
    fn next_arrival(&self) -> Instant {
        self.held.peek().map_or(Instant::NEVER, |Reverse(held)| held.due)
    }

    fn next_answer(&self) -> Instant {
        self.answers.peek().map_or(Instant::NEVER, |Reverse(answer)| answer.due)
    }

    /// Returns the time of the drive's next event, or of an earlier change of its clock.
    fn next_of_drive(&self) -> Instant {
        match self.clock.of_host(self.drive.next_event()) {
            Instant::NEVER => Instant::NEVER,
            event => event.min(self.clock.until()),
        }
    }

    /// Returns the work and the energy of the drive beyond its own account since its clock changed.
    fn excess(&self, now: &Counters) -> (u64, f64) {
        let excess = self.clock.excess();
        let busy = (now.busy - self.counted.busy) as f64 * excess;
        (busy as u64, (now.energy - self.counted.energy) * excess)
    }

    /// Advances the drive to `at` on the host's clock.
    fn advance_drive(&mut self, at: Instant) {
        while self.clock.until() <= at {
            self.drive.advance(self.clock.own(self.clock.until()), &mut self.done);
            let now = self.drive.counters();
            let (busy, energy) = self.excess(&now);
            self.excess_busy += busy;
            self.excess_energy += energy;
            self.counted = now;
            self.clock.turn();
        }
        self.drive.advance(self.clock.own(at), &mut self.done);
    }

    /// Advances to `at`, the time of the next event.
    fn step(&mut self, at: Instant, done: &mut Vec<Completion>) {
        self.now = at;
        self.advance_drive(at);
        let mut ended = std::mem::take(&mut self.done);
        for completion in ended.drain(..) {
            let at = self.clock.of_host(completion.at).min(at);
            self.drive_completed(at, completion, done);
        }
        self.done = ended;
        if self.absences.until() <= at && self.absences.turn(at) {
            self.lose_all(at);
        }
        while self.next_answer() <= at {
            let Some(Reverse(answer)) = self.answers.pop() else { break };
            self.give(at, &answer, done);
        }
        while self.next_arrival() <= at {
            let Some(Reverse(held)) = self.held.pop() else { break };
            self.deliver(at, held.request);
        }
    }

    /// Hands a request to the drive.
    fn deliver(&mut self, at: Instant, request: Request) {
        let own = self.clock.own(at);
        if !self.follows {
            self.drive.submit(own, request);
            return;
        }
        let Request { tag, operation, extent } = request;
        if let Some((failure, after)) = self.refusal(at, operation) {
            return self.fail(at, after, tag, operation, failure);
        }
        let mut error_after = None;
        for errors in &mut self.errors {
            error_after = error_after.max(errors.draw(at, operation));
        }
        match operation {
            Operation::Read => error_after = error_after.max(self.bad.error_after(at, extent)),
            Operation::Write { .. } if error_after.is_none() => self.bad.heal(at, extent),
            _ => {}
        }
        let number = self.numbered;
        self.numbered += 1;
        let followed = Followed { tag, operation, given: at, error_after, lost: false };
        self.followed.insert(number, followed);
        self.drive.submit(own, Request { tag: number, ..request });
    }

    /// Returns the reason why the drive does not even try, and the nanoseconds until the host knows.
    fn refusal(&mut self, at: Instant, operation: Operation) -> Option<(Failure, u64)> {
        if self.absences.presence() != Presence::Present {
            return Some((Failure::Gone, self.absences.error_after()));
        }
        let end = self.end.as_mut()?;
        let refuses = end.refuses(at, self.drive.cycles(), operation);
        let failure = if end.is_dead(at) { Failure::Medium } else { Failure::ReadOnly };
        refuses.then_some((failure, end.error_after))
    }

    /// Handles the drive's answer.
    fn drive_completed(&mut self, at: Instant, ended: Completion, done: &mut Vec<Completion>) {
        let Completion { tag, result, .. } = ended;
        if !self.follows {
            // Its operation only matters to the count of failures, which is the drive's own.
            let operation = Operation::Flush;
            let answer = Answer { due: at, order: 0, tag, operation, result, followed: None };
            return self.give_when_due(at, answer, done);
        }
        let Some(&request) = self.followed.get(&tag) else { return };
        let Followed { operation, given, error_after, lost, .. } = request;
        if lost {
            self.followed.remove(&tag);
            return;
        }
        let late = slow::lateness(&self.slow, operation, at.since(given), at);
        let due = at + late + error_after.unwrap_or(0);
        let result = if error_after.is_some() { Err(Failure::Medium) } else { result };
        let (tag, followed) = (request.tag, Some(tag));
        let answer = Answer { due, order: 0, tag, operation, result, followed };
        self.give_when_due(at, answer, done);
    }

    /// Gives an answer at once if it is due and no freeze holds it back, or else later.
    fn give_when_due(&mut self, at: Instant, answer: Answer, done: &mut Vec<Completion>) {
        if self.freezes.thaw(answer.due) > at {
            self.give_later(answer);
        } else {
            self.give(at, &answer, done);
        }
    }

    fn give_later(&mut self, answer: Answer) {
        // What a freeze holds back is heard when it is over.
        let due = self.freezes.thaw(answer.due);
        self.answers.push(Reverse(Answer { due, order: self.answered, ..answer }));
        self.answered += 1;
    }

    /// Gives the host an answer, unless it has had another one.
    fn give(&mut self, at: Instant, answer: &Answer, done: &mut Vec<Completion>) {
        let followed = answer.followed.and_then(|number| self.followed.remove(&number));
        if followed.is_some_and(|request| request.lost) {
            return;
        }
        if answer.result.is_err() {
            self.failed.count(answer.operation);
        }
        done.push(Completion { tag: answer.tag, at, result: answer.result });
    }

    /// Tells the host, `after` nanoseconds later, that a request has failed.
    fn fail(&mut self, at: Instant, after: u64, tag: u64, operation: Operation, why: Failure) {
        let due = at + after;
        self.give_later(Answer { due, order: 0, tag, operation, result: Err(why), followed: None });
    }

    /// Fails every request that the drive has been given and the host has no answer to.
    fn lose_all(&mut self, at: Instant) {
        let after = self.absences.error_after();
        let mut followed = std::mem::take(&mut self.followed);
        for request in followed.values_mut().filter(|request| !request.lost) {
            request.lost = true;
            self.fail(at, after, request.tag, request.operation, Failure::Gone);
        }
        self.followed = followed;
    }
}

impl<D: Drive> Drive for Faulty<D> {
    fn sectors(&self) -> u64 {
        self.drive.sectors()
    }

    fn submit(&mut self, now: Instant, request: Request) {
        let kind = match request.operation {
            Operation::Read => Kind::Read,
            Operation::Write { .. } | Operation::Trim | Operation::Flush => Kind::Write,
        };
        let stall: u64 = self.stalls.iter_mut().map(|stalls| stalls.draw(now, kind)).sum();
        let due = self.freezes.thaw(now + stall);
        if due <= now {
            self.deliver(now, request);
            return;
        }
        self.held.push(Reverse(Held { due, arrival: self.arrivals, request }));
        self.arrivals += 1;
    }

    fn next_event(&self) -> Instant {
        let own = self.next_arrival().min(self.next_answer()).min(self.absences.until());
        // A clock that goes slowly shows the same time for a while, of which some has passed.
        own.min(self.next_of_drive()).max(self.now)
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        loop {
            let at = self.next_event();
            if at > now || at == Instant::NEVER {
                break;
            }
            self.step(at, done);
        }
        // The drive's clock has to advance too.
        self.step(now, done);
    }

    fn counters(&self) -> Counters {
        let drive = self.drive.counters();
        let (busy, energy) = self.excess(&drive);
        let before = self.end.map_or(0.0, |end| end.cycles_before);
        Counters {
            busy: drive.busy + self.excess_busy + busy,
            energy: drive.energy + self.excess_energy + energy,
            cycles: drive.cycles + before,
            cycles_most: drive.cycles_most + before,
            failed: if self.follows { self.failed } else { drive.failed },
            ..drive
        }
    }

    fn presence(&self) -> Option<Presence> {
        let own = (!self.absences.is_empty()).then(|| self.absences.presence());
        // An array may itself be away for want of a member.
        match own {
            None | Some(Presence::Present) => self.drive.presence().or(own),
            away => away,
        }
    }

    fn cycles(&self) -> f64 {
        self.drive.cycles() + self.end.map_or(0.0, |end| end.cycles_before)
    }
}
