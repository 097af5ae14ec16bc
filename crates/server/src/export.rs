//! The NBD export: listeners, connections and their clients' requests.
//!
//! Everything here runs on the reactor's thread. Connections are served in turns. Each takes at
//! most [`REQUESTS_PER_TURN`] requests from its input before the next one is served, and the
//! expensive answers of all connections together are bounded. If the engine or the buffers have
//! no space, a connection stops receiving and joins a queue, which is served in order. A
//! connection that holds nothing and asks for little may pass ([`quota`]), and one that holds
//! buffers others wait for has to keep a pace ([`pace`]).

mod admission;
mod block;
mod complaints;
mod connection;
mod device;
mod guest;
mod handover;
mod input;
mod kernel;
mod listener;
mod output;
mod pace;
mod quota;
mod request;

use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use hemi_engine::io::{Buffers, ClientShare, Reply};
use hemi_units::{Instant, SECOND};

use crate::device::{KernelSocket, OpenDevice};
use crate::messages::{ReactorError, ReplyTo};
use crate::record::Recorder;
use crate::vhost::{GuestMessage, GuestOrder};
use hemi_engine::engine::Engine;
use hemi_io::arena::Arena;
use hemi_io::ring::{Completion, OWNERS_MAX, Ring, RingFile, Source};
use hemi_io::slots::{SlotId, SlotTable};
use rustix::io::Errno;

use admission::STATUS_STEPS_MAX;
pub(crate) use complaints::Complaints;
use connection::{Connection, ConnectionMemory, Next};
use device::{DEVICE, Device};
use guest::Guest;
pub use handover::ANSWERS_TIME;
pub(crate) use handover::CarriedClients;
use handover::Pause;
use kernel::KernelClient;
pub(crate) use listener::volume_features;
pub use listener::{ExportOptions, Gate, GateFiles, ListenError, Listener};
use request::Requests;

/// Requests taken from one connection before the next has its turn.
pub const REQUESTS_PER_TURN: u32 = 64;
/// Time for a client to finish the handshake.
pub const HANDSHAKE_TIMEOUT: u64 = 30 * SECOND;
/// Time after which a client that has hung up is cut off if it takes nothing of its last
/// answers.
pub const STALL_TIMEOUT: u64 = 2 * SECOND;
/// Time between two checks of connections for the two above and for their pace ([`pace`]).
pub const SWEEP_INTERVAL: u64 = SECOND;
/// Largest payload of a request, whatever is configured.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Connections the table holds before it grows.
const TABLE_CAPACITY: usize = 64;
/// Maximum number of connections examined in one turn behind the first that waits for space.
const PASSING_MAX: usize = 64;

/// The surroundings the export works with during one call.
pub(crate) struct ExportContext<'a> {
    pub(crate) ring: &'a mut Ring,
    pub(crate) engine: &'a mut Engine<Arena>,
    pub(crate) now: Instant,
}

/// Counts of connections since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The number of a predecessor's clients that could not be taken over.
    pub(crate) cut: u64,
}

/// Every listener and connection of a volume.
pub(crate) struct Exports {
    listeners: Vec<Listener>,
    connections: SlotTable<Box<Connection>>,
    /// The block device, if the volume has one of ublk.
    device: Option<Device>,
    /// The kernel's NBD client, if the volume is its block device.
    kernel: Option<KernelClient>,
    /// Disks of virtual machines, by number.
    guests: Vec<Guest>,
    requests: Requests,
    /// Connections that wait for space in the engine or the buffers, in order.
    waiting: VecDeque<SlotId>,
    /// Connections with input left from this turn.
    again: VecDeque<SlotId>,
    /// Connections with something to send, receive or close at the end of this turn.
    touched: Vec<SlotId>,
    /// Memory of closed connections for reuse.
    spare: Vec<ConnectionMemory>,
    counts: Counts,
    complaints: Complaints,
    next_sweep: Instant,
    stopped: bool,
    /// The pause for an upgrade in progress.
    pause: Option<Pause>,
    recorder: Option<Recorder>,
}

impl Exports {
    /// Creates exports that begin to accept at once.
    pub(crate) fn new(
        mut listeners: Vec<Listener>,
        buffer_budget: u64,
        ring: &mut Ring,
    ) -> Exports {
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.start(ring, index as u16);
        }
        Exports {
            listeners,
            connections: SlotTable::with_capacity(TABLE_CAPACITY),
            device: None,
            kernel: None,
            guests: Vec::new(),
            requests: Requests::new(buffer_budget),
            waiting: VecDeque::with_capacity(TABLE_CAPACITY),
            again: VecDeque::with_capacity(TABLE_CAPACITY),
            touched: Vec::with_capacity(TABLE_CAPACITY),
            spare: Vec::new(),
            counts: Counts::default(),
            complaints: Complaints::default(),
            next_sweep: Instant(0),
            stopped: false,
            pause: None,
            recorder: None,
        }
    }

    /// Records every request from now on.
    pub(crate) fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Hands recorded requests to the file soon.
    pub(crate) fn hand_over_records(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_over();
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let guests = self.guests.iter().filter(|guest| guest.is_connected()).count();
        Counts { open: (self.connections.len() + guests) as u64, ..self.counts }
    }

    /// Replaces the gates, one for each configured export. Clients that are connected stay.
    pub(crate) fn set_gates(&mut self, gates: &[Option<Arc<Gate>>]) {
        for listener in &mut self.listeners {
            listener.gate = gates.get(listener.export).cloned().flatten();
        }
    }

    /// Records whether all legs can zero ranges without writing them, after the legs have
    /// changed.
    pub(crate) fn set_fast_zeroes(&mut self, fast_zeroes: bool) {
        self.requests.fast_zeroes = fast_zeroes;
    }

    /// Handles the completion of a ring entry of a listener or connection.
    pub(crate) fn completion(&mut self, cx: &mut ExportContext<'_>, completion: Completion) {
        let owner = completion.tag.owner;
        match completion.tag.source {
            Source::Listener => return self.accepted(cx, owner, completion),
            Source::Device => return self.device_completion(cx, completion),
            Source::Guest => return self.guest_completion(cx, completion),
            _ => {}
        }
        let id = SlotId { slot: u32::from(owner), generation: completion.tag.id.generation };
        let Some(connection) = self.connections.get_mut(id) else { return };
        self.requests.quota.set_first(self.waiting.is_empty());
        let mut next = connection.completion(cx, completion, &mut self.requests);
        if let Next::Process = next {
            next = connection.process(cx, &mut self.requests);
        }
        self.follow(id, next);
    }

    /// Handles the completion of a command of the block device.
    fn device_completion(&mut self, cx: &mut ExportContext<'_>, completion: Completion) {
        let Some(device) = &mut self.device else { return };
        self.requests.quota.set_first(self.waiting.is_empty());
        let next = device.completion(cx, &mut self.requests, completion);
        if device.has_ended() {
            if let Some(device) = self.device.take() {
                tracing::info!(path = device.path(), "the block device is gone");
                device.dissolve(cx.ring);
            }
            return;
        }
        self.follow(DEVICE, next);
    }

    /// Handles the completion of an entry of a virtual machine's disk.
    fn guest_completion(&mut self, cx: &mut ExportContext<'_>, completion: Completion) {
        let Some(guest) = self.guests.get_mut(usize::from(completion.tag.owner)) else { return };
        self.requests.quota.set_first(self.waiting.is_empty());
        let next = guest.completion(cx, &mut self.requests, completion);
        let place = guest.place();
        self.follow(place, next);
    }

    /// Carries out an order of the connection to a virtual machine and answers it.
    pub(crate) fn guest_message(&mut self, cx: &mut ExportContext<'_>, message: GuestMessage) {
        let GuestMessage { export, order, reply } = message;
        while self.guests.len() <= usize::from(export) {
            match Guest::new(self.guests.len() as u16, cx) {
                Ok(guest) => self.guests.push(guest),
                Err(error) => {
                    tracing::warn!(%error, "no memory for a virtual machine's disk");
                    return reply(Err(ReactorError::Busy));
                }
            }
        }
        if self.stopped && matches!(order, GuestOrder::Connect { .. }) {
            return reply(Err(ReactorError::Ended));
        }
        self.counts.accepted += u64::from(matches!(order, GuestOrder::Connect { .. }));
        let guest = &mut self.guests[usize::from(export)];
        self.requests.quota.set_first(self.waiting.is_empty());
        let next = guest.order(cx, &mut self.requests, order, reply);
        let place = guest.place();
        self.follow(place, next);
    }

    /// Serves a block device as well. There is at most one.
    pub(crate) fn attach_device(
        &mut self,
        cx: &mut ExportContext<'_>,
        opened: OpenDevice,
    ) -> Result<(), ReactorError> {
        if self.device_path().is_some() || self.stopped {
            return Err(ReactorError::Busy);
        }
        let device = self.device.insert(Device::new(opened, cx));
        device
            .map()
            .map_err(|error| ReactorError::Requests(device.path().to_owned(), error.to_string()))
    }

    /// Serves the kernel's NBD client on a socket, in place of any previous one.
    pub(crate) fn serve_kernel(
        &mut self,
        cx: &mut ExportContext<'_>,
        socket: KernelSocket,
    ) -> Result<(), ReactorError> {
        if self.stopped {
            return Err(ReactorError::Ended);
        }
        if self.device.is_some() {
            return Err(ReactorError::Busy);
        }
        let KernelSocket { socket, path, options, ended } = socket;
        let owner = self
            .kernel_listener(&path, &options)
            .map_err(|error| ReactorError::Attach(error.to_string()))?;
        if !self.admit(cx, owner, socket) {
            return Err(ReactorError::Busy);
        }
        self.kernel = Some(KernelClient::new(owner, path, Some(ended)));
        Ok(())
    }

    /// Returns the index of the listener of the kernel's client.
    fn kernel_listener(&mut self, path: &str, options: &ExportOptions) -> Result<u16, ListenError> {
        let known = self.listeners.iter().position(Listener::is_kernels);
        let index = known.unwrap_or(self.listeners.len());
        if known.is_none() {
            self.listeners.push(Listener::of_kernel(path, options)?);
        }
        Ok(index as u16)
    }

    /// Watches the connection of the kernel's client that a predecessor had, and signals
    /// `ended` when it ends.
    pub(crate) fn watch_kernel(&mut self, ended: SyncSender<()>) -> Result<(), ReactorError> {
        let none = || ReactorError::Attach("the kernel has no connection".into());
        let kernel = self.kernel.as_mut().ok_or_else(none)?;
        let listener = self.listeners.get(usize::from(kernel.owner()));
        if listener.is_none_or(|listener| listener.open == 0) {
            return Err(none());
        }
        if kernel.watch(ended) { Ok(()) } else { Err(ReactorError::Busy) }
    }

    /// Calls `reply` once the block device has ended, or at once if there is none.
    pub(crate) fn await_device_end(&mut self, reply: ReplyTo<Result<(), ReactorError>>) {
        match (&mut self.device, &mut self.kernel) {
            (Some(device), _) => device.await_end(reply),
            (None, Some(kernel)) => {
                kernel.await_end(reply);
                self.kernel_left();
            }
            (None, None) => reply(Ok(())),
        }
    }

    /// Handles the end of the connection of the kernel's client.
    fn kernel_left(&mut self) {
        if let Some(kernel) = &mut self.kernel
            && self.listeners.get(usize::from(kernel.owner())).is_some_and(|own| own.open == 0)
            && kernel.left()
        {
            self.kernel = None;
        }
    }

    /// Returns the path of the block device, if there is one.
    pub(crate) fn device_path(&self) -> Option<&str> {
        let kernel = || self.kernel.as_ref().map(KernelClient::path);
        self.device.as_ref().map(Device::path).or_else(kernel)
    }

    /// Serves a connection or the block device in its turn. Returns `None` if it is gone.
    fn process(&mut self, cx: &mut ExportContext<'_>, id: SlotId) -> Option<Next> {
        if id == DEVICE {
            let device = self.device.as_mut()?;
            return Some(device.process(cx, &mut self.requests));
        }
        if let Some(guest) = guest::at_place(id) {
            return Some(self.guests.get_mut(guest)?.process(cx, &mut self.requests));
        }
        let connection = self.connections.get_mut(id)?;
        Some(connection.process(cx, &mut self.requests))
    }

    /// Schedules a connection by the result of serving it.
    fn follow(&mut self, id: SlotId, next: Next) {
        match next {
            Next::Nothing | Next::Process => {}
            Next::Again => self.again.push_back(id),
            Next::Wait => self.waiting.push_back(id),
        }
        self.touch(id);
    }

    fn touch(&mut self, id: SlotId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(id);
        }
    }

    /// Handles the completion of an accept, or the failure of a listener.
    fn accepted(&mut self, cx: &mut ExportContext<'_>, owner: u16, completion: Completion) {
        let paused = self.pause.is_some();
        let Some(listener) = self.listeners.get_mut(usize::from(owner)) else { return };
        listener.accepting = false;
        let descriptor = match completion.outcome() {
            // SAFETY: the kernel has just created this descriptor for us, and nobody else owns
            // it.
            Ok(descriptor) => unsafe { OwnedFd::from_raw_fd(descriptor as i32) },
            Err(Errno::CANCELED) if paused => return,
            Err(errno) => {
                listener.failed(cx.now, errno, self.stopped);
                return;
            }
        };
        if self.stopped {
            return;
        }
        let full = listener.open >= listener.options.connections_max;
        let leaving = |other: &Connection| other.listener == owner && other.is_leaving();
        if full && self.connections.iter().any(|(_, other)| leaving(other)) {
            // A place becomes free as soon as clients that hung up are closed. Until then
            // further clients wait in the kernel's queue.
            listener.held = Some(descriptor);
            return;
        }
        if !paused {
            listener.rearm(cx.ring, owner);
        }
        if full {
            self.counts.refused += 1;
            tracing::debug!(listener = %listener.name, "too many connections: one closed");
            return;
        }
        self.admit(cx, owner, descriptor);
    }

    /// Admits a client. Returns false if there is no space for it.
    fn admit(&mut self, cx: &mut ExportContext<'_>, owner: u16, descriptor: OwnedFd) -> bool {
        let Some(listener) = self.listeners.get_mut(usize::from(owner)) else { return false };
        if self.connections.len() >= usize::from(OWNERS_MAX) {
            self.counts.refused += 1;
            tracing::debug!(listener = %listener.name, "too many connections in all: one closed");
            return false;
        }
        let memory = match self.spare.pop().map_or_else(ConnectionMemory::new, Ok) {
            Ok(memory) => memory,
            Err(error) => {
                self.counts.refused += 1;
                tracing::warn!(%error, "no memory for a connection");
                return false;
            }
        };
        self.counts.accepted += 1;
        listener.open += 1;
        listener.tune(&descriptor);
        let file = RingFile::of(&descriptor);
        let number = self.counts.accepted as u32;
        cx.engine.connection_opened(number);
        let connection = Connection::new(owner, listener, descriptor, file, number, memory, cx.now);
        let id = self.connections.insert(Box::new(connection));
        if let Some(connection) = self.connections.get_mut(id) {
            connection.named(id);
        }
        self.touch(id);
        true
    }

    /// Handles the engine's answer to a request.
    pub(crate) fn reply(&mut self, cx: &mut ExportContext<'_>, reply: Reply) {
        if device::is_device(reply.token) {
            return self.device_reply(cx, reply);
        }
        if self.flushed(&reply) {
            return;
        }
        if let Some(guest) = guest::of_token(reply.token) {
            return self.guest_reply(cx, guest, reply);
        }
        let Some(done) = self.requests.reply(cx.engine.buffers_mut(), reply) else { return };
        if let Some(recorder) = &mut self.recorder {
            recorder.push(cx.now, &done.as_recorded());
        }
        match self.connections.get_mut(done.connection) {
            Some(connection) => {
                let id = done.connection;
                connection.answer(cx, &mut self.requests, done);
                self.touch(id);
            }
            None => self.requests.forget(cx.engine.buffers_mut(), done),
        }
    }

    fn device_reply(&mut self, cx: &mut ExportContext<'_>, reply: Reply) {
        let Some(device) = &mut self.device else {
            tracing::error!(token = reply.token, "the engine answered a device that is gone");
            return release(cx.engine.buffers_mut(), reply.buffer);
        };
        let answered = device.reply(cx, &mut self.requests, reply);
        if device.wants_turn() {
            device.note_queued();
            self.again.push_back(DEVICE);
        }
        if let (Some(answered), Some(recorder)) = (answered, &mut self.recorder) {
            recorder.push(cx.now, &answered);
        }
    }

    fn guest_reply(&mut self, cx: &mut ExportContext<'_>, guest: usize, reply: Reply) {
        let Some(guest) = self.guests.get_mut(guest) else {
            tracing::error!(token = reply.token, "the engine answered a guest that never existed");
            return release(cx.engine.buffers_mut(), reply.buffer);
        };
        let answered = guest.reply(cx, &mut self.requests, reply);
        if guest.wants_turn() {
            guest.note_queued();
            let place = guest.place();
            self.again.push_back(place);
        }
        if let (Some(answered), Some(recorder)) = (answered, &mut self.recorder) {
            recorder.push(cx.now, &answered);
        }
    }

    /// Serves connections that waited: those with input left, once each, and those without
    /// space, as far as there is space now. Returns true if the engine got anything new.
    pub(crate) fn resume(&mut self, cx: &mut ExportContext<'_>, first: bool) -> bool {
        let submitted = self.requests.submitted;
        if first {
            self.resume_again(cx);
        }
        self.resume_waiting(cx);
        self.requests.submitted != submitted
    }

    /// Serves connections with input left, once each, in order, while block status answers have
    /// steps left. The connections left over are served first in the next turn.
    fn resume_again(&mut self, cx: &mut ExportContext<'_>) {
        if self.again.is_empty() {
            return;
        }
        self.requests.status_steps = STATUS_STEPS_MAX;
        for _ in 0..self.again.len() {
            if self.requests.status_steps == 0 {
                break;
            }
            let Some(id) = self.again.pop_front() else { break };
            self.requests.quota.set_first(self.waiting.is_empty());
            if let Some(next) = self.process(cx, id) {
                self.follow(id, next);
            }
        }
    }

    /// Serves connections that wait for space, in order. The first that cannot go on keeps its
    /// place and is first in line for space that becomes free. Others may pass it with the
    /// small requests that are theirs at any time.
    fn resume_waiting(&mut self, cx: &mut ExportContext<'_>) {
        let mut kept = 0;
        for _ in 0..self.waiting.len() {
            if kept > PASSING_MAX || !cx.engine.has_room() {
                break;
            }
            let Some(id) = self.waiting.remove(kept) else { break };
            self.requests.quota.set_first(kept == 0);
            let Some(next) = self.process(cx, id) else { continue };
            if let Next::Wait = next {
                self.waiting.insert(kept, id);
                kept += 1;
                self.touch(id);
            } else {
                self.follow(id, next);
            }
        }
    }

    /// Sends, receives and closes everything that this turn has touched.
    pub(crate) fn finish_turn(&mut self, cx: &mut ExportContext<'_>) {
        // Connections left over from this turn come before new ones.
        self.requests.status_steps = if self.again.is_empty() { STATUS_STEPS_MAX } else { 0 };
        while let Some(id) = self.touched.pop() {
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.touched = false;
            if let Some(reason) = connection.take_complaint() {
                self.complaints.log(cx.now, &connection.peer, &reason);
            }
            if connection.settle(cx, &mut self.requests) {
                self.remove(cx, id);
            }
        }
        for guest in &mut self.guests {
            if let Some((name, reason)) = guest.finish_turn(cx) {
                self.complaints.log(cx.now, &name, &reason);
            }
        }
    }

    fn remove(&mut self, cx: &mut ExportContext<'_>, id: SlotId) {
        let Some(connection) = self.connections.remove(id) else { return };
        let owner = connection.listener;
        if !connection.was_served() {
            self.counts.refused += 1;
        }
        self.spare.push(connection.dissolve(cx.ring));
        let Some(listener) = self.listeners.get_mut(usize::from(owner)) else { return };
        listener.open = listener.open.saturating_sub(1);
        if let Some(held) = listener.held.take() {
            if self.pause.is_none() {
                listener.rearm(cx.ring, owner);
            }
            self.admit(cx, owner, held);
        }
        if self.kernel.as_ref().is_some_and(|kernel| kernel.owner() == owner) {
            self.kernel_left();
        }
    }

    /// Returns the time at which [`Exports::tick`] is due, which is now if a connection has
    /// input left.
    pub(crate) fn deadline(&self) -> Instant {
        if !self.again.is_empty() {
            return Instant(0);
        }
        let retry = self.listeners.iter().map(|listener| listener.retry_at).min();
        let sweep = if self.connections.is_empty() { Instant::NEVER } else { self.next_sweep };
        sweep.min(retry.unwrap_or(Instant::NEVER))
    }

    /// Retries failed listeners and checks for slow clients.
    pub(crate) fn tick(&mut self, cx: &mut ExportContext<'_>) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            if listener.retry_at <= cx.now && self.pause.is_none() {
                listener.start(cx.ring, index as u16);
            }
        }
        if self.next_sweep > cx.now {
            return;
        }
        self.next_sweep = cx.now + SWEEP_INTERVAL;
        let scarce = self.requests.quota.take_refused();
        let mut late = Vec::new();
        for (id, connection) in self.connections.iter_mut() {
            if let Some(reason) = connection.overdue(cx.now, scarce) {
                connection.cut_off(reason);
                late.push(id);
            }
        }
        for id in late {
            self.touch(id);
        }
    }

    /// Accepts no more clients and takes no more requests from those connected.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
        for listener in &mut self.listeners {
            listener.held = None;
        }
        if let Some(device) = &mut self.device {
            device.stop();
        }
        self.guests.iter_mut().for_each(Guest::stop);
        let ids: Vec<SlotId> = self.connections.iter().map(|(id, _)| id).collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.finish();
            }
            self.touch(id);
        }
    }

    /// Returns true if every client has its answers.
    pub(crate) fn idle(&self) -> bool {
        self.connections.is_empty()
    }
}

/// Returns the largest payload a client may send or ask for with this buffer budget, in bytes.
pub(crate) fn request_bytes_max(configured: u64, budget: u64) -> u32 {
    let fits = 1 << ClientShare::of(budget).common.ilog2();
    configured.min(REQUEST_BYTES_MAX).min(fits) as u32
}

/// Releases a buffer of the engine's arena.
fn release(arena: &mut Arena, buffer: Option<hemi_engine::identifiers::BufferId>) {
    if let Some(buffer) = buffer {
        arena.release(buffer);
    }
}
