//! Aligned pages for metadata writes.
//!
//! A page belongs to its write until that ends. A frozen leg can hold pages forever, so the
//! pool grows by chunks. The engine bounds it: at most one write per page and leg is in flight.

use std::io;

use crate::memory::{Mapping, PAGE_BYTES, Span};

/// Pages added at a time.
const CHUNK_PAGES: u32 = 32;

/// A page of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId(u32);

/// A pool of aligned pages.
#[derive(Debug)]
pub struct PagePool {
    chunks: Vec<Mapping>,
    free: Vec<u32>,
}

impl PagePool {
    /// Creates a pool of one chunk.
    pub fn new() -> io::Result<PagePool> {
        let mut pool = PagePool { chunks: Vec::new(), free: Vec::new() };
        pool.grow()?;
        Ok(pool)
    }

    fn grow(&mut self) -> io::Result<()> {
        let first = self.chunks.len() as u32 * CHUNK_PAGES;
        self.chunks.push(Mapping::new(CHUNK_PAGES as usize * PAGE_BYTES, false)?);
        self.free.extend((first..first + CHUNK_PAGES).rev());
        Ok(())
    }

    /// Takes a page. Fails only if the system has no memory for another chunk.
    pub fn take(&mut self) -> io::Result<(PageId, Span)> {
        loop {
            if let Some(page) = self.free.pop() {
                let chunk = &self.chunks[(page / CHUNK_PAGES) as usize];
                let offset = (page % CHUNK_PAGES) as usize * PAGE_BYTES;
                return Ok((PageId(page), chunk.span(offset, PAGE_BYTES)));
            }
            self.grow()?;
        }
    }

    /// Gives a page back.
    pub fn give_back(&mut self, page: PageId) {
        self.free.push(page.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_distinct_aligned_and_reused() {
        let mut pool = PagePool::new().unwrap();
        let mut taken = Vec::new();
        for _ in 0..CHUNK_PAGES * 2 + 1 {
            taken.push(pool.take().unwrap());
        }
        let mut addresses: Vec<usize> =
            taken.iter().map(|(_, span)| span.address() as usize).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), taken.len());
        assert!(addresses.iter().all(|address| address % PAGE_BYTES == 0));
        let (page, span) = taken[7];
        pool.give_back(page);
        assert_eq!(pool.take().unwrap().1.address(), span.address());
    }
}
