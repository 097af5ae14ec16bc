//! I/Os of legs that lie in several places. Each is cut into pieces, and every piece is an I/O
//! on one device. The whole ends with its last piece.

use std::io;

use hemi_engine::identifiers::IoId;
use hemi_engine::io::LegError;
use hemi_units::Instant;
use rustix::io::Errno;

use super::device::Device;
use super::file::{DeviceIo, FileIo, Task};
use super::{LegContext, ResolvedIo};
use crate::ring::{Completion, Ring};
use crate::slots::{SlotId, SlotTable};

/// The number of joined I/Os that the table holds before it grows.
const TABLE_CAPACITY: usize = 256;

/// A part of an extent of a leg, on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The index of the device among the leg's.
    pub(super) device: u8,
    /// The first byte on the device.
    pub(super) offset: u64,
    /// The length in bytes.
    pub(super) length: u64,
    /// The first byte within the extent.
    pub(super) at: u64,
}

/// An I/O and the number of its parts still in flight.
#[derive(Debug)]
struct Joined {
    id: IoId,
    parts: u32,
    result: Result<(), LegError>,
    /// The system's error, if it gave one.
    errno: Option<Errno>,
}

/// A leg's devices, and its I/Os with pieces in flight.
#[derive(Debug)]
pub(super) struct PartedIo {
    io: FileIo,
    joined: SlotTable<Joined>,
}

impl PartedIo {
    pub(super) fn new(devices: Vec<Device>) -> io::Result<PartedIo> {
        Ok(PartedIo { io: FileIo::new(devices)?, joined: SlotTable::with_capacity(TABLE_CAPACITY) })
    }

    /// Starts an I/O in pieces. There is at least one.
    pub(super) fn submit(
        &mut self,
        cx: &mut LegContext<'_>,
        io: ResolvedIo,
        task: Task,
        pieces: impl Iterator<Item = Piece>,
    ) {
        let ResolvedIo { id, data, .. } = io;
        self.start(
            cx,
            id,
            pieces.map(|piece| {
                let Piece { device, offset, length, at } = piece;
                let data = data.map(|data| data.slice(at as usize, length as usize));
                DeviceIo { token: 0, device, task, offset, length, data }
            }),
        );
    }

    /// Flushes the first `devices`.
    pub(super) fn flush(&mut self, cx: &mut LegContext<'_>, id: IoId, devices: u8) {
        let flush = |device| DeviceIo {
            token: 0,
            device,
            task: Task::Flush,
            offset: 0,
            length: 0,
            data: None,
        };
        self.start(cx, id, (0..devices).map(flush));
    }

    fn start(&mut self, cx: &mut LegContext<'_>, id: IoId, parts: impl Iterator<Item = DeviceIo>) {
        let joined = self.joined.insert(Joined { id, parts: 0, result: Ok(()), errno: None });
        let token = joined.to_bits();
        let mut count = 0;
        for part in parts {
            self.io.submit(cx, DeviceIo { token, ..part });
            count += 1;
        }
        if let Some(entry) = self.joined.get_mut(joined) {
            entry.parts = count;
        }
    }

    pub(super) fn completion(&mut self, cx: &mut LegContext<'_>, completion: Completion) {
        let Some(ended) = self.io.completion(cx, completion) else { return };
        let id = SlotId::from_bits(ended.token);
        let Some(joined) = self.joined.get_mut(id) else { return };
        joined.parts -= 1;
        if joined.result.is_ok() {
            (joined.result, joined.errno) = (ended.result, ended.errno);
        }
        // The I/O ends with its last part, because until then a part may still land.
        if joined.parts == 0 {
            let Joined { id: io, result, errno, .. } = *joined;
            self.joined.remove(id);
            cx.ended(io, result, errno);
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
