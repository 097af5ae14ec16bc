//! The host's commands: those in flight, and those that wait for the drive's queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use hemi_units::{Instant, Operation};

use super::mapping::NONE;
use crate::drive::{Completion, Request};

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) tag: u64,
    pub(super) operation: Operation,
    /// Sectors of a write that are not yet in the buffer, or all sectors of a read.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
    /// Page reads the command waits for.
    pub(super) pending: u32,
    /// True if those are of the table; the data is read after them.
    pub(super) looking_up: bool,
    next: u32,
}

/// All commands of the drive.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    slab: Vec<Command>,
    unused: u32,
    running: u32,
    depth: u32,
    waiting: VecDeque<Request>,
    ending: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Commands {
    /// Creates the commands of a drive whose queue has `depth` slots.
    pub(super) fn new(depth: u32) -> Commands {
        Commands {
            slab: Vec::new(),
            unused: NONE,
            running: 0,
            depth,
            waiting: VecDeque::new(),
            ending: BinaryHeap::new(),
        }
    }

    /// Adds the request. Returns the command if the queue has a slot for it.
    pub(super) fn take(&mut self, request: Request) -> Option<u32> {
        if self.running >= self.depth {
            self.waiting.push_back(request);
            return None;
        }
        Some(self.start(request))
    }

    fn start(&mut self, request: Request) -> u32 {
        self.running += 1;
        let extent = request.extent;
        let empty = request.operation == Operation::Flush || extent.is_empty();
        let command = Command {
            tag: request.tag,
            operation: request.operation,
            from: extent.start,
            to: if empty { extent.start } else { extent.end },
            bytes: if empty { 0 } else { extent.bytes() },
            pending: 0,
            looking_up: false,
            next: NONE,
        };
        if self.unused == NONE {
            self.slab.push(command);
            return self.slab.len() as u32 - 1;
        }
        let at = self.unused;
        self.unused = self.slab[at as usize].next;
        self.slab[at as usize] = command;
        at
    }

    pub(super) fn get(&mut self, command: u32) -> &mut Command {
        &mut self.slab[command as usize]
    }

    /// Sets the completion of the command to `at`.
    pub(super) fn end(&mut self, command: u32, at: u64) {
        self.ending.push(Reverse((at, command)));
    }

    /// Returns the time of the next completion.
    pub(super) fn next_end(&self) -> u64 {
        self.ending.peek().map_or(u64::MAX, |&Reverse((at, _))| at)
    }

    /// Removes the next completed command, and starts a waiting one in its place.
    pub(super) fn ended(&mut self) -> Option<(Completion, Command, Option<u32>)> {
        let Reverse((at, command)) = self.ending.pop()?;
        let it = self.slab[command as usize];
        self.slab[command as usize].next = self.unused;
        self.unused = command;
        self.running -= 1;
        let next = self.waiting.pop_front().map(|request| self.start(request));
        Some((Completion::done(it.tag, Instant(at)), it, next))
    }

    /// Returns true if no command is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.running == 0
    }
}
