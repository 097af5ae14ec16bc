//! `--what-if freeze=2s/day`: freezes of a drive, placed where they meet the most requests.

use std::str::FromStr;

use hemi_drives::any::AnyDrive;
use hemi_drives::faulty::{Faults, Faulty, Spell};
use hemi_units::prose::duration;
use hemi_units::{Instant, SECOND, Time};
use serde::Serialize;

use crate::load::Load;

const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// Freezes of one length, one in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreezeRate {
    /// Nanoseconds of each freeze.
    pub length: u64,
    /// Nanoseconds from the start of one to the start of the next.
    pub period: u64,
}

impl FromStr for FreezeRate {
    type Err = String;

    fn from_str(text: &str) -> Result<FreezeRate, String> {
        let form = "write freeze=LENGTH/PERIOD, as in freeze=2s/day or freeze=500ms/1h";
        let rate = text.strip_prefix("freeze=").ok_or(form)?;
        let (length, period) = rate.split_once('/').ok_or(form)?;
        let time = |text: &str| text.parse::<Time>().map(|time| time.0);
        let length = time(length).map_err(|error| error.to_string())?;
        let period = match period {
            "second" => SECOND,
            "minute" => 60 * SECOND,
            "hour" => HOUR,
            "day" => DAY,
            "week" => 7 * DAY,
            other => time(other).map_err(|error| format!("{error}, or hour, day, week"))?,
        };
        if length == 0 {
            return Err("a freeze has a length above zero".into());
        }
        if period <= length {
            return Err("the period has to be longer than the freeze".into());
        }
        Ok(FreezeRate { length, period })
    }
}

/// Freezes as they are placed in a load.
#[derive(Clone, Debug, Serialize)]
pub struct Placed {
    /// Time of the first freeze in seconds.
    pub at: f64,
    /// Length of each in seconds.
    pub length: f64,
    /// Number of freezes in the load.
    pub count: u64,
    /// The placement in a sentence or two.
    pub said: String,
    #[serde(skip)]
    freeze: FreezeAt,
}

#[derive(Clone, Copy, Debug)]
struct FreezeAt(Spell);

impl Placed {
    /// Places freezes in a load: the first in its busiest part, and one in each period after and
    /// before it. A load shorter than the period has one all the same.
    pub fn in_load(rate: FreezeRate, load: &Load) -> Placed {
        let FreezeRate { length, period } = rate;
        let busiest = load.busiest(length);
        let (at, every) =
            if load.duration > period { (busiest % period, Some(period)) } else { (busiest, None) };
        let count = every.map_or(1, |every| (load.duration - at) / every + 1);
        let (long, each) = (duration(length), named(period));
        let said = if every.is_some() {
            format!(
                "One freeze of {long} each {each}, at the time of the trace's busiest {long}: \
                 {count} in all."
            )
        } else {
            let times = period as f64 / load.duration as f64;
            format!(
                "One freeze of {long}, in the trace's busiest {long}. The trace is shorter than \
                 {each}, so the share of requests that the freeze hits is {times:.1} times that of \
                 a whole {each}."
            )
        };
        let seconds = crate::distribution::seconds;
        let freeze = FreezeAt(Spell { at: Instant(at), length: Some(length), every });
        Placed { at: seconds(at), length: seconds(length), count, said, freeze }
    }

    /// Returns the drive behind these freezes.
    pub(crate) fn before(&self, drive: AnyDrive) -> AnyDrive {
        let faults = Faults { freezes: vec![self.freeze.0], ..Faults::default() };
        AnyDrive::Faulty(Box::new(Faulty::new(drive, faults)))
    }
}

/// Returns a period in words.
fn named(period: u64) -> String {
    let names = [(SECOND, "second"), (60 * SECOND, "minute"), (HOUR, "hour"), (DAY, "day")];
    let name = names.into_iter().find(|&(length, _)| length == period);
    name.map_or_else(|| duration(period), |(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Change;
    use crate::testing;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let rate: FreezeRate = "freeze=2s/day".parse().unwrap();
        assert_eq!(rate, FreezeRate { length: 2 * SECOND, period: DAY });
        let rate: FreezeRate = "freeze=1m 30s/6h".parse().unwrap();
        assert_eq!(rate, FreezeRate { length: 90 * SECOND, period: 6 * HOUR });
        for wrong in ["2s/day", "freeze=2s", "freeze=0s/day", "freeze=2h/1h", "freeze=2/day"] {
            assert!(wrong.parse::<FreezeRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_short_trace_has_one_freeze_where_it_is_busiest() {
        let trace = testing::trace(&[
            (0, 0, 8, "R"),
            (50 * SECOND, 0, 8, "R"),
            (50 * SECOND + 1, 0, 8, "R"),
            (100 * SECOND, 0, 8, "R"),
        ]);
        let load = Load::of(&trace, Change::default()).unwrap();
        let placed = Placed::in_load(FreezeRate { length: 2 * SECOND, period: DAY }, &load);
        assert_eq!((placed.at, placed.count), (50.0, 1));
        assert!(placed.said.contains("864.0 times"), "{}", placed.said);
        let often = Placed::in_load(FreezeRate { length: SECOND, period: 20 * SECOND }, &load);
        assert_eq!((often.at, often.count), (10.0, 5));
    }
}
