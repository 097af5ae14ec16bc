//! The request: the target, the bounds, and the drives to choose from.

use hemi_drives::preset::Precondition;
use hemi_units::Size;

use crate::error::AdviseError;
use crate::freezes::FreezeRate;
use crate::prices::Prices;

/// Largest number of presets to choose from. Every two of them are a pair.
pub const MOST_PRESETS: usize = 100;
/// Largest number of years that costs are counted for.
pub const MOST_YEARS: f64 = 50.0;

/// A request for advice.
#[derive(Clone, Debug)]
pub struct Request {
    /// The 99.9th percentile of the latency of all requests, in nanoseconds, that a system must
    /// not exceed.
    pub target: Option<u64>,
    /// Bound of the exposure of a pair; the engine's own default if absent.
    pub exposure: Option<Size>,
    /// Most that may be paid for drives over the years.
    pub budget: Option<f64>,
    /// Years that costs and wear are counted for.
    pub years: f64,
    /// Least number of copies of everything.
    pub copies: u32,
    /// Bytes the volume must have; as far as the trace's requests reach if absent.
    pub capacity: Option<Size>,
    /// State of flash before the trace.
    pub state: Precondition,
    /// Price of a kilowatt-hour; energy is not priced without one.
    pub electricity: Option<f64>,
    /// Energy for cooling, as a percentage of the drives' own.
    pub cooling_percent: f64,
    /// Divisor of the flash's capacity besides the presets' own; chosen if absent.
    pub flash_scale: Option<u64>,
    /// Freezes of one leg.
    pub what_if: Option<FreezeRate>,
    /// Preset of a drive that one has.
    pub have: Option<String>,
    /// Presets to choose from, by name or path; all with a price if empty.
    pub candidates: Vec<String>,
    /// A user's own prices.
    pub prices: Prices,
    /// Seed of all randomness.
    pub seed: u64,
    /// True to choose from pairs of stripes of twice as many drives as a leg needs, too.
    pub wide: bool,
    /// Number of systems that meet what is asked for after which dearer ones, which cannot be
    /// among that many first, are not simulated; all are if absent.
    pub enough: Option<usize>,
    /// Systems simulated at a time; as many as there are cores if absent.
    pub jobs: Option<usize>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            target: None,
            exposure: None,
            budget: None,
            years: 5.0,
            copies: 1,
            capacity: None,
            state: Precondition::Steady,
            electricity: None,
            cooling_percent: 50.0,
            flash_scale: None,
            what_if: None,
            have: None,
            candidates: Vec::new(),
            prices: Prices::default(),
            seed: 1,
            wide: false,
            enough: None,
            jobs: None,
        }
    }
}

impl Request {
    /// Returns true if there is anything that a system may fail to meet.
    pub(crate) fn asks(&self) -> bool {
        self.target.is_some() || self.budget.is_some()
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// Fails at the first that is impossible, naming the option.
    pub fn check(&self) -> Result<(), AdviseError> {
        let positive = |option, value: Option<f64>| match value {
            Some(value) if !(value > 0.0 && value <= 1e12) => {
                Err(AdviseError::option(option, value, "an amount above 0"))
            }
            _ => Ok(()),
        };
        positive("--budget", self.budget)?;
        positive("--electricity", self.electricity)?;
        if self.target == Some(0) {
            return Err(AdviseError::option("--p99.9", "0s", "a time above zero"));
        }
        if !(self.years > 0.0 && self.years <= MOST_YEARS) {
            let right = format!("a number above 0, at most {MOST_YEARS}");
            return Err(AdviseError::option("--years", self.years, right));
        }
        if !(0.0..=1000.0).contains(&self.cooling_percent) {
            return Err(AdviseError::option("--cooling", self.cooling_percent, "0 to 1000 %"));
        }
        if !(1..=2).contains(&self.copies) {
            return Err(AdviseError::option("--copies", self.copies, "1 or 2"));
        }
        if let Some(exposure) = self.exposure
            && !(1 << 20..=1 << 40).contains(&exposure.0)
        {
            return Err(AdviseError::option("--exposure", exposure, "1MiB to 1TiB"));
        }
        if let Some(capacity) = self.capacity
            && !(1 << 20..=1 << 50).contains(&capacity.0)
        {
            return Err(AdviseError::option("--capacity", capacity, "1MiB to 1PiB"));
        }
        if let Some(scale) = self.flash_scale
            && !(1..=1 << 20).contains(&scale)
        {
            return Err(AdviseError::option("--flash-scale", scale, "1 to 1048576"));
        }
        if self.candidates.len() > MOST_PRESETS {
            let right = format!("at most {MOST_PRESETS} presets");
            return Err(AdviseError::option("--candidates", self.candidates.len(), right));
        }
        Ok(())
    }
}
