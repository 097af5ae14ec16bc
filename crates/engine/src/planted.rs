//! Planted bugs: mistakes a mirror could be written with, to show that the checker sees them.
//!
//! Each is one condition at the place where the mistake would be made. Without the feature
//! `planted` (never part of a release or of a torture run) `is` is a constant `false` and
//! none of them exists. With it, a test selects one for the whole process.

macro_rules! planted {
    ($($(#[doc = $doc:literal])+ $bug:ident,)+) => {
        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Planted {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Planted {
            /// Every one.
            pub const ALL: &'static [Planted] = &[$(Planted::$bug,)+];

            /// Describes the mistake in a sentence.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Planted::$bug => concat!($($doc),+),)+
                }
            }
        }
    };
}

planted! {
    /// A leg that is in and lacks the record of a clean close is taken for whole.
    MissedCloseTrusted,
    /// That a leg missed a clean close is forgotten once the volume is open.
    DoubtForgotten,
    /// A write that is to be durable is acknowledged though only the ledger names its authority.
    FuaByLedger,
    /// An authority that answers is waited for however late it is, though a ledger is kept.
    LateAuthorityAwaited,
    /// A write that its authority alone has lost sight of waits for the leg to be called silent.
    LateWriteAwaited,
    /// A late page is handed over to no leg that was late with anything a moment ago.
    LateMoveHeld,
    /// A page that its leg has lost sight of is waited for.
    LatePageAwaited,
    /// A region whose page was handed over once stays with that leg, however late.
    LateMoveStays,
    /// A read that every leg it was asked of is late with is asked for no more.
    ReadAskedTwice,
    /// A region is given to a leg that usually takes longer than the late one has taken.
    SlowerRelieves,
    /// The window of a leg that is late with every write does not grow.
    WindowFixed,
    /// A region is given to a leg that is late with the region's page.
    LatePageChosen,
    /// A leg that loses sight of requests is preferred like any other to decide regions.
    LossForgotten,
    /// A drain reads as much as fits its window from a leg that clients use.
    DrainFloodsSource,
    /// A leg whose sessions end at the first write, each of them, is waited for.
    LostSessionsForgiven,
    /// A session that ends before anything is asked for is not counted against a leg.
    UnaskedForgiven,
    /// Pages that failed count until data is written.
    PagesFailOn,
    /// Any success of a leg makes up for what it never gets done.
    AnySuccessForgives,
    /// A leg that is silent while it is marked out stays fresh for what is given up without it.
    LeavingStillFresh,
    /// A leg that missed a clean close owes what only a leg that is out has as well.
    OutLegVouches,
    /// Flushes that fail are not counted against a leg.
    FlushErrorsForgiven,
    /// An engine that has halted goes on entering its conclusions in the ledger.
    HaltEntersOn,
    /// Before the first client is back after a start, its legs' windows are filled with comparing.
    ClientsUnexpected,
    /// A leg's pace is taken from the time in which it has lost sight of writes, too.
    LostPace,
    /// A leg that has lost sight of one request is called silent, though it answers others.
    LegJudgedByOne,
    /// A client's flush waits for a leg whose flush is late.
    LateFlushAwaited,
    /// Authority of idle regions leaves a leg as soon as that is slow.
    IdleReturnAtOnce,
    /// An authority with a full list of debts does not let stand what nobody else has.
    FullListDoubted,
    /// The generation that a leg is of which is out for long falls off the ancestry.
    AncestorsForgotten,
    /// A flush that waited for moves off an authority that lost its cache does not wait for their pages.
    SuspectMovesUnawaited,
    /// A read that starts over asks the leg again that it was given up with.
    LateLegAskedAgain,
    /// A read that its leg has lost sight of is asked of no other beyond the budget for hedges.
    LateReadAwaited,
    /// A read waits for a write in flight as long as that takes.
    LateLandingAwaited,
    /// Data that a leg lost with its cache is still compared: a drive may show what it will not keep.
    ComparedAfterLoss,
    /// Data that a comparison found equal counts as durable.
    EqualIsDurable,
    /// Armed regions become clean though a leg that has everything there is not recorded whole yet.
    DisarmedWhileHealing,
    /// Regions are armed under a leg that is not whole there.
    ArmedForBehind,
    /// A write is acknowledged before the move of authority is durable.
    AckBeforeMove,
    /// A page write that failed counts as done.
    FailedPageTrusted,
    /// Authority comes back before its move away was durable, and the page is not written
    /// again.
    UnknownOutcomeTrusted,
    /// A write goes to the legs before its region is durably dirty.
    WriteBeforeIntent,
    /// A write that spans regions is judged by the first region's authority.
    FirstRegionDecides,
    /// A write that spans two authorities is never acknowledged.
    SpanningNeverAcked,
    /// A write is cut into operations without regard to regions.
    OperationSpansRegions,
    /// A leg that lacks acknowledged data takes over a region.
    IncompleteTakesOver,
    /// Authority moves to a leg that has flush-acknowledged data in its cache only.
    MoveWithoutFlush,
    /// Debts in regions that wait for another authority are paid when their turn comes.
    MovesLast,
    /// A leg is not recorded whole where its medium could not read a block of what it holds.
    UnreadableLosesBit,
    /// A drain waits for its read from a leg that has been detached.
    DetachedStillRead,
    /// Records of regions that are being rebuilt are given back while records are short.
    RebuildRoundedUp,
    /// A read that waits for a leg is begun anew from the backlog, and what comes in its place when it
    /// should have been.
    StalledAndQueued,
    /// A leg that is detached is flushed once, though that fails.
    DetachFlushedOnce,
    /// The volume closes while a change of its legs is being recorded.
    ClosedWhileChanging,
    /// A leg that stands as it was found does not get the writes in flight that were not sent to it.
    UnsentForgotten,
    /// A leg that has come back is given what others had before it what is recorded as lost.
    LostGivenBack,
    /// Regions are not rebuilt while some that were taken up wait for a leg that is silent.
    RebuildHeldUp,
    /// A leg that is out and silent keeps the copies of what it owes.
    OutKeepsCopies,
    /// Copies for silent legs are kept while memory is short, though other legs have the data.
    CopiesKeptWhenShort,
    /// A read that has failed elsewhere is waited for although its leg has been detached.
    ReadKeptOnDetached,
    /// A detached leg goes although another has lost since what that one has.
    DetachedTooSoon,
    /// A read is given up though it has failed on every leg that answers.
    ReadGivenUpForFailed,
    /// Metadata in flight to a silent leg leaves no room for that of others.
    ImagesShared,
    /// A region is cleaned as soon as nobody writes to it.
    DirtyNotSticky,
    /// Authority never returns from the slow leg.
    AuthorityStuck,
    /// A leg counts for a flush of several copies though its own metadata says that it is not
    /// whole.
    UnrecordedCounts,
    /// A leg counts for a flush of several copies though its own lost list still names what has
    /// been rewritten.
    RewrittenStaysLost,
    /// A leg has lacked what a debt superseded only since that debt's own data arrived.
    YoungAgain,
    /// A leg that is silent is not recorded whole where a region is cleaned, though it has
    /// everything there.
    SilentLosesBit,
    /// Regions become clean only where they are among the first records looked at.
    CleansFromOldest,
    /// Only the first direct write in flight to a leg, and what went before it, may be what the leg has
    /// lacked for longest.
    DrainsInOrder,
    /// Authority returns only where it is among the first records looked at.
    ReturnsFromOldest,
    /// A newer write is sent to a leg while an older one to the same sectors is in flight.
    OvertakenInFlight,
    /// A newer write is sent to a leg that still owes an older one to the same sectors.
    DirectOverDebt,
    /// A debt is paid over an I/O the leg still has in flight.
    DrainOverZombie,
    /// The range of a drain is not held between its read and its write.
    DrainOverDirectWrite,
    /// A flush of several copies takes a leg for complete that lacks what a newer write, not
    /// acknowledged, has taken the place of.
    CarriedIsThere,
    /// A write with FUA counts as caught up with what was sent of it after it was accepted.
    FuaCountsFromStart,
    /// A newer write that takes the place of an acknowledged debt hides that the leg lacks it.
    SupersededForgotten,
    /// A write that failed is owed again over newer debts.
    FailedOverNewer,
    /// After a write that no leg could take the legs are left as they are.
    FailedWriteDiverges,
    /// After a write that no leg could take its authority keeps what it has there, though it lacks
    /// what was acknowledged before and another leg has that.
    FailedOverLacked,
    /// Two overlapping writes run side by side.
    WritesSideBySide,
    /// A read runs beside an overlapping write that is not acknowledged.
    ReadBesideWrite,
    /// A read goes to a leg that owes the sectors.
    ReadOwedLeg,
    /// A read goes to a leg that has a write to the sectors in flight.
    ReadOvertakenLeg,
    /// Reads stay on a leg that stopped answering.
    ReadsStuck,
    /// Reads wait behind writes that are held back.
    ReadsBehindWrites,
    /// A debt's read is not given up when its leg falls silent.
    DrainReadKept,
    /// A scrub's read is not given up when its leg falls silent.
    ScrubReadKept,
    /// A read of a lost extent is served.
    LostServed,
    /// A flush waits for one leg only.
    FlushOneLeg,
    /// A flush is answered while a move of authority is not durable.
    FlushIgnoresMoves,
    /// A device flush counts for what completed while it ran.
    FlushCoversLater,
    /// A write with FUA is sent as a plain write.
    FuaDropped,
    /// A region is cleaned before its legs have flushed.
    CleanBeforeFlush,
    /// A region is cleaned while a write is in flight.
    CleanWhileWriting,
    /// A region is cleaned with a leg that still owes part of it.
    CleanBehindDebts,
    /// Every exact debt keeps its region's record, of which there are too few.
    RecordsKeptForDebts,
    /// A leg is recorded whole before it has flushed what it drained.
    HealBeforeFlush,
    /// Writers are paced by how fast a leg pays that is on probation.
    ProbationPace,
    /// Exposure leaves out what is in flight to the other leg.
    ExposureInFlight,
    /// Exposure leaves out what a newer write, not acknowledged, has taken the place of.
    CarriedUncounted,
    /// Writes not yet acknowledged do not count for the exposure bound.
    ExposureUnacknowledged,
    /// The old debts of a leg wait for as long as clients wait for newer ones.
    OldDebtsStarve,
    /// A burst counts for the bound in age only once it is acknowledged.
    BurstUnpaced,
    /// Writers are paced from half the exposure bound.
    PacedFromHalf,
    /// Writers are paced when what is exposed is old, whatever makes it so.
    PacedByAge,
    /// Writers are held back near the bound in bytes alone, however slowly a leg pays its debts.
    PayRateIgnored,
    /// Legs flush for what nobody waits for whenever there is something to flush.
    FlushedAside,
    /// Flushes that nobody waits for are put off while a leg is missing, and with them what makes another whole.
    HeirFlushedSeldom,
    /// A leg whose device was removed keeps what another has lost, and what that kept stands.
    RemovedStillFresh,
    /// A leg is marked out while an authority is away that may have lost what only this leg has.
    OutBesideAbsent,
    /// Pages that nobody waits for are written at each tick, while clients write.
    PagesAside,
    /// A leg on probation that was not tried in it is put on a longer one.
    ProbationDoublesAnyway,
    /// The same read for several debts is begun anew at once after it was given up.
    SieveBegunAnew,
    /// A leg does not read gaps itself for a while after another fell silent that it was reading them from.
    SilenceStopsSieves,
    /// Debts that nobody waits for fill the window of the only leg that answers.
    DrainFillsWindow,
    /// A write is sent though its region's authority has no room to note it if it must wait.
    AuthorityOwesRegion,
    /// An authority whose list of debts is full owes the region that it decides when a write fails there.
    NoRoomMade,
    /// A volume is not open before every leg that is in has recorded it, even one that stays silent.
    OpeningWaits,
    /// A flush is answered well though what it covers went with a leg that is gone for good.
    GoneUntold,
    /// Only a leg that is recorded whole may take over a dirty region.
    TakeoverWantsWhole,
    /// A leg is paid what it owes only while nobody reads from it.
    DrainYieldsToReads,
    /// A leg whose flush failed is not asked again for what a leg that is leaving decides.
    HeirFlushedOnce,
    /// A read that no leg can serve in full is answered well if a leg leaves its slot meanwhile.
    UnreadableForgotten,
    /// A leg is trusted with what an authority lost with its cache, though it was given that later.
    GivenSinceTrusted,
    /// A copy of what a leg lost is overlooked behind what is in flight.
    CopyOverlooked,
    /// An authority's content stands for nothing when the last that had more has lost it.
    AuthorityDoubted,
    /// A flush of several copies goes by what a leg had before it lost its cache.
    CopiesRemembered,
    /// A leg that lost its cache counts as fresh.
    LostCacheFresh,
    /// Writes that a leg's old session may still land count as ended when the leg is back.
    RewriteWithoutFence,
    /// A metadata write goes to the slot that holds the newest content.
    NewestSlotOverwritten,
    /// Recovery takes the first valid slot, not the newest.
    OldSlotChosen,
    /// Recovery lets legs decide that are out.
    OutLegVotes,
    /// A leg that was out comes in with one slot from before.
    OldSlotKept,
    /// Recovery ignores damage that may hide something newer.
    DamageIgnored,
    /// A leg is marked out before what it leaves behind is durable.
    OutBeforeTable,
    /// A replaced leg inherits the bits of the one before.
    JoinKeepsBits,
    /// A leg is detached before it has everything.
    DetachEarly,
    /// Data that has not been compared yet counts as lost when its authority is gone for good.
    UncomparedLost,
    /// A region settles without the leg that is to be compared there.
    UncomparedSettled,
    /// A superblock that says that a leg is out, and whose write has failed on another, is written
    /// there again with whatever else is written lazily only.
    OutAskedOnce,
    /// The lost list goes without an extent whose rewrite has lost its place, or failed.
    RewriteTrusted,
    /// A move of authority that waits for the lost list alone is given up once the authority answers.
    BegunMoveForgotten,
    /// A leg that loses its cache owes a region again in which it had got nothing but repairs.
    RepairsLost,
    /// A promoted leg that was still joining counts as having what a dirty page does not deny.
    JoiningHolds,
    /// A region that has been compared goes on counting as one that has not.
    ComparedForgotten,
    /// The page of a leg that is being marked out lets a write go.
    LeavingLegVotes,
    /// While clients do not flush, authority moves to a leg that has to be flushed for it.
    QuietMovesFlush,
    /// A write begins after the last superblock has been asked for.
    WrittenAfterClose,
    /// While the last superblock is on its way, writes are acknowledged by the ledger.
    ClosedByLedger,
    /// A close serves what waits for the volume to be open.
    ServedUnopened,
    /// A leg that missed a clean close stands in for what is damaged on the one that closed.
    CloseVouchesForAll,
    /// A leg that is out and was put back to an older state counts as whole where it was.
    OutLegPutBack,
    /// A clean close is not recorded on a leg that is out.
    OutLegUntold,
    /// A leg that is older than the ledger knows is taken for what it was.
    OlderLegTrusted,
    /// A start enters in the ledger nothing of what it finds durable on the legs.
    FoundDurableUnknown,
    /// A promotion writes pages under the sequence of one that was cut in two.
    TornPageReused,
    /// A leg that has drained a clean region, and not flushed, may decide it.
    CompleteDecidesClean,
    /// A move that only the ledger has counts as durable after a kill.
    LedgerMoveDurable,
    /// A leg is detached while a page is in flight to it.
    DetachedOverPage,
    /// A leg is repaired though it has been made whole for the last time before it is detached.
    RepairedOnTheWayOut,
    /// A page that a leg failed to write is waited for there, though another leg could decide.
    FailedPageAwaited,
    /// A page that a leg has written forgives that it cannot write another.
    OtherPageForgives,
    /// An armed region is taken under another leg before its page is durable.
    TouchedUnrecorded,
    /// The last copy of an acknowledged write is given up when it fails past the budget for copies.
    LastCopyGivenUp,
    /// Moves that wait, more than an input tries, are not tried again when a leg answers or falls silent.
    MovesSleepOn,
    /// A detach waits for a leg that answers and keeps failing to record it.
    DetachAwaitsFailing,
    /// A leg that has come back is marked out once one has recorded it that keeps failing to.
    OutAwaitsFailing,
    /// Metadata that has to be durable before a leg is out may be so on that leg alone.
    LeaverVouches,
    /// A leg is out before what it takes along is listed as lost on one that stays.
    OutBeforeList,
    /// A write that rewrites what was lost is acknowledged before the list says so.
    AckBeforeList,
    /// The lost list that names something again counts as known to legs with an older one.
    LostAgainUnnamed,
    /// Content beneath writes in flight to a leg that loses its cache is forgotten.
    BeneathForgotten,
    /// A leg comes in though it lacks more than exposure allows.
    InWithoutRoom,
    /// Content that a silent leg may still have is given up with a leg that is gone for good.
    SilentLegGivenUp,
    /// A write with FUA does not count as a flush when authority moves.
    FuaNoFlush,
    /// The page of a leg that is out lets the first write of a region go.
    OutLegLetsGo,
    /// A damaged page that tells that it was newer than what a clean close left is passed over.
    NewerDamageIgnored,
    /// All that a leg which is gone for good alone had is told at once, however much.
    LostAllAtOnce,
    /// While any region is whole on it alone, a leg that is to be marked out gives up nothing else.
    LossHoldsUp,
    /// Content that a leg has drained and not flushed survives the loss of its cache.
    HealingTrusted,
    /// Each tick looks at all armed regions while a leg waits to be marked out.
    ArmedWalkedAgain,
    /// Each tick looks at all touched regions while a leg waits to be marked out.
    TouchedWalkedAgain,
    /// A leg that owes what its medium could not read counts as having all of an untouched region.
    UnreadableUncounted,
    /// A flush that waits for a page that a leg is late with looks for the next leg's at the next tick only.
    LeftPageAwaited,
    /// A leg that is out and was put back is doubted by what the pages say alone.
    OlderByPagesOnly,
    /// A region that only legs have which missed a clean close is decided by each of them.
    OlderLegsAlike,
    /// An authority that owes all of its region for want of room waits for what no other leg has.
    AuthorityUndoubted,
    /// A leg is recorded whole though its list misses what was lost before the start.
    LostBeforeStart,
}

#[cfg(feature = "planted")]
static SELECTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(u8::MAX);

/// Selects the bug that is planted from now on, for the whole process; `None` for none.
#[cfg(feature = "planted")]
pub fn select(bug: Option<Planted>) {
    let number = bug.map_or(u8::MAX, |bug| bug as u8);
    SELECTED.store(number, core::sync::atomic::Ordering::Relaxed);
}

/// Returns true if this bug is the one that is planted.
#[cfg(feature = "planted")]
pub(crate) fn is(bug: Planted) -> bool {
    SELECTED.load(core::sync::atomic::Ordering::Relaxed) == bug as u8
}

/// Returns true if this bug is the one that is planted: none is.
#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Planted) -> bool {
    false
}
