//! The blocking view of an NBD export, for create, inspect and recovery.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hemi_nbd::client::{ClientEvent, ClientSession, Command, Request};
use hemi_nbd::codec::TransmissionFlags;
use hemi_units::SECTOR_BYTES;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::NbdOptions;
use super::connect::{BLOCKING_TIMEOUT, NbdError, Target, check, set_timeouts};
use crate::config::legs::{LegSpec, LegTls};
use crate::leg::open::Purpose;
use crate::tls::Tls;

/// Maximum number of bytes of one blocking read or write.
const TRANSFER_BYTES_MAX: u64 = 1 << 20;
/// Bytes received at a time.
const STAGING_BYTES: usize = 64 << 10;

/// A connected session.
#[derive(Debug)]
pub(super) struct BlockingSession {
    pub(super) socket: OwnedFd,
    pub(super) session: ClientSession,
    pub(super) tls: Option<Tls>,
    /// Received bytes, decrypted.
    staging: Vec<u8>,
}

impl BlockingSession {
    fn open(target: &Target) -> Result<BlockingSession, NbdError> {
        let socket = target.connect_blocking()?;
        set_timeouts(&socket, Some(BLOCKING_TIMEOUT)).map_err(NbdError::Socket)?;
        let session = ClientSession::new(target.session_config());
        let mut opened = BlockingSession { socket, session, tls: None, staging: Vec::new() };
        let mut output = Vec::new();
        while !opened.session.is_ready() {
            let result = opened.advance(&mut output, &mut |_, _| {});
            // After a refusal the output is a goodbye, which is sent as a courtesy.
            let sent = opened.send(&output);
            output.clear();
            let event = result?;
            sent?;
            if event == ClientEvent::StartTls {
                opened.secure(target)?;
                opened.session.tls_established(&mut output);
            }
        }
        check(opened.session.export(), target.purpose)?;
        Ok(opened)
    }

    /// Begins TLS and continues until it is established.
    fn secure(&mut self, target: &Target) -> Result<(), NbdError> {
        if !self.staging.is_empty() {
            // Somebody in between sent them, to have them taken for bytes that came through
            // TLS.
            return Err(NbdError::Tls("bytes in the clear after it was agreed on".into()));
        }
        self.tls = Some(target.begin_tls()?);
        loop {
            self.send_secured()?;
            if self.tls.as_mut().is_none_or(Tls::is_newly_up) {
                return Ok(());
            }
            self.receive_some()?;
        }
    }

    /// Handles one event, receiving until there is one. Passes data to `take`, with its place
    /// in the request.
    fn advance(
        &mut self,
        output: &mut Vec<u8>,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<ClientEvent, NbdError> {
        let mut announced = (0, 0);
        loop {
            let advance = self.session.advance(&self.staging, output)?;
            self.staging.drain(..advance.consumed);
            match advance.event {
                ClientEvent::NeedMore => {
                    if !output.is_empty() {
                        return Ok(ClientEvent::Send);
                    }
                    self.receive()?;
                }
                ClientEvent::Data { at, length, .. } => announced = (at, length),
                ClientEvent::Payload { remaining } => {
                    if self.staging.is_empty() {
                        self.receive()?;
                    }
                    let (at, length) = announced;
                    let taken = self.staging.len().min(remaining as usize);
                    take((at + length - remaining) as usize, &self.staging[..taken]);
                    self.staging.drain(..taken);
                    // At most `remaining`.
                    self.session.payload_taken(taken as u32);
                }
                ClientEvent::Hole { at, length, .. } => {
                    take(at as usize, &vec![0; length as usize]);
                }
                event => return Ok(event),
            }
        }
    }

    /// Receives until there are more bytes to parse.
    fn receive(&mut self) -> Result<(), NbdError> {
        let before = self.staging.len();
        while self.staging.len() == before {
            self.receive_some()?;
            // TLS itself may have something to send.
            self.send_secured()?;
        }
        Ok(())
    }

    /// Receives once. Through TLS that may not yield any plaintext yet.
    fn receive_some(&mut self) -> Result<(), NbdError> {
        let mut buffer = [0; STAGING_BYTES];
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(NbdError::Closed),
                Ok((received, _)) if self.tls.is_some() => {
                    return self.decrypt(&buffer[..received]);
                }
                Ok((received, _)) => {
                    self.staging.extend_from_slice(&buffer[..received]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(NbdError::Silent),
                Err(errno) => return Err(NbdError::Socket(errno.into())),
            }
        }
    }

    fn decrypt(&mut self, mut received: &[u8]) -> Result<(), NbdError> {
        let mut plain = [0; STAGING_BYTES];
        let Some(tls) = &mut self.tls else { return Ok(()) };
        loop {
            let taken = match tls.take(received) {
                Ok(taken) => taken,
                Err(error) => {
                    // This sends the alert with the reason. The error to report is the one at
                    // hand.
                    let _ = self.send_secured();
                    return Err(NbdError::Tls(error.to_string()));
                }
            };
            received = &received[taken..];
            let count = tls.plaintext(&mut plain);
            self.staging.extend_from_slice(&plain[..count]);
            if count == 0 && taken == 0 {
                return Ok(());
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), NbdError> {
        match &mut self.tls {
            Some(tls) => {
                tls.encrypt_all(bytes);
                self.send_secured()
            }
            None => self.send_plain(bytes),
        }
    }

    /// Sends the records that TLS has ready.
    fn send_secured(&mut self) -> Result<(), NbdError> {
        let mut records = [0; STAGING_BYTES];
        while let Some(tls) = &mut self.tls {
            let count = tls.outgoing(&mut records);
            if count == 0 {
                break;
            }
            self.send_plain(&records[..count])?;
        }
        Ok(())
    }

    fn send_plain(&self, mut bytes: &[u8]) -> Result<(), NbdError> {
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(NbdError::Silent),
                Err(errno) => return Err(NbdError::Socket(errno.into())),
            }
        }
        Ok(())
    }

    /// Performs one request.
    fn perform(
        &mut self,
        command: Command,
        offset: u64,
        length: u64,
        payload: &[u8],
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> io::Result<()> {
        let request = Request { command, fua: false, offset, length };
        let packet = self.session.submit(0, request).map_err(io::Error::other)?;
        let mut output = Vec::new();
        let result = self.send(&packet).and_then(|()| self.send(payload)).and_then(|()| {
            loop {
                if let ClientEvent::Done { result, .. } = self.advance(&mut output, take)? {
                    return Ok(result);
                }
            }
        });
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(code)) => {
                let name = command.name();
                let said = self.session.error_message();
                let colon = if said.is_empty() { "" } else { ": " };
                let text =
                    format!("the server fails a {name} at {offset} with {code}{colon}{said}");
                Err(io::Error::other(text))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// An NBD export, opened and connected.
#[derive(Debug)]
pub struct BlockingNbd {
    pub(super) target: Target,
    /// One session, or several if the export allows it. Never empty.
    sessions: Mutex<Vec<BlockingSession>>,
    size: u64,
    block: u32,
    flags: TransmissionFlags,
}

impl BlockingNbd {
    /// Connects to the export named by `spec` and checks that it can be a leg.
    ///
    /// # Errors
    /// Returns the reason why it cannot be a leg. With [`Purpose::Create`] an export smaller
    /// than asked for is one.
    pub fn open(
        spec: &LegSpec,
        options: NbdOptions,
        tls: Option<&LegTls>,
        purpose: Purpose,
    ) -> Result<BlockingNbd, NbdError> {
        let target = Target::new(spec, options.bounded(), tls, purpose)?;
        let first = BlockingSession::open(&target)?;
        let export = first.session.export();
        let flags = export.flags;
        // hemi's requests are whole sectors, even if the server would accept less.
        let block = export.block_size.minimum.max(SECTOR_BYTES as u32);
        let size = export.size / u64::from(block) * u64::from(block);
        if let Purpose::Create { size: needed, .. } = purpose
            && size < needed
        {
            return Err(NbdError::Shrunk { now: size, before: needed });
        }
        let mut sessions = vec![first];
        if flags.contains(TransmissionFlags::CAN_MULTI_CONN) && purpose != Purpose::Inspect {
            for _ in 1..target.options.connections {
                sessions.push(BlockingSession::open(&target)?);
            }
        }
        Ok(BlockingNbd { target, sessions: Mutex::new(sessions), size, block, flags })
    }

    /// Returns the size in bytes, whole blocks.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the smallest unit of reads and writes in bytes, 512 to 4096.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Returns true if the server supports write-zeroes that fail if they would be slow.
    pub fn fast_zeroes(&self) -> bool {
        let fast = TransmissionFlags::SEND_WRITE_ZEROES | TransmissionFlags::SEND_FAST_ZERO;
        self.flags.contains(fast)
    }

    /// Returns the leg's name as the operator wrote it.
    pub fn description(&self) -> &str {
        &self.target.description
    }

    /// Reads `into.len()` bytes from `offset`. Any alignment is allowed.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let block = u64::from(self.block);
        let end = offset.checked_add(into.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let mut session = self.session();
        let mut position = offset / block * block;
        while position < end {
            let length = (end.next_multiple_of(block) - position).min(TRANSFER_BYTES_MAX);
            let length = length.min(maximum_payload(&session[0], block));
            let start = position;
            session[0].perform(
                Command::Read { unfragmented: true },
                position,
                length,
                &[],
                &mut |at, data| {
                    // The part of `data` within the range asked for.
                    let from = start + at as u64;
                    let first = from.max(offset);
                    let last = (from + data.len() as u64).min(end);
                    if first < last {
                        into[(first - offset) as usize..(last - offset) as usize].copy_from_slice(
                            &data[(first - from) as usize..(last - from) as usize],
                        );
                    }
                },
            )?;
            position += length;
        }
        Ok(())
    }

    /// Writes `bytes` to `offset`, both multiples of [`BlockingNbd::block`]. The data is
    /// durable after [`BlockingNbd::flush`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut session = self.session();
        let limit = maximum_payload(&session[0], u64::from(self.block));
        let mut position = offset;
        for piece in bytes.chunks(limit.min(TRANSFER_BYTES_MAX) as usize) {
            let length = piece.len() as u64;
            session[0].perform(Command::Write, position, length, piece, &mut |_, _| {})?;
            position += length;
        }
        Ok(())
    }

    /// Makes everything written durable.
    pub fn flush(&self) -> io::Result<()> {
        self.session()[0].perform(Command::Flush, 0, 0, &[], &mut |_, _| {})
    }

    /// Returns the time for which writes of a lost session may still land.
    pub fn quarantine(&self) -> std::time::Duration {
        self.target.options.quarantine
    }

    /// Hands the sessions to the reactor, without timeouts on their sockets.
    pub(super) fn into_parts(self) -> io::Result<(Target, Vec<BlockingSession>)> {
        let sessions = self.sessions.into_inner().unwrap_or_else(PoisonError::into_inner);
        for session in &sessions {
            set_timeouts(&session.socket, None)?;
        }
        Ok((self.target, sessions))
    }

    fn session(&self) -> MutexGuard<'_, Vec<BlockingSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the maximum number of bytes of one transfer, in whole blocks.
fn maximum_payload(session: &BlockingSession, block: u64) -> u64 {
    let maximum = u64::from(session.session.export().block_size.maximum_payload);
    (maximum / block * block).max(block)
}
