//! A remote export as a leg, through hemi's own NBD client over the ring.
//!
//! Any number of I/Os are in flight on one connection, or on several if the export says that
//! its connections share one cache (`CAN_MULTI_CONN`). The requests of one loop turn leave in
//! one gather send. The data of large reads is received straight into its buffer.
//!
//! # When the session is lost
//!
//! The engine gets [`LegEvent::Gone`] at once, and every connection of the leg is shut down.
//! The server may still be carrying out writes it has received, and nothing in the protocol
//! says when the last of them has landed. So a write in flight ends only after the
//! **quarantine**, which begins when the old sockets are closed. It then ends as
//! [`LegError::Gone`](hemi_engine::io::LegError::Gone). Reads, flushes and writes that were
//! never sent change nothing on the export. They end as soon as the kernel has let go of their
//! memory.
//!
//! Meanwhile the leg reconnects, with growing pauses between attempts. A new session is used,
//! and the engine gets [`LegEvent::Back`], once the export has proved to be fit and the same
//! leg by its size, its flags, its superblock and its stamps ([`identity`], [`stamps`]).

mod blocking;
mod connect;
mod identity;
mod link;
mod stamps;
mod work;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hemi_engine::io::{LegError, LegEvent};
use hemi_nbd::client::{ClientEvent, ClientSession, Command, Request, SubmitError};
use hemi_nbd::codec::{ErrorCode, TransmissionFlags};
use hemi_text::Plain;
use hemi_units::Instant;

pub use blocking::BlockingNbd;
pub use connect::NbdError;

use super::{LegContext, ResolvedIo};
use crate::memory::Span;
use crate::random;
use crate::ring::{Completion, Ring, SocketAddress};
use crate::slots::SlotTable;
use connect::Target;
use identity::{Identity, PIECES};
use link::{Connection, Entry, EntryKind, Link, State, Wires};
use work::{Features, Work};

/// Maximum number of connections of one leg.
pub const CONNECTIONS_MAX: u8 = 8;
/// Default time for which writes of a lost session may still land.
pub const QUARANTINE_DEFAULT: Duration = Duration::from_secs(10);
/// Pause before the first attempt to reconnect, in nanoseconds.
pub const RECONNECT_PAUSE_MIN: u64 = 100_000_000;
/// Longest pause between attempts, in nanoseconds. A session that lasted this long resets the
/// pause.
pub const RECONNECT_PAUSE_MAX: u64 = 5_000_000_000;
/// Longest time an attempt may take from connecting to the verified leg, in nanoseconds.
pub const RECONNECT_TIME_MAX: u64 = 10_000_000_000;
/// Longest wait for the last answers of a server that is shutting down, in nanoseconds.
pub const LEAVING_TIME_MAX: u64 = 10_000_000_000;
/// Longest wait for the answer to a request, in nanoseconds. After it the session is given up
/// and another opened, because a server that never answers would leave the leg frozen forever.
pub const REQUEST_TIME_MAX: u64 = 60_000_000_000;
/// Interval of the check for such requests, in nanoseconds.
const REQUEST_LOOK_INTERVAL: u64 = 1_000_000_000;
/// Maximum number of requests in flight on one connection.
pub const IN_FLIGHT_MAX: usize = 128;
/// Size in bytes of the buffer for received bytes that do not go straight to a read's buffer.
const STAGING_BYTES: usize = 128 << 10;
/// Space for the headers of one send, in bytes.
const HEADERS_BYTES: usize = 4096;
/// Bit that marks the tokens of reads of the pieces that identify a leg.
const PIECE_TOKEN: u64 = 1 << 63;

/// The options of a leg on an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Connections to use if the export can share them, 1 to [`CONNECTIONS_MAX`].
    pub connections: u8,
    /// Time after a lost session during which its writes may still land. If a server takes
    /// longer, reads may not return the data last written, which breaks promise P2.
    pub quarantine: Duration,
}

impl Default for NbdOptions {
    fn default() -> NbdOptions {
        NbdOptions { connections: 1, quarantine: QUARANTINE_DEFAULT }
    }
}

impl NbdOptions {
    fn bounded(self) -> NbdOptions {
        NbdOptions { connections: self.connections.clamp(1, CONNECTIONS_MAX), ..self }
    }
}

/// A link that has ended.
#[derive(Debug)]
enum Retired {
    /// Entries are still in flight.
    Ending(Link),
    /// The sockets are closed and the writes are in quarantine.
    Quarantined { number: u64, until: Instant },
}

/// The reason for which a session is lost.
struct Lost(String);

/// A leg on an NBD export, attached to the reactor.
#[derive(Debug)]
pub(super) struct NbdLeg {
    target: Target,
    work: Work,
    /// The link in use or being opened.
    link: Option<Link>,
    retired: Vec<Retired>,
    entries: SlotTable<Entry>,
    spare: VecDeque<Wires>,
    identity: Option<Identity>,
    /// Bytes the export must have.
    size: u64,
    block: u32,
    /// Number of connections of a link.
    connections: usize,
    links: u64,
    attempts: usize,
    pause: u64,
    /// The time of the next attempt to reconnect. [`Instant::NEVER`] while there is a link.
    reconnect: Instant,
    /// The time of the next check for requests without an answer.
    next_look: Instant,
    /// True once the connections are registered with the ring and receive.
    started: bool,
    /// The reason why the last session ended or did not begin. `None` while there is a session.
    no_session: Option<Arc<str>>,
}

impl NbdLeg {
    pub(super) fn new(opened: BlockingNbd) -> io::Result<NbdLeg> {
        let (size, block) = (opened.size(), opened.block());
        let (target, sessions) = opened.into_parts()?;
        let mut features = None;
        let mut connections = Vec::new();
        for opened in sessions {
            features = features.or(Some(Features::of(opened.session.export(), block)));
            let wires = Wires::new(target.is_secure())?;
            let mut connection = Connection::new(opened.socket, opened.session, wires);
            connection.tls = opened.tls;
            connections.push(connection);
        }
        let features = features.ok_or(io::ErrorKind::NotConnected)?;
        let writer = random::bytes()?;
        let count = connections.len();
        let state = State::Ready { since: Instant(0) };
        Ok(NbdLeg {
            target,
            work: Work::new(features, writer)?,
            link: Some(Link {
                number: 1,
                connections,
                state,
                entries: 0,
                verifying: 0,
                unread: false,
            }),
            retired: Vec::new(),
            entries: SlotTable::with_capacity(16),
            spare: VecDeque::new(),
            identity: None,
            connections: count,
            size,
            block,
            links: 1,
            attempts: 0,
            pause: RECONNECT_PAUSE_MIN,
            reconnect: Instant::NEVER,
            next_look: Instant(0),
            started: false,
            no_session: None,
        })
    }

    /// Starts to receive on the connections the leg was opened with, and reads its identity.
    fn start(&mut self, cx: &mut LegContext<'_>) {
        self.started = true;
        let Some(link) = &mut self.link else { return };
        link.state = State::Ready { since: cx.now };
        for index in 0..link.connections.len() {
            link.receive(cx, &mut self.entries, index);
        }
        if let Err(lost) = self.read_pieces(cx) {
            self.lose(cx, &lost);
        }
    }

    pub(super) fn submit(&mut self, cx: &mut LegContext<'_>, io: ResolvedIo) {
        if !self.started {
            self.start(cx);
        }
        if !self.link.as_ref().is_some_and(Link::is_ready) {
            // It was never sent, so it cannot land.
            return cx.done(io.id, Err(LegError::Gone));
        }
        self.work.begin(io);
        self.pump(cx);
    }

    /// Sends as many requests as the connections take.
    fn pump(&mut self, cx: &mut LegContext<'_>) {
        let Some(link) = self.link.as_mut().filter(|link| link.is_ready()) else { return };
        while let Some(index) = link.choose(cx.ring) {
            let Some(next) = self.work.next(link.number, cx.now) else { return };
            match link.connections[index].session.submit(next.token, next.request) {
                Ok(header) => link.send(cx, &mut self.entries, index, &header, next.payload),
                Err(SubmitError::Full | SubmitError::NotReady) => {
                    return self.work.unsend(cx, &next, None);
                }
                Err(error) => {
                    let leg = &self.target.description;
                    tracing::warn!(%leg, %error, "an I/O cannot be sent to the server");
                    self.work.unsend(cx, &next, Some(LegError::Other));
                }
            }
        }
    }

    /// Requests the pieces that identify the leg.
    fn read_pieces(&mut self, cx: &mut LegContext<'_>) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.connections[0].wires.pieces.zero();
        for (piece, (offset, length)) in PIECES.into_iter().enumerate() {
            let length = length as u64;
            if offset + length > self.size {
                continue;
            }
            let command = Command::Read { unfragmented: false };
            let request = Request { command, fua: false, offset, length };
            let token = PIECE_TOKEN | piece as u64;
            let submitted = link.connections[0].session.submit(token, request);
            let header = submitted.map_err(|error| Lost(error.to_string()))?;
            link.send(cx, &mut self.entries, 0, &header, None);
            link.verifying += 1;
        }
        Ok(())
    }

    pub(super) fn completion(&mut self, cx: &mut LegContext<'_>, completion: Completion) {
        let Some(entry) = self.entries.remove(completion.tag.id) else { return };
        let current = self.link.as_mut().filter(|link| link.number == entry.link);
        let Some(link) = current else { return self.retired_entry(cx, entry.link) };
        link.entries -= 1;
        if let Err(lost) = self.entry(cx, entry, completion) {
            self.lose(cx, &lost);
        }
        self.pump(cx);
    }

    /// Handles the completion of an entry of the current link.
    fn entry(
        &mut self,
        cx: &mut LegContext<'_>,
        entry: Entry,
        completion: Completion,
    ) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let index = entry.connection;
        let outcome = completion.outcome();
        match (entry.kind, outcome) {
            (EntryKind::Connect, outcome) => {
                link.connected(index);
                outcome.map_err(|errno| Lost(format!("no connection: {errno}")))?;
                link.receive(cx, &mut self.entries, index);
                Ok(())
            }
            (EntryKind::Send, Ok(count)) => {
                link.sent(cx, &mut self.entries, index, count as usize);
                Ok(())
            }
            (EntryKind::Send, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => {
                link.sent(cx, &mut self.entries, index, 0);
                Ok(())
            }
            (EntryKind::Receive, Ok(0)) => Err(Lost("the server closed the connection".into())),
            (EntryKind::Receive, Ok(count)) => self.received(cx, index, count as usize),
            (EntryKind::Receive, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)) => {
                link.receive(cx, &mut self.entries, index);
                Ok(())
            }
            (_, Err(errno)) => Err(Lost(format!("the connection failed: {errno}"))),
        }
    }

    /// Handles bytes that have arrived on a connection.
    fn received(
        &mut self,
        cx: &mut LegContext<'_>,
        index: usize,
        count: usize,
    ) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let connection = &mut link.connections[index];
        if connection.tls.is_some() {
            self.decrypt(cx, index, count)?;
        } else {
            let direct = connection.payload_arrived(count);
            let staged = connection.wires.staging.slice(0, count - direct);
            self.parse(cx, index, staged)?;
        }
        if let Some(link) = &mut self.link {
            link.send_output(cx, &mut self.entries, index);
            link.receive(cx, &mut self.entries, index);
        }
        Ok(())
    }

    /// Decrypts and parses the first `count` bytes of a connection's staging buffer, which are
    /// TLS.
    fn decrypt(&mut self, cx: &mut LegContext<'_>, index: usize, count: usize) -> Result<(), Lost> {
        let mut used = 0;
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let connection = &mut link.connections[index];
            let Connection { tls: Some(tls), wires, .. } = connection else { return Ok(()) };
            let Some(secure) = wires.secure else { return Ok(()) };
            let rest = wires.staging.slice(used, count - used);
            // SAFETY: received bytes are used up before the next receive gets this area.
            let taken = tls.take(unsafe { rest.bytes() });
            let taken =
                taken.map_err(|error| Lost(NbdError::Tls(error.to_string()).to_string()))?;
            used += taken;
            if tls.is_newly_up() {
                connection.session.tls_established(&mut connection.output);
            }
            let mut plain = secure.plain;
            // SAFETY: the kernel never has this area, and no other span of it is in use.
            let arrived = tls.plaintext(unsafe { plain.bytes_mut() });
            if arrived == 0 && taken == 0 {
                return Ok(());
            }
            let plain = plain.slice(0, arrived);
            let direct = connection.payload_decrypted(plain);
            self.parse(cx, index, plain.slice(direct, arrived - direct))?;
        }
    }

    /// Parses bytes that have arrived on a connection.
    fn parse(&mut self, cx: &mut LegContext<'_>, index: usize, staging: Span) -> Result<(), Lost> {
        let staged = staging.length();
        let mut at = 0;
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let connection = &mut link.connections[index];
            if connection.payload.is_some() {
                return Ok(());
            }
            let input = staging.slice(at, staged - at);
            // SAFETY: received bytes are used up before the next receive gets this area.
            let input = unsafe { input.bytes() };
            let advance = connection.session.advance(input, &mut connection.output);
            let advance = advance.map_err(|error| Lost(error.to_string()))?;
            at += advance.consumed;
            match advance.event {
                ClientEvent::NeedMore => return Ok(()),
                ClientEvent::Data { token, at: place, length } => {
                    let room = room(&self.work, connection, token, place, length)?;
                    let taken = (staged - at).min(room.length());
                    room.copy_from_span(staging.slice(at, taken));
                    at += taken;
                    // At most `length`.
                    connection.session.payload_taken(taken as u32);
                    if taken < room.length() {
                        connection.payload = Some(room.slice(taken, room.length() - taken));
                    }
                }
                ClientEvent::Hole { token, at: place, length } => {
                    room(&self.work, connection, token, place, length)?.zero();
                }
                ClientEvent::Done { token, result } if token & PIECE_TOKEN != 0 => {
                    self.piece_read(cx, result.is_ok())?;
                }
                ClientEvent::Done { token, result } => {
                    let leaving = result == Err(ErrorCode::Shutdown);
                    if let Err(code) = result {
                        let leg = &self.target.description;
                        let said = connection.session.error_message();
                        tracing::debug!(%leg, %code, said, "the server fails a request");
                    }
                    if let Some(newer) = self.work.answered(cx, token, result) {
                        Identity::learn(&mut self.identity, newer);
                    }
                    self.leave(cx, leaving)?;
                }
                ClientEvent::Ready => self.shaken(cx)?,
                ClientEvent::Send => {}
                ClientEvent::StartTls if at == staged && self.target.is_secure() => {
                    // From here on both sides send TLS.
                    let tls = self.target.begin_tls();
                    connection.tls = Some(tls.map_err(|error| Lost(error.to_string()))?);
                    return Ok(());
                }
                ClientEvent::StartTls
                | ClientEvent::Extent { .. }
                | ClientEvent::Payload { .. } => {
                    return Err(Lost("the server sends data that nobody requested".into()));
                }
            }
        }
    }

    /// Handles the end of a connection's handshake. Once all connections have finished theirs,
    /// it checks the export and requests the superblock.
    fn shaken(&mut self, cx: &mut LegContext<'_>) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if !link.connections.iter().all(|connection| connection.session.is_ready()) {
            return Ok(());
        }
        let before = self.size;
        let alone = link.connections.len() == 1;
        for connection in &link.connections {
            let export = connection.session.export();
            if !alone && !export.flags.contains(TransmissionFlags::CAN_MULTI_CONN) {
                self.connections = 1;
                return Err(Lost(
                    "the export does not share its cache between connections \
                                 any more; trying with one connection"
                        .into(),
                ));
            }
            connect::check(export, self.target.purpose).map_err(|error| Lost(error.to_string()))?;
            if export.size < before {
                let error = NbdError::Shrunk { now: export.size, before };
                return Err(Lost(error.to_string()));
            }
            if export.block_size.minimum > self.block {
                return Err(Lost(format!(
                    "the export's minimum block is {} bytes now, it was {}",
                    export.block_size.minimum, self.block
                )));
            }
        }
        self.work.features = Features::of(link.connections[0].session.export(), self.block);
        self.read_pieces(cx)?;
        self.usable(cx)
    }

    /// Handles the answer to the read of a piece that identifies the leg.
    fn piece_read(&mut self, cx: &mut LegContext<'_>, ok: bool) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        link.verifying -= 1;
        link.unread |= !ok;
        if link.unread && !link.is_ready() {
            return Err(Lost("its superblock or its stamps cannot be read".into()));
        }
        if link.verifying > 0 {
            return Ok(());
        }
        let pieces = link.connections[0].wires.pieces;
        let found = Identity::read(pieces);
        let stamp = found.and_then(|found| found.stamp(pieces));
        if link.is_ready() {
            // This is the first link, so the identity found becomes the leg's.
            if let Some(found) = found {
                Identity::learn(&mut self.identity, found);
            }
            // A stamp that cannot be read leaves no number above which the next could be
            // written.
            let volume = found.filter(|_| !link.unread).map(|found| found.volume());
            self.work.identified(cx, volume, stamp);
            return Ok(());
        }
        let follows = Identity::verify(self.identity, found)
            .and_then(|()| Identity::verify_stamp(self.work.progress(), stamp));
        follows.map_err(|error| Lost(error.to_string()))?;
        self.work.identified(cx, found.map(|found| found.volume()), stamp);
        self.usable(cx)
    }

    /// Takes an opened link into use once it is verified.
    fn usable(&mut self, cx: &mut LegContext<'_>) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.verifying == 0 && !link.is_ready() {
            link.state = State::Ready { since: cx.now };
            self.no_session = None;
            tracing::info!(leg = %self.target.description, "the session is back");
            cx.event(LegEvent::Back);
        }
        Ok(())
    }

    /// Handles an answer, which may have been that the server is shutting down (`leaving`). No
    /// more requests are then sent, and once all are answered, nothing is left that could land.
    fn leave(&mut self, cx: &mut LegContext<'_>, leaving: bool) -> Result<(), Lost> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if leaving && link.is_ready() {
            tracing::warn!(leg = %self.target.description, "the server is shutting down");
            link.state = State::Leaving { deadline: cx.now + LEAVING_TIME_MAX };
            self.no_session = Some("the server is shutting down".into());
            cx.event(LegEvent::Gone { removed: false });
            self.work.stop(cx);
        }
        match link.state {
            State::Leaving { .. } if link.in_flight() == 0 => {
                Err(Lost("the server has shut down".into()))
            }
            _ => Ok(()),
        }
    }

    /// Ends the current link.
    fn lose(&mut self, cx: &mut LegContext<'_>, lost: &Lost) {
        let Some(mut link) = self.link.take() else { return };
        let (leg, reason) = (&self.target.description, &lost.0);
        match link.state {
            State::Ready { since } => {
                tracing::warn!(%leg, reason, "the session is lost; reconnecting");
                if cx.now.since(since) >= RECONNECT_PAUSE_MAX {
                    self.pause = RECONNECT_PAUSE_MIN;
                }
                cx.event(LegEvent::Gone { removed: false });
            }
            State::Opening { .. } => tracing::warn!(%leg, reason, "no session yet"),
            State::Leaving { .. } => tracing::warn!(%leg, reason, "the session is over"),
        }
        self.no_session = Some(Plain(reason).to_string().into());
        self.reconnect = cx.now + self.pause;
        self.pause = (self.pause * 2).min(RECONNECT_PAUSE_MAX);
        link.shut(cx);
        self.work.lose(cx, link.number);
        self.retire(cx, link);
    }

    /// Handles the completion of an entry of a link that has ended.
    fn retired_entry(&mut self, cx: &mut LegContext<'_>, number: u64) {
        let ending = self
            .retired
            .iter()
            .position(|retired| matches!(retired, Retired::Ending(link) if link.number == number));
        let Some(index) = ending else { return };
        if let Retired::Ending(mut link) = self.retired.swap_remove(index) {
            link.entries -= 1;
            self.retire(cx, link);
        }
    }

    fn retire(&mut self, cx: &mut LegContext<'_>, link: Link) {
        if link.entries > 0 {
            return self.retired.push(Retired::Ending(link));
        }
        let number = link.number;
        link.close(cx.ring, &mut self.spare);
        if self.work.release(cx, number) {
            let quarantine = self.target.options.quarantine.as_nanos();
            let until = cx.now + u64::try_from(quarantine).unwrap_or(u64::MAX);
            self.retired.push(Retired::Quarantined { number, until });
        }
    }

    /// Returns the reason why there is no session, in plain text, or `None` if there is one.
    pub(super) fn no_session(&self) -> Option<&Arc<str>> {
        self.no_session.as_ref()
    }

    pub(super) fn deadline(&self) -> Instant {
        if !self.started {
            return Instant(0);
        }
        let opening = match self.link.as_ref().map(|link| link.state) {
            Some(State::Opening { deadline } | State::Leaving { deadline }) => deadline,
            Some(State::Ready { .. }) if !self.work.is_empty() => self.next_look,
            Some(State::Ready { .. }) | None => Instant::NEVER,
        };
        let quarantined = self.retired.iter().filter_map(|retired| match retired {
            Retired::Quarantined { until, .. } => Some(*until),
            Retired::Ending(_) => None,
        });
        quarantined.fold(opening.min(self.reconnect), Instant::min)
    }

    pub(super) fn tick(&mut self, cx: &mut LegContext<'_>) {
        if !self.started {
            return self.start(cx);
        }
        let work = &mut self.work;
        self.retired.retain(|retired| match retired {
            Retired::Quarantined { number, until } if *until <= cx.now => {
                work.fence(cx, *number);
                false
            }
            _ => true,
        });
        match self.link.as_ref().map(|link| link.state) {
            Some(State::Opening { deadline }) if deadline <= cx.now => {
                let seconds = RECONNECT_TIME_MAX / 1_000_000_000;
                self.lose(cx, &Lost(format!("the server did not answer for {seconds} s")));
            }
            Some(State::Leaving { deadline }) if deadline <= cx.now => {
                self.lose(cx, &Lost("the server shuts down without an answer to all".into()));
            }
            Some(State::Ready { .. }) if self.next_look <= cx.now => self.look(cx),
            _ => {}
        }
        if self.reconnect <= cx.now {
            self.reconnect = Instant::NEVER;
            if let Err(error) = self.open(cx) {
                let leg = &self.target.description;
                tracing::warn!(%leg, %error, "no socket to reconnect with");
                self.no_session = Some(format!("no socket to reconnect with: {error}").into());
                self.reconnect = cx.now + self.pause;
            }
        }
    }

    /// Checks for requests without an answer, and gives up a session that has one.
    fn look(&mut self, cx: &mut LegContext<'_>) {
        self.next_look = cx.now + REQUEST_LOOK_INTERVAL;
        let since = Instant(cx.now.0.saturating_sub(REQUEST_TIME_MAX));
        if self.link.as_ref().is_some_and(|link| self.work.is_stuck(link.number, since)) {
            let seconds = REQUEST_TIME_MAX / 1_000_000_000;
            self.lose(cx, &Lost(format!("the server did not answer a request for {seconds} s")));
        }
    }

    /// Begins to open a new link.
    fn open(&mut self, cx: &mut LegContext<'_>) -> io::Result<()> {
        self.attempts += 1;
        self.links += 1;
        let deadline = cx.now + RECONNECT_TIME_MAX;
        let mut link = Link {
            number: self.links,
            connections: Vec::new(),
            state: State::Opening { deadline },
            entries: 0,
            verifying: 0,
            unread: false,
        };
        let mut addresses = Vec::new();
        for _ in 0..self.connections {
            match self.connection() {
                Ok((connection, address)) => {
                    link.connections.push(connection);
                    addresses.push(address);
                }
                Err(error) => {
                    link.close(cx.ring, &mut self.spare);
                    return Err(error);
                }
            }
        }
        for (index, address) in addresses.into_iter().enumerate() {
            link.connect(cx, &mut self.entries, index, address);
        }
        self.link = Some(link);
        Ok(())
    }

    /// A connection still to be connected, and to where.
    fn connection(&mut self) -> io::Result<(Connection, &'static SocketAddress)> {
        let wires =
            self.spare.pop_front().map_or_else(|| Wires::new(self.target.is_secure()), Ok)?;
        let (socket, address) = match self.target.socket(self.attempts) {
            Ok(socket) => socket,
            Err(error) => {
                self.spare.push_back(wires);
                return Err(error);
            }
        };
        let session = ClientSession::new(self.target.session_config());
        Ok((Connection::new(socket, session, wires), address))
    }

    pub(super) fn detach(self, ring: &mut Ring) {
        if !self.work.is_empty() {
            tracing::warn!(leg = %self.target.description, "let go of with I/O in flight");
        }
        if let Some(link) = self.link {
            link.abandon(ring);
        }
        for retired in self.retired {
            if let Retired::Ending(link) = retired {
                link.abandon(ring);
            }
        }
    }
}

/// Returns the memory for data announced on a connection.
fn room(
    work: &Work,
    connection: &Connection,
    token: u64,
    at: u32,
    length: u32,
) -> Result<crate::memory::Span, Lost> {
    if token & PIECE_TOKEN != 0 {
        // The session has checked that the data lies within the piece.
        let start = identity::place((token & !PIECE_TOKEN) as usize) + at as usize;
        return Ok(connection.wires.pieces.slice(start, length as usize));
    }
    work.room(token, at, length).ok_or_else(|| Lost("data for no request of ours".into()))
}

#[cfg(test)]
mod tests;
