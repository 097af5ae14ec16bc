//! Legs: the copies of a volume and how the reactor drives them.
//!
//! A leg has two lives. While **opened** ([`OpenLeg`]) it is a blocking view: create, inspect
//! and recovery read and write its metadata through it before any event loop runs. Once
//! **attached** ([`Leg`]) it belongs to the reactor and does everything through the ring.
//!
//! # Driver contract
//!
//! A driver (file, stripe, apart, NBD) is a plain struct with these five functions, called by
//! [`Leg`] on the reactor's thread:
//!
//! - `submit(&mut self, cx, io)` queues the ring entries of the I/O at once and never blocks.
//!   Every I/O ends with exactly one [`LegContext::done`], in any order, and not before the
//!   kernel (or the fenced remote session) has let go of its data. Until then a frozen I/O
//!   stays open, forever if need be. `done` may be called from within `submit`.
//! - `completion(&mut self, cx, completion)` handles the completion of one of the driver's ring
//!   entries. Tags come from [`LegContext::tag`]. The driver chooses the [`SlotId`] and finds
//!   its state by it (a [`crate::slots::SlotTable`] does). It ignores a slot it does not know.
//! - `deadline(&self)` and `tick(&mut self, cx)` are the driver's own timers (reconnecting).
//!   `tick` is called once `deadline` has passed and never before.
//! - `detach(self, ring)` lets go of the leg. I/O still in flight keeps its descriptor, and
//!   with it the lock, in the kernel.
//!
//! Changes of the whole leg (session lost, device gone, leg back) are [`LegContext::event`]s.
//! Drivers allocate nothing per I/O once their tables have grown to the engine's window.

pub mod apart;
pub mod describe;
pub mod device;
pub mod file;
pub mod inject;
pub mod nbd;
mod open;
pub mod pages;
mod parts;
pub mod stripe;

use std::sync::Arc;

use hemi_engine::format::stamp::Progress;
use hemi_engine::identifiers::IoId;
use hemi_engine::io::{LegError, LegEvent, LegOperation};
use hemi_units::Instant;
use rustix::io::Errno;

use crate::memory::Span;
use crate::ring::{Completion, Ring, Source, Tag};
use crate::slots::SlotId;

pub use inject::{Injection, InjectionState};
pub use open::{FileOptions, OpenError, OpenLeg, Purpose};

use apart::ApartLeg;
use file::FileLeg;
use inject::{Injector, Verdict};
use nbd::NbdLeg;
use pages::{PageId, PagePool};
use stripe::StripeLeg;

/// An engine's I/O with its addresses resolved.
#[derive(Clone, Copy, Debug)]
pub struct ResolvedIo {
    /// The engine's identifier of the I/O.
    pub id: IoId,
    /// The operation. [`LegOperation::WriteMetadata`] is a write that is durable on completion.
    pub operation: LegOperation,
    /// The position on the leg, in bytes.
    pub offset: u64,
    /// The length in bytes. Zero for a flush.
    pub length: u64,
    /// The bytes to write or the memory to read into, `length` bytes long. `None` for flushes
    /// and write-zeroes.
    pub data: Option<Span>,
}

/// A report of a leg to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegOutcome {
    /// An I/O ended.
    Done {
        /// The I/O.
        id: IoId,
        /// Its result.
        result: Result<(), LegError>,
    },
    /// The system's error of the I/O whose end is reported next.
    Failed(Errno),
    /// A change of the leg as a whole.
    Event(LegEvent),
    /// The stamp the leg has reached.
    Progress(Progress),
}

/// The surroundings a driver works with during one call.
#[derive(Debug)]
pub struct LegContext<'a> {
    /// The ring to queue entries in.
    pub ring: &'a mut Ring,
    /// The time of this loop turn.
    pub now: Instant,
    /// The leg's number in the ring's tags. Each attachment has its own, so a completion for a
    /// leg that has left never reaches its successor.
    pub owner: u16,
    /// The list that collects outcomes.
    pub outcomes: &'a mut Vec<LegOutcome>,
}

impl LegContext<'_> {
    /// Returns the tag for a ring entry of this leg.
    pub fn tag(&self, id: SlotId) -> Tag {
        Tag { source: Source::Leg, owner: self.owner, id }
    }

    /// Reports the end of an I/O, with the system's error if it gave one.
    pub(crate) fn ended(&mut self, id: IoId, result: Result<(), LegError>, errno: Option<Errno>) {
        self.outcomes.extend(errno.map(LegOutcome::Failed));
        self.done(id, result);
    }

    /// Reports the end of an I/O.
    pub fn done(&mut self, id: IoId, result: Result<(), LegError>) {
        self.outcomes.push(LegOutcome::Done { id, result });
    }

    /// Reports the stamp the leg has reached.
    pub fn progress(&mut self, progress: Progress) {
        self.outcomes.push(LegOutcome::Progress(progress));
    }

    /// Reports a change of the leg as a whole.
    pub fn event(&mut self, event: LegEvent) {
        self.outcomes.push(LegOutcome::Event(event));
    }
}

/// The kinds of leg.
#[derive(Debug)]
enum Driver {
    File(FileLeg),
    Stripe(StripeLeg),
    Apart(ApartLeg),
    Nbd(Box<NbdLeg>),
}

/// Calls a function of the driver, whatever its kind.
macro_rules! drive {
    ($driver:expr, $name:ident => $call:expr) => {
        match $driver {
            Driver::File($name) => $call,
            Driver::Stripe($name) => $call,
            Driver::Apart($name) => $call,
            Driver::Nbd($name) => $call,
        }
    };
}

/// A leg attached to the reactor.
#[derive(Debug)]
pub struct Leg {
    driver: Driver,
    owner: u16,
    /// I/Os submitted and not yet settled.
    in_flight: usize,
    description: String,
    fast_zeroes: bool,
    injector: Option<Injector>,
    pages: PagePool,
    /// Metadata pages in flight. They are few, so the list is searched.
    metadata: Vec<(IoId, PageId)>,
}

impl Leg {
    /// Hands an opened leg to the reactor. `owner` names this attachment in the ring's tags;
    /// with `injectable`, faults may be injected.
    pub fn attach(opened: OpenLeg, owner: u16, injectable: bool) -> std::io::Result<Leg> {
        let description = opened.description();
        let fast_zeroes = opened.fast_zeroes();
        let driver = match opened {
            OpenLeg::File(device) => Driver::File(FileLeg::new(device)?),
            OpenLeg::Stripe(stripe) => Driver::Stripe(StripeLeg::new(stripe)?),
            OpenLeg::Apart(apart) => Driver::Apart(ApartLeg::new(apart)?),
            OpenLeg::Nbd(export) => Driver::Nbd(Box::new(NbdLeg::new(*export)?)),
        };
        Ok(Leg {
            driver,
            owner,
            in_flight: 0,
            description,
            fast_zeroes,
            injector: injectable.then(Injector::new),
            pages: PagePool::new()?,
            metadata: Vec::with_capacity(64),
        })
    }

    /// Returns the leg's name as the operator wrote it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns true if ranges can be zeroed without being written.
    pub fn fast_zeroes(&self) -> bool {
        self.fast_zeroes
    }

    /// Copies a metadata page into aligned memory, from which the I/O `id` will write it. The
    /// memory is kept until that I/O ends.
    pub fn stage_metadata(&mut self, id: IoId, bytes: &[u8; 4096]) -> std::io::Result<Span> {
        let (page, span) = self.pages.take()?;
        span.copy_from(bytes);
        self.metadata.push((id, page));
        Ok(span)
    }

    /// Returns the leg's number in the ring's tags.
    pub fn owner(&self) -> u16 {
        self.owner
    }

    /// Returns the number of I/Os submitted and not yet settled. A leg that has any must be
    /// kept.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Starts an I/O.
    pub fn submit(&mut self, cx: &mut LegContext<'_>, io: ResolvedIo) {
        self.in_flight += 1;
        match self.injector.as_mut().map_or(Verdict::Submit, |injector| injector.judge(cx.now, io))
        {
            Verdict::Submit => drive!(&mut self.driver, driver => driver.submit(cx, io)),
            Verdict::Held => {}
            Verdict::Fail(error) => cx.done(io.id, Err(error)),
        }
    }

    /// Handles the completion of one of the leg's ring entries.
    pub fn completion(&mut self, cx: &mut LegContext<'_>, completion: Completion) {
        drive!(&mut self.driver, driver => driver.completion(cx, completion));
    }

    /// Frees the resources of an I/O. The caller calls this for every [`LegOutcome::Done`]
    /// before the engine sees it.
    pub fn settle(&mut self, id: IoId) {
        self.in_flight -= 1;
        if self.metadata.is_empty() {
            return;
        }
        if let Some(index) = self.metadata.iter().position(|(held, _)| *held == id) {
            let (_, page) = self.metadata.swap_remove(index);
            self.pages.give_back(page);
        }
    }

    /// Returns the time at which [`Leg::tick`] is due.
    pub fn deadline(&self) -> Instant {
        let driver = drive!(&self.driver, driver => driver.deadline());
        self.injector.as_ref().map_or(driver, |injector| injector.deadline().min(driver))
    }

    /// Runs the timers: the driver's, and those of I/O that an injection held back.
    pub fn tick(&mut self, cx: &mut LegContext<'_>) {
        while let Some(io) = self.injector.as_mut().and_then(|injector| injector.release(cx.now)) {
            drive!(&mut self.driver, driver => driver.submit(cx, io));
        }
        if drive!(&self.driver, driver => driver.deadline()) <= cx.now {
            drive!(&mut self.driver, driver => driver.tick(cx));
        }
    }

    /// Injects a fault. Returns false if this volume does not allow it.
    pub fn inject(&mut self, now: Instant, injection: Injection) -> bool {
        match &mut self.injector {
            Some(injector) => {
                injector.apply(now, injection);
                true
            }
            None => false,
        }
    }

    /// Returns the faults in force, or `None` if this volume does not allow any.
    pub fn injected(&self, now: Instant) -> Option<InjectionState> {
        self.injector.as_ref().map(|injector| injector.state(now))
    }

    /// Returns the reason why a remote leg has no session, in plain text, or `None` if it has
    /// one or is local.
    pub fn no_session(&self) -> Option<&Arc<str>> {
        match &self.driver {
            Driver::Nbd(driver) => driver.no_session(),
            Driver::File(_) | Driver::Stripe(_) | Driver::Apart(_) => None,
        }
    }

    /// Lets go of the leg.
    pub fn detach(self, ring: &mut Ring) {
        drive!(self.driver, driver => driver.detach(ring));
    }
}

/// Maps a kernel error to the engine's kinds. The engine decides by the kind. The error itself is for the log.
pub fn leg_error(errno: Errno) -> LegError {
    match errno {
        Errno::IO | Errno::ILSEQ | Errno::NODATA | Errno::BADMSG | Errno::REMOTEIO => {
            LegError::Media
        }
        Errno::NOSPC | Errno::DQUOT => LegError::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::SHUTDOWN => LegError::Gone,
        _ => LegError::Other,
    }
}

#[cfg(test)]
mod tests;
