//! Orderly ends. Those of seeds from [`ENDINGS_FROM`](crate::wider::ENDINGS_FROM) on come with requests in
//! flight, with little time to drain or none, with a second close that shortens it, before the volume is
//! open, while every leg's session has dropped, or while one leg's superblock hangs. Some are cut short by a
//! kill or a power cut. Each is followed by a start with every leg and with whatever the machine then has: it
//! must open (P7), and nothing acknowledged may be missing (P1). A ledger that the engine has retired is gone.

use hemi_engine::command::Command;
use hemi_engine::settings::Settings;
use hemi_random::Rng;
use hemi_units::{MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use crate::faults::Kind;
use crate::plan::{Ending, Fault, OPERATIONS, Plan, PlannedFault};
use crate::starts::PATIENCE;
use crate::world::World;

/// The bound of the number of orderly ends of a seed.
const STOPS: u64 = 5;

/// A way for hemi to be stopped in an orderly manner.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// hemi has ended in this way and been started again just before, and is not open yet.
    pub opening: Option<Ending>,
    /// The time for which debts are paid, in nanoseconds.
    pub drain: u64,
    /// A second close, with no time to drain, comes this many steps after the first.
    pub again: Option<u32>,
    /// The sessions of all legs drop: this many steps after the close, or before it if zero.
    pub drop: Option<u32>,
    /// The leg whose superblock writes do not end, and the time.
    pub hung: Option<(u8, u64)>,
    /// hemi ends in another way, this many steps after the close.
    pub cut: Option<(u32, Ending)>,
}

/// Adds orderly ends to a plan.
pub(crate) fn add_endings(plan: &mut Plan) {
    if plan.weather.lies {
        return;
    }
    let random = &mut Rng::new(plan.seed, 9);
    for _ in 0..random.below(STOPS) {
        let after = random.below(u64::from(OPERATIONS)) as u32;
        let leg = random.below(plan.shape.legs as u64) as u8;
        if random.one_in(2) {
            let time = random.pick(&[30, 300, 40_000]) * MILLISECOND;
            let before = after.saturating_sub(random.below(30) as u32);
            plan.faults.push(PlannedFault {
                after: before,
                steps: 0,
                fault: Fault::Freeze(leg, time),
            });
        }
        let stop = draw_stop(random, plan.shape.legs as u64);
        let fault = Fault::Stop { stop, settings: plan.settings };
        plan.faults.push(PlannedFault { after, steps: random.below(40) as u32, fault });
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

fn draw_stop(random: &mut Rng, legs: u64) -> Stop {
    let maybe = |random: &mut Rng, odds: u64, below: &[u32]| {
        let most = u64::from(random.pick(below));
        let drawn = random.below(most) as u32;
        random.one_in(odds).then_some(drawn)
    };
    let before = random.pick(&[Ending::Kill, Ending::Close]);
    let opening = random.one_in(4).then_some(before);
    let time = random.pick(&[MILLISECOND, 100 * MILLISECOND, 15 * SECOND, 60 * SECOND]);
    let leg = random.below(legs) as u8;
    let ending = random.pick(&[Ending::Kill, Ending::PowerCut]);
    Stop {
        opening,
        drain: random.pick(&[0, 0, MILLISECOND, 100 * MILLISECOND, 10 * SECOND]),
        again: maybe(random, 3, &[1, 20, 200]),
        drop: maybe(random, 6, &[1, 1, 20, 200]),
        hung: random.one_in(if opening.is_some() { 1 } else { 3 }).then_some((leg, time)),
        cut: maybe(random, if opening.is_some() { 2 } else { 4 }, &[10, 60, 400])
            .map(|steps| (steps, ending)),
    }
}

impl World {
    /// Stops hemi and starts it again with every leg.
    pub(crate) fn stop(&mut self, stop: Stop, settings: Settings) {
        self.tell(|| format!("orderly end: {stop:?}"));
        self.clients.paused = true;
        self.ambush = None;
        if let Some(ending) = stop.opening {
            match ending {
                Ending::Close => self.close(),
                _ => self.crash(false, false),
            }
            if !self.start_again(settings) {
                return;
            }
            self.clients.paused = false;
            self.let_clients_go_on();
            self.clients.paused = true;
        }
        self.is_stopping = true;
        match self.close_as(&stop) {
            Some(Ending::PowerCut) => self.crash(true, false),
            Some(_) => self.crash(false, false),
            None => self.end_close(),
        }
        self.is_stopping = false;
        if !self.start_again(settings) {
            return;
        }
        self.verify();
        self.clients.paused = false;
        self.let_clients_go_on();
    }

    /// Starts with every leg after an end of hemi. Returns false if a promise is broken by then.
    fn start_again(&mut self, settings: Settings) -> bool {
        if self.violation.is_none() {
            self.end();
            self.settings = settings;
            self.start_with_all(None);
        }
        self.violation.is_none()
    }

    /// Closes the volume. Returns the way in which hemi ended, if it did not close.
    fn close_as(&mut self, stop: &Stop) -> Option<Ending> {
        if let Some((leg, time)) = stop.hung {
            let until = self.now + time;
            self.legs[usize::from(leg)].hang(Kind::Superblocks, until);
        }
        if stop.drop == Some(0) {
            self.drop_all_sessions();
        }
        self.closed = false;
        self.command(Command::Close { drain_until: self.now + stop.drain });
        let end = self.now + PATIENCE;
        let mut steps = 0;
        while !self.closed && self.violation.is_none() {
            if let Some((_, ending)) = stop.cut.filter(|(after, _)| *after == steps) {
                return Some(ending);
            }
            if self.halted.is_some() {
                return Some(Ending::Kill);
            }
            if stop.again == Some(steps) {
                self.command(Command::Close { drain_until: self.now });
            }
            steps += 1;
            if stop.drop == Some(steps) {
                self.drop_all_sessions();
            }
            if !self.closed && !self.step(end) {
                self.broken("P6", "the volume does not close".into());
            }
        }
        None
    }

    /// Drops the session of every leg for longer than a close may take. What is in their caches stays.
    fn drop_all_sessions(&mut self) {
        for leg in 0..self.legs.len() as u8 {
            self.session_drops(leg, false, Cache::Kept, 2 * PATIENCE, None);
        }
    }

    /// Lets I/O that is still in flight after a close land or not. Nothing waits for it.
    pub(crate) fn end_close(&mut self) {
        for slot in 0..self.ios.len() {
            if self.ios[slot].live {
                self.land(slot as u32, false);
            }
        }
        if self.cache_lost.take().is_some() {
            self.register.killed_with_cache_lost();
        } else {
            self.register.killed();
        }
    }
}
