//! The served volume as the control thread sees it.

use std::sync::Arc;

use hemi_core::command::{Command, CommandError};
use hemi_core::format::Layout;
use hemi_core::units::{Extent, LEGS_MAX, LegIndex, SECTOR_BYTES};
use tokio::sync::oneshot;

use crate::config::legs::LegConfig;
use crate::control::volume::{
    Fault, FaultyOperation, Outcome, Refusal, RefusalKind, Request, Snapshot, Volume,
};
use crate::create::{CreateError, JoinOptions, prepare_join, superblock_of};
use crate::leg::Injection;
use crate::messages::{ReactorError, ReactorHandle, ReactorMessage, ReplyTo};

/// A volume in the reactor's hands.
#[derive(Debug)]
pub struct ServedVolume {
    reactor: ReactorHandle,
}

impl ServedVolume {
    /// The volume of this reactor.
    pub fn new(reactor: ReactorHandle) -> ServedVolume {
        ServedVolume { reactor }
    }

    /// Sends what `make` makes of a reply, and waits for that reply.
    fn ask(
        &self,
        make: impl FnOnce(ReplyTo<Result<(), ReactorError>>) -> ReactorMessage,
    ) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        let reply: ReplyTo<_> = Box::new(move |result| {
            // Whoever asked may not wait any more.
            let _ = sender.send(result);
        });
        let sent = self.reactor.send(make(reply));
        Box::pin(async move {
            sent.map_err(refusal)?;
            // A dropped reply: the reactor has ended without it.
            receiver.await.unwrap_or(Err(ReactorError::Ended)).map_err(refusal)
        })
    }

    fn command(&self, command: Command) -> Outcome {
        self.ask(|reply| ReactorMessage::Command { command, reply })
    }

    /// Makes a leg ready and lets it join. Looking at it and blanking it block, so a thread
    /// does it; it goes on even if nobody waits for the outcome.
    fn join(&self, newcomer: Newcomer, config: LegConfig) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        let reactor = self.reactor.clone();
        let work = move || {
            let _ = sender.send(join(&reactor, newcomer, &config));
        };
        let spawned = std::thread::Builder::new().name("hemi-join".into()).spawn(work);
        Box::pin(async move {
            if let Err(error) = spawned {
                let what = format!("no thread to prepare the leg: {error}");
                return Err(Refusal::new(RefusalKind::Failed, what, "Try again."));
            }
            receiver.await.unwrap_or_else(|_| {
                let what = "preparing the leg failed unexpectedly";
                Err(Refusal::new(RefusalKind::Failed, what, "See the log."))
            })
        })
    }
}

/// What a joining leg is to the volume.
#[derive(Clone, Copy, Debug)]
enum Newcomer {
    /// A new leg, in this slot or the first free one.
    New { leg: Option<u8>, wipe: bool },
    /// A new leg in the place of one that is out.
    Instead { leg: LegIndex, wipe: bool },
    /// One that was a leg of this volume before.
    Again,
}

/// Prepares a leg, frees its slot if need be, and attaches it. Blocks.
fn join(reactor: &ReactorHandle, newcomer: Newcomer, config: &LegConfig) -> Result<(), Refusal> {
    let snapshot = reactor.snapshot();
    let identity = &snapshot.identity;
    let failed = |what: String, way_out| Refusal::new(RefusalKind::Failed, what, way_out);
    let layout = Layout::new(identity.size_bytes, identity.region_bytes)
        .map_err(|error| failed(error.to_string(), "See the log."))?;
    let in_use = |slot: u8| snapshot.status.legs.iter().any(|known| known.leg == slot);
    let free = || {
        (0..LEGS_MAX as u8).find(|slot| !in_use(*slot)).map(LegIndex).ok_or_else(|| {
            let what = format!("the volume has {LEGS_MAX} legs already");
            Refusal::new(RefusalKind::Conflict, what, "Remove one first: hemi leg remove.")
        })
    };
    let (leg, wipe) = match newcomer {
        Newcomer::New { leg: Some(leg), .. } if usize::from(leg) >= LEGS_MAX => {
            return Err(refusal(ReactorError::NoSuchLeg(leg)));
        }
        Newcomer::New { leg: Some(leg), .. } if in_use(leg) => {
            return Err(refusal(ReactorError::Command(CommandError::SlotInUse)));
        }
        Newcomer::New { leg: Some(leg), wipe } => (LegIndex(leg), wipe),
        Newcomer::New { leg: None, wipe } => (free()?, wipe),
        Newcomer::Instead { leg, wipe } => (leg, wipe),
        Newcomer::Again => {
            let former = former_slot(config, identity.id)?;
            (if in_use(former.0) { former } else { free().unwrap_or(former) }, true)
        }
    };
    let options = JoinOptions {
        spec: config.path.clone(),
        layout,
        block_bytes: identity.block_bytes,
        wipe,
        direct: config.direct,
    };
    let (opened, id) = prepare_join(&options).map_err(|error| unfit(&error))?;
    if in_use(leg.0) {
        let command = Command::Remove { leg };
        match wait_for(reactor, |reply| ReactorMessage::Command { command, reply }) {
            Ok(()) | Err(ReactorError::Command(CommandError::NoSuchLeg)) => {}
            Err(error) => return Err(refusal(error)),
        }
    }
    let (opened, name) = (Box::new(opened), config.label());
    wait_for(reactor, |reply| ReactorMessage::Attach { leg, opened, name, id, reply })
        .map_err(refusal)
}

/// The slot a leg had in this volume, by its own superblock.
fn former_slot(config: &LegConfig, volume: [u8; 16]) -> Result<LegIndex, Refusal> {
    let found = superblock_of(&config.path, config.direct).map_err(|error| unfit(&error))?;
    match found {
        Some(superblock) if superblock.volume_id == volume => Ok(superblock.leg),
        Some(superblock) => {
            let what = format!("{} is a leg of volume {:?}", config.path, superblock.name.as_str());
            let way_out = "To use it here all the same: hemi leg add --wipe.";
            Err(Refusal::new(RefusalKind::Unsafe, what, way_out))
        }
        None => {
            let what = format!("{} was never a leg of this volume", config.path);
            Err(Refusal::new(RefusalKind::BadRequest, what, "Add it as a new one: hemi leg add."))
        }
    }
}

/// Why a leg cannot join, in control's terms.
fn unfit(error: &CreateError) -> Refusal {
    let (kind, way_out) = match error {
        CreateError::NotEmpty { .. } => {
            (RefusalKind::Unsafe, "If what is on it may be destroyed, add --wipe.")
        }
        CreateError::InUse { .. } | CreateError::Same { .. } => {
            (RefusalKind::Conflict, "Free the device, or name another.")
        }
        CreateError::Read { .. } | CreateError::Write { .. } => {
            (RefusalKind::Failed, "Look at the device.")
        }
        _ => (RefusalKind::BadRequest, "Name another leg."),
    };
    Refusal::new(kind, error.to_string(), way_out)
}

/// Asks the reactor and blocks until it answers.
fn wait_for(
    reactor: &ReactorHandle,
    make: impl FnOnce(ReplyTo<Result<(), ReactorError>>) -> ReactorMessage,
) -> Result<(), ReactorError> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let reply: ReplyTo<_> = Box::new(move |result| {
        let _ = sender.try_send(result);
    });
    reactor.send(make(reply))?;
    receiver.recv().unwrap_or(Err(ReactorError::Ended))
}

impl Volume for ServedVolume {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.reactor.snapshot()
    }

    fn request(&self, request: Request) -> Outcome {
        match request {
            Request::Remove { leg } => with_slot(leg, |leg| self.command(Command::Remove { leg })),
            Request::Detach { leg } => with_slot(leg, |leg| self.command(Command::Detach { leg })),
            Request::Scrub { repair } => {
                let sectors = self.snapshot().identity.size_bytes / SECTOR_BYTES;
                let extent = Extent { start: 0, end: sectors };
                self.command(Command::Scrub { repair, extent })
            }
            Request::ScrubStop => self.command(Command::ScrubStop),
            Request::Inject { leg, fault } => with_slot(leg, |leg| {
                let injection = injection(fault);
                self.ask(|reply| ReactorMessage::Inject { leg, injection, reply })
            }),
            Request::Shutdown { drain } => {
                self.ask(|reply| ReactorMessage::Shutdown { drain: drain.0, reply })
            }
            Request::Add { leg, config, wipe } => self.join(Newcomer::New { leg, wipe }, config),
            Request::Replace { leg, config, wipe } => {
                with_slot(leg, |leg| self.join(Newcomer::Instead { leg, wipe }, config))
            }
            Request::Attach { config } => self.join(Newcomer::Again, config),
        }
    }
}

/// Goes on with a slot that can exist.
fn with_slot(leg: u8, go_on: impl FnOnce(LegIndex) -> Outcome) -> Outcome {
    if usize::from(leg) < LEGS_MAX {
        return go_on(LegIndex(leg));
    }
    Box::pin(async move { Err(refusal(ReactorError::NoSuchLeg(leg))) })
}

fn injection(fault: Fault) -> Injection {
    match fault {
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
        Fault::Clear => Injection::Clear,
    }
}

/// A reactor's error with its kind and way out.
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
        ReactorError::Command(CommandError::SlotInUse) => {
            (RefusalKind::Conflict, "Use a free slot, or hemi leg replace.")
        }
        ReactorError::Command(CommandError::LegInUse) => {
            (RefusalKind::Conflict, "Detach it first: hemi leg detach.")
        }
        ReactorError::Busy | ReactorError::Command(CommandError::Busy) => {
            (RefusalKind::Conflict, "Try again when the other command is done.")
        }
        ReactorError::Ended | ReactorError::Command(CommandError::Closing) => {
            (RefusalKind::Closing, "Start the volume again.")
        }
        ReactorError::Command(CommandError::Mismatches) => {
            (RefusalKind::Failed, "hemi scrub --repair makes the legs alike.")
        }
        ReactorError::Command(CommandError::Metadata) | ReactorError::Attach(_) => {
            (RefusalKind::Failed, "Look at the legs: hemi status.")
        }
    };
    Refusal::new(kind, error.to_string(), way_out)
}
