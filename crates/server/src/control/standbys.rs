//! Standbys as status and events tell of them.

use serde::{Deserialize, Serialize};

use super::events::{Event, Severity};

/// A standby of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyStatus {
    /// Its name, or its spec if it has none.
    pub name: String,
    /// Its spec.
    pub path: String,
    /// True if it can take the place of a leg now.
    pub ready: bool,
    /// The reason why it cannot; `null` if it can.
    pub why_not: Option<String>,
}

/// A turn of events with a standby. Its text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandbyTurn {
    /// It takes the place of a leg.
    #[error(
        "The standby {standby} takes the place of {leg}, which is out{}: it is being filled.",
        slot_if_other(*slot, *of)
    )]
    Took {
        /// Its name.
        standby: String,
        /// The name of the leg that is out, with its slot.
        leg: String,
        /// The slot it takes.
        slot: u8,
        /// The slot of the leg that is out.
        of: u8,
    },
    /// It could not take the place of a leg.
    #[error("The standby {standby} could not take the place of {leg}, which is out: {why}.")]
    Failed {
        /// Its name.
        standby: String,
        /// The name of the leg that is out, with its slot.
        leg: String,
        /// The slot of that leg.
        of: u8,
        /// The reason in words.
        why: String,
    },
    /// A leg whose slot was taken is there again, and is a standby now.
    #[error(
        "{standby}, which was leg {leg} until its slot was taken, is back. It is a standby now."
    )]
    Returned {
        /// Its name.
        standby: String,
        /// The slot it had.
        leg: u8,
    },
    /// It cannot be used any more.
    #[error("The standby {standby} cannot be used: {why}. No leg can rely on it.")]
    Missing {
        /// Its name.
        standby: String,
        /// The reason in words.
        why: String,
    },
    /// It can be used again.
    #[error("The standby {standby} can be used again.")]
    Back {
        /// Its name.
        standby: String,
    },
}

fn slot_if_other(slot: u8, of: u8) -> String {
    if slot == of { String::new() } else { format!(" and cannot be let go, as leg {slot}") }
}

impl StandbyTurn {
    /// Returns the event.
    pub(super) fn event(&self) -> Event {
        let (kind, severity) = match self {
            StandbyTurn::Took { .. } => ("standby-took", Severity::Warning),
            StandbyTurn::Failed { .. } => ("standby-failed", Severity::Warning),
            StandbyTurn::Missing { .. } => ("standby-missing", Severity::Warning),
            StandbyTurn::Returned { .. } => ("standby-returned", Severity::Notice),
            StandbyTurn::Back { .. } => ("standby-back", Severity::Notice),
        };
        let event = Event::new(kind, severity, self.to_string());
        match self {
            StandbyTurn::Took { standby, slot, of, .. } => {
                event.of_leg(*slot, standby.clone()).with("out", *of)
            }
            StandbyTurn::Failed { of, .. } => event.with("out", *of),
            StandbyTurn::Returned { standby, leg } => {
                event.with("standby", standby.clone()).with("was", *leg)
            }
            StandbyTurn::Missing { standby, .. } | StandbyTurn::Back { standby } => {
                event.with("standby", standby.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_sentence_and_an_event() {
        let took = |slot| StandbyTurn::Took {
            standby: "/dev/sdc".into(),
            leg: "hdd (leg 1)".into(),
            slot,
            of: 1,
        };
        assert_eq!(
            took(1).event().text,
            "The standby /dev/sdc takes the place of hdd (leg 1), which is out: it is being filled."
        );
        assert_eq!(
            took(2).event().text,
            "The standby /dev/sdc takes the place of hdd (leg 1), which is out and cannot be let go, as \
             leg 2: it is being filled."
        );
        assert_eq!(took(2).event().leg, Some(2));
        let returned = StandbyTurn::Returned { standby: "/dev/sdb".into(), leg: 1 }.event();
        assert_eq!((returned.severity, &returned.values["was"]), (Severity::Notice, &1.into()));
    }
}
