//! The list of every bounded option with its value, default and allowed range. The check, its error
//! and the documentation share it and so cannot disagree.

use std::ops::RangeInclusive;

use super::ConfigError;
use hemi_units::{Size, Time};

/// One bounded option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its key in `CONFIG.toml`, with dots between tables.
    pub key: String,
    /// The value, as printed.
    pub value: String,
    /// The default, as printed.
    pub default: String,
    /// The lowest allowed value, as printed.
    pub lowest: String,
    /// The highest allowed value, as printed.
    pub highest: String,
    /// True if the value is in range.
    pub within: bool,
}

/// All bounded options of a configuration, in the order of the documentation.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The options.
    pub list: Vec<Bound>,
}

impl Bounds {
    fn push<T: PartialOrd + ToString>(
        &mut self,
        key: &str,
        value: T,
        default: T,
        allowed: RangeInclusive<T>,
    ) {
        self.list.push(Bound {
            key: key.to_owned(),
            value: value.to_string(),
            default: default.to_string(),
            lowest: allowed.start().to_string(),
            highest: allowed.end().to_string(),
            within: allowed.contains(&value),
        });
    }

    /// Adds a plain number.
    pub fn count(&mut self, key: &str, value: u32, default: u32, allowed: RangeInclusive<u32>) {
        self.push(key, value, default, allowed);
    }

    /// Adds a size.
    pub fn size(&mut self, key: &str, value: Size, default: Size, allowed: RangeInclusive<Size>) {
        self.push(key, value, default, allowed);
    }

    /// Adds a duration.
    pub fn time(&mut self, key: &str, value: Time, default: Time, allowed: RangeInclusive<Time>) {
        self.push(key, value, default, allowed);
    }

    /// Returns the faults of the options out of their ranges.
    pub fn faults(&self) -> impl Iterator<Item = ConfigError> {
        self.list.iter().filter(|bound| !bound.within).map(|bound| ConfigError::Range {
            key: bound.key.clone(),
            value: bound.value.clone(),
            lowest: bound.lowest.clone(),
            highest: bound.highest.clone(),
            default: bound.default.clone(),
        })
    }
}
