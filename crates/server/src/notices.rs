//! The engine's notices as log events.

use hemi_core::io::{LegError, Notice, OutReason};
use hemi_core::units::LegIndex;

use crate::config::units::Time;
use crate::control::volume::LegIdentity;

/// Logs a notice, with the leg's own name.
pub(crate) fn log(legs: &[LegIdentity], notice: Notice) {
    let name = |leg: LegIndex| {
        let known = legs.iter().find(|known| known.leg == leg.0);
        known.map_or_else(|| format!("leg {}", leg.0), |known| known.name.clone())
    };
    match notice {
        Notice::Frozen { leg, limit } => {
            tracing::warn!(leg = name(leg), limit = %Time(limit), "frozen: an I/O outlived its limit");
        }
        Notice::Thawed { leg, duration } => {
            tracing::info!(leg = name(leg), frozen = %Time(duration), "answers again");
        }
        Notice::Lagging { leg } => tracing::info!(leg = name(leg), "lags behind"),
        Notice::CaughtUp { leg } => tracing::info!(leg = name(leg), "has caught up"),
        Notice::Out { leg, reason } => {
            let reason = match reason {
                OutReason::Unresponsive => "it did not answer for too long",
                OutReason::Removed => "its device is gone",
                OutReason::WriteErrors => "it fails writes",
                OutReason::Detached => "it was detached",
                OutReason::Joining => "it is joining and has to drain first",
            };
            tracing::warn!(leg = name(leg), reason, "out: the volume goes on without it");
        }
        Notice::In { leg } => tracing::info!(leg = name(leg), "in: it holds everything again"),
        Notice::LegError { leg, error, sector } => {
            let error = match error {
                LegError::Media => "the medium failed",
                LegError::NoSpace => "it has no space left",
                LegError::Gone => "its device or session is gone",
                LegError::Other => "an unexpected error",
            };
            tracing::warn!(leg = name(leg), error, sector, "an I/O failed");
        }
        Notice::Lost { extent } => tracing::error!(
            sector = extent.start,
            sectors = extent.sectors(),
            "LOST: no leg holds this extent any more; it answers EIO until rewritten"
        ),
        Notice::Repaired { leg, extent } => tracing::info!(
            leg = name(leg),
            sector = extent.start,
            sectors = extent.sectors(),
            "a bad extent was rewritten"
        ),
        Notice::Throttling => {
            tracing::warn!("writers are slowed down: exposure is past half its bound");
        }
        Notice::ThrottlingEnded => tracing::info!("writers run free again"),
        Notice::Converged => tracing::info!("every leg is whole; the volume is clean"),
        Notice::Mismatch { leg, extent } => tracing::error!(
            leg = name(leg),
            sector = extent.start,
            sectors = extent.sectors(),
            "scrub found a difference"
        ),
    }
}
