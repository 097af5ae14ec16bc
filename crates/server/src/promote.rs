//! `hemi promote`: the operator's word that one leg decides alone.
//!
//! What recovery refuses to guess (P7) is decided here, offline, on one leg: every other leg
//! is out from now on, what this leg knows it lacks is recorded as lost and fails to be read
//! until it is written again, and a new generation begins, so that the others can only come
//! back as legs that are filled anew. What is given up is told before anything is written.

use std::io;

use hemi_core::format::{Id, Membership, Superblock};
use hemi_core::io::OutReason;
use hemi_core::recovery::{HEAD_BYTES, LegImage, Promotion, metadata_bytes, newest_of, promote};
use hemi_core::units::Extent;
use serde::Serialize;

use crate::config::legs::LegSpec;
use crate::leg::{FileOptions, OpenError, OpenLeg, Purpose};

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
    /// What the leg knows it lacks: reads fail until it is written again.
    pub lacks: Vec<Stretch>,
    /// The sum of these.
    pub lacks_bytes: u64,
    /// Regions that were last being written under another leg's authority: they may lack the
    /// newest writes without the leg knowing.
    pub uncertain_regions: u32,
    /// Size of a region, bytes.
    pub region_bytes: u64,
}

/// A promotion that can be carried out. Holds the leg's lock.
pub struct PromotionPlan {
    opened: OpenLeg,
    promotion: Promotion,
    report: PromotionReport,
}

impl PromotionPlan {
    /// Opens the leg and works out what its promotion means. Writes nothing.
    ///
    /// # Errors
    ///
    /// The leg cannot be opened (in use, missing), or is not a leg of any volume.
    pub fn new(spec: &LegSpec, options: FileOptions) -> Result<PromotionPlan, PromoteError> {
        let opened = OpenLeg::open(spec, options, Purpose::Serve)?;
        let path = opened.description();
        let refuse = |text: String| PromoteError::Refused(text);
        let bytes = read_metadata(&opened, &path)?;
        let before = newest_of(&bytes).map_err(|error| refuse(format!("{path}: {error}")))?;
        if before.own_record().state == Membership::Empty
            || before.own_record().state == Membership::Out(OutReason::Detached)
        {
            return Err(refuse(format!(
                "{path}: was detached from volume {:?} and decides nothing in it; attach it with \
                 'hemi leg attach', or use its data area as a disk image",
                before.name.as_str()
            )));
        }
        let mut generation = Id::default();
        rustix::rand::getrandom(&mut generation, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| PromoteError::Random(error.into()))?;
        let promotion = promote(LegImage { bytes: &bytes }, generation)
            .map_err(|refusal| refuse(refusal.describe(&[path.as_str()])))?;
        let report = report(path, &before, &promotion);
        Ok(PromotionPlan { opened, promotion, report })
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
    pub fn carry_out(self) -> Result<PromotionReport, PromoteError> {
        let fail = |source| PromoteError::Write { leg: self.report.path.clone(), source };
        for (address, block) in &self.promotion.writes {
            // Each is durable before the next: what is lacking is recorded before the leg
            // may decide.
            self.opened.write_at(*address, &block[..]).map_err(fail)?;
            self.opened.flush().map_err(fail)?;
        }
        Ok(self.report)
    }
}

/// The leg's bytes from its beginning to the data area, or to its end if that comes before.
fn read_metadata(opened: &OpenLeg, path: &str) -> Result<Vec<u8>, PromoteError> {
    let read = |length: u64| {
        // Metadata of the largest volume is far below the address space.
        let mut bytes = vec![0; usize::try_from(length.min(opened.size())).unwrap_or(usize::MAX)];
        opened
            .read_at(0, &mut bytes)
            .map_err(|source| PromoteError::Read { leg: path.to_owned(), source })?;
        Ok::<_, PromoteError>(bytes)
    };
    let head = read(HEAD_BYTES)?;
    let length =
        metadata_bytes(&head).map_err(|error| PromoteError::Refused(format!("{path}: {error}")))?;
    read(length)
}

fn report(path: String, before: &Superblock, promotion: &Promotion) -> PromotionReport {
    let own = before.leg;
    let others = (0u8..)
        .zip(&promotion.superblock.legs)
        .filter(|(slot, record)| *slot != own.0 && record.state != Membership::Empty)
        .map(|(slot, _)| slot)
        .collect();
    let stretch = |extent: &Extent| Stretch {
        offset_bytes: extent.start * hemi_core::units::SECTOR_BYTES,
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
        uncertain_regions: promotion.uncertain_regions,
        region_bytes: before.layout.region_bytes(),
    }
}
