//! The volume's block device, created and removed on request. That happens on another thread,
//! since both wait for requests that the reactor serves meanwhile.

use super::on_a_thread;
use crate::config::device::DeviceKind;
use crate::control::volume::{Outcome, Refusal, RefusalKind};
use crate::device::{self, DeviceError};
use crate::messages::ReactorHandle;

/// Creates the volume's block device.
pub(super) fn attach(reactor: ReactorHandle, driver: DeviceKind) -> Outcome {
    on_a_thread("hemi-device", "making the block device", move || {
        device::attach(&reactor, driver).map(drop).map_err(|error| refusal(&error))
    })
}

/// Removes it.
pub(super) fn detach(reactor: ReactorHandle) -> Outcome {
    on_a_thread("hemi-device", "removing the block device", move || {
        device::detach(&reactor).map_err(|error| refusal(&error))
    })
}

fn refusal(error: &DeviceError) -> Refusal {
    let kind = match error {
        DeviceError::InUse { .. } | DeviceError::Served { .. } => RefusalKind::Unsafe,
        DeviceError::None { .. } => RefusalKind::NotFound,
        DeviceError::NotAllowed { .. } => RefusalKind::Forbidden,
        DeviceError::Size { .. } | DeviceError::Predecessor { .. } => RefusalKind::Conflict,
        DeviceError::NoUblk(_)
        | DeviceError::OldUblk { .. }
        | DeviceError::NoNbd(_)
        | DeviceError::OldNbd { .. }
        | DeviceError::NoDriver { .. }
        | DeviceError::Failed { .. }
        | DeviceError::Reactor(_) => RefusalKind::Failed,
    };
    Refusal::new(kind, error.to_string(), error.way_out())
}
