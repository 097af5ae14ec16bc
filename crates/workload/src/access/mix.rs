//! Reads, writes, trims and flushes.

use hemi_random::Rng;
use hemi_units::Operation;
use serde::Deserialize;

use super::super::error::{WorkloadError, check_count, check_percent};

/// What is asked for, by percentage of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixSpec {
    /// Reads, percent of all requests but the flushes.
    pub read_percent: f64,
    /// Trims, percent of all requests but the flushes; what is neither read nor trim is
    /// written.
    #[serde(default)]
    pub trim_percent: f64,
    /// Writes that must be on the medium, percent of the writes.
    #[serde(default)]
    pub fua_percent: f64,
    /// After this many writes of a thread, the thread's next request is a flush. It counts as
    /// a request like the others, and does not wait for those under way: with a queue depth
    /// of 1 it comes after its writes, else it covers those done when it is issued.
    #[serde(default)]
    pub flush_every: Option<u64>,
}

/// The mix to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// A draw below this reads …
    read: u64,
    /// … and below this, trims.
    trim: u64,
    fua: u64,
    flush_every: u64,
}

/// Draws are of this many bits, exact in an f64.
const BITS: u32 = 53;

impl MixSpec {
    /// The mix.
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

/// The draws, of [`BITS`], that make up this percentage.
fn threshold(percent: f64) -> u64 {
    (percent / 100.0 * (1_u64 << BITS) as f64) as u64
}

impl Mix {
    /// Whether anything is written or trimmed.
    pub(crate) fn writes(&self) -> bool {
        self.read < 1 << BITS
    }

    /// Draws what to do; `writes` counts the thread's since its last flush.
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
