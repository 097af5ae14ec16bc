//! Parameters of a network volume.

use hemi_units::{Rate, SECTOR_BYTES, Size, Time};
use serde::Deserialize;

use super::latency::Latency;
use crate::parameter::{ParameterError, require};

/// A network volume's parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size of the volume; a multiple of 512 bytes.
    pub capacity: Size,
    /// Limit on requests per second.
    pub iops: RequestLimit,
    /// Limit on bytes per second, reads and writes together.
    pub bandwidth: ByteLimit,
    /// Time over which the rates are enforced: this much of each may pass at once. At least
    /// 1 us.
    pub window: Time,
    /// Maximum number of bytes that count as one request against `iops`; a longer request
    /// counts as several. At least 512 bytes.
    pub accounting_size: Size,
    /// True if sequential requests of one kind count as one until they reach `accounting_size`
    /// together.
    pub merge_sequential: bool,
    /// Maximum number of requests in flight; others wait. At least 1.
    pub queue_depth: u32,
    /// Speed at which a request's data crosses the network, in addition to its latency; not
    /// shared among requests.
    pub transfer: Rate,
    /// Latency of a read, after the limits let it pass.
    pub read: Latency,
    /// Latency of a write or a trim, after the limits let it pass.
    pub write: Latency,
    /// Latency of a flush: a round trip. A flush takes no tokens.
    pub flush: Latency,
    /// Pauses of the whole volume; none if absent.
    pub hiccups: Option<Hiccups>,
}

/// A limit on requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLimit {
    /// Requests per second without end; above zero.
    pub sustained: u64,
    /// Requests per second while there is credit; needs `credit`. At least `sustained`.
    pub peak: Option<u64>,
    /// Maximum credit in requests, saved while below `sustained`. A volume begins with all of
    /// it.
    pub credit: Option<u64>,
}

/// A limit on bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteLimit {
    /// Bytes per second without end; above zero.
    pub sustained: Rate,
    /// Bytes per second while there is credit; needs `credit`. At least `sustained`.
    pub peak: Option<Rate>,
    /// Maximum credit in bytes, saved while below `sustained`. A volume begins with all of it.
    pub credit: Option<Size>,
}

/// Pauses of the whole volume (a failover, a live migration, a congested path). Meanwhile no
/// request makes progress and none begins.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hiccups {
    /// Mean time from the end of one pause to the next (exponentially distributed); above zero.
    pub every: Time,
    /// Median length (log-normally distributed); above zero.
    pub median: Time,
    /// Standard deviation of the length's natural logarithm, 0 to 3.
    pub sigma: f64,
    /// Longest pause.
    pub longest: Time,
}

impl Parameters {
    /// Returns an error naming the parameter if no volume can have these parameters.
    pub fn check(&self) -> Result<(), ParameterError> {
        let sectors = self.capacity.0 > 0 && self.capacity.0.is_multiple_of(SECTOR_BYTES);
        let bytes = format!("{} B", self.capacity.0);
        require(sectors, "capacity", bytes, "a multiple of 512 bytes, above zero")?;
        require(self.window.0 >= 1000, "window", "below 1 us", "at least 1 us")?;
        let accounting = self.accounting_size.0 >= SECTOR_BYTES;
        let bytes = format!("{} B", self.accounting_size.0);
        require(accounting, "accounting_size", bytes, "at least 512 bytes")?;
        require(self.queue_depth > 0, "queue_depth", 0, "at least 1")?;
        require(self.transfer.0 > 0, "transfer", "0", "a rate above zero")?;
        let limit = self.iops;
        check_limit("iops", limit.sustained, limit.peak, limit.credit)?;
        let limit = self.bandwidth;
        let (peak, credit) = (limit.peak.map(|rate| rate.0), limit.credit.map(|size| size.0));
        check_limit("bandwidth", limit.sustained.0, peak, credit)?;
        self.read.check("read")?;
        self.write.check("write")?;
        self.flush.check("flush")?;
        let Some(hiccups) = self.hiccups else { return Ok(()) };
        let every = hiccups.every.0 > 0;
        require(every, "hiccups.every", "0", "a mean time above zero")?;
        let median = hiccups.median.0 > 0;
        require(median, "hiccups.median", "0", "a median length above zero")?;
        let sigma = (0.0..=3.0).contains(&hiccups.sigma);
        require(sigma, "hiccups.sigma", hiccups.sigma, "a number from 0 to 3")?;
        let longest = hiccups.longest >= hiccups.median;
        require(longest, "hiccups.longest", "below `median`", "at least the median")
    }
}

/// Returns an error if the parts of a limit do not fit together.
fn check_limit(
    name: &str,
    sustained: u64,
    peak: Option<u64>,
    credit: Option<u64>,
) -> Result<(), ParameterError> {
    require(sustained > 0, &format!("{name}.sustained"), "0", "a rate above zero")?;
    match (peak, credit) {
        (None, None) => Ok(()),
        (Some(peak), Some(credit)) => {
            let path = format!("{name}.peak");
            require(peak >= sustained, &path, peak, "at least the sustained rate")?;
            require(credit > 0, &format!("{name}.credit"), 0, "above zero")
        }
        (Some(_), None) => {
            Err(ParameterError::new(&format!("{name}.peak"), "alone", "a peak needs a `credit`"))
        }
        (None, Some(_)) => {
            Err(ParameterError::new(&format!("{name}.credit"), "alone", "credit needs a `peak`"))
        }
    }
}
