//! What a thread asks for: where, how much, and whether to read or to write.

use hemi_random::Rng;
use hemi_units::{Extent, Operation, SECTOR_BYTES, Size};
use serde::Deserialize;

use self::addresses::{Addresses, AddressesSpec};
use self::mix::{Mix, MixSpec};
use self::sizes::{Sizes, SizesSpec};
use self::span::SpanSpec;
use super::Demand;
use super::error::WorkloadError;
use super::seeds::{Purpose, Seeds};

pub mod addresses;
pub mod mix;
mod scatter;
pub mod sizes;
pub mod span;

/// The `access` of a workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessSpec {
    /// How addresses are distributed.
    pub addresses: AddressesSpec,
    /// The part of the volume used; all of it without one.
    #[serde(default)]
    pub span: Option<SpanSpec>,
    /// Requests begin at multiples of this from the beginning of the span: a multiple of
    /// 512 B. Without one, the smallest request size.
    #[serde(default)]
    pub alignment: Option<Size>,
    /// How large requests are.
    pub sizes: SizesSpec,
    /// Reads, writes, flushes.
    pub mix: MixSpec,
}

/// What an [`AccessSpec`] comes to on a volume.
#[derive(Clone, Debug)]
pub struct Access {
    /// First sector of the span.
    start: u64,
    /// Sectors of the alignment.
    unit: u64,
    addresses: Addresses,
    sizes: Sizes,
    mix: Mix,
}

/// Where one thread is in what it asks for.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
    /// The unit a sequential thread comes to next.
    cursor: u64,
    /// Writes since the last flush.
    writes: u64,
}

impl AccessSpec {
    /// The access of a volume of so many sectors.
    ///
    /// # Errors
    /// What is impossible there, by key.
    pub fn build(&self, volume_sectors: u64) -> Result<Access, WorkloadError> {
        let span = SpanSpec::of(self.span.as_ref(), volume_sectors)?;
        let sizes = self.sizes.in_sectors()?;
        let unit = match self.alignment {
            Some(Size(bytes)) => sizes::sectors_of("alignment", bytes)?,
            None => sizes.smallest(),
        };
        let units = span.sectors() / unit;
        let sizes = sizes.aligned(unit);
        if sizes.largest_units() > units {
            let largest = sizes.largest_units() * unit * SECTOR_BYTES;
            return Err(WorkloadError::new(
                "sizes",
                format!("up to {largest} B with the alignment"),
                format!("the span has {} B: write smaller requests", span.bytes()),
            ));
        }
        let addresses = self.addresses.build(units, sizes.largest_units())?;
        Ok(Access { start: span.start, unit, addresses, sizes, mix: self.mix.build()? })
    }
}

impl Access {
    /// The stream of a thread.
    pub fn stream(&self, seeds: Seeds, thread: u64) -> Stream {
        Stream {
            rng: seeds.stream(Purpose::Requests, thread),
            cursor: self.addresses.first(thread),
            writes: 0,
        }
    }

    /// What the requests come to.
    pub(crate) fn demand(&self) -> Demand {
        Demand { writes: self.mix.writes(), longest_sectors: self.sizes.longest_sectors() }
    }

    /// The thread's next request.
    pub fn next(&self, stream: &mut Stream) -> (Operation, Extent) {
        let operation = self.mix.next(&mut stream.rng, &mut stream.writes);
        if operation == Operation::Flush {
            return (operation, Extent::default());
        }
        let size = self.sizes.next(&mut stream.rng);
        let unit = self.addresses.next(&mut stream.rng, &mut stream.cursor, size.units);
        (operation, Extent::new(self.start + unit * self.unit, size.sectors))
    }
}

#[cfg(test)]
mod tests;
