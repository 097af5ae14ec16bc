//! Standbys: drives that wait to take the place of a leg.
//!
//! A drive that the configuration lists is a standby if its superblock says so. Each is held open and locked
//! while the volume is served. A thread of its own ([`watch`]) looks at them, and has the first that is ready
//! take the slot of a leg that is out and dead. A leg whose slot was taken becomes a standby when it is there
//! again.
//!
//! Nothing is overwritten but a drive whose superblock says, under its lock, that it is a standby of this
//! volume or that it was a leg of it and is one no more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::control::standbys::{StandbyStatus, StandbyTurn};
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::OpenLeg;

mod look;
mod watch;

pub(crate) use watch::spawn;

/// Longest time that a look at a standby takes before it counts as one that does not answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);
/// The reason in words.
const SILENT: &str = "it does not answer";
/// Maximum number of turns that wait to be reported.
const TURNS_MAX: usize = 64;

/// The standbys of a served volume, and the drives that may become some.
#[derive(Debug, Default)]
pub(crate) struct Standbys {
    inner: Mutex<Inner>,
    shown: ArcSwap<Vec<StandbyStatus>>,
}

#[derive(Debug, Default)]
struct Inner {
    drives: Vec<Drive>,
    turns: Vec<StandbyTurn>,
}

/// A drive of the configuration.
#[derive(Debug)]
struct Drive {
    config: LegConfig,
    state: State,
    /// True if it has been a standby since the volume was opened.
    is_known: bool,
    /// True if it is known, cannot be used now, and that was told.
    is_missing: bool,
    next_look: Instant,
}

#[derive(Debug)]
enum State {
    /// It is held and may take a leg's place.
    Ready(OpenLeg),
    /// It has been looked at since then, and the look has not ended.
    Looking { since: Instant },
    /// It is a leg, absent or something else. The reason is in words.
    Not(String),
}

impl Standbys {
    /// Returns the standbys among these drives, none of which has been looked at.
    pub(crate) fn new(configs: impl Iterator<Item = LegConfig>) -> Standbys {
        let standbys = Standbys::default();
        standbys.lock().drives.extend(configs.map(Drive::new));
        standbys
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a drive that was just made a standby.
    pub(crate) fn add(&self, config: LegConfig, opened: OpenLeg) {
        let mut inner = self.lock();
        inner.drives.retain(|drive| drive.config.path != config.path);
        let mut drive = Drive::new(config);
        drive.is_ready(opened);
        inner.drives.push(drive);
        self.show(&inner);
    }

    /// Takes out the standby of this name or spec, and returns it if it is ready.
    pub(crate) fn remove(&self, named: &str) -> Option<(LegConfig, OpenLeg)> {
        let mut inner = self.lock();
        let is_named = |drive: &Drive| {
            matches!(drive.state, State::Ready(_))
                && (drive.config.label() == named || drive.config.path.to_string() == named)
        };
        let at = inner.drives.iter().position(is_named)?;
        let Drive { config, state, .. } = inner.drives.remove(at);
        self.show(&inner);
        match state {
            State::Ready(opened) => Some((config, opened)),
            State::Looking { .. } | State::Not(_) => None,
        }
    }

    /// Returns the standbys of the volume, those that cannot be used now included.
    pub(crate) fn status(&self) -> Arc<Vec<StandbyStatus>> {
        self.shown.load_full()
    }

    /// Takes what has happened since the last call.
    pub(crate) fn take_turns(&self) -> Vec<StandbyTurn> {
        std::mem::take(&mut self.lock().turns)
    }

    /// Notes that a standby could not take the place of a leg.
    fn cannot(&self, config: &LegConfig, why: &str) {
        let mut inner = self.lock();
        if let Some(drive) = inner.drives.iter_mut().find(|drive| drive.config == *config) {
            drive.state = State::Not(why.to_owned());
            (drive.is_known, drive.is_missing) = (true, true);
        }
        self.show(&inner);
    }

    fn tell(&self, turn: StandbyTurn) {
        tracing::warn!("{turn}");
        let mut inner = self.lock();
        if inner.turns.len() < TURNS_MAX {
            inner.turns.push(turn);
        }
    }

    fn show(&self, inner: &Inner) {
        let known = inner.drives.iter().filter(|drive| drive.is_known);
        let shown: Vec<StandbyStatus> = known.map(Drive::status).collect();
        if **self.shown.load() != shown {
            self.shown.store(Arc::new(shown));
        }
    }
}

impl Drive {
    fn new(config: LegConfig) -> Drive {
        let state = State::Not("it has not been looked at yet".to_owned());
        Drive { config, state, is_known: false, is_missing: false, next_look: Instant::now() }
    }

    fn is_ready(&mut self, opened: OpenLeg) {
        self.state = State::Ready(opened);
        (self.is_known, self.is_missing) = (true, false);
    }

    fn status(&self) -> StandbyStatus {
        let why_not = match &self.state {
            State::Looking { since } if since.elapsed() > ANSWERS_WITHIN => Some(SILENT.to_owned()),
            State::Ready(_) | State::Looking { .. } => None,
            State::Not(why) => Some(why.clone()),
        };
        let (name, path) = (self.config.label(), self.config.path.to_string());
        StandbyStatus { name, path, ready: why_not.is_none(), why_not }
    }
}
