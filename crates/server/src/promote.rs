//! `hemi promote`: lets one leg decide alone, at the operator's word.
//!
//! Recovery refuses to guess (P7). The operator decides here instead, offline and on one leg. Every other leg
//! is out from now on. The extents that this leg knows it lacks are recorded as lost and cannot be read until
//! they are written again. A new generation begins, so the other legs can only come back as new legs that are
//! filled from scratch. The loss is reported before anything is written.
//!
//! The ledger that the leg relied on names regions in which the leg is behind although its own pages do not
//! say so. Once the promotion is durable, no leg relies on the ledger, and it is removed.

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
use crate::opening::volume_name;
use crate::quarantine;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_io::leg::{OpenError, OpenLeg, Purpose};
use hemi_io::probe::other_spec;
use hemi_io::random;

/// The reason why a leg was not promoted.
#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    /// The leg could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The leg holds nothing to go on from.
    #[error("{0}")]
    Refused(String),
    /// The leg could not be read.
    #[error("{leg}: its metadata could not be read: {source}")]
    Read {
        /// The leg.
        leg: String,
        /// The system's error.
        source: io::Error,
    },
    /// The leg could not be written. The promotion was cut short and can be run again.
    #[error(
        "{leg}: the promotion was interrupted: {source}. Nothing decides on this leg now; run \
         the command again"
    )]
    Write {
        /// The leg.
        leg: String,
        /// The system's error.
        source: io::Error,
    },
    /// The ledger is in use, or the current boot of the machine cannot be identified.
    #[error(transparent)]
    Ledger(LedgerFileError),
    /// The leg is promoted, but the ledger's file could not be removed.
    #[error("{leg}: is promoted, and relies on no ledger any more: {source}")]
    LedgerLeft {
        /// The leg.
        leg: String,
        /// The ledger's error.
        source: LedgerFileError,
    },
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for the new generation: {0}")]
    Random(io::Error),
}

/// A stretch of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// Its offset in bytes.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
}

/// The outcome of asking the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum LedgerAsked {
    /// The leg relied on no ledger: its own pages are complete.
    NoneReliedOn,
    /// The leg relied on a ledger of an earlier boot of the machine, which ended with that boot.
    OfAnotherBoot,
    /// The ledger was read.
    Read {
        /// The ledger's file.
        path: PathBuf,
    },
    /// The ledger that the leg relied on is missing or invalid. It is unknown which regions another leg took
    /// over last.
    Unknown {
        /// The problem.
        problem: String,
        /// The paths where it was looked for.
        looked_at: Vec<PathBuf>,
    },
}

/// The data that a promotion gives up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromotionReport {
    /// The volume's name.
    pub volume: String,
    /// The leg.
    pub path: String,
    /// Its slot.
    pub leg: u8,
    /// True if the volume was closed cleanly, as far as this leg knows.
    pub closed: bool,
    /// Slots of the legs that are out from now on.
    pub others: Vec<u8>,
    /// Extents that the leg knows it lacks, without those that the ledger calls complete. Reads fail until
    /// they are written again.
    pub lacks: Vec<Stretch>,
    /// The sum of their lengths.
    pub lacks_bytes: u64,
    /// Regions that may lack the newest writes, because another leg had authority when they were last written
    /// or because the ledger says that the leg is behind there. They can be read.
    pub uncertain: Vec<Stretch>,
    /// Number of these regions.
    pub uncertain_regions: u32,
    /// The outcome of asking the ledger.
    pub ledger: LedgerAsked,
    /// Size of a region in bytes.
    pub region_bytes: u64,
}

/// A promotion that is ready to be carried out. It holds the locks of the leg and the ledger.
pub struct PromotionPlan<'a> {
    opened: OpenLeg,
    volume: String,
    ledgers: Ledgers<'a>,
    promotion: Promotion,
    report: PromotionReport,
}

impl<'a> PromotionPlan<'a> {
    /// Opens the leg and works out the effects of its promotion. Writes nothing. If the volume was
    /// not closed, waits first until its last writes to a remote leg have landed.
    ///
    /// # Errors
    ///
    /// Fails if the leg cannot be opened (in use, missing) or is not a leg of any volume, or if the volume's
    /// ledger is in use.
    pub fn new(config: &LegConfig, place: &'a Place) -> Result<PromotionPlan<'a>, PromoteError> {
        PromotionPlan::of(&config.path, OpenLeg::configured(config, Purpose::Serve)?, place)
    }

    /// Works out the effects of promoting an opened and locked leg, as [`PromotionPlan::new`] does.
    ///
    /// # Errors
    ///
    /// As for [`PromotionPlan::new`].
    pub(crate) fn of(
        spec: &LegSpec,
        opened: OpenLeg,
        place: &'a Place,
    ) -> Result<PromotionPlan<'a>, PromoteError> {
        let path = opened.description();
        let refuse = |text: String| PromoteError::Refused(text);
        let newest = |bytes: &[u8]| newest_of(bytes).map_err(|error| not_a_leg(spec, &path, error));
        let mut bytes = read_metadata(&opened, spec)?;
        let mut before = newest(&bytes)?;
        // Here and not at the next start: the promotion leaves the leg closed.
        if before.open && quarantine::wait_out(std::iter::once(&opened)) {
            bytes = read_metadata(&opened, spec)?;
            before = newest(&bytes)?;
        }
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
        let volume = volume_name(&before);
        Ok(PromotionPlan { opened, volume, ledgers, promotion, report })
    }

    /// Returns the volume's name, or the beginning of its id if it has none.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// Returns the leg.
    pub(crate) fn leg(&self) -> &OpenLeg {
        &self.opened
    }

    /// Returns the report on the data given up.
    pub fn report(&self) -> &PromotionReport {
        &self.report
    }

    /// Carries out the promotion.
    ///
    /// # Errors
    ///
    /// [`PromoteError::Write`] if a write failed: the leg then decides nothing until the command is run
    /// again. [`PromoteError::LedgerLeft`] if only the removal of the ledger failed.
    pub fn carry_out(self) -> Result<PromotionReport, PromoteError> {
        let fail = |source| PromoteError::Write { leg: self.report.path.clone(), source };
        for (address, block) in &self.promotion.writes {
            // Each write is durable before the next, so the missing extents are recorded before the leg may
            // decide.
            self.opened.write_at(*address, &block[..]).map_err(fail)?;
            self.opened.flush().map_err(fail)?;
        }
        // The ledger is removed last: a promotion cut short reads it again.
        let leg = self.report.path.clone();
        self.ledgers.remove().map_err(|source| PromoteError::LedgerLeft { leg, source })?;
        Ok(self.report)
    }
}

/// Describes in the report how the ledger was used.
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

/// Reads the leg from its beginning to the data area, or to its end if that comes first.
fn read_metadata(opened: &OpenLeg, spec: &LegSpec) -> Result<Vec<u8>, PromoteError> {
    let path = opened.description();
    let read = |length: u64| {
        // The metadata of the largest volume is far smaller than the address space.
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

/// Returns an error that says that a path is not a leg or names its right spec.
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
