//! The outbox: actions for the driver.

use alloc::collections::VecDeque;

use crate::command::CommandError;
use crate::io::{Action, LegIo, Notice, Reply};

/// Actions for the driver, in order.
pub(in crate::engine) struct Outbox {
    actions: VecDeque<Action>,
}

impl Outbox {
    pub(in crate::engine) fn with_capacity(capacity: usize) -> Outbox {
        Outbox { actions: VecDeque::with_capacity(capacity) }
    }

    /// Takes the next action.
    pub(in crate::engine) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Hands an I/O to the driver.
    pub(in crate::engine) fn start(&mut self, io: LegIo) {
        self.actions.push_back(Action::Leg(io));
    }

    /// Answers a request.
    pub(in crate::engine) fn reply(&mut self, reply: Reply) {
        self.actions.push_back(Action::Reply(reply));
    }

    /// Tells the operator of something.
    pub(in crate::engine) fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    /// Tells an operator the outcome of a command.
    pub(in crate::engine) fn command_done(&mut self, token: u64, result: Result<(), CommandError>) {
        self.actions.push_back(Action::CommandDone { token, result });
    }

    /// Says that the volume is closed.
    pub(in crate::engine) fn closed(&mut self) {
        self.actions.push_back(Action::Closed);
    }

    /// Takes back everything that was to be done, and says this instead.
    pub(in crate::engine) fn say_only(&mut self, notice: Notice) {
        self.actions.clear();
        self.notice(notice);
    }
}
