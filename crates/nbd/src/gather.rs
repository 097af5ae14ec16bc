//! Fixed-size headers out of a byte stream that may be cut anywhere.

/// Longest header gathered: a reply header with its chunk's fixed fields.
const HEADER_BYTES_MAX: usize = 48;

/// Collects one header. Empty between headers.
#[derive(Debug)]
pub(crate) struct Gather {
    bytes: [u8; HEADER_BYTES_MAX],
    filled: usize,
}

impl Gather {
    pub(crate) const fn new() -> Gather {
        Gather { bytes: [0; HEADER_BYTES_MAX], filled: 0 }
    }

    /// Returns one that holds `bytes` already; `None` if they are more than a header has.
    pub(crate) fn of(bytes: &[u8]) -> Option<Gather> {
        let mut gather = Gather::new();
        gather.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        gather.filled = bytes.len();
        Some(gather)
    }

    /// Takes from `input` what a header of `N` bytes still lacks: how many bytes that was,
    /// and the header once it is whole.
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

    /// Takes from `input` what `length` bytes still lack, at most [`HEADER_BYTES_MAX`].
    /// Once they are whole, [`Gather::finish`] gives them.
    pub(crate) fn fill(&mut self, input: &[u8], length: usize) -> usize {
        let length = length.min(HEADER_BYTES_MAX);
        let used = length.saturating_sub(self.filled).min(input.len());
        self.bytes[self.filled..self.filled + used].copy_from_slice(&input[..used]);
        self.filled += used;
        used
    }

    /// The first `length` bytes, if that many have arrived; then it is empty again.
    pub(crate) fn finish(&mut self, length: usize) -> Option<&[u8]> {
        if length > HEADER_BYTES_MAX || self.filled < length {
            return None;
        }
        self.filled = 0;
        Some(&self.bytes[..length])
    }

    /// What has arrived so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}
