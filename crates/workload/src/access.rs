//! The requests of a thread: their addresses, sizes and operations.

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
    /// Distribution of the addresses.
    pub addresses: AddressesSpec,
    /// Part of the volume used; all of it if absent.
    #[serde(default)]
    pub span: Option<SpanSpec>,
    /// Alignment of requests, counted from the beginning of the span: a multiple of 512 B. The
    /// smallest request size if absent.
    #[serde(default)]
    pub alignment: Option<Size>,
    /// Sizes of the requests.
    pub sizes: SizesSpec,
    /// Reads, writes, flushes.
    pub mix: MixSpec,
}

/// An [`AccessSpec`] built for a volume.
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

/// The position of one thread in its requests.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: Rng,
    /// Next unit of a sequential thread.
    cursor: u64,
    /// Writes since the last flush.
    writes: u64,
}

impl AccessSpec {
    /// Builds the access for a volume of `volume_sectors` sectors.
    ///
    /// # Errors
    /// Fails if the spec is impossible on the volume, naming the key.
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
    /// Returns the stream of a thread.
    pub fn stream(&self, seeds: Seeds, thread: u64) -> Stream {
        Stream {
            rng: seeds.stream(Purpose::Requests, thread),
            cursor: self.addresses.first(thread),
            writes: 0,
        }
    }

    /// Returns the demand of the requests.
    pub(crate) fn demand(&self) -> Demand {
        Demand { writes: self.mix.writes(), longest_sectors: self.sizes.longest_sectors() }
    }

    /// Returns the thread's next request.
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
