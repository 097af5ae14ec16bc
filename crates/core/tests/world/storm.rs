//! The runner of storms: everything that can happen to a volume, at random, with other
//! settings at every start. What it may not do is say in the checker's rules; see
//! [`Weather`] for what it is allowed to break.

use hemi_core::command::Command;
use hemi_core::format::Membership;
use hemi_core::io::{LegEvent, Notice, Operation};
use hemi_core::recovery::Problem;
use hemi_core::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_core::status::LegState;
use hemi_core::units::{Extent, Instant, LegIndex, MILLISECOND, SECOND};

use super::disk::Disk;
use super::keen::Keen;
use super::rot::Flip;
use super::script::{Cache, What};
use super::{Random, Shape, World, settings};

/// What may happen beside freezes, changes of latency and restarts.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    /// Reads and writes fail.
    pub errors: bool,
    /// Flushes fail.
    pub flush_errors: bool,
    /// Sessions drop and come back, caches lost where every other leg has everything.
    pub gone: bool,
    /// Caches are lost wherever: what only that leg had may be lost.
    pub caches: bool,
    /// Devices are removed for good, or so it seems.
    pub removed: bool,
    /// Legs are detached and replaced.
    pub members: bool,
    /// Scrubs run.
    pub scrub: bool,
    /// Legs of 4 KiB blocks.
    pub blocks: bool,
    /// Policies other than the default, and flushes of several copies.
    pub policies: bool,
    /// After a crash the operator may promote one leg, which then goes on alone for a while.
    pub promotions: bool,
    /// After a crash a bit of metadata may have flipped.
    pub rot: bool,
    /// Crashes come where they hurt, and faults in the ways that go together worst.
    pub keen: bool,
}

pub(super) struct Storm {
    pub(super) weather: Weather,
    pub(super) world: World,
    /// When a leg that is gone comes back.
    back: Vec<Option<Instant>>,
    /// Its zombies end at that time, or later.
    zombies: Vec<Option<Instant>>,
    /// What was not flushed may be gone, and nobody knows before the legs are back.
    unsure: bool,
    /// Legs marked out so far, and what was exposed when the last one was: what other legs
    /// owed besides it counts from then on, and only shrinks.
    outs: (usize, u64),
    /// The token of a detach or a join under way, and its leg.
    changing: Option<(u64, usize)>,
    /// Slots whose leg has been detached and waits for a successor.
    empty: Vec<bool>,
    token: u64,
    ids: u8,
    /// A bit of metadata that has flipped.
    flip: Option<Flip>,
    pub(super) keen: Keen,
}

fn random_settings(random: &mut Random, weather: Weather) -> Settings {
    let pick = |random: &mut Random, from: &[u64]| from[random.below(from.len() as u64) as usize];
    let mut drawn = Settings {
        dirty_regions_max: pick(random, &[1, 3, 8, 64]) as u32,
        owed_extents_max: pick(random, &[4, 16, 64, 512]) as u32,
        exposure_bytes: pick(random, &[64 << 10, 256 << 10, 1 << 20]),
        copies_reserve: pick(random, &[0, 0, 512 << 10, u64::MAX]),
        leg_window: pick(random, &[1, 2, 8, 32]) as u32,
        drain_bytes: pick(random, &[4 << 10, 16 << 10, 128 << 10]) as u32,
        clean_after: pick(random, &[20, 100, 300, 2000]) * MILLISECOND,
        out_after: pick(random, &[100, 400, 3000, 60_000]) * MILLISECOND,
        wait_ceiling: pick(random, &[20, 250, 1000]) * MILLISECOND,
        hedge_permille: pick(random, &[0, 20, 1000]) as u32,
        ..settings()
    };
    if random.one_in(4) {
        drawn.exposure_mode = ExposureMode::FallBehind;
    }
    if weather.policies {
        let policies = [Policy::First, Policy::Paper, Policy::All, Policy::WriteBehind];
        drawn.policy = policies[random.below(4) as usize];
        let copies = [FlushCopies::Count(1), FlushCopies::Count(2), FlushCopies::All];
        drawn.flush_copies = copies[random.below(3) as usize];
        drawn.write_behind_limit = pick(random, &[1, 8, 256]) as u32;
        drawn.slow_leg = random.below(2) as u8;
    }
    drawn
}

/// One storm; panics with what it broke.
pub fn storm(seed: u64, legs: usize, weather: Weather) {
    let mut random = Random(seed ^ 0x5702_4D00);
    let region_bytes = 64u64 << (10 + random.below(3));
    let shape = Shape {
        region_bytes,
        volume_bytes: [4, 16][random.below(2) as usize] * region_bytes - 4096 * random.below(2),
        block_sectors: if weather.blocks { 8 } else { 1 },
        memory_sectors: [1024, 4096][random.below(2) as usize],
    };
    let first = random_settings(&mut random, weather);
    let world = World::of_shape(random.next(), legs, first, shape);
    let mut storm = Storm {
        weather,
        world,
        back: vec![None; legs],
        zombies: vec![None; legs],
        unsure: false,
        outs: (0, 0),
        changing: None,
        empty: vec![false; legs],
        token: 1 << 40,
        ids: 100,
        flip: None,
        keen: Keen::default(),
    };
    storm.aim();
    for step in 0..320u64 {
        storm.step();
        if step % 64 == 63 && storm.world.random.below(4) > 0 {
            storm.restart();
        }
    }
    storm.calm_down();
}

impl Storm {
    fn step(&mut self) {
        let world = &mut self.world;
        if world.requests.len() < 32 && world.can_submit() {
            random_request(world);
        }
        if world.random.one_in(20) {
            self.fault();
        }
        self.come_back();
        let world = &mut self.world;
        let gap = [0, 1_000, 20_000, 200_000, 5_000_000, 60_000_000];
        let until = world.now + gap[world.random.below(6) as usize];
        while self.world.step(until) {
            self.check_exposure();
            self.come_back();
            if self.weather.keen && self.is_the_moment() {
                self.restart();
                return;
            }
        }
        self.world.run_until(until);
        self.follow_changes();
    }

    /// P5, and that the memory for copies is bounded in every mode.
    fn check_exposure(&mut self) {
        let world = &mut self.world;
        let throttles = world.settings.exposure_mode == ExposureMode::Throttle
            && matches!(world.settings.policy, Policy::First | Policy::Paper);
        let status = world.status();
        if throttles {
            // A single write goes whatever its size.
            let bound = status.exposure_bytes_bound.max(300 * 512);
            let outs = world.notices.iter().filter(|n| matches!(n, Notice::Out { .. })).count();
            let carried = if outs == self.outs.0 { self.outs.1 } else { u64::MAX };
            self.outs = (outs, carried.min(status.exposure_bytes));
            // With more than two legs what is shown is an upper bound of what is exposed: it
            // can pass the limit by what one leg owes that others have.
            let slack = if status.legs.len() > 2 { 2 } else { 1 };
            let bound = bound.max(carried).saturating_mul(slack);
            assert!(status.exposure_bytes <= bound, "P5: {} exposed", status.exposure_bytes);
        }
        if throttles && !self.weather.gone && !self.weather.caches {
            self.check_what_is_exposed(&status);
        }
        let world = &mut self.world;
        let in_use = world.engine().buffers().sectors();
        let most = world.shape.memory_sectors + 64 * 300;
        assert!(in_use <= most, "{in_use} sectors of buffers in use");
    }

    fn fault(&mut self) {
        if self.weather.keen && self.world.random.one_in(3) {
            self.keen_fault();
            return;
        }
        let world = &mut self.world;
        let leg = world.random.below(world.disks.len() as u64) as usize;
        let kind = world.random.below(12);
        match kind {
            0..=2 => {
                let longest = if world.random.one_in(4) { 4000 } else { 300 };
                let length = (1 + world.random.below(longest)) * MILLISECOND;
                let until = world.now + length;
                world.freeze(leg, until);
            }
            3 => world.behaviour[leg].latency = (1 + world.random.below(20)) * MILLISECOND,
            4 => world.behaviour[leg].latency = 50_000,
            5 => {
                let serial = [0, 0, 500_000, 5_000_000][world.random.below(4) as usize];
                world.behaviour[leg].serial = serial;
            }
            6 => {
                let rate = |world: &mut World, on: bool| {
                    if on { world.random.below(2) * 8 } else { 0 }
                };
                let (errors, flush_errors) = (self.weather.errors, self.weather.flush_errors);
                world.behaviour[leg].read_errors = rate(world, errors);
                world.behaviour[leg].write_errors = rate(world, errors);
                world.behaviour[leg].flush_errors = rate(world, flush_errors) / 4;
            }
            7 | 8 if self.weather.gone || self.weather.caches || self.weather.removed => {
                self.lose(leg, false);
            }
            9 if self.weather.members => self.change_members(leg),
            10 if self.weather.scrub => {
                let repair = world.random.one_in(2);
                let extent = Extent { start: 0, end: world.sectors };
                self.command(Command::Scrub { repair, extent });
            }
            _ => {
                world.behaviour[leg].read_errors = 0;
                world.behaviour[leg].write_errors = 0;
                world.behaviour[leg].flush_errors = 0;
            }
        }
    }

    fn command(&mut self, command: Command) -> u64 {
        self.token += 1;
        let now = self.world.now;
        self.world.trace_event(&format!("{command:?}"));
        self.world.engine().command(now, self.token, command);
        self.world.take_actions();
        self.token
    }

    /// A session drops, with or without the leg's cache.
    fn lose(&mut self, leg: usize, for_good: bool) {
        if self.back[leg].is_some() || self.empty[leg] {
            return;
        }
        let world = &mut self.world;
        let status = world.status();
        let known = status.legs.iter().any(|l| {
            usize::from(l.leg) == leg && !matches!(l.state, LegState::Gone | LegState::Empty)
        });
        if !known {
            return;
        }
        let others_have_all = status.legs.iter().all(|l| {
            usize::from(l.leg) == leg || l.owed_bytes == 0 && l.state == LegState::Healthy
        }) && status.legs.len() > 1;
        // With two caches lost at once nobody can say which leg has what: what was not flushed
        // may be gone, and the flush says so.
        let twice = world.cache_lost.is_some();
        if twice && !self.weather.caches {
            return;
        }
        let removed = for_good || self.weather.removed && world.random.one_in(3);
        let cache = match world.random.below(3) {
            0 if self.weather.caches || others_have_all => Cache::Dropped,
            1 if self.weather.caches || others_have_all => Cache::Any,
            _ => Cache::Kept,
        };
        world.trace_event(&format!("leg {leg} goes, removed {removed}, cache {cache:?}"));
        world.detaching = None;
        world.event(leg, LegEvent::Gone { removed });
        let delays = if self.weather.keen { [0, 1, 1, 30, 600] } else { [0, 1, 30, 600, 3000] };
        let delay = if for_good { 3000 } else { delays[world.random.below(5) as usize] };
        let delay = delay * MILLISECOND;
        let back = world.now + delay;
        self.back[leg] = Some(back);
        if world.random.one_in(if self.weather.keen { 4 } else { 2 }) {
            world.abort(leg, |_| None);
        } else {
            // Until the driver knows that nothing can land any more.
            world.hold(leg, What::Anything);
            world.holds.pop();
            let laters = if self.weather.keen { [0, 50, 3000] } else { [0, 0, 50] };
            let later = laters[world.random.below(3) as usize] * MILLISECOND;
            self.zombies[leg] = Some(back + later);
        }
        match cache {
            Cache::Kept => {}
            Cache::Dropped => world.disks[leg].settle_cache(false),
            Cache::Any => world.disks[leg].lose_cache(&mut world.random),
        }
        world.cache_lost = Some(world.next_token);
        if twice || cache != Cache::Kept && !others_have_all {
            self.unsure = true;
            world.checker.cache_lost(world.now);
        }
    }

    /// Zombies end and legs come back whose time has come.
    fn come_back(&mut self) {
        for leg in 0..self.back.len() {
            let now = self.world.now;
            self.keen.end_holds(&mut self.world);
            if let Some(leg) = self.keen.removal(now) {
                self.lose(leg, true);
            }
            if self.zombies[leg].is_some_and(|at| now >= at) {
                self.zombies[leg] = None;
                self.world.abort_held(leg);
            }
            if self.back[leg].is_some_and(|at| now >= at) {
                self.back[leg] = None;
                self.world.trace_event(&format!("leg {leg} is back"));
                if std::mem::take(&mut self.unsure) {
                    self.unsure = self.back.iter().any(Option::is_some);
                    self.world.checker.cache_lost(now);
                }
                self.world.event(leg, LegEvent::Back);
            }
        }
    }

    /// Detaches a leg, or gives an empty slot a new one.
    pub(super) fn change_members(&mut self, leg: usize) {
        if self.changing.is_some() {
            return;
        }
        let answers = self.is_healthy(leg);
        let token = if self.empty[leg] {
            self.ids += 1;
            let id = [self.ids; 16];
            self.replace_disk(leg);
            self.command(Command::Join { leg: LegIndex(leg as u8), id, fast_zeroes: true })
        } else {
            self.world.notices.clear();
            self.world.detaching = answers.then_some((self.token + 1, leg));
            self.command(Command::Detach { leg: LegIndex(leg as u8) })
        };
        self.changing = Some((token, leg));
    }

    fn is_healthy(&mut self, leg: usize) -> bool {
        let legs = self.world.status().legs;
        legs.iter().any(|l| {
            usize::from(l.leg) == leg && matches!(l.state, LegState::Healthy | LegState::Lagging)
        }) && self.back[leg].is_none()
            && self.world.behaviour[leg].frozen_until <= self.world.now
    }

    fn replace_disk(&mut self, leg: usize) {
        let world = &mut self.world;
        let bytes = world.disks[leg].metadata.len();
        let mut fresh = Disk::new(vec![0; bytes], bytes as u64 / 512, world.sectors as usize);
        (0..world.sectors as usize).for_each(|sector| fresh.corrupt(sector, 1 << 40));
        world.disks[leg] = fresh;
    }

    fn follow_changes(&mut self) {
        let Some((token, leg)) = self.changing else { return };
        let Some(result) = self.world.commands.get(&token) else { return };
        self.changing = None;
        if result.is_ok() {
            self.empty[leg] = !self.empty[leg];
            self.back[leg] = None;
            // What a leg still had in flight when it was detached lands later.
            if !self.empty[leg] {
                self.zombies[leg] = None;
            }
        }
    }

    /// hemi or everything dies, and is started again with other settings.
    fn restart(&mut self) {
        self.come_back();
        let world = &mut self.world;
        world.detaching = None;
        let promoted = self.weather.promotions && world.random.one_in(2);
        if promoted {
            world.power_cut();
        } else if world.random.one_in(2) {
            world.kill()
        } else {
            world.power_cut()
        }
        world.holds.clear();
        self.keen.forget();
        for behaviour in &mut world.behaviour {
            *behaviour = Default::default();
        }
        world.busy_until.fill(Instant(0));
        self.back.fill(None);
        self.zombies.fill(None);
        self.changing = None;
        self.unsure = false;
        let mut random = Random(world.random.next());
        world.settings = random_settings(&mut random, self.weather);
        world.trace_event("restart");
        if promoted {
            self.promote();
        } else {
            if self.weather.rot && self.world.random.one_in(2) {
                self.flip = self.world.rot();
            }
            self.open();
        }
        self.world.read_everything();
        self.aim();
    }

    /// One leg is made to decide alone, and the others stay away.
    fn promote(&mut self) {
        // Not one the others have gone on without: that would be a fork.
        let state = self.world.recovered().superblock;
        let is_in = |leg: &usize| state.legs[*leg].state == Membership::In;
        let given: Vec<usize> = (0..self.empty.len()).filter(is_in).collect();
        let mut leg = given[self.world.random.below(given.len() as u64) as usize];
        if self.weather.keen {
            // The one that fell behind: the others' metadata looks newer.
            let newest = self.world.recovered().objects[0].durable;
            let behind = |leg: &usize| newest[*leg];
            leg = given.iter().copied().min_by_key(behind).unwrap_or(leg);
        }
        self.world.trace_event(&format!("promote {leg}"));
        self.world.promote(leg);
        self.world.checker.adopt(&self.world.disks[leg].contents(), self.world.now);
        self.world.open(&[leg]).expect("a promoted leg decides alone");
        for other in 0..self.empty.len() {
            self.empty[other] = other != leg;
        }
        if self.weather.keen && self.world.random.one_in(2) {
            self.come_back_at_once();
        }
    }

    /// The legs a promotion left behind come back before much has been written, drain, and
    /// power goes again.
    fn come_back_at_once(&mut self) {
        for _ in 0..self.world.random.below(3) {
            random_request(&mut self.world);
        }
        self.world.run_until_answered(20 * SECOND);
        self.world.power_cut();
        self.open();
        self.world.converge();
        for _ in 0..1 + self.world.random.below(3) {
            random_request(&mut self.world);
        }
        self.world.wait(MILLISECOND);
        self.world.power_cut();
        self.open();
    }

    /// Opens with every leg that is one.
    fn open(&mut self) {
        let legs = self.world.disks.len();
        let mut given: Vec<usize> = (0..legs).collect();
        while let Err(refusal) = self.world.open(&given) {
            if refusal.problems.iter().any(may_be_rot)
                && let Some(flip) = self.flip.take()
            {
                // Rightly refused: the bit is put back.
                self.world.heal_rot(&flip);
                continue;
            }
            let none = |p: &Problem| match p {
                Problem::Stranger { image, .. } | Problem::NotALeg { image, .. } => Some(*image),
                _ => None,
            };
            let left: Vec<usize> = refusal.problems.iter().filter_map(none).collect();
            assert_eq!(left.len(), refusal.problems.len(), "{}", refusal.describe(&[]));
            let keep = (0..given.len()).filter(|image| !left.contains(image));
            given = keep.map(|image| given[image]).collect();
        }
        for leg in 0..legs {
            self.empty[leg] = !given.contains(&leg);
        }
    }

    /// The storm is over: everything comes back, converges and can be read.
    fn calm_down(&mut self) {
        self.keen.end_all_holds(&mut self.world);
        for leg in 0..self.back.len() {
            let now = self.world.now;
            self.zombies[leg] = self.zombies[leg].map(|_| now);
            self.back[leg] = self.back[leg].map(|_| now);
        }
        self.come_back();
        for behaviour in &mut self.world.behaviour {
            let frozen_until = behaviour.frozen_until;
            *behaviour = super::Behaviour { frozen_until, ..Default::default() };
        }
        self.world.run_until_answered(120 * SECOND);
        let end = self.world.now + 120 * SECOND;
        while self.changing.is_some() {
            assert!(self.world.now < end, "a change of the legs does not end");
            self.world.wait(10 * MILLISECOND);
            self.follow_changes();
        }
        for leg in 0..self.empty.len() {
            if self.empty[leg] {
                while self.empty[leg] {
                    assert!(self.world.now < end, "no leg can join");
                    self.change_members(leg);
                    self.world.wait(50 * MILLISECOND);
                    self.follow_changes();
                }
            }
        }
        self.world.converge();
        self.world.read_everything();
        let bad = self.weather.errors || self.weather.flush_errors;
        let weather = self.weather;
        let loss = weather.caches || weather.removed || weather.promotions;
        if !bad && !loss {
            // A flush may have to say that a session dropped which alone had something.
            let gone = self.weather.gone;
            let failed = self.world.failed.iter();
            let failed: Vec<_> =
                failed.filter(|(_, operation)| !gone || *operation != Operation::Flush).collect();
            assert!(failed.is_empty(), "requests {failed:?} failed though nothing else did");
        }
        let mismatch = self.world.notices.iter().find(|n| matches!(n, Notice::Mismatch { .. }));
        assert!(mismatch.is_none(), "scrub: {mismatch:?}");
        self.world.close();
        assert_eq!(self.world.engine().buffers().in_use(), 0, "a buffer was never given back");
        self.open();
        self.world.read_everything();
    }
}

fn may_be_rot(problem: &Problem) -> bool {
    matches!(
        problem,
        Problem::NotALeg { .. }
            | Problem::SuperblockDamaged { .. }
            | Problem::PageDamaged { .. }
            | Problem::PageLost { .. }
            | Problem::LostListDamaged
    )
}

fn random_request(world: &mut World) {
    let mut random = Random(world.random.next());
    let block = world.shape.block_sectors;
    let blocks = world.sectors / block;
    let hot = random.below(3) > 0;
    let start = random.below(if hot { blocks.min(200) } else { blocks });
    let longest = if random.one_in(10) { 300 / block } else { 24 };
    let count = (1 + random.below(longest)).min(blocks - start);
    let extent = Extent::new(start * block, count * block);
    let (operation, fua) = match random.below(20) {
        0..=6 => (Operation::Read, false),
        7..=14 => (Operation::Write, random.one_in(6)),
        15 => (Operation::WriteZeroes { may_unmap: random.one_in(2) }, random.one_in(6)),
        16 => (Operation::Discard, false),
        _ => (Operation::Flush, false),
    };
    // As every driver must: a part of the buffers is left to drains and restarted reads.
    let under_way: u64 = world.requests.values().map(|r| r.extent.sectors()).sum();
    if under_way + extent.sectors() > world.shape.memory_sectors / 4 * 3 {
        return;
    }
    let connection = 1 + random.below(3) as u32;
    world.submit_on(connection, operation, extent, fua);
}
