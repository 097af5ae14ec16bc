//! The sending side of a connection. Answers go out in the order they are ready, gathered into
//! as few system calls as the socket allows.
//!
//! One message is in flight at a time. It is first tried without waiting. If the socket is
//! full, the rest waits in the kernel for space, and nobody else waits for it.

use std::collections::VecDeque;
use std::io;

use hemi_engine::identifiers::BufferAt;
use hemi_nbd::codec::Packet;
use hemi_units::{Instant, SECTOR_BYTES};

use super::ExportContext;
use super::pace::Sample;
use super::request::{Held, PART_BYTES, Requests};
use hemi_io::memory::{Mapping, Span};
use hemi_io::ring::{RingFile, Tag};
use hemi_io::ring_message::Gather;
use hemi_io::tls::Tls;

/// Size in bytes of the area for headers and handshake text of one message.
const AREA_BYTES: usize = 16 << 10;
/// Bytes of TLS records in one message.
const SECURE_BYTES: usize = 256 << 10;
/// Bytes of handshake answers, errors and block status that may wait to be sent before the
/// connection stops taking requests.
pub(super) const TEXT_BYTES_MAX: usize = 256 << 10;
/// Payload bytes of one message, bounded so that a large read does not delay the release of
/// small answers' buffers.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;

/// Longest message that a socket takes at once if its client is not slow, in bytes. It is below
/// the default send buffer of a unix socket (208 KiB).
const IMMEDIATE_BYTES_MAX: usize = 144 << 10;

/// An answer that is ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) packet: Packet,
    pub(super) held: Held,
    /// Payload in bytes.
    pub(super) length: u64,
    /// The request's charge in the connection's quota, in bytes.
    pub(super) weight: u64,
}

/// Memory for sending, which one connection after another uses.
#[derive(Debug)]
pub(super) struct OutputMemory {
    area: Mapping,
    /// Memory for TLS records, once a connection has used TLS.
    secure: Option<Mapping>,
    gather: Gather,
    answers: VecDeque<Answer>,
    sending: Vec<Answer>,
    text: Vec<u8>,
}

impl OutputMemory {
    pub(super) fn new() -> io::Result<OutputMemory> {
        Ok(OutputMemory {
            area: Mapping::new(AREA_BYTES, false)?,
            secure: None,
            gather: Gather::new(),
            answers: VecDeque::with_capacity(256),
            sending: Vec::with_capacity(hemi_io::ring_message::PIECES_MAX),
            text: Vec::with_capacity(4096),
        })
    }
}

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct Output {
    memory: OutputMemory,
    text_sent: usize,
    /// Bytes of text still to be sent in the clear before TLS begins.
    clear: usize,
    /// Bytes of the first answer, including its header, that TLS has taken already.
    encrypted: u64,
    /// True while a message is in the ring.
    pub(super) busy: bool,
    /// The time at which the socket last took bytes, or the message began.
    pub(super) progress: Instant,
    /// Payload bytes of the answers that are not in a message yet.
    waiting: u64,
    /// Bytes that the socket has taken since the connection began.
    taken: u64,
}

/// The resources that a sent message freed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Freed {
    pub(super) answers: u32,
    pub(super) weight: u64,
    /// Bytes of buffers.
    pub(super) payload: u64,
}

impl Output {
    pub(super) fn new(memory: OutputMemory, now: Instant) -> Output {
        Output {
            memory,
            text_sent: 0,
            clear: 0,
            encrypted: 0,
            busy: false,
            progress: now,
            waiting: 0,
            taken: 0,
        }
    }

    /// Returns the bytes that the client has taken and those it could take.
    pub(super) fn sample(&self) -> Sample {
        let message = if self.busy { self.memory.gather.length() as u64 } else { 0 };
        Sample { moved: self.taken, pending: self.waiting + message }
    }

    /// Returns the buffer for the session's own messages.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.memory.text
    }

    pub(super) fn text_waiting(&self) -> usize {
        self.memory.text.len() - self.text_sent
    }

    /// Returns true if nothing is left to be sent.
    pub(super) fn is_empty(&self, tls: Option<&Tls>) -> bool {
        !self.busy
            && self.memory.gather.is_empty()
            && self.memory.answers.is_empty()
            && self.text_waiting() == 0
            && !tls.is_some_and(Tls::wants_to_send)
    }

    /// Sends everything through TLS from here on, except the text that is already waiting.
    pub(super) fn secure(&mut self) -> io::Result<()> {
        if self.memory.secure.is_none() {
            self.memory.secure = Some(Mapping::new(SECURE_BYTES, false)?);
        }
        self.clear = self.text_waiting();
        Ok(())
    }

    pub(super) fn push(&mut self, answer: Answer) {
        self.waiting += answer.length;
        self.memory.answers.push_back(answer);
    }

    /// Submits a message of everything that is ready, unless one is in flight.
    pub(super) fn send(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &Requests,
        tls: Option<&mut Tls>,
        file: RingFile,
        tag: Tag,
    ) {
        if self.busy || self.is_empty(tls.as_deref()) {
            return;
        }
        self.memory.gather.clear();
        match tls {
            Some(tls) if self.clear == 0 => self.encrypt(cx, requests, tls),
            Some(_) => {
                let text = self.take_text(self.clear);
                self.clear -= text;
            }
            None => self.gather(cx, requests),
        }
        if self.memory.gather.is_empty() {
            return;
        }
        self.busy = true;
        self.progress = cx.now;
        // A long message may not fit into the socket at once, and then the rest has to follow.
        let immediate = self.memory.gather.length() <= IMMEDIATE_BYTES_MAX;
        cx.ring.send_gathered(file, &mut self.memory.gather, immediate, tag);
    }

    /// Prepends at most `most` bytes of queued text to the message. Returns their number.
    fn take_text(&mut self, most: usize) -> usize {
        let OutputMemory { area, gather, text, .. } = &mut self.memory;
        let used = (text.len() - self.text_sent).min(AREA_BYTES).min(most);
        if used > 0 {
            let span = area.span(0, used);
            span.copy_from(&text[self.text_sent..self.text_sent + used]);
            gather.push(span);
            self.text_taken(used);
        }
        used
    }

    fn text_taken(&mut self, count: usize) {
        self.text_sent += count;
        if self.text_sent == self.memory.text.len() {
            self.memory.text.clear();
            self.text_sent = 0;
        }
    }

    /// Fills a message. Text comes first, because it may be the rest of an answer that has been
    /// begun.
    fn gather(&mut self, cx: &ExportContext<'_>, requests: &Requests) {
        let mut used = self.take_text(AREA_BYTES);
        if self.text_waiting() > 0 {
            return;
        }
        let OutputMemory { area, gather, answers, sending, .. } = &mut self.memory;
        let mut bytes = 0;
        while let Some(answer) = answers.front() {
            let parts = answer.length.div_ceil(PART_BYTES) as usize;
            let header = answer.packet.as_bytes();
            let fits = gather.room() > parts
                && used + header.len() <= AREA_BYTES
                && (bytes == 0 || bytes + answer.length <= MESSAGE_BYTES_MAX);
            if !fits {
                return;
            }
            let span = area.span(used, header.len());
            span.copy_from(header);
            gather.push(span);
            used += header.len();
            for part in 0..parts {
                if let Some(span) = payload(cx, requests, answer, part) {
                    gather.push(span);
                }
            }
            bytes += answer.length;
            self.waiting -= answer.length;
            sending.push(*answer);
            answers.pop_front();
        }
    }

    /// Fills a message with TLS records of the answers that are ready.
    fn encrypt(&mut self, cx: &ExportContext<'_>, requests: &Requests, tls: &mut Tls) {
        let Some(secure) = &self.memory.secure else { return };
        let area = secure.whole();
        let mut used = 0;
        loop {
            let mut room = area.slice(used, SECURE_BYTES - used);
            // SAFETY: no message is in flight, and no other span of the area is in use.
            used += tls.outgoing(unsafe { room.bytes_mut() });
            if used == SECURE_BYTES || !self.feed(cx, requests, tls) {
                break;
            }
        }
        self.memory.gather.push(area.slice(0, used));
    }

    /// Passes the next piece of output to TLS. Returns false if there was none.
    fn feed(&mut self, cx: &ExportContext<'_>, requests: &Requests, tls: &mut Tls) -> bool {
        // Text may be the rest of an answer, but never comes in the middle of one of `answers`,
        // because those are begun only when no text waits.
        if self.encrypted == 0 && self.text_waiting() > 0 {
            let count = tls.encrypt(&self.memory.text[self.text_sent..]);
            self.text_taken(count);
            return count > 0;
        }
        let Some(answer) = self.memory.answers.front() else { return false };
        let header = answer.packet.as_bytes();
        let count = match self.encrypted.checked_sub(header.len() as u64) {
            None => tls.encrypt(&header[self.encrypted as usize..]),
            Some(at) if at < answer.length => {
                let part = (at / PART_BYTES) as usize;
                let Some(span) = payload(cx, requests, answer, part) else { return false };
                let from = (at % PART_BYTES) as usize;
                let rest = span.slice(from, span.length() - from);
                // SAFETY: the request has been answered, and nothing more is read into its
                // buffer.
                tls.encrypt(unsafe { rest.bytes() })
            }
            Some(_) => 0,
        };
        self.encrypted += count as u64;
        if self.encrypted == header.len() as u64 + answer.length {
            self.encrypted = 0;
            self.waiting -= answer.length;
            self.memory.sending.push(*answer);
            self.memory.answers.pop_front();
            return true;
        }
        count > 0
    }

    /// Handles the completion of a send of `count` bytes. Frees the message's resources if that
    /// was all.
    pub(super) fn sent(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        count: usize,
        file: RingFile,
        tag: Tag,
    ) -> Freed {
        self.progress = cx.now;
        self.taken += count as u64;
        self.memory.gather.advance(count);
        if !self.memory.gather.is_empty() {
            // The socket is full. The rest is sent when it has space.
            cx.ring.send_gathered(file, &mut self.memory.gather, false, tag);
            return Freed::default();
        }
        self.busy = false;
        self.free_sending(cx, requests)
    }

    /// Records that the socket took `count` bytes of a message, whose rest is not to be sent
    /// now.
    pub(super) fn sent_last(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
        count: usize,
    ) -> Freed {
        self.progress = cx.now;
        self.taken += count as u64;
        self.memory.gather.advance(count);
        self.busy = false;
        if self.memory.gather.is_empty() {
            return self.free_sending(cx, requests);
        }
        Freed::default()
    }

    /// Sends the rest of a message that was stopped.
    pub(super) fn go_on(&mut self, cx: &mut ExportContext<'_>, file: RingFile, tag: Tag) {
        if !self.busy && !self.memory.gather.is_empty() {
            self.busy = true;
            self.retry(cx, file, tag);
        }
    }

    /// Appends everything that has not been sent to `into`, as it would go over the wire. No
    /// message may be in flight, and the connection may not use TLS.
    pub(super) fn append_unsent(
        &self,
        cx: &ExportContext<'_>,
        requests: &Requests,
        into: &mut Vec<u8>,
    ) {
        debug_assert!(!self.busy);
        // SAFETY: the pieces are of this connection's own area and of answered requests'
        // buffers, which nobody writes to.
        unsafe { self.memory.gather.append_to(into) };
        into.extend_from_slice(&self.memory.text[self.text_sent..]);
        for answer in &self.memory.answers {
            into.extend_from_slice(answer.packet.as_bytes());
            for part in 0..answer.length.div_ceil(PART_BYTES) as usize {
                if let Some(span) = payload(cx, requests, answer, part) {
                    into.extend_from_slice(&span.to_vec());
                }
            }
        }
    }

    /// Sends the message again when the full socket has space.
    pub(super) fn retry(&mut self, cx: &mut ExportContext<'_>, file: RingFile, tag: Tag) {
        cx.ring.send_gathered(file, &mut self.memory.gather, false, tag);
    }

    fn free_sending(&mut self, cx: &mut ExportContext<'_>, requests: &mut Requests) -> Freed {
        let mut freed = Freed::default();
        for answer in self.memory.sending.drain(..) {
            requests.drop_held(cx.engine.buffers_mut(), answer.held);
            freed.answers += 1;
            freed.weight += answer.weight;
            freed.payload += answer.length;
        }
        freed
    }

    /// Drops everything. No message is in flight any more.
    pub(super) fn dissolve(
        &mut self,
        cx: &mut ExportContext<'_>,
        requests: &mut Requests,
    ) -> Freed {
        debug_assert!(!self.busy);
        self.memory.sending.extend(self.memory.answers.drain(..));
        self.memory.text.clear();
        (self.text_sent, self.clear, self.encrypted, self.waiting) = (0, 0, 0, 0);
        self.free_sending(cx, requests)
    }

    pub(super) fn into_memory(mut self) -> OutputMemory {
        self.memory.gather.clear();
        self.memory
    }
}

/// Returns the memory of a part of an answer's payload.
fn payload(
    cx: &ExportContext<'_>,
    requests: &Requests,
    answer: &Answer,
    part: usize,
) -> Option<Span> {
    let buffer = requests.buffer(answer.held, part)?;
    let length = (answer.length - part as u64 * PART_BYTES).min(PART_BYTES);
    let at = BufferAt { buffer, offset: 0 };
    Some(cx.engine.buffers().span(at, (length / SECTOR_BYTES) as u32))
}
