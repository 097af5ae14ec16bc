//! The search for legs by their content, which adds them to the candidates.

use std::time::{Duration, Instant};

use super::candidate::{Candidate, State};
use crate::config::scan::ScanConfig;
use crate::scan::apart::Scanner;
use crate::scan::{Contradiction, Scan, legs_of};
use crate::serve::ServeError;
use hemi_io::config::legs::LegConfig;

/// Shortest time between two scans of the machine.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// A volume whose legs are searched for.
pub(super) struct Search<'a> {
    config: &'a ScanConfig,
    scanner: Scanner,
    scan: Scan,
    next: Instant,
    /// True until the candidates agree with the scan.
    is_new: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(config: &'a ScanConfig) -> Search<'a> {
        Search {
            config,
            scanner: Scanner::new(&config.places),
            scan: Scan::default(),
            next: Instant::now(),
            is_new: false,
        }
    }

    /// Scans, unless a scan has just been done, and updates the candidates. Opens the legs found, and the
    /// remote legs they know of. Legs that were not found are absent.
    ///
    /// If the scan contradicts itself, the candidates stay unchanged.
    ///
    /// # Errors
    /// Fails if a leg that was found cannot be opened.
    pub(super) fn search(
        &mut self,
        candidates: &mut Vec<Candidate>,
    ) -> Result<Result<(), Contradiction>, ServeError> {
        if Instant::now() >= self.next {
            self.scan = self.scanner.scan()?;
            self.next = Instant::now() + SCAN_INTERVAL;
            self.is_new = true;
        }
        let chosen = match legs_of(&self.scan, &self.config.volume) {
            Ok(chosen) => chosen,
            Err(contradiction) => return Ok(Err(contradiction)),
        };
        if !std::mem::take(&mut self.is_new) {
            return Ok(Ok(()));
        }
        let is_left_out = |one: &Candidate| matches!(one.state, State::NoLeg(_));
        candidates.retain(|one| one.wanted.is_none() || one.is_present() || is_left_out(one));
        let known = candidates.iter().flat_map(|one| [one.id(), one.wanted.clone()]);
        let known: Vec<String> = known.flatten().collect();
        let is_new = |id: &String| !known.contains(id);
        for leg in chosen.found.iter().filter(|leg| is_new(&leg.id)) {
            let config = LegConfig::new(leg.spec.clone());
            candidates.push(Candidate::new(config, Some(leg.id.clone()))?);
        }
        for leg in chosen.missing.iter().filter(|leg| is_new(&leg.id)) {
            let (config, id) = (leg.config.clone(), leg.id.clone());
            if candidates.iter().any(|one| one.wanted.is_none() && one.config.path == config.path) {
                // The leg is configured and already counts as absent.
                continue;
            }
            candidates.push(if config.path.is_remote() {
                Candidate::new(config, Some(id))?
            } else {
                Candidate::absent(config, id, "it was not found on this machine")
            });
        }
        for standby in chosen.standbys {
            if candidates.iter().all(|one| one.config.path != standby.spec) {
                candidates.push(Candidate::new(LegConfig::new(standby.spec.clone()), None)?);
            }
        }
        Ok(Ok(()))
    }

    /// Returns a message that no leg of the volume was found.
    pub(super) fn nothing_found(&self) -> String {
        self.scan.nothing_of(&self.config.volume)
    }

    /// Names the devices and files that may hold a leg that was not found.
    pub(super) fn doubts(&self) -> impl Iterator<Item = String> {
        self.scan.doubts()
    }
}
