//! The report of `hemi create` on a new volume.

use std::fmt;

use serde::Serialize;

use super::candidate::Candidate;
use super::format::Plan;
use super::{LEGS_MIN, VolumeSize};
use hemi_io::leg::apart::MetadataPlace;
use hemi_io::probe::hex;
use hemi_units::Size;

/// A leg of a newly created volume.
#[derive(Clone, Debug, Serialize)]
pub struct CreatedLeg {
    /// Its slot.
    pub leg: usize,
    /// The spec on the command line.
    pub path: String,
    /// Its id.
    pub id: String,
    /// True if the file was created.
    pub made: bool,
    /// True if it holds the volume's content from the beginning. Otherwise it is filled once the volume is
    /// served.
    pub whole: bool,
    /// The place of its metadata if that is apart from its data, which then begins at byte 0.
    pub metadata: Option<MetadataPlace>,
}

/// A newly created volume.
#[derive(Clone, Debug, Serialize)]
pub struct Created {
    /// Its id.
    pub volume: String,
    /// Its name, possibly empty.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The size in bytes that was asked for, if it was rounded down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// Its region size in bytes.
    pub region_bytes: u64,
    /// Its smallest request in bytes.
    pub block_bytes: u32,
    /// Offset of the data on each leg, in bytes.
    pub data_offset: u64,
    /// Its legs.
    pub legs: Vec<CreatedLeg>,
    /// True if its content is all zeros. Otherwise it is the content of the first whole leg.
    pub zeros: bool,
}

/// Returns the report on a volume that has been written.
pub(super) fn created(
    plan: &Plan,
    candidates: &[Candidate],
    places: Vec<Option<MetadataPlace>>,
    zeros: bool,
    asked: VolumeSize,
) -> Created {
    let size_bytes = plan.layout.volume_bytes();
    let legs = candidates.iter().zip(&plan.legs).zip(places).enumerate();
    Created {
        volume: hex(plan.volume),
        name: plan.name.as_str().into(),
        size_bytes,
        asked_bytes: match asked {
            VolumeSize::Bytes(asked) if asked != size_bytes => Some(asked),
            _ => None,
        },
        region_bytes: plan.layout.region_bytes(),
        block_bytes: plan.block_bytes,
        data_offset: plan.layout.data_offset(),
        legs: legs
            .map(|(leg, ((candidate, id), metadata))| CreatedLeg {
                leg,
                path: candidate.text.clone(),
                id: hex(*id),
                made: candidate.makes_files(),
                whole: plan.whole >> leg & 1 == 1,
                metadata,
            })
            .collect(),
        zeros,
    }
}

impl fmt::Display for Created {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!(" \"{}\"", self.name) };
        let (size, region) = (Size(self.size_bytes), Size(self.region_bytes));
        writeln!(formatter, "created volume{name} {}", self.volume)?;
        if let Some(asked) = self.asked_bytes.map(Size) {
            writeln!(formatter, "  {asked} was rounded down to a multiple of 4096 bytes")?;
        }
        writeln!(formatter, "  size {size}, regions of {region}, blocks of {}", self.block_bytes)?;
        let except = if self.legs.iter().any(|leg| leg.metadata.is_some()) {
            ", unless said otherwise"
        } else {
            ""
        };
        writeln!(formatter, "  data at byte {} of each leg{except}", self.data_offset)?;
        for leg in &self.legs {
            let made = if leg.made { ", created" } else { "" };
            let state = if leg.whole { "whole" } else { "to be drained to" };
            writeln!(formatter, "  leg {}: {} ({state}{made})", leg.leg, leg.path)?;
            if let Some(MetadataPlace { path, start, end }) = &leg.metadata {
                writeln!(
                    formatter,
                    "    data at byte 0, metadata in bytes {start} to {} of {}",
                    end - 1,
                    path.display()
                )?;
            }
        }
        if self.legs.len() < LEGS_MIN {
            writeln!(
                formatter,
                "  the second leg is missing: until it is added and filled, all data is on leg 0 alone"
            )?;
        }
        for leg in self.legs.iter().filter(|leg| leg.metadata.is_some()) {
            writeln!(
                formatter,
                "  leg {} looks like its content, and mounts without hemi. A write that bypasses \
                 hemi goes unnoticed, and the legs differ from then on: mount the volume, \
                 never the leg",
                leg.leg
            )?;
        }
        if self.legs.iter().any(|leg| !leg.whole) {
            let source = if self.zeros { "zeros" } else { "what leg 0 held" };
            writeln!(
                formatter,
                "  the volume's content is {source}; the other legs are brought to it when the \
                 volume is served"
            )?;
        }
        Ok(())
    }
}
