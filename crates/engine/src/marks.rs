//! Coverage marks: how often a run took each rare path.
//!
//! A promise is tested only as far as the paths that could break it are reached. Each rare path
//! of the engine and of recovery adds one to its mark, always, in every build; a torture run
//! prints the counts and fails where one stays zero. The hot path counts nothing.

macro_rules! marks {
    ($($(#[doc = $doc:literal])+ $mark:ident $name:literal,)+) => {
        /// A rare path. The name in a report says in a few words what happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Mark {
            $($(#[doc = $doc])+ $mark,)+
        }

        impl Mark {
            /// Every mark, in the order of reports.
            pub const ALL: &'static [Mark] = &[$(Mark::$mark,)+];

            /// Returns its name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mark::$mark => $name,)+
                }
            }
        }
    };
}

marks! {
    /// A write's intent found no free record for its region and waited for cleaning.
    NoRecordFree "write waited for a region record",
    /// A write was complete on the authority, which is not durably recorded as such yet.
    AcknowledgementWaited "acknowledgement waited for metadata",
    /// A write met an overlapping one still in flight on one leg and became a debt there.
    WriteBehindWrite "write held behind an overlapping one on one leg",
    /// A write overlapped an I/O that a leg which does not answer still has.
    WriteOverZombie "write overlapped a zombie",
    /// A newer write took the place of an acknowledged debt.
    DebtSuperseded "debt superseded by a newer write",
    /// A leg's exact debts overflowed: it owes the region as a whole.
    RegionOwed "region owed as a whole",
    /// A debt's copy was given up for want of memory.
    CopyGivenUp "debt kept no copy",
    /// A leg failed a write, which is owed again beneath newer debts.
    FailedWriteOwed "failed write owed again",
    /// No leg could take a write.
    WriteFailed "write failed on every leg",
    /// Authority over a region moved to another leg.
    AuthorityMoved "authority moved",
    /// Authority moved while a client's flush was in flight.
    AuthorityMovedDuringFlush "authority moved during a flush",
    /// Authority moved off a leg that has a write of the page in flight: its outcome is unknown.
    AuthorityMovedOverPage "authority moved with a page write of unknown outcome",
    /// Authority moved again before the move before it was durable.
    AuthorityMovedAgain "authority moved again before the move was durable",
    /// A page write armed a clean region beside the one that was written.
    Armed "clean region armed beside another",
    /// A write went to an armed region and needed no record.
    ArmedWritten "write to an armed region",
    /// A write to an armed region gave it another authority, with a record.
    ArmedRedecided "armed region given another authority",
    /// A touched region was armed again.
    Settled "touched region settled",
    /// An armed region became clean to make room for another.
    Disarmed "armed region made room",
    /// A write waited for an authority that was late, and another leg took over by the ledger.
    MovedForLate "authority moved off a leg that was late",
    /// A page write was late, and whoever waited for it went on without.
    PageLate "page write handed over",
    /// A read that every leg it was asked of is late with was asked for once more.
    ReadAskedAgain "late read asked for once more",
    /// A leg's flush was late, and what a client's flush depended on it for moved.
    FlushLate "flush handed over",
    /// A region was touched under another leg than its page says, by the ledger.
    TouchedElsewhere "armed region touched under another leg by the ledger",
    /// A write was sent because another leg's page than its authority's says durably that the region is
    /// dirty.
    IntentOnAnotherLeg "intent durable on another leg than the authority",
    /// A page landed that makes an earlier move durable, though the region has moved again.
    EarlierMoveDurable "earlier move durable",
    /// A flush was answered with later moves not durable yet.
    FlushBeforeLaterMoves "flush answered before later moves were durable",
    /// A leg was found to hold what it owed after an unclean stop.
    ComparedEqual "owed data compared and equal",
    /// A leg was given what it owed after an unclean stop: it held something else.
    ComparedDiffers "owed data compared and different",
    /// A comparison was given up: a leg fell silent or lost its cache.
    CompareGivenUp "comparison given up",
    /// A move took other regions of its page along.
    MovesBatched "move took other regions along",
    /// A move waited for a flush of the leg that takes over.
    MoveWaitedForFlush "move waited for a flush",
    /// No complete leg answered: a move waited for debts to be paid.
    MoveWaitedForDebts "move waited for debts",
    /// Authority went back to a better leg.
    AuthorityReturned "authority returned",
    /// Half way to the wait limit the likely successor was flushed.
    SuccessorFlushed "likely successor flushed ahead",
    /// A page was wanted again while a write of it was in flight to the same leg, in the slot
    /// that does not hold the newest durable content.
    PageStillInFlight "page changed while its other slot was in flight",
    /// A metadata write failed.
    MetadataFailed "metadata write failed",
    /// A client's flush came while a device flush was in flight, and had to wait for another.
    FlushNotJoined "flush waited for a later device flush",
    /// A flush had every leg, and waited for a move of authority to be durable.
    FlushWaitedForMove "flush waited for a move",
    /// A flush depended on a silent leg, whose regions had to move.
    FlushOffSilentLeg "flush moved regions off a silent leg",
    /// While no client flushed, a write was not waited for on its authority.
    AuthorityNotAwaited "authority not awaited between flushes",
    /// A device flush failed.
    FlushFailed "device flush failed",
    /// A client's flush reported a loss.
    LossTold "flush reported a loss",
    /// A debt without a copy was read from a fresh leg.
    DebtReadFromLeg "debt read from a fresh leg",
    /// A flush ended whose session had dropped.
    FlushOfLastSession "flush of a session that dropped",
    /// It was read as zeros, which the leg made without a write.
    ZeroesDrained "zeros drained without a write",
    /// While a drain had read what it was to write, a newer write to the range came.
    DrainOvertaken "drain overtaken by a newer write",
    /// The read half of a drain ended after the owing leg fell silent, or the region was owed
    /// as a whole.
    DrainReadVoid "drain read lost its meaning",
    /// A leg stopped answering while a debt was being read from it: the debt is owed again.
    DrainReadGivenUp "drain read given up on a silent leg",
    /// Such a read ended all the same, and paid the debt.
    LateReadPaid "given-up read paid its debt",
    /// Somebody waited for a scrub that read from a silent leg: the piece is compared later.
    ScrubReadGivenUp "scrub gave way on a silent leg",
    /// A leg stopped answering with writes of a drain in flight: they are zombies.
    ZombieOverDrain "zombie of a drain",
    /// A debt could not be paid because the leg still had an overlapping I/O.
    DrainHeld "drain waited for what is in flight",
    /// A drain gathered several debts into one write.
    DebtsGathered "debts gathered into one write",
    /// A drain wrote several debts and the gaps between them at once.
    DebtsSieved "scattered debts paid with one write",
    /// The same, with gaps read from the leg itself.
    DebtsSievedOwn "scattered debts paid with one write, gaps from the leg itself",
    /// A read past the leg's high quantile was sent to a second leg.
    HedgeSent "hedge sent",
    /// The second leg answered first.
    HedgeWon "hedge won",
    /// A read waited for a write to land on a leg that answers sooner.
    ReadAwaitedLanding "read waited for a write to land",
    /// A read was taken off a leg that stopped answering and started over.
    ReadRestarted "read restarted off a silent leg",
    /// A read was served from a debt's copy.
    ReadFromCopy "read from a debt's copy",
    /// A read was split where freshness splits.
    ReadSplit "read split where freshness splits",
    /// A read waited because no leg that answers is fresh.
    ReadWaited "read waited for a leg",
    /// A read failed on one leg and was sent to another.
    ReadRetried "failed read sent to another leg",
    /// An extent that a medium could not read, or that scrub found wrong, was rewritten.
    Repaired "repair",
    /// The authority could not read what it holds, and gave the region up first.
    RepairMovedAuthority "authority moved for a repair",
    /// An extent was recorded as lost.
    LostRecorded "lost extent recorded",
    /// A read of a lost extent failed.
    LostRead "lost extent read",
    /// A lost extent was rewritten.
    LostRewritten "lost extent rewritten",
    /// The write that had rewritten it lost its place before it was acknowledged, or failed.
    LostAgain "rewritten extent lost again",
    /// A leg lost its cache; another that is complete has the region.
    CacheLostWithPeer "lost cache, a complete peer",
    /// A leg lost its cache and no other is complete: it is given back piece by piece.
    CacheLostWithoutPeer "lost cache, no complete peer",
    /// A leg lost its cache, which had nothing of a region in it but what it held before.
    RepairsKept "lost cache, with repairs only",
    /// A leg lost its cache, and what it alone had cannot be told from what it kept.
    CacheLostAlone "lost cache, nobody else had it",
    /// An authority that lost its cache had everything again, durably.
    CacheRestored "lost cache restored",
    /// The exposure bound stopped a writer.
    ExposureBound "exposure bound hit",
    /// The exposure bound stopped a writer while a leg did not answer.
    ExposureBoundWhileFrozen "exposure bound hit while a leg did not answer",
    /// A writer was paced.
    ExposurePaced "writer paced",
    /// A leg froze.
    Frozen "leg froze",
    /// A leg froze again soon after it thawed.
    Relapsed "leg froze again soon",
    /// A look at a leg came late and was put off: our own loop was late.
    LoopLate "late loop forgiven",
    /// A region was cleaned and a leg that is behind lost its bit.
    CleanedWithoutLeg "region cleaned without a leg",
    /// The cap on dirty regions made a region be cleaned early.
    CleanedUnderPressure "region cleaned under pressure",
    /// A leg got its bit back for a region it has drained.
    Healed "leg whole again by draining",
    /// A leg was marked out.
    LegOut "leg marked out",
    /// A leg was marked out because its device is gone for good.
    LegOutRemoved "removed leg marked out",
    /// A leg was marked out because its writes kept failing.
    LegOutErrors "failing leg marked out",
    /// A leg could not be marked out yet, since something had to be durable elsewhere first.
    OutWaited "marking out waited for metadata",
    /// A leg died while a change of the leg set waited for it, and was marked out with that.
    OutMeanwhile "leg marked out along with another change",
    /// A leg that was to be marked out came back when those that were to stay were silent.
    OutTakenBack "marking out taken back",
    /// A leg that had drained was taken in.
    LegIn "leg taken in after draining",
    /// A leg fell silent while it was being taken in, and was left out.
    ComingInGivenUp "leg left out that was being taken in",
    /// A leg joined.
    LegJoined "leg joined",
    /// A detach held writers back for the last debts.
    DetachPaused "detach paused writers",
    /// A leg is gone for good that decides what has not been compared with another.
    Halted "halted before the rest was compared",
    /// A leg was detached.
    LegDetached "leg detached",
    /// The volume opened though it had not been closed.
    OpenedUnclean "opened after a crash",
    /// The ledger decided at a start after a crash.
    OpenedByLedger "opened by the ledger",
    /// The operator accepted to lose what a ledger could have told.
    LedgerForgone "opened by pages though a ledger was relied on",
    /// Recovery chose among metadata of different sequence.
    RecoveryChose "recovery chose among sequences",
    /// Recovery chose among legs of different generations.
    RecoveryChoseGeneration "recovery chose among generations",
    /// Recovery ignored a metadata write that was cut in two.
    TornIgnored "recovery ignored a torn write",
    /// Recovery ignored damage that cannot hide anything.
    DamageIgnored "recovery ignored harmless damage",
    /// Recovery took from a leg that lacked the record of a clean close what others have too.
    MissedClose "recovery doubted a leg that may have been put back",
    /// Recovery ignored a page's bits about a leg that joined later.
    OldBitsIgnored "recovery ignored bits older than a join",
    /// A start was refused: no leg, or what is not one, was given.
    RefusedNotALeg "refused: not a leg",
    /// A start was refused: a leg of another volume.
    RefusedForeign "refused: another volume",
    /// A start was refused: the same leg twice.
    RefusedSameLeg "refused: the same leg twice",
    /// A start was refused: two legs went on without each other.
    RefusedFork "refused: fork",
    /// A start was refused: a leg the volume no longer counts.
    RefusedStranger "refused: stranger",
    /// A start was refused: a leg that is in is absent.
    RefusedMissing "refused: leg missing",
    /// A start was refused: a promotion was cut short.
    RefusedNoneIn "refused: no leg in",
    /// A start was refused: damage may hide something newer.
    RefusedDamaged "refused: metadata damaged",
    /// A ledger was relied on and is missing or not valid.
    RefusedLedger "refused: ledger",
    /// A start was refused: a leg is too short.
    RefusedTruncated "refused: truncated",
}

/// Counts of each mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    counts: [u64; Mark::ALL.len()],
}

impl Default for Marks {
    fn default() -> Marks {
        Marks { counts: [0; Mark::ALL.len()] }
    }
}

impl Marks {
    /// Notes that a path was taken.
    pub fn add(&mut self, mark: Mark) {
        self.counts[mark as usize] += 1;
    }

    /// Notes a path taken where `taken` says so.
    pub fn add_if(&mut self, taken: bool, mark: Mark) {
        self.counts[mark as usize] += u64::from(taken);
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Marks) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
    }

    /// Returns the number of times a path was taken.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize]
    }

    /// Every mark with its count, in the order of [`Mark::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Mark, u64)> + '_ {
        Mark::ALL.iter().map(|&mark| (mark, self.count(mark)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_counts_are_kept_apart() {
        let mut marks = Marks::default();
        for (times, &mark) in Mark::ALL.iter().enumerate() {
            (0..times).for_each(|_| marks.add(mark));
        }
        let mut both = marks.clone();
        both.merge(&marks);
        for (times, (mark, count)) in both.iter().enumerate() {
            assert_eq!(count, 2 * times as u64, "{mark:?}");
            let same = Mark::ALL.iter().filter(|other| other.name() == mark.name());
            assert_eq!(same.count(), 1, "{}", mark.name());
        }
    }
}
