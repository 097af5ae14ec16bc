//! `hemi promote`: the operator's word that one leg decides alone.
//!
//! What recovery refuses to guess (P7) is decided here, offline, on one leg: every other leg
//! is out from now on, what this leg knows it lacks is recorded as lost and fails to be read
//! until it is written again, and a new generation begins, so that the others can only come
//! back as legs that are filled anew. What is given up is told before anything is written.
//!
//! The ledger that the leg relied on names regions in which the leg's pages do not know that it is behind. Once the promotion is durable no
//! leg relies on it, and it is removed.

use std::io;
use std::path::PathBuf;

use hemi_engine::format::{Id, Membership, Superblock, SuperblockError};
use hemi_engine::io::OutReason;
use hemi_engine::recovery::{
    HEAD_BYTES, LedgerWord, LegImage, Outlived, Promotion, metadata_bytes, newest_of,
    promote_outlived,
};
use hemi_units::Extent;
use serde::Serialize;

use crate::config::place::Place;
use crate::ledger::{LedgerFileError, Ledgers};
use hemi_io::config::legs::LegSpec;
use hemi_io::leg::{FileOptions, OpenError, OpenLeg, Purpose};
use hemi_io::probe::other_spec;
use hemi_io::random;

/// Why a leg was not promoted.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It holds nothing to go on from.
    #[error("{0}")]
    Refused(String),
    /// It could not be read.
    #[error("{leg}: its metadata could not be read: {source}")]
    Read {
        /// The leg.
        leg: String,
        /// Why.
        source: io::Error,
    },
    /// It could not be written. A promotion cut short can be run again.
    #[error(
        "{leg}: the promotion was interrupted: {source}. Nothing decides on this leg now; run \
         the command again"
    )]
    Write {
        /// The leg.
        leg: String,
        /// Why.
        source: io::Error,
    },
    /// The ledger is in use, or this boot of the machine cannot be told.
    #[error(transparent)]
    Ledger(LedgerFileError),
    /// It is done, but for the ledger's file.
    #[error("{leg}: is promoted, and relies on no ledger any more: {source}")]
    LedgerLeft {
        /// The leg.
        leg: String,
        /// Why.
        source: LedgerFileError,
    },
    /// No random numbers.
    #[error("the system returned no random bytes for the new generation: {0}")]
    Random(io::Error),
}

/// A stretch of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// Where it begins, bytes.
    pub offset_bytes: u64,
    /// How long it is, bytes.
    pub length_bytes: u64,
}

/// Tells what a promotion knows by the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum LedgerAsked {
    /// The leg relied on none: its pages tell all that there is to tell.
    NoneReliedOn,
    /// The leg relied on one of an earlier boot of the machine, which ended then.
    OfAnotherBoot,
    /// It was read.
    Read {
        /// Its file.
        path: PathBuf,
    },
    /// The leg relied on one that is missing, or not to be believed. Which regions another leg had
    /// taken over last is not known.
    Unknown {
        /// What is wrong.
        problem: String,
        /// Where it was looked for.
        looked_at: Vec<PathBuf>,
    },
}

/// What a promotion gives up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromotionReport {
    /// The volume's name.
    pub volume: String,
    /// The leg.
    pub path: String,
    /// Its slot.
    pub leg: u8,
    /// Whether the volume was closed cleanly as far as this leg knows.
    pub closed: bool,
    /// Slots of legs that are out from now on.
    pub others: Vec<u8>,
    /// What the leg knows it lacks, but for what the ledger calls complete: reads fail until it is
    /// written again.
    pub lacks: Vec<Stretch>,
    /// The sum of these.
    pub lacks_bytes: u64,
    /// Regions that may lack the newest writes: they were last being written under another leg's
    /// authority, or by the ledger the leg is behind there. They can be read.
    pub uncertain: Vec<Stretch>,
    /// Number of these regions.
    pub uncertain_regions: u32,
    /// Use that was made of the ledger.
    pub ledger: LedgerAsked,
    /// Size of a region, bytes.
    pub region_bytes: u64,
}

/// A promotion that can be carried out. Holds the locks of the leg and of the ledger.
pub struct PromotionPlan<'a> {
    opened: OpenLeg,
    ledgers: Ledgers<'a>,
    promotion: Promotion,
    report: PromotionReport,
}

impl<'a> PromotionPlan<'a> {
    /// Opens the leg and works out what its promotion means. Writes nothing.
    ///
    /// # Errors
    ///
    /// The leg cannot be opened (in use, missing), or is not a leg of any volume; the volume's
    /// ledger is in use.
    pub fn new(
        spec: &LegSpec,
        options: FileOptions,
        place: &'a Place,
    ) -> Result<PromotionPlan<'a>, PromoteError> {
        PromotionPlan::of(spec, OpenLeg::open(spec, options, Purpose::Serve)?, place)
    }

    /// Works out the effects of promoting an opened and locked leg. Writes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`PromotionPlan::new`].
    pub(crate) fn of(
        spec: &LegSpec,
        opened: OpenLeg,
        place: &'a Place,
    ) -> Result<PromotionPlan<'a>, PromoteError> {
        let path = opened.description();
        let refuse = |text: String| PromoteError::Refused(text);
        let bytes = read_metadata(&opened, spec)?;
        let before = newest_of(&bytes).map_err(|error| not_a_leg(spec, &path, error))?;
        if before.own_record().state == Membership::Empty
            || before.own_record().state == Membership::Out(OutReason::Detached)
        {
            return Err(refuse(format!(
                "{path}: was detached from volume {:?} and decides nothing in it; attach it with \
                 'hemi leg attach', or use its data area as a disk image",
                before.name.as_str()
            )));
        }
        let generation = random::bytes().map_err(PromoteError::Random)?;
        let mut ledgers = Ledgers::new(place).map_err(PromoteError::Ledger)?;
        let boot = ledgers.boot();
        let (ledger, unreadable) = match ledgers.read(before.volume_id) {
            Ok(found) => (found, None),
            Err(error) if error.is_in_use() => return Err(PromoteError::Ledger(error)),
            Err(error) => (None, Some(error)),
        };
        let outlived = Outlived { boot, ledger, accept_loss: false };
        let promotion = promote_outlived(LegImage { bytes: &bytes }, generation, &outlived)
            .map_err(|refusal| refuse(refusal.describe(&[path.as_str()])))?;
        let ledger = asked(&promotion, unreadable, &ledgers, before.volume_id);
        let report = report(path, &before, &promotion, ledger);
        Ok(PromotionPlan { opened, ledgers, promotion, report })
    }

    /// Returns the leg.
    pub(crate) fn leg(&self) -> &OpenLeg {
        &self.opened
    }

    /// What is given up.
    pub fn report(&self) -> &PromotionReport {
        &self.report
    }

    /// Carries it out.
    ///
    /// # Errors
    ///
    /// [`PromoteError::Write`]; the leg then decides nothing until the command is run again.
    /// [`PromoteError::LedgerLeft`] if all is done but that.
    pub fn carry_out(self) -> Result<PromotionReport, PromoteError> {
        let fail = |source| PromoteError::Write { leg: self.report.path.clone(), source };
        for (address, block) in &self.promotion.writes {
            // Each is durable before the next: what is lacking is recorded before the leg
            // may decide.
            self.opened.write_at(*address, &block[..]).map_err(fail)?;
            self.opened.flush().map_err(fail)?;
        }
        // Not before: a promotion cut short asks it again.
        let leg = self.report.path.clone();
        self.ledgers.remove().map_err(|source| PromoteError::LedgerLeft { leg, source })?;
        Ok(self.report)
    }
}

/// Puts what became of the ledger's word into a report.
fn asked(
    promotion: &Promotion,
    unreadable: Option<LedgerFileError>,
    ledgers: &Ledgers<'_>,
    volume: Id,
) -> LedgerAsked {
    let looked_at = || ledgers.paths(volume);
    match promotion.ledger {
        LedgerWord::NoneReliedOn => LedgerAsked::NoneReliedOn,
        LedgerWord::OfAnotherBoot => LedgerAsked::OfAnotherBoot,
        LedgerWord::Read => {
            LedgerAsked::Read { path: ledgers.path().map(PathBuf::from).unwrap_or_default() }
        }
        LedgerWord::Unknown(error) => {
            let problem = match (unreadable, error) {
                (Some(error), _) => format!("cannot be used: {error}"),
                (None, Some(error)) => format!("is not valid: {error}"),
                (None, None) => "is missing".into(),
            };
            LedgerAsked::Unknown { problem, looked_at: looked_at() }
        }
    }
}

/// The leg's bytes from its beginning to the data area, or to its end if that comes before.
fn read_metadata(opened: &OpenLeg, spec: &LegSpec) -> Result<Vec<u8>, PromoteError> {
    let path = opened.description();
    let read = |length: u64| {
        // Metadata of the largest volume is far below the address space.
        let mut bytes = vec![0; usize::try_from(length.min(opened.size())).unwrap_or(usize::MAX)];
        opened
            .read_at(0, &mut bytes)
            .map_err(|source| PromoteError::Read { leg: path.clone(), source })?;
        Ok::<_, PromoteError>(bytes)
    };
    let head = read(HEAD_BYTES)?;
    let length = metadata_bytes(&head).map_err(|error| not_a_leg(spec, &path, error))?;
    read(length)
}

/// Returns an error that says that a path is not a leg, or names its right spec.
fn not_a_leg(spec: &LegSpec, path: &str, error: SuperblockError) -> PromoteError {
    PromoteError::Refused(other_spec(spec).unwrap_or_else(|| format!("{path}: {error}")))
}

fn report(
    path: String,
    before: &Superblock,
    promotion: &Promotion,
    ledger: LedgerAsked,
) -> PromotionReport {
    let own = before.leg;
    let others = (0u8..)
        .zip(&promotion.superblock.legs)
        .filter(|(slot, record)| *slot != own.0 && record.state != Membership::Empty)
        .map(|(slot, _)| slot)
        .collect();
    let stretch = |extent: &Extent| Stretch {
        offset_bytes: extent.start * hemi_units::SECTOR_BYTES,
        length_bytes: extent.bytes(),
    };
    PromotionReport {
        volume: before.name.as_str().to_owned(),
        path,
        leg: own.0,
        closed: !before.open,
        others,
        lacks: promotion.lacks.iter().map(stretch).collect(),
        lacks_bytes: promotion.lacks.iter().map(|extent| extent.bytes()).sum(),
        uncertain: promotion.uncertain.iter().map(stretch).collect(),
        uncertain_regions: promotion.uncertain_regions,
        ledger,
        region_bytes: before.layout.region_bytes(),
    }
}
