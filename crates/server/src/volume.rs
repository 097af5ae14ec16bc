//! The served volume, as the control thread sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use hemi_engine::command::{Command, CommandError};
use hemi_engine::identifiers::{LEGS_MAX, LegIndex};
use hemi_engine::status::RegionCounts;
use hemi_units::{Extent, SECTOR_BYTES};
use tokio::sync::oneshot;

use crate::control::inject::schedule;
use crate::control::standbys::{StandbyStatus, StandbyTurn};
use crate::control::volume::{
    CensusOutcome, Fault, FaultyOperation, Noticed, Outcome, Refusal, RefusalKind, Request,
    Snapshot, Volume,
};
use crate::export::GateFiles;
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage, ReplyTo, UpgradeWish};
use crate::notices::{NoticeReceiver, Notices};
use crate::standby::Standbys;
use hemi_io::leg::Injection;

mod detaching;
mod devices;
mod joining;
mod standing_by;
mod upgrading;

use detaching::not_detached;
use joining::Coming;
pub(crate) use joining::{free_slot, is_place, state};

/// A volume served by a reactor.
#[derive(Debug)]
pub struct ServedVolume {
    reactor: ReactorHandle,
    gates: GateFiles,
    /// The reason why no other program can continue it, if there is one.
    why_bound: Option<&'static str>,
    standbys: Arc<Standbys>,
    /// The receiver of notices. Only the control thread locks it.
    notices: Mutex<NoticeReceiver>,
}

impl ServedVolume {
    /// Returns the volume of this reactor. `gates` are the TLS files of its exports.
    /// `why_bound` is the reason why no other program can continue it, if there is one.
    pub(crate) fn new(
        reactor: ReactorHandle,
        gates: GateFiles,
        why_bound: Option<&'static str>,
        notices: NoticeReceiver,
        standbys: Arc<Standbys>,
    ) -> ServedVolume {
        ServedVolume { reactor, gates, why_bound, standbys, notices: Mutex::new(notices) }
    }

    /// Returns the volume of this reactor, whose notices only go to the log.
    pub fn unwatched(reactor: ReactorHandle, gates: GateFiles) -> ServedVolume {
        let (_, receiver) = Notices::new();
        ServedVolume::new(reactor, gates, None, receiver, Arc::default())
    }

    /// Rereads the TLS files. If one is not valid, those in use stay.
    fn reload(&self) -> Outcome {
        match self.gates.read() {
            Ok(gates) => self.ask(|reply| ReactorMessage::SetGates { gates, reply }),
            Err(error) => {
                let way_out = "The files read before stay in use. Fix the file and reload again.";
                let refusal = Refusal::new(RefusalKind::Failed, error.to_string(), way_out);
                Box::pin(async move { Err(refusal) })
            }
        }
    }

    /// Sends the reactor the message that `make` builds from a reply at once. The outcome is
    /// the reply.
    fn ask<T: Send + 'static>(
        &self,
        make: impl FnOnce(ReplyTo<Result<T, ReactorError>>) -> ReactorMessage,
    ) -> Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>> {
        let reply = self.send(make);
        Box::pin(async move { reply.await.map_err(refusal) })
    }

    /// Sends a message as [`ServedVolume::ask`] does. The outcome has the reactor's own error.
    fn send<T: Send + 'static>(
        &self,
        make: impl FnOnce(ReplyTo<Result<T, ReactorError>>) -> ReactorMessage,
    ) -> Pin<Box<dyn Future<Output = Result<T, ReactorError>> + Send>> {
        let (sender, receiver) = oneshot::channel();
        let reply: ReplyTo<_> = Box::new(move |result| {
            // The caller may no longer wait.
            let _ = sender.send(result);
        });
        let sent = self.reactor.send(make(reply));
        Box::pin(async move {
            sent?;
            // A dropped reply means that the reactor has ended without it.
            receiver.await.unwrap_or(Err(ReactorError::Ended))
        })
    }

    fn detach(&self, leg: LegIndex) -> Outcome {
        let command = Command::Detach { leg };
        let reply = self.send(|reply| ReactorMessage::Command { command, reply });
        let reactor = self.reactor.clone();
        Box::pin(async move {
            reply.await.map_err(|error| not_detached(error, &reactor.snapshot(), leg))
        })
    }

    fn command(&self, command: Command) -> Outcome {
        self.ask(|reply| ReactorMessage::Command { command, reply })
    }
}

impl Volume for ServedVolume {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.reactor.snapshot()
    }

    fn take_notices(&self, into: &mut Vec<Noticed>) -> u64 {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).take(into)
    }

    fn standbys(&self) -> Arc<Vec<StandbyStatus>> {
        self.standbys.status()
    }

    fn take_standby_turns(&self) -> Vec<StandbyTurn> {
        self.standbys.take_turns()
    }

    fn census(&self, cells: usize) -> CensusOutcome {
        // Allocated here, because the reactor allocates nothing.
        let cells = vec![RegionCounts::default(); cells];
        self.ask(|reply| ReactorMessage::Census { cells, reply })
    }

    fn request(&self, request: Request) -> Outcome {
        match request {
            Request::Remove { leg } => with_slot(leg, |leg| self.command(Command::Remove { leg })),
            Request::Detach { leg } => with_slot(leg, |leg| self.detach(leg)),
            Request::Scrub { repair, part } => {
                let sectors = self.snapshot().identity.size_bytes / SECTOR_BYTES;
                let extent = part.unwrap_or(Extent { start: 0, end: sectors });
                self.command(Command::Scrub { repair, extent })
            }
            Request::RewriteMetadata { leg } => {
                with_slot(leg, |leg| self.command(Command::RewriteMetadata { leg }))
            }
            Request::ScrubStop => self.command(Command::ScrubStop),
            Request::Configure { settings, .. } => {
                self.command(Command::Configure { settings: *settings })
            }
            Request::Inject { leg, fault } => with_slot(leg, |leg| match injection(fault) {
                Ok(injection) => self.ask(|reply| ReactorMessage::Inject { leg, injection, reply }),
                Err(refusal) => Box::pin(async move { Err(refusal) }),
            }),
            Request::AttachDevice { driver } => devices::attach(self.reactor.clone(), driver),
            Request::DetachDevice => devices::detach(self.reactor.clone()),
            Request::Reload => self.reload(),
            Request::Upgrade { binary, force, grow } => match self.why_bound {
                None => upgrading::upgrade(self.reactor.clone(), binary, force, grow),
                Some(what) => Box::pin(async move {
                    let way_out = "Stop the volume, and serve it without that.";
                    Err(Refusal::new(RefusalKind::Conflict, what, way_out))
                }),
            },
            Request::HandOver => {
                let wish = UpgradeWish { binary: None, force: true, grow: None };
                self.ask(|reply| ReactorMessage::Upgrade { wish, reply })
            }
            Request::Shutdown { drain } => {
                self.ask(|reply| ReactorMessage::Shutdown { drain: drain.0, reply })
            }
            Request::Add { leg, config, wipe, spare } => {
                joining::join(self.reactor.clone(), config, Coming::Add { leg, wipe, spare })
            }
            Request::Replace { leg, config, wipe, spare } => {
                joining::join(self.reactor.clone(), config, Coming::Replace { leg, wipe, spare })
            }
            Request::AddStandby { config, wipe } => {
                standing_by::add(self.reactor.clone(), Arc::clone(&self.standbys), config, wipe)
            }
            Request::RemoveStandby { standby } => {
                standing_by::remove(Arc::clone(&self.standbys), standby)
            }
            Request::Attach { config, wipe } => {
                joining::join(self.reactor.clone(), config, Coming::Attach { wipe })
            }
        }
    }
}

/// Does work that may block on a thread of its own, so that it completes even if the caller is
/// gone. `what` names it in the refusal if there is no thread or the thread panics.
fn on_a_thread(
    name: &str,
    what: &'static str,
    work: impl FnOnce() -> Result<(), Refusal> + Send + 'static,
) -> Outcome {
    let (sender, receiver) = oneshot::channel();
    let spawned = std::thread::Builder::new().name(name.into()).spawn(move || {
        let _ = sender.send(work());
    });
    Box::pin(async move {
        spawned.map_err(|error| {
            let what = format!("no thread for {what}: {error}");
            Refusal::new(RefusalKind::Failed, what, "Try again.")
        })?;
        receiver.await.unwrap_or_else(|_| {
            let what = format!("{what} ended unexpectedly");
            Err(Refusal::new(RefusalKind::Failed, what, "See the log."))
        })
    })
}

/// Calls `go_on` with the slot if it can exist.
fn with_slot(leg: u8, go_on: impl FnOnce(LegIndex) -> Outcome) -> Outcome {
    if usize::from(leg) < LEGS_MAX {
        return go_on(LegIndex(leg));
    }
    Box::pin(async move { Err(refusal(ReactorError::NoSuchLeg(leg))) })
}

fn injection(fault: Fault) -> Result<Injection, Refusal> {
    let schedule = schedule(&fault)?;
    Ok(match fault {
        Fault::Freeze { duration } => Injection::Freeze(duration.0),
        Fault::Delay { delay } => Injection::Delay(delay.0),
        Fault::Error { operation, rate } => {
            let per_mille = (rate.clamp(0.0, 1.0) * 1000.0).round() as u16;
            match operation {
                FaultyOperation::Read => Injection::ReadErrors(per_mille),
                FaultyOperation::Write => Injection::WriteErrors(per_mille),
                FaultyOperation::Flush => Injection::FlushErrors(per_mille),
            }
        }
        Fault::Stall { seed, .. } | Fault::Experiment { seed, .. } => {
            let schedule = schedule.expect("these faults have a schedule");
            Injection::Stall { schedule, seed }
        }
        Fault::Clear => Injection::Clear,
    })
}

/// Returns a reactor's error with its kind and advice.
fn refusal(error: ReactorError) -> Refusal {
    let (kind, way_out) = match &error {
        ReactorError::NoSuchLeg(_) | ReactorError::Command(CommandError::NoSuchLeg) => {
            (RefusalKind::NotFound, "hemi leg list shows the legs.")
        }
        ReactorError::InjectionOff => {
            (RefusalKind::Forbidden, "Serve the volume with --allow-inject.")
        }
        ReactorError::Command(CommandError::LastCompleteLeg) => {
            (RefusalKind::Unsafe, "Wait until another leg owes nothing: hemi status --watch.")
        }
        ReactorError::Command(CommandError::OnlyLeg) => (
            RefusalKind::Unsafe,
            "Add another with hemi leg add and wait until it is filled, or attach one that was \
             detached; to take this leg elsewhere, stop hemi serve instead.",
        ),
        ReactorError::Command(CommandError::Unrecorded) => (
            RefusalKind::Unsafe,
            "hemi status names the leg that fails; replace that one first: hemi leg replace.",
        ),
        ReactorError::Command(CommandError::SlotInUse) => {
            (RefusalKind::Conflict, "Detach the leg in it first: hemi leg detach.")
        }
        ReactorError::Command(CommandError::LegInUse) => {
            (RefusalKind::Conflict, "Detach it first: hemi leg detach.")
        }
        ReactorError::Command(CommandError::IoInFlight) => (
            RefusalKind::Conflict,
            "Add the new leg in a free slot (hemi leg add), or try again when the drive answers.",
        ),
        ReactorError::LegSilent(_) => (
            RefusalKind::Conflict,
            "Upgrade when it answers again, or take it out first: hemi leg detach. Clients go on.",
        ),
        ReactorError::WouldCut(_) => {
            (RefusalKind::Unsafe, "hemi upgrade --force cuts them off; others go on.")
        }
        ReactorError::NotAtRest(_) => {
            (RefusalKind::Failed, "Clients go on here. Look at the legs: hemi status.")
        }
        ReactorError::Busy | ReactorError::Command(CommandError::Busy) => {
            (RefusalKind::Conflict, "Try again when the other command is done.")
        }
        ReactorError::Ended | ReactorError::Command(CommandError::Closing) => {
            (RefusalKind::Closing, "Start the volume again.")
        }
        ReactorError::Command(CommandError::FixedSetting(_)) => (
            RefusalKind::Conflict,
            "Change it in the configuration file, and start the volume again.",
        ),
        ReactorError::Command(CommandError::BadSetting(_)) => {
            (RefusalKind::BadRequest, "docs/configuration.md lists every key with its range.")
        }
        ReactorError::Command(CommandError::Mismatches) => {
            (RefusalKind::Failed, "hemi status says what was found.")
        }
        ReactorError::Attach(_) => (RefusalKind::Failed, "Look at the legs: hemi status."),
        ReactorError::Requests(..) => (RefusalKind::Failed, "Serve the volume again."),
    };
    Refusal::new(kind, error.to_string(), way_out)
}
