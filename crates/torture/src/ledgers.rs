//! The ledger of a simulated volume: memory that survives kills but not power cuts, and its fate in
//! between. A kill may come in the middle of an input: either after some of the engine's stores,
//! with none of its actions carried out, or after some of its actions.
//!
//! At times the ledger is missing when hemi is started again, or is an older one, or has a flipped
//! bit. Such a start must be refused with that reason (P7) if the ledger was relied on. The
//! operator then brings the right one back, or accepts the loss that a power cut may cause.

use hemi_engine::format::Ledger;
use hemi_engine::format::ledger::SimulatedMemory;
use hemi_engine::recovery::{Opening, Problem};
use hemi_random::Rng;
use hemi_world::machine::Machine;

use crate::plan::Plan;
use crate::wider::ENDINGS_FROM;
use crate::world::World;

/// One kill in this many comes in the middle of an input.
const INSIDE: u64 = 3;
/// The most steps until it comes.
const INSIDE_STEPS: u32 = 40;
/// One kill in this many costs the ledger.
const LOST: u64 = 8;

/// The ledger's fate between two starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Gone,
    Older,
    Flipped,
}

/// The ledger and its planned fate.
pub(crate) struct Kept {
    /// The volume is served with a ledger.
    is_on: bool,
    /// A ledger that the engine has retired is gone, as its file is.
    pub(crate) retires: bool,
    pub(crate) machine: Machine,
    /// The ledger as the previous hemi left it.
    older: Vec<u8>,
    random: Rng,
    /// The number of engine actions that are still carried out, if a kill is planned.
    actions_left: Option<u64>,
    /// hemi was killed in the middle of an input.
    is_killed: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            is_on: false,
            retires: false,
            machine: Machine::default(),
            older: Vec::new(),
            random: Rng::new(0, 8),
            actions_left: None,
            is_killed: false,
        }
    }
}

impl Kept {
    pub(crate) fn reset(&mut self, plan: &Plan) {
        *self = Kept {
            is_on: plan.shape.ledger,
            retires: plan.seed >= ENDINGS_FROM,
            random: Rng::new(plan.seed, 8),
            ..Kept::default()
        };
    }

    /// Removes the ledger if the engine has retired it.
    pub(crate) fn forget_retired(&mut self) {
        if self.retires {
            self.machine.ledger.take_if(|memory| memory.is_retired());
        }
    }

    /// Loses the machine's memory.
    pub(crate) fn lose_power(&mut self) {
        self.machine.lose_power();
        self.older.clear();
    }

    /// Returns the ledger that a start goes on with, or a new one.
    pub(crate) fn ledger_for(&mut self, opening: &Opening) -> Option<Ledger> {
        self.is_killed = false;
        self.actions_left = None;
        if let Some(memory) = self.machine.ledger.as_ref().filter(|_| opening.ledger.is_some()) {
            self.older = memory.bytes();
        }
        self.machine.ledger_for(opening, self.is_on)
    }

    /// Returns true if the engine's next action is still carried out, because hemi lives.
    pub(crate) fn takes_action(&mut self) -> bool {
        let stopped = self.machine.ledger.as_ref().is_some_and(SimulatedMemory::has_stopped);
        match &mut self.actions_left {
            Some(0) => self.is_killed = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.is_killed |= stopped;
        !self.is_killed
    }

    /// Returns true if hemi has been killed in the middle of an input.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Plans a kill in the middle of an input that comes soon. Returns true if one is to come.
    fn plan_kill_inside(&mut self) -> bool {
        let Some(memory) = self.machine.ledger.as_ref().filter(|_| self.is_on) else {
            return false;
        };
        if !self.random.one_in(INSIDE) {
            return false;
        }
        if self.random.one_in(2) {
            memory.stop_after(self.random.below(8));
        } else {
            self.actions_left = Some(self.random.below(6));
        }
        true
    }

    /// Draws whether a kill costs the ledger.
    pub(crate) fn draw_loss(&mut self) -> Option<LedgerLoss> {
        if !self.is_on || self.machine.ledger.is_none() || !self.random.one_in(LOST) {
            return None;
        }
        let fate = self.random.pick(&[Fate::Gone, Fate::Older, Fate::Flipped]);
        let fate = if fate == Fate::Older && self.older.is_empty() { Fate::Gone } else { fate };
        Some(LedgerLoss { fate, is_for_good: self.random.one_in(2), right: None })
    }

    fn suffer(&mut self, loss: &mut LedgerLoss) {
        loss.right = self.machine.ledger.take();
        self.machine.ledger = match (&loss.right, loss.fate) {
            (Some(right), Fate::Flipped) => {
                let mut bytes = right.bytes();
                let words = bytes.len() as u64 / 4096 - 1;
                let page = 1 + self.random.below(words) as usize;
                let at = page * 4096 + self.random.below(4096) as usize;
                bytes[at] ^= 1 << self.random.below(8);
                Some(SimulatedMemory::of_bytes(&bytes))
            }
            (Some(_), Fate::Older) => Some(SimulatedMemory::of_bytes(&self.older)),
            _ => None,
        };
    }
}

/// A ledger that is missing or not the right one.
pub(crate) struct LedgerLoss {
    fate: Fate,
    /// The right one is not found again.
    pub(crate) is_for_good: bool,
    right: Option<SimulatedMemory>,
}

impl World {
    /// Lets hemi be killed in the middle of an input, if that is drawn.
    pub(crate) fn kill_inside(&mut self) {
        if !self.kept.plan_kill_inside() {
            return;
        }
        for _ in 0..INSIDE_STEPS {
            if self.kept.is_killed() || self.violation.is_some() {
                return;
            }
            self.step(self.now + 1_000_000_000);
        }
    }

    /// Starts without the ledger, or with the wrong one. The start must be refused if the ledger
    /// was relied on. The operator then decides.
    pub(crate) fn start_without_ledger(&mut self, mut loss: LedgerLoss) {
        let is_leg = |leg: &u8| {
            let state = &self.legs[usize::from(*leg)];
            !state.is_empty && !state.is_changing && !state.is_new
        };
        let all: Vec<u8> = (0..self.legs.len() as u8).filter(is_leg).collect();
        let relies = self.assess(&all).is_ok_and(|opening| opening.ledger.is_some());
        self.kept.suffer(&mut loss);
        self.tell(|| format!("the ledger is {:?}, and relied on: {relies}", loss.fate));
        match self.assess(&all) {
            Err(refusal) if refusal.problems.iter().all(is_ledger) => self.note_refusal(&refusal),
            Ok(_) if relies && loss.fate != Fate::Flipped => {
                self.broken("P7", format!("opens though the ledger is {:?}", loss.fate));
            }
            _ => {}
        }
        if loss.is_for_good {
            self.kept.machine.ledger = None;
            self.kept.machine.accepts_loss = true;
        } else {
            self.kept.machine.ledger = loss.right;
        }
    }

    /// Ends the operator's acceptance of the loss.
    pub(crate) fn end_ledger_loss(&mut self) {
        self.kept.machine.accepts_loss = false;
    }
}

/// Returns true if a start is refused because of its ledger.
pub(crate) fn is_ledger(problem: &Problem) -> bool {
    matches!(problem, Problem::Ledger { .. })
}
