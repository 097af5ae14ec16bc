//! Reads, writes, trims and flushes.

use hemi_random::Rng;
use hemi_units::Operation;
use serde::Deserialize;

use super::super::error::{WorkloadError, check_count, check_percent};

/// The mix of operations, as percentages of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixSpec {
    /// Reads, percent of all requests except flushes.
    pub read_percent: f64,
    /// Trims, percent of all requests except flushes. The rest are writes.
    #[serde(default)]
    pub trim_percent: f64,
    /// Writes with FUA, percent of the writes.
    #[serde(default)]
    pub fua_percent: f64,
    /// Number of writes of a thread after which its next request is a flush. The flush counts
    /// as a request and does not wait for requests in flight: with a queue depth of 1 it covers
    /// all writes before it, otherwise those done when it is issued.
    #[serde(default)]
    pub flush_every: Option<u64>,
}

/// The thresholds to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Draws below this are reads.
    read: u64,
    /// Draws from `read` up to this are trims.
    trim: u64,
    fua: u64,
    flush_every: u64,
}

/// Bits of a draw, exact in an f64.
const BITS: u32 = 53;

impl MixSpec {
    /// Builds the mix.
    pub(crate) fn build(&self) -> Result<Mix, WorkloadError> {
        check_percent("mix.read_percent", self.read_percent)?;
        check_percent("mix.trim_percent", self.trim_percent)?;
        check_percent("mix.fua_percent", self.fua_percent)?;
        let sum = self.read_percent + self.trim_percent;
        if sum > 100.0 {
            let right = "write percentages that leave, with `read_percent`, 100 or less";
            return Err(WorkloadError::new("mix.trim_percent", self.trim_percent, right));
        }
        if let Some(every) = self.flush_every {
            check_count("mix.flush_every", every, u64::MAX)?;
        }
        Ok(Mix {
            read: threshold(self.read_percent),
            trim: threshold(sum),
            fua: threshold(self.fua_percent),
            flush_every: self.flush_every.unwrap_or(u64::MAX),
        })
    }
}

/// Returns the number of draws of [`BITS`] bits that make up this percentage.
fn threshold(percent: f64) -> u64 {
    (percent / 100.0 * (1_u64 << BITS) as f64) as u64
}

impl Mix {
    /// Returns true if the mix contains writes or trims.
    pub(crate) fn writes(&self) -> bool {
        self.read < 1 << BITS
    }

    /// Draws the next operation; `writes` counts the thread's writes since its last flush.
    pub(crate) fn next(&self, rng: &mut Rng, writes: &mut u64) -> Operation {
        if *writes >= self.flush_every {
            *writes = 0;
            return Operation::Flush;
        }
        let drawn = rng.draw() >> (64 - BITS);
        if drawn < self.read {
            return Operation::Read;
        }
        if drawn < self.trim {
            return Operation::Trim;
        }
        *writes += 1;
        Operation::Write { fua: self.fua > 0 && rng.draw() >> (64 - BITS) < self.fua }
    }
}
