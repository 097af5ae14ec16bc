//! When to strike: after what the engine does seldom.

use hemi_engine::marks::Mark;

/// Moments at which a crash is likeliest to find something.
pub(crate) const MOMENTS: [Mark; 24] = [
    Mark::AuthorityMoved,
    Mark::AuthorityMovedDuringFlush,
    Mark::AuthorityMovedOverPage,
    Mark::AuthorityMovedAgain,
    Mark::AuthorityReturned,
    Mark::AcknowledgementWaited,
    Mark::PageStillInFlight,
    Mark::FlushWaitedForMove,
    Mark::FlushOffSilentLeg,
    Mark::DebtSuperseded,
    Mark::FailedWriteOwed,
    Mark::WriteFailed,
    Mark::MetadataFailed,
    Mark::CacheLostWithPeer,
    Mark::CacheLostWithoutPeer,
    Mark::CleanedWithoutLeg,
    Mark::Healed,
    Mark::LegOut,
    Mark::LegOutRemoved,
    Mark::OutWaited,
    Mark::LegIn,
    Mark::LegJoined,
    Mark::ZombieOverDrain,
    Mark::LostRecorded,
];
