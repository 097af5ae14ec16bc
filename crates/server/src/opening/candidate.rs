//! A leg that is about to be opened, named by the configuration or found by a scan.

use hemi_engine::recovery;

use crate::serve::ServeError;
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::{OpenError, OpenLeg, Purpose};
use hemi_io::probe::hex;

/// A leg that is about to be opened.
pub(super) struct Candidate {
    /// The spec and options by which to open it.
    pub(super) config: LegConfig,
    /// The id that the leg must have; `None` for a configured leg, which may have any.
    pub(super) wanted: Option<String>,
    pub(super) state: State,
}

pub(super) enum State {
    /// The leg is open and locked. `metadata` holds the bytes before its data area.
    Present { leg: OpenLeg, metadata: Vec<u8> },
    /// The leg is absent, for this reason in words.
    Absent(String),
    /// Something is there that is not the leg, or that cannot be opened.
    Unfit(Unfit),
    /// It is no leg of the volume, for this reason in words: a standby, or a leg whose slot another has.
    NoLeg(&'static str),
}

/// A thing at the path of a leg that cannot be used as that leg.
pub(super) struct Unfit {
    /// The reason in words.
    pub(super) why: String,
    /// The error of a start that needs the leg.
    pub(super) error: ServeError,
    /// True if it may open at another attempt.
    pub(super) passes: bool,
}

impl Candidate {
    /// Opens a leg, or finds that it is absent or cannot be opened.
    ///
    /// # Errors
    /// Fails if another hemi has the leg.
    pub(super) fn new(config: LegConfig, wanted: Option<String>) -> Result<Candidate, ServeError> {
        let state = reach(&config, wanted.as_deref())?;
        Ok(Candidate { config, wanted, state })
    }

    /// Returns a candidate that is absent for this reason.
    pub(super) fn absent(config: LegConfig, wanted: String, reason: &str) -> Candidate {
        Candidate { config, wanted: Some(wanted), state: State::Absent(reason.to_owned()) }
    }

    /// Tries a leg again that is absent or could not be opened.
    ///
    /// # Errors
    /// As for [`Candidate::new`].
    pub(super) fn try_again(&mut self) -> Result<(), ServeError> {
        if matches!(self.state, State::Absent(_) | State::Unfit(Unfit { passes: true, .. })) {
            self.state = reach(&self.config, self.wanted.as_deref())?;
        }
        Ok(())
    }

    /// Reads the metadata of a present leg again.
    pub(super) fn read_again(&mut self) {
        if let State::Present { leg, metadata } = &mut self.state {
            match read_metadata(leg) {
                Ok(bytes) => *metadata = bytes,
                Err(error) => self.state = State::Absent(unreadable(&error)),
            }
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self.state, State::Absent(_))
    }

    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::Present { .. })
    }

    /// Returns the bytes before its data area, if it is present.
    pub(super) fn metadata(&self) -> Option<&[u8]> {
        match &self.state {
            State::Present { metadata, .. } => Some(metadata),
            State::Absent(_) | State::Unfit(_) | State::NoLeg(_) => None,
        }
    }

    /// Returns the id of the leg, if it is present.
    pub(super) fn id(&self) -> Option<String> {
        self.metadata().and_then(id_of)
    }

    /// Takes the error of one that cannot be used.
    pub(super) fn take_error(&mut self) -> Option<ServeError> {
        match std::mem::replace(&mut self.state, State::Absent("it cannot be used".into())) {
            State::Unfit(Unfit { error, .. }) => Some(error),
            other => {
                self.state = other;
                None
            }
        }
    }
}

/// Opens, locks and reads a leg, or finds that it is absent or cannot be opened.
fn reach(config: &LegConfig, wanted: Option<&str>) -> Result<State, ServeError> {
    let leg = match OpenLeg::configured(config, Purpose::Serve) {
        Ok(leg) => leg,
        // The message names the leg and the reason.
        Err(OpenError::Nbd { source, .. }) if source.is_absence() => {
            return Ok(State::Absent(source.to_string()));
        }
        Err(error) if error.is_absence() => return Ok(State::Absent(error.to_string())),
        // It may hold another history of the volume, which nobody can look at.
        Err(source @ OpenError::InUse { .. }) => {
            return Err(ServeError::Open { leg: config.label(), source });
        }
        Err(source) => {
            let why = source.to_string();
            let error = ServeError::Open { leg: config.label(), source };
            return Ok(State::Unfit(Unfit { why, error, passes: true }));
        }
    };
    if leg.size() == 0 {
        return Ok(State::Absent("it has a size of 0 bytes: the drive is not ready".into()));
    }
    let metadata = match read_metadata(&leg) {
        Ok(metadata) => metadata,
        Err(error) => return Ok(State::Absent(unreadable(&error))),
    };
    match wanted {
        Some(wanted) if id_of(&metadata).as_deref() != Some(wanted) => {
            Ok(State::Absent("something else is there now".into()))
        }
        _ => Ok(State::Present { leg, metadata }),
    }
}

fn id_of(metadata: &[u8]) -> Option<String> {
    recovery::newest_of(metadata).ok().map(|superblock| hex(superblock.own_record().id))
}

fn unreadable(error: &std::io::Error) -> String {
    format!("its metadata could not be read: {error}")
}

/// Reads the metadata at the beginning of a leg.
fn read_metadata(leg: &OpenLeg) -> std::io::Result<Vec<u8>> {
    let mut bytes = leg.head()?;
    let head = bytes.len() as u64;
    // Without a superblock, the head is all that recovery needs to explain the problem.
    let needed = recovery::metadata_bytes(&bytes).unwrap_or(head).min(leg.size());
    if needed > head {
        bytes.resize(needed as usize, 0);
        leg.read_at(head, &mut bytes[head as usize..])?;
    }
    Ok(bytes)
}
