//! The handover of a served volume to another program, which its clients see as a pause.
//!
//! First the successor is asked whether it understands the state it will get ([`check`]). Then the
//! reactor brings the clients to rest and closes the volume (`reactor/handover.rs`,
//! `export/handover.rs`). The state of the clients goes into a memory file, and this process
//! becomes the successor by `exec` ([`Successor`]). Sockets stay open and the process keeps its
//! id, so a supervisor notices nothing. Alternatively systemd keeps the file and the sockets
//! for the next start of the service (`store.rs`). The successor opens the volume as at any
//! start and continues with the clients ([`Inheritance`]).

use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;

mod check;
mod exec;
mod inherit;
pub(crate) mod state;
pub(crate) mod store;

pub use check::{CHECK_TIME, CheckAnswer};
pub(crate) use check::{CheckError, check, own_binary};
pub use exec::Successor;
pub(crate) use exec::reset_signals;
pub(crate) use inherit::Inheritance;

/// The environment variable that names the descriptor of the memory file.
const DESCRIPTOR: &str = "HEMI_HANDOVER_FD";
/// The environment variable with the reason why the intended successor could not be run.
const FALLBACK: &str = "HEMI_HANDOVER_FALLBACK";
/// Name of the memory file as `/proc` shows it.
const FILE_NAME: &str = "hemi-handover";

/// A state and its sockets, each with the number it has in the state.
type Taken = (state::State, Vec<(RawFd, OwnedFd)>);

/// The state and sockets that a reactor hands over at its end.
#[derive(Debug)]
pub(crate) struct HandedOver {
    pub(crate) state: state::State,
    /// The sockets in the state.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// The program that continues in this process. Without one, the next start of the service
    /// continues.
    pub(crate) binary: Option<PathBuf>,
}
