//! The payload buffers: one mapped, registered region and a buddy allocator over it.
//!
//! Sizes are powers of two from [`BLOCK_MIN_BYTES`] to [`BLOCK_MAX_BYTES`]. Each buffer is
//! aligned to its own size, so that free neighbours join again and fragmentation does not last.
//! All tables are created at start. Allocating and freeing costs at most one step per size
//! class and never touches the heap.

use std::io;

use hemi_engine::identifiers::{BufferAt, BufferId};
use hemi_engine::io::Buffers;
use hemi_units::SECTOR_BYTES;

use crate::memory::{Mapping, PAGE_BYTES, Span};

/// Smallest buffer, in bytes.
pub const BLOCK_MIN_BYTES: usize = PAGE_BYTES;
/// Largest buffer in bytes: the largest request a client may send.
pub const BLOCK_MAX_BYTES: usize = 32 << 20;
/// Default buffer budget.
pub const BUDGET_DEFAULT_BYTES: u64 = 256 << 20;
/// Smallest buffer budget.
pub const BUDGET_MIN_BYTES: u64 = 16 << 20;
/// Largest buffer budget.
pub const BUDGET_MAX_BYTES: u64 = 64 << 30;
/// Maximum size of one registered buffer, a limit of the kernel.
const MAPPING_BYTES: usize = 1 << 30;

/// Size classes: 4 KiB, 8 KiB, … 32 MiB.
const ORDERS: usize = (BLOCK_MAX_BYTES / BLOCK_MIN_BYTES).ilog2() as usize + 1;

/// No page, the end of a list.
const NONE: u32 = u32::MAX;

/// The state of the block that begins at a page. Meaningless for pages inside a block.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Neighbours (`previous`, `next`) in the list of free blocks of its order.
    previous: u32,
    next: u32,
    /// Number of references, zero if free.
    references: u32,
    order: u8,
    /// True if a free block begins here.
    free: bool,
}

/// The buffers' memory and its allocator. A buffer's id is the number of its first page.
#[derive(Debug)]
pub struct Arena {
    /// The budget in order, [`MAPPING_BYTES`] each except the last. No block crosses a
    /// boundary.
    memory: Vec<Mapping>,
    pages: Vec<Page>,
    /// First free block per order.
    heads: [u32; ORDERS],
    free_bytes: u64,
    budget: u64,
}

impl Arena {
    /// Creates an arena of `budget` bytes, brought within [`BUDGET_MIN_BYTES`] and
    /// [`BUDGET_MAX_BYTES`] and rounded up to whole mebibytes.
    pub fn new(budget: u64) -> io::Result<Arena> {
        let budget = budget.clamp(BUDGET_MIN_BYTES, BUDGET_MAX_BYTES).next_multiple_of(1 << 20);
        let memory = (0..budget)
            .step_by(MAPPING_BYTES)
            .map(|start| Mapping::new((budget - start).min(MAPPING_BYTES as u64) as usize, true))
            .collect::<io::Result<Vec<Mapping>>>()?;
        let empty = Page { previous: NONE, next: NONE, references: 0, order: 0, free: false };
        let pages = budget as usize / BLOCK_MIN_BYTES;
        let mut arena = Arena {
            memory,
            pages: vec![empty; pages],
            heads: [NONE; ORDERS],
            free_bytes: budget,
            budget,
        };
        // Take the largest aligned blocks that fit, from the front.
        let mut first = 0;
        while first < pages {
            let fits = (pages - first).ilog2().min(ORDERS as u32 - 1);
            let order = fits.min(first.trailing_zeros());
            arena.link(first as u32, order as usize);
            first += 1 << order;
        }
        Ok(arena)
    }

    /// Returns the memory for registration with the ring. Buffers allocated after that are
    /// registered.
    pub fn memory_mut(&mut self) -> &mut [Mapping] {
        &mut self.memory
    }

    /// Returns all of the memory, in the order of [`Arena::memory_mut`].
    pub fn spans(&self) -> Vec<Span> {
        self.memory.iter().map(Mapping::whole).collect()
    }

    /// Returns the whole budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the span of `sectors` sectors from a place in a buffer.
    ///
    /// # Panics
    /// If they do not lie within the buffer or it is not in use. Going on would hand foreign
    /// data to a drive.
    #[inline]
    pub fn span(&self, at: BufferAt, sectors: u32) -> Span {
        let page = self.used(at.buffer);
        let block = BLOCK_MIN_BYTES << page.order;
        let offset = at.offset as usize * SECTOR_BYTES as usize;
        let length = sectors as usize * SECTOR_BYTES as usize;
        let start = at.buffer.0 as usize * BLOCK_MIN_BYTES;
        self.memory[start / MAPPING_BYTES].span(start % MAPPING_BYTES, block).slice(offset, length)
    }

    /// Returns the capacity of a buffer in bytes.
    pub fn capacity(&self, buffer: BufferId) -> usize {
        BLOCK_MIN_BYTES << self.used(buffer).order
    }

    #[inline]
    fn used(&self, buffer: BufferId) -> &Page {
        let page = &self.pages[buffer.0 as usize];
        assert!(page.references > 0, "buffer {} is not in use", buffer.0);
        page
    }

    /// Puts a free block at the front of its list, since the block used last is warm in the
    /// cache.
    fn link(&mut self, first: u32, order: usize) {
        let head = self.heads[order];
        let page = &mut self.pages[first as usize];
        page.previous = NONE;
        page.next = head;
        page.order = order as u8;
        page.free = true;
        if head != NONE {
            self.pages[head as usize].previous = first;
        }
        self.heads[order] = first;
    }

    /// Takes a free block out of its list.
    fn unlink(&mut self, first: u32) {
        let Page { previous, next, order, .. } = self.pages[first as usize];
        if previous == NONE {
            self.heads[usize::from(order)] = next;
        } else {
            self.pages[previous as usize].next = next;
        }
        if next != NONE {
            self.pages[next as usize].previous = previous;
        }
        self.pages[first as usize].free = false;
    }

    /// Frees the block at `first`, joining it with its free neighbours.
    fn free(&mut self, mut first: u32) {
        let mut order = usize::from(self.pages[first as usize].order);
        self.free_bytes += (BLOCK_MIN_BYTES << order) as u64;
        while order < ORDERS - 1 {
            let buddy = first ^ (1 << order);
            let Some(page) = self.pages.get(buddy as usize) else { break };
            if !page.free || usize::from(page.order) != order {
                break;
            }
            self.unlink(buddy);
            first = first.min(buddy);
            order += 1;
        }
        self.link(first, order);
    }
}

/// Returns the size class that holds `sectors`, if there is one.
fn order_of(sectors: u32) -> Option<usize> {
    let bytes = sectors as usize * SECTOR_BYTES as usize;
    let blocks = bytes.div_ceil(BLOCK_MIN_BYTES).max(1).next_power_of_two();
    let order = blocks.ilog2() as usize;
    (order < ORDERS).then_some(order)
}

impl Buffers for Arena {
    fn allocate(&mut self, sectors: u32) -> Option<BufferId> {
        let order = order_of(sectors)?;
        let mut from = order;
        while self.heads[from] == NONE {
            from += 1;
            if from == ORDERS {
                return None;
            }
        }
        let first = self.heads[from];
        self.unlink(first);
        while from > order {
            from -= 1;
            self.link(first + (1 << from), from);
        }
        let page = &mut self.pages[first as usize];
        page.order = order as u8;
        page.references = 1;
        self.free_bytes -= (BLOCK_MIN_BYTES << order) as u64;
        Some(BufferId(first))
    }

    fn retain(&mut self, buffer: BufferId) {
        self.used(buffer);
        self.pages[buffer.0 as usize].references += 1;
    }

    fn release(&mut self, buffer: BufferId) {
        self.used(buffer);
        let page = &mut self.pages[buffer.0 as usize];
        page.references -= 1;
        if page.references == 0 {
            self.free(buffer.0);
        }
    }

    fn copy(&mut self, from: BufferAt, to: BufferAt, sectors: u32) {
        let (from, to) = (self.span(from, sectors), self.span(to, sectors));
        to.copy_from_span(from);
    }

    fn zero(&mut self, at: BufferAt, sectors: u32) {
        self.span(at, sectors).zero();
    }

    fn equal(&self, a: BufferAt, b: BufferAt, sectors: u32) -> bool {
        let (a, b) = (self.span(a, sectors), self.span(b, sectors));
        // SAFETY: the engine compares only memory without I/O in flight into it, and this is
        // its thread.
        unsafe { a.bytes() == b.bytes() }
    }

    fn is_zero(&self, at: BufferAt, sectors: u32) -> bool {
        // Compare page by page, because data mostly differs in the first.
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        let is_zero = |piece: &[u8]| *piece == ZEROS[..piece.len()];
        let span = self.span(at, sectors);
        // SAFETY: the engine checks only memory without I/O in flight into it, and this is its
        // thread.
        unsafe { span.bytes() }.chunks(PAGE_BYTES).all(is_zero)
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }
}

#[cfg(test)]
mod tests;
