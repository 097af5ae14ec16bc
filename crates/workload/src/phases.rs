//! Phases, one after another: a warm-up and a measurement, or a day's changes.
//!
//! A phase without a workload continues the one before it, without a gap: a warm-up turns into
//! a measurement that way. A phase with a workload of its own begins when all requests of the
//! phase before are done.

use hemi_units::{Instant, Time};
use serde::Deserialize;

use super::any::AnyWorkload;
use super::limit::Quota;
use super::spec::WorkloadSpec;
use super::{Demand, Issue, Workload};

/// One of the `phases`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Duration of the phase. A phase with neither a duration nor a number of requests ends
    /// with its workload.
    #[serde(default)]
    pub duration: Option<Time>,
    /// Number of issued requests after which the phase ends.
    #[serde(default)]
    pub requests: Option<u64>,
    /// True if its requests are measured; otherwise the phase only prepares.
    #[serde(default = "yes")]
    pub measured: bool,
    /// Workload of the phase; that of the phase before continues if absent.
    #[serde(default)]
    pub workload: Option<Box<WorkloadSpec>>,
}

fn yes() -> bool {
    true
}

/// Maximum number of phases of a workload.
pub(crate) const MOST_PHASES: u64 = u16::MAX as u64;

/// A built phase.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) duration: Option<Time>,
    pub(super) requests: Option<u64>,
    pub(super) measured: bool,
    /// Workload that begins with the phase.
    pub(super) workload: Option<AnyWorkload>,
}

/// Running phases.
#[derive(Clone, Debug)]
pub struct Phases {
    phases: Vec<Phase>,
    /// Index of the current phase.
    present: usize,
    /// Index of the phase whose workload is running.
    running: usize,
    /// Quota left to the current phase.
    quota: Quota,
    /// Quota left to all phases together.
    granted: Quota,
    /// Phase in which each request was issued, by tag.
    issued_in: Vec<u16>,
}

impl Phases {
    /// Creates the workload of these phases, beginning at time zero. The first must have a
    /// workload.
    pub(super) fn new(phases: Vec<Phase>) -> Phases {
        let mut phases = Phases {
            phases,
            present: 0,
            running: 0,
            quota: Quota::ENDLESS,
            granted: Quota::ENDLESS,
            issued_in: Vec::new(),
        };
        phases.begin(Instant(0));
        phases
    }

    /// Begins at `at`. Must be called before anything is issued.
    pub fn begin(&mut self, at: Instant) {
        self.enter(0, at);
    }

    /// Caps the requests in flight; see [`AnyWorkload::cap`].
    pub(super) fn cap(&mut self, under_way: u32) {
        let workloads = self.phases.iter_mut().filter_map(|phase| phase.workload.as_mut());
        workloads.for_each(|workload| workload.cap(under_way));
    }

    /// Returns the workloads of the phases that have one of their own.
    pub(super) fn workloads(&self) -> impl Iterator<Item = &AnyWorkload> {
        self.phases.iter().filter_map(|phase| phase.workload.as_ref())
    }

    /// Returns the demand of all phases together.
    pub(super) fn demand(&self) -> Demand {
        self.workloads().map(AnyWorkload::demand).fold(Demand::default(), Demand::and)
    }

    /// Grants `quota` from now on.
    pub(super) fn grant(&mut self, quota: Quota) {
        self.granted = quota;
        self.pass_on();
    }

    fn workload(&self) -> &AnyWorkload {
        self.phases[self.running].workload.as_ref().expect("a running phase has a workload")
    }

    fn workload_mut(&mut self) -> &mut AnyWorkload {
        self.phases[self.running].workload.as_mut().expect("a running phase has a workload")
    }

    /// Begins phase `index` at `at`.
    fn enter(&mut self, index: usize, at: Instant) {
        self.present = index;
        let phase = &self.phases[index];
        self.quota = Quota::of(at, phase.duration, phase.requests);
        if phase.workload.is_some() {
            self.running = index;
            self.workload_mut().begin(at);
        }
        self.pass_on();
    }

    fn pass_on(&mut self) {
        let quota = Quota {
            until: self.quota.until.min(self.granted.until),
            left: self.quota.left.min(self.granted.left),
        };
        self.workload_mut().grant(quota);
    }

    /// Moves to the next phase if it is time to. Returns true if it did.
    fn turn(&mut self, now: Instant) -> bool {
        let Some(next) = self.phases.get(self.present + 1) else {
            return false;
        };
        if self.granted.left == 0 || now >= self.granted.until {
            return false;
        }
        let timed = self.quota.until != Instant::NEVER;
        let is_up = now >= self.quota.until
            || self.quota.left == 0
            || (!timed && self.workload().is_over());
        if !is_up || (next.workload.is_some() && !self.workload().is_over()) {
            return false;
        }
        // A workload that continues does so from the exact end of the phase before.
        let at = if next.workload.is_some() { now } else { now.min(self.quota.until) };
        self.enter(self.present + 1, at);
        true
    }

    /// Lets the workload act and assigns the requests it issued to the current phase.
    fn with(
        &mut self,
        issues: &mut Vec<Issue>,
        act: impl FnOnce(&mut AnyWorkload, &mut Vec<Issue>),
    ) {
        let before = issues.len();
        act(self.workload_mut(), issues);
        for issue in &issues[before..] {
            let tag = issue.tag as usize;
            if self.issued_in.len() <= tag {
                self.issued_in.resize(tag + 1, 0);
            }
            self.issued_in[tag] = self.present as u16;
        }
        let issued = (issues.len() - before) as u64;
        for quota in [&mut self.quota, &mut self.granted] {
            quota.spend(issued);
        }
    }
}

impl Workload for Phases {
    fn next_event(&self) -> Instant {
        let own = self.workload().next_event();
        if self.present + 1 == self.phases.len() || self.granted.left == 0 {
            return own;
        }
        // If the time is up and requests are in flight, the last of them ends the phase.
        let waits = self.phases[self.present + 1].workload.is_some() && !self.workload().is_over();
        let turn = self.quota.until;
        if waits && own == Instant::NEVER || turn >= self.granted.until {
            own
        } else {
            own.min(turn)
        }
    }

    fn advance(&mut self, now: Instant, issues: &mut Vec<Issue>) {
        loop {
            self.with(issues, |workload, issues| workload.advance(now, issues));
            if !self.turn(now) {
                return;
            }
        }
    }

    fn completed(&mut self, now: Instant, tag: u32, issues: &mut Vec<Issue>) {
        // A completion at the end of a phase is handled in the next one.
        while self.turn(now) {}
        self.with(issues, |workload, issues| workload.completed(now, tag, issues));
        if self.turn(now) {
            self.advance(now, issues);
        }
    }

    fn is_over(&self) -> bool {
        if !self.workload().is_over() {
            return false;
        }
        let last = self.present + 1 == self.phases.len();
        last || self.granted.left == 0 || self.granted.until <= self.quota.until
    }

    fn measured(&self, tag: u32) -> bool {
        self.phases[self.phase(tag)].measured
    }

    fn phase(&self, tag: u32) -> usize {
        self.issued_in.get(tag as usize).copied().unwrap_or(0).into()
    }
}

#[cfg(test)]
mod tests {
    use crate::any::AnyWorkload;
    use crate::testing::{Server, run, workload};

    const LOOP: &str = "access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                        mix = { read_percent = 50 } }";

    fn phases(text: &str) -> AnyWorkload {
        workload(&text.replace("LOOP", LOOP), 1 << 20).unwrap()
    }

    #[test]
    fn a_warm_up_turns_into_the_measurement_without_a_gap() {
        let mut both = phases(
            "[[phases]]\nmeasured = false\nduration = \"2 s\"\n\
             [phases.workload.closed]\nthreads = 2\nqueue_depth = 4\nLOOP\n\
             [[phases]]\nduration = \"3 s\"",
        );
        let log = run(&mut both, &mut Server::random(1, 1_000_000));
        let mut plain = phases("[closed]\nthreads = 2\nqueue_depth = 4\nduration = \"5 s\"\nLOOP");
        // Each phase has its own random numbers, so only the times agree.
        let plain = run(&mut plain, &mut Server::random(1, 1_000_000));
        assert_eq!(log.len(), plain.len());
        assert!(log.iter().zip(&plain).all(|(a, b)| a.issue.intended == b.issue.intended));
        for done in &log {
            assert_eq!(done.measured, done.issue.intended.0 >= 2_000_000_000);
            assert_eq!(done.phase, usize::from(done.measured));
        }
    }

    #[test]
    fn a_phase_of_its_own_workload_waits_for_the_one_before() {
        let mut three = phases(
            "[[phases]]\nmeasured = false\nrequests = 1000\n\
             [phases.workload.closed]\nthreads = 8\nqueue_depth = 4\nLOOP\n\
             [[phases]]\nrequests = 500\n\
             [phases.workload.open]\nrate = 100\narrivals = \"fixed\"\nLOOP\n\
             [[phases]]\nduration = \"1 s\"\nmeasured = false\n\
             [phases.workload.open]\nrate = 100\narrivals = \"fixed\"\nLOOP",
        );
        let log = run(&mut three, &mut Server::fixed(1_000_000));
        assert_eq!(log.len(), 1000 + 500 + 99);
        let first_ends = log[..1000].iter().map(|done| done.at).max().unwrap();
        assert_eq!(log[1000].issue.intended.0, first_ends.0 + 10_000_000);
        // The second phase ends with its last request, 1 ms after its arrival.
        assert_eq!(log[1500].issue.intended.0, log[1499].issue.intended.0 + 11_000_000);
        for (index, done) in log.iter().enumerate() {
            assert_eq!(done.measured, (1000..1500).contains(&index), "{index}");
        }
    }

    #[test]
    fn a_timed_phase_lasts_its_time_whatever_comes_in_it() {
        // No request arrives within the first phase.
        let mut two = phases(
            "[[phases]]\nduration = \"1 s\"\n\
             [phases.workload.open]\nrate = 0.5\narrivals = \"fixed\"\nLOOP\n\
             [[phases]]\nrequests = 10\n\
             [phases.workload.open]\nrate = 10\narrivals = \"fixed\"\nLOOP",
        );
        let log = run(&mut two, &mut Server::fixed(1000));
        assert_eq!(log.len(), 10);
        assert_eq!(log[0].issue.intended.0, 1_100_000_000);
    }

    #[test]
    fn counted_phases_of_one_workload_are_exact() {
        let mut many = phases(
            "[[phases]]\nrequests = 37\nmeasured = false\n\
             [phases.workload.closed]\nthreads = 1\nqueue_depth = 64\nLOOP\n\
             [[phases]]\nrequests = 5\n[[phases]]\nrequests = 100\nmeasured = false\n\
             [[phases]]\nrequests = 7",
        );
        let mut server = Server::random(1, 1_000_000);
        let log = run(&mut many, &mut server);
        let measured: Vec<usize> = (0..log.len()).filter(|&i| log[i].measured).collect();
        let expected: Vec<usize> = (37..42).chain(142..149).collect();
        assert_eq!((measured, server.most_outstanding), (expected, 64));
    }
}
