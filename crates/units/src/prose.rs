//! Sizes, durations and counts in sentences and tables for people.
//!
//! They are rounded. What a program reads has the grammar of [`crate::Size`] and [`crate::Time`].

use std::format;
use std::string::String;

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
    if nanoseconds == 0 {
        return String::from("0 s");
    }
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

/// Formats a count of things, whose plural ends with an s: `1 leg`, `2 legs`.
pub fn counted(count: impl Into<u64>, thing: &str) -> String {
    match count.into() {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

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
            (0, "0 s"),
            (999, "999 ns"),
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

    #[test]
    fn one_thing_has_no_plural() {
        let texts = [0_u32, 1, 2].map(|count| counted(count, "leg"));
        assert_eq!(texts, ["0 legs", "1 leg", "2 legs"]);
    }
}
