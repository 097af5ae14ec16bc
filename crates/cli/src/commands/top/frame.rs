//! The screen of `hemi top`, as a pure function of the state and of the size of the terminal.

use std::collections::VecDeque;

use hemi_engine::status::LegState;
use hemi_server::control::api::{Latencies, LegStatus, VolumeStatus};
use hemi_server::control::health::Health;
use hemi_server::control::volume::Phase;
use hemi_units::prose::{bytes, counted, duration};

use super::line::{Line, Style, bar, sparkline};
use crate::text;

/// The number of seconds that are remembered.
pub(super) const MEMORY: usize = 120;
/// The width of a sparkline.
const SPARK: usize = 30;
/// The width of a bar.
const BAR: usize = 30;
const NONE: &str = "-";

/// The order of the legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Slot,
    Owed,
    Latency,
}

impl Order {
    pub(super) fn next(self) -> Order {
        match self {
            Order::Slot => Order::Owed,
            Order::Owed => Order::Latency,
            Order::Latency => Order::Slot,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Slot => "slot",
            Order::Owed => "what they owe",
            Order::Latency => "write latency",
        }
    }
}

/// The state that is shown.
#[derive(Debug, Default)]
pub(super) struct View {
    /// One status per second, the newest last, all of one opening of the volume.
    pub(super) seen: VecDeque<VolumeStatus>,
    /// The reason why there is no newer one.
    pub(super) gone: Option<String>,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) detail: bool,
    pub(super) order: Order,
    /// The slot of the selected leg.
    pub(super) selected: Option<u8>,
    /// The number of the volume that is shown, and the number of volumes.
    pub(super) volume: (usize, usize),
    /// True if block characters can be shown.
    pub(super) unicode: bool,
}

impl View {
    /// Takes in a status.
    pub(super) fn note(&mut self, status: VolumeStatus) {
        self.gone = None;
        let began_anew =
            |last: &VolumeStatus| last.id != status.id || last.uptime_ns >= status.uptime_ns;
        if self.seen.back().is_some_and(began_anew) {
            self.seen.clear();
        }
        if self.seen.len() == MEMORY {
            self.seen.pop_front();
        }
        self.seen.push_back(status);
    }

    /// Returns the legs in the chosen order.
    fn legs(&self) -> Vec<&LegStatus> {
        let Some(status) = self.seen.back() else { return Vec::new() };
        let mut legs: Vec<&LegStatus> = status.legs.iter().collect();
        match self.order {
            Order::Slot => {}
            Order::Owed => legs.sort_by_key(|leg| std::cmp::Reverse(leg.owed_bytes)),
            Order::Latency => legs.sort_by_key(|leg| std::cmp::Reverse(leg.writes.recent.p99_ns)),
        }
        legs
    }

    /// Selects the leg `further` places down.
    pub(super) fn select(&mut self, further: isize) {
        let slots: Vec<u8> = self.legs().iter().map(|leg| leg.leg).collect();
        let Some(last) = slots.len().checked_sub(1) else { return };
        let now = slots.iter().position(|slot| Some(*slot) == self.selected);
        let next = now.map_or(0, |now| now.saturating_add_signed(further).min(last));
        self.selected = Some(slots[next]);
    }

    /// Returns the lines of a screen of this size. The last shows the keys. Lines that do not fit
    /// are left out above it.
    pub(super) fn frame(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = match self.seen.back() {
            None => vec![Line::plain("hemi top"), Line::default()],
            Some(status) if self.help => self.help_lines(status, width),
            Some(status) => self.volume_lines(status, width),
        };
        if let Some(gone) = &self.gone {
            lines.insert(1.min(lines.len()), Line::styled(Style::Bad, gone.clone()));
        }
        let room = height.saturating_sub(1);
        lines.truncate(room);
        lines.resize(room, Line::default());
        if height > 0 {
            lines.push(self.key_line());
        }
        lines
    }

    /// Returns all lines except that of the keys.
    pub(super) fn page(&self, width: usize) -> Vec<Line> {
        self.seen.back().map_or_else(Vec::new, |status| self.volume_lines(status, width))
    }

    fn key_line(&self) -> Line {
        let mut line = Line::default();
        let mut keys = vec![("q", "quit"), ("p", "pause"), ("d", "detail"), ("s", "sort")];
        if self.volume.1 > 1 {
            keys.push(("v", "volume"));
        }
        keys.push(("?", "help"));
        for (key, what) in keys {
            line = line.with(Style::Bold, key).with(Style::Plain, format!(" {what}  "));
        }
        if self.order != Order::Slot {
            line = line.with(Style::Faint, format!("by {}  ", self.order.name()));
        }
        if self.volume.1 > 1 {
            let (index, count) = self.volume;
            line = line.with(Style::Faint, format!("volume {} of {count}", index + 1));
        }
        line
    }

    fn help_lines(&self, status: &VolumeStatus, width: usize) -> Vec<Line> {
        let mut lines = vec![self.headline(status, width), Line::default()];
        for (keys, what) in [
            ("q, Ctrl-C", "quit"),
            ("p, space", "pause, and go on"),
            ("up, down", "select a leg (also k, j)"),
            ("d, Enter", "the selected leg in detail, and back"),
            ("s", "sort the legs: by slot, by what they owe, by write latency"),
            ("v, left, right", "the next or the previous volume that is served here"),
            ("?", "this page, and back"),
        ] {
            lines.push(Line::styled(Style::Bold, format!("  {keys:<16}")).with(Style::Plain, what));
        }
        lines.push(Line::default());
        for sentence in [
            "Latencies are of the last ten seconds. Rates are of the last second.",
            "Exposure is acknowledged data that one leg alone holds.",
            "docs/commands/top.md explains every figure.",
        ] {
            lines.push(Line::plain(format!("  {sentence}")));
        }
        lines
    }

    fn headline(&self, status: &VolumeStatus, width: usize) -> Line {
        let style = match (status.phase, status.health) {
            (Phase::Serving, Health::Healthy) => Style::Good,
            (Phase::Serving, Health::Degraded) => Style::Warning,
            _ => Style::Bad,
        };
        let served = match self.paused {
            true => "PAUSED".to_owned(),
            false => format!("served for {}", duration(status.uptime_ns)),
        };
        Line::styled(Style::Bold, text::name(status))
            .with(Style::Plain, format!("  {}  ", bytes(status.size_bytes)))
            .with(style, text::condition(status))
            .right(if self.paused { Style::Reverse } else { Style::Faint }, &served, width)
    }

    fn volume_lines(&self, status: &VolumeStatus, width: usize) -> Vec<Line> {
        let mut lines = vec![self.headline(status, width)];
        let (style, sentence) = match status.risks.first() {
            None if status.phase == Phase::Serving => (Style::Good, "Every promise holds."),
            _ if status.health == Health::NotServing => (Style::Bad, status.summary.text.as_str()),
            None => (Style::Plain, ""),
            Some(risk) => (Style::Warning, risk.text.as_str()),
        };
        let sentence = text::wrap(sentence, width.max(20)).into_iter();
        lines.extend(sentence.map(|line| Line::styled(style, line)));
        lines.push(Line::default());
        self.client_lines(status, &mut lines);
        lines.push(exposure(status, self.unicode));
        self.work_lines(status, &mut lines);
        lines.push(Line::default());
        self.leg_lines(status, width, &mut lines);
        if self.detail {
            lines.push(Line::default());
            self.detail_lines(status, &mut lines);
        }
        lines
    }

    /// Returns the status one second before the newest.
    fn before(&self) -> Option<&VolumeStatus> {
        self.seen.len().checked_sub(2).and_then(|index| self.seen.get(index))
    }

    /// Returns the rise of `of` in each remembered second.
    fn rates(&self, of: impl Fn(&VolumeStatus) -> u64) -> Vec<u64> {
        let pairs = self.seen.iter().zip(self.seen.iter().skip(1));
        pairs.map(|(before, now)| rate(before, now, &of)).collect()
    }

    fn client_lines(&self, status: &VolumeStatus, lines: &mut Vec<Line>) {
        let clients = &status.clients;
        lines.push(Line::plain(format!(
            "clients   {} connected, {} in flight, {} failed",
            clients.connections.open, clients.requests, clients.failed
        )));
        let head = ["requests", "per second", "p50", "p99", "p99.9", "max"];
        let [name, per_second, p50, p99, p999, max] = head;
        lines.push(Line::styled(
            Style::Faint,
            format!("  {name:<8}{per_second:>12}{p50:>9}{p99:>9}{p999:>9}{max:>9}"),
        ));
        type Of = fn(&VolumeStatus) -> &Latencies;
        let rows: [(&str, Of); 4] = [
            ("read", |status| &status.clients.reads),
            ("write", |status| &status.clients.writes),
            ("zero", |status| &status.clients.zeroes),
            ("flush", |status| &status.clients.flushes),
        ];
        for (name, of) in rows {
            let latencies = of(status);
            if name == "zero" && latencies.total.count == 0 {
                continue;
            }
            let count = |status: &VolumeStatus| of(status).total.count;
            let now = self.before().map(|before| rate(before, status, count));
            let now = now.map_or_else(|| NONE.into(), |rate| rate.to_string());
            let recent = &latencies.recent;
            let of_recent =
                |figure: u64| if recent.count == 0 { NONE.into() } else { duration(figure) };
            let figures = [recent.p50_ns, recent.p99_ns, recent.p999_ns, recent.max_ns];
            let [p50, p99, p999, max] = figures.map(of_recent);
            let spark = sparkline(&self.rates(count), SPARK, self.unicode);
            lines.push(
                Line::plain(format!("  {name:<8}{now:>12}{p50:>9}{p99:>9}{p999:>9}{max:>9}  "))
                    .with(Style::Faint, spark),
            );
        }
    }

    fn work_lines(&self, status: &VolumeStatus, lines: &mut Vec<Line>) {
        for leg in &status.legs {
            if let Some(permille) = leg.progress_permille {
                let what = format!("{}, {} to go", text::percent(permille), bytes(leg.owed_bytes));
                let pace = text::pace(leg.drain_bytes_per_s, leg.remaining_ns);
                lines.push(work(&format!("leg {}", leg.leg), permille, &what, &pace, self.unicode));
            } else if let (Some(_), Some(rate)) = (leg.remaining_ns, leg.drain_bytes_per_s) {
                let pace = text::pace(Some(rate), leg.remaining_ns);
                let owed = bytes(leg.owed_bytes);
                lines.push(Line::plain(format!("drain     leg {}: {owed} owed{pace}", leg.leg)));
            }
        }
        let scrub = &status.scrub;
        if let Some(permille) = scrub.permille {
            let what = text::percent(permille);
            let differ = format!(", {} differ", bytes(scrub.mismatched_bytes));
            let pace = text::pace(scrub.bytes_per_s, scrub.remaining_ns) + &differ;
            lines.push(work("scrub", permille, &what, &pace, self.unicode));
        }
    }

    fn leg_lines(&self, status: &VolumeStatus, width: usize, lines: &mut Vec<Line>) {
        let legs = self.legs();
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let name_width = longest(&mut legs.iter().map(|leg| leg.name.chars().count())).clamp(4, 20);
        let state_width = longest(&mut legs.iter().map(|leg| text::state(leg).len())).max(5);
        let head = format!(
            "   {:<name_width$}  {:<state_width$}{:>9}{:>9}{:>10}{:>7}{:>11}  write p99, last minutes",
            "leg", "state", "read p99", "write", "owes", "queue", "per second"
        );
        lines.push(Line::styled(Style::Reverse, format!("{head:<width$}")));
        for leg in legs {
            let high = |latencies: &Latencies| match latencies.recent.count {
                0 => NONE.to_owned(),
                _ => duration(latencies.recent.p99_ns),
            };
            let owes = if leg.owed_bytes == 0 { NONE.into() } else { bytes(leg.owed_bytes) };
            let of_leg = |status: &VolumeStatus| {
                let same = status.legs.iter().find(|other| other.leg == leg.leg);
                same.map_or(0, |leg| leg.read_bytes + leg.written_bytes)
            };
            let moved = self.before().map(|before| rate(before, status, of_leg));
            let moved = moved.map_or_else(|| NONE.into(), bytes);
            let mark = if self.selected == Some(leg.leg) { '>' } else { ' ' };
            let name: String = leg.name.chars().take(name_width).collect();
            let latencies: Vec<u64> =
                self.seen.iter().map(|status| write_p99(status, leg.leg)).collect();
            lines.push(
                Line::styled(Style::Bold, format!("{mark}{} ", leg.leg))
                    .with(Style::Plain, format!("{name:<name_width$}  "))
                    .with(style_of(leg), format!("{:<state_width$}", text::state(leg)))
                    .with(
                        Style::Plain,
                        format!(
                            "{:>9}{:>9}{owes:>10}{:>7}{moved:>11}  ",
                            high(&leg.reads),
                            high(&leg.writes),
                            leg.in_flight
                        ),
                    )
                    .with(Style::Faint, sparkline(&latencies, SPARK, self.unicode)),
            );
        }
    }

    fn detail_lines(&self, status: &VolumeStatus, lines: &mut Vec<Line>) {
        let selected = self.selected.or_else(|| status.legs.first().map(|leg| leg.leg));
        let Some(leg) = status.legs.iter().find(|leg| Some(leg.leg) == selected) else { return };
        lines.push(Line::styled(Style::Bold, format!("leg {}  {}", leg.leg, leg.path)));
        let age = duration(leg.state_age_ns.unwrap_or(status.uptime_ns));
        lines.push(Line::plain(format!(
            "  {} for {age}; {}, {} in all, longest {}; {}",
            text::state(leg),
            counted(leg.freezes, "freeze"),
            duration(leg.frozen_ns),
            duration(leg.longest_freeze_ns),
            counted(leg.errors, "error")
        )));
        for (name, latencies, limit) in [
            ("read", &leg.reads, Some(leg.read_wait_limit_ns)),
            ("write", &leg.writes, Some(leg.write_wait_limit_ns)),
            ("flush", &leg.flushes, None),
        ] {
            let recent = &latencies.recent;
            let limit =
                limit.map_or_else(String::new, |limit| format!(", wait limit {}", duration(limit)));
            lines.push(Line::plain(format!(
                "  {name:<6} p50 {}, p99 {}, p99.9 {}, max {}{limit}",
                duration(recent.p50_ns),
                duration(recent.p99_ns),
                duration(recent.p999_ns),
                duration(recent.max_ns)
            )));
        }
        lines.push(Line::plain(format!(
            "  owes {}, {} of it as whole regions, the oldest {} old; {} drained",
            bytes(leg.owed_bytes),
            bytes(leg.owed_region_bytes),
            duration(leg.owed_age_ns),
            bytes(leg.drained_bytes)
        )));
        lines.push(Line::plain(format!(
            "  {} read, {} written; decides {}",
            bytes(leg.read_bytes),
            bytes(leg.written_bytes),
            counted(leg.authority_regions, "dirty region")
        )));
        if let Some(reason) = &leg.no_session {
            lines.push(Line::styled(Style::Warning, format!("  no session: {reason}")));
        }
    }
}

fn write_p99(status: &VolumeStatus, slot: u8) -> u64 {
    let leg = status.legs.iter().find(|leg| leg.leg == slot);
    leg.filter(|leg| leg.writes.recent.count > 0).map_or(0, |leg| leg.writes.recent.p99_ns)
}

/// Returns the rise of a count per second.
fn rate(before: &VolumeStatus, now: &VolumeStatus, of: impl Fn(&VolumeStatus) -> u64) -> u64 {
    let seconds = now.uptime_ns.saturating_sub(before.uptime_ns) as f64 / 1e9;
    if seconds <= 0.0 { 0 } else { (of(now).saturating_sub(of(before)) as f64 / seconds) as u64 }
}

fn style_of(leg: &LegStatus) -> Style {
    match leg.state {
        LegState::Healthy | LegState::Lagging if leg.stalled => Style::Bad,
        LegState::Healthy => Style::Good,
        LegState::Empty | LegState::Lagging => Style::Warning,
        LegState::Frozen | LegState::Gone | LegState::Out => Style::Bad,
    }
}

fn exposure(status: &VolumeStatus, unicode: bool) -> Line {
    let exposure = &status.exposure;
    let of = |part: u64, bound: u64| part.saturating_mul(1000) / bound.max(1);
    let share = of(exposure.bytes, exposure.bound_bytes);
    let full = match share {
        0..750 => Style::Good,
        750..1000 => Style::Warning,
        _ => Style::Bad,
    };
    let line = Line::plain("exposure  ").with(full, bar(share, BAR, unicode)).with(
        Style::Plain,
        format!(
            "  {} of {}, {} of {}",
            bytes(exposure.bytes),
            bytes(exposure.bound_bytes),
            duration(exposure.age_ns),
            duration(exposure.bound_age_ns)
        ),
    );
    let line = match status.one_copy_region_bytes {
        _ if status.one_copy_bytes >= status.size_bytes => {
            line.with(Style::Bad, "; everything is on one leg only")
        }
        0 => line,
        owed => line.with(Style::Warning, format!("; {} in regions that a leg owes", bytes(owed))),
    };
    match exposure.throttling {
        true => line.with(Style::Bad, "  writers are being slowed"),
        false => line,
    }
}

fn work(name: &str, permille: u16, what: &str, pace: &str, unicode: bool) -> Line {
    Line::plain(format!("{name:<10}"))
        .with(Style::Good, bar(permille.into(), BAR, unicode))
        .with(Style::Plain, format!("  {what}{pace}"))
}

#[cfg(test)]
mod tests;
