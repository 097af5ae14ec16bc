//! A link: one life of the connections to a server, from connecting to the last completion.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use hemi_nbd::client::ClientSession;
use hemi_units::Instant;
use rustix::net::Shutdown;

use super::identity::PIECES_BYTES;
use super::{HEADERS_BYTES, IN_FLIGHT_MAX, STAGING_BYTES};
use crate::leg::LegContext;
use crate::memory::{Mapping, Span};
use crate::ring::{Ring, RingFile};
use crate::ring_message::Gather;
use crate::slots::{SlotId, SlotTable};
use crate::tls::Tls;

/// Number of pieces that a request takes in a send: its header and its payload.
const REQUEST_PIECES: usize = 2;
/// Longest header of a request, in bytes.
const REQUEST_HEADER_BYTES: usize = 32;

/// Maximum number of bytes decrypted at once.
const PLAIN_BYTES: usize = 64 << 10;
/// Maximum number of bytes of TLS records sent at once. No further request is taken while that
/// many wait to be sent.
const RECORDS_BYTES: usize = 256 << 10;

/// Space for a goodbye as a TLS record, in bytes.
const GOODBYE_BYTES: usize = 256;

/// The kinds of ring entries of the leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Connect,
    Send,
    Receive,
}

/// A ring entry of the leg.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The link's [`Link::number`].
    pub(super) link: u64,
    /// The index in [`Link::connections`].
    pub(super) connection: usize,
    pub(super) kind: EntryKind,
}

/// Memory of a connection that the kernel reads and writes. It is never freed and passes from
/// link to link once no entry uses it.
#[derive(Debug)]
pub(super) struct Wires {
    /// Received bytes that belong to no read's buffer.
    pub(super) staging: Span,
    /// Headers being sent.
    headers: Span,
    /// The pieces that identify the leg.
    pub(super) pieces: Span,
    send: Gather,
    receive: Gather,
    /// Only for connections through TLS.
    pub(super) secure: Option<SecureWires>,
}

/// Memory of a connection through TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecureWires {
    /// Decrypted bytes.
    pub(super) plain: Span,
    /// TLS records being sent.
    records: Span,
}

impl SecureWires {
    fn new() -> io::Result<SecureWires> {
        let mapping = Mapping::new(PLAIN_BYTES + RECORDS_BYTES, false)?;
        Ok(SecureWires {
            plain: mapping.span(0, PLAIN_BYTES),
            records: mapping.span(PLAIN_BYTES, RECORDS_BYTES),
        })
    }
}

impl Wires {
    pub(super) fn new(secure: bool) -> io::Result<Wires> {
        let mapping = Mapping::new(STAGING_BYTES + HEADERS_BYTES + PIECES_BYTES, false)?;
        Ok(Wires {
            staging: mapping.span(0, STAGING_BYTES),
            headers: mapping.span(STAGING_BYTES, HEADERS_BYTES),
            pieces: mapping.span(STAGING_BYTES + HEADERS_BYTES, PIECES_BYTES),
            send: Gather::new(),
            receive: Gather::new(),
            secure: if secure { Some(SecureWires::new()?) } else { None },
        })
    }
}

/// The state of a connection's send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Idle,
    /// Queued in the ring at this count of submissions. More can be added until the count
    /// changes.
    Queued {
        submissions: u64,
    },
    /// Handed to the kernel.
    Handed,
}

/// One connection to the server.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    file: RingFile,
    pub(super) session: ClientSession,
    /// Set once TLS has begun.
    pub(super) tls: Option<Tls>,
    pub(super) wires: Wires,
    sending: Sending,
    /// Bytes of `wires.headers` in use by the send.
    headers_used: usize,
    /// Handshake messages not yet sent.
    pub(super) output: Vec<u8>,
    /// The rest of a read's buffer, which the next bytes belong to.
    pub(super) payload: Option<Span>,
    connecting: Option<SlotId>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, session: ClientSession, wires: Wires) -> Connection {
        Connection {
            file: RingFile::of(&socket),
            socket,
            session,
            tls: None,
            wires,
            sending: Sending::Idle,
            headers_used: 0,
            output: Vec::new(),
            payload: None,
            connecting: None,
        }
    }

    /// Returns true if a request can be added to the next send.
    pub(super) fn has_room(&self, ring: &Ring) -> bool {
        if let Some(tls) = &self.tls {
            return self.session.in_flight() < IN_FLIGHT_MAX && tls.queued() < RECORDS_BYTES;
        }
        let open = match self.sending {
            Sending::Idle => return self.session.in_flight() < IN_FLIGHT_MAX,
            Sending::Queued { submissions } => submissions == ring.submissions(),
            Sending::Handed => false,
        };
        open && self.session.in_flight() < IN_FLIGHT_MAX
            && self.wires.send.room() >= REQUEST_PIECES
            && self.headers_used + REQUEST_HEADER_BYTES <= HEADERS_BYTES
    }

    /// Records that `count` bytes have arrived. Returns the number of those that went into a
    /// read's buffer, which come first.
    pub(super) fn payload_arrived(&mut self, count: usize) -> usize {
        let Some(rest) = self.payload.take() else { return 0 };
        let direct = count.min(rest.length());
        // A read's reply is shorter than 32 bits.
        self.session.payload_taken(direct as u32);
        if direct < rest.length() {
            self.payload = Some(rest.slice(direct, rest.length() - direct));
        }
        direct
    }

    /// Copies decrypted bytes into a read's buffer, and otherwise does the same as
    /// [`Connection::payload_arrived`].
    pub(super) fn payload_decrypted(&mut self, plain: Span) -> usize {
        if let Some(rest) = self.payload {
            rest.copy_from_span(plain.slice(0, plain.length().min(rest.length())));
        }
        self.payload_arrived(plain.length())
    }

    fn is_idle(&self) -> bool {
        self.sending == Sending::Idle
    }

    /// Adds bytes and a payload to the next send. The caller has checked
    /// [`Connection::has_room`], or nothing is being sent and the bytes fit.
    fn append(&mut self, bytes: &[u8], payload: Option<Span>) {
        if self.is_idle() {
            self.wires.send.clear();
            self.headers_used = 0;
        }
        let header = self.wires.headers.slice(self.headers_used, bytes.len());
        header.copy_from(bytes);
        self.headers_used += bytes.len();
        self.wires.send.push(header);
        if let Some(payload) = payload {
            self.wires.send.push(payload);
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Connecting, shaking hands or verifying. Given up at the deadline.
    Opening { deadline: Instant },
    /// In use.
    Ready { since: Instant },
    /// The server is shutting down and still answers requests in flight. Given up at the
    /// deadline.
    Leaving { deadline: Instant },
}

/// The connections to a server during one life.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) connections: Vec<Connection>,
    pub(super) state: State,
    /// Ring entries in flight.
    pub(super) entries: usize,
    /// Reads of the pieces that identify the leg that are not yet answered.
    pub(super) verifying: u8,
    /// True if one of these pieces could not be read.
    pub(super) unread: bool,
}

impl Link {
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// Returns the number of requests in flight on all connections.
    pub(super) fn in_flight(&self) -> usize {
        self.connections.iter().map(|connection| connection.session.in_flight()).sum()
    }

    fn tag(
        &mut self,
        cx: &LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        connection: usize,
        kind: EntryKind,
    ) -> (SlotId, crate::ring::Tag) {
        self.entries += 1;
        let id = entries.insert(Entry { link: self.number, connection, kind });
        (id, cx.tag(id))
    }

    /// Begins to connect.
    pub(super) fn connect(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
        address: &'static crate::ring::SocketAddress,
    ) {
        let (id, tag) = self.tag(cx, entries, index, EntryKind::Connect);
        self.connections[index].connecting = Some(id);
        cx.ring.connect(self.connections[index].file, address, tag);
    }

    /// Handles the completion of a connect.
    pub(super) fn connected(&mut self, index: usize) {
        self.connections[index].connecting = None;
    }

    /// Queues a receive: into a read's buffer if the next bytes belong to one, and after it (or
    /// only) into the staging buffer.
    pub(super) fn receive(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
    ) {
        let (_, tag) = self.tag(cx, entries, index, EntryKind::Receive);
        let connection = &mut self.connections[index];
        match connection.payload {
            Some(rest) if connection.tls.is_none() => {
                connection.wires.receive.clear();
                connection.wires.receive.push(rest);
                connection.wires.receive.push(connection.wires.staging);
                cx.ring.receive_gathered(connection.file, &mut connection.wires.receive, tag);
            }
            _ => cx.ring.receive(connection.file, connection.wires.staging, tag),
        }
    }

    /// Returns the connection for the next request: of those with space, the one with the
    /// fewest requests in flight.
    pub(super) fn choose(&self, ring: &Ring) -> Option<usize> {
        let usable = self.connections.iter().enumerate().filter(|(_, each)| each.has_room(ring));
        usable.min_by_key(|(_, each)| each.session.in_flight()).map(|(index, _)| index)
    }

    /// Sends a header and its payload together with everything else of this turn.
    pub(super) fn send(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
        header: &[u8],
        payload: Option<Span>,
    ) {
        if let Some(tls) = &mut self.connections[index].tls {
            tls.encrypt_all(header);
            if let Some(payload) = payload {
                // SAFETY: bytes being written do not change until the write has ended.
                tls.encrypt_all(unsafe { payload.bytes() });
            }
            return self.send_records(cx, entries, index);
        }
        let idle = self.connections[index].is_idle();
        self.connections[index].append(header, payload);
        if idle {
            self.queue_send(cx, entries, index, true);
        }
    }

    /// Sends the handshake's output. If a send is already in flight, its completion does this.
    pub(super) fn send_output(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
    ) {
        let connection = &mut self.connections[index];
        if let Some(tls) = &mut connection.tls {
            tls.encrypt_all(&connection.output);
            connection.output.clear();
            return self.send_records(cx, entries, index);
        }
        if connection.output.is_empty() || !connection.is_idle() {
            return;
        }
        let mut output = std::mem::take(&mut connection.output);
        let rest = output.split_off(output.len().min(HEADERS_BYTES));
        connection.append(&output, None);
        connection.output = rest;
        self.queue_send(cx, entries, index, true);
    }

    /// Sends the records that TLS has ready. If a send is already in flight, its completion
    /// does this.
    fn send_records(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
    ) {
        let connection = &mut self.connections[index];
        if !connection.is_idle() {
            return;
        }
        let (Some(tls), Some(wires)) = (&mut connection.tls, connection.wires.secure) else {
            return;
        };
        let mut records = wires.records;
        // SAFETY: the connection is idle, so no send uses this area.
        let count = tls.outgoing(unsafe { records.bytes_mut() });
        if count > 0 {
            connection.wires.send.clear();
            connection.wires.send.push(records.slice(0, count));
            self.queue_send(cx, entries, index, false);
        }
    }

    fn queue_send(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
        immediate: bool,
    ) {
        let (_, tag) = self.tag(cx, entries, index, EntryKind::Send);
        let connection = &mut self.connections[index];
        cx.ring.send_gathered(connection.file, &mut connection.wires.send, immediate, tag);
        connection.sending = if immediate {
            Sending::Queued { submissions: cx.ring.submissions() }
        } else {
            Sending::Handed
        };
    }

    /// Handles the completion of a send of `count` bytes. The rest, if any, is queued again.
    pub(super) fn sent(
        &mut self,
        cx: &mut LegContext<'_>,
        entries: &mut SlotTable<Entry>,
        index: usize,
        count: usize,
    ) {
        let connection = &mut self.connections[index];
        connection.wires.send.advance(count);
        if connection.wires.send.is_empty() {
            connection.sending = Sending::Idle;
            self.send_output(cx, entries, index);
        } else {
            self.queue_send(cx, entries, index, false);
        }
    }

    /// Ends the life of the connections. Every entry completes soon after.
    pub(super) fn shut(&mut self, cx: &mut LegContext<'_>) {
        for connection in &self.connections {
            // A socket that was never connected returns an error, and its connect is cancelled.
            let _ = rustix::net::shutdown(&connection.socket, Shutdown::Both);
            if let Some(id) = connection.connecting {
                let tag = cx.tag(id);
                cx.ring.cancel(tag);
            }
        }
    }

    /// Closes the sockets once no entry is in flight. The wires can then be used again.
    pub(super) fn close(self, ring: &mut Ring, spare: &mut VecDeque<Wires>) {
        for connection in self.connections {
            ring.remove_file(connection.file, connection.socket);
            spare.push_back(connection.wires);
        }
    }

    /// Says goodbye and lets go of the sockets at once, even if entries are in flight.
    pub(super) fn abandon(self, ring: &mut Ring) {
        for mut connection in self.connections {
            // A half-sent request must not be followed by anything but its rest.
            if connection.is_idle() && connection.session.is_ready() {
                let goodbye = connection.session.disconnect();
                let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
                let mut records = [0; GOODBYE_BYTES];
                let bytes = match &mut connection.tls {
                    Some(tls) => {
                        tls.encrypt_all(&goodbye);
                        let count = tls.outgoing(&mut records);
                        &records[..count]
                    }
                    None => &goodbye[..],
                };
                let _ = rustix::net::send(&connection.socket, bytes, flags);
            }
            let _ = rustix::net::shutdown(&connection.socket, Shutdown::Both);
            ring.remove_file(connection.file, connection.socket);
        }
    }
}
