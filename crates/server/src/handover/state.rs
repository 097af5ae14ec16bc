//! The bytes that one server hands to the next: the state of its clients.
//!
//! ```text
//! magic (8)  format (4)  crc32c (4)  header bytes (8)  header: JSON  payloads
//! ```
//!
//! Integers are little-endian. The checksum covers everything after it. The header has the
//! lengths of each connection's payloads, which follow in the same order. Fields of the header
//! are added and never renamed, and a reader ignores those it does not know. A change that an
//! older reader would misread needs a new format.

use std::os::fd::RawFd;

use serde::{Deserialize, Serialize};

use crate::grow::GrowTo;

/// The format that is written, and the newest that is read.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"hemi-up\n";
/// Number of bytes before the header.
const PREFIX_BYTES: usize = 24;

/// An error in decoding a state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// The bytes are not a state.
    #[error("it does not begin as a hand-over does")]
    Magic,
    /// The bytes have another format.
    #[error("it is of format {0}; this program reads {FORMAT}")]
    Format(u32),
    /// The bytes are damaged.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// This program does not understand the header.
    #[error("its header is not understood: {0}")]
    Header(#[from] serde_json::Error),
}

/// The state that one server hands to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Id of the process that hands over. In an upgrade in place the successor has the same
    /// one.
    pub(crate) process: u32,
    /// The volume's id.
    pub(crate) volume: [u8; 16],
    /// The version of the program that hands over.
    pub(crate) version: String,
    /// The number of upgrades since clients first connected, including this one.
    pub(crate) upgrades: u64,
    /// The time at which clients began to wait, in nanoseconds on the monotonic clock of this
    /// boot of the machine.
    pub(crate) paused_at: u64,
    /// The times at which they were at rest (`rested_at`) and at which the volume was closed
    /// (`closed_at`), on the same clock.
    pub(crate) rested_at: u64,
    pub(crate) closed_at: u64,
    /// True if no write to a remote leg can still land.
    pub(crate) settled: bool,
    /// The size to which the volume grows before it is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grow: Option<GrowTo>,
    /// The number of clients that could not be handed over.
    pub(crate) cut: u64,
    /// Numbers of connections accepted and refused since clients first connected.
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// True if the block device's next flush has to fail, since a write to it was lost.
    pub(crate) device_owed_loss: bool,
    /// The sockets of the virtual machines' disks whose next flush has to fail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) guests_owed_loss: Vec<String>,
    pub(crate) listeners: Vec<ListenerState>,
    pub(crate) control: Option<RawFd>,
    pub(crate) http: Option<RawFd>,
    pub(crate) connections: Vec<ConnectionState>,
}

/// A socket that clients connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ListenerState {
    /// The address as configured.
    pub(crate) address: String,
    /// The socket's number among those of the address.
    pub(crate) index: u32,
    pub(crate) descriptor: RawFd,
}

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectionState {
    pub(crate) descriptor: RawFd,
    /// Index of its listener among those handed over.
    pub(crate) listener: u32,
    /// The path of the block device, for the kernel's connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// The number by which the engine identifies it.
    pub(crate) number: u32,
    /// True if it has completed the handshake.
    pub(crate) served: bool,
    /// True if it only takes its last answers.
    pub(crate) finishing: bool,
    /// True if its next flush has to fail, since one of its writes was lost.
    pub(crate) owed_loss: bool,
    /// The byte of its request at which the payload handed over begins.
    pub(crate) next: u64,
    /// True if a part before that byte failed.
    pub(crate) failed: bool,
    /// Lengths of the payloads below, in their order.
    pub(crate) lengths: [u64; 5],
    /// Its session as [`hemi_nbd`] saves it.
    #[serde(skip)]
    pub(crate) session: Vec<u8>,
    /// The request that has been received but not begun, or whose payload is coming. Empty if there is none.
    #[serde(skip)]
    pub(crate) request: Vec<u8>,
    /// The beginning of the request's payload, from `next` on.
    #[serde(skip)]
    pub(crate) payload: Vec<u8>,
    /// Bytes that were received and not parsed yet.
    #[serde(skip)]
    pub(crate) input: Vec<u8>,
    /// Bytes of answers that are still to be sent.
    #[serde(skip)]
    pub(crate) output: Vec<u8>,
}

impl ConnectionState {
    fn payloads(&self) -> [&Vec<u8>; 5] {
        [&self.session, &self.request, &self.payload, &self.input, &self.output]
    }

    fn payloads_mut(&mut self) -> [&mut Vec<u8>; 5] {
        let ConnectionState { session, request, payload, input, output, .. } = self;
        [session, request, payload, input, output]
    }
}

impl State {
    /// Returns the encoded state.
    pub(crate) fn encode(&mut self) -> Vec<u8> {
        for connection in &mut self.connections {
            connection.lengths = connection.payloads().map(|payload| payload.len() as u64);
        }
        let header =
            serde_json::to_vec(self).expect("numbers and texts can always be written as JSON");
        let payloads = self.connections.iter().flat_map(|connection| connection.payloads());
        let length = payloads.clone().map(Vec::len).sum::<usize>();
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + header.len() + length);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&header);
        for payload in payloads {
            bytes.extend_from_slice(payload);
        }
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns the state in `bytes`.
    ///
    /// # Errors
    /// Returns a [`StateError`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<State, StateError> {
        let (prefix, rest) =
            bytes.split_at_checked(PREFIX_BYTES).ok_or(StateError::Damaged("it is too short"))?;
        if prefix[..8] != MAGIC {
            return Err(StateError::Magic);
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| prefix[at + byte]));
        if word(8) != FORMAT {
            return Err(StateError::Format(word(8)));
        }
        if crc32c::crc32c(&bytes[16..]) != word(12) {
            return Err(StateError::Damaged("its checksum does not match"));
        }
        let length = u64::from(word(20)) << 32 | u64::from(word(16));
        let short = StateError::Damaged("it ends early");
        let (header, mut rest) = usize::try_from(length)
            .ok()
            .and_then(|length| rest.split_at_checked(length))
            .ok_or(short)?;
        let mut state: State = serde_json::from_slice(header)?;
        for connection in &mut state.connections {
            let lengths = connection.lengths;
            for (payload, length) in connection.payloads_mut().into_iter().zip(lengths) {
                let (own, others) = usize::try_from(length)
                    .ok()
                    .and_then(|length| rest.split_at_checked(length))
                    .ok_or(StateError::Damaged("it ends early"))?;
                payload.extend_from_slice(own);
                rest = others;
            }
        }
        if !rest.is_empty() {
            return Err(StateError::Damaged("it goes on too long"));
        }
        if !state.descriptors_differ() {
            return Err(StateError::Damaged("a descriptor is named twice"));
        }
        Ok(state)
    }

    /// Returns every descriptor that is handed over.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let listeners = self.listeners.iter().map(|listener| listener.descriptor);
        let connections = self.connections.iter().map(|connection| connection.descriptor);
        listeners.chain(connections).chain(self.control).chain(self.http).collect()
    }

    fn descriptors_differ(&self) -> bool {
        let mut all = self.descriptors();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        all.len() == count && all.first().is_none_or(|least| *least > 2)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> State {
        let connection = ConnectionState {
            descriptor: 9,
            listener: 0,
            number: 3,
            served: true,
            next: 1 << 20,
            session: vec![1, 2],
            request: vec![3],
            payload: vec![4; 5],
            output: vec![6],
            ..ConnectionState::default()
        };
        State {
            process: 17,
            version: "1.2.3".into(),
            upgrades: 1,
            accepted: 3,
            listeners: vec![ListenerState { address: "unix:/s".into(), index: 0, descriptor: 8 }],
            control: Some(7),
            connections: vec![connection],
            ..State::default()
        }
    }

    /// The layout is fixed, because another program reads these bytes.
    #[test]
    fn the_format_stays() {
        let bytes = example().encode();
        assert_eq!(&bytes[..12], b"hemi-up\n\x01\0\0\0");
        let header = r#"{"process":17,"volume":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"version":"1.2.3","upgrades":1,"paused_at":0,"rested_at":0,"closed_at":0,"settled":false,"cut":0,"accepted":3,"refused":0,"device_owed_loss":false,"listeners":[{"address":"unix:/s","index":0,"descriptor":8}],"control":7,"http":null,"connections":[{"descriptor":9,"listener":0,"number":3,"served":true,"finishing":false,"owed_loss":false,"next":1048576,"failed":false,"lengths":[2,1,5,0,1]}]}"#;
        let end = PREFIX_BYTES + header.len();
        assert_eq!(std::str::from_utf8(&bytes[PREFIX_BYTES..end]).expect("JSON"), header);
        assert_eq!(&bytes[16..24], &(header.len() as u64).to_le_bytes());
        assert_eq!(&bytes[end..], &[1, 2, 3, 4, 4, 4, 4, 4, 6]);
        assert_eq!(State::decode(&bytes).expect("it was encoded").connections[0].payload, [4; 5]);
    }

    #[test]
    fn a_field_that_is_not_known_is_ignored() {
        let mut bytes = example().encode();
        let at = PREFIX_BYTES + 1;
        bytes.splice(at..at, *br#""later":{"x":[1]},"#);
        let length = u64::from_le_bytes(bytes[16..24].try_into().expect("eight")) + 18;
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(State::decode(&bytes).expect("it is sound").process, 17);
    }

    #[test]
    fn another_format_and_a_descriptor_named_twice_are_refused() {
        let mut bytes = example().encode();
        bytes[8] = 2;
        assert!(matches!(State::decode(&bytes), Err(StateError::Format(2))));
        let mut twice = example();
        twice.http = twice.control;
        assert!(matches!(State::decode(&twice.encode()), Err(StateError::Damaged(_))));
        let mut standard = example();
        standard.control = Some(2);
        assert!(matches!(State::decode(&standard.encode()), Err(StateError::Damaged(_))));
    }

    fn connection() -> impl Strategy<Value = ConnectionState> {
        let payload = || prop::collection::vec(any::<u8>(), 0..50);
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let payloads = (payload(), payload(), payload(), payload(), payload());
        (payloads, flags, any::<u32>(), any::<u64>()).prop_map(
            |((session, request, payload, input, output), flags, number, next)| {
                let lengths =
                    [&session, &request, &payload, &input, &output].map(|one| one.len() as u64);
                let (served, finishing, owed_loss, failed) = flags;
                ConnectionState {
                    descriptor: 0,
                    listener: number % 3,
                    device: finishing.then(|| format!("/dev/nbd{number}")),
                    number,
                    served,
                    finishing,
                    owed_loss,
                    next,
                    failed,
                    lengths,
                    session,
                    request,
                    payload,
                    input,
                    output,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_state_comes_back(
            mut connections in prop::collection::vec(connection(), 0..6),
            version in ".{0,9}",
            numbers: (u64, u64, u64),
            guests_owed_loss in prop::collection::vec(".{0,9}", 0..3),
        ) {
            for (at, connection) in connections.iter_mut().enumerate() {
                connection.descriptor = 10 + at as RawFd;
            }
            let (paused_at, accepted, cut) = numbers;
            let mut state = State {
                version,
                paused_at,
                accepted,
                cut,
                connections,
                guests_owed_loss,
                ..example()
            };
            let bytes = state.encode();
            prop_assert_eq!(State::decode(&bytes).expect("it was encoded"), state);
        }

        #[test]
        fn damaged_bytes_are_refused(bit: usize, cut in 0_usize..400, noise: Vec<u8>) {
            let bytes = example().encode();
            let mut flipped = bytes.clone();
            flipped[bit / 8 % bytes.len()] ^= 1 << (bit % 8);
            prop_assert!(State::decode(&flipped).is_err());
            prop_assert!(State::decode(&bytes[..cut.min(bytes.len() - 1)]).is_err());
            prop_assert!(State::decode(&noise).is_err());
        }
    }
}
