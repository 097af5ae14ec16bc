//! Wear, energy and money of a system over years of the same load.

use hemi_drives::drive::Counters;
use hemi_units::SECOND;
use serde::Serialize;

use crate::candidates::Candidate;
use crate::request::Request;
use crate::units::Unit;

const DAY: f64 = 86_400.0;
const DAYS: f64 = 365.25;
const MONTHS: f64 = 12.0;
const JOULES: f64 = 3.6e6;
/// Most replacements of a drive that are counted.
const MOST_REPLACEMENTS: f64 = 1000.0;

/// The use of one unit by the load, day and night, and what it is rated for.
#[derive(Clone, Debug, Serialize)]
pub struct Wear {
    /// Bytes the host writes a day, metadata included.
    pub written_a_day: f64,
    /// Bytes the host reads a day.
    pub read_a_day: f64,
    /// Flash pages programmed for each page the host writes, in the trace.
    pub write_amplification: f64,
    /// Rated endurance in bytes, of all drives of the unit.
    pub endurance: Option<u64>,
    /// Years until the host has written the rated endurance, which is how makers count.
    pub years: Option<f64>,
    /// Years if every byte that the flash programs counts: a strict reading.
    pub years_amplified: Option<f64>,
    /// Bytes read and written a year, as a share of the rated workload of a disk.
    pub of_workload: Option<f64>,
    /// Replacements within the years asked for, by the strict reading.
    pub replacements: u32,
}

impl Wear {
    /// Returns the wear of a unit by the work it did in `time` nanoseconds.
    pub(crate) fn of(unit: &Unit, counters: &Counters, time: u64, years: f64) -> Wear {
        let days = time as f64 / SECOND as f64 / DAY;
        let written_a_day = counters.written_bytes as f64 / days;
        let read_a_day = counters.read_bytes as f64 / days;
        let write_amplification = counters.write_amplification();
        let rated = unit.drive.purchase.times(unit.count);
        let endurance = rated.endurance.map(|size| size.0);
        let lasts = |a_day: f64| {
            let endurance = endurance? as f64;
            (a_day > 0.0).then(|| endurance / a_day / DAYS)
        };
        let years_amplified = lasts(written_a_day * write_amplification);
        let replaced = years_amplified.map_or(0.0, |lasts| libm::ceil(years / lasts) - 1.0);
        Wear {
            written_a_day,
            read_a_day,
            write_amplification,
            endurance,
            years: lasts(written_a_day),
            years_amplified,
            of_workload: rated
                .workload
                .map(|size| (written_a_day + read_a_day) * DAYS / size.0 as f64),
            replacements: replaced.clamp(0.0, MOST_REPLACEMENTS) as u32,
        }
    }
}

/// Money over the years asked for, in the advice's currency.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Price of the drives to buy.
    pub purchase: f64,
    /// Rent a month.
    pub monthly: f64,
    /// Price of the drives that replace worn ones.
    pub replacements: f64,
    /// Purchase, replacements and rent over the years.
    pub drives: f64,
    /// Energy of a year in kilowatt-hours, without cooling; rented volumes use none of one's own.
    pub kilowatt_hours: f64,
    /// Energy of a year in kilowatt-hours, with cooling.
    pub kilowatt_hours_cooled: f64,
    /// Price of a year's energy, with cooling; zero without a price of electricity.
    pub energy: f64,
    /// All of it over the years.
    pub total: f64,
}

impl Cost {
    /// Returns the cost of a system whose units wore so and did this work in `time` nanoseconds.
    pub(crate) fn of(
        system: &Candidate,
        wear: &[Wear],
        counters: &[Counters],
        time: u64,
        request: &Request,
    ) -> Cost {
        let (purchase, monthly) = bought(system);
        let mut replacements = 0.0;
        for (unit, wear) in system.units.iter().zip(wear) {
            let each = &unit.drive.purchase;
            let again = f64::from(wear.replacements) * f64::from(unit.count);
            replacements += each.price.unwrap_or(0.0) * again;
        }
        let seconds = time as f64 / SECOND as f64;
        let rented = |unit: &Unit| unit.drive.purchase.monthly.is_some();
        let own = system.units.iter().zip(counters).filter(|(unit, _)| !rented(unit));
        // A fold from zero: the sum of nothing is minus zero.
        let joules = own.fold(0.0, |sum, (_, counters)| sum + counters.energy);
        let kilowatt_hours = joules / seconds * DAY * DAYS / JOULES;
        let cooled = kilowatt_hours * (1.0 + request.cooling_percent / 100.0);
        let energy = cooled * request.electricity.unwrap_or(0.0);
        let drives = purchase + replacements + monthly * MONTHS * request.years;
        Cost {
            purchase,
            monthly,
            replacements,
            drives,
            kilowatt_hours,
            kilowatt_hours_cooled: cooled,
            energy,
            total: drives + energy * request.years,
        }
    }
}

/// Returns the price of the drives of a system that are to buy, and the rent of a month.
fn bought(system: &Candidate) -> (f64, f64) {
    let (mut purchase, mut monthly) = (0.0, 0.0);
    for unit in &system.units {
        let each = &unit.drive.purchase;
        let bought = f64::from(unit.count - unit.owned.min(unit.count));
        purchase += each.price.unwrap_or(0.0) * bought;
        monthly += each.monthly.unwrap_or(0.0) * bought;
    }
    (purchase, monthly)
}

/// Returns the least that a system costs over the years asked for: purchase and rent, without
/// replacements and energy, which depend on the load.
pub(crate) fn least(system: &Candidate, request: &Request) -> f64 {
    let (purchase, monthly) = bought(system);
    purchase + monthly * MONTHS * request.years
}
