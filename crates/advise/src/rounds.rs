//! The candidates that are simulated: all, or those that may still be among the first.
//!
//! Systems that meet what is asked for are listed by cost, the cheapest first. Once as many of
//! them as are wanted meet it, a candidate whose drives alone cost more than the dearest of these
//! cannot be among the first any more, however fast it is. It cannot be both cheaper and faster
//! than one of them either. So candidates are taken by their least cost, in rounds, until what is
//! left is too dear. Rounds have a fixed size, so the result does not depend on the number of
//! cores.

use serde::Serialize;

use crate::advice::SystemAdvice;
use crate::candidates::Candidate;
use crate::judge::Verdict;
use crate::money;
use crate::request::Request;

/// Candidates of a round: enough to keep many cores busy.
const ROUND: usize = 16;

/// Candidates that were not simulated because they could not be among the first.
#[derive(Clone, Debug, Serialize)]
pub struct NotSimulated {
    /// Their names, by least cost.
    pub systems: Vec<String>,
    /// Least cost of each of them: purchase and rent over the years.
    pub cost: f64,
    /// Number of systems that meet what is asked for and cost less.
    pub cheaper: usize,
}

/// Candidates that wait to be simulated.
pub(crate) struct Rounds<'a> {
    left: Vec<(f64, &'a Candidate)>,
    /// Systems that have to meet what is asked for before the dearer ones are left out.
    enough: Option<usize>,
}

impl<'a> Rounds<'a> {
    /// Creates the rounds of these candidates.
    pub(crate) fn of(candidates: &'a [Candidate], request: &Request) -> Rounds<'a> {
        let cost = |candidate| money::least(candidate, request);
        let mut left: Vec<_> = candidates.iter().map(|one| (cost(one), one)).collect();
        // If nothing is asked for, the first are those of the frontier, whatever they cost.
        let enough = request.enough.filter(|_| request.asks());
        if enough.is_some() {
            left.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        }
        left.reverse();
        Rounds { left, enough }
    }

    /// Returns the candidates to simulate next, given those that are done; empty at the end.
    pub(crate) fn next(&mut self, done: &[SystemAdvice]) -> Vec<&'a Candidate> {
        let bound = self.bound(done);
        let most = if self.enough.is_some() { ROUND } else { usize::MAX };
        let mut round = Vec::new();
        while round.len() < most
            && let Some(&(cost, candidate)) = self.left.last()
            && bound.is_none_or(|bound| cost <= bound)
        {
            self.left.pop();
            round.push(candidate);
        }
        round
    }

    /// Returns the cost above which no candidate can be among the first.
    fn bound(&self, done: &[SystemAdvice]) -> Option<f64> {
        let enough = self.enough?;
        let meets = done.iter().filter(|system| system.judgement.verdict == Verdict::Meets);
        let mut costs: Vec<f64> = meets.map(|system| system.cost.total).collect();
        costs.sort_by(f64::total_cmp);
        costs.get(enough.max(1) - 1).copied()
    }

    /// Returns those that were left out, after the last round.
    pub(crate) fn rest(&self) -> Option<NotSimulated> {
        let (cost, _) = self.left.last()?;
        let systems = self.left.iter().rev().map(|(_, one)| one.name()).collect();
        Some(NotSimulated { systems, cost: *cost, cheaper: self.enough.unwrap_or(0) })
    }
}
