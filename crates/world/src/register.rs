//! P1, P2 and P3: per sector, reads and acknowledged writes behave as one register. A kill loses no
//! acknowledged write. A power cut loses none that a flush or FUA covered, and no sector ever holds
//! a value it was never given.
//!
//! Each sector keeps the writes that may still matter, in order of submission. Time counts what
//! clients sent and were told ([`Register::tick`]), so "before" means before for every client. A
//! flush moves one horizon instead of touching every sector: a write is durable if it was certain
//! and answered by the time a flush began that succeeded.

use hemi_engine::io::Operation;
use hemi_units::Extent;

use crate::Violation;

/// The answer time of a write that is unanswered.
const NEVER: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Written {
    version: u64,
    id: u32,
    sent: u32,
    /// The time at which it was answered, or cut off by a crash.
    answered: u32,
    /// It had certainly taken effect by then: it was acknowledged, not failed or cut off.
    certain: bool,
    /// It is durable for certain, whatever flushes cover.
    durable: bool,
    /// The crash whose outcome was another write, as a read has shown. From then on no read returns
    /// this one, unless a power cut brings it back. Zero if there is none.
    excluded: u32,
}

impl Written {
    /// Returns true if this had certainly been replaced by the time `other` was sent.
    fn is_before(&self, other: &Written) -> bool {
        self.answered < other.sent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Crash {
    /// There was no crash, or a read has since shown the state it left.
    #[default]
    Settled,
    /// hemi died, or caches were lost while it lived.
    Kill,
    /// Power was cut: anything seen afterwards is durable.
    Power,
}

#[derive(Clone, Default)]
struct Sector {
    writes: Vec<Written>,
    /// The write whose value a read has returned, and the time of that answer: later reads may not
    /// go back behind it. If several wrote that value, the oldest of them. Time zero if there was
    /// no read.
    observed: (u32, u32),
    crash: Crash,
    /// The time of the last crash.
    crashed: u32,
    /// The time at which the volume last reported this sector lost, or zero.
    lost: u32,
}

/// A request as the register needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The request's unique number.
    pub id: u32,
    /// The time at which it was sent.
    pub sent: u32,
    /// The operation.
    pub operation: Operation,
    /// The sectors concerned.
    pub extent: Extent,
    /// The data must be durable before the answer.
    pub fua: bool,
}

/// The volume as its clients know it.
#[derive(Clone, Default)]
pub struct Register {
    sectors: Vec<Sector>,
    clock: u32,
    /// Writes answered by this time are durable.
    horizon: u32,
    /// The extent of each request that wrote a version, by id.
    given: Vec<Extent>,
    /// The number of sectors checked in reads.
    pub checked: u64,
}

impl Register {
    /// Resets to a volume of `count` sectors of zeros. Keeps its memory.
    pub fn reset(&mut self, count: usize) {
        self.sectors.resize_with(count, Sector::default);
        let (durable, certain) = (true, true);
        let first =
            Written { version: 0, id: 0, sent: 0, answered: 0, certain, durable, excluded: 0 };
        for sector in &mut self.sectors {
            sector.writes.clear();
            sector.writes.push(first);
            (sector.observed, sector.crash, sector.crashed) = ((0, 0), Crash::Settled, 0);
            sector.lost = 0;
        }
        self.given.clear();
        (self.clock, self.horizon, self.checked) = (1, 0, 0);
    }

    /// Advances the clock and returns the new time.
    pub fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock
    }

    /// Notes that a request that writes is sent. `oldest_read` is the time at which the oldest
    /// unanswered read was sent. Forgets writes that no read can return any more and no crash can
    /// bring back.
    pub fn sent(&mut self, asked: &Asked, version: u64, oldest_read: u32) {
        let new = Written {
            version,
            id: asked.id,
            sent: asked.sent,
            answered: NEVER,
            certain: false,
            durable: false,
            excluded: 0,
        };
        self.given.resize(asked.id as usize + 1, Extent::default());
        if version > 0 {
            self.given[asked.id as usize] = asked.extent;
        }
        let horizon = self.horizon;
        for sector in &mut self.sectors[asked.extent.start as usize..asked.extent.end as usize] {
            sector.forget(horizon, oldest_read);
            sector.writes.push(new);
        }
    }

    /// Notes the answer to a request, with the data of a read.
    ///
    /// # Errors
    /// Fails if a read succeeded without data, or describes the first sector whose value it could
    /// not return.
    pub fn answered(
        &mut self,
        asked: &Asked,
        succeeded: bool,
        data: Option<&[u64]>,
    ) -> Result<(), Violation> {
        match (asked.operation, data) {
            (Operation::Read, Some(data)) if succeeded => return self.read_answered(asked, data),
            (Operation::Read, None) if succeeded => {
                let text = format!("read #{} succeeded without data", asked.id);
                return Err(Violation { promise: "P2", text, sector: None });
            }
            (Operation::Flush, _) if succeeded => self.flushed(asked),
            (Operation::Read | Operation::Flush, _) => {}
            _ => self.write_answered(asked, succeeded),
        }
        Ok(())
    }

    fn write_answered(&mut self, asked: &Asked, succeeded: bool) {
        let now = self.tick();
        // A discard may do nothing.
        let certain = succeeded && asked.operation != Operation::Discard;
        for sector in &mut self.sectors[asked.extent.start as usize..asked.extent.end as usize] {
            if let Some(written) = sector.writes.iter_mut().rev().find(|w| w.id == asked.id) {
                written.answered = now;
                written.certain = certain;
                written.durable |= certain && asked.fua;
            }
        }
    }

    fn flushed(&mut self, asked: &Asked) {
        self.tick();
        self.horizon = self.horizon.max(asked.sent);
    }

    /// Returns true if a write to the sector was still unanswered at `moment`.
    pub fn is_written_since(&self, sector: usize, moment: u32) -> bool {
        self.sectors[sector].writes.iter().any(|written| written.answered > moment)
    }

    fn read_answered(&mut self, asked: &Asked, data: &[u64]) -> Result<(), Violation> {
        let now = self.tick();
        self.checked += data.len() as u64;
        for (sector, &value) in (asked.extent.start..).zip(data) {
            let state = &mut self.sectors[sector as usize];
            if !state.take_read(value, asked.sent, now) {
                return Err(state.describe(sector, value, asked.sent));
            }
        }
        Ok(())
    }

    /// Notes that hemi was killed: each unanswered write either happened or did not, once and for
    /// all.
    pub fn killed(&mut self) {
        let now = self.tick();
        self.sectors.iter_mut().for_each(|sector| sector.crash(Crash::Kill, now));
    }

    /// Notes that power was cut: writes that no flush covered may be gone, the others may not.
    pub fn power_cut(&mut self) {
        let (now, horizon) = (self.tick(), self.horizon);
        for sector in &mut self.sectors {
            sector.lose_unflushed(horizon, NEVER);
            sector.crash(Crash::Power, now);
        }
    }

    /// Notes that hemi was killed while a leg's cache may have been lost, which recovery cannot
    /// know. Writes that no flush covered may be gone. The remaining caches stay, so what is seen
    /// afterwards need not be durable.
    pub fn killed_with_cache_lost(&mut self) {
        let (now, horizon) = (self.tick(), self.horizon);
        for sector in &mut self.sectors {
            sector.lose_unflushed(horizon, NEVER);
            sector.crash(Crash::Kill, now);
        }
    }

    /// Notes that a leg lost its cache while hemi lives on, and possibly nobody else had the data.
    /// `at_risk` tells of each sector whether that is so. `oldest_read` is as for
    /// [`Register::sent`].
    pub fn cache_lost(&mut self, at_risk: &[bool], oldest_read: u32) {
        let (now, horizon) = (self.tick(), self.horizon);
        for (sector, _) in self.sectors.iter_mut().zip(at_risk).filter(|(_, risk)| **risk) {
            sector.lose_unflushed(horizon, oldest_read);
            (sector.crash, sector.crashed) = (Crash::Kill, now);
        }
    }

    /// Notes that the operator let one leg decide, whatever it lacks: from now on each sector is
    /// what that leg's disk holds, durably. `known_lost` are the extents that the promotion
    /// reported.
    ///
    /// # Errors
    /// Fails if a sector that is not reported lost holds a value that it was never given.
    pub fn promoted(&mut self, contents: &[u64], known_lost: &[Extent]) -> Result<(), Violation> {
        let now = self.tick();
        for (sector, &found) in contents.iter().enumerate() {
            let at = sector as u64;
            let is_lost = known_lost.iter().any(|lost| lost.start <= at && at < lost.end);
            if !is_lost && !self.was_given(sector, found) {
                let text = format!("sector {sector} of the promoted leg holds {found}");
                return Err(Violation { promise: "P3", text, sector: Some(at) });
            }
            let state = &mut self.sectors[sector];
            state.writes.clear();
            state.writes.push(Written {
                version: if is_lost { LOST } else { found },
                id: 0,
                sent: now,
                answered: now,
                certain: true,
                durable: true,
                excluded: 0,
            });
            (state.observed, state.crash, state.crashed) = ((0, 0), Crash::Settled, now);
        }
        Ok(())
    }

    /// Returns true if a sector was ever given this value.
    pub fn was_given(&self, sector: usize, value: u64) -> bool {
        let at = sector as u64;
        value == 0 || self.given.get(value as usize).is_some_and(|e| e.start <= at && at < e.end)
    }

    /// Returns the version that a sector certainly has now, or `None` if that is not certain.
    pub fn certain_version(&self, sector: usize) -> Option<u64> {
        let state = &self.sectors[sector];
        let (last, others) = state.writes.split_last()?;
        let settled = last.certain && last.excluded == 0 && state.crash == Crash::Settled;
        // Of two that were in flight together either may have been the last to take effect.
        let is_last = others.iter().all(|other| other.is_before(last));
        (settled && last.answered != NEVER && is_last).then_some(last.version)
    }

    /// Returns true if this may be the newest version certainly written to a sector. Of writes in
    /// flight together each may be the newest. A write still in flight may be the newest itself,
    /// and does not rule out the others.
    pub fn may_be_newest(&self, sector: usize, version: u64) -> bool {
        let state = &self.sectors[sector];
        let settled = state.crash == Crash::Settled;
        let done = |w: &&Written| w.answered != NEVER && w.certain && w.excluded == 0;
        let candidates = || state.writes.iter().filter(done);
        let is_newest = |one: &Written| !candidates().any(|other| one.is_before(other));
        // A part of a request in flight may be done, and its copy given up, before all of it is.
        let is_under_way = |one: &Written| one.answered == NEVER && one.version == version;
        settled
            && (candidates().any(|one| one.version == version && is_newest(one))
                || state.writes.iter().any(is_under_way))
    }

    /// Returns true if something newer than this has certainly been written to a sector and
    /// answered, whatever else is in flight there.
    pub fn is_outdated(&self, sector: usize, version: u64) -> bool {
        let state = &self.sectors[sector];
        let settled = state.crash == Crash::Settled;
        let binds = |w: &&Written| w.certain && w.excluded == 0 && w.answered > state.lost;
        let done = || state.writes.iter().filter(binds).filter(|w| w.answered != NEVER);
        let is_new =
            |one: &Written| one.version == version && !done().any(|other| one.is_before(other));
        settled && done().next().is_some() && !state.writes.iter().any(is_new)
    }

    /// Returns the present time.
    pub fn now(&self) -> u32 {
        self.clock
    }

    /// Returns the horizon: writes answered by this time are durable.
    pub fn horizon(&self) -> u32 {
        self.horizon
    }

    /// Notes that the volume reports an extent as lost, as after the loss of a leg that is gone for
    /// good.
    pub fn lost(&mut self, extent: Extent) {
        let now = self.tick();
        let sectors = &mut self.sectors[extent.start as usize..extent.end as usize];
        sectors.iter_mut().for_each(|sector| sector.lost = now);
    }

    /// Returns true if a sector that holds `value` after a power cut keeps everything that flushes
    /// have covered. `None` means that it cannot be read.
    pub fn keeps(&self, sector: usize, value: Option<u64>) -> bool {
        let state = &self.sectors[sector];
        let binds = |w: &&Written| w.is_durable(self.horizon) && w.answered > state.lost;
        let floors = || state.writes.iter().filter(binds);
        match value {
            // A sector reported lost may hold anything.
            Some(_) if floors().all(|floor| floor.version == LOST) => true,
            Some(value) => state
                .writes
                .iter()
                .any(|w| w.version == value && !floors().any(|floor| w.is_before(floor))),
            // Nobody misses a sector that was never written.
            None => !floors().any(|floor| floor.id > 0),
        }
    }

    /// Describes what is known of a sector, for the report of a violation.
    pub fn tell(&self, sector: usize) -> String {
        let horizon = self.horizon;
        format!("flushed up to {horizon}, sector {sector}: {:?}", self.sectors[sector].writes)
    }

    /// Returns the version that a sector certainly has, the request that wrote it and the time of
    /// its answer, if no flush has covered it.
    pub fn certain_unflushed(&self, sector: usize) -> Option<(u64, u32, u32)> {
        let version = self.certain_version(sector)?;
        let last = self.sectors[sector].writes.last()?;
        let is_unflushed = version > 0 && !last.is_durable(self.horizon);
        is_unflushed.then_some((version, last.id, last.answered))
    }

    /// Returns true if a request's write is still the newest sent to a sector, and is covered by a
    /// flush sent at `sent`.
    pub fn is_covered_newest(&self, sector: usize, id: u32, sent: u32) -> bool {
        let last = self.sectors[sector].writes.last();
        last.is_some_and(|last| last.id == id && last.answered < sent)
    }

    /// Returns true if a read sent at `sent` and answered now could return this value. Changes
    /// nothing.
    pub fn allows(&self, sector: usize, value: u64, sent: u32) -> bool {
        self.sectors[sector].origin(value, sent).is_some()
    }

    /// Describes why a value is not allowed.
    pub fn describe(&self, sector: usize, value: u64, sent: u32) -> Violation {
        self.sectors[sector].describe(sector as u64, value, sent)
    }
}

/// The version of a sector whose data is lost, which no read may return.
pub const LOST: u64 = u64::MAX - 1;

impl Sector {
    /// Forgets writes that a durable one has replaced for every read to come.
    fn forget(&mut self, horizon: u32, oldest_read: u32) {
        if self.writes.len() < 2 {
            return;
        }
        let is_floor = |w: &Written| {
            w.is_durable(horizon) && w.certain && w.excluded == 0 && w.answered < oldest_read
        };
        let Some(floor) = self.writes.iter().rev().find(|w| is_floor(w)) else { return };
        let floor = *floor;
        self.writes.retain(|w| !w.is_before(&floor));
    }

    /// Returns true if a read sent at `sent` may return the value of this write.
    fn fits(&self, written: &Written, sent: u32) -> bool {
        if written.excluded > 0 && written.excluded <= sent {
            return false;
        }
        let overwritten = self
            .writes
            .iter()
            .any(|o| (o.certain || o.durable) && o.answered < sent && written.is_before(o));
        if overwritten {
            return false;
        }
        let (seen, at) = self.observed;
        // A write that is no longer known had been replaced by one that still is.
        let mut same = self.writes.iter().filter(|other| other.id == seen);
        let behind = at > 0 && at < sent && same.any(|other| written.is_before(other));
        !behind
    }

    /// Returns the oldest write of this value that a read sent at `sent` may return.
    fn origin(&self, value: u64, sent: u32) -> Option<u32> {
        self.writes.iter().find(|w| w.version == value && self.fits(w, sent)).map(|w| w.id)
    }

    fn take_read(&mut self, value: u64, sent: u32, now: u32) -> bool {
        if let [only] = self.writes[..]
            && only.version == value
            && only.excluded == 0
            && only.certain
        {
            self.observed = (only.id, now);
            self.crash = Crash::Settled;
            return true;
        }
        let Some(origin) = self.origin(value, sent) else { return false };
        // A read sent before a cache was lost may return the earlier value. It binds nobody: data
        // lost then may be gone however late the answer comes.
        if self.crashed <= sent {
            self.observed = (origin, now);
            if self.crash != Crash::Settled {
                self.settle(value);
            }
        }
        true
    }

    /// Settles the outcome of the last crash, now that a read has shown it.
    fn settle(&mut self, value: u64) {
        let crashed = self.crashed;
        let from_before = |w: &Written| w.answered <= crashed && w.excluded == 0;
        if !self.writes.iter().any(|w| w.version == value && from_before(w)) {
            return;
        }
        // Zeros may have been written after the crash as well: then nothing is known.
        if self.writes.iter().any(|w| w.version == value && w.answered > crashed) {
            return;
        }
        let power = self.crash == Crash::Power;
        self.crash = Crash::Settled;
        // Any of several that wrote this value may be the one, and a discard may have done nothing.
        // The value is durable for certain once a flush covers the last of them.
        let same = |w: &&Written| w.version == value && from_before(w);
        let last = self.writes.iter().filter(same).max_by_key(|w| w.answered).map(|w| w.id);
        for written in self.writes.iter_mut().filter(|w| from_before(w)) {
            if written.version != value {
                (written.certain, written.excluded) = (false, crashed);
            } else if Some(written.id) == last {
                written.certain = true;
                written.durable |= power;
            }
        }
    }

    /// Allows any write that no durable one has replaced to be the present state.
    fn lose_unflushed(&mut self, horizon: u32, oldest_read: u32) {
        for at in 0..self.writes.len() {
            self.writes[at].durable |= self.writes[at].is_durable(horizon);
        }
        let is_gone = |sector: &Sector, written: &Written| {
            let flushed_over = written.excluded > 0 && written.excluded <= horizon.min(oldest_read);
            let mut durable =
                sector.writes.iter().filter(|o| o.durable && o.answered < oldest_read);
            flushed_over || durable.any(|o| written.is_before(o))
        };
        let mut at = 0;
        while at < self.writes.len() {
            let written = self.writes[at];
            if is_gone(self, &written) {
                self.writes.remove(at);
            } else {
                at += 1;
            }
        }
        self.observed = (0, 0);
        for written in &mut self.writes {
            // None is certain to be the last any more.
            written.certain = false;
            written.excluded = 0;
        }
    }

    fn crash(&mut self, crash: Crash, now: u32) {
        for written in &mut self.writes {
            written.answered = written.answered.min(now);
        }
        (self.crash, self.crashed) = (crash, now);
    }

    fn describe(&self, sector: u64, value: u64, sent: u32) -> Violation {
        let certain: Vec<&Written> = self.writes.iter().filter(|w| w.certain).collect();
        let lost = certain.last().is_some_and(|w| w.version != value && w.answered < sent);
        let promise = if self.crashed > 0 && lost { "P1/P3" } else { "P2" };
        let text = format!(
            "sector {sector} read as version {value} (sent at {sent}, last crash {} {:?}, \
             observed {:?}); it may be one of {:?}",
            self.crashed, self.crash, self.observed, self.writes
        );
        Violation { promise, text, sector: Some(sector) }
    }
}

impl Written {
    fn is_durable(&self, horizon: u32) -> bool {
        self.durable || (self.certain && self.excluded == 0 && self.answered <= horizon)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Register};
    use hemi_engine::io::Operation;
    use hemi_units::Extent;

    struct Client(Register, u32);

    impl Client {
        fn new() -> Client {
            let mut register = Register::default();
            register.reset(1);
            Client(register, 0)
        }

        fn ask(&mut self, operation: Operation) -> Asked {
            self.1 += 1;
            let asked = Asked {
                id: self.1,
                sent: self.0.tick(),
                operation,
                extent: Extent::new(0, 1),
                fua: false,
            };
            if operation == Operation::Write {
                self.0.sent(&asked, u64::from(self.1), u32::MAX);
            }
            asked
        }

        fn write(&mut self) -> u64 {
            let asked = self.ask(Operation::Write);
            self.0.write_answered(&asked, true);
            u64::from(asked.id)
        }

        fn flush(&mut self) {
            let asked = self.ask(Operation::Flush);
            self.0.flushed(&asked);
        }

        fn reads(&mut self, value: u64) -> bool {
            let asked = self.ask(Operation::Read);
            self.0.read_answered(&asked, &[value]).is_ok()
        }
    }

    #[test]
    fn an_acknowledged_write_is_what_is_read() {
        let mut client = Client::new();
        let first = client.write();
        let second = client.write();
        assert!(!client.reads(first));
        assert!(client.reads(second));
        assert!(!client.reads(99));
    }

    #[test]
    fn a_kill_loses_nothing_acknowledged() {
        let mut client = Client::new();
        let first = client.write();
        client.0.killed();
        assert!(!client.reads(0));
        assert!(client.reads(first));
    }

    #[test]
    fn a_power_cut_loses_what_was_not_flushed_and_says_so_once() {
        let mut client = Client::new();
        let first = client.write();
        client.flush();
        let second = client.write();
        client.0.power_cut();
        assert!(!client.reads(0), "flushed data is never lost");
        assert!(client.reads(first));
        assert!(!client.reads(second), "the state is known now");
    }

    #[test]
    fn an_unanswered_write_may_have_happened_but_not_come_and_go() {
        let mut client = Client::new();
        let first = client.write();
        let cut = client.ask(Operation::Write);
        client.0.killed();
        assert!(client.reads(u64::from(cut.id)));
        assert!(!client.reads(first));
    }

    #[test]
    fn a_read_answered_late_says_nothing_of_a_cache_lost_meanwhile() {
        let mut client = Client::new();
        let first = client.write();
        client.flush();
        let second = client.write();
        let asked = client.ask(Operation::Read);
        client.0.cache_lost(&[true], asked.sent);
        assert!(client.0.read_answered(&asked, &[second]).is_ok());
        assert!(client.reads(first), "it was lost after that read had met it");
        assert!(!client.reads(second), "the state is known now");
    }

    #[test]
    fn what_survived_a_kill_with_a_cache_lost_may_go_with_the_power() {
        let mut client = Client::new();
        let first = client.write();
        client.flush();
        let second = client.write();
        client.0.killed_with_cache_lost();
        assert!(client.reads(second), "it was not lost");
        assert!(!client.reads(first));
        client.0.power_cut();
        assert!(client.reads(first), "nor was it ever flushed");
    }

    #[test]
    fn zeros_written_after_a_crash_say_nothing_of_zeros_before_it() {
        let mut client = Client::new();
        let first = client.write();
        client.0.cache_lost(&[true], u32::MAX);
        let asked = client.ask(Operation::Read);
        let zeros = client.ask(Operation::Discard);
        client.0.sent(&zeros, 0, asked.sent);
        assert!(client.reads(0), "as it was at first, or by the discard");
        assert!(client.0.read_answered(&asked, &[first]).is_ok(), "it was before the discard");
    }

    #[test]
    fn zeros_are_no_more_durable_than_the_last_of_those_that_may_have_written_them() {
        let mut client = Client::new();
        let first = client.write();
        client.flush();
        let zeros = client.ask(Operation::WriteZeroes { may_unmap: true });
        client.0.sent(&zeros, 0, u32::MAX);
        let discard = client.ask(Operation::Discard);
        client.0.sent(&discard, 0, u32::MAX);
        client.0.write_answered(&discard, true);
        client.flush();
        client.0.write_answered(&zeros, true);
        client.0.killed();
        assert!(client.reads(0));
        client.0.power_cut();
        assert!(client.reads(first), "the discard did nothing, and no flush covered the zeros");
    }

    #[test]
    fn what_a_flush_covered_is_kept_and_what_it_did_not_may_go() {
        let mut client = Client::new();
        let first = client.write();
        assert!(client.0.keeps(0, Some(0)) && client.0.keeps(0, None));
        client.flush();
        let second = client.write();
        assert!(!client.0.keeps(0, Some(0)) && !client.0.keeps(0, None));
        assert!(client.0.keeps(0, Some(first)) && client.0.keeps(0, Some(second)));
        client.flush();
        assert!(!client.0.keeps(0, Some(first)));
    }

    #[test]
    fn a_write_is_lost_untold_only_where_it_is_still_the_newest() {
        let mut client = Client::new();
        let first = client.write();
        let sent = client.0.tick();
        let found = client.0.certain_unflushed(0);
        assert_eq!(found.map(|(version, id, _)| (version, id)), Some((first, first as u32)));
        assert!(found.is_some_and(|(.., answered)| answered < sent));
        assert!(client.0.is_covered_newest(0, first as u32, sent));
        client.flush();
        assert_eq!(client.0.certain_unflushed(0), None);
        let second = client.write();
        assert!(!client.0.is_covered_newest(0, first as u32, u32::MAX));
        assert!(!client.0.is_covered_newest(0, second as u32, sent), "it was answered later");
    }

    #[test]
    fn what_survived_a_power_cut_survives_the_next() {
        let mut client = Client::new();
        let first = client.write();
        client.0.power_cut();
        assert!(client.reads(first));
        client.0.power_cut();
        assert!(!client.reads(0));
    }
}
