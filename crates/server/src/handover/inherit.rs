//! The inheritance of a successor: the state and its sockets.

use std::collections::HashMap;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::io::FdFlags;

use super::exec::let_signals_in;
use super::state::{ConnectionState, ListenerState, State};
use super::{DESCRIPTOR, FALLBACK, FILE_NAME, Taken, store};
use crate::control::volume::{HandoverReport, HandoverTimes};
use crate::export::{CarriedClients, ExportOptions};
use crate::grow::GrowTo;
use hemi_io::clock;

/// The state that a predecessor handed over, with its sockets. Dropping it closes them.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    state: State,
    listeners: Vec<(ListenerState, Option<OwnedFd>)>,
    connections: Vec<(ConnectionState, OwnedFd)>,
    pub(crate) control: Option<OwnedFd>,
    pub(crate) http: Option<OwnedFd>,
    fallback: Option<String>,
    /// The reason why the volume has not grown as requested.
    not_grown: Option<String>,
    /// The time at which this program started, on the monotonic clock.
    taken_at: u64,
}

impl Inheritance {
    /// Takes the state that the previous program handed over, in the same process or through
    /// systemd. Returns `None` if there is none. It is called once, before anything else opens
    /// descriptors that it keeps. If a state is not understood, it is logged and its
    /// descriptors are closed, which cuts off its clients.
    pub(crate) fn take() -> Option<Inheritance> {
        let taken = match std::env::var(DESCRIPTOR) {
            Ok(named) => {
                // TERM ends this program from here on, like any program that has not opened its
                // volume yet.
                let_signals_in();
                take_in_place(&named).inspect_err(|_| close_inherited())
            }
            Err(_) => store::take(),
        };
        match taken {
            Ok(taken) => taken.map(|(state, sockets)| Inheritance::of(state, sockets)),
            Err(reason) => {
                tracing::error!(
                    reason,
                    "the previous program's state cannot be used, and its clients are cut off"
                );
                None
            }
        }
    }

    /// Joins a state and its sockets. Clients whose socket is not in `sockets` are gone.
    fn of(mut state: State, sockets: Vec<(RawFd, OwnedFd)>) -> Inheritance {
        let mut sockets: HashMap<RawFd, OwnedFd> = sockets.into_iter().collect();
        let listeners = std::mem::take(&mut state.listeners)
            .into_iter()
            .map(|known| {
                let descriptor = sockets.remove(&known.descriptor);
                (known, descriptor)
            })
            .collect();
        let mut connections = Vec::new();
        for known in std::mem::take(&mut state.connections) {
            match sockets.remove(&known.descriptor) {
                Some(descriptor) => connections.push((known, descriptor)),
                None => state.cut += 1,
            }
        }
        let mut take = |number: Option<RawFd>| sockets.remove(&number?);
        let (control, http) = (take(state.control), take(state.http));
        let fallback = std::env::var(FALLBACK).ok();
        let taken_at = clock::now().0;
        Inheritance {
            state,
            listeners,
            connections,
            control,
            http,
            fallback,
            not_grown: None,
            taken_at,
        }
    }

    /// Returns true if no earlier write to a remote leg can still land.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.settled
    }

    /// Returns the size to which the volume grows before it is opened.
    pub(crate) fn grow(&self) -> Option<GrowTo> {
        self.state.grow
    }

    /// Remembers the reason why the volume has not grown.
    pub(crate) fn not_grown(&mut self, reason: String) {
        self.not_grown = Some(reason);
    }

    /// Returns true if it belongs to the volume with this id.
    pub(crate) fn is_of(&self, volume: [u8; 16]) -> bool {
        self.state.volume == volume
    }

    /// Takes the sockets that were bound to an address, in order.
    pub(crate) fn take_listeners(&mut self, address: &str) -> Vec<OwnedFd> {
        let of_address = self.listeners.iter_mut().filter(|(known, _)| known.address == address);
        let mut found: Vec<_> = of_address
            .filter_map(|(known, descriptor)| Some((known.index, descriptor.take()?)))
            .collect();
        found.sort_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, descriptor)| descriptor).collect()
    }

    /// Returns the clients and the report on them. Sockets that nobody has taken are closed.
    pub(crate) fn into_clients(self, options: ExportOptions) -> (CarriedClients, HandoverReport) {
        let report = HandoverReport {
            upgrades: self.state.upgrades,
            version: self.state.version,
            connections: self.connections.len() as u64,
            cut: self.state.cut,
            pause_ns: 0,
            times: HandoverTimes {
                paused_at: self.state.paused_at,
                rested_at: self.state.rested_at,
                closed_at: self.state.closed_at,
                taken_at: self.taken_at,
            },
            fallback: self.fallback,
            not_grown: self.not_grown,
        };
        let listeners = self.listeners.into_iter().map(|(known, _)| known).collect();
        let clients = CarriedClients {
            accepted: self.state.accepted,
            refused: self.state.refused,
            device_owed_loss: self.state.device_owed_loss,
            guests_owed_loss: self.state.guests_owed_loss,
            options,
            listeners,
            connections: self.connections,
        };
        (clients, report)
    }
}

/// Takes the descriptors that the previous program in this process left open. `named` is the
/// descriptor of the memory file. Returns `None` if it was left for another process.
fn take_in_place(named: &str) -> Result<Option<Taken>, String> {
    let number: RawFd = named.parse().map_err(|_| format!("{named:?} is no descriptor"))?;
    let link = std::fs::read_link(format!("/proc/self/fd/{number}"))
        .map_err(|error| format!("descriptor {number}: {error}"))?;
    if number <= 2 || !link.to_string_lossy().contains(FILE_NAME) {
        return Err(format!("descriptor {number} is {}", link.display()));
    }
    // SAFETY: it is the memory file that the previous program created for this one, and nothing
    // else owns it.
    let state = read(unsafe { OwnedFd::from_raw_fd(number) })?;
    if state.process != std::process::id() {
        // The variable came from elsewhere, and so did the descriptors.
        return Ok(None);
    }
    let all = state.descriptors();
    for number in &all {
        // SAFETY: the descriptor is only examined.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
        let failed = |errno| format!("descriptor {number}: {errno}");
        let flags = rustix::io::fcntl_getfd(descriptor).map_err(failed)?;
        if flags.contains(FdFlags::CLOEXEC) {
            return Err(format!("descriptor {number} is this program's own"));
        }
    }
    let mut sockets = Vec::new();
    for number in all {
        // SAFETY: the previous program left it open for this one, which has examined it and
        // takes it once, because no number occurs twice.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC)
            .map_err(|errno| format!("descriptor {number}: {errno}"))?;
        sockets.push((number, descriptor));
    }
    Ok(Some((state, sockets)))
}

/// Reads the state in a memory file.
pub(super) fn read(file: OwnedFd) -> Result<State, String> {
    let mut file = std::fs::File::from(file);
    let mut bytes = Vec::new();
    let whole: io::Result<usize> = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    whole.map_err(|error| format!("the memory file cannot be read: {error}"))?;
    State::decode(&bytes).map_err(|error| error.to_string())
}

/// Closes descriptors that the previous program left open and this one cannot use. Their
/// clients would otherwise wait forever.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<RawFd> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: it is only examined. A closed one gives an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = rustix::io::fcntl_getfd(descriptor);
        if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            // SAFETY: descriptors that this program opened itself are closed on exec, so this is not its own.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}
