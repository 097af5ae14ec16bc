//! Ends and starts of hemi, and P7: a start that cannot be decided is refused, and one that can be
//! is not.

use hemi_engine::command::Command;
use hemi_engine::format::superblock::ANCESTRY_MAX;
use hemi_engine::format::{Id, Layout, LegDescription, Membership, Superblock};
use hemi_engine::io::{Operation, OutReason};
use hemi_engine::recovery::{self, LegImage, Problem, Promotion, Refusal};
use hemi_engine::settings::Settings;
use hemi_units::{Extent, MILLISECOND, SECOND};
use hemi_world::disk::{Cache, Disk};

use crate::ledgers::is_ledger;
use crate::operators::Rot;
use crate::plan::{Ending, Start};
use crate::world::{VERIFIER, World};

/// The number of sectors in a verifying read.
pub(crate) const VERIFY_SECTORS: u64 = 512;
/// The longest wait for anything that freezes may hold up, in nanoseconds.
pub(crate) const PATIENCE: u64 = 300 * SECOND;

/// Describes a refusal in words, with the names of the given legs.
pub(crate) fn describe(given: impl Iterator<Item = u8>, refusal: &Refusal) -> String {
    let names: Vec<String> = given.map(|leg| format!("leg {leg}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    refusal.describe(&names)
}

impl World {
    /// Ends hemi and starts it again.
    pub(crate) fn restart(
        &mut self,
        ending: Ending,
        start: Start,
        settings: Settings,
        reread: bool,
    ) {
        self.tell(|| format!("restart: {ending:?}, then {start:?}"));
        self.clients.paused = true;
        self.ambush = None;
        let mut loss = None;
        match ending {
            Ending::Close => self.close(),
            Ending::Kill => {
                self.kill_inside();
                loss = self.kept.draw_loss();
                self.crash(false, loss.as_ref().is_some_and(|loss| loss.is_for_good));
            }
            Ending::PowerCut => self.crash(true, false),
        }
        if self.violation.is_some() {
            return;
        }
        self.end();
        self.settings = settings;
        self.suffer_put_back();
        if let Some(loss) = loss {
            self.start_without_ledger(loss);
        }
        // By what is left: a ledger that is lost for good does not make up for a page.
        self.judge_lies();
        self.start(start);
        self.end_ledger_loss();
        if self.violation.is_some() {
            return;
        }
        self.verify();
        if reread {
            self.verify_over_other_routes();
        }
        self.clients.paused = false;
        self.let_clients_go_on();
    }

    /// Kills hemi: I/O in flight lands in part. With the power gone, caches do too. Without its
    /// ledger hemi may lose what a power cut may.
    pub(crate) fn crash(&mut self, power: bool, ledger_lost: bool) {
        self.counts.crashes += 1;
        // After a crash an extent that was being written is read from one leg alone.
        self.disks.iter_mut().for_each(Disk::heal);
        for slot in 0..self.ios.len() {
            if self.ios[slot].live {
                self.land(slot as u32, false);
            }
        }
        // If a leg had just lost its cache and no flush was answered since, a kill may lose what a
        // power cut may: recovery cannot know of the loss.
        let lost = self.cache_lost.take().is_some() || ledger_lost;
        if power {
            // The ledger is gone with the machine's memory.
            self.kept.lose_power();
            for disk in &mut self.disks {
                disk.lose_cache(Cache::Any, &mut self.random);
            }
        }
        if power {
            self.register.power_cut();
        } else if lost {
            self.register.killed_with_cache_lost();
        } else {
            self.register.killed();
        }
    }

    /// Removes everything of the previous hemi.
    pub(crate) fn end(&mut self) {
        self.kept.forget_retired();
        self.halted = None;
        self.drop_engine();
        self.forget_ios();
        self.forget_requests();
        self.events.clear();
        self.clients.disconnect();
        if let Some(change) = self.changing.take() {
            self.legs[usize::from(change.leg)].is_changing = true;
        }
        self.calm_legs();
        self.unsure = false;
        self.cache_lost = None;
        self.stall.close();
        self.stall.started = self.now;
    }

    /// Closes the volume as the operator does.
    pub(crate) fn close(&mut self) {
        self.wait_until_answered(PATIENCE);
        let drain_until = self.now + 10 * SECOND;
        self.closed = false;
        self.command(Command::Close { drain_until });
        let end = self.now + PATIENCE;
        while !self.closed && self.violation.is_none() {
            if !self.step(end) {
                self.broken("P6", "the volume does not close".into());
            }
        }
        let in_use = self.engine().buffers().in_use();
        let in_flight = self.ios.iter().any(|io| io.live);
        let owes = self.refresh_status().legs.iter().any(|leg| leg.owed_bytes > 0);
        if self.violation.is_none() && in_use > 0 && !in_flight && !owes {
            self.broken("engine", format!("{in_use} buffers were never given back"));
        }
        self.end_close();
    }

    fn start(&mut self, start: Start) {
        match start {
            Start::All => self.start_with_all(None),
            Start::Without(leg) => self.start_with_all(Some(leg)),
            Start::Promote { leg, together, cut } => self.start_promoted(leg, together, cut),
            Start::Fork(leg) => self.start_after_fork(leg),
            Start::Rot(leg) => self.start_with_rot(leg),
        }
    }

    /// Opens with every member among the legs, offering all there are. Tries first without one, if
    /// given.
    pub(crate) fn start_with_all(&mut self, without: Option<u8>) {
        let offered: Vec<u8> = (0..self.legs.len() as u8).collect();
        let Some(given) = self.sort_out(offered) else { return };
        for leg in 0..self.legs.len() {
            let (is_given, state) = (given.contains(&(leg as u8)), &mut self.legs[leg]);
            if is_given && state.is_empty && !state.is_changing {
                self.broken("P7", format!("leg {leg} is no member, yet it was let in"));
                return;
            }
            state.is_empty = !is_given;
            state.is_changing = false;
        }
        if self.random.one_in(8) && self.rots.is_empty() {
            self.try_absurd_starts(&given);
        }
        let without = without.filter(|leg| given.contains(leg) && given.len() > 1);
        if without.is_some_and(|leg| self.try_without(&given, leg)) {
            return;
        }
        self.open_or_break(&given);
    }

    /// Removes disks that are no legs from `given`, one after the other. Returns `None` if a
    /// refusal is wrong.
    fn sort_out(&mut self, mut given: Vec<u8>) -> Option<Vec<u8>> {
        loop {
            let Err(refusal) = self.assess(&given) else { return Some(given) };
            self.note_refusal(&refusal);
            if self.restore_rot(&given, &refusal) || self.give_up_forgotten(&mut given, &refusal) {
                continue;
            }
            let strangers: Vec<usize> = refusal
                .problems
                .iter()
                .filter_map(|problem| self.stranger(&given, problem))
                .collect();
            if strangers.len() != refusal.problems.len() || strangers.len() == given.len() {
                self.wrong_refusal(&given, &refusal);
                return None;
            }
            let mut image = 0;
            given.retain(|_| {
                image += 1;
                !strangers.contains(&(image - 1))
            });
        }
    }

    /// Makes a new leg of one that looks like a fork but is none, as the operator has to. Such a
    /// leg has been away for longer than superblocks keep past generations, or a promotion gave it
    /// up and the promoted leg has been absent since another was promoted. Returns true if there
    /// was one.
    fn give_up_forgotten(&mut self, given: &mut Vec<u8>, refusal: &Refusal) -> bool {
        if !refusal.problems.iter().any(|problem| matches!(problem, Problem::Fork { .. })) {
            return false;
        }
        let was_there = |leg: &u8| self.opened >> leg & 1 == 1;
        let is_forgotten = |leg: &u8| {
            let others: Vec<u8> =
                given.iter().copied().filter(|other| other != leg && was_there(other)).collect();
            let Some(newest) = self.newest_among(&others) else { return false };
            let past = newest.ancestry.as_slice();
            let removed = Membership::Out(OutReason::Removed);
            let is_removed = newest.legs[usize::from(*leg)].state == removed;
            recovery::newest_of(&self.disks[usize::from(*leg)].metadata).is_ok_and(|own| {
                match newest.ancestry.find(own.generation) {
                    Some(branch) => is_removed && !was_there(leg) && branch.sequence < own.sequence,
                    None => past.len() == ANCESTRY_MAX && own.sequence < past[0].sequence,
                }
            })
        };
        let away = given.iter().position(is_forgotten);
        let Some(leg) = away.map(|at| given.remove(at)) else { return false };
        self.tell(|| format!("leg {leg} looks like a fork of what the others remember"));
        self.put_in_new_disk(leg);
        true
    }

    pub(crate) fn note_refusal(&mut self, refusal: &Refusal) {
        self.counts.refusals += 1;
        self.marks.merge(&refusal.marks());
    }

    /// Tries starts that no one should: with the same leg twice, a leg of another volume, a
    /// truncated leg, and nothing at all. Each has to be refused with that reason.
    fn try_absurd_starts(&mut self, given: &[u8]) {
        let leg = given[self.random.below(given.len() as u64) as usize];
        let own = LegImage { bytes: &self.disks[usize::from(leg)].metadata };
        let Ok(mut superblock) = recovery::newest_of(own.bytes) else { return };
        superblock.volume_id = [0xF0; 16];
        let mut foreign = own.bytes[..recovery::HEAD_BYTES as usize].to_vec();
        let mut block = [0; 4096];
        for slot in 0..2u8 {
            superblock.encode(&mut block, slot);
            let start = Layout::superblock_address(slot) as usize;
            foreign[start..start + 4096].copy_from_slice(&block);
        }
        let foreign = LegImage { bytes: &foreign };
        let cut = LegImage { bytes: &own.bytes[..recovery::HEAD_BYTES as usize] };
        type Expected = fn(&Problem) -> bool;
        let attempts: [(&[LegImage], Expected); 4] = [
            (&[own, own], |p| matches!(p, Problem::SameLeg { .. })),
            (&[own, foreign], |p| matches!(p, Problem::ForeignVolume { .. })),
            (&[cut], |p| matches!(p, Problem::Truncated { .. } | Problem::Missing { .. })),
            (&[], |p| matches!(p, Problem::NoLegs)),
        ];
        let refusals = attempts.map(|(images, expected)| {
            let refusal = self.assess_images(images).err()?;
            refusal.problems.iter().any(expected).then_some(refusal)
        });
        for (number, refusal) in refusals.into_iter().enumerate() {
            match refusal {
                Some(refusal) => self.note_refusal(&refusal),
                None => self.broken("P7", format!("absurd start {number} of leg {leg} opens")),
            }
        }
    }

    /// Returns the image a problem concerns, if that rightly is no leg.
    fn stranger(&self, given: &[u8], problem: &Problem) -> Option<usize> {
        let image = match problem {
            Problem::Stranger { image, .. } | Problem::NotALeg { image, .. } => *image,
            _ => return None,
        };
        let leg = &self.legs[usize::from(given[image])];
        // A leg that joined and never answered since has no superblock yet.
        let is_blank = matches!(problem, Problem::NotALeg { .. }) && leg.is_new;
        (leg.is_empty || leg.is_changing || is_blank).then_some(image)
    }

    fn wrong_refusal(&mut self, given: &[u8], refusal: &Refusal) {
        let text = describe(given.iter().copied(), refusal);
        self.broken("P7", format!("wrongly refused: {text}"));
    }

    fn open_or_break(&mut self, given: &[u8]) {
        if let Err(refusal) = self.open(given) {
            self.wrong_refusal(given, &refusal);
        }
    }

    /// Starts without one leg. If it is in, that has to be refused by its name. If it is out, the
    /// others decide, and serve without it until the next start. Returns true if they do.
    fn try_without(&mut self, given: &[u8], leg: u8) -> bool {
        let Ok(opening) = self.assess(given) else { return false };
        let is_in = opening.superblock.legs[usize::from(leg)].state == Membership::In;
        let others: Vec<u8> = given.iter().copied().filter(|&other| other != leg).collect();
        match self.assess(&others) {
            Ok(_) if is_in && self.know_it_is_in(leg, &others, &opening.superblock) => {
                self.broken("P7", format!("opens without leg {leg}, which is in"));
                true
            }
            // The leg was promoted, and nothing has been recorded on the others since: they open as
            // they would have before. (Going on with them makes a fork, which recovery recognises.)
            Ok(known) if is_in && known.superblock.generation != opening.superblock.generation => {
                false
            }
            // The leg was coming in, which takes effect only once all others have recorded it.
            Ok(_) => {
                self.tell(|| format!("leg {leg} is out and stays away"));
                self.open_or_break(&others);
                true
            }
            // The record that it is out may be on itself alone, because hemi ended in between.
            Err(refusal) if is_in || !self.all_know(&others, &opening.superblock) => {
                self.note_refusal(&refusal);
                let missing =
                    Problem::Missing { leg: World::index(leg), last: LegDescription::default() };
                // Legs without the latest record also miss others that have left since.
                let others_too = !self.all_know(&others, &opening.superblock);
                // If the others only know of a time when the leg was out (it was promoted since),
                // they miss the legs that were in then. They cannot know of this one.
                let was_out = self
                    .newest_among(&others)
                    .is_some_and(|known| known.legs[usize::from(leg)].state != Membership::In);
                // The ledger they relied on has been replaced by those that went on without them.
                let went_on = others_too && refusal.problems.iter().all(is_ledger);
                // Damage on a leg that is out by the latest record matters to nobody while that
                // record is given. Without it, the damage may hide something, and is named rightly.
                let is_right = |problem: &Problem| match problem {
                    Problem::Missing { leg, .. } => !others.contains(&leg.0) && others_too,
                    // A leg that is out gets the region table before the superblock: the table may
                    // name this leg, which is out by what the others know.
                    Problem::Undecided { .. } => is_in && was_out,
                    Problem::Ledger { .. } => went_on,
                    damage => !self.rots.is_empty() && self.is_rot(&others, damage),
                };
                let names_it = refusal.problems.contains(&missing) || is_in && was_out || went_on;
                if !names_it || !refusal.problems.iter().all(|p| *p == missing || is_right(p)) {
                    self.wrong_refusal(&others, &refusal);
                }
                false
            }
            Err(refusal) => {
                self.wrong_refusal(&others, &refusal);
                true
            }
        }
    }

    /// Returns true if any of the others has a superblock of the newest generation that counts
    /// `leg` as in.
    fn know_it_is_in(&self, leg: u8, others: &[u8], newest: &Superblock) -> bool {
        others.iter().any(|&other| {
            recovery::newest_of(&self.disks[usize::from(other)].metadata).is_ok_and(|own| {
                own.generation == newest.generation
                    && own.legs[usize::from(leg)].state == Membership::In
            })
        })
    }

    /// Returns the superblock among these legs' whose history includes that of all others.
    pub(crate) fn newest_among(&self, legs: &[u8]) -> Option<Superblock> {
        let known: Vec<Superblock> = legs
            .iter()
            .filter_map(|&leg| recovery::newest_of(&self.disks[usize::from(leg)].metadata).ok())
            .collect();
        let leads = |one: &&Superblock| {
            known.iter().all(|other| match one.generation == other.generation {
                true => one.sequence >= other.sequence,
                false => one.ancestry.find(other.generation).is_some(),
            })
        };
        known.iter().find(leads).cloned()
    }

    /// Returns true if the superblocks of these legs are all as new as `newest`.
    fn all_know(&self, legs: &[u8], newest: &Superblock) -> bool {
        legs.iter().all(|&leg| {
            recovery::newest_of(&self.disks[usize::from(leg)].metadata).is_ok_and(|own| {
                own.generation == newest.generation && own.sequence >= newest.sequence
            })
        })
    }

    /// Returns the promotion of a leg as recovery plans it.
    pub(crate) fn promotion_of(
        &self,
        image: LegImage,
        generation: Id,
    ) -> Result<Promotion, Refusal> {
        let regions = self.shape.page_regions;
        self.kept.machine.with_outlived(|outlived| {
            recovery::promote_short_pages(image, generation, outlived, regions)
        })
    }

    /// Makes one leg decide alone, as `hemi promote` does. Returns false if it cannot be promoted.
    fn promote(&mut self, leg: u8, cut: bool) -> bool {
        let index = usize::from(leg);
        // Its writes are made durable, and so is anything else in the disk's cache.
        self.disks[index].lose_cache(Cache::Kept, &mut self.random);
        let decided_alone = self.assess(&[leg]).is_ok();
        let mut generation = [0; 16];
        generation[..8].copy_from_slice(&(self.random.draw() | 1).to_le_bytes());
        let image = LegImage { bytes: &self.disks[index].metadata };
        let Ok(promotion) = self.promotion_of(image, generation) else { return false };
        if cut {
            let done = self.random.below(promotion.writes.len() as u64 - 1) as usize;
            for (address, block) in &promotion.writes[..done] {
                self.disks[index].write_metadata(*address, block, 0xFF);
            }
            let (address, block) = &promotion.writes[done];
            let parts = self.random.draw() as u8 & 0x7F;
            self.disks[index].write_metadata(*address, block, parts);
            self.tell(|| format!("the promotion of leg {leg} is cut after {done} blocks"));
            // With all superblock writes but the last done it may decide already.
            let last = done + 2 >= promotion.writes.len();
            let after = self.assess(&[leg]);
            if let Err(refusal) = &after {
                self.note_refusal(refusal);
            }
            if !decided_alone && !last && after.is_ok() {
                self.broken("P7", format!("leg {leg} opens after a promotion cut short"));
            }
            return self.promote(leg, false);
        }
        for (address, block) in &promotion.writes {
            self.disks[index].write_metadata(*address, block, 0xFF);
        }
        self.tell(|| {
            let lost: u64 = promotion.lacks.iter().map(|lost| lost.sectors()).sum();
            format!("leg {leg} is promoted, {lost} sectors are lost")
        });
        let contents = self.disks[index].contents();
        if let Err(violation) = self.register.promoted(contents, &promotion.lacks) {
            self.violate(violation);
        }
        true
    }

    fn start_promoted(&mut self, leg: u8, together: bool, cut: bool) {
        if self.opened >> leg & 1 == 0 {
            return self.start_after_fork(leg);
        }
        let superblock = |leg: u8| recovery::newest_of(&self.disks[usize::from(leg)].metadata).ok();
        let own = superblock(leg);
        // Legs whose present is not in this one's past have gone on without it, even if they left
        // later.
        let went_on: Vec<u8> = (0..self.legs.len() as u8)
            .filter(|&other| {
                let (Some(own), Some(other)) = (&own, superblock(other)) else { return false };
                if own.generation == other.generation {
                    // The same generation, but this leg was left out of its later part.
                    let is_out = other.legs[usize::from(leg)].state != Membership::In;
                    return is_out && other.sequence > own.sequence;
                }
                own.ancestry.find(other.generation).is_none()
            })
            .collect();
        if self.legs[usize::from(leg)].is_empty || !self.promote(leg, cut) {
            return self.start_with_all(None);
        }
        // A leg that has left is not offered again, though this leg does not know of it.
        let counts = |other: u8| {
            own.as_ref().is_some_and(|own| own.legs[usize::from(other)].state == Membership::In)
        };
        for other in 0..self.legs.len() as u8 {
            let is_empty = self.legs[usize::from(other)].is_empty;
            if is_empty && counts(other) && !went_on.contains(&other) {
                self.put_in_new_disk(other);
            }
        }
        for other in went_on {
            self.expect_fork(&[leg, other]);
            self.put_in_new_disk(other);
            self.legs[usize::from(other)].is_empty = true;
        }
        if together {
            self.start_with_all(None);
        } else {
            self.open_or_break(&[leg]);
        }
    }

    /// Promotes a leg that was absent while others went on.
    fn start_after_fork(&mut self, leg: u8) {
        let away = self.opened >> leg & 1 == 0 && !self.legs[usize::from(leg)].is_empty;
        if !away {
            return self.start_with_all(None);
        }
        let session: Vec<u8> =
            (0..self.legs.len() as u8).filter(|other| self.opened >> other & 1 == 1).collect();
        let image = LegImage { bytes: &self.disks[usize::from(leg)].metadata };
        let mut generation = [0; 16];
        generation[..8].copy_from_slice(&(self.random.draw() | 1).to_le_bytes());
        if let Ok(promotion) = self.promotion_of(image, generation) {
            for (address, block) in &promotion.writes {
                self.disks[usize::from(leg)].write_metadata(*address, block, 0xFF);
            }
            self.tell(|| format!("leg {leg} is promoted too: a fork"));
            let mut given = session;
            given.push(leg);
            self.expect_fork(&given);
        }
        // The operator keeps the session's legs, and makes this one a new leg later.
        self.put_in_new_disk(leg);
        self.legs[usize::from(leg)].is_empty = true;
        if self.violation.is_none() {
            self.start_with_all(None);
        }
    }

    fn expect_fork(&mut self, given: &[u8]) {
        match self.assess(given) {
            Ok(_) => self.broken("P7", format!("legs {given:?} are a fork, yet they open")),
            Err(refusal) => {
                self.note_refusal(&refusal);
                let is_fork = |p: &Problem| matches!(p, Problem::Fork { .. });
                if !refusal.problems.iter().all(is_fork) {
                    self.wrong_refusal(given, &refusal);
                }
            }
        }
    }

    /// Lets a sector of a leg's metadata rot and starts. Either the remaining metadata decides, or
    /// the start is refused and the damage named. The operator then finds the sector in a copy.
    fn start_with_rot(&mut self, leg: u8) {
        let index = usize::from(leg);
        let blocks = self.disks[index].metadata_blocks();
        let block = blocks[self.random.below(blocks.len() as u64) as usize];
        let start = block as usize * 4096 + 512 * self.random.below(8) as usize;
        let sound = self.disks[index].metadata[start..start + 512].to_vec();
        let byte = start + self.random.below(512) as usize;
        self.disks[index].metadata[byte] ^= 1 << self.random.below(8);
        let rotten = self.disks[index].metadata[start..start + 512].to_vec();
        self.tell(|| format!("byte {byte} of leg {leg} has rotted"));
        self.rots.push(Rot { leg, start, rotten, sound });
        self.start_with_all(None);
    }

    /// Restores rotten sectors if a refusal names damage that is there.
    fn restore_rot(&mut self, given: &[u8], refusal: &Refusal) -> bool {
        let is_damage = |p: &Problem| self.is_rot(given, p);
        if self.rots.is_empty() || !refusal.problems.iter().all(is_damage) {
            return false;
        }
        self.tell(|| {
            let names: Vec<String> = given.iter().map(|leg| format!("leg {leg}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("rightly refused: {}", refusal.describe(&names))
        });
        for rot in std::mem::take(&mut self.rots) {
            let metadata = &mut self.disks[usize::from(rot.leg)].metadata;
            let place = &mut metadata[rot.start..rot.start + 512];
            if *place == rot.rotten[..] {
                place.copy_from_slice(&rot.sound);
            }
        }
        true
    }

    /// Returns true if a problem names damage that is there.
    fn is_rot(&self, given: &[u8], problem: &Problem) -> bool {
        let rotted = |image: usize| self.rots.iter().any(|rot| rot.leg == given[image]);
        match problem {
            Problem::PageDamaged { image, .. }
            | Problem::SuperblockDamaged { image, .. }
            | Problem::NotALeg { image, .. } => rotted(*image),
            Problem::PageLost { .. } | Problem::LostListDamaged => true,
            _ => false,
        }
    }

    /// Reads the whole volume, which the register judges.
    pub(crate) fn verify(&mut self) {
        self.clients.paused = true;
        let sectors = self.sectors();
        let mut start = 0;
        while start < sectors && self.violation.is_none() {
            while self.under_way < 4 && start < sectors && self.has_room(VERIFY_SECTORS) {
                let count = VERIFY_SECTORS.min(sectors - start);
                self.submit(VERIFIER, Operation::Read, Extent::new(start, count), false);
                start += count;
            }
            let end = self.now + PATIENCE;
            if self.under_way > 0 && !self.step(end) {
                self.hang(PATIENCE);
            }
        }
        self.wait_until_answered(PATIENCE);
    }

    /// Reads the whole volume again, each time with another leg the fastest.
    pub(crate) fn verify_over_other_routes(&mut self) {
        for fastest in 0..self.legs.len() {
            for (leg, behaviour) in self.legs.iter_mut().enumerate() {
                behaviour.latency = if leg == fastest { 20_000 } else { 5 * MILLISECOND };
            }
            self.verify();
        }
        for (leg, pace) in self.legs.iter_mut().zip(&self.shape.paces) {
            leg.latency = pace.latency;
            leg.disturbed = self.now;
        }
    }
}
