//! Sets of region numbers, stored as runs.

use std::fmt;

use serde::{Serialize, Serializer};

/// Maximum number of runs kept. Numbers beyond them are only counted.
pub const RUNS_MAX: usize = 1000;
/// Maximum number of runs in a line of text.
const SHOWN_MAX: usize = 12;

/// Numbers given in ascending order, stored as runs. At most [`RUNS_MAX`] runs are kept, but all
/// numbers are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<(u64, u64)>,
    count: u64,
    omitted: u64,
}

impl Runs {
    /// Adds a number greater than all before.
    pub fn push(&mut self, number: u64) {
        self.push_range(number, number + 1);
    }

    /// Adds the numbers from `start` up to but not including `end`, all greater than those before.
    pub fn push_range(&mut self, start: u64, end: u64) {
        self.count += end - start;
        let full = self.runs.len() == RUNS_MAX;
        match self.runs.last_mut() {
            Some(last) if self.omitted == 0 && last.1 == start => last.1 = end,
            _ if full => self.omitted += end - start,
            _ => self.runs.push((start, end)),
        }
    }

    /// Returns the count of all numbers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the runs kept, each as its first number and one past its last.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.runs
    }
}

impl Serialize for Runs {
    /// Writes `{"count": 5, "runs": [[0, 3], [7, 8]], "omitted": 0}`: the first and last number of
    /// each run, and the count of the numbers in no listed run.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let runs: Vec<_> = self.runs.iter().map(|&(start, end)| (start, end - 1)).collect();
        let mut fields = serializer.serialize_struct("Runs", 3)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("runs", &runs)?;
        fields.serialize_field("omitted", &self.omitted)?;
        fields.end()
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = 0;
        for (index, &(start, end)) in self.runs.iter().take(SHOWN_MAX).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match end - start {
                1 => write!(formatter, "{separator}{start}")?,
                _ => write!(formatter, "{separator}{start}-{}", end - 1)?,
            }
            shown += end - start;
        }
        match self.count - shown {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join() {
        let mut runs = Runs::default();
        for number in [0, 1, 2, 7, 9, 10] {
            runs.push(number);
        }
        runs.push_range(11, 20);
        assert_eq!(runs.to_string(), "0-2, 7, 9-19");
        assert_eq!(runs.count(), 15);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut runs = Runs::default();
        for number in 0..2 * RUNS_MAX as u64 + 10 {
            runs.push(number * 2);
        }
        assert_eq!(runs.as_slice().len(), RUNS_MAX);
        assert_eq!(runs.count(), 2 * RUNS_MAX as u64 + 10);
        assert!(runs.to_string().ends_with("20, 22 and 1998 more"), "{runs}");
        let json = serde_json::to_value(&runs).expect("plain numbers");
        assert_eq!(json["omitted"], RUNS_MAX as u64 + 10);
        assert_eq!(json["runs"][1], serde_json::json!([2, 2]));
    }
}
