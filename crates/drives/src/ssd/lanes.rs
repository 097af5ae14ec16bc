//! The activities of lanes, and the reads that wait for them.

use super::mapping::NONE;

/// The activity of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Idle.
    Idle,
    /// Sensing the page of the first waiting read.
    Sense,
    /// Moving that page to the controller.
    Move,
    /// Programming data from the buffer.
    Program,
    /// Copying from the victim.
    Copy,
    /// Erasing the victim.
    Erase,
    /// Suspending a program, copy or erase.
    Suspend,
}

/// A read of one page (or of several in a row, if a unit spans several).
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRead {
    /// The command it belongs to.
    pub(super) command: u32,
    /// Bytes to move.
    pub(super) bytes: u64,
    /// Time until the first byte is available.
    pub(super) sense: u64,
    /// Additional time the lane needs after that, beyond moving.
    pub(super) more: u64,
    next: u32,
}

impl PageRead {
    pub(super) fn new(command: u32, bytes: u64, sense: u64, more: u64) -> PageRead {
        PageRead { command, bytes, sense, more, next: NONE }
    }
}

/// A program, copy or erase suspended in favour of reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspended {
    pub(super) activity: Activity,
    pub(super) remaining: u64,
}

/// A lane.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) activity: Activity,
    /// Time at which the activity ends.
    pub(super) until: u64,
    pub(super) suspended: Option<Suspended>,
    /// Number of times the current operation may still be suspended.
    pub(super) suspends_left: u32,
    /// Channel (or group of channels) of the lane.
    pub(super) channel: u32,
    /// True if the lane is in the list of idle lanes with room.
    pub(super) listed: bool,
    /// True if the lane is in the list of lanes that may not copy for now.
    pub(super) blocked: bool,
    /// Extra time added to the next program for mapping-table reads and writes.
    pub(super) debt: u64,
    /// Units being programmed: bytes of buffer and epoch of each.
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

    /// Appends a read to the lane's queue.
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

    /// Returns the first read of the lane, which must have one.
    pub(super) fn first(&self, lane: &Lane) -> PageRead {
        self.slab[lane.first_read as usize]
    }

    /// Removes and returns the first read of the lane.
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
