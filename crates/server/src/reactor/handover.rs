//! The reactor's part of an upgrade. It brings the clients to rest, closes the volume and hands
//! both over.
//!
//! Until the clients are at rest, any step that takes too long ends the upgrade, and the
//! clients go on. After that the volume is closed as at a stop. The thread that waits for the
//! reactor's end continues with [`HandedOver`].

use std::path::PathBuf;

use hemi_engine::command::Command;
use hemi_engine::status::{LegState, Status};
use hemi_units::{Instant, MILLISECOND, SECOND};

use super::{Outcome, Reactor, TOKEN_CLOSE};
use crate::control::volume::{HandoverReport, HandoverTimes, Phase};
use crate::grow::GrowTo;
use crate::handover::HandedOver;
use crate::messages::{ReactorError, ReplyTo};

/// Longest time that clients wait for their requests to be answered before the attempt is given
/// up.
const REST_TIME: u64 = SECOND;
/// Time for which an upgrade is tried again while a leg does not answer or requests are not
/// answered.
const TRY_TIME: u64 = 15 * SECOND;
/// Time between two attempts, during which clients are served.
const TRY_INTERVAL: u64 = SECOND;
/// Time between two checks that clients are at rest.
const LOOK_INTERVAL: u64 = MILLISECOND / 2;
/// Time to drain and clean regions before the volume is closed, so that the next server has less to
/// compare.
const CLOSE_DRAIN: u64 = 100 * MILLISECOND;
/// Time that legs have to end their I/O after the volume is closed.
const LEGS_TIME: u64 = 2 * SECOND;

/// An operator's wishes for an upgrade.
#[derive(Clone, Debug)]
pub struct UpgradeWish {
    /// The program that continues in this process. Without one, the next start of the service
    /// continues.
    pub binary: Option<PathBuf>,
    /// True if clients that cannot be handed over may be cut off.
    pub force: bool,
    /// The size to grow the volume to at the same time.
    pub grow: Option<GrowTo>,
}

/// An upgrade that can still be given up.
pub(super) struct Attempt {
    wish: UpgradeWish,
    reply: ReplyTo<Outcome>,
    /// The time after which no further attempt is begun.
    last: Instant,
}

/// The progress of an upgrade.
pub(super) enum Upgrade {
    /// Clients are served until the next attempt.
    Waiting { attempt: Attempt, until: Instant },
    /// Clients are being brought to rest.
    Pausing { attempt: Attempt, since: Instant },
    /// Clients are detached and the volume is being closed.
    Closing(Box<HandedOver>),
}

impl Reactor {
    /// Begins an upgrade, if nothing prevents it.
    pub(super) fn begin_upgrade(&mut self, wish: UpgradeWish, reply: ReplyTo<Outcome>) {
        if self.upgrade.is_some() {
            return reply(Err(ReactorError::Busy));
        }
        // A stop does not wait.
        let patience = if wish.binary.is_some() { TRY_TIME } else { 0 };
        let attempt = Attempt { wish, reply, last: self.now + patience };
        self.try_upgrade(attempt);
    }

    /// Pauses the clients, unless something prevents it.
    fn try_upgrade(&mut self, attempt: Attempt) {
        match self.may_upgrade(&attempt.wish) {
            Ok(()) => {
                self.with_exports(|exports, cx| exports.pause(cx));
                self.upgrade = Some(Upgrade::Pausing { attempt, since: self.now });
            }
            Err(error) => self.put_off(attempt, error),
        }
    }

    /// Schedules another attempt if the obstacle may go away by itself and there is time.
    /// Otherwise reports the error.
    fn put_off(&mut self, attempt: Attempt, error: ReactorError) {
        // A command that runs may run for hours.
        let opens = self.phase == Phase::Serving && !self.engine.is_serving();
        let passes =
            opens || matches!(error, ReactorError::LegSilent(_) | ReactorError::NotAtRest(_));
        if passes && self.now < attempt.last {
            let until = self.now + TRY_INTERVAL;
            self.upgrade = Some(Upgrade::Waiting { attempt, until });
            return;
        }
        tracing::warn!(%error, "the upgrade is given up; clients go on here");
        (attempt.reply)(Err(error));
    }

    fn may_upgrade(&mut self, wish: &UpgradeWish) -> Result<(), ReactorError> {
        let serves = self.phase == Phase::Serving && self.engine.is_serving();
        if !serves || !self.pending.is_empty() {
            return Err(ReactorError::Busy);
        }
        if let Some(slot) = self.silent_leg() {
            return Err(ReactorError::LegSilent(slot));
        }
        let clients = self.exports.clients_over_tls();
        if clients > 0 && !wish.force {
            return Err(ReactorError::WouldCut(clients));
        }
        Ok(())
    }

    /// Returns a leg that does not answer and has I/O in flight. Neither its lock nor this
    /// process's memory is free before that I/O ends.
    fn silent_leg(&self) -> Option<u8> {
        if let Some(leg) = self.retired.first() {
            return Some((usize::from(leg.owner()) % hemi_engine::identifiers::LEGS_MAX) as u8);
        }
        let mut status = Status::default();
        self.engine.status(self.now, &mut status);
        let silent = status.legs.iter().find(|leg| {
            let busy = self.legs.get(usize::from(leg.leg)).and_then(Option::as_ref);
            matches!(leg.state, LegState::Frozen | LegState::Gone)
                && busy.is_some_and(|busy| busy.in_flight() > 0)
        });
        silent.map(|leg| leg.leg)
    }

    /// Returns the time at which [`Reactor::pursue_upgrade`] is due.
    pub(super) fn upgrade_deadline(&self) -> Instant {
        match &self.upgrade {
            Some(Upgrade::Waiting { until, .. }) => *until,
            Some(Upgrade::Pausing { .. }) => self.now + LOOK_INTERVAL,
            Some(Upgrade::Closing(_)) if self.phase == Phase::Closed => self.closed_at + LEGS_TIME,
            _ => Instant::NEVER,
        }
    }

    /// Advances an upgrade by one step.
    pub(super) fn pursue_upgrade(&mut self) {
        match self.upgrade.take() {
            Some(Upgrade::Waiting { attempt, until }) if self.now >= until => {
                self.try_upgrade(attempt);
            }
            Some(Upgrade::Pausing { attempt, since }) => self.pursue_pause(attempt, since),
            other => self.upgrade = other,
        }
    }

    fn pursue_pause(&mut self, attempt: Attempt, since: Instant) {
        if self.with_exports(|exports, cx| exports.is_quiet(cx)) {
            return self.close_for_successor(attempt, since);
        }
        if self.now < since + REST_TIME {
            self.upgrade = Some(Upgrade::Pausing { attempt, since });
            return;
        }
        self.with_exports(|exports, cx| exports.go_on(cx));
        let error = match self.silent_leg() {
            Some(slot) => ReactorError::LegSilent(slot),
            None => ReactorError::NotAtRest(REST_TIME),
        };
        tracing::info!(%error, "clients go on for now");
        self.put_off(attempt, error);
    }

    /// Ends an upgrade because of a stop. Clients that are already detached are cut off.
    pub(super) fn drop_upgrade(&mut self) {
        match self.upgrade.take() {
            None | Some(Upgrade::Closing(_)) => {}
            Some(Upgrade::Waiting { attempt, .. }) => (attempt.reply)(Err(ReactorError::Ended)),
            Some(Upgrade::Pausing { attempt, .. }) => {
                self.with_exports(|exports, cx| exports.go_on(cx));
                (attempt.reply)(Err(ReactorError::Ended));
            }
        }
    }

    /// Detaches the clients and closes the volume. From here on there is no way back.
    fn close_for_successor(&mut self, attempt: Attempt, since: Instant) {
        let Attempt { wish, reply, .. } = attempt;
        let (mut state, descriptors) = self.with_exports(|exports, cx| exports.hand_over(cx));
        (state.paused_at, state.rested_at) = (since.0, self.now.0);
        state.grow = wish.grow;
        state.volume = self.published.load().identity.id;
        state.upgrades = self.taken_over.as_ref().map_or(0, |report| report.upgrades) + 1;
        let clients = state.connections.len();
        let rested_us = self.now.since(since) / 1000;
        tracing::info!(
            clients,
            cut = state.cut,
            rested_us,
            "clients are at rest; closing the volume"
        );
        let handed = HandedOver { state, descriptors, binary: wish.binary };
        self.upgrade = Some(Upgrade::Closing(Box::new(handed)));
        self.phase = Phase::Closing;
        self.next_snapshot = self.now;
        let drain_until = self.now + CLOSE_DRAIN;
        self.engine.command(self.now, TOKEN_CLOSE, Command::Close { drain_until });
        reply(Ok(()));
    }

    /// Returns true if the volume is being handed over and there is no way back.
    pub(super) fn is_handing_over(&self) -> bool {
        matches!(self.upgrade, Some(Upgrade::Closing(_)))
    }

    /// Returns true if no leg has I/O in flight, or if the time for it to end has passed.
    pub(super) fn legs_have_ended(&self) -> bool {
        self.in_flight() == 0 || self.now >= self.closed_at + LEGS_TIME
    }

    fn in_flight(&self) -> usize {
        self.legs.iter().flatten().chain(&self.retired).map(hemi_io::leg::Leg::in_flight).sum()
    }

    /// Returns the state for the successor, if there is one. The volume is closed by now.
    pub(super) fn handed_over(&mut self) -> Option<HandedOver> {
        let under_way = self.in_flight();
        match self.upgrade.take() {
            Some(Upgrade::Closing(mut handed)) => {
                handed.state.settled = under_way == 0;
                handed.state.closed_at = self.now.0;
                if under_way > 0 {
                    tracing::warn!(
                        under_way,
                        "a leg has I/O in flight: the successor waits for its end"
                    );
                }
                Some(*handed)
            }
            _ => None,
        }
    }

    /// Stores the report of the state taken over from a predecessor.
    pub(super) fn note_taken_over(&mut self, report: HandoverReport) {
        self.taken_over = Some(report);
    }

    /// Records that clients are served. Those of the predecessor have waited until now.
    pub(super) fn note_served(&mut self) {
        let (now, cut) = (self.now, self.exports.counts().cut);
        let Some(report) = self.taken_over.as_mut().filter(|report| report.pause_ns == 0) else {
            return;
        };
        let HandoverTimes { paused_at, rested_at, closed_at, taken_at } = report.times;
        report.pause_ns = now.since(Instant(paused_at)).max(1);
        report.cut += cut;
        report.connections -= cut;
        let HandoverReport { connections, cut, pause_ns, .. } = report;
        tracing::info!(
            pause_ms = *pause_ns / MILLISECOND,
            rest_ms = rested_at.saturating_sub(paused_at) / MILLISECOND,
            close_ms = closed_at.saturating_sub(rested_at) / MILLISECOND,
            exec_ms = taken_at.saturating_sub(closed_at) / MILLISECOND,
            open_ms = now.0.saturating_sub(taken_at) / MILLISECOND,
            connections,
            cut,
            "the previous program's clients continue"
        );
    }
}
