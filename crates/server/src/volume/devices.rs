//! The volume as a block device, on request: made and removed on another thread, since both wait for
//! requests that the reactor serves meanwhile.

use tokio::sync::oneshot;

use crate::control::volume::{Outcome, Refusal, RefusalKind};
use crate::device::{self, DeviceError};
use crate::messages::ReactorHandle;

/// Makes the volume a block device.
pub(super) fn attach(reactor: ReactorHandle) -> Outcome {
    on_a_thread(move || device::attach(&reactor).map(drop))
}

/// Makes it none any more.
pub(super) fn detach(reactor: ReactorHandle) -> Outcome {
    on_a_thread(move || device::detach(&reactor))
}

fn on_a_thread(work: impl FnOnce() -> Result<(), DeviceError> + Send + 'static) -> Outcome {
    let (sender, receiver) = oneshot::channel();
    let spawned = std::thread::Builder::new().name("hemi-device".into()).spawn(move || {
        let _ = sender.send(work().map_err(|error| refusal(&error)));
    });
    Box::pin(async move {
        spawned.map_err(|error| {
            let what = format!("no thread to make the block device: {error}");
            Refusal::new(RefusalKind::Failed, what, "Try again.")
        })?;
        receiver.await.unwrap_or_else(|_| {
            let what = "making the block device ended unexpectedly";
            Err(Refusal::new(RefusalKind::Failed, what, "See the log."))
        })
    })
}

fn refusal(error: &DeviceError) -> Refusal {
    let kind = match error {
        DeviceError::InUse { .. } | DeviceError::Served { .. } => RefusalKind::Unsafe,
        DeviceError::None { .. } => RefusalKind::NotFound,
        DeviceError::NotAllowed(_) => RefusalKind::Forbidden,
        DeviceError::Size { .. } => RefusalKind::Conflict,
        DeviceError::NoDriver(_)
        | DeviceError::Features { .. }
        | DeviceError::Failed { .. }
        | DeviceError::Reactor(_) => RefusalKind::Failed,
    };
    Refusal::new(kind, error.to_string(), error.way_out())
}
