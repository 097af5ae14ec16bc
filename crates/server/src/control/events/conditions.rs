//! Events of the volume's conditions: a change of the worst one, in the sentence of the judge of its health.

use super::{Event, Severity};
use crate::control::api::VolumeStatus;
use crate::control::health::{Condition, Health};
use crate::control::volume::Phase;

/// Time for which a condition must be the worst before it is told of, in milliseconds. A freeze or a short
/// comparison passes within it, and has events of its own.
const HOLDS_MS: u64 = 10_000;
/// Shortest time between an event and the next one that tells of nothing worse, in milliseconds.
const TOLD_MS: u64 = 60_000;

/// The worst condition, and the one that the newest event told of. `None` is a volume without one that is
/// worse than [`Health::Healthy`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::control) struct Worst {
    now: Option<Condition>,
    since_ms: u64,
    told: Option<Condition>,
    told_ms: u64,
}

impl Worst {
    /// Takes the judged status of a time. Returns an event if the worst condition has changed for long enough.
    pub(in crate::control) fn take(&mut self, status: &VolumeStatus, now_ms: u64) -> Option<Event> {
        // Starts and stops have events of their own.
        if status.phase != Phase::Serving {
            return None;
        }
        let worst = status.risks.first().map(|risk| risk.condition);
        let worst = worst.filter(|condition| condition.health() > Health::Healthy);
        if worst != self.now {
            (self.now, self.since_ms) = (worst, now_ms);
        }
        // The worst comes first in the order of conditions.
        let is_worse = worst.is_some_and(|now| self.told.is_none_or(|told| now < told));
        let is_due =
            now_ms >= self.since_ms + HOLDS_MS && (is_worse || now_ms >= self.told_ms + TOLD_MS);
        if worst == self.told || !is_due {
            return None;
        }
        (self.told, self.told_ms) = (worst, now_ms);
        let severity = match worst.map(Condition::health) {
            Some(Health::NotServing) => Severity::Critical,
            Some(Health::Degraded) => Severity::Warning,
            Some(Health::Healthy) | None => Severity::Notice,
        };
        let event = Event::new("condition", severity, status.summary.text.clone());
        Some(event.with("condition", worst.map(Condition::name)).at(now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::Risk;
    use crate::control::health::Summary;

    const SECOND: u64 = 1000;

    fn with(condition: Option<Condition>) -> VolumeStatus {
        let text = condition.map_or("All is well.", Condition::name).to_owned();
        let risk = |condition: Condition| Risk {
            promise: "P1".into(),
            condition,
            brief: String::new(),
            text: text.clone(),
            advice: None,
        };
        VolumeStatus {
            phase: Phase::Serving,
            risks: condition.map(risk).into_iter().collect(),
            summary: Summary { text: text.clone(), ..Summary::default() },
            ..VolumeStatus::default()
        }
    }

    /// Returns the events of a volume whose worst condition is the same from each time, in seconds, on.
    fn told(changes: &[(u64, Option<Condition>)], end: u64) -> Vec<(u64, Severity, String)> {
        let mut worst = Worst::default();
        let mut events = Vec::new();
        for second in 0..end {
            let now = changes.iter().rfind(|(from, _)| *from <= second);
            let status = with(now.and_then(|(_, condition)| *condition));
            let event = worst.take(&status, 1_000_000 + second * SECOND);
            events.extend(event.map(|event| (second, event.severity, event.text)));
        }
        events
    }

    #[test]
    fn a_change_that_lasts_is_told_of_with_its_end() {
        let changes = [(5, Some(Condition::RegionsOwed)), (100, None)];
        let said = told(&changes, 300);
        assert_eq!(
            said,
            [
                (15, Severity::Warning, "regions-owed".to_owned()),
                (110, Severity::Notice, "All is well.".to_owned()),
            ]
        );
    }

    #[test]
    fn a_brief_freeze_and_what_is_no_risk_are_not_told_of() {
        let freeze = [(5, Some(Condition::LegSilent)), (14, None)];
        assert_eq!(told(&freeze, 100), []);
        assert_eq!(told(&[(0, Some(Condition::Throttled))], 100), []);
    }

    #[test]
    fn what_is_worse_is_told_of_at_once_and_what_is_better_once_a_minute() {
        let changes = [
            (0, Some(Condition::LegOut)),
            (20, Some(Condition::NoLegAnswers)),
            (40, Some(Condition::LegOut)),
        ];
        let times: Vec<(u64, Severity)> =
            told(&changes, 300).into_iter().map(|(at, severity, _)| (at, severity)).collect();
        assert_eq!(
            times,
            [(10, Severity::Warning), (30, Severity::Critical), (90, Severity::Warning)]
        );
        let flapping: Vec<(u64, Option<Condition>)> = (0..360)
            .map(|turn| (turn * 10, (turn % 2 == 0).then_some(Condition::SoleLeg)))
            .collect();
        assert!(told(&flapping, 3600).len() <= 110, "an hour of it");
    }

    #[test]
    fn a_start_and_a_stop_are_told_of_by_others() {
        let mut worst = Worst::default();
        for at in [0, 100 * SECOND] {
            let closing = VolumeStatus { phase: Phase::Closing, ..with(Some(Condition::SoleLeg)) };
            assert_eq!(worst.take(&closing, at), None);
        }
    }
}
