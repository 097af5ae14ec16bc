//! `hemi scrub --show`: the ranges in which legs are known to differ, with each leg's checksum.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hemi_server::control::api::{LegStatus, VolumeStatus};
use hemi_server::differences::Known;
use hemi_server::inspect::Content;
use hemi_text::Plain;
use hemi_units::prose::{bytes, counted};
use serde::Serialize;

use super::range::ByteRange;

/// A range, and what each leg holds there.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    start_bytes: u64,
    length_bytes: u64,
    legs: Vec<Version>,
    /// The slots of the legs that agree, if they are more than half of all that could be read, of which
    /// there are three or more.
    majority: Vec<u8>,
}

/// A leg's version of a range.
#[derive(Clone, Debug, Serialize)]
struct Version {
    leg: u8,
    /// CRC-32C, as eight hexadecimal digits; `null` if it could not be read.
    crc32c: Option<String>,
    why_not: Option<String>,
}

/// Reads what each leg holds in the ranges that are known to differ.
pub(super) fn look(status: &VolumeStatus, known: &Known) -> Vec<Shown> {
    let opened: Vec<(&LegStatus, Result<Content, String>)> = status
        .legs
        .iter()
        .map(|leg| (leg, Content::open(&leg.path).map_err(|error| error.to_string())))
        .collect();
    ranges(known)
        .into_iter()
        .map(|range| {
            let legs: Vec<Version> = opened
                .iter()
                .map(|(leg, content)| {
                    let sum = content.as_ref().map_err(Clone::clone).and_then(|content| {
                        let sum = content.checksum(range.start, range.length);
                        sum.map_err(|error| error.to_string())
                    });
                    Version {
                        leg: leg.leg,
                        crc32c: sum.as_ref().ok().map(|sum| format!("{sum:08x}")),
                        why_not: sum.err(),
                    }
                })
                .collect();
            let majority = majority(&legs);
            Shown { start_bytes: range.start, length_bytes: range.length, legs, majority }
        })
        .collect()
}

/// Returns the ranges, each once: several legs may differ in one.
fn ranges(known: &Known) -> Vec<ByteRange> {
    let mut ranges: Vec<ByteRange> = known
        .differences
        .iter()
        .map(|one| ByteRange { start: one.start_bytes, length: one.length_bytes })
        .collect();
    ranges.sort_by_key(|range| (range.start, range.length));
    ranges.dedup();
    ranges
}

fn majority(legs: &[Version]) -> Vec<u8> {
    let mut by_sum: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    for version in legs {
        if let Some(sum) = &version.crc32c {
            by_sum.entry(sum).or_default().push(version.leg);
        }
    }
    let read: usize = by_sum.values().map(Vec::len).sum();
    let most = by_sum.into_values().max_by_key(Vec::len).unwrap_or_default();
    if read >= 3 && most.len() * 2 > read { most } else { Vec::new() }
}

/// Returns the ranges as text.
pub(super) fn text(status: &VolumeStatus, known: &Known, shown: &[Shown]) -> String {
    let name = Plain(&status.name);
    let mut text = String::new();
    if shown.is_empty() && known.uncounted_bytes == 0 {
        let _ = writeln!(text, "no difference between the legs of {name} is known");
        return text;
    }
    let total: u64 = shown.iter().map(|range| range.length_bytes).sum();
    let places = counted(shown.len() as u64, "range");
    let _ = writeln!(text, "legs of {name} are known to differ in {places}, {}", bytes(total));
    for range in shown {
        let at = ByteRange { start: range.start_bytes, length: range.length_bytes };
        let _ = writeln!(text, "\n{at}");
        for version in &range.legs {
            let leg = status.legs.iter().find(|leg| leg.leg == version.leg);
            let path = leg.map_or("", |leg| &leg.path);
            let sum = match (&version.crc32c, &version.why_not) {
                (Some(sum), _) => sum.clone(),
                (None, why) => format!("cannot be read: {}", why.as_deref().unwrap_or_default()),
            };
            let agrees =
                if range.majority.contains(&version.leg) { "  agrees with most" } else { "" };
            let _ = writeln!(text, "  leg {}  {sum}{agrees}  {}", version.leg, Plain(path));
        }
        let mut sums = range.legs.iter().filter_map(|version| version.crc32c.as_deref());
        let first = sums.next();
        if first.is_some() && range.legs.len() > 1 && sums.all(|sum| Some(sum) == first) {
            let _ = writeln!(text, "  they are alike now; a scrub of this range settles it");
        }
    }
    if known.uncounted_bytes > 0 {
        let more = bytes(known.uncounted_bytes);
        let _ = writeln!(text, "\n{more} more are not listed; scrub again once these are settled");
    }
    let _ = writeln!(
        text,
        "\nread a leg's version with hemi inspect --read RANGE LEG, or mount the leg read-only; then \
         hemi scrub --repair --from LEG [--range RANGE]"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_takes_three_legs() {
        let version = |leg, sum: &str| Version {
            leg,
            crc32c: (!sum.is_empty()).then(|| sum.to_owned()),
            why_not: None,
        };
        let of = |sums: &[&str]| {
            let legs: Vec<Version> = (0..).zip(sums).map(|(leg, sum)| version(leg, sum)).collect();
            majority(&legs)
        };
        assert_eq!(of(&["a", "b"]), [0_u8; 0]);
        assert_eq!(of(&["a", "a"]), [0_u8; 0], "two legs cannot vote");
        assert_eq!(of(&["a", "b", "a"]), [0, 2]);
        assert_eq!(of(&["a", "b", "c"]), [0_u8; 0]);
        assert_eq!(of(&["a", "", "a"]), [0_u8; 0], "one of three could not be read");
        assert_eq!(of(&["a", "a", "b", "b"]), [0_u8; 0]);
    }
}
