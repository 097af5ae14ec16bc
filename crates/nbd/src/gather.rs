//! Collection of fixed-size headers from a byte stream that may be cut anywhere.

/// Longest header in bytes: a reply header with its chunk's fixed fields.
const HEADER_BYTES_MAX: usize = 48;

/// A collector of one header. It is empty between headers.
#[derive(Debug)]
pub(crate) struct Gather {
    bytes: [u8; HEADER_BYTES_MAX],
    filled: usize,
}

impl Gather {
    pub(crate) const fn new() -> Gather {
        Gather { bytes: [0; HEADER_BYTES_MAX], filled: 0 }
    }

    /// Returns a collector that already holds `bytes`, or `None` if a header is shorter than
    /// that.
    pub(crate) fn of(bytes: &[u8]) -> Option<Gather> {
        let mut gather = Gather::new();
        gather.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        gather.filled = bytes.len();
        Some(gather)
    }

    /// Takes the missing bytes of a header of `N` bytes from `input`. Returns the number of
    /// bytes used, and the header once it is complete.
    pub(crate) fn take<const N: usize>(&mut self, input: &[u8]) -> (usize, Option<[u8; N]>) {
        const { assert!(N <= HEADER_BYTES_MAX) };
        if self.filled == 0
            && let Some(header) = input.first_chunk::<N>()
        {
            return (N, Some(*header));
        }
        let used = self.fill(input, N);
        let header = (self.filled >= N).then(|| {
            self.filled = 0;
            let mut header = [0; N];
            header.copy_from_slice(&self.bytes[..N]);
            header
        });
        (used, header)
    }

    /// Takes the missing bytes of `length`, at most [`HEADER_BYTES_MAX`], from `input`. Returns
    /// the number of bytes used. Once all have arrived, [`Gather::finish`] returns them.
    pub(crate) fn fill(&mut self, input: &[u8], length: usize) -> usize {
        let length = length.min(HEADER_BYTES_MAX);
        let used = length.saturating_sub(self.filled).min(input.len());
        self.bytes[self.filled..self.filled + used].copy_from_slice(&input[..used]);
        self.filled += used;
        used
    }

    /// Returns the first `length` bytes and empties the collector, if that many have arrived.
    pub(crate) fn finish(&mut self, length: usize) -> Option<&[u8]> {
        if length > HEADER_BYTES_MAX || self.filled < length {
            return None;
        }
        self.filled = 0;
        Some(&self.bytes[..length])
    }

    /// Returns the bytes that have arrived so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}
