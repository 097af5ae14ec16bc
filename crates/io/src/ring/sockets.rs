//! Receives that wait in poll(2) instead of in the ring, and sends that go past the ring.
//!
//! Under light load a server mostly sleeps until one client sends. The kernel wakes a task that
//! sleeps in poll(2) on the processor of the client, which has just written and is about to
//! sleep itself. It wakes a task that sleeps in io_uring on another processor, which mostly has
//! to be woken first. On small virtual machines that takes longer than the request.
//!
//! A send that completes within the submission would ring the bell by which poll(2) learns of
//! completions, and so end the next wait for nothing. One system call sends it without.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use io_uring::IoUring;
use rustix::event::EventfdFlags;

use super::{Completion, RingFile, Tag};
use crate::memory::Span;

/// Maximum number of receives that wait in poll(2). It looks at each of them, and a server with
/// more busy clients sleeps little.
pub(super) const SOCKETS_MAX: usize = 8;
/// Average number of completions per wait at which load becomes heavy. Receives then go to the
/// ring, where one system call serves all of them.
const HEAVY: u32 = 4;
/// Average number of completions per wait below which load is light again.
const LIGHT: u32 = 2;

/// The memory that a receive fills.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Span(Span),
    /// The header of a gather list, which is never freed.
    Message(*mut libc::msghdr),
}

/// A receive that has not begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) file: RingFile,
    pub(super) target: Target,
    pub(super) tag: Tag,
}

impl Receive {
    /// Receives the bytes available. Returns `None` if there are none.
    fn attempt(&self) -> Option<i32> {
        let descriptor = self.file.descriptor;
        let flags = libc::MSG_DONTWAIT;
        let count = match self.target {
            // SAFETY: a span stays mapped and belongs to the receiver until the completion.
            Target::Span(span) => unsafe {
                libc::recv(descriptor, span.address().cast(), span.length(), flags)
            },
            // SAFETY: the list and its spans stay, and belong to the receiver until the
            // completion.
            Target::Message(message) => unsafe { libc::recvmsg(descriptor, message, flags) },
        };
        Some(result_of(count)).filter(|result| *result != -libc::EAGAIN)
    }

    fn ended(&self, result: i32) -> Completion {
        Completion { tag: self.tag, result, more: false }
    }
}

/// A send that completes at once, with the bytes that the socket takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImmediateSend {
    pub(super) file: RingFile,
    /// The header of a gather list, which is never freed.
    pub(super) message: *const libc::msghdr,
    pub(super) tag: Tag,
}

impl ImmediateSend {
    /// The flags of sendmsg(2) that make a send complete at once.
    pub(super) const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

    /// Sends the bytes that the socket takes. Returns the completion, and true if there was
    /// space for all of them.
    fn perform(&self) -> (Completion, bool) {
        // SAFETY: the list and its spans stay, and belong to the send until the completion.
        let count = unsafe { libc::sendmsg(self.file.descriptor, self.message, Self::FLAGS) };
        let result = result_of(count);
        let is_whole = usize::try_from(result).is_ok_and(|count| count == self.length());
        (Completion { tag: self.tag, result, more: false }, is_whole)
    }

    fn length(&self) -> usize {
        // SAFETY: as in `perform`. The header names as many pieces as it counts.
        let pieces = unsafe {
            let header = &*self.message;
            std::slice::from_raw_parts(header.msg_iov.cast_const(), header.msg_iovlen as _)
        };
        pieces.iter().map(|piece| piece.iov_len).sum()
    }
}

/// Returns what a system call on a socket returned as a completion has it: the count, or the
/// negated errno. A call that a signal ended has found the socket not ready.
fn result_of(count: isize) -> i32 {
    if count >= 0 {
        return i32::try_from(count).unwrap_or(i32::MAX);
    }
    match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
        libc::EINTR => -libc::EAGAIN,
        error => -error,
    }
}

/// The receives that wait in poll(2), oldest first, and the sends of a turn.
#[derive(Debug)]
pub(super) struct Sockets {
    receives: Vec<Receive>,
    sends: Vec<ImmediateSend>,
    /// The bell, then an entry for each receive.
    polled: Vec<libc::pollfd>,
    /// The event counter that the ring adds to at each completion. poll(2) on the ring itself
    /// wakes up late: if completions are deferred, the kernel signals it after an RCU grace
    /// period.
    bell: OwnedFd,
    is_registered: bool,
    load: Load,
}

// SAFETY: the pointers lead to gather lists, which are `Send`.
unsafe impl Send for Sockets {}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut polled = Vec::with_capacity(SOCKETS_MAX + 1);
        polled.push(libc::pollfd { fd: bell.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        Ok(Sockets {
            receives: Vec::with_capacity(SOCKETS_MAX),
            sends: Vec::with_capacity(SOCKETS_MAX),
            polled,
            bell,
            is_registered: false,
            load: Load::default(),
        })
    }

    /// Counts the completions that ended a wait.
    pub(super) fn count(&mut self, completions: usize) {
        self.load.count(completions);
    }

    /// Returns true if receives wait here rather than in the ring. Once they no longer do, the
    /// ring stops ringing the bell, and the caller takes out the receives that are left.
    pub(super) fn are_polled(&mut self, uring: &IoUring) -> bool {
        if self.load.is_light == self.is_registered {
            return self.is_registered;
        }
        let submitter = uring.submitter();
        let outcome = match self.load.is_light {
            true => submitter.register_eventfd(self.bell.as_raw_fd()),
            false => submitter.unregister_eventfd(),
        };
        match outcome {
            Ok(()) => self.is_registered = self.load.is_light,
            Err(error) => tracing::debug!(%error, "the ring's event counter"),
        }
        self.load.is_light && self.is_registered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }

    /// Adds a receive. Returns the one that has waited longest if there is no space for both.
    pub(super) fn add(&mut self, receive: Receive) -> Option<Receive> {
        let full = self.receives.len() == SOCKETS_MAX;
        let oldest = full.then(|| self.receives.remove(0));
        self.receives.push(receive);
        oldest
    }

    /// Keeps a send for the end of the turn. Returns it if it has to go through the ring,
    /// because load is heavy or there are many.
    pub(super) fn add_send(&mut self, send: ImmediateSend) -> Option<ImmediateSend> {
        if !self.is_registered || self.sends.len() == SOCKETS_MAX {
            return Some(send);
        }
        self.sends.push(send);
        None
    }

    /// Removes and returns a send that was kept.
    pub(super) fn pop_send(&mut self) -> Option<ImmediateSend> {
        self.sends.pop()
    }

    /// Performs the sends that were kept and appends their completions to `into`. Returns the
    /// number of those for which the socket had space.
    pub(super) fn perform_sends(&mut self, into: &mut Vec<Completion>) -> usize {
        let mut whole = 0;
        for send in self.sends.drain(..) {
            let (completion, is_whole) = send.perform();
            into.push(completion);
            whole += usize::from(is_whole);
        }
        whole
    }

    /// Removes and returns a receive that waits here.
    pub(super) fn pop(&mut self) -> Option<Receive> {
        self.receives.pop()
    }

    /// Ends the receive with this tag as cancelled. Returns false if it does not wait here.
    pub(super) fn cancel(&mut self, tag: Tag, into: &mut Vec<Completion>) -> bool {
        self.end(|receive| receive.tag == tag, into)
    }

    /// Ends the receives from a file that is about to be closed, as cancelled.
    pub(super) fn remove_file(&mut self, file: RingFile, into: &mut Vec<Completion>) {
        self.end(|receive| receive.file == file, into);
    }

    fn end(&mut self, which: impl Fn(&Receive) -> bool, into: &mut Vec<Completion>) -> bool {
        let before = self.receives.len();
        self.receives.retain(|receive| {
            let ends = which(receive);
            if ends {
                into.push(receive.ended(-libc::ECANCELED));
            }
            !ends
        });
        self.receives.len() < before
    }

    /// Waits at most `timeout` nanoseconds until the ring or one of the receives is ready.
    /// Appends the receives that ended to `into`. Returns true if the ring is ready, and after
    /// a signal.
    pub(super) fn wait(
        &mut self,
        timeout: Option<u64>,
        into: &mut Vec<Completion>,
    ) -> io::Result<bool> {
        self.polled.truncate(1);
        self.polled.extend(self.receives.iter().map(|receive| libc::pollfd {
            fd: receive.file.descriptor,
            events: libc::POLLIN | libc::POLLRDHUP,
            revents: 0,
        }));
        let time = timeout.map(|nanoseconds| libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: `polled` has `count` entries. The time is this function's own or null.
        let found = unsafe { libc::ppoll(self.polled.as_mut_ptr(), count, time, std::ptr::null()) };
        if found < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(true),
                _ => Err(error),
            };
        }
        let mut index = 0;
        let polled = &self.polled[1..];
        self.receives.retain(|receive| {
            let is_ready = polled[index].revents != 0;
            index += 1;
            match if is_ready { receive.attempt() } else { None } {
                Some(result) => {
                    into.push(receive.ended(result));
                    false
                }
                None => true,
            }
        });
        let has_rung = self.polled[0].revents != 0;
        if has_rung {
            // It may be empty. The read only has to silence it.
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
        Ok(has_rung)
    }
}

/// A moving average of completions per wait, over about sixteen waits.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The average, in 256ths.
    average: u32,
    is_light: bool,
}

impl Default for Load {
    fn default() -> Load {
        Load { average: 0, is_light: true }
    }
}

impl Load {
    fn count(&mut self, completions: usize) {
        let completions = completions.min(256) as u32 * 256;
        self.average = self.average - self.average / 16 + completions / 16;
        let limit = if self.is_light { HEAVY } else { LIGHT };
        self.is_light = self.average < limit * 256;
    }
}
