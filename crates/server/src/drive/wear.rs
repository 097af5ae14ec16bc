//! The rate at which a drive's rated endurance is used, and the date of its end.
//!
//! Drives report the used endurance in whole percents. The figure is exact only at the moments when it rises,
//! so only those count. Two of them, if far enough apart, give a rate.

use serde::{Deserialize, Serialize};

/// Maximum number of moments kept.
const MOMENTS_MAX: usize = 64;
/// Number of rises from which the current rate is taken.
const RISES: usize = 12;
/// Shortest time between the first and the last of them, in milliseconds.
pub(super) const SPAN_MIN_MS: u64 = 14 * DAY_MS;
const DAY_MS: u64 = 86_400_000;
const YEAR_MS: u64 = 365 * DAY_MS;
/// The whole endurance, in thousandths.
const ALL: u32 = 1000;
/// One percent, in thousandths.
const PERCENT: u32 = 10;
/// Times later than this (in the year 9999) are not shown as dates.
const DATE_MAX_MS: u64 = 253_370_764_800_000;

/// A figure, and the time at which it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Moment {
    at_ms: u64,
    used_permille: u32,
}

/// The figures of one drive over time, oldest first: the first one seen, then each rise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wear {
    moments: Vec<Moment>,
}

/// A forecast from the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Endurance used in a year, in thousandths.
    pub(super) permille_per_year: Option<u32>,
    /// Time of its end, in milliseconds since 1970.
    pub(super) end_at_ms: Option<u64>,
    /// The reason why the end is unknown.
    pub(super) why_no_end: Option<String>,
}

impl Wear {
    /// Records a figure. Returns true if it is worth keeping.
    pub(super) fn note(&mut self, at_ms: u64, used_permille: u32) -> bool {
        let last = self.moments.last().copied();
        match last {
            Some(last) if last.used_permille == used_permille => return false,
            // The clock was set back, so this moment does not count.
            Some(last) if at_ms <= last.at_ms => return false,
            // It is another drive, or new firmware that counts from zero.
            Some(last) if used_permille < last.used_permille => self.moments.clear(),
            _ => {}
        }
        if self.moments.len() == MOMENTS_MAX {
            self.moments.remove(0);
        }
        self.moments.push(Moment { at_ms, used_permille });
        true
    }

    /// Forecasts the end of the endurance.
    pub(super) fn outlook(&self, now_ms: u64) -> Outlook {
        let Some(first) = self.moments.first() else { return Outlook::default() };
        let last = self.moments.last().unwrap_or(first);
        if last.used_permille >= ALL {
            let why = "the rated endurance is used up".to_owned();
            return Outlook { why_no_end: Some(why), ..Outlook::default() };
        }
        // The first figure was seen some time after it rose, so it is skipped. Once the oldest moments have
        // been dropped, all are rises.
        let rises = &self.moments[1..];
        let rises = &rises[rises.len().saturating_sub(RISES)..];
        let (span, used) = match (rises.first(), rises.last()) {
            (Some(from), Some(to)) => {
                (to.at_ms - from.at_ms, to.used_permille - from.used_permille)
            }
            _ => (0, 0),
        };
        if used == 0 || span < SPAN_MIN_MS {
            return Outlook {
                why_no_end: Some(too_early(now_ms, first, last)),
                ..Outlook::default()
            };
        }
        // If the next rise is overdue at this rate, wear has slowed down: it was less than one more percent
        // in all the time until now.
        let elapsed = now_ms.saturating_sub(last.at_ms).saturating_add(span);
        let is_slower =
            u128::from(elapsed) * u128::from(used) > u128::from(span) * u128::from(used + PERCENT);
        let (span, used) = if is_slower { (elapsed, used + PERCENT) } else { (span, used) };
        let scaled =
            |time: u64, by: u32, of: u64| (u128::from(time) * u128::from(by)) / u128::from(of);
        let per_year = scaled(YEAR_MS, used, span);
        let left = scaled(span, ALL - last.used_permille, u64::from(used));
        let at = u128::from(last.at_ms) + left;
        let end = u64::try_from(at).ok().filter(|at| *at <= DATE_MAX_MS);
        Outlook {
            permille_per_year: u32::try_from(per_year).ok(),
            end_at_ms: end,
            why_no_end: end.is_none().then(|| "it wears too slowly to have a date".to_owned()),
        }
    }
}

fn too_early(now_ms: u64, first: &Moment, last: &Moment) -> String {
    let days = now_ms.saturating_sub(first.at_ms) / DAY_MS;
    let rise = (last.used_permille - first.used_permille) / 10;
    format!(
        "watched for {days} days, in which {rise} % were used up; the rate takes two rises of the figure, \
         {} days apart or more",
        SPAN_MIN_MS / DAY_MS
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEGIN: u64 = 1_700_000_000_000;

    fn watched(figures: &[(u64, u32)]) -> Wear {
        let mut wear = Wear::default();
        for &(day, permille) in figures {
            wear.note(BEGIN + day * DAY_MS, permille);
        }
        wear
    }

    #[test]
    fn a_date_takes_two_rises_two_weeks_apart() {
        let why = |figures: &[(u64, u32)], day| {
            let outlook = watched(figures).outlook(BEGIN + day * DAY_MS);
            assert_eq!(outlook.end_at_ms, None, "{figures:?}");
            outlook.why_no_end.unwrap_or_default()
        };
        assert_eq!(why(&[], 0), "");
        assert!(why(&[(0, 30)], 400).contains("watched for 400 days, in which 0 %"));
        assert!(why(&[(0, 30), (5, 40)], 40).contains("in which 1 %"));
        assert!(why(&[(0, 30), (5, 40), (18, 50)], 40).contains("14 days apart"));
        assert!(why(&[(0, 990), (5, 1000)], 40).contains("used up"));

        // Ten days per percent, from the 5th to the 25th.
        let outlook = watched(&[(0, 30), (5, 40), (15, 50), (25, 60)]).outlook(BEGIN + 30 * DAY_MS);
        assert_eq!(outlook.permille_per_year, Some(365));
        assert_eq!(outlook.end_at_ms, Some(BEGIN + (25 + 940) * DAY_MS));
        assert_eq!(outlook.why_no_end, None);
        // A hundred days later without another rise: less than 3 % in 120 days.
        let slower = watched(&[(0, 30), (5, 40), (15, 50), (25, 60)]).outlook(BEGIN + 125 * DAY_MS);
        assert_eq!(slower.permille_per_year, Some(91));
        assert_eq!(slower.end_at_ms, Some(BEGIN + (25 + 3760) * DAY_MS));
    }

    #[test]
    fn another_drive_and_a_clock_set_back_begin_nothing_wrong() {
        let mut wear = watched(&[(0, 30), (5, 40), (25, 50)]);
        assert!(!wear.note(BEGIN, 60), "the clock was set back");
        assert!(!wear.note(BEGIN + 26 * DAY_MS, 50), "no rise");
        assert!(wear.outlook(BEGIN).end_at_ms.is_some());
        assert!(wear.note(BEGIN + 30 * DAY_MS, 0), "a new drive");
        assert_eq!(wear.outlook(BEGIN + 30 * DAY_MS).end_at_ms, None);
    }

    proptest! {
        /// Whatever a drive reports, memory is bounded and a date lies after the last rise.
        #[test]
        fn dates_lie_ahead(figures in prop::collection::vec((0..5000_u64, any::<u32>()), 0..200)) {
            let wear = watched(&figures);
            prop_assert!(wear.moments.len() <= MOMENTS_MAX);
            prop_assert!(wear.moments.is_sorted_by(|a, b| a.at_ms < b.at_ms
                && a.used_permille < b.used_permille));
            let outlook = wear.outlook(BEGIN + 5000 * DAY_MS);
            if let (Some(end), Some(last)) = (outlook.end_at_ms, wear.moments.last()) {
                prop_assert!(end >= last.at_ms);
                prop_assert!(outlook.permille_per_year.is_some());
            }
            prop_assert_eq!(
                outlook.end_at_ms.is_none() && !wear.moments.is_empty(),
                outlook.why_no_end.is_some()
            );
        }

        /// For a drive that wears evenly, read at any hours, the end is found with a small relative error.
        #[test]
        fn an_even_rate_is_found(hours_per_percent in 60..2000_u64, every in 1..40_u64) {
            let mut wear = Wear::default();
            let hour_ms = 3_600_000;
            for hour in (0..hours_per_percent * 9).step_by(every as usize) {
                let percent = (hour / hours_per_percent) as u32;
                wear.note(BEGIN + hour * hour_ms, percent * 10);
            }
            let outlook = wear.outlook(BEGIN + hours_per_percent * 9 * hour_ms);
            let end = outlook.end_at_ms.expect("eight rises, more than two weeks apart");
            let truth = BEGIN + hours_per_percent * 100 * hour_ms;
            let slack = 20 * every * hour_ms;
            prop_assert!(end.abs_diff(truth) <= slack, "{} off", end.abs_diff(truth) / hour_ms);
        }
    }
}
