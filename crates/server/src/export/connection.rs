//! One client connection.
//!
//! It is first open (handshake, then requests), then finishing (no further request is taken,
//! and those in flight are answered), and at last closed (the socket is shut down, and the
//! connection is removed once the ring has let go of its memory).

mod handover;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hemi_nbd::codec::ErrorCode;
use hemi_nbd::server::{ServerEvent, ServerSession};
use hemi_units::Instant;
use rustix::io::Errno;

use super::input::{Input, InputMemory, Intake};
use super::listener::{Gate, Listener};
use super::output::{Answer, Output, OutputMemory, TEXT_BYTES_MAX};
use super::pace::{Pace, Sample};
use super::request::{ClientRequest, Held, Kind, Requests};
use super::{ExportContext, HANDSHAKE_TIMEOUT, REQUESTS_PER_TURN, STALL_TIMEOUT, release};
use hemi_io::ring::{Completion, Ring, RingFile, Source, Tag};
use hemi_io::slots::SlotId;
use hemi_io::tls::Tls;

/// The slots of a connection's two operations in the ring's tags.
const RECEIVE: u32 = 0;
const SEND: u32 = 1;

/// Memory of a connection. It outlives the connection and serves the next.
#[derive(Debug)]
pub(super) struct ConnectionMemory {
    input: InputMemory,
    output: OutputMemory,
}

impl ConnectionMemory {
    pub(super) fn new() -> io::Result<ConnectionMemory> {
        Ok(ConnectionMemory { input: InputMemory::new()?, output: OutputMemory::new()? })
    }
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing except the completions it waits for.
    Nothing,
    /// Processing: it has input.
    Process,
    /// Another turn: it has had its turn and has input left.
    Again,
    /// Waiting: there is no space in the engine or the buffers.
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Finishing,
    Closed,
}

/// The reason why input is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    No,
    /// The connection's own bounds. Its own answers end this.
    Own,
    /// Lack of space. It is in the queue for it.
    Room,
    /// Its turn is over.
    Turn,
    /// A pause of all connections.
    Paused,
}

pub(super) struct Connection {
    pub(super) id: SlotId,
    /// Number since the start, by which the engine identifies it.
    pub(super) number: u32,
    pub(super) listener: u16,
    pub(super) peer: String,
    /// True if it is listed to be settled at the end of the turn.
    pub(super) touched: bool,
    descriptor: OwnedFd,
    file: RingFile,
    pub(super) session: ServerSession,
    /// The gate to set TLS up with (`gate`), and TLS once the client has asked for it.
    gate: Option<Arc<Gate>>,
    tls: Option<Tls>,
    pub(super) input: Input,
    pub(super) output: Output,
    state: State,
    blocked: Blocked,
    pub(super) in_flight: u32,
    pub(super) in_flight_bytes: u64,
    /// True while a long request is in flight ([`ClientRequest::is_long`]).
    pub(super) has_long: bool,
    pub(super) in_flight_max: u32,
    pub(super) in_flight_bytes_max: u64,
    accepted: Instant,
    /// The client's pace in taking its answers (`taking`) and in sending its payload
    /// (`sending`).
    taking: Pace,
    sending: Pace,
    served: bool,
    /// True if its next flush has to fail because one of its writes was lost.
    pub(super) owed_loss: bool,
    /// The reason why it is cut off, until that has been logged.
    complaint: Option<String>,
}

impl Connection {
    pub(super) fn new(
        owner: u16,
        listener: &Listener,
        descriptor: OwnedFd,
        file: RingFile,
        number: u32,
        memory: ConnectionMemory,
        now: Instant,
    ) -> Connection {
        let mut output = Output::new(memory.output, now);
        let session = listener.session(output.text());
        let input = Input::new(memory.input);
        let stream = Stream { descriptor, file, session, input, output };
        Connection::on(stream, owner, listener, number, now)
    }

    /// Returns a connection on a stream in any state.
    fn on(
        stream: Stream,
        owner: u16,
        listener: &Listener,
        number: u32,
        now: Instant,
    ) -> Connection {
        let Stream { descriptor, file, session, input, output } = stream;
        Connection {
            id: SlotId { slot: 0, generation: 0 },
            number,
            listener: owner,
            peer: listener.peer(&descriptor),
            touched: false,
            descriptor,
            file,
            served: session.in_transmission(),
            session,
            gate: listener.gate.clone(),
            tls: None,
            input,
            output,
            state: State::Open,
            blocked: Blocked::No,
            in_flight: 0,
            in_flight_bytes: 0,
            has_long: false,
            in_flight_max: listener.options.in_flight_requests_max,
            in_flight_bytes_max: listener.options.in_flight_bytes_max,
            accepted: now,
            taking: Pace::new(now),
            sending: Pace::new(now),
            owed_loss: false,
            complaint: None,
        }
    }

    /// Sets the connection's slot.
    pub(super) fn named(&mut self, id: SlotId) {
        self.id = id;
    }

    /// Returns true if it has completed the handshake.
    pub(super) fn was_served(&self) -> bool {
        self.served
    }

    fn tag(&self, operation: u32) -> Tag {
        let id = SlotId { slot: operation, generation: self.id.generation };
        Tag { source: Source::Connection, owner: self.id.slot as u16, id }
    }

    /// Handles the completion of a receive or send.
    pub(super) fn completion(
        &mut self,
        cx: &mut ExportContext<'_>,
        completion: Completion,
        requests: &mut Requests,
    ) -> Next {
        match completion.tag.id.slot {
            RECEIVE => self.received(completion),
            _ => self.sent(cx, requests, completion),
        }
    }

    fn received(&mut self, completion: Completion) -> Next {
        match completion.outcome() {
            Ok(0) => {
                self.input.busy = false;
                // The client may have shut down only its sending side, so it gets its answers.
                self.finish();
                Next::Nothing
            }
            Ok(count) => {
                self.input.received(count as usize);
                if self.state == State::Open { Next::Process } else { Next::Nothing }
            }
            // It may have been cancelled for a pause.
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => {
                self.input.busy = false;
                Next::Nothing
            }
            Err(errno) => {
                self.input.busy = false;
                self.fail("receiving", errno);
                Next::Nothing
            }
        }
    }

    fn sent(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        completion: Completion,
    ) -> Next {
        let (file, tag) = (self.file, self.tag(SEND));
        match completion.outcome() {
            Ok(count) if self.state != State::Closed => {
                let freed = match requests.sends_stopped {
                    true => self.output.sent_last(cx, requests, count as usize),
                    false => self.output.sent(cx, requests, count as usize, file, tag),
                };
                self.in_flight -= freed.answers;
                self.in_flight_bytes -= freed.weight;
                requests.quota.discharge(self.id, freed.payload);
                if self.blocked == Blocked::Own { Next::Process } else { Next::Nothing }
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) if requests.sends_stopped => {
                self.output.busy = false;
                Next::Nothing
            }
            Err(Errno::INTR | Errno::AGAIN) if self.state != State::Closed => {
                self.output.retry(cx, file, tag);
                Next::Nothing
            }
            outcome => {
                self.output.busy = false;
                if let Err(errno) = outcome {
                    self.fail("sending", errno);
                }
                Next::Nothing
            }
        }
    }

    fn fail(&mut self, doing: &str, errno: Errno) {
        if self.state != State::Closed {
            tracing::debug!(peer = %self.peer, %errno, "a connection failed while {doing}");
        }
        self.close();
    }

    /// Processes received input while there is space and the connection's turn lasts.
    pub(super) fn process(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> Next {
        self.blocked = Blocked::No;
        let mut quota = REQUESTS_PER_TURN;
        while self.state == State::Open {
            if requests.paused && matches!(self.input.intake, Intake::Idle | Intake::Admitting(_)) {
                self.blocked = Blocked::Paused;
                return Next::Nothing;
            }
            let step = match self.input.intake {
                Intake::Idle => self.header(&mut quota),
                Intake::Admitting(request) => self.admit(cx, requests, request),
                Intake::Reading { request, next } => self.read_parts(cx, requests, request, next),
                Intake::Writing { request, next, part } => {
                    self.write_parts(cx, requests, request, next, part)
                }
            };
            match step {
                Step::Go => {}
                Step::Empty => {
                    if !self.decrypt() && !self.input.refill() {
                        break;
                    }
                }
                Step::Blocked(blocked) => {
                    self.blocked = blocked;
                    return match blocked {
                        Blocked::Room => Next::Wait,
                        Blocked::Turn => Next::Again,
                        Blocked::Own | Blocked::Paused | Blocked::No => Next::Nothing,
                    };
                }
            }
        }
        Next::Nothing
    }

    /// Takes the next event from the staged bytes.
    fn header(&mut self, quota: &mut u32) -> Step {
        if self.output.text_waiting() > TEXT_BYTES_MAX {
            return Step::Blocked(Blocked::Own);
        }
        let staged = self.input.staged();
        if staged.is_empty() {
            return Step::Empty;
        }
        if *quota == 0 {
            return Step::Blocked(Blocked::Turn);
        }
        *quota -= 1;
        // SAFETY: no receive is in flight, so nobody writes to the staged bytes.
        let input = unsafe { staged.bytes() };
        let advance = match self.session.advance(input, self.output.text()) {
            Ok(advance) => advance,
            Err(end) => {
                self.complaint = Some(format!("it broke the protocol: {end}"));
                self.finish();
                return Step::Empty;
            }
        };
        self.input.consume(advance.consumed);
        match advance.event {
            ServerEvent::NeedMore | ServerEvent::Reply | ServerEvent::Refused { .. } => {}
            ServerEvent::Ready => {
                self.served = true;
                tracing::debug!(peer = %self.peer, "a client is connected");
            }
            ServerEvent::Request(request) => {
                self.served = true;
                self.input.intake = Intake::Admitting(request);
            }
            ServerEvent::StartTls => self.start_tls(),
            // This cannot happen, because payload is taken as soon as it is announced.
            ServerEvent::Payload { .. } => self.close(),
            ServerEvent::Abort | ServerEvent::Disconnect => self.finish(),
        }
        Step::Go
    }

    /// Begins TLS. The session's answer to STARTTLS goes out in the clear, everything after it
    /// through TLS.
    fn start_tls(&mut self) {
        let Some(gate) = &self.gate else { return self.close() };
        let config = Arc::clone(&gate.tls);
        let begun = self.input.secure().and_then(|()| self.output.secure());
        let refused = match (begun, Tls::serve(config)) {
            (Ok(()), Ok(tls)) => {
                self.tls = Some(tls);
                return;
            }
            (Err(error), _) => error.to_string(),
            (Ok(()), Err(error)) => error.to_string(),
        };
        tracing::warn!(peer = %self.peer, error = refused, "TLS could not be started");
        self.close();
    }

    /// Decrypts more input. Returns true if there is something to process now.
    fn decrypt(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        let more = self.input.decrypt(tls);
        if tls.is_newly_up() {
            self.session.tls_established();
            let admitted =
                self.gate.as_ref().is_some_and(|gate| gate.admit(tls, &mut self.session));
            if !admitted {
                self.cut_off("its certificate does not belong to a client of this export");
                return false;
            }
        }
        match more {
            Ok(more) => more,
            Err(error) => {
                // The alert with the reason is still sent.
                self.complaint = Some(format!("TLS failed: {error}"));
                self.finish();
                false
            }
        }
    }

    /// Queues the answer to a request that the engine has finished.
    pub(super) fn answer(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        done: ClientRequest,
    ) {
        if self.state == State::Closed {
            requests.forget(cx.engine.buffers_mut(), done);
            return;
        }
        self.has_long &= !done.is_long();
        let style = self.session.style();
        let weight = done.length;
        if let Some(error) = done.error {
            let (code, text) = super::admission::explain(&done, error);
            style.error(done.to, code, &text, self.output.text());
            requests.forget(cx.engine.buffers_mut(), done);
            self.in_flight -= 1;
            self.in_flight_bytes -= weight;
            return;
        }
        let answer = match done.kind {
            Kind::Read => {
                let packet = style.read_data(done.to, done.offset, done.length as u32, true);
                Answer { packet, held: done.held, length: done.length, weight }
            }
            Kind::Write | Kind::Plain => {
                Answer { packet: style.success(done.to), held: Held::Nothing, length: 0, weight }
            }
        };
        self.output.push(answer);
    }

    /// Answers a request that never reached the engine.
    pub(super) fn refuse(
        &mut self,
        request: &hemi_nbd::server::Request,
        code: ErrorCode,
        why: &str,
    ) {
        let style = self.session.style();
        style.error(request.reply_to(), code, why, self.output.text());
    }

    /// Ends a turn: sends the answers that are ready, and receives if there is space for more.
    /// Returns true if the connection is closed and the ring has let go of it.
    pub(super) fn settle(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> bool {
        let sent = self.output.is_empty(self.tls.as_ref());
        if self.state == State::Finishing && self.in_flight == 0 && sent {
            self.close();
        }
        if self.state == State::Closed {
            let over = !self.input.busy && !self.output.busy;
            if over {
                self.drop_intake(cx, requests);
                let freed = self.output.dissolve(cx, requests);
                requests.quota.discharge(self.id, freed.payload);
            }
            return over;
        }
        let (receive, send) = (self.tag(RECEIVE), self.tag(SEND));
        if !requests.sends_stopped {
            self.output.send(cx, requests, self.tls.as_mut(), self.file, send);
        }
        let wanted = self.state == State::Open && self.blocked == Blocked::No && !requests.paused;
        if wanted && !self.input.busy {
            self.input.receive(cx, self.file, receive);
        }
        false
    }

    /// Releases the resources of a half-received request.
    fn drop_intake(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) {
        let arena = cx.engine.buffers_mut();
        match std::mem::replace(&mut self.input.intake, Intake::Idle) {
            Intake::Idle | Intake::Admitting(_) => {}
            Intake::Reading { request, .. } => requests.abandon(arena, request),
            Intake::Writing { request, part, .. } => {
                if let Some(part) = part {
                    release(arena, Some(part.buffer));
                    requests.quota.discharge(self.id, part.length);
                }
                requests.abandon(arena, request);
            }
        }
    }

    /// Cuts the client off.
    pub(super) fn cut_off(&mut self, reason: &str) {
        self.complaint = Some(reason.to_owned());
        self.close();
    }

    /// Returns the reason why the client is cut off, once.
    pub(super) fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// Takes no further request. The connection closes once everything is answered.
    pub(super) fn finish(&mut self) {
        if self.state == State::Open {
            self.state = State::Finishing;
            // A request that was not completely received or submitted is never answered.
            if !matches!(self.input.intake, Intake::Idle | Intake::Admitting(_)) {
                self.close();
            }
        }
    }

    /// Returns true if the client has hung up or been cut off. It is removed once all is
    /// settled.
    pub(super) fn is_leaving(&self) -> bool {
        self.state != State::Open
    }

    /// Closes the connection. Its ring entries end soon, and answers are dropped.
    pub(super) fn close(&mut self) {
        if self.state != State::Closed {
            self.state = State::Closed;
            let _ = rustix::net::shutdown(&self.descriptor, rustix::net::Shutdown::Both);
        }
    }

    /// Returns the reason why this client should be cut off, or `None`. `scarce` means that
    /// others wait for buffers.
    pub(super) fn overdue(&mut self, now: Instant, scarce: bool) -> Option<&'static str> {
        if self.state == State::Closed {
            return None;
        }
        if !self.session.in_transmission() {
            let late = now.since(self.accepted) > HANDSHAKE_TIMEOUT;
            return late.then_some("it did not finish the handshake");
        }
        let stuck = self.output.busy && now.since(self.output.progress) > STALL_TIMEOUT;
        if stuck && self.state == State::Finishing {
            return Some("it does not take its last answers");
        }
        let takes_slowly = self.taking.is_slow(now, self.output.sample());
        // If bytes are not received for lack of space, the client is not at fault.
        let blocked = self.blocked != Blocked::No;
        let sample = if blocked { Sample::default() } else { self.input.sample() };
        let sends_slowly = self.sending.is_slow(now, sample);
        match (scarce, takes_slowly, sends_slowly) {
            (true, true, _) => {
                Some("it takes its answers too slowly while others wait for buffers")
            }
            (true, _, true) => Some("it sends its data too slowly while others wait for buffers"),
            _ => None,
        }
    }

    /// Returns the memory for the next connection.
    pub(super) fn dissolve(self, ring: &mut Ring) -> ConnectionMemory {
        ring.remove_file(self.file, self.descriptor);
        ConnectionMemory { input: self.input.into_memory(), output: self.output.into_memory() }
    }
}

/// The parts of a connection.
struct Stream {
    descriptor: OwnedFd,
    file: RingFile,
    session: ServerSession,
    input: Input,
    output: Output,
}

/// The result of one step through the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Continue.
    Go,
    /// Nothing is staged any more.
    Empty,
    /// Blocked for now.
    Blocked(Blocked),
}
