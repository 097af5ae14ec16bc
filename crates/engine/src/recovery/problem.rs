//! The reasons why a volume does not open, and the ways out, in words.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::format::ledger::LedgerError;
use crate::format::superblock::SuperblockError;
use crate::format::{LegDescription, page};
use crate::identifiers::LegIndex;
use crate::marks::{Mark, Marks};

/// The command in these texts that lets one leg decide. Whoever knows more of it may put that in its place.
pub const PROMOTE: &str = "hemi promote LEG";

/// A reason why a volume does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No leg was given.
    NoLegs,
    /// Not a leg of any volume.
    NotALeg {
        /// The image's index.
        image: usize,
        /// The error in its superblock.
        error: SuperblockError,
    },
    /// A leg of another volume.
    ForeignVolume {
        /// The image's index.
        image: usize,
        /// The volume it belongs to.
        name: String,
        /// The volume of the first leg given.
        expected: String,
    },
    /// The same leg twice.
    SameLeg {
        /// One image.
        image: usize,
        /// The other.
        other: usize,
    },
    /// Two legs went on without each other.
    Fork {
        /// One image.
        image: usize,
        /// The other.
        other: usize,
    },
    /// Legs that call the volume by different names, each of which counts itself in.
    Renamed {
        /// The image whose superblock is the newest.
        image: usize,
        /// The name it says.
        name: String,
        /// Another image.
        other: usize,
        /// The name that one says.
        other_name: String,
    },
    /// The volume no longer counts this leg among its own.
    Stranger {
        /// The image's index.
        image: usize,
        /// True if it was detached.
        detached: bool,
    },
    /// A leg that is in is not among those given.
    Missing {
        /// Its slot.
        leg: LegIndex,
        /// Its device, as the other legs remember it.
        last: LegDescription,
    },
    /// No leg is in: a promotion was cut short.
    NoneIn,
    /// A superblock slot is damaged and may hide a newer state.
    SuperblockDamaged {
        /// The image's index.
        image: usize,
        /// The slot.
        slot: u8,
    },
    /// A page of the region table is damaged and may hide a newer state.
    PageDamaged {
        /// The image's index.
        image: usize,
        /// The page.
        page: u32,
        /// The regions it describes.
        first_region: u32,
        /// One past the last of them.
        end_region: u32,
    },
    /// No leg has a valid copy of a page.
    PageLost {
        /// The page.
        page: u32,
    },
    /// Regions for which no leg that is in counts as whole or decides. A leg that was promoted
    /// and has heard of a later history, but not yet that it is out, is left so; else it takes
    /// damage that checksums do not show.
    Undecided {
        /// The first such region.
        region: u32,
        /// Their number.
        count: u32,
    },
    /// A page has bits this version does not know.
    PageUnsupported {
        /// The image's index.
        image: usize,
        /// The error.
        error: page::PageError,
    },
    /// The ledger that the volume was served with during this boot of the machine is missing, or
    /// is not valid. What was acknowledged and not flushed cannot be told without it.
    Ledger {
        /// The error; `None` if there is no ledger.
        error: Option<LedgerError>,
    },
    /// No leg has a valid list of lost extents.
    LostListDamaged,
    /// The image is shorter than the metadata.
    Truncated {
        /// The image's index.
        image: usize,
        /// Bytes needed.
        needed: u64,
        /// Bytes found.
        found: u64,
    },
}

/// Every reason why a volume does not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl Refusal {
    /// Says it all, a line per problem; `names` are the images' names (paths) in order.
    pub fn describe(&self, names: &[&str]) -> String {
        let lines: Vec<String> = self.problems.iter().map(|p| p.describe(names)).collect();
        lines.join("\n")
    }

    /// A mark for each problem.
    pub fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        self.problems.iter().for_each(|problem| marks.add(problem.mark()));
        marks
    }
}

impl Problem {
    /// The mark of a start refused for this.
    pub fn mark(&self) -> Mark {
        match self {
            Problem::NoLegs | Problem::NotALeg { .. } => Mark::RefusedNotALeg,
            Problem::ForeignVolume { .. } => Mark::RefusedForeign,
            Problem::SameLeg { .. } => Mark::RefusedSameLeg,
            Problem::Fork { .. } => Mark::RefusedFork,

            Problem::Stranger { .. } => Mark::RefusedStranger,
            Problem::Missing { .. } => Mark::RefusedMissing,
            Problem::NoneIn => Mark::RefusedNoneIn,
            Problem::Renamed { .. }
            | Problem::SuperblockDamaged { .. }
            | Problem::PageDamaged { .. }
            | Problem::PageLost { .. }
            | Problem::Undecided { .. }
            | Problem::PageUnsupported { .. }
            | Problem::LostListDamaged => Mark::RefusedDamaged,
            Problem::Ledger { .. } => Mark::RefusedLedger,
            Problem::Truncated { .. } => Mark::RefusedTruncated,
        }
    }

    /// One sentence that names the leg, what is wrong and the way out.
    pub fn describe(&self, names: &[&str]) -> String {
        let name = |image: usize| names.get(image).copied().unwrap_or("?");
        match self {
            Problem::NoLegs => "no leg was named".into(),
            Problem::NotALeg { image, error } => {
                format!("{}: {error}; name the volume's legs only", name(*image))
            }
            Problem::ForeignVolume { image, name: other, expected } => format!(
                "{}: belongs to volume {other:?}, not to {expected:?}; leave it out",
                name(*image)
            ),
            Problem::SameLeg { image, other } => format!(
                "{} and {}: the same leg twice (two paths to one disk, or one is a copy of the other); \
                 leave one out",
                name(*image),
                name(*other)
            ),
            Problem::Fork { image, other } => format!(
                "{} and {}: each was used without the other, so their contents have diverged \
                 and cannot be merged; serve only the one to keep, and make the other a new \
                 leg with 'hemi leg replace'",
                name(*image),
                name(*other)
            ),
            Problem::Renamed { image, name: newest, other, other_name } => format!(
                "{} says that the volume is called {newest:?}, and {} says {other_name:?}: a name never \
                 changes, so the superblock of one was tampered with. Leave that leg out; if the other \
                 then cannot decide alone, let it with '{PROMOTE}'",
                name(*image),
                name(*other)
            ),
            Problem::Stranger { image, detached: true } => format!(
                "{}: was detached from the volume; leave it out, and attach it again with \
                 'hemi leg attach'",
                name(*image)
            ),
            Problem::Stranger { image, detached: false } => {
                format!("{}: is no longer a leg of the volume; leave it out", name(*image))
            }
            Problem::Missing { leg, last } => {
                let known =
                    if last.is_empty() { String::new() } else { format!(" (last seen as {last})") };
                format!(
                    "leg {}{known} is missing, and it may hold writes that the others lack; \
                     bring it back, or decide with '{PROMOTE}' for a leg that is there",
                    leg.0
                )
            }
            Problem::NoneIn => {
                format!("no leg may decide: a promotion was interrupted; run '{PROMOTE}' again")
            }
            Problem::SuperblockDamaged { image, slot } => format!(
                "{}: superblock slot {slot} is damaged and may have recorded something newer; \
                 decide with '{PROMOTE}'",
                name(*image)
            ),
            Problem::PageDamaged { image, page, first_region, end_region } => format!(
                "{}: page {page} of the region table is damaged and may have recorded something \
                 newer about regions {first_region} to {}; decide with '{PROMOTE}'",
                name(*image),
                end_region - 1
            ),
            Problem::PageLost { page } => {
                format!("page {page} of the region table is on no leg; decide with '{PROMOTE}'")
            }
            Problem::Undecided { region, count } => format!(
                "no leg that is in decides region {region} ({count} such regions): name all the \
                 volume's legs, or decide with '{PROMOTE}'"
            ),
            Problem::PageUnsupported { image, error } => format!("{}: {error}", name(*image)),
            Problem::Ledger { error } => {
                let what = match error {
                    None => "is missing".into(),
                    Some(error) => format!("is not valid: {error}"),
                };
                format!(
                    "the ledger that the volume was last served with {what}; writes that were \
                     acknowledged and not flushed may be lost without it: bring it back to its \
                     directory, or start by what was flushed: 'hemi serve --accept-loss', or as \
                     usual after a restart of the machine"
                )
            }
            Problem::LostListDamaged => {
                format!("the list of lost extents is damaged on every leg; decide with '{PROMOTE}'")
            }
            Problem::Truncated { image, needed, found } => format!(
                "{}: has {found} bytes, the volume's metadata and data need {needed}; it was \
                 truncated: replace it with 'hemi leg replace'",
                name(*image)
            ),
        }
    }
}
