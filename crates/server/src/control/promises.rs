//! Promises that do not fully hold right now, in words on which an operator can act.
//!
//! The promises P1 to P8 are those of `docs/design`. Each sentence names the legs, the loss and the event
//! that would cause it, and claims no more than the figures support.

use hemi_engine::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_engine::status::LegState;

use super::api::{LegStatus, OutReason, Risk, VolumeStatus};
use super::volume::Phase;

/// Returns a sentence for every promise at risk, worst first; empty if all hold.
pub fn at_risk(status: &VolumeStatus, settings: &Settings) -> Vec<Risk> {
    if matches!(status.phase, Phase::Opening | Phase::Closed) {
        return Vec::new();
    }
    let mut risks = Vec::new();
    let mut add = |promise: &str, text: Option<String>| {
        if let Some(text) = text {
            risks.push(Risk { promise: promise.to_owned(), text });
        }
    };
    add("P1", lost(status));
    add("P1", sole_leg(status));
    add("P1", given_up(status));
    add("P3", flush_copies(status, settings));
    add("P4", stall(status, settings));
    add("P5", exposure(status));
    add("P5", past_the_bound(status));
    for leg in &status.legs {
        add("P6", owes(leg));
    }
    add("P6", mismatches(status));
    risks
}

/// Formats a size for a sentence: two or three digits, binary units.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 999.5 would print as 1000, so use the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let whole = value >= 9.95 || value.fract() == 0.0;
    let decimals = if whole { 0 } else { 1 };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Formats a duration for a sentence: two or three digits, one unit.
pub fn duration(nanoseconds: u64) -> String {
    /// Each unit in nanoseconds, and the count of it from which the next unit is used.
    const UNITS: [(&str, f64, f64); 6] = [
        ("µs", 1e3, 999.5),
        ("ms", 1e6, 999.5),
        ("s", 1e9, 119.5),
        ("min", 60e9, 119.5),
        ("h", 3600e9, 47.5),
        ("days", 86_400e9, f64::INFINITY),
    ];
    if nanoseconds < 1000 {
        return format!("{nanoseconds} ns");
    }
    let value = |scale: f64| nanoseconds as f64 / scale;
    let (unit, scale, _) =
        UNITS.into_iter().find(|(_, scale, end)| value(*scale) < *end).unwrap_or(UNITS[5]);
    let value = value(scale);
    let decimals = if value >= 9.95 || value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.decimals$} {unit}")
}

fn answers(leg: &LegStatus) -> bool {
    matches!(leg.state, LegState::Healthy | LegState::Lagging)
}

fn is_in(leg: &LegStatus) -> bool {
    !matches!(leg.state, LegState::Out | LegState::Empty)
}

fn label(leg: &LegStatus) -> String {
    format!("leg {}", leg.leg)
}

fn list(legs: &[&LegStatus]) -> String {
    match legs {
        [] => "no leg".to_owned(),
        [one] => label(one),
        [first @ .., last] => {
            let numbers: Vec<String> = first.iter().map(|leg| leg.leg.to_string()).collect();
            format!("legs {} and {}", numbers.join(", "), last.leg)
        }
    }
}

fn lost(status: &VolumeStatus) -> Option<String> {
    (status.lost_bytes > 0).then(|| {
        format!(
            "{} of acknowledged data are on no leg any more. Reading them fails until they are \
             written again.",
            bytes(status.lost_bytes)
        )
    })
}

fn sole_leg(status: &VolumeStatus) -> Option<String> {
    let inside: Vec<&LegStatus> = status.legs.iter().filter(|leg| is_in(leg)).collect();
    let [sole] = inside[..] else { return None };
    let filling = status
        .legs
        .iter()
        .find(|leg| leg.state == LegState::Out && leg.out_reason == Some(OutReason::Joining));
    let way_out = match filling {
        Some(leg) => format!(
            "It ends when {} has drained the {} it still owes.",
            label(leg),
            bytes(leg.owed_bytes)
        ),
        None => "Bring the other leg back (hemi leg attach) or replace it (hemi leg replace)."
            .to_owned(),
    };
    Some(format!(
        "The volume runs on {} alone; if it is lost now, the volume is lost. {way_out}",
        label(sole)
    ))
}

fn given_up(status: &VolumeStatus) -> Option<String> {
    let given_up = status.given_up.as_ref()?;
    let legs: Vec<LegStatus> =
        given_up.legs.iter().map(|&leg| LegStatus { leg, ..Default::default() }).collect();
    Some(format!(
        "This start gave up {}, which was missing (start_degraded): acknowledged writes that it alone \
         held are lost, {} for certain, and perhaps some in {} more.",
        list(&legs.iter().collect::<Vec<_>>()),
        bytes(given_up.lacks_bytes),
        bytes(given_up.uncertain_bytes)
    ))
}

fn flush_copies(status: &VolumeStatus, settings: &Settings) -> Option<String> {
    let wanted = match settings.flush_copies {
        FlushCopies::Count(1) => return None,
        FlushCopies::Count(count) => usize::from(count),
        FlushCopies::All => status.legs.len(),
    };
    let inside = status.legs.iter().filter(|leg| is_in(leg)).count();
    (inside < wanted).then(|| {
        format!("A flush is durable on {inside} of the {wanted} legs that flush_copies requires.")
    })
}

fn stall(status: &VolumeStatus, settings: &Settings) -> Option<String> {
    let answering: Vec<&LegStatus> = status.legs.iter().filter(|leg| answers(leg)).collect();
    match answering[..] {
        [] => Some("No leg answers: clients wait.".to_owned()),
        [sole] if status.legs.len() > 1 => {
            Some(format!("Only {} answers; while it stalls, clients stall.", label(sole)))
        }
        _ => match settings.policy {
            Policy::First | Policy::Paper => None,
            Policy::All => {
                Some("Policy all waits for every leg: while one stalls, writes stall.".to_owned())
            }
            Policy::WriteBehind => Some(format!(
                "Policy write-behind waits for every leg but leg {}, and for all on a flush: while \
                 one stalls, writes or flushes stall.",
                settings.slow_leg
            )),
        },
    }
}

fn exposure(status: &VolumeStatus) -> Option<String> {
    let exposure = &status.exposure;
    if exposure.bytes == 0 {
        return None;
    }
    let holders: Vec<&LegStatus> =
        status.legs.iter().filter(|leg| is_in(leg) && leg.owed_bytes == 0).collect();
    // If exactly one leg owes nothing, it holds all exposed data. Otherwise each of several legs may be the
    // only holder of some of it.
    let (place, condition) = match holders[..] {
        [sole] => (format!("on {} only", label(sole)), "it is lost now, they are lost".to_owned()),
        _ => {
            let inside: Vec<&LegStatus> = status.legs.iter().filter(|leg| is_in(leg)).collect();
            (
                "on one leg only".to_owned(),
                format!("any of {} is lost now, those it alone holds are lost", list(&inside)),
            )
        }
    };
    Some(format!(
        "{} acknowledged in the last {} are {place}; if {condition}.",
        bytes(exposure.bytes),
        duration(exposure.age_ns)
    ))
}

fn past_the_bound(status: &VolumeStatus) -> Option<String> {
    let exposure = &status.exposure;
    let by_bytes = exposure.bytes > exposure.bound_bytes;
    let by_age = exposure.age_ns > exposure.bound_age_ns;
    if exposure.bytes > 0 && (by_bytes || by_age) {
        let bound =
            if by_bytes { bytes(exposure.bound_bytes) } else { duration(exposure.bound_age_ns) };
        let why = match exposure.mode {
            ExposureMode::FallBehind => "exposure mode fall-behind lets it grow",
            ExposureMode::Throttle => "the leg that owes it does not answer",
        };
        return Some(format!("Exposure is past its bound of {bound}: {why}."));
    }
    exposure.throttling.then(|| {
        format!(
            "Writers are being slowed to keep exposure below {} and {}.",
            bytes(exposure.bound_bytes),
            duration(exposure.bound_age_ns)
        )
    })
}

fn owes(leg: &LegStatus) -> Option<String> {
    if leg.owed_bytes == 0 {
        return None;
    }
    let owed = bytes(leg.owed_bytes);
    let what = match (leg.state, leg.out_reason) {
        (LegState::Out, Some(OutReason::Joining)) => {
            format!("{} is being filled: {owed} to go.", label(leg))
        }
        (LegState::Out, _) => format!("{} is out and lacks {owed}.", label(leg)),
        (LegState::Gone, _) => format!("{} is gone and lacks {owed}.", label(leg)),
        (LegState::Frozen, _) => format!("{} is frozen and owes {owed}.", label(leg)),
        // Small debts of a leg that answers are normal.
        _ if leg.state == LegState::Lagging => format!("{} owes {owed} and drains.", label(leg)),
        _ => return None,
    };
    Some(capitalised(&what))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn mismatches(status: &VolumeStatus) -> Option<String> {
    let scrub = &status.scrub;
    (scrub.mismatched_bytes > 0).then(|| {
        format!(
            "Scrub found {} that differ between legs. Run hemi scrub --repair.",
            bytes(scrub.mismatched_bytes)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    fn leg(slot: u8, state: LegState, owed_bytes: u64) -> LegStatus {
        LegStatus { leg: slot, state, owed_bytes, ..Default::default() }
    }

    fn volume(legs: Vec<LegStatus>) -> VolumeStatus {
        let mut status = VolumeStatus { phase: Phase::Serving, legs, ..Default::default() };
        status.exposure.bound_bytes = 64 * MIB;
        status.exposure.bound_age_ns = 5 * SECOND;
        status
    }

    fn sentences(status: &VolumeStatus, settings: &Settings) -> Vec<String> {
        at_risk(status, settings)
            .into_iter()
            .map(|risk| format!("{}: {}", risk.promise, risk.text))
            .collect()
    }

    #[test]
    fn nothing_to_say_when_all_is_well() {
        let status = volume(vec![leg(0, LegState::Healthy, 0), leg(1, LegState::Healthy, 4096)]);
        assert_eq!(sentences(&status, &Settings::default()), Vec::<String>::new());
    }

    #[test]
    fn the_leg_that_alone_holds_data_is_named() {
        let mut status =
            volume(vec![leg(0, LegState::Healthy, 0), leg(1, LegState::Lagging, 12 * MIB)]);
        status.exposure.bytes = 12 * MIB;
        status.exposure.age_ns = 3 * SECOND;
        assert_eq!(
            sentences(&status, &Settings::default()),
            [
                "P5: 12 MiB acknowledged in the last 3 s are on leg 0 only; if it is lost now, \
                 they are lost.",
                "P6: Leg 1 owes 12 MiB and drains.",
            ]
        );
    }

    #[test]
    fn where_each_leg_may_hold_some_all_are_named() {
        let mut status = volume(vec![
            leg(0, LegState::Lagging, MIB),
            leg(1, LegState::Lagging, 2 * MIB),
            leg(2, LegState::Lagging, 3 * MIB),
        ]);
        status.exposure.bytes = MIB;
        status.exposure.age_ns = SECOND / 2;
        assert_eq!(
            sentences(&status, &Settings::default())[0],
            "P5: 1 MiB acknowledged in the last 500 ms are on one leg only; if any of legs 0, 1 \
             and 2 is lost now, those it alone holds are lost."
        );
    }

    #[test]
    fn a_frozen_leg_past_the_bound() {
        let mut status =
            volume(vec![leg(0, LegState::Frozen, 64 * MIB), leg(1, LegState::Healthy, 0)]);
        status.exposure.bytes = 64 * MIB;
        status.exposure.age_ns = 20 * SECOND;
        status.exposure.throttling = true;
        assert_eq!(
            sentences(&status, &Settings::default()),
            [
                "P4: Only leg 1 answers; while it stalls, clients stall.",
                "P5: 64 MiB acknowledged in the last 20 s are on leg 1 only; if it is lost now, \
                 they are lost.",
                "P5: Exposure is past its bound of 5 s: the leg that owes it does not answer.",
                "P6: Leg 0 is frozen and owes 64 MiB.",
            ]
        );
    }

    #[test]
    fn degraded_and_filling() {
        let mut joining = leg(1, LegState::Out, 3 << 30);
        joining.out_reason = Some(OutReason::Joining);
        let mut status = volume(vec![leg(0, LegState::Healthy, 0), joining]);
        status.degraded = true;
        let settings = Settings { flush_copies: FlushCopies::Count(2), ..Default::default() };
        assert_eq!(
            sentences(&status, &settings),
            [
                "P1: The volume runs on leg 0 alone; if it is lost now, the volume is lost. It \
                 ends when leg 1 has drained the 3 GiB it still owes.",
                "P3: A flush is durable on 1 of the 2 legs that flush_copies requires.",
                "P4: Only leg 0 answers; while it stalls, clients stall.",
                "P6: Leg 1 is being filled: 3 GiB to go.",
            ]
        );
    }

    #[test]
    fn loss_and_mismatches_and_policies() {
        let mut status = volume(vec![leg(0, LegState::Healthy, 0), leg(1, LegState::Healthy, 0)]);
        status.lost_bytes = 4096;
        status.scrub.mismatched_bytes = 8192;
        let settings = Settings { policy: Policy::All, ..Default::default() };
        assert_eq!(
            sentences(&status, &settings),
            [
                "P1: 4 KiB of acknowledged data are on no leg any more. Reading them fails until \
                 they are written again.",
                "P4: Policy all waits for every leg: while one stalls, writes stall.",
                "P6: Scrub found 8 KiB that differ between legs. Run hemi scrub --repair.",
            ]
        );
    }

    #[test]
    fn sizes_and_durations_have_two_or_three_figures() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (12 * MIB, "12 MiB"),
            (1023 * MIB, "1.0 GiB"),
            (10 << 30, "10 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        for (count, text) in [
            (0, "0 ns"),
            (1_500, "1.5 µs"),
            (20_000_000, "20 ms"),
            (3 * SECOND, "3 s"),
            (999_999_999, "1.0 s"),
            (90 * SECOND, "90 s"),
            (600 * SECOND, "10 min"),
            (86_400 * SECOND, "24 h"),
            (864_000 * SECOND, "10 days"),
        ] {
            assert_eq!(duration(count), text);
        }
    }
}
