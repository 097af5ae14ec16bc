//! The behaviour of a disk: per sector, reads and acknowledged writes behave as one register. A
//! kill loses no acknowledged write. A power cut loses none that a flush or FUA covered.

use hemi_engine::io::{Operation, Request};
use hemi_units::Instant;

#[derive(Clone, Debug)]
struct Written {
    token: u64,
    version: u64,
    invoked: Instant,
    /// The time of the answer, or `None` while unanswered.
    answered: Option<Instant>,
    /// It had certainly taken effect by then: it was acknowledged, not failed or cut off.
    certain: bool,
    durable: bool,
    /// A read after a crash has shown that another write was the outcome. Only a power cut can
    /// bring this one back.
    excluded: bool,
}

impl Written {
    /// Returns true if this had certainly been replaced by the time `other` was invoked.
    fn is_before(&self, other: &Written) -> bool {
        self.answered.is_some_and(|answered| answered < other.invoked)
    }
}

#[derive(Clone, Default)]
struct Sector {
    writes: Vec<Written>,
    /// The first so many of them are durable and stay so.
    durable: usize,
    /// One of them may be excluded.
    excludes: bool,
    /// A value that a read has returned, and the time: later reads may not go back behind it.
    observed: Option<(u64, Instant)>,
    /// The time of the last crash. One of the writes answered by then is the state, and the first
    /// read shows which.
    crashed: Option<Instant>,
}

#[derive(Clone)]
pub struct Checker {
    sectors: Vec<Sector>,
    invoked: std::collections::BTreeMap<u64, Instant>,
    pub reads_checked: u64,
}

impl Checker {
    pub fn new(count: usize) -> Checker {
        let first = Written {
            token: 0,
            version: 0,
            invoked: Instant(0),
            answered: Some(Instant(0)),
            certain: true,
            durable: true,
            excluded: false,
        };
        let sector = Sector { writes: vec![first], ..Sector::default() };
        Checker { sectors: vec![sector; count], invoked: Default::default(), reads_checked: 0 }
    }

    pub fn invoked(&mut self, request: &Request, version: u64, now: Instant) {
        self.invoked.insert(request.token, now);
        if matches!(request.operation, Operation::Read | Operation::Flush) {
            return;
        }
        for sector in request.extent.start..request.extent.end {
            self.sectors[sector as usize].writes.push(Written {
                token: request.token,
                version,
                invoked: now,
                answered: None,
                certain: false,
                durable: false,
                excluded: false,
            });
        }
    }

    pub fn answered(
        &mut self,
        request: &Request,
        succeeded: bool,
        data: Option<&[u64]>,
        now: Instant,
    ) {
        let invoked = self.invoked.remove(&request.token).expect("requests are noted");
        match request.operation {
            Operation::Read => {
                for (sector, &value) in (request.extent.start..).zip(data.unwrap_or_default()) {
                    self.reads_checked += 1;
                    self.sectors[sector as usize].check_read(sector, value, invoked, now);
                }
            }
            Operation::Flush => {
                for sector in self.sectors.iter_mut().filter(|_| succeeded) {
                    sector.flush(invoked);
                }
            }
            _ => {
                for sector in request.extent.start..request.extent.end {
                    // It is one of the last.
                    let writes = self.sectors[sector as usize].writes.iter_mut().rev();
                    for written in writes.filter(|w| w.token == request.token).take(1) {
                        written.answered = Some(now);
                        // A discard may do nothing.
                        written.certain = succeeded && request.operation != Operation::Discard;
                        written.durable |= succeeded && request.fua && written.certain;
                    }
                }
            }
        }
    }

    /// Checks a whole image of the volume against what a client could read at this moment.
    pub fn check_image(&self, image: &[u64], now: Instant) {
        for (number, (sector, &value)) in self.sectors.iter().zip(image).enumerate() {
            let fits = |w: &Written| w.version == value && sector.fits(w, now);
            assert!(
                sector.writes.iter().any(fits),
                "P8: sector {number} of the image is {value}, writes {:?}",
                sector.writes
            );
        }
    }

    /// Returns the sectors whose last write is acknowledged and beyond doubt, with its version.
    pub fn settled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.sectors.iter().enumerate().filter_map(|(number, sector)| {
            let last = sector.writes.last()?;
            let others = &sector.writes[..sector.writes.len() - 1];
            let alone = others.iter().all(|write| write.is_before(last));
            let settled = last.certain && alone && sector.crashed.is_none();
            settled.then_some((number, last.version))
        })
    }

    /// Notes that hemi was killed: each unanswered write either happened or did not, once and for
    /// all.
    pub fn killed(&mut self, now: Instant) {
        self.invoked.clear();
        for sector in &mut self.sectors {
            sector.crash(now);
        }
    }

    /// Notes that a leg lost its cache, and possibly nobody else had the data. This is like a power
    /// cut, except that hemi lives on.
    pub fn cache_lost(&mut self, now: Instant) {
        for sector in &mut self.sectors {
            sector.lose_unflushed(now);
        }
    }

    /// Notes that power was cut: writes that no flush covered may be gone, the others may not.
    pub fn power_cut(&mut self, now: Instant) {
        self.invoked.clear();
        for sector in &mut self.sectors {
            sector.lose_unflushed(now);
            sector.crash(now);
        }
    }
}

impl Sector {
    /// Returns true if a read that began at `invoked` may return the value of this write.
    fn fits(&self, written: &Written, invoked: Instant) -> bool {
        let overwritten = self.writes.iter().any(|other| {
            other.certain
                && other.answered.is_some_and(|answered| answered < invoked)
                && written.is_before(other)
        });
        let behind = self.observed.is_some_and(|(seen, at)| {
            let mut same = self.writes.iter().filter(|other| other.version == seen);
            at < invoked && seen != written.version && same.all(|other| written.is_before(other))
        });
        !overwritten && !behind && !written.excluded
    }

    /// Notes that a flush, begun at `invoked`, has succeeded.
    fn flush(&mut self, invoked: Instant) {
        for written in &mut self.writes[self.durable..] {
            let covered = written.answered.is_some_and(|answered| answered <= invoked);
            written.durable |= written.certain && covered && !written.excluded;
        }
        self.durable += self.writes[self.durable..].iter().take_while(|w| w.durable).count();
        if self.excludes && self.crashed.is_none() {
            // A write that another has durably replaced cannot come back.
            self.writes.retain(|w| !w.excluded);
            (self.durable, self.excludes) = (0, false);
        }
    }

    fn check_read(&mut self, number: u64, value: u64, invoked: Instant, now: Instant) {
        let allowed = self.writes.iter().any(|w| w.version == value && self.fits(w, invoked));
        assert!(
            allowed,
            "sector {number}: read {value} (from {} to {}), observed {:?}, writes {:#?}",
            invoked.0, now.0, self.observed, self.writes
        );
        self.observed = Some((value, now));
        // A read from before tells nothing of the crash's outcome.
        let Some(crashed) = self.crashed.filter(|&crashed| crashed < invoked) else { return };
        let from_before =
            |w: &Written| w.answered.is_some_and(|answered| answered <= crashed) && !w.excluded;
        if self.writes.iter().any(|w| w.version == value && from_before(w)) {
            // The read has shown which of the possible states is the one.
            self.crashed = None;
            self.excludes = true;
            for written in &mut self.writes {
                if from_before(written) {
                    written.certain = written.version == value;
                    written.excluded = written.version != value;
                }
            }
        }
    }

    /// Allows any write that no durable one has replaced to be the present state.
    fn lose_unflushed(&mut self, now: Instant) {
        let kept = self.writes.clone();
        let replaced = |written: &Written| kept.iter().any(|o| o.durable && written.is_before(o));
        self.writes.retain(|written| !replaced(written));
        (self.durable, self.excludes) = (0, false);
        self.observed = None;
        for written in &mut self.writes {
            // None is certain to be the last any more.
            written.certain = false;
            written.excluded = false;
        }
        self.crashed = Some(now);
    }

    fn crash(&mut self, now: Instant) {
        for written in &mut self.writes {
            written.answered.get_or_insert(now);
        }
        self.crashed = Some(now);
    }
}
