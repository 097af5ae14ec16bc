//! Memory for requests.
//!
//! Data that is read is never examined, so reads in flight may share memory. Each takes the next
//! piece of one area, around and around, which costs nothing and keeps the processor's caches as
//! cold as a program with buffers of its own would. Writes take pieces of another area, filled once
//! with random bytes. Each page of a write carries a number of its own, so that no two pages
//! written are the same. The data neither compresses nor deduplicates.

use std::io;

use hemi_io::memory::{Mapping, PAGE_BYTES, Span};
use hemi_io::ring::Ring;
use hemi_random::{Rng, split_mix};

/// The least size of each area in bytes. It is larger if [`LONGEST_IN_AREA`] of the longest request
/// need more.
const AREA_BYTES: usize = 32 << 20;
/// The number of longest requests that each area has room for.
const LONGEST_IN_AREA: usize = 2;
/// The longest request that can be issued, in bytes.
pub const LONGEST_BYTES: u64 = 256 << 20;

/// Memory for requests.
#[derive(Debug)]
pub struct Buffers {
    reads: Area,
    writes: Area,
    /// The state of the numbers that pages carry.
    numbers: u64,
}

#[derive(Debug)]
struct Area {
    whole: Span,
    cursor: usize,
}

impl Buffers {
    /// Allocates memory for requests of up to `longest` bytes and registers it with the ring.
    /// `seed` determines the data that is written. Without `writes` only one page is
    /// allocated to write from.
    ///
    /// # Errors
    /// Fails if the system has no memory.
    pub fn new(ring: &mut Ring, longest: u64, writes: bool, seed: u64) -> io::Result<Buffers> {
        let bytes = AREA_BYTES.max(longest as usize * LONGEST_IN_AREA);
        let mut area = |bytes| {
            let mut mapping = Mapping::new(bytes, true)?;
            // Touched now rather than by the first request of each page.
            mapping.whole().zero();
            ring.add_memory(&mut mapping);
            io::Result::Ok(Area { whole: mapping.whole(), cursor: 0 })
        };
        let reads = area(bytes)?;
        let writes = area(if writes { bytes } else { PAGE_BYTES })?;
        let mut rng = Rng::new(seed, 0);
        for at in (0..writes.whole.length()).step_by(PAGE_BYTES) {
            let mut page = [0; PAGE_BYTES];
            for word in page.as_chunks_mut::<8>().0 {
                *word = rng.draw().to_le_bytes();
            }
            writes.whole.slice(at, PAGE_BYTES).copy_from(&page);
        }
        Ok(Buffers { reads, writes, numbers: rng.draw() })
    }

    /// Returns the memory for a read of this many bytes.
    pub fn read(&mut self, bytes: usize) -> Span {
        self.reads.take(bytes)
    }

    /// Returns this many bytes to write.
    pub fn write(&mut self, bytes: usize) -> Span {
        let span = self.writes.take(bytes);
        for at in (0..span.length()).step_by(PAGE_BYTES) {
            let word = split_mix(&mut self.numbers).to_le_bytes();
            if at + word.len() <= span.length() {
                span.slice(at, word.len()).copy_from(&word);
            }
        }
        span
    }
}

impl Area {
    fn take(&mut self, bytes: usize) -> Span {
        if self.cursor + bytes > self.whole.length() {
            self.cursor = 0;
        }
        let span = self.whole.slice(self.cursor, bytes);
        self.cursor += bytes.next_multiple_of(PAGE_BYTES);
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_pages_written_are_the_same() {
        let mut ring = Ring::new().expect("a ring");
        let mut buffers = Buffers::new(&mut ring, 1 << 20, true, 1).expect("memory");
        let mut seen = HashSet::new();
        // Three times around.
        for _ in 0..3 * AREA_BYTES / (1 << 20) {
            for page in buffers.write(1 << 20).to_vec().chunks(PAGE_BYTES) {
                assert!(seen.insert(page.to_vec()));
            }
        }
        // As many ones as zeros: nothing to compress.
        let page = buffers.write(4096);
        let ones: u32 = page.to_vec().iter().map(|byte| byte.count_ones()).sum();
        assert!((15_500..17_300).contains(&ones), "{ones}");
        assert_eq!(buffers.read(5000).length(), 5000);
    }
}
