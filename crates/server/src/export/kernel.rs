//! The kernel's NBD client, where the volume is a block device of its.
//!
//! It is a client like the others but for how it comes and goes: a thread gives it a socket, and another
//! when that has ended ([`crate::device`]), until the device is removed.

use std::sync::mpsc::SyncSender;

use crate::messages::{ReactorError, ReplyTo};

/// The kernel's client.
pub(super) struct KernelClient {
    /// Index of its listener, which listens nowhere.
    owner: u16,
    /// The path of the block device.
    path: String,
    /// Told when its connection has ended. `None` between a predecessor and whoever looks after the
    /// device next.
    ended: Option<SyncSender<()>>,
    /// Replies to those who wait for the device's end.
    ending: Vec<ReplyTo<Result<(), ReactorError>>>,
}

impl KernelClient {
    pub(super) fn new(owner: u16, path: String, ended: Option<SyncSender<()>>) -> KernelClient {
        KernelClient { owner, path, ended, ending: Vec::new() }
    }

    /// Returns the index of its listener.
    pub(super) fn owner(&self) -> u16 {
        self.owner
    }

    /// Returns the path of the block device.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Tells `ended` from now on. Returns false if somebody else is told already.
    pub(super) fn watch(&mut self, ended: SyncSender<()>) -> bool {
        let is_free = self.ended.is_none();
        self.ended.get_or_insert(ended);
        is_free
    }

    /// Answers `reply` once the connection has ended, which is the last.
    pub(super) fn await_end(&mut self, reply: ReplyTo<Result<(), ReactorError>>) {
        self.ending.push(reply);
    }

    /// Notes that there is no connection any more. Returns true if the device ends with that; else the
    /// one who looks after it is told.
    pub(super) fn left(&mut self) -> bool {
        if self.ending.is_empty() {
            if let Some(ended) = &self.ended {
                // One word to the same effect may wait there already.
                let _ = ended.try_send(());
            }
            return false;
        }
        for reply in self.ending.drain(..) {
            reply(Ok(()));
        }
        true
    }
}
