//! A volume's status as text for a terminal, as pure functions of the status.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table};
use hemi_engine::settings::{ExposureMode, Policy};
use hemi_engine::status::LegState;
use hemi_server::config::live::Setting;
use hemi_server::control::api::{InjectedStalls, LastScrub, Latencies, LegStatus, VolumeStatus};
use hemi_server::control::health::{self, Health};
use hemi_server::control::volume::Phase;
use hemi_text::Plain;
use hemi_units::prose::{bytes, counted, duration};

mod drives;

/// The number of columns at which sentences are broken.
const WIDTH: usize = 96;
/// The text where there is no figure.
const NONE: &str = "-";

/// Returns one screen, with rates if there is an earlier status.
pub(crate) fn status(status: &VolumeStatus, previous: Option<&VolumeStatus>) -> String {
    let previous = previous.filter(|previous| previous.uptime_ns < status.uptime_ns);
    let mut text = headline(status);
    text.push('\n');
    text.push_str(&client_table(status, previous));
    text.push('\n');
    text.push_str(&leg_table(status));
    text.push('\n');
    text.push_str(&standbys(status));
    text.push_str(&no_sessions(status));
    text.push_str(&injected(status));
    text.push_str(&drives::lines(status));
    text.push_str(&drives::verdicts(status));
    text.push_str(&exposure(status));
    text.push_str(&ledger(status));
    if let Some(device) = &status.device {
        let _ = writeln!(text, "device    {}", Plain(device));
    }
    text.push_str(&work(status));
    text.push('\n');
    text.push_str(&promises(status));
    text
}

/// Returns a line for each standby, and an empty one behind them.
fn standbys(status: &VolumeStatus) -> String {
    let mut text = String::new();
    for standby in &status.standbys {
        let state = match &standby.why_not {
            None => "ready to take the place of a leg".to_owned(),
            Some(why) => format!("cannot be used: {}", Plain(why)),
        };
        let _ = writeln!(text, "standby   {}  {state}", Plain(&standby.name));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn headline(status: &VolumeStatus) -> String {
    let mut line = format!("{}  {}  {}", name(status), bytes(status.size_bytes), condition(status));
    if status.phase == Phase::Serving {
        let _ = write!(line, "  served for {}", duration(status.uptime_ns));
    }
    let _ = write!(line, "  policy {}", policy(status.policy));
    line.push('\n');
    line
}

/// Returns the volume's state in a few words: those of the judge of its health.
pub(crate) fn condition(status: &VolumeStatus) -> String {
    let word = health::word(status);
    if status.phase != Phase::Serving || status.health == Health::Healthy {
        return if status.converged { format!("{word}, all legs alike") } else { word.into() };
    }
    let mut reasons: Vec<&str> = Vec::new();
    for risk in &status.risks {
        if risk.condition.health() > Health::Healthy && !reasons.contains(&&*risk.brief) {
            reasons.push(&risk.brief);
        }
    }
    format!("{word} ({})", reasons.join(", "))
}

/// Returns a leg's condition in a word or two.
pub(crate) fn state(leg: &LegStatus) -> String {
    let word = health::state(leg);
    let answers = matches!(leg.state, LegState::Healthy | LegState::Lagging);
    match leg.slow && answers {
        true => format!("{word}, slow"),
        false => word.into(),
    }
}

fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::First => "first",
        Policy::Paper => "paper",
        Policy::All => "all",
        Policy::WriteBehind => "write-behind",
    }
}

fn client_table(status: &VolumeStatus, previous: Option<&VolumeStatus>) -> String {
    let clients = &status.clients;
    let mut text = format!(
        "clients   {} connected, {} in flight, {} failed\n",
        clients.connections.open,
        counted(clients.requests, "request"),
        clients.failed
    );
    let recent = duration(status.recent_ns);
    let mut table = plain_table();
    let mut head = vec!["requests".to_owned(), "total".to_owned()];
    if previous.is_some() {
        head.push("per second".to_owned());
    }
    head.extend(["p50", "p99", "p99.9", "max"].map(str::to_owned));
    table.set_header(head);
    type Of = fn(&VolumeStatus) -> &Latencies;
    let rows: [(&str, &Latencies, Of); 4] = [
        ("read", &clients.reads, |status| &status.clients.reads),
        ("write", &clients.writes, |status| &status.clients.writes),
        ("zero", &clients.zeroes, |status| &status.clients.zeroes),
        ("flush", &clients.flushes, |status| &status.clients.flushes),
    ];
    for (name, now, of) in rows {
        let mut row = vec![name.to_owned(), now.total.count.to_string()];
        if let Some(previous) = previous {
            let done = now.total.count.saturating_sub(of(previous).total.count);
            let seconds = (status.uptime_ns - previous.uptime_ns) as f64 / 1e9;
            row.push(format!("{:.0}", done as f64 / seconds));
        }
        let recent = &now.recent;
        row.extend(
            [recent.p50_ns, recent.p99_ns, recent.p999_ns, recent.max_ns]
                .map(|figure| if recent.count == 0 { NONE.to_owned() } else { duration(figure) }),
        );
        table.add_row(row);
    }
    right_align(&mut table, 1..);
    let _ = writeln!(text, "{}", table.trim_fmt());
    let _ = writeln!(text, "(latencies of the last {recent})");
    text
}

/// Returns the legs, one per line.
pub(crate) fn leg_table(status: &VolumeStatus) -> String {
    let mut table = plain_table();
    table.set_header([
        "leg",
        "name",
        "state",
        "for",
        "read p50",
        "p99",
        "write p50",
        "p99",
        "wait limit",
        "owes",
        "freezes",
    ]);
    for leg in &status.legs {
        let quantiles = |latencies: &Latencies| {
            let recent = &latencies.recent;
            match recent.count {
                0 => [NONE.to_owned(), NONE.to_owned()],
                _ => [duration(recent.p50_ns), duration(recent.p99_ns)],
            }
        };
        let [read, read_high] = quantiles(&leg.reads);
        let [write, write_high] = quantiles(&leg.writes);
        table.add_row([
            leg.leg.to_string(),
            leg.name.clone(),
            state(leg),
            duration(leg.state_age_ns.unwrap_or(status.uptime_ns)),
            read,
            read_high,
            write,
            write_high,
            duration(leg.write_wait_limit_ns),
            owes(leg),
            freezes(leg),
        ]);
    }
    right_align(&mut table, 3..9);
    format!("{}\n", table.trim_fmt())
}

fn owes(leg: &LegStatus) -> String {
    match (leg.owed_bytes, leg.owed_age_ns) {
        (0, _) => NONE.into(),
        (owed, 0) => bytes(owed),
        (owed, age) => format!("{}, {}", bytes(owed), duration(age)),
    }
}

fn freezes(leg: &LegStatus) -> String {
    match leg.freezes {
        0 => NONE.into(),
        count => format!("{count}, longest {}", duration(leg.longest_freeze_ns)),
    }
}

/// Lists the remote legs that have no session, one per line, each with the reason.
fn no_sessions(status: &VolumeStatus) -> String {
    let mut text = String::new();
    for leg in &status.legs {
        if let Some(reason) = &leg.no_session {
            // A reply comes from whoever has the socket.
            let _ = writeln!(text, "session   leg {}: none: {}", leg.leg, Plain(reason));
        }
    }
    text
}

/// Lists injected faults, one line for each leg that has any.
fn injected(status: &VolumeStatus) -> String {
    let mut text = String::new();
    for leg in &status.legs {
        let Some(faults) = &leg.injected else { continue };
        let mut parts = Vec::new();
        if faults.frozen_for_ns > 0 {
            parts.push(format!("frozen for {}", duration(faults.frozen_for_ns)));
        }
        if faults.delay_ns > 0 {
            parts.push(format!("delayed by {}", duration(faults.delay_ns)));
        }
        parts.extend(faults.stalls.as_ref().map(stalls));
        for (operation, permille) in [
            ("reads", faults.read_errors_permille),
            ("writes", faults.write_errors_permille),
            ("flushes", faults.flush_errors_permille),
        ] {
            if permille > 0 {
                parts.push(format!("{} % of {operation} fail", f64::from(permille) / 10.0));
            }
        }
        if faults.held > 0 {
            parts.push(format!("{} held", faults.held));
        }
        let _ = writeln!(text, "injected  leg {}: {}", leg.leg, parts.join("; "));
    }
    text
}

fn stalls(stalls: &InjectedStalls) -> String {
    let (reads, writes) = (stalls.reads, stalls.writes);
    let phase = match (stalls.phase, stalls.phase_left_ns) {
        (Some(phase), Some(left)) => {
            format!("phase {phase} of {}, {} left", stalls.phases, duration(left))
        }
        (Some(phase), None) => format!("phase {phase} of {}", stalls.phases),
        (None, _) => "over".to_owned(),
    };
    format!(
        "stalls ({phase}, seed {}): {} of {} reads, {} of {} writes",
        stalls.seed, reads.stalled, reads.seen, writes.stalled, writes.seen
    )
}

fn exposure(status: &VolumeStatus) -> String {
    let exposure = &status.exposure;
    let mut now = match exposure.bytes {
        0 => "none".to_owned(),
        held => format!("{}, {} old", bytes(held), duration(exposure.age_ns)),
    };
    let regions = status.one_copy_region_bytes;
    if status.one_copy_bytes >= status.size_bytes {
        now = "everything is on one leg only".into();
    } else if regions > 0 {
        now = match exposure.bytes {
            0 => format!("{} in regions that a leg owes", bytes(regions)),
            _ => format!("{now}, and {} in regions that a leg owes", bytes(regions)),
        };
    }
    let mode = match exposure.mode {
        ExposureMode::Throttle => "throttle",
        ExposureMode::FallBehind => "fall-behind",
    };
    let throttling = if exposure.throttling { "; writers are being slowed" } else { "" };
    format!(
        "exposure  {now}; bound {}, {} ({mode}); peak {}{throttling}\n",
        bytes(exposure.bound_bytes),
        duration(exposure.bound_age_ns),
        bytes(exposure.peak_bytes)
    )
}

/// Returns the reason why no ledger is kept, or nothing if one is.
fn ledger(status: &VolumeStatus) -> String {
    let Some(why) = &status.ledger.why_none else { return String::new() };
    let mut text = String::new();
    let sentence = format!(
        "none: {why}. A write waits for its region's authority, or for a page write that names \
         another leg."
    );
    for (index, line) in wrap(&sentence, WIDTH - 10).iter().enumerate() {
        let start = if index == 0 { "ledger" } else { "" };
        let _ = writeln!(text, "{start:<10}{line}");
    }
    text
}

/// Describes work that will end (rebuilds, drains, a scrub), or the end of the last scrub.
fn work(status: &VolumeStatus) -> String {
    let mut text = String::new();
    for leg in &status.legs {
        // A leg that owes no more than what has just been written is not worth a line.
        let Some(progress) = leg.progress_permille else { continue };
        let _ = writeln!(
            text,
            "rebuild   leg {}: {}, {} to go{}",
            leg.leg,
            percent(progress),
            bytes(leg.owed_bytes),
            pace(leg.drain_bytes_per_s, leg.remaining_ns)
        );
    }
    let scrub = &status.scrub;
    if scrub.running {
        let _ = writeln!(
            text,
            "scrub     {}, compared {} of {}{}, {} differ",
            percent(scrub.permille.unwrap_or(0)),
            bytes(scrub.compared_bytes),
            bytes(scrub.total_bytes),
            pace(scrub.bytes_per_s, scrub.remaining_ns),
            bytes(scrub.mismatched_bytes)
        );
    } else if let Some(last) = &scrub.last {
        let _ = writeln!(text, "scrub     {}", last_scrub(last, now_ms()));
    }
    text
}

/// Returns the result of a scrub in a sentence.
pub(crate) fn last_scrub(last: &LastScrub, now_ms: u64) -> String {
    let ago = duration(now_ms.saturating_sub(last.at_ms).saturating_mul(1_000_000));
    let took = duration(last.took_ns);
    let mut found = Vec::new();
    if last.mismatched_bytes > 0 {
        found.push(format!("{} differed", bytes(last.mismatched_bytes)));
    }
    if last.unreadable_bytes > 0 {
        found.push(format!("a leg could not read {}", bytes(last.unreadable_bytes)));
    }
    if found.is_empty() {
        found.push("no difference was found".to_owned());
    }
    let found = found.join(", ");
    let ended = if last.stopped { "stopped" } else { "ended" };
    format!("{ended} {ago} ago after {took}: {found}")
}

fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Formats thousandths as per cent.
pub(crate) fn percent(permille: u16) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Returns the pace and the time left, as far as they are known.
pub(crate) fn pace(bytes_per_s: Option<u64>, remaining_ns: Option<u64>) -> String {
    let mut text = String::new();
    if let Some(rate) = bytes_per_s {
        let _ = write!(text, ", {}/s", bytes(rate));
    }
    if let Some(remaining) = remaining_ns {
        let _ = write!(text, ", {} left", duration(remaining));
    }
    text
}

/// Returns the keys of the configuration, one per line.
pub(crate) fn settings(settings: &[Setting]) -> String {
    let mut table = plain_table();
    table.set_header(["key", "value", "can change"]);
    for Setting { key, value, live: _, why_not } in settings {
        let value = value.as_deref().map_or_else(|| NONE.into(), |value| Plain(value).to_string());
        let change = why_not.as_ref().map_or_else(|| "yes".into(), |why| format!("no: {why}"));
        table.add_row([key.clone(), value, change]);
    }
    right_align(&mut table, 3..);
    format!("{}\n", table.trim_fmt())
}

/// Returns the served volumes, one per line.
pub(crate) fn volume_table(volumes: &[&VolumeStatus]) -> String {
    let mut table = plain_table();
    table.set_header(["name", "size", "state", "legs", "owes", "exposed", "device", "served for"]);
    for status in volumes {
        let answers = |leg: &&LegStatus| matches!(leg.state, LegState::Healthy | LegState::Lagging);
        let up = status.legs.iter().filter(answers).count();
        let owed: u64 = status.legs.iter().map(|leg| leg.owed_bytes).sum();
        let or_none = |count: u64| if count == 0 { NONE.to_owned() } else { bytes(count) };
        let device = status
            .device
            .as_deref()
            .map_or_else(|| NONE.into(), |device| Plain(device).to_string());
        table.add_row([
            name(status).to_owned(),
            bytes(status.size_bytes),
            condition(status),
            format!("{up} of {}", status.legs.len()),
            or_none(owed),
            or_none(status.one_copy_bytes),
            device,
            duration(status.uptime_ns),
        ]);
    }
    right_align(&mut table, 7..);
    format!("{}\n", table.trim_fmt())
}

pub(crate) fn name(status: &VolumeStatus) -> &str {
    if status.name.is_empty() { "(unnamed)" } else { &status.name }
}

fn promises(status: &VolumeStatus) -> String {
    if status.risks.is_empty() {
        return match status.phase {
            Phase::Serving => "Every promise holds.\n".into(),
            _ => {
                let advice = status.summary.advice.as_deref().unwrap_or_default();
                let said = format!("{} {advice}", status.summary.text);
                wrap(said.trim(), WIDTH).join("\n") + "\n"
            }
        };
    }
    let mut text = String::new();
    for risk in &status.risks {
        let prefix = format!("{}  ", risk.promise);
        let room = WIDTH - prefix.len();
        let mut lines = wrap(&risk.text, room);
        lines.extend(risk.advice.iter().flat_map(|advice| wrap(advice, room)));
        for (index, line) in lines.iter().enumerate() {
            let start = if index == 0 { prefix.clone() } else { " ".repeat(prefix.len()) };
            let _ = writeln!(text, "{start}{line}");
        }
    }
    text
}

pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    // Lines are never broken: the terminal wraps those that do not fit, and nothing is lost.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn right_align(table: &mut Table, columns: impl std::ops::RangeBounds<usize>) {
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if columns.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests;
