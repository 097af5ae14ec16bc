//! An upgrade on request. The new program is asked first, on a thread of its own.

use std::path::PathBuf;

use super::{on_a_thread, refusal};
use crate::control::volume::{Outcome, Refusal, RefusalKind};
use crate::grow::{self, GrowError, GrowTo};
use crate::handover::{self, CheckError};
use crate::messages::{ReactorHandle, ReactorMessage, UpgradeWish};

/// Has the reactor close the volume for `binary`, or for the file that this program was started
/// from. Returns once clients are at rest and there is no way back. With `grow` the volume
/// grows in the process.
pub(super) fn upgrade(
    reactor: ReactorHandle,
    binary: Option<PathBuf>,
    force: bool,
    grow: Option<GrowTo>,
) -> Outcome {
    on_a_thread("hemi-upgrade", "asking the new program", move || {
        if let Some(to) = grow {
            grow::check(&reactor.snapshot(), to).map_err(|error| grow_refusal(&error))?;
        }
        let binary =
            binary.map_or_else(handover::own_binary, Ok).map_err(|error| check_refusal(&error))?;
        let answer = handover::check(&binary).map_err(|error| check_refusal(&error))?;
        tracing::info!(binary = %binary.display(), version = answer.version, "upgrading");
        let wish = UpgradeWish { binary: Some(binary), force, grow };
        reactor.wait_for(|reply| ReactorMessage::Upgrade { wish, reply }).map_err(refusal)
    })
}

fn grow_refusal(error: &GrowError) -> Refusal {
    let way_out =
        format!("{} Nothing has changed: the volume is served as before.", error.way_out());
    Refusal::new(RefusalKind::Conflict, error.to_string(), way_out)
}

fn check_refusal(error: &CheckError) -> Refusal {
    let way_out = match error {
        CheckError::NoPath(_) | CheckError::Run { .. } => {
            "Name a program with hemi upgrade --binary."
        }
        CheckError::Silent { .. } | CheckError::Refused { .. } => {
            "Nothing has changed: the volume is served as before. The new program, with the arguments of the \
             running one, must accept its configuration."
        }
        CheckError::Format { .. } => "Stop the volume and serve it by the other program.",
    };
    Refusal::new(RefusalKind::Failed, error.to_string(), way_out)
}
