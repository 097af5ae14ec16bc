//! The kernel's NBD client, which makes the volume a block device.
//!
//! It differs from other clients in how it connects. Until the device is removed, a thread
//! gives it a socket, and another one when that has ended ([`crate::device`]).

use std::sync::mpsc::SyncSender;

use crate::messages::{ReactorError, ReplyTo};

/// The kernel's client.
pub(super) struct KernelClient {
    /// The index of its listener, which has no socket.
    owner: u16,
    /// The path of the block device.
    path: String,
    /// Receives a message when its connection has ended. `None` after a handover until a thread
    /// looks after the device again.
    ended: Option<SyncSender<()>>,
    /// Callbacks of those who wait for the device's end.
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

    /// Signals `ended` when the connection ends. Returns false if another thread is already
    /// watching.
    pub(super) fn watch(&mut self, ended: SyncSender<()>) -> bool {
        let is_free = self.ended.is_none();
        self.ended.get_or_insert(ended);
        is_free
    }

    /// Calls `reply` once the connection, which is the last, has ended.
    pub(super) fn await_end(&mut self, reply: ReplyTo<Result<(), ReactorError>>) {
        self.ending.push(reply);
    }

    /// Handles the end of the connection. Returns true if the device ends with it. Otherwise
    /// signals the thread that looks after the device.
    pub(super) fn left(&mut self) -> bool {
        if self.ending.is_empty() {
            if let Some(ended) = &self.ended {
                // The same message may already be waiting there.
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
