//! Advice as text for a terminal.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use comfy_table::{CellAlignment, Table, presets};
use hemi_advise::advice::{Advice, LegAdvice, Plain, SystemAdvice};
use hemi_advise::judge::{Deciding, Verdict};
use hemi_advise::known::Known;
use hemi_units::prose::{bytes, counted, duration};

use crate::commands::sim::time;

/// The number of columns at which sentences are broken.
const WIDTH: usize = 100;
/// Systems whose reasons are told.
const TOLD: usize = 3;
/// Years beyond which an end of life is no date.
const FAR: f64 = 100.0;
const YEAR: f64 = 365.25 * 86_400.0;
/// Presets named that were left out.
const NAMED: usize = 6;
const NONE: &str = "-";

/// Returns the whole advice with the first `top` systems, as of `now`.
pub(super) fn advice(advice: &Advice, top: usize, now: SystemTime) -> String {
    let mut text = head(advice);
    for caution in &advice.cautions {
        text.push_str(&sentence("! ", caution));
    }
    text.push('\n');
    let shown = &advice.systems[..advice.systems.len().min(top.max(1))];
    let _ = writeln!(text, "{}", table(advice, shown, now));
    if shown.len() < advice.systems.len() {
        let rest = advice.systems.len() - shown.len();
        let _ = writeln!(text, "{rest} more with --top; all figures with --json.");
    }
    text.push('\n');
    for system in &shown[..shown.len().min(TOLD)] {
        text.push_str(&told(advice, system, now));
    }
    text.push_str(&foot(advice));
    text
}

fn head(advice: &Advice) -> String {
    let load = &advice.load;
    let lasts = duration((load.duration * 1e9) as u64);
    let mut text = format!(
        "{}: {} requests in {lasts}, {} reads of {} and {} writes of {}; simulated\n",
        load.file,
        count(load.requests),
        count(load.reads),
        bytes(load.read_bytes),
        count(load.writes),
        bytes(load.written_bytes),
    );
    let classes = load.classes.iter().take(3);
    let classes: Vec<String> =
        classes.map(|(class, share)| format!("{class} {:.0} %", share * 100.0)).collect();
    let _ = writeln!(text, "Mostly {}. Volume of {}.", classes.join(", "), bytes(load.volume));
    let asked = &advice.asked;
    let mut wanted = Vec::new();
    if let Some(p999) = asked.p999 {
        wanted.push(format!("p99.9 at most {}", time(p999)));
    }
    if let Some(budget) = asked.budget {
        wanted.push(format!("drives for at most {budget:.0} {}", asked.currency));
    }
    if let Some(exposure) = asked.exposure {
        wanted.push(format!("exposure bound to {}", bytes(exposure)));
    }
    if let Some(have) = &asked.have {
        wanted.push(format!("beside {have}, which is there"));
    }
    if !wanted.is_empty() {
        let _ = writeln!(text, "Asked for: {}.", wanted.join(", "));
    }
    if let Some(placed) = &asked.what_if {
        text.push_str(&sentence("What if: ", &placed.said));
        text.push_str(
            "The latencies below are with the freezes, on the leg where they are worst.\n",
        );
    }
    text
}

fn table(advice: &Advice, systems: &[SystemAdvice], now: SystemTime) -> String {
    let asked = &advice.asked;
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let years = format!("{} in {} y", asked.currency, asked.years);
    table.set_header([
        "", "system", "buy", &years, "p50", "p99", "p99.9", "longest", "saved", "exposed",
        "worn out", "kWh/y", "",
    ]);
    for system in systems {
        let judged = system.judged();
        let plain = compared(system);
        table.add_row([
            format!("{}{}", system.rank, if system.frontier { "*" } else { "" }),
            system.name.clone(),
            price(system),
            format!("{:.0}", system.cost.total),
            time(judged.p50),
            time(judged.p99),
            time(judged.p999),
            time(judged.max),
            plain.map_or_else(|| NONE.to_owned(), saved),
            exposed(system),
            end(system, now),
            format!("{:.0}", system.cost.kilowatt_hours_cooled),
            verdict(system).to_owned(),
        ]);
    }
    for column in [0, 2, 3, 4, 5, 6, 7, 8, 9, 11] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn price(system: &SystemAdvice) -> String {
    let cost = &system.cost;
    match (cost.purchase > 0.0, cost.monthly > 0.0) {
        (true, true) => format!("{:.0}+{:.0}/m", cost.purchase, cost.monthly),
        (false, true) => format!("{:.0}/m", cost.monthly),
        (true, false) => format!("{:.0}", cost.purchase),
        (false, false) => "0".to_owned(),
    }
}

/// Returns the plain mirror to compare with: with freezes if they were asked for.
fn compared(system: &SystemAdvice) -> Option<&Plain> {
    match &system.what_if {
        Some(what_if) => what_if.plain.as_ref(),
        None => system.plain.as_ref(),
    }
}

fn saved(plain: &Plain) -> String {
    if plain.stalled == 0 {
        return "none".to_owned();
    }
    format!("{:.0} %", plain.saved as f64 * 100.0 / plain.stalled as f64)
}

fn exposed(system: &SystemAdvice) -> String {
    if system.plain.is_none() {
        return NONE.to_owned();
    }
    let peak = system.what_if.as_ref().map_or(0, |what_if| what_if.exposure_peak);
    bytes(system.exposure_peak.max(peak))
}

fn verdict(system: &SystemAdvice) -> &'static str {
    match system.judgement.verdict {
        Verdict::Meets => "meets",
        Verdict::Close => "close",
        Verdict::Misses => "misses",
    }
}

/// Returns the date at which the first drive is worn out, by the strict reading.
fn end(system: &SystemAdvice, now: SystemTime) -> String {
    let ends = system.legs.iter().filter_map(|leg| leg.wear.years_amplified);
    let first = ends.fold(f64::INFINITY, f64::min);
    if first.is_finite() { date(first, now) } else { NONE.to_owned() }
}

fn date(years: f64, now: SystemTime) -> String {
    if years > FAR {
        return format!("> {FAR:.0} y");
    }
    let at = now + Duration::from_secs_f64(years * YEAR);
    humantime::format_rfc3339_seconds(at).to_string()[..7].to_owned()
}

/// Returns the reasons of a system.
fn told(advice: &Advice, system: &SystemAdvice, now: SystemTime) -> String {
    let mut text = format!("{}. {}: {}", system.rank, system.name, verdict(system));
    let why = &system.judgement.why;
    if !why.is_empty() {
        let _ = write!(text, ", {}", why.join(", "));
    }
    text.push('\n');
    if let Some(deciding) = &system.deciding {
        text.push_str(&sentence("   ", &decided(deciding)));
    }
    if let Some(plain) = compared(system) {
        text.push_str(&sentence("   ", &beside(advice, plain)));
    }
    for leg in &system.legs {
        text.push_str(&sentence("   ", &leg_told(advice, leg, now)));
    }
    text
}

/// Returns what a plain mirror does instead.
fn beside(advice: &Advice, plain: &Plain) -> String {
    let (tail, longest) = (time(plain.latency.p999), time(plain.latency.max));
    let mut said = format!("A plain mirror of the two: p99.9 {tail}, longest {longest}.");
    let above = time(plain.stalled_above);
    let _ = match plain.stalled {
        0 => write!(said, " It answers no write later than {above}."),
        stalled => write!(
            said,
            " It answers {} of {} writes later than {above}, and {} of those are saved.",
            count(stalled),
            count(advice.load.writes),
            count(plain.saved)
        ),
    };
    said
}

fn decided(deciding: &Deciding) -> String {
    let mut known: Vec<String> = Vec::new();
    for one in deciding.known.iter().map(known_error) {
        if !known.contains(&one) {
            known.push(one);
        }
    }
    format!(
        "Decided by {}: {:.0} % of the time above {}. Models: {}.",
        deciding.class,
        deciding.share * 100.0,
        time(deciding.above),
        known.join("; ")
    )
}

fn known_error(known: &Known) -> String {
    match &known.figure {
        None => format!("{} not validated for such requests", known.preset),
        Some(figure) => format!(
            "{} {:+.0} % ({figure}{})",
            known.preset,
            known.off * 100.0,
            if known.fitted { ", fitted" } else { "" }
        ),
    }
}

fn leg_told(advice: &Advice, leg: &LegAdvice, now: SystemTime) -> String {
    let wear = &leg.wear;
    let drives = if leg.drives == 1 { String::new() } else { format!("{} × ", leg.drives) };
    let price = match (leg.owned >= leg.drives, leg.price, leg.monthly) {
        (true, ..) => "there already".to_owned(),
        (_, Some(price), _) => {
            format!("{price:.2} {} ({})", advice.asked.currency, leg.date)
        }
        (_, _, Some(monthly)) => {
            format!("{monthly:.2} {} a month ({})", advice.asked.currency, leg.date)
        }
        _ => "no price".to_owned(),
    };
    let mut said = format!(
        "{drives}{}: {price}; busy {:.1} %; {} written a day",
        leg.preset,
        leg.busy * 100.0,
        as_sold(wear.written_a_day)
    );
    if leg.flash_scale > 1 || wear.write_amplification > 1.0 {
        let _ = write!(said, ", amplified {:.2} times", wear.write_amplification);
    }
    match (wear.endurance, wear.years_amplified, wear.of_workload) {
        (Some(endurance), Some(years), _) => {
            let _ = write!(
                said,
                "; rated for {}, worn out {}",
                as_sold(endurance as f64),
                match date(years, now) {
                    far if far.starts_with('>') => format!("in {far}"),
                    date => date,
                }
            );
            if wear.replacements > 0 {
                let times = counted(wear.replacements, "time");
                let _ = write!(said, ", replaced {times}");
            }
        }
        (_, _, Some(share)) => {
            let _ = write!(said, "; {:.1} % of the rated workload", share * 100.0);
        }
        (None, ..) if leg.monthly.is_none() => said.push_str("; no rating known"),
        _ => {}
    }
    if leg.flash_scale > 1 {
        let _ = write!(said, "; flash ÷ {}", leg.flash_scale);
    }
    said.push('.');
    said
}

fn foot(advice: &Advice) -> String {
    let mut text = "\n".to_owned();
    for assumption in &advice.assumptions {
        text.push_str(&sentence("- ", assumption));
    }
    let systems = &advice.systems;
    if systems.iter().any(|system| system.frontier) {
        text.push_str("* No other system is both cheaper and faster.\n");
    }
    if !advice.left_out.is_empty() {
        let names: Vec<&str> =
            advice.left_out.iter().take(NAMED).map(|left| left.name.as_str()).collect();
        let more = advice.left_out.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let said = format!(
            "Left out: {}{more}. The first {}. --json has all reasons.",
            names.join(", "),
            advice.left_out[0].why
        );
        text.push_str(&sentence("", &said));
    }
    text
}

/// Returns a sentence in lines, the first after `begin` and the others as far in.
fn sentence(begin: &str, said: &str) -> String {
    let indent = " ".repeat(begin.chars().count());
    let mut text = begin.to_owned();
    let mut column = begin.chars().count();
    for (number, word) in said.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{indent}");
            column = indent.len();
        } else if number > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

/// Returns a count with commas.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a size in decimal units with three digits, as drives are sold and rated.
fn as_sold(bytes: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let found = units.into_iter().find(|(unit, _)| bytes >= *unit);
    let Some((unit, name)) = found else { return format!("{bytes:.0} B") };
    let amount = bytes / unit;
    let digits = match amount {
        amount if amount >= 100.0 => 0,
        amount if amount >= 10.0 => 1,
        _ => 2,
    };
    format!("{amount:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 113_872].map(count), ["0", "999", "1,000", "113,872"]);
        assert_eq!(
            [0.0, 999.0, 4096.0, 3.2e9].map(as_sold),
            ["0 B", "999 B", "4.10 kB", "3.20 GB"]
        );
    }

    #[test]
    fn sentences_are_broken_between_words() {
        let text = sentence("! ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")), "{text}");
    }

    #[test]
    fn an_end_of_life_is_a_month() {
        let now = SystemTime::UNIX_EPOCH;
        assert_eq!(date(2.5, now), "1972-07");
        assert_eq!(date(1000.0, now), "> 100 y");
    }
}
