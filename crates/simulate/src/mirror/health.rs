//! Legs that go away and return, and the times for which legs are out.

use hemi_drives::drive::{Drive, Presence};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::io::{LegEvent, Notice};
use hemi_engine::status::LegStatus;
use hemi_units::Instant;
use hemi_workload::report::seconds;
use serde::Serialize;

use crate::legs::Legs;

/// The condition of a leg of a mirror. Times are in seconds, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LegCondition {
    /// Condition at the end, as `hemi status` names it.
    pub state: &'static str,
    /// Times it was marked out.
    pub outs: u64,
    /// Time for which it was out, until it was rebuilt.
    pub out_time: f64,
    /// Data it lacks at the end.
    pub owed_bytes: u64,
    /// Data that it had lacked and was given.
    pub drained_bytes: u64,
    /// Times it froze.
    pub freezes: u64,
    /// Time for which it was frozen.
    pub frozen_time: f64,
}

impl LegCondition {
    pub(super) fn new(status: &LegStatus, (outs, out_time): (u64, u64)) -> LegCondition {
        LegCondition {
            state: status.state.name(),
            outs,
            out_time: seconds(out_time),
            owed_bytes: status.owed_bytes,
            drained_bytes: status.drained_bytes,
            freezes: status.freezes,
            frozen_time: seconds(status.frozen_time),
        }
    }
}

/// The legs' presence and time out.
#[derive(Debug)]
pub(super) struct Health {
    /// Legs that may go away, with their presence as the engine knows it.
    watched: Vec<(usize, Presence)>,
    outs: [Outs; LEGS_MAX],
}

/// The times for which a leg was out.
#[derive(Clone, Copy, Debug, Default)]
struct Outs {
    count: u64,
    /// Total of those that are over, in nanoseconds.
    time: u64,
    since: Option<Instant>,
}

impl Health {
    pub(super) fn new<D: Drive>(legs: &Legs<D>, count: usize) -> Health {
        let may_go = (0..count).filter(|&leg| legs.presence(leg).is_some());
        let watched = may_go.map(|leg| (leg, Presence::Present)).collect();
        Health { watched, outs: [Outs::default(); LEGS_MAX] }
    }

    /// Returns an event that the engine has not been told.
    pub(super) fn next_event<D: Drive>(&mut self, legs: &Legs<D>) -> Option<(LegIndex, LegEvent)> {
        for (leg, known) in &mut self.watched {
            let now = legs.presence(*leg).unwrap_or(*known);
            if now == *known {
                continue;
            }
            *known = now;
            let event = match now {
                Presence::Present => LegEvent::Back,
                Presence::Away => LegEvent::Gone { removed: false },
                Presence::Dead => LegEvent::Gone { removed: true },
            };
            return Some((LegIndex(*leg as u8), event));
        }
        None
    }

    /// Follows the legs that are marked out and taken in again.
    pub(super) fn note(&mut self, now: Instant, notice: Notice) {
        match notice {
            Notice::Out { leg, .. } => {
                let outs = &mut self.outs[leg.index()];
                if outs.since.is_none() {
                    outs.count += 1;
                    outs.since = Some(now);
                }
            }
            Notice::In { leg } => {
                let outs = &mut self.outs[leg.index()];
                outs.time += outs.since.take().map_or(0, |since| now.since(since));
            }
            _ => {}
        }
    }

    /// Returns how often a leg was out, and for how long until `now`, in nanoseconds.
    pub(super) fn out(&self, leg: usize, now: Instant) -> (u64, u64) {
        let Outs { count, time, since } = self.outs[leg];
        (count, time + since.map_or(0, |since| now.since(since)))
    }
}
