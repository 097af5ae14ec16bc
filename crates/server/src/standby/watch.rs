//! The thread that looks at the drives and has a standby take the place of a leg.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use hemi_engine::command::CommandError;
use hemi_engine::format::Layout;
use hemi_engine::identifiers::LegIndex;
use hemi_engine::status::LegState;

use super::look::{Found, Known, look};
use super::{ANSWERS_WITHIN, Drive, SILENT, Standbys, State};
use crate::control::standbys::StandbyTurn;
use crate::control::volume::{Phase, Snapshot};
use crate::create::{Joined, take_standby};
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage};
use crate::notices;
use crate::volume::{free_slot, is_place, state};
use hemi_io::config::legs::LegConfig;

/// Interval at which the thread looks at the volume.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at a drive that is no standby.
const LOOK_FOR_EVERY: Duration = Duration::from_secs(5);
/// Time between two looks at a standby: long enough for a disk to spin down.
const LOOK_AT_EVERY: Duration = Duration::from_secs(3600);
/// Time after which a standby that could not take a leg's place is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Starts the thread. It ends when the volume is closed.
///
/// # Errors
/// The system's error if there is no thread.
pub(crate) fn spawn(reactor: ReactorHandle, standbys: Arc<Standbys>) -> std::io::Result<()> {
    let run = move || Watch::new(reactor, standbys).run();
    std::thread::Builder::new().name("hemi-standbys".into()).spawn(run).map(drop)
}

/// A look that has ended: the drive's configuration and what was found.
type Looked = (LegConfig, Found);

struct Watch {
    reactor: ReactorHandle,
    standbys: Arc<Standbys>,
    looked: (Sender<Looked>, Receiver<Looked>),
    /// Slots whose dead leg a standby in another slot stands in for, as a mask.
    stood_in_for: u8,
    try_again: Instant,
}

impl Watch {
    fn new(reactor: ReactorHandle, standbys: Arc<Standbys>) -> Watch {
        Watch { reactor, standbys, looked: channel(), stood_in_for: 0, try_again: Instant::now() }
    }

    fn run(mut self) {
        loop {
            let snapshot = self.reactor.snapshot();
            match snapshot.phase {
                Phase::Opening => {}
                Phase::Serving => {
                    self.take_in();
                    self.look_at_drives(&snapshot);
                    self.stand_in(&snapshot);
                }
                // Whoever opens the volume next finds them unlocked.
                Phase::Upgrading => self.let_all_go(),
                Phase::Closing | Phase::Closed => return self.standbys.lock().drives.clear(),
            }
            std::thread::sleep(WATCH_EVERY);
        }
    }

    /// Takes in what looks have found.
    fn take_in(&mut self) {
        let mut turns = Vec::new();
        let mut inner = self.standbys.lock();
        for (config, found) in self.looked.1.try_iter() {
            let mut drives = inner.drives.iter_mut();
            // It may have been taken out, or added anew, since.
            let Some(drive) = drives.find(|drive| {
                drive.config == config && matches!(drive.state, State::Looking { .. })
            }) else {
                continue;
            };
            turns.extend(take_in(drive, found));
        }
        for drive in &mut inner.drives {
            if let State::Looking { since } = drive.state
                && since.elapsed() > ANSWERS_WITHIN
            {
                turns.extend(miss(drive, SILENT.to_owned()));
            }
        }
        self.standbys.show(&inner);
        drop(inner);
        turns.into_iter().for_each(|turn| self.standbys.tell(turn));
    }

    /// Begins a look at each drive that is due and in no leg's use.
    fn look_at_drives(&self, snapshot: &Snapshot) {
        let Some(known) = known(snapshot) else { return };
        let now = Instant::now();
        let mut inner = self.standbys.lock();
        for known_leg in snapshot.legs.iter() {
            let is_new = |drive: &Drive| drive.config.path.to_string() != known_leg.path;
            if inner.drives.iter().all(is_new)
                && let Ok(spec) = known_leg.path.parse()
            {
                // A leg that joined may be replaced in its turn, and come back.
                inner.drives.push(Drive::new(LegConfig::new(spec)));
            }
        }
        for drive in inner.drives.iter_mut().filter(|drive| drive.next_look <= now) {
            if matches!(drive.state, State::Looking { .. }) || is_used(&drive.config, snapshot) {
                continue;
            }
            let held = match std::mem::replace(&mut drive.state, State::Looking { since: now }) {
                State::Ready(opened) => Some(opened),
                State::Looking { .. } | State::Not(_) => None,
            };
            let (config, sender) = (drive.config.clone(), self.looked.0.clone());
            let known = known.clone();
            let look = move || {
                let found = look(&config, held, &known);
                // An error means that the volume was closed meanwhile.
                let _ = sender.send((config, found));
            };
            if let Err(error) = std::thread::Builder::new().name("hemi-look".into()).spawn(look) {
                drive.state = State::Not(format!("there is no thread to look at it: {error}"));
                drive.next_look = now + LOOK_FOR_EVERY;
            }
        }
    }

    /// Has a standby that is ready take the place of a leg that is dead.
    fn stand_in(&mut self, snapshot: &Snapshot) {
        let legs = &snapshot.status.legs;
        let dead = legs.iter().filter(|leg| leg.dead).fold(0, |legs, leg| legs | 1 << leg.leg);
        self.stood_in_for &= dead;
        // It is filled from a leg that lacks nothing. Until there is one, the dead leg may be needed.
        let has_source = legs.iter().any(|leg| leg.state == LegState::Healthy);
        let wanted: u8 = dead & !self.stood_in_for;
        if wanted == 0 || !has_source || Instant::now() < self.try_again {
            return;
        }
        let leg = LegIndex(wanted.trailing_zeros() as u8);
        let Some(config) = self.let_go() else { return };
        let standby = config.label();
        let old = notices::label(&notices::name(&snapshot.legs, leg), leg);
        match self.join(&config, leg, snapshot) {
            Ok(slot) => {
                if slot != leg {
                    self.stood_in_for |= leg.bit();
                }
                self.standbys.tell(StandbyTurn::Took {
                    standby,
                    leg: old,
                    slot: slot.0,
                    of: leg.0,
                });
            }
            Err(why) => {
                self.try_again = Instant::now() + TRY_AGAIN_AFTER;
                self.standbys.cannot(&config, &why);
                self.standbys.tell(StandbyTurn::Failed { standby, leg: old, of: leg.0, why });
            }
        }
    }

    /// Lets go of all standbys. They are looked at again if the volume is served here after all.
    fn let_all_go(&self) {
        let now = Instant::now();
        for drive in &mut self.standbys.lock().drives {
            if matches!(drive.state, State::Ready(_)) {
                drive.state = State::Not("the volume is being handed over".to_owned());
                drive.next_look = now;
            }
        }
    }

    /// Lets go of the first standby that is ready, so that it can be opened as a leg.
    fn let_go(&self) -> Option<LegConfig> {
        let mut inner = self.standbys.lock();
        let is_ready = |drive: &&mut Drive| matches!(drive.state, State::Ready(_));
        let drive = inner.drives.iter_mut().find(is_ready)?;
        drive.state = State::Not("it takes the place of a leg".to_owned());
        drive.is_known = false;
        drive.next_look = Instant::now() + LOOK_FOR_EVERY;
        let config = drive.config.clone();
        self.standbys.show(&inner);
        Some(config)
    }

    /// Has a standby join in the slot of this leg. If an I/O of that leg is in flight, or if it answers and
    /// only fails its writes, the slot cannot change hands, and the standby joins in a free one. Returns its slot.
    fn join(&self, config: &LegConfig, leg: LegIndex, of: &Snapshot) -> Result<LegIndex, String> {
        let known = known(of).ok_or("the volume's sizes make no layout")?;
        let attach = |slot: LegIndex| -> Result<Result<(), ReactorError>, String> {
            let (opened, id) =
                take_standby(config, &known.to).map_err(|error| error.to_string())?;
            let (opened, name) = (Box::new(opened), config.label());
            let attach = |reply| ReactorMessage::Attach { leg: slot, opened, name, id, reply };
            Ok(self.reactor.wait_for(attach))
        };
        let error = match attach(leg)? {
            Ok(()) => return Ok(leg),
            Err(ReactorError::Command(CommandError::IoInFlight | CommandError::SlotInUse)) => {
                let slot = free_slot(of, None).map_err(|_| "no other slot is free")?;
                match attach(slot)? {
                    Ok(()) => return Ok(slot),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        Err(error.to_string())
    }
}

/// Takes in the outcome of one look. Returns what is to be told of it.
fn take_in(drive: &mut Drive, found: Found) -> Option<StandbyTurn> {
    let standby = drive.config.label();
    let was_missing = drive.is_missing;
    let now = Instant::now();
    match found {
        Found::Standby(opened) => {
            drive.is_ready(opened);
            drive.next_look = now + LOOK_AT_EVERY;
            was_missing.then_some(StandbyTurn::Back { standby })
        }
        Found::Returned(opened, leg) => {
            drive.is_ready(opened);
            drive.next_look = now + LOOK_AT_EVERY;
            Some(StandbyTurn::Returned { standby, leg })
        }
        Found::Not(why) => {
            drive.next_look = now + LOOK_FOR_EVERY;
            drive.state = State::Not(why.clone());
            miss(drive, why)
        }
    }
}

/// Returns what is to be told of a standby that cannot be used now, once.
fn miss(drive: &mut Drive, why: String) -> Option<StandbyTurn> {
    let is_news = drive.is_known && !std::mem::replace(&mut drive.is_missing, true);
    is_news.then(|| StandbyTurn::Missing { standby: drive.config.label(), why })
}

fn known(snapshot: &Snapshot) -> Option<Known> {
    let identity = &snapshot.identity;
    let layout = Layout::new(identity.size_bytes, identity.region_bytes).ok()?;
    let to = Joined { volume: identity.id, layout, block_bytes: identity.block_bytes };
    let (generations, leg_ids) = (snapshot.generations.clone(), snapshot.leg_ids.clone());
    let legs = snapshot.status.legs.iter().filter(|leg| leg.state != LegState::Empty);
    let slots = legs.fold(0, |slots, leg| slots | LegIndex(leg.leg).bit());
    Some(Known { to, generations, leg_ids, slots })
}

/// Returns true if the drive is the one of a leg that the volume has.
fn is_used(config: &LegConfig, snapshot: &Snapshot) -> bool {
    let mut legs = snapshot.legs.iter().filter(|leg| state(snapshot, leg.leg) != LegState::Empty);
    legs.any(|leg| is_place(config, &leg.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_cannot_be_used_is_told_once() {
        let mut drive = Drive::new(LegConfig::new("/dev/sdc".parse().expect("a path")));
        let gone = || Found::Not("it is gone".to_owned());
        assert_eq!(take_in(&mut drive, gone()), None, "it was no standby");
        assert!(!drive.is_known);
        drive.is_known = true;
        let standby = "/dev/sdc".to_owned();
        let missing = StandbyTurn::Missing { standby, why: "it is gone".to_owned() };
        assert_eq!(take_in(&mut drive, gone()), Some(missing));
        assert_eq!(take_in(&mut drive, gone()), None, "it was told");
        assert_eq!(drive.status().why_not.as_deref(), Some("it is gone"));
    }
}
