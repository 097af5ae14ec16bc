//! A connection at rest, which one program hands over and the next takes over.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use hemi_engine::io::RequestError;
use hemi_nbd::server::{Command, Request, ServerSession};
use hemi_units::Instant;

use super::{Blocked, Connection, ConnectionMemory, RECEIVE, SEND, State, Stream};
use crate::export::ExportContext;
use crate::export::input::{Input, Intake};
use crate::export::listener::Listener;
use crate::export::output::Output;
use crate::export::request::{ClientRequest, Kind, PART_BYTES, Requests};
use crate::handover::state::ConnectionState;
use hemi_io::ring::RingFile;

impl Connection {
    /// Cancels the receive in the ring. Bytes that it receives are kept.
    pub(in crate::export) fn cancel_receive(&self, cx: &mut ExportContext<'_>) {
        if self.input.busy {
            cx.ring.cancel(self.tag(RECEIVE));
        }
    }

    /// Cancels the send in the ring. Bytes that it did not send are kept.
    pub(in crate::export) fn cancel_send(&self, cx: &mut ExportContext<'_>) {
        if self.output.busy {
            cx.ring.cancel(self.tag(SEND));
        }
    }

    /// Sends the rest of a message that was stopped for a pause.
    pub(in crate::export) fn go_on_sending(&mut self, cx: &mut ExportContext<'_>) {
        if self.state != State::Closed {
            let (file, tag) = (self.file, self.tag(SEND));
            self.output.go_on(cx, file, tag);
        }
    }

    /// Returns true if it has input that a pause keeps from being processed.
    pub(in crate::export) fn is_paused(&self) -> bool {
        self.blocked == Blocked::Paused
    }

    /// Returns true if anything is left to be sent.
    pub(in crate::export) fn has_output(&self) -> bool {
        self.state != State::Closed && !self.output.is_empty(self.tls.as_ref())
    }

    /// Returns true if a message is in the ring.
    pub(in crate::export) fn is_sending(&self) -> bool {
        self.output.busy
    }

    /// Returns true if no other program could continue it, because it uses TLS, whose keys stay
    /// here.
    pub(in crate::export) fn is_bound_here(&self) -> bool {
        self.state != State::Closed && self.tls.is_some()
    }

    /// Takes the connection apart for a successor. None of its entries may be in the ring and
    /// none of its requests in the engine. Returns `None` if it is closed, or if no successor
    /// could continue it.
    pub(in crate::export) fn hand_over(
        mut self,
        cx: &ExportContext<'_>,
        requests: &Requests,
    ) -> Option<(ConnectionState, OwnedFd)> {
        if self.state == State::Closed || self.tls.is_some() {
            return None;
        }
        let mut known = ConnectionState {
            descriptor: self.descriptor.as_raw_fd(),
            listener: self.listener.into(),
            number: self.number,
            served: self.served,
            finishing: self.state == State::Finishing,
            owed_loss: self.owed_loss,
            ..ConnectionState::default()
        };
        if !self.session.save(&mut known.session) {
            return None;
        }
        match self.input.intake {
            Intake::Idle => {}
            Intake::Admitting(request) => request.save(&mut known.request),
            // Nothing of the answer has been sent, so the successor reads it again.
            Intake::Reading { request, .. } => {
                requests.get(request)?.as_asked().save(&mut known.request);
            }
            Intake::Writing { request, next, part } => {
                let request = requests.get(request)?;
                request.as_asked().save(&mut known.request);
                known.failed = request.error.is_some();
                known.next = next;
                if let Some(part) = part {
                    part.append_to(cx, &mut known.payload);
                }
            }
        }
        self.input.append_unused(&mut known.input);
        self.output.append_unsent(cx, requests, &mut known.output);
        Some((known, self.descriptor))
    }

    /// Returns a predecessor's connection. The caller calls [`Connection::take_up`] once it has
    /// its slot.
    ///
    /// # Errors
    /// Returns the reason why it cannot continue, with its socket.
    pub(in crate::export) fn taken_on(
        owner: u16,
        listener: &Listener,
        descriptor: OwnedFd,
        file: RingFile,
        known: &ConnectionState,
        memory: ConnectionMemory,
        now: Instant,
    ) -> Result<Connection, (String, OwnedFd)> {
        let session = ServerSession::restore(Arc::clone(&listener.config), &known.session);
        let session = match session {
            Ok(session) => session,
            Err(error) => return Err((error.to_string(), descriptor)),
        };
        if let Err(reason) = check_request(known, &session) {
            return Err((reason.to_owned(), descriptor));
        }
        let (mut input, mut output) = (Input::new(memory.input), Output::new(memory.output, now));
        input.carry([known.payload.as_slice(), &known.input].concat());
        output.text().extend_from_slice(&known.output);
        let stream = Stream { descriptor, file, session, input, output };
        let mut connection = Connection::on(stream, owner, listener, known.number, now);
        connection.served = known.served;
        connection.owed_loss = known.owed_loss;
        Ok(connection)
    }

    /// Continues the work that the predecessor had begun.
    pub(in crate::export) fn take_up(
        &mut self,
        known: &ConnectionState,
        requests: &mut Requests,
        now: Instant,
    ) {
        if let Ok(request) = Request::restore(&known.request) {
            self.input.intake = match request.command {
                Command::Write if self.session.payload_left().is_some() => {
                    let mut write = ClientRequest::new(self.id, Kind::Write, &request, now);
                    write.error = known.failed.then_some(RequestError::Io);
                    self.in_flight += 1;
                    self.in_flight_bytes += request.length;
                    let id = requests.insert(write);
                    Intake::Writing { request: id, next: known.next, part: None }
                }
                _ => Intake::Admitting(request),
            };
        }
        if known.finishing {
            self.finish();
        }
    }
}

/// Checks that the session would admit a request that a predecessor had received, since the
/// configuration may have changed.
fn check_request(known: &ConnectionState, session: &ServerSession) -> Result<(), &'static str> {
    if known.request.is_empty() {
        let begun = known.next > 0 || !known.payload.is_empty();
        return if begun { Err("its state is damaged: data of no request") } else { Ok(()) };
    }
    let request = Request::restore(&known.request)
        .map_err(|_| "its state is damaged: an invalid NBD request")?;
    if !session.in_transmission() {
        return Err("its state is damaged: a request in the handshake");
    }
    let export = session.export();
    let end = request.offset.checked_add(request.length);
    let block = u64::from(export.block_size.minimum);
    let has_payload = matches!(request.command, Command::Read { .. } | Command::Write);
    let most = if has_payload { export.block_size.maximum_payload.into() } else { export.size };
    if end.is_none_or(|end| end > export.size)
        || request.length > most
        || !(request.offset | request.length).is_multiple_of(block)
    {
        return Err("its request is not allowed any more");
    }
    let is_write = request.command == Command::Write;
    let left = session.payload_left();
    let fits = match left {
        Some(left) => {
            let whole = known.next.is_multiple_of(PART_BYTES) && known.next < request.length;
            let part = request.length.saturating_sub(known.next).min(PART_BYTES);
            is_write
                && whole
                && left == request.length - known.next
                && known.payload.len() as u64 <= part
        }
        None => !is_write && known.next == 0 && known.payload.is_empty(),
    };
    if fits { Ok(()) } else { Err("its state is damaged: data that is not its request's") }
}
