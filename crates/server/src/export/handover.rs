//! The handover of clients to another program, once they are at rest.
//!
//! An upgrade pauses the exports: no client is accepted, nothing more is received, and no
//! further request is begun. Requests in the engine are answered, and the answers sent. Answers
//! that a client does not take in time, and the beginnings of requests that it has sent, go
//! along as bytes ([`State`]). Until the clients are detached, everything can continue as if
//! there had been no pause.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hemi_engine::io::{Operation, Reply, Request};
use hemi_units::{Extent, Instant, MILLISECOND};

use super::connection::{Connection, ConnectionMemory};
use super::device::{CONNECTION, DEVICE};
use super::guest::{self, Guest};
use super::kernel::KernelClient;
use super::listener::{ExportOptions, Listener};
use super::{ExportContext, Exports};
use crate::handover::state::{ConnectionState, ListenerState, State};
use hemi_io::ring::{RingFile, Source, Tag};
use hemi_io::slots::SlotId;

/// Time that clients have to take their answers in an upgrade. The rest goes along.
pub const ANSWERS_TIME: u64 = 100 * MILLISECOND;
/// The bit of a token that marks a flush for an upgrade.
const TOKEN: u64 = 1 << 61;

/// The progress of the exports' pause.
#[derive(Debug)]
pub(super) struct Pause {
    stage: Stage,
    /// Clients for which no flush has been begun.
    unflushed: VecDeque<SlotId>,
    /// Flushes that the engine works on.
    flushing: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requests are answered.
    Requests,
    /// Writes are made durable, so that no client misses a loss.
    Flushes,
    /// Answers are sent until this time.
    Answers(Instant),
    /// Unsent bytes come back from the ring.
    Leftovers,
    Quiet,
}

impl Exports {
    /// Brings the clients to rest. [`Exports::is_quiet`] returns true once they are.
    pub(crate) fn pause(&mut self, cx: &mut ExportContext<'_>) {
        self.requests.paused = true;
        for (owner, listener) in self.listeners.iter().enumerate() {
            listener.cancel(cx.ring, owner as u16);
        }
        for (_, connection) in self.connections.iter() {
            connection.cancel_receive(cx);
        }
        if let Some(device) = &mut self.device {
            device.stop();
        }
        self.guests.iter_mut().for_each(Guest::stop);
        let (stage, unflushed) = (Stage::Requests, VecDeque::new());
        self.pause = Some(Pause { stage, unflushed, flushing: 0 });
    }

    /// Ends a pause.
    pub(crate) fn go_on(&mut self, cx: &mut ExportContext<'_>) {
        (self.requests.paused, self.requests.sends_stopped) = (false, false);
        self.pause = None;
        for (owner, listener) in self.listeners.iter_mut().enumerate() {
            if !listener.accepting && listener.held.is_none() && !self.stopped {
                listener.start(cx.ring, owner as u16);
            }
        }
        let ids: Vec<SlotId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.go_on_sending(cx);
            if connection.is_paused() {
                self.again.push_back(id);
            }
            self.touch(id);
        }
        if let Some(device) = &mut self.device
            && device.go_on()
        {
            self.again.push_back(DEVICE);
        }
        for guest in &mut self.guests {
            guest.go_on();
            self.again.push_back(guest.place());
        }
    }

    /// Advances the pause. Returns true once all clients are at rest.
    pub(crate) fn is_quiet(&mut self, cx: &mut ExportContext<'_>) -> bool {
        let Some(mut pause) = self.pause.take() else { return false };
        self.step(cx, &mut pause);
        let quiet = pause.stage == Stage::Quiet;
        self.pause = Some(pause);
        quiet
    }

    fn step(&mut self, cx: &mut ExportContext<'_>, pause: &mut Pause) {
        if pause.stage == Stage::Requests && self.has_come_to_rest() {
            pause.stage = Stage::Flushes;
            let served = self.connections.iter().filter(|(_, one)| one.session.in_transmission());
            let device = self.device.is_some().then_some(DEVICE);
            let guests = self.guests.iter().map(Guest::place);
            pause.unflushed = served.map(|(id, _)| id).chain(device).chain(guests).collect();
        }
        if pause.stage == Stage::Flushes {
            while cx.engine.has_room()
                && let Some(id) = pause.unflushed.pop_front()
            {
                let connection = match self.connections.get(id) {
                    Some(connection) => connection.number,
                    None if id == DEVICE => CONNECTION,
                    None => match self.guest_at(id) {
                        Some(guest) => guest.connection(),
                        None => continue,
                    },
                };
                pause.flushing += 1;
                let request = Request {
                    token: TOKEN | id.to_bits(),
                    operation: Operation::Flush,
                    extent: Extent { start: 0, end: 0 },
                    buffer: None,
                    fua: false,
                    connection,
                };
                cx.engine.submit(cx.now, request);
            }
            if pause.unflushed.is_empty() && pause.flushing == 0 {
                pause.stage = Stage::Answers(cx.now + ANSWERS_TIME);
            }
        }
        if let Stage::Answers(until) = pause.stage {
            let waits = self.connections.iter().any(|(_, one)| one.has_output());
            if !waits {
                pause.stage = Stage::Leftovers;
            } else if cx.now >= until {
                self.requests.sends_stopped = true;
                for (_, connection) in self.connections.iter() {
                    connection.cancel_send(cx);
                }
                pause.stage = Stage::Leftovers;
            }
        }
        if pause.stage == Stage::Leftovers
            && !self.connections.iter().any(|(_, one)| one.is_sending())
        {
            self.requests.sends_stopped = true;
            pause.stage = Stage::Quiet;
        }
    }

    /// Returns true if the engine has no request of a client and no entry in the ring could
    /// bring one.
    fn has_come_to_rest(&self) -> bool {
        self.requests.in_engine == 0
            && self.device.as_ref().is_none_or(|device| !device.is_in_flight())
            && !self.guests.iter().any(Guest::is_in_flight)
            && !self.listeners.iter().any(|listener| listener.accepting)
            && !self.connections.iter().any(|(_, one)| one.input.busy)
    }

    /// Handles the end of a flush for an upgrade. Returns false if `reply` does not belong to
    /// one.
    pub(super) fn flushed(&mut self, reply: &Reply) -> bool {
        if reply.token & TOKEN == 0 {
            return false;
        }
        if let Some(pause) = &mut self.pause {
            pause.flushing = pause.flushing.saturating_sub(1);
        }
        let id = SlotId::from_bits(reply.token & !TOKEN);
        if reply.result.is_ok() {
            return true;
        }
        // The engine reports a loss once, and this was the report for this client.
        if id == DEVICE {
            self.requests.device_owed_loss = true;
        } else if let Some(connection) = self.connections.get_mut(id) {
            connection.owed_loss = true;
        } else if let Some(guest) = self.guest_at(id) {
            guest.owe_loss();
        }
        true
    }

    fn guest_at(&mut self, place: SlotId) -> Option<&mut Guest> {
        self.guests.get_mut(guest::at_place(place)?)
    }

    /// Returns the number of clients that cannot be handed over.
    pub(crate) fn clients_over_tls(&self) -> u64 {
        self.connections.iter().filter(|(_, one)| one.is_bound_here()).count() as u64
    }

    /// Detaches every client and listener, which must be at rest. The engine's buffers that
    /// they hold are freed at the end of the reactor.
    pub(crate) fn hand_over(&mut self, cx: &ExportContext<'_>) -> (State, Vec<OwnedFd>) {
        let mut state = State {
            accepted: self.counts.accepted,
            refused: self.counts.refused,
            device_owed_loss: self.requests.device_owed_loss,
            // Machines that have not come back since the last upgrade still have to be told.
            guests_owed_loss: std::mem::take(&mut self.requests.guests_owed_loss),
            ..State::default()
        };
        let owed = self.guests.iter().filter_map(Guest::owed_loss).map(str::to_owned);
        state.guests_owed_loss.extend(owed);
        let mut descriptors = Vec::new();
        let bound = std::mem::take(&mut self.listeners).into_iter().filter_map(Listener::hand_over);
        for (known, descriptor) in bound {
            state.listeners.push(known);
            descriptors.push(descriptor);
        }
        let ids: Vec<SlotId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            let Some(connection) = self.connections.remove(id) else { continue };
            match connection.hand_over(cx, &self.requests) {
                Some((mut known, descriptor)) => {
                    let kernel = self.kernel.as_ref();
                    let own = kernel.filter(|kernel| u32::from(kernel.owner()) == known.listener);
                    known.device = own.map(|kernel| kernel.path().to_owned());
                    state.connections.push(known);
                    descriptors.push(descriptor);
                }
                None => state.cut += 1,
            }
        }
        self.stopped = true;
        (state, descriptors)
    }

    /// Takes over the clients of a predecessor. The listeners in `carried` are those that the
    /// predecessor knew them by.
    pub(crate) fn take_on(&mut self, cx: &mut ExportContext<'_>, carried: CarriedClients) {
        self.counts.accepted = carried.accepted;
        self.counts.refused = carried.refused;
        self.requests.device_owed_loss = carried.device_owed_loss;
        self.requests.guests_owed_loss = carried.guests_owed_loss;
        for (known, descriptor) in carried.connections {
            let owner = match &known.device {
                Some(path) => self.take_on_kernel(path, &carried.options),
                None => self.owner_of(carried.listeners.get(known.listener as usize)),
            };
            let taken = owner.and_then(|owner| self.take_on_one(cx, owner, known, descriptor));
            if let Err(reason) = taken {
                self.counts.cut += 1;
                tracing::warn!(reason, "a client could not be taken over");
            }
        }
    }

    /// Returns the index of the listener that a predecessor knew as `known`.
    fn owner_of(&self, known: Option<&ListenerState>) -> Result<usize, String> {
        let found = known.and_then(|known| {
            self.listeners.iter().position(|listener| listener.is_known_as(known))
        });
        found.ok_or_else(|| "its export is not configured any more".to_owned())
    }

    /// Takes over the kernel's client. A thread looks after the block device later.
    fn take_on_kernel(&mut self, path: &str, options: &ExportOptions) -> Result<usize, String> {
        let owner = self.kernel_listener(path, options).map_err(|error| error.to_string())?;
        self.kernel = Some(KernelClient::new(owner, path.to_owned(), None));
        Ok(usize::from(owner))
    }

    fn take_on_one(
        &mut self,
        cx: &mut ExportContext<'_>,
        owner: usize,
        known: ConnectionState,
        descriptor: OwnedFd,
    ) -> Result<(), String> {
        let memory = ConnectionMemory::new().map_err(|error| format!("no memory: {error}"))?;
        let listener = &mut self.listeners[owner];
        let file = RingFile::of(&descriptor);
        let number = known.number;
        let made =
            Connection::taken_on(owner as u16, listener, descriptor, file, &known, memory, cx.now);
        let connection = match made {
            Ok(connection) => connection,
            Err((reason, descriptor)) => {
                cx.ring.remove_file(file, descriptor);
                return Err(reason);
            }
        };
        listener.open += 1;
        cx.engine.connection_opened(number);
        let id = self.connections.insert(Box::new(connection));
        if let Some(connection) = self.connections.get_mut(id) {
            connection.named(id);
            connection.take_up(&known, &mut self.requests, cx.now);
        }
        self.again.push_back(id);
        self.touch(id);
        Ok(())
    }
}

/// The clients of a predecessor.
#[derive(Debug)]
pub(crate) struct CarriedClients {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) device_owed_loss: bool,
    pub(crate) guests_owed_loss: Vec<String>,
    /// The volume as it is exported.
    pub(crate) options: ExportOptions,
    pub(crate) listeners: Vec<ListenerState>,
    pub(crate) connections: Vec<(ConnectionState, OwnedFd)>,
}

impl Listener {
    /// Stops accepting; the accept that is armed ends soon.
    fn cancel(&self, ring: &mut hemi_io::ring::Ring, owner: u16) {
        if self.accepting {
            let id = SlotId { slot: 0, generation: 0 };
            ring.cancel(Tag { source: Source::Listener, owner, id });
        }
    }
}
