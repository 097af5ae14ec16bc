//! What each lane is doing, and the reads that wait for it.

use super::mapping::NONE;

/// What a lane does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Nothing.
    Idle,
    /// Sensing the page of the first waiting read.
    Sense,
    /// Moving it to the controller.
    Move,
    /// Programming data of the buffer's.
    Program,
    /// Copying from the victim.
    Copy,
    /// Erasing the victim.
    Erase,
    /// Suspending one of the last three.
    Suspend,
}

/// A read of one page (or of several on end, where a unit has several).
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRead {
    /// The command it is for.
    pub(super) command: u32,
    /// Bytes to move.
    pub(super) bytes: u64,
    /// Time until the first byte is there.
    pub(super) sense: u64,
    /// Time the lane needs after that, beyond moving.
    pub(super) more: u64,
    next: u32,
}

impl PageRead {
    pub(super) fn new(command: u32, bytes: u64, sense: u64, more: u64) -> PageRead {
        PageRead { command, bytes, sense, more, next: NONE }
    }
}

/// A program, copy or erase that gave way to reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspended {
    pub(super) activity: Activity,
    pub(super) remaining: u64,
}

/// A lane.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) activity: Activity,
    /// When that ends.
    pub(super) until: u64,
    pub(super) suspended: Option<Suspended>,
    /// How often the present operation may still be suspended.
    pub(super) suspends_left: u32,
    /// Channel (or group of channels) it hangs on.
    pub(super) channel: u32,
    /// Whether it is in the list of those that are idle and have room.
    pub(super) listed: bool,
    /// Whether it is among those that may not copy for now.
    pub(super) blocked: bool,
    /// Time the next program takes besides: parts of the table read and written for it.
    pub(super) debt: u64,
    /// What is being programmed: bytes of buffer and epoch of each unit.
    pub(super) programming: Vec<(u32, u64)>,
    first_read: u32,
    last_read: u32,
}

impl Lane {
    pub(super) fn new(channel: u32) -> Lane {
        Lane {
            activity: Activity::Idle,
            until: 0,
            suspended: None,
            suspends_left: 0,
            channel,
            listed: false,
            blocked: false,
            debt: 0,
            programming: Vec::new(),
            first_read: NONE,
            last_read: NONE,
        }
    }

    pub(super) fn has_reads(&self) -> bool {
        self.first_read != NONE
    }
}

/// The reads of all lanes, in a slab.
#[derive(Clone, Debug)]
pub(super) struct PageReads {
    slab: Vec<PageRead>,
    unused: u32,
}

impl PageReads {
    pub(super) fn new() -> PageReads {
        PageReads { slab: Vec::new(), unused: NONE }
    }

    /// Appends a read to the lane's.
    pub(super) fn push(&mut self, lane: &mut Lane, read: PageRead) {
        let at = if self.unused == NONE {
            self.slab.push(read);
            self.slab.len() as u32 - 1
        } else {
            let at = self.unused;
            self.unused = self.slab[at as usize].next;
            self.slab[at as usize] = read;
            at
        };
        match lane.last_read {
            NONE => lane.first_read = at,
            last => self.slab[last as usize].next = at,
        }
        lane.last_read = at;
    }

    /// The lane's first read, which must have one.
    pub(super) fn first(&self, lane: &Lane) -> PageRead {
        self.slab[lane.first_read as usize]
    }

    /// Takes it out.
    pub(super) fn pop(&mut self, lane: &mut Lane) -> PageRead {
        let at = lane.first_read;
        let read = self.slab[at as usize];
        lane.first_read = read.next;
        if read.next == NONE {
            lane.last_read = NONE;
        }
        self.slab[at as usize].next = self.unused;
        self.unused = at;
        read
    }
}
