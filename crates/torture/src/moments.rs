//! The rare moments of the engine after which a crash strikes.

use hemi_engine::marks::Mark;

/// The marks after which a crash is likeliest to find something.
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
