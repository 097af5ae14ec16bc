//! A client and a server session joined back to back over a block device in memory.

use hemi_nbd::client::{ClientConfig, ClientEvent, ClientSession, Command, Request};
use hemi_nbd::codec::{ErrorCode, ReplyStyle};
use hemi_nbd::server::{self, ServerEvent, ServerSession, StatusExtent, TlsMode};

use super::{export, session};

/// The sizes of the pieces into which the wire cuts the byte stream, used in turn.
#[derive(Clone, Debug)]
pub(crate) struct Cuts {
    sizes: Vec<usize>,
    next: usize,
}

impl Cuts {
    pub(crate) fn of(sizes: Vec<usize>) -> Cuts {
        Cuts { sizes, next: 0 }
    }

    fn piece<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let size = self.sizes[self.next % self.sizes.len()];
        self.next += 1;
        &bytes[..size.min(bytes.len())]
    }
}

/// The result of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: Option<Result<(), ErrorCode>>,
    pub(crate) data: Vec<u8>,
    /// Context id, length, status.
    pub(crate) extents: Vec<(u32, u64, u64)>,
    pub(crate) message: String,
}

/// A client, a server, and the device behind it.
pub(crate) struct Pair {
    pub(crate) client: ClientSession,
    pub(crate) server: ServerSession,
    pub(crate) device: Vec<u8>,
    pub(crate) cuts: Cuts,
    /// True if the device answers reads in pieces, with holes.
    pub(crate) sparse: bool,
    pub(crate) disconnected: bool,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    write: Option<(server::Request, Vec<u8>)>,
    /// Token, offset and length of the announced data.
    data: Option<(u64, u32, u32)>,
    pub(crate) seen: Vec<server::Request>,
}

impl Pair {
    /// Returns both ends, connected and through the handshake.
    pub(crate) fn new(style: ReplyStyle, tls: bool, cuts: Cuts) -> Pair {
        let mode = if tls { TlsMode::Required } else { TlsMode::Off };
        let small = server::Export { size: 1 << 20, ..export("vol") };
        let (server, to_client) = session(vec![small], mode);
        let mut config = ClientConfig::new("vol");
        config.style = style;
        config.tls = tls;
        config.contexts = vec!["base:allocation".into(), "hemi:copies".into()];
        config.in_flight = 4;
        let client = ClientSession::new(config);
        let mut pair = Pair {
            client,
            server,
            device: vec![0; 1 << 20],
            cuts,
            sparse: false,
            disconnected: false,
            to_server: Vec::new(),
            to_client,
            write: None,
            data: None,
            seen: Vec::new(),
        };
        while !pair.client.is_ready() {
            pair.turn(&mut []);
        }
        pair
    }

    /// Submits requests (writes with their payload) and runs until all have ended.
    pub(crate) fn run(&mut self, requests: &[(Request, &[u8])]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        for (token, (request, payload)) in requests.iter().enumerate() {
            let packet = self.client.submit(token as u64, *request).unwrap();
            self.to_server.extend_from_slice(&packet);
            self.to_server.extend_from_slice(payload);
            let wanted = match request.command {
                Command::Read { .. } => request.length as usize,
                _ => 0,
            };
            outcomes.push(Outcome { data: vec![0xee; wanted], ..Outcome::default() });
        }
        let mut turns = 0;
        while self.client.in_flight() > 0 {
            self.turn(&mut outcomes);
            turns += 1;
            assert!(turns < 10_000_000, "the conversation does not end");
        }
        outcomes
    }

    /// Disconnects, and waits until the server has received that.
    pub(crate) fn disconnect(&mut self) {
        let packet = self.client.disconnect();
        self.to_server.extend_from_slice(&packet);
        while !self.disconnected {
            self.turn(&mut []);
        }
    }

    /// Moves one piece in each direction.
    fn turn(&mut self, outcomes: &mut [Outcome]) {
        let piece = self.cuts.piece(&self.to_server).to_vec();
        self.to_server.drain(..piece.len());
        self.serve(&piece);
        let piece = self.cuts.piece(&self.to_client).to_vec();
        self.to_client.drain(..piece.len());
        self.consume(&piece, outcomes);
    }

    fn serve(&mut self, mut input: &[u8]) {
        loop {
            let advance = self.server.advance(input, &mut self.to_client).unwrap();
            assert!(advance.consumed <= input.len());
            input = &input[advance.consumed..];
            match advance.event {
                ServerEvent::NeedMore => {
                    assert!(input.is_empty(), "NeedMore leaves input");
                    return;
                }
                ServerEvent::Request(request) if request.payload_length() > 0 => {
                    self.seen.push(request);
                    self.write = Some((request, Vec::new()));
                }
                ServerEvent::Request(request) => {
                    self.seen.push(request);
                    self.perform(request, &[]);
                }
                ServerEvent::Payload { remaining } => {
                    let taken = input.len().min(remaining as usize);
                    let (request, mut data) = self.write.take().expect("a write is open");
                    data.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    self.server.payload_taken(taken as u64);
                    if data.len() as u64 == request.length {
                        self.perform(request, &data);
                    } else {
                        self.write = Some((request, data));
                        if input.is_empty() {
                            return;
                        }
                    }
                }
                ServerEvent::StartTls => {
                    assert!(input.is_empty(), "the client waits for the answer");
                    self.server.tls_established();
                }
                ServerEvent::Disconnect | ServerEvent::Abort => {
                    self.disconnected = true;
                    return;
                }
                ServerEvent::Reply | ServerEvent::Ready | ServerEvent::Refused { .. } => {}
            }
        }
    }

    /// Performs a request on the device, whose sector at 1 MiB - 512 is bad.
    fn perform(&mut self, request: server::Request, payload: &[u8]) {
        let (style, to, out) = (self.server.style(), request.reply_to(), &mut self.to_client);
        let (offset, length) = (request.offset as usize, request.length as usize);
        let range = offset..offset + length;
        if range.end == self.device.len() && length == 512 {
            return style.error_at(to, ErrorCode::Io, "bad sector", request.offset, out);
        }
        match request.command {
            server::Command::Read { unfragmented } => {
                if self.sparse && !unfragmented && style != ReplyStyle::Simple {
                    return self.read_sparse(request);
                }
                out.extend_from_slice(&style.read_data(to, request.offset, length as u32, true));
                out.extend_from_slice(&self.device[range]);
            }
            server::Command::Write => {
                self.device[range].copy_from_slice(payload);
                out.extend_from_slice(&style.success(to));
            }
            server::Command::WriteZeroes { fast: true, .. } => {
                style.error(to, ErrorCode::NotSupported, "not fast", out);
            }
            server::Command::WriteZeroes { .. } | server::Command::Trim => {
                self.device[range].fill(0);
                out.extend_from_slice(&style.success(to));
            }
            server::Command::Flush | server::Command::Cache => {
                out.extend_from_slice(&style.success(to));
            }
            server::Command::BlockStatus { one, contexts } => {
                let last = contexts.indices().last();
                for context in contexts.indices() {
                    let half = StatusExtent { length: request.length / 2, status: 3 };
                    let extents = [half, StatusExtent { status: context as u64, ..half }];
                    let extents = if one { &extents[..1] } else { &extents[..] };
                    style.block_status(to, context, extents, Some(context) == last, out);
                }
            }
        }
    }

    /// Answers with the last sector first, then the sectors from the front, zeros as holes.
    fn read_sparse(&mut self, request: server::Request) {
        let (style, to, out) = (self.server.style(), request.reply_to(), &mut self.to_client);
        let sectors = request.length / 512;
        for index in [sectors - 1].into_iter().chain(0..sectors - 1) {
            let offset = request.offset + index * 512;
            let data = &self.device[offset as usize..offset as usize + 512];
            if data.iter().all(|&byte| byte == 0) {
                let hole = style.read_hole(to, offset, 512, false);
                out.extend_from_slice(&hole.expect("chunked replies have holes"));
            } else {
                out.extend_from_slice(&style.read_data(to, offset, 512, false));
                out.extend_from_slice(data);
            }
        }
        out.extend_from_slice(&style.end(to));
    }

    fn consume(&mut self, mut input: &[u8], outcomes: &mut [Outcome]) {
        loop {
            let advance = self.client.advance(input, &mut self.to_server).unwrap();
            assert!(advance.consumed <= input.len());
            input = &input[advance.consumed..];
            match advance.event {
                ClientEvent::NeedMore => {
                    assert!(input.is_empty(), "NeedMore leaves input");
                    return;
                }
                ClientEvent::Data { token, at, length } => self.data = Some((token, at, length)),
                ClientEvent::Payload { remaining } => {
                    let (token, at, length) = self.data.expect("data was announced");
                    let taken = input.len().min(remaining as usize);
                    let start = (at + length - remaining) as usize;
                    outcomes[token as usize].data[start..start + taken]
                        .copy_from_slice(&input[..taken]);
                    input = &input[taken..];
                    self.client.payload_taken(taken as u32);
                    if taken < remaining as usize {
                        return;
                    }
                }
                ClientEvent::Hole { token, at, length } => {
                    outcomes[token as usize].data[at as usize..(at + length) as usize].fill(0);
                }
                ClientEvent::Extent { token, context, length, status } => {
                    outcomes[token as usize].extents.push((context, length, status));
                }
                ClientEvent::Done { token, result } => {
                    let outcome = &mut outcomes[token as usize];
                    assert_eq!(outcome.result, None, "finished twice");
                    outcome.result = Some(result);
                    if result.is_err() {
                        outcome.message = self.client.error_message();
                    }
                }
                ClientEvent::StartTls => self.client.tls_established(&mut self.to_server),
                ClientEvent::Send | ClientEvent::Ready => {}
            }
        }
    }
}
