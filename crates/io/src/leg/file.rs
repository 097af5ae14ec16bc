//! Files and block devices through the ring.
//!
//! [`FileIo`] drives any number of devices and handles whatever can happen to a single I/O. It
//! continues short transfers, repeats interrupted ones, makes zeros by the fastest means the
//! device has, and reports a write as durable only once it is. [`FileLeg`] is a leg on one
//! device.

use std::io;
use std::sync::{Mutex, PoisonError};

use hemi_engine::identifiers::IoId;
use hemi_engine::io::{LegError, LegEvent, LegOperation};
use hemi_units::{Instant, SECOND};
use rustix::io::Errno;

use super::device::{Device, DeviceKind};
use super::{LegContext, ResolvedIo, leg_error};
use crate::memory::{Mapping, Span};
use crate::ring::{Completion, Ring, RingFile, STAT_BYTES, stat_size};
use crate::slots::{SlotId, SlotTable};

/// I/Os a leg's table holds before it grows, above the engine's default window.
const TABLE_CAPACITY: usize = 256;
/// Bytes per write where zeros have to be written.
const ZERO_CHUNK_BYTES: u64 = 1 << 20;
/// Interval of the check for truncated files, in nanoseconds.
const SIZE_CHECK_INTERVAL: u64 = SECOND;
/// Number of times an interrupted or temporarily refused I/O is repeated.
const RETRIES_MAX: u8 = 8;

/// A task for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Read,
    Write {
        durable: bool,
    },
    Zero {
        may_unmap: bool,
        durable: bool,
    },
    Flush,
    /// Checks that the file still has its size.
    CheckSize,
}

impl Task {
    pub(super) fn of(operation: LegOperation) -> Task {
        match operation {
            LegOperation::Read => Task::Read,
            LegOperation::Write { fua } => Task::Write { durable: fua },
            LegOperation::WriteZeroes { may_unmap, fua } => Task::Zero { may_unmap, durable: fua },
            LegOperation::Flush => Task::Flush,
            LegOperation::WriteMetadata => Task::Write { durable: true },
        }
    }
}

/// The kind of ring entry that an operation has in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Transfer,
    PunchHole,
    ZeroRange,
    WriteZeroes,
    Flush,
    Stat,
}

/// An I/O on one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceIo {
    /// The caller's number of the I/O, returned at its end.
    pub(super) token: u64,
    /// Index of the device.
    pub(super) device: u8,
    pub(super) task: Task,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) data: Option<Span>,
}

#[derive(Debug)]
struct Operation {
    io: DeviceIo,
    step: Step,
    done: u64,
    retries: u8,
}

/// The end of a [`DeviceIo`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) token: u64,
    pub(super) result: Result<(), LegError>,
    /// The system's error, if it gave one.
    pub(super) errno: Option<Errno>,
}

#[derive(Debug)]
struct Member {
    device: Device,
    file: RingFile,
    gone: bool,
    /// True while a size check is in flight.
    checking: bool,
}

/// Devices and the I/O in flight on them.
#[derive(Debug)]
pub(super) struct FileIo {
    members: Vec<Member>,
    operations: SlotTable<Operation>,
    zeros: Span,
    /// Memory for the results of size checks, one piece per member.
    stats: Mapping,
    next_check: Instant,
}

impl FileIo {
    pub(super) fn new(devices: Vec<Device>) -> io::Result<FileIo> {
        let attach = |device: Device| {
            let file = RingFile::of(&device.descriptor);
            Member { device, file, gone: false, checking: false }
        };
        let files = devices.iter().any(|device| device.kind == DeviceKind::Regular);
        Ok(FileIo {
            zeros: zeros()?,
            stats: Mapping::new(devices.len() * STAT_BYTES, false)?,
            next_check: if files { Instant(0) } else { Instant::NEVER },
            members: devices.into_iter().map(attach).collect(),
            operations: SlotTable::with_capacity(TABLE_CAPACITY),
        })
    }

    pub(super) fn submit(&mut self, cx: &mut LegContext<'_>, io: DeviceIo) {
        let device = &self.members[usize::from(io.device)].device;
        let step = match io.task {
            Task::Read | Task::Write { .. } => Step::Transfer,
            Task::Zero { may_unmap: true, .. } if device.punch => Step::PunchHole,
            Task::Zero { .. } if device.zero_range => Step::ZeroRange,
            Task::Zero { .. } => Step::WriteZeroes,
            Task::Flush => Step::Flush,
            Task::CheckSize => Step::Stat,
        };
        let id = self.operations.insert(Operation { io, step, done: 0, retries: 0 });
        self.issue(cx, id);
    }

    /// Queues the ring entry for an operation's current step.
    fn issue(&mut self, cx: &mut LegContext<'_>, id: SlotId) {
        let tag = cx.tag(id);
        let Some(operation) = self.operations.get(id) else { return };
        let Operation { io, step, done, .. } = operation;
        let file = self.members[usize::from(io.device)].file;
        let offset = io.offset + done;
        let rest = io.length - done;
        match (step, io.task, io.data) {
            (Step::Transfer, Task::Read, Some(data)) => {
                cx.ring.read(file, data.slice(*done as usize, rest as usize), offset, tag);
            }
            (Step::Transfer, task, Some(data)) => {
                let durable = matches!(task, Task::Write { durable: true });
                let data = data.slice(*done as usize, rest as usize);
                cx.ring.write(file, data, offset, durable, tag);
            }
            (Step::WriteZeroes, task, _) => {
                let durable = matches!(task, Task::Zero { durable: true, .. });
                let zeros = self.zeros.slice(0, rest.min(ZERO_CHUNK_BYTES) as usize);
                cx.ring.write(file, zeros, offset, durable, tag);
            }
            (Step::PunchHole, ..) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                cx.ring.fallocate(file, mode, offset, rest, tag);
            }
            (Step::ZeroRange, ..) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                cx.ring.fallocate(file, mode, offset, rest, tag);
            }
            (Step::Stat, ..) => {
                let span = self.stats.span(usize::from(io.device) * STAT_BYTES, STAT_BYTES);
                let member = &self.members[usize::from(io.device)];
                cx.ring.stat(&member.device.descriptor, span, tag);
            }
            (Step::Flush | Step::Transfer, ..) => cx.ring.flush(file, tag),
        }
    }

    /// Handles a completion. Returns the I/O if this ended it.
    pub(super) fn completion(
        &mut self,
        cx: &mut LegContext<'_>,
        completion: Completion,
    ) -> Option<Ended> {
        let id = completion.tag.id;
        let operation = self.operations.get_mut(id)?;
        if operation.step == Step::Stat {
            let device = operation.io.device;
            self.operations.remove(id);
            self.check_size(cx, device, completion);
            return None;
        }
        let member = &mut self.members[usize::from(operation.io.device)];
        let next = match completion.outcome() {
            Ok(count) => operation.advance(u64::from(count), u64::from(member.device.block)),
            Err(errno) => operation.fail(errno, &mut member.device),
        };
        match next {
            Next::Continue => {
                self.issue(cx, id);
                None
            }
            Next::End(result) => {
                if let Err(error) = result {
                    let path = member.device.path().display();
                    let Operation { io: DeviceIo { task, offset, .. }, done, .. } = operation;
                    let position = *offset + *done;
                    let result = completion.result;
                    tracing::debug!(%path, ?task, position, result, "a leg's I/O failed");
                    if error == LegError::Gone && !member.gone {
                        member.gone = true;
                        cx.event(LegEvent::Gone { removed: true });
                    }
                }
                let token = operation.io.token;
                self.operations.remove(id);
                let errno = completion.outcome().err().filter(|_| result.is_err());
                Some(Ended { token, result, errno })
            }
        }
    }

    /// Returns the time at which [`FileIo::tick`] is due.
    pub(super) fn deadline(&self) -> Instant {
        self.next_check
    }

    /// Starts a check that files still have their size.
    pub(super) fn tick(&mut self, cx: &mut LegContext<'_>) {
        if self.next_check > cx.now {
            return;
        }
        self.next_check = cx.now + SIZE_CHECK_INTERVAL;
        for device in 0..self.members.len() as u8 {
            let member = &mut self.members[usize::from(device)];
            if member.device.kind == DeviceKind::Regular && !member.checking && !member.gone {
                member.checking = true;
                let task = Task::CheckSize;
                let io = DeviceIo { token: 0, device, task, offset: 0, length: 0, data: None };
                self.submit(cx, io);
            }
        }
    }

    /// Marks a truncated file as gone. It must not be used: a write past its end would extend
    /// it again, with a hole where data was.
    fn check_size(&mut self, cx: &mut LegContext<'_>, device: u8, completion: Completion) {
        let member = &mut self.members[usize::from(device)];
        member.checking = false;
        let span = self.stats.span(usize::from(device) * STAT_BYTES, STAT_BYTES);
        // SAFETY: the answer has arrived, and the next check is queued only after this.
        let answer = unsafe { span.bytes() };
        let size = completion.outcome().ok().and_then(|_| stat_size(answer));
        let Some(size) = size.filter(|size| *size < member.device.size) else { return };
        if !member.gone {
            member.gone = true;
            let path = member.device.path().display();
            let expected = member.device.size;
            tracing::error!(%path, size, expected, "the file was cut short while in use");
            cx.event(LegEvent::Gone { removed: true });
        }
    }

    pub(super) fn detach(self, ring: &mut Ring) {
        for member in self.members {
            // No I/O is in flight. The kernel may keep the description that carries the lock a
            // little longer than the ring lives, and a successor should not have to wait for
            // that.
            member.device.unlock();
            ring.remove_file(member.file, member.device.descriptor);
        }
    }
}

/// The action that follows a completion.
enum Next {
    Continue,
    End(Result<(), LegError>),
}

impl Operation {
    /// Records that the kernel did `count` bytes of the step (zero for steps that are all or
    /// nothing).
    fn advance(&mut self, count: u64, block: u64) -> Next {
        let (end, durable) = match (self.step, self.io.task) {
            (Step::Flush, _) => return Next::End(Ok(())),
            (Step::PunchHole | Step::ZeroRange, Task::Zero { durable, .. }) => {
                (self.io.length, durable)
            }
            _ => (self.done + count, false),
        };
        // The rest must begin at a whole block. No progress means that the file ends here:
        // someone else has truncated it.
        let end = if end == self.io.length { end } else { end / block * block };
        if end == self.done && end < self.io.length {
            return Next::End(Err(LegError::Media));
        }
        self.done = end;
        if end < self.io.length {
            return Next::Continue;
        }
        if durable {
            self.step = Step::Flush;
            return Next::Continue;
        }
        Next::End(Ok(()))
    }

    /// Handles a refusal by the kernel: repeats the step, takes another way or gives up.
    fn fail(&mut self, errno: Errno, device: &mut Device) -> Next {
        match (errno, self.step) {
            (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL, Step::PunchHole) => {
                device.punch = false;
                self.step = if device.zero_range { Step::ZeroRange } else { Step::WriteZeroes };
                Next::Continue
            }
            (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL, Step::ZeroRange) => {
                device.zero_range = false;
                self.step = Step::WriteZeroes;
                Next::Continue
            }
            (Errno::INTR | Errno::AGAIN, _) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                Next::Continue
            }
            _ => Next::End(Err(leg_error(errno))),
        }
    }
}

/// Returns a mebibyte of zeros to write from. All legs share it, and nobody writes to it.
pub(super) fn zeros() -> io::Result<Span> {
    static ZEROS: Mutex<Option<Mapping>> = Mutex::new(None);
    let mut shared = ZEROS.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.is_none() {
        *shared = Some(Mapping::new(ZERO_CHUNK_BYTES as usize, false)?);
    }
    shared.as_ref().map(Mapping::whole).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A leg on one file or block device.
#[derive(Debug)]
pub(super) struct FileLeg {
    io: FileIo,
}

impl FileLeg {
    pub(super) fn new(device: Device) -> io::Result<FileLeg> {
        Ok(FileLeg { io: FileIo::new(vec![device])? })
    }

    pub(super) fn submit(&mut self, cx: &mut LegContext<'_>, io: ResolvedIo) {
        let ResolvedIo { id, operation, offset, length, data } = io;
        let task = Task::of(operation);
        self.io.submit(cx, DeviceIo { token: id.0, device: 0, task, offset, length, data });
    }

    pub(super) fn completion(&mut self, cx: &mut LegContext<'_>, completion: Completion) {
        if let Some(ended) = self.io.completion(cx, completion) {
            cx.ended(IoId(ended.token), ended.result, ended.errno);
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.io.deadline()
    }

    pub(super) fn tick(&mut self, cx: &mut LegContext<'_>) {
        self.io.tick(cx);
    }

    pub(super) fn detach(self, ring: &mut Ring) {
        self.io.detach(ring);
    }
}
