//! The reactor's io_uring: one owner, one submission per loop turn.
//!
//! Everything the data path does on drives and sockets is an entry in this ring. One
//! `io_uring_enter` hands over all new entries and waits for completions. Each entry carries a
//! [`Tag`] that leads its completion back to its submitter. Memory is named by [`Span`]s, which
//! stay mapped forever, so every submission here is a safe call.
//!
//! If the kernel lacks a feature, the ring uses a replacement and reports it in
//! [`Capabilities`].

mod sockets;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::memory::{Mapping, Span};
use crate::ring_message::Gather;
use crate::slots::SlotId;
use hemi_units::Size;
use sockets::{ImmediateSend, Receive, Sockets, Target};

/// Submission queue entries. A turn that needs more submits in between.
pub const SUBMISSION_ENTRIES: u32 = 1024;
/// Completion queue entries. Beyond them the kernel keeps completions in its own memory until
/// the next turn. None is lost.
pub const COMPLETION_ENTRIES: u32 = 8192;
/// Slots for registered memory.
pub const REGISTERED_BUFFERS_MAX: u32 = 80;

/// Size of a statx result in bytes.
pub const STAT_BYTES: usize = size_of::<libc::statx>();

/// Returns the file size in a statx result, or `None` if the file system did not fill it in.
pub fn stat_size(result: &[u8]) -> Option<u64> {
    let number = |at: usize, length: usize| result.get(at..at + length);
    let mask = number(std::mem::offset_of!(libc::statx, stx_mask), 4)?;
    let size = number(std::mem::offset_of!(libc::statx, stx_size), 8)?;
    let known = u32::from_ne_bytes(mask.try_into().ok()?) & libc::STATX_SIZE != 0;
    known.then_some(u64::from_ne_bytes(size.try_into().ok()?))
}

/// The submitter of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// The ring itself, for a wake-up from another thread.
    Wake = 0,
    /// A leg. The owner is its number in the ring's tags.
    Leg = 1,
    /// A listening socket. The owner is its number.
    Listener = 2,
    /// A client connection. The owner is its slot.
    Connection = 3,
    /// Nobody, because the outcome does not matter (cancellations, shutdowns).
    Nobody = 4,
    /// The block device.
    Device = 5,
    /// A disk of a virtual machine. The owner is its number.
    Guest = 6,
}

/// The 64-bit word that identifies an entry: source (4 bits), owner (12), slot and generation
/// (24 each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The kind of submitter.
    pub source: Source,
    /// The number of the submitter within its kind.
    pub owner: u16,
    /// The owner's own identifier of the operation.
    pub id: SlotId,
}

/// Longest time, in nanoseconds, that a wait ignores completions expected within the
/// submission. It is longer than a busy client takes for its next request, and too short to
/// matter to a send that was cut short.
const IMMEDIATE_PATIENCE: u64 = 200_000;
/// The kernel's `IORING_ENTER_GETEVENTS`.
const ENTER_GETEVENTS: u32 = 1;
/// Number of owners of one source: 2^12.
pub const OWNERS_MAX: u16 = 1 << 12;

impl Tag {
    /// The tag of an entry for whose outcome nobody waits.
    pub const NOBODY: Tag =
        Tag { source: Source::Nobody, owner: 0, id: SlotId { slot: 0, generation: 0 } };

    /// Returns the tag as the ring's word.
    pub fn to_bits(self) -> u64 {
        (self.source as u64) << 60 | u64::from(self.owner & 0xFFF) << 48 | self.id.to_bits()
    }

    /// Returns the tag in a word of the ring, or `None` if it is none.
    pub fn from_bits(bits: u64) -> Option<Tag> {
        let source = match bits >> 60 {
            0 => Source::Wake,
            1 => Source::Leg,
            2 => Source::Listener,
            3 => Source::Connection,
            4 => Source::Nobody,
            5 => Source::Device,
            6 => Source::Guest,
            _ => return None,
        };
        Some(Tag { source, owner: (bits >> 48 & 0xFFF) as u16, id: SlotId::from_bits(bits) })
    }
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The entry's tag.
    pub tag: Tag,
    /// Bytes or a descriptor if not negative, otherwise the negated errno.
    pub result: i32,
    /// True if the entry stays armed and more completions of it will come.
    pub more: bool,
}

impl Completion {
    /// Returns the result as the kernel's count or its errno.
    pub fn outcome(&self) -> Result<u32, rustix::io::Errno> {
        match u32::try_from(self.result) {
            Ok(count) => Ok(count),
            Err(_) => Err(rustix::io::Errno::from_raw_os_error(-self.result)),
        }
    }
}

/// A file of the ring's entries, by descriptor. The owner of the descriptor keeps it open until it hands it
/// to [`Ring::remove_file`].
///
/// Files are not registered with the ring: the kernel would keep all of them open until the last I/O of the
/// ring has ended. A hemi that is killed while one leg hangs would then keep its sockets and the locks of its
/// other legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFile {
    descriptor: RawFd,
}

impl RingFile {
    /// Names an open file.
    pub fn of(descriptor: &OwnedFd) -> RingFile {
        RingFile { descriptor: descriptor.as_raw_fd() }
    }

    fn target(self) -> types::Fd {
        types::Fd(self.descriptor)
    }
}

/// An error in setting up the ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refuses io_uring.
    #[error(
        "io_uring is not available: {0}. It needs Linux 5.11 or later, \
         sysctl kernel.io_uring_disabled=0 and, in a container, a seccomp profile that \
         allows io_uring_setup"
    )]
    Unavailable(#[source] io::Error),
    /// The process may not lock the memory of the rings (`RLIMIT_MEMLOCK`).
    #[error(
        "io_uring could not be set up: this user may lock at most {} of memory (RLIMIT_MEMLOCK), \
         which is too little. Raise it (ulimit -l unlimited in the shell, LimitMEMLOCK=infinity \
         in a unit file, --ulimit memlock=-1 for a container)",
        Size(*.limit)
    )]
    LockedMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// The kernel's io_uring lacks a feature that has no replacement.
    #[error("this kernel's io_uring lacks {0}; Linux 5.11 or later has it")]
    Missing(&'static str),
    /// A resource of the ring could not be created.
    #[error("could not set up the event loop: {0}")]
    Resource(#[from] io::Error),
}

/// The features of this kernel on which the speed of the data path depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Completions run while the reactor waits and do not interrupt it (Linux 6.1). Otherwise
    /// cooperative task running (5.19) or interrupts.
    pub deferred_task_run: bool,
    /// Completions do not interrupt the reactor (5.19).
    pub cooperative_task_run: bool,
    /// Bytes of memory registered. Where `RLIMIT_MEMLOCK` forbids it, plain reads and
    /// writes are used, which pin the pages for each I/O.
    pub registered_bytes: u64,
}

impl std::fmt::Display for Capabilities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tasks = match (self.deferred_task_run, self.cooperative_task_run) {
            (true, _) => "deferred",
            (false, true) => "cooperative",
            (false, false) => "interrupting",
        };
        let mebibytes = self.registered_bytes >> 20;
        write!(f, "completions {tasks}, {mebibytes} MiB of buffers registered")
    }
}

/// A handle that interrupts the reactor's wait from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the reactor's current or next wait return.
    pub fn wake(&self) {
        // A full counter (2^64 - 2 wake-ups unread) means the reactor is awake anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// The ring. It stays on the thread that created it.
pub struct Ring {
    uring: IoUring,
    capabilities: Capabilities,
    buffer_slots: u16,
    buffers_registered: u16,
    /// Entries that the kernel has not taken yet (out of memory), in order.
    backlog: VecDeque<squeue::Entry>,
    /// Files to be closed once no queued entry names them.
    leaving: Vec<OwnedFd>,
    /// Entries submitted since the last wait that complete within the submission, so that
    /// the wait does not return for these alone.
    immediate: usize,
    /// Number of times entries were handed to the kernel.
    submissions: u64,
    /// Receives that wait in poll(2), if [`Ring::poll_sockets`] was called.
    sockets: Option<Sockets>,
    /// Completions already taken from the kernel.
    taken: Vec<Completion>,
    wake_descriptor: Arc<OwnedFd>,
    wake_counter: Mapping,
}

impl Ring {
    /// Sets up the ring with every feature the kernel offers, and arms the wake-up.
    pub fn new() -> Result<Ring, RingError> {
        let (uring, capabilities) = build()?;
        require(&uring)?;
        raise_descriptor_limit();
        let buffer_slots = match uring.submitter().register_buffers_sparse(REGISTERED_BUFFERS_MAX) {
            Ok(()) => REGISTERED_BUFFERS_MAX as u16,
            Err(error) => {
                tracing::info!(%error, "no registered buffers: pages are pinned per I/O");
                0
            }
        };
        let wake_descriptor = Arc::new(
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
                .map_err(|errno| RingError::Resource(errno.into()))?,
        );
        let mut ring = Ring {
            uring,
            capabilities,
            buffer_slots,
            buffers_registered: 0,
            backlog: VecDeque::with_capacity(SUBMISSION_ENTRIES as usize),
            leaving: Vec::new(),
            immediate: 0,
            submissions: 0,
            sockets: None,
            taken: Vec::new(),
            wake_descriptor,
            wake_counter: Mapping::new(8, false)?,
        };
        ring.arm_wake();
        Ok(ring)
    }

    /// Returns the features that the kernel offers.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Lets receives wait in poll(2) while load is light (see [`sockets`]). Only for a loop
    /// that waits by nothing but [`Ring::wait`].
    ///
    /// # Errors
    /// An event counter could not be created.
    pub fn poll_sockets(&mut self) -> Result<(), RingError> {
        // Completions that interrupt the loop would interrupt poll(2) too.
        if self.capabilities.deferred_task_run {
            self.sockets = Some(Sockets::new()?);
            self.taken.reserve(COMPLETION_ENTRIES as usize);
        }
        Ok(())
    }

    /// Returns a handle with which other threads wake the reactor. Each wake-up arrives as a
    /// completion of [`Source::Wake`], after which the reactor calls [`Ring::arm_wake`].
    pub fn waker(&self) -> Waker {
        Waker(self.wake_descriptor.clone())
    }

    /// Arms the wake-up, so that the next one arrives as a completion.
    pub fn arm_wake(&mut self) {
        let tag = Tag { source: Source::Wake, ..Tag::NOBODY };
        let file = RingFile::of(&self.wake_descriptor);
        let counter = self.wake_counter.span(0, 8);
        self.read(file, counter, 0, tag);
    }

    /// Lets a file go: closes `descriptor`, at the latest when every entry queued so far has been handed to
    /// the kernel, since entries name files by descriptor. I/O in flight on it goes on and keeps the file open; a receive that waits in poll(2) ends.
    pub fn remove_file(&mut self, file: RingFile, descriptor: OwnedFd) {
        if let Some(sockets) = &mut self.sockets {
            sockets.remove_file(file, &mut self.taken);
        }
        self.leaving.push(descriptor);
        self.let_go();
    }

    /// Closes the files that leave, if the kernel has everything that was queued.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        self.refill();
        self.submit();
        if !self.backlog.is_empty() || !self.uring.submission().is_empty() {
            return;
        }
        self.leaving.clear();
    }

    /// Registers a mapping, so that I/O in it need not pin its pages each time. Returns false
    /// if that failed. I/O then works all the same.
    pub fn add_memory(&mut self, mapping: &mut Mapping) -> bool {
        if self.buffers_registered >= self.buffer_slots {
            return false;
        }
        let slot = self.buffers_registered;
        let vector =
            libc::iovec { iov_base: mapping.whole().address().cast(), iov_len: mapping.length() };
        // SAFETY: a mapping stays mapped until the process ends.
        let registered = unsafe {
            self.uring.submitter().register_buffers_update(u32::from(slot), &[vector], None)
        };
        match registered {
            Ok(()) => {
                mapping.set_registration(slot);
                self.buffers_registered += 1;
                self.capabilities.registered_bytes += mapping.length() as u64;
                true
            }
            Err(error) => {
                let bytes = mapping.length();
                tracing::warn!(
                    %error, bytes,
                    "buffers are not registered: each I/O pins its pages. \
                     Raise RLIMIT_MEMLOCK (LimitMEMLOCK= in a unit file) for full speed"
                );
                false
            }
        }
    }

    /// Reads into `span` from `offset`.
    pub fn read(&mut self, file: RingFile, span: Span, offset: u64, tag: Tag) {
        let (address, length) = (span.address(), span.length() as u32);
        let entry = match span.registered() {
            Some(buffer) => opcode::ReadFixed::new(file.target(), address, length, buffer)
                .offset(offset)
                .build(),
            None => opcode::Read::new(file.target(), address, length).offset(offset).build(),
        };
        self.push(entry, tag);
    }

    /// Writes `span` to `offset`. If `durable`, the data is on stable media at completion
    /// (RWF_DSYNC).
    pub fn write(&mut self, file: RingFile, span: Span, offset: u64, durable: bool, tag: Tag) {
        let (address, length) = (span.address(), span.length() as u32);
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let entry = match span.registered() {
            Some(buffer) => {
                opcode::WriteFixed::new(file.target(), address.cast_const(), length, buffer)
                    .offset(offset)
                    .rw_flags(flags as _)
                    .build()
            }
            None => opcode::Write::new(file.target(), address.cast_const(), length)
                .offset(offset)
                .rw_flags(flags as _)
                .build(),
        };
        self.push(entry, tag);
    }

    /// Makes every completed write durable (fdatasync).
    pub fn flush(&mut self, file: RingFile, tag: Tag) {
        let entry = opcode::Fsync::new(file.target()).flags(types::FsyncFlags::DATASYNC).build();
        self.push(entry, tag);
    }

    /// Calls fallocate(2) with `mode`.
    pub fn fallocate(&mut self, file: RingFile, mode: i32, offset: u64, length: u64, tag: Tag) {
        let entry = opcode::Fallocate::new(file.target(), length).offset(offset).mode(mode).build();
        self.push(entry, tag);
    }

    /// Receives into `span` the bytes available, at least one unless the peer is done.
    pub fn receive(&mut self, file: RingFile, span: Span, tag: Tag) {
        self.start(Receive { file, target: Target::Span(span), tag });
    }

    /// Receives into the spans of `gather`, in order.
    pub fn receive_gathered(&mut self, file: RingFile, gather: &mut Gather, tag: Tag) {
        self.start(Receive { file, target: Target::Message(gather.message()), tag });
    }

    /// Starts a receive in poll(2) or in the ring, depending on load.
    fn start(&mut self, receive: Receive) {
        let Ring { sockets, uring, .. } = self;
        let for_ring = match sockets {
            Some(sockets) => match sockets.are_polled(uring) {
                true => sockets.add(receive),
                false => Some(receive),
            },
            None => Some(receive),
        };
        if let Some(receive) = for_ring {
            self.push_receive(receive);
        }
    }

    fn push_receive(&mut self, receive: Receive) {
        let Receive { file, target, tag } = receive;
        let entry = match target {
            Target::Span(span) => {
                opcode::Recv::new(file.target(), span.address(), span.length() as u32).build()
            }
            Target::Message(message) => opcode::RecvMsg::new(file.target(), message).build(),
        };
        self.push(entry, tag);
    }

    /// Sends the spans of `gather` in order. The completion's result is the number of bytes
    /// sent. With `immediate` the entry completes within the submission, with the bytes the
    /// socket took at once or with EAGAIN. Otherwise it waits until the socket takes some.
    pub fn send_gathered(
        &mut self,
        file: RingFile,
        gather: &mut Gather,
        immediate: bool,
        tag: Tag,
    ) {
        let message = gather.message().cast_const();
        if !immediate {
            return self.push_send(file, message, libc::MSG_NOSIGNAL, tag);
        }
        let send = ImmediateSend { file, message, tag };
        let for_ring = match &mut self.sockets {
            Some(sockets) => sockets.add_send(send),
            None => Some(send),
        };
        if let Some(send) = for_ring {
            self.push_immediate(send);
        }
    }

    fn push_immediate(&mut self, send: ImmediateSend) {
        self.immediate += 1;
        self.push_send(send.file, send.message, ImmediateSend::FLAGS, send.tag);
    }

    fn push_send(&mut self, file: RingFile, message: *const libc::msghdr, flags: i32, tag: Tag) {
        let entry = opcode::SendMsg::new(file.target(), message).flags(flags as u32).build();
        self.push(entry, tag);
    }

    /// Puts the sends kept for the end of the turn into the queue.
    fn push_sends(&mut self) {
        while let Some(send) = self.sockets.as_mut().and_then(Sockets::pop_send) {
            self.push_immediate(send);
        }
    }

    /// Accepts one connection. The completion's result is its descriptor.
    pub fn accept(&mut self, file: RingFile, tag: Tag) {
        let entry = opcode::Accept::new(file.target(), std::ptr::null_mut(), std::ptr::null_mut())
            .flags(libc::SOCK_CLOEXEC)
            .build();
        self.push(entry, tag);
    }

    /// Connects a socket to `address`, which the ring reads at the latest in [`Ring::wait`].
    pub fn connect(&mut self, file: RingFile, address: &'static SocketAddress, tag: Tag) {
        let (pointer, length) = address.raw();
        let entry = opcode::Connect::new(file.target(), pointer, length).build();
        self.push(entry, tag);
    }

    /// Asks for a file's size: statx(2) into `span`, at least [`STAT_BYTES`] long. Needs the
    /// descriptor itself, which the caller keeps open until the completion.
    pub fn stat(&mut self, descriptor: &OwnedFd, span: Span, tag: Tag) {
        assert!(span.length() >= STAT_BYTES, "room for a statx of {STAT_BYTES} bytes");
        let fd = types::Fd(descriptor.as_raw_fd());
        let entry = opcode::Statx::new(fd, c"".as_ptr(), span.address().cast())
            .flags(libc::AT_EMPTY_PATH)
            .mask(libc::STATX_SIZE)
            .build();
        self.push(entry, tag);
    }

    /// Issues a command of a device's own (`IORING_OP_URING_CMD`), which touches no memory of ours.
    pub fn command(&mut self, file: RingFile, operation: u32, argument: [u8; 16], tag: Tag) {
        let entry = opcode::UringCmd16::new(file.target(), operation).cmd(argument).build();
        self.push(entry, tag);
    }

    /// Watches an event counter without reading it. Each write to the counter makes a
    /// completion. The entry stays armed while completions say that more will come (Linux 5.13,
    /// EINVAL before).
    pub fn watch_readable(&mut self, file: RingFile, tag: Tag) {
        let entry = opcode::PollAdd::new(file.target(), libc::POLLIN as u32).multi(true).build();
        self.push(entry, tag);
    }

    /// Adds the number in `span` to the event counter, usually during the submission.
    pub fn signal(&mut self, file: RingFile, span: Span, tag: Tag) {
        self.write(file, span, 0, false, tag);
        self.immediate += 1;
    }

    /// Waits until the socket hangs up or fails, and ignores everything else on it.
    pub fn watch_hangup(&mut self, file: RingFile, tag: Tag) {
        let entry = opcode::PollAdd::new(file.target(), libc::POLLRDHUP as u32).build();
        self.push(entry, tag);
    }

    /// Asks the kernel to end the entry with this tag soon. Its completion still comes, and
    /// only then has the kernel let go of its memory.
    pub fn cancel(&mut self, tag: Tag) {
        if let Some(sockets) = &mut self.sockets
            && sockets.cancel(tag, &mut self.taken)
        {
            return;
        }
        self.push(opcode::AsyncCancel::new(tag.to_bits()).build(), Tag::NOBODY);
    }

    /// Queues an entry. Submits first if the queue is full.
    fn push(&mut self, entry: squeue::Entry, tag: Tag) {
        let entry = entry.user_data(tag.to_bits());
        if self.backlog.is_empty() {
            // SAFETY: an entry's memory is a span (mapped forever), a gather (never freed) or a
            // leaked address. Its file is open, or its slot is merely empty (EBADF).
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit_queue();
            // SAFETY: as above.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    /// Moves entries from the backlog into the queue while it has space.
    fn refill(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.uring.submission().push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Returns a number that changes whenever queued entries are handed to the kernel. While it
    /// stays the same, the kernel has not read an entry queued since, nor the memory it points
    /// to.
    pub fn submissions(&self) -> u64 {
        self.submissions
    }

    /// Hands queued entries to the kernel without waiting. Entries that it cannot take for lack
    /// of memory stay queued for the next turn.
    pub fn submit(&mut self) {
        self.push_sends();
        self.submit_queue();
    }

    fn submit_queue(&mut self) {
        self.submissions += 1;
        if let Err(error) = self.uring.submit() {
            tracing::debug!(%error, "submission put off");
        }
    }

    /// Submits everything queued and waits at most `timeout` nanoseconds for a completion.
    /// Returns only errors that will not go away by themselves.
    pub fn wait(&mut self, timeout: Option<u64>) -> io::Result<()> {
        self.let_go();
        let are_polled = self.settle_sockets();
        if !self.backlog.is_empty() {
            self.refill();
        }
        if !self.taken.is_empty() {
            return self.poll();
        }
        if are_polled {
            return self.wait_for_sockets(timeout);
        }
        // With a backlog left the queue is full, and the rest must not wait long.
        let timeout = if self.backlog.is_empty() { timeout } else { Some(0) };
        let want = self.immediate + 1;
        // A send that found too little space, or none, is one of those. Its rest has to be sent
        // whether or not anything else happens.
        let timeout = match self.immediate {
            0 => timeout,
            _ => Some(timeout.map_or(IMMEDIATE_PATIENCE, |time| time.min(IMMEDIATE_PATIENCE))),
        };
        self.immediate = 0;
        self.submissions += 1;
        let submitted = match timeout {
            Some(nanoseconds) => {
                let time = types::Timespec::new()
                    .sec(nanoseconds / 1_000_000_000)
                    .nsec((nanoseconds % 1_000_000_000) as u32);
                let arguments = types::SubmitArgs::new().timespec(&time);
                self.uring.submitter().submit_with_args(want, &arguments)
            }
            None => self.uring.submitter().submit_and_wait(want),
        };
        match submitted {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Timeout, a signal, completions to be reaped first, or temporarily out of
                // memory.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Returns true if receives wait in poll(2). If load has become heavy, hands them to the
    /// ring.
    fn settle_sockets(&mut self) -> bool {
        let Ring { sockets: Some(sockets), uring, .. } = self else { return false };
        if !sockets.is_empty() && sockets.are_polled(uring) {
            return true;
        }
        self.push_sends();
        while let Some(receive) = self.sockets.as_mut().and_then(Sockets::pop) {
            self.push_receive(receive);
        }
        false
    }

    /// Waits like [`Ring::wait`], while receives wait in poll(2).
    fn wait_for_sockets(&mut self, timeout: Option<u64>) -> io::Result<()> {
        let mut taken = std::mem::take(&mut self.taken);
        let mut expected = self.immediate;
        if let Some(sockets) = &mut self.sockets {
            expected += sockets.perform_sends(&mut taken);
        }
        // Also if nothing is queued: the bell rings only for the first of the completions that the
        // kernel puts off, and whoever registers it late has missed that.
        self.poll()?;
        self.take(&mut taken);
        let timeout = match (self.backlog.is_empty(), expected) {
            (false, _) => Some(0),
            (true, 0) => timeout,
            (true, _) => {
                Some(timeout.map_or(IMMEDIATE_PATIENCE, |time| time.min(IMMEDIATE_PATIENCE)))
            }
        };
        let has_rung = match &mut self.sockets {
            Some(sockets) if taken.len() <= expected => sockets.wait(timeout, &mut taken),
            _ => Ok(false),
        };
        self.taken = taken;
        if has_rung? { self.poll() } else { Ok(()) }
    }

    /// Submits everything queued and lets ready completions arrive, without waiting for any.
    /// For a loop that has no time to sleep. Returns only errors that will not go away by
    /// themselves.
    pub fn poll(&mut self) -> io::Result<()> {
        self.push_sends();
        self.let_go();
        if !self.backlog.is_empty() {
            self.refill();
        }
        self.immediate = 0;
        self.submissions += 1;
        let queued = self.uring.submission().len() as u32;
        // SAFETY: the arguments are those of `submit`, whose entries `push` vouches for. The
        // flag only has deferred completions run (the crate sets it only when it waits).
        let submitted = unsafe {
            self.uring.submitter().enter::<libc::sigset_t>(queued, 0, ENTER_GETEVENTS, None)
        };
        match submitted {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Appends every completion that has arrived to `into`.
    pub fn completions(&mut self, into: &mut Vec<Completion>) {
        into.append(&mut self.taken);
        self.take(into);
        if let Some(sockets) = &mut self.sockets {
            sockets.count(into.len());
        }
    }

    fn take(&mut self, into: &mut Vec<Completion>) {
        for entry in self.uring.completion() {
            let Some(tag) = Tag::from_bits(entry.user_data()) else {
                tracing::error!(word = entry.user_data(), "completion of an unknown entry");
                continue;
            };
            if tag.source != Source::Nobody {
                let more = cqueue::more(entry.flags());
                into.push(Completion { tag, result: entry.result(), more });
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

/// A socket address in the kernel's layout, for [`Ring::connect`].
#[derive(Debug)]
pub struct SocketAddress(rustix::net::SocketAddrAny);

impl SocketAddress {
    /// Returns the address of a peer. It is leaked (about 130 bytes), because an attempt to
    /// connect can outlive everything. So make one per peer and not one per attempt.
    pub fn leak(address: rustix::net::SocketAddrAny) -> &'static SocketAddress {
        Box::leak(Box::new(SocketAddress(address)))
    }

    fn raw(&'static self) -> (*const libc::sockaddr, u32) {
        (self.0.as_ptr().cast(), self.0.addr_len())
    }
}

/// Lets the process have as many descriptors as it may. The soft limit is low for the sake of select(2),
/// which nothing here uses.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Tries set-ups from the best to the plainest.
fn build() -> Result<(IoUring, Capabilities), RingError> {
    let base = || {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETION_ENTRIES).setup_clamp().dontfork();
        builder
    };
    let deferred = base()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_submit_all()
        .build(SUBMISSION_ENTRIES);
    if let Ok(uring) = deferred {
        let capabilities = Capabilities {
            deferred_task_run: true,
            cooperative_task_run: true,
            ..Capabilities::default()
        };
        return Ok((uring, capabilities));
    }
    let cooperative = base().setup_coop_taskrun().setup_submit_all().build(SUBMISSION_ENTRIES);
    if let Ok(uring) = cooperative {
        let capabilities = Capabilities { cooperative_task_run: true, ..Capabilities::default() };
        return Ok((uring, capabilities));
    }
    let uring = base()
        .build(SUBMISSION_ENTRIES)
        .map_err(|error| refused(error, getrlimit(Resource::Memlock).current))?;
    Ok((uring, Capabilities::default()))
}

/// Returns the error for a refused io_uring. `lockable` is the limit of locked memory in bytes,
/// or `None` if there is no limit. Kernels that count the rings' memory against the limit
/// answer ENOMEM.
fn refused(error: io::Error, lockable: Option<u64>) -> RingError {
    match lockable {
        Some(limit) if error.raw_os_error() == Some(libc::ENOMEM) => {
            RingError::LockedMemory { limit }
        }
        _ => RingError::Unavailable(error),
    }
}

/// Refuses a kernel that lacks a feature without a replacement.
fn require(uring: &IoUring) -> Result<(), RingError> {
    let parameters = uring.params();
    if !parameters.is_feature_ext_arg() {
        return Err(RingError::Missing("waiting with a timeout (IORING_FEAT_EXT_ARG)"));
    }
    if !parameters.is_feature_nodrop() {
        return Err(RingError::Missing("lossless completions (IORING_FEAT_NODROP)"));
    }
    if !parameters.is_feature_fast_poll() {
        return Err(RingError::Missing("polled sockets (IORING_FEAT_FAST_POLL)"));
    }
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe).map_err(RingError::Resource)?;
    let needed: [(u8, &'static str); 11] = [
        (opcode::Read::CODE, "READ"),
        (opcode::Write::CODE, "WRITE"),
        (opcode::Fsync::CODE, "FSYNC"),
        (opcode::Fallocate::CODE, "FALLOCATE"),
        (opcode::SendMsg::CODE, "SENDMSG"),
        (opcode::RecvMsg::CODE, "RECVMSG"),
        (opcode::Recv::CODE, "RECV"),
        (opcode::Accept::CODE, "ACCEPT"),
        (opcode::Connect::CODE, "CONNECT"),
        (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
        (opcode::Statx::CODE, "STATX"),
    ];
    match needed.iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, name)) => Err(RingError::Missing(name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
