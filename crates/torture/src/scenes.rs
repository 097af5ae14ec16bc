//! Seeds that aim. Ordinary plans put faults anywhere, and seldom meet a bug that takes three
//! things in the right order. So some seeds are **scenes** in sequence, each a few requests and
//! faults that belong together, with chance in between. Others are ordinary with **ambushes**: a
//! crash right after the engine has done something rare.

use hemi_engine::io::Operation;
use hemi_engine::marks::Mark;
use hemi_engine::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_units::{MICROSECOND, MILLISECOND, SECOND};
use hemi_world::disk::Cache;

use crate::faults::Kind;
use crate::moments::MOMENTS;
use crate::plan::{
    Ending, Fault, OPERATIONS, Pace, Plan, PlannedFault, PlannedRequest, Shape, Start, Weather,
};
use hemi_random::Rng;

/// The number of ambushes of an ordinary seed that has some.
const AMBUSHES: u64 = 8;
/// The least number of client requests of a seed of scenes. It is higher than for others, since
/// each of the many crashes leaves some unanswered.
const REQUESTS: usize = OPERATIONS as usize + MORE;
/// The number of additional requests of a seed with ambushes, for the same reason.
const MORE: usize = 400;
/// The wait limit of legs in scenes, floor and ceiling alike, in nanoseconds.
const WAIT: u64 = 20 * MILLISECOND;

/// Adds ambushes to an ordinary plan, and the faults that make them worthwhile: legs that freeze
/// one after the other, and I/O of one kind that hangs.
pub(crate) fn add_ambushes(plan: &mut Plan, random: &mut Rng) {
    let legs = plan.shape.legs as u64;
    for _ in 0..AMBUSHES {
        let after = random.below(u64::from(OPERATIONS)) as u32;
        let mut add = |steps: u32, fault: Fault| {
            plan.faults.push(PlannedFault { after, steps, fault });
        };
        let joins = plan.weather.members && random.one_in(3);
        let mark = if joins { Mark::LegJoined } else { random.pick(&MOMENTS) };
        add(
            0,
            Fault::Ambush {
                mark,
                count: 1 + random.below(3) as u32,
                steps: random.below(5) as u32,
                ending: if random.one_in(3) { Ending::Kill } else { Ending::PowerCut },
                settings: plan.settings,
            },
        );
        let leg = random.below(legs) as u8;
        let other = (u64::from(leg) + 1 + random.below(legs - 1)) % legs;
        match random.below(3) {
            0 => {
                add(1, Fault::Freeze(leg, (20 + random.below(100)) * MILLISECOND));
                add(2, Fault::Freeze(other as u8, (20 + random.below(300)) * MILLISECOND));
            }
            1 => add(1, Fault::Freeze(leg, (20 + random.below(300)) * MILLISECOND)),
            _ => {}
        }
        if random.one_in(2) {
            let kind = random.pick(&[Kind::Writes, Kind::Pages, Kind::Superblocks]);
            let time = random.pick(&[2, 30, 200]) * MILLISECOND;
            add(3, Fault::Hang { leg: other as u8, kind, time });
        }
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
    for again in 0..MORE {
        let number = plan.requests.len() as u32;
        plan.requests.push(PlannedRequest { number, ..plan.requests[again] });
    }
}

/// The theme that the scenes of one seed share. Each keeps what the checker can demand exact.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kit {
    /// Nothing but freezes and hangs.
    Plain,
    /// Freezes and hangs that aim at P4: legs with a pace of their own, long freezes.
    Stalls,
    Errors,
    Members,
    Removals,
    Promotions,
}

/// Returns a plan made of scenes.
pub(crate) fn plan_of_scenes(seed: u64, mut random: Rng) -> Plan {
    let kits = [Kit::Plain, Kit::Plain, Kit::Stalls, Kit::Errors, Kit::Members, Kit::Removals];
    let kit = if random.one_in(4) { Kit::Promotions } else { random.pick(&kits) };
    let none = Weather::default();
    let weather = match kit {
        Kit::Plain | Kit::Stalls => none,
        Kit::Errors => Weather { errors: true, ..none },
        Kit::Members => Weather { members: true, ..none },
        Kit::Removals => Weather { gone: true, removed: true, ..none },
        Kit::Promotions => Weather { promotions: true, errors: true, ..none },
    };
    let shape = draw_shape(&mut random, kit);
    let settings = draw_settings(&mut random, kit);
    let (requests, faults) = (Vec::new(), Vec::new());
    let plan = Plan { seed, weather, shape, settings, requests, faults };
    let mut script = Script { plan, random, gap: 0 };
    script.write_whole();
    let mut last_restart = 0;
    while script.plan.requests.len() < REQUESTS || script.plan.faults.len() < 20 {
        script.play(kit);
        script.load(20, 500 * MICROSECOND);
        if script.plan.requests.len() > last_restart + REQUESTS / 2 {
            // Every seed crashes, even if its ambushes find nothing.
            last_restart = script.plan.requests.len();
            script.crash();
        }
    }
    script.plan
}

fn draw_shape(random: &mut Rng, kit: Kit) -> Shape {
    let legs = if kit == Kit::Promotions { 2 } else { random.pick(&[2, 2, 3]) };
    let fast = random.below(legs as u64) as usize;
    let slow = random.pick(&[100, 1000, 4000]) * MICROSECOND;
    let slow = if kit == Kit::Stalls { 4 * MILLISECOND } else { slow };
    let latency = |leg: usize| if leg == fast { 60 * MICROSECOND } else { slow };
    Shape {
        legs,
        volume_bytes: 16 * (64 << 10),
        region_bytes: 64 << 10,
        block_sectors: 1,
        page_regions: u32::MAX,
        memory_sectors: 16384,
        ledger: false,
        paces: (0..legs).map(|leg| Pace { latency: latency(leg), jitter: 0, serial: 0 }).collect(),
        fast_zeroes: 0xFF,
        clients: 1,
        depths: vec![32],
    }
}

fn draw_settings(random: &mut Rng, kit: Kit) -> Settings {
    let fall_behind = random.one_in(2);
    Settings {
        policy: Policy::First,
        exposure_mode: if fall_behind { ExposureMode::FallBehind } else { ExposureMode::Throttle },
        exposure_bytes: 16 << 20,
        exposure_age: 60 * SECOND,
        out_after: if kit == Kit::Removals { 200 * MILLISECOND } else { 600 * SECOND },
        flush_copies: FlushCopies::Count(1),
        wait_floor: WAIT,
        wait_ceiling: WAIT,
        leg_window: random.pick(&[2, 8, 32]),
        drain_bytes: 64 << 10,
        // With few records, regions have to wait for them.
        requests_max: random.pick(&[3, 64, 64, 64]),
        dirty_regions_max: random.pick(&[1, 8, 64]),
        owed_extents_max: 512,
        copies_reserve: random.pick(&[0, u64::MAX]),
        clean_after: random.pick(&[30, 300, 5000]) * MILLISECOND,
        resync_bytes: 0,
        ..Settings::default()
    }
}

/// A plan being written.
struct Script {
    plan: Plan,
    random: Rng,
    /// The time added to the gap before the next request, in nanoseconds.
    gap: u64,
}

impl Script {
    fn play(&mut self, kit: Kit) {
        match (kit, self.random.below(4)) {
            (Kit::Stalls, _) => self.stall(),
            (Kit::Errors, 0..=2) => self.all_writes_fail(),
            (Kit::Members, 0..=2) => self.replace_a_lagging_leg(),
            (Kit::Removals, 0..=2) => self.last_holder_leaves(),
            (Kit::Promotions, 0..=2) => self.behind_leg_is_promoted(),
            (_, 0) => self.flush_during_a_move(),
            (_, 1) => self.there_and_back(),
            (_, 2) => self.too_many_regions(),
            _ => self.relay(),
        }
    }

    // The words that scenes are written in.

    fn ask(&mut self, gap: u64, operation: Operation, start: u64, sectors: u64, fua: bool) {
        let number = self.plan.requests.len() as u32;
        let gap = gap + std::mem::take(&mut self.gap);
        self.plan.requests.push(PlannedRequest {
            number,
            client: 0,
            gap,
            operation,
            start,
            sectors,
            fua,
        });
    }

    fn write(&mut self, gap: u64, start: u64, sectors: u64) {
        let fua = self.random.one_in(8);
        self.ask(gap, Operation::Write, start, sectors, fua);
    }

    fn flush(&mut self, gap: u64) {
        self.ask(gap, Operation::Flush, 0, 0, false);
    }

    /// Adds a fault that comes when the last request has been sent.
    fn fault(&mut self, fault: Fault) {
        let after = self.plan.requests.len() as u32 - 1;
        self.plan.faults.push(PlannedFault { after, steps: 0, fault });
    }

    /// Lets time pass before the next request.
    fn pause(&mut self, time: u64) {
        self.gap += time;
    }

    fn millis(&mut self, least: u64, more: u64) -> u64 {
        (least + self.random.below(more.max(1))) * MILLISECOND
    }

    fn region(&mut self) -> u64 {
        self.random.below(self.plan.shape.volume_bytes / self.plan.shape.region_bytes)
    }

    fn start_of(&self, region: u64) -> u64 {
        region * self.plan.shape.region_bytes / 512
    }

    fn a_leg(&mut self) -> u8 {
        self.random.below(self.plan.shape.legs as u64) as u8
    }

    fn fastest(&self) -> u8 {
        let paces = self.plan.shape.paces.iter().enumerate();
        paces.min_by_key(|(_, pace)| pace.latency).map_or(0, |(leg, _)| leg as u8)
    }

    fn others(&self, leg: u8) -> Vec<u8> {
        (0..self.plan.shape.legs as u8).filter(|&other| other != leg).collect()
    }

    fn ambush(&mut self, mark: Mark, steps: u64) {
        let ending = if self.random.one_in(3) { Ending::Kill } else { Ending::PowerCut };
        let (steps, settings) = (self.random.below(steps) as u32, self.plan.settings);
        self.fault(Fault::Ambush { mark, count: 1, steps, ending, settings });
    }

    fn crash(&mut self) {
        let ending = if self.random.one_in(3) { Ending::Kill } else { Ending::PowerCut };
        let (settings, reread) = (self.plan.settings, self.random.one_in(4));
        self.fault(Fault::Restart { ending, start: Start::All, settings, reread });
    }

    /// Adds requests of every kind in the first regions.
    fn load(&mut self, count: u64, gap: u64) {
        for _ in 0..count {
            let (start, sectors) = (self.random.below(300), 1 + self.random.below(16));
            match self.random.below(10) {
                0..=3 => self.ask(gap, Operation::Read, start, sectors, false),
                4..=8 => self.write(gap, start, sectors),
                _ => self.flush(gap),
            }
        }
    }

    /// Writes every sector, so that missing data shows.
    fn write_whole(&mut self) {
        for region in 0..self.plan.shape.volume_bytes / self.plan.shape.region_bytes {
            let sectors = self.plan.shape.region_bytes / 512;
            self.write(MILLISECOND, self.start_of(region), sectors);
        }
        self.flush(0);
        self.pause(100 * MILLISECOND);
    }

    // The scenes.

    /// Freezes a leg for two seconds under load. The load then goes on until everything has
    /// settled, and clients come one at a time.
    fn stall(&mut self) {
        let leg = if self.random.one_in(2) { self.fastest() } else { self.a_leg() };
        self.load(40, 300 * MICROSECOND);
        self.pause(SECOND);
        self.load(2, 0);
        self.fault(Fault::Freeze(leg, 2 * SECOND));
        self.load(60, 5 * MILLISECOND);
        self.pause(2 * SECOND);
        for _ in 0..220 {
            let start = self.random.below(300);
            self.ask(20 * MILLISECOND, Operation::Write, start, 4, false);
        }
    }

    /// Freezes all legs but one, so that they owe what is written meanwhile. As they thaw, that one
    /// freezes, with writes in flight that replace what they still owe. A crash follows. Their own
    /// writes may hang a little, while metadata does not.
    fn relay(&mut self) {
        let keeper = if self.random.one_in(2) { self.fastest() } else { self.a_leg() };
        let first = self.millis(40, 60);
        let count = 1 + self.random.below(6);
        let places: Vec<(u64, u64)> = (0..count)
            .map(|_| {
                let region = self.region();
                (self.start_of(region) + self.random.below(60), 1 + self.random.below(12))
            })
            .collect();
        for leg in self.others(keeper) {
            self.fault(Fault::Freeze(leg, first));
        }
        for &(start, sectors) in &places {
            let fua = self.random.one_in(2);
            self.ask(MILLISECOND, Operation::Write, start, sectors, fua);
        }
        self.flush(MILLISECOND);
        self.pause(first - (count + 1) * MILLISECOND);
        let hangs = self.millis(5, 40);
        let early = self.random.below(400) * MICROSECOND;
        self.ask(early, Operation::Read, 0, 1, false);
        for leg in self.others(keeper) {
            self.fault(Fault::Hang { leg, kind: Kind::Writes, time: hangs });
        }
        let second = self.millis(30, 300);
        self.fault(Fault::Freeze(keeper, second));
        let mark = self.random.pick(&[Mark::AuthorityMoved, Mark::DebtSuperseded]);
        let steps = if mark == Mark::AuthorityMoved { 12 } else { 60 };
        self.ambush(mark, steps);
        for &(start, sectors) in &places {
            let gap = self.gap_below(300);
            self.write(gap, start, sectors);
        }
        self.pause(second);
        self.load(4, 5 * MILLISECOND);
    }

    fn gap_below(&mut self, micros: u64) -> u64 {
        self.random.below(micros) * MICROSECOND
    }

    /// Freezes the authority with writes only in its cache, and flushes while the record of the
    /// move that follows hangs. Then power is cut.
    fn flush_during_a_move(&mut self) {
        let leg = if self.random.below(4) > 0 { self.fastest() } else { self.a_leg() };
        self.pause(50 * MILLISECOND);
        for _ in 0..1 + self.random.below(6) {
            let (region, within) = (self.region(), self.random.below(100));
            let start = self.start_of(region) + within;
            let gap = self.gap_below(400);
            self.ask(gap, Operation::Write, start, 4, false);
        }
        if self.random.one_in(2) {
            self.pause(10 * MILLISECOND);
        }
        self.flush(0);
        let time = self.millis(60, 200);
        self.fault(Fault::Freeze(leg, time));
        for other in self.others(leg) {
            let hangs = self.millis(10, 60);
            self.fault(Fault::Hang { leg: other, kind: Kind::Pages, time: hangs });
        }
        for _ in 0..1 + self.random.below(3) {
            let (region, within) = (self.region(), self.random.below(100));
            let start = self.start_of(region) + within;
            let gap = self.gap_below(2000);
            self.write(gap, start, 4);
            let gap = self.gap_below(20_000);
            self.flush(gap);
        }
        let gap = self.millis(1, 70);
        self.ask(gap, Operation::Read, 0, 1, false);
        self.crash();
    }

    /// Moves authority away and back while the record of the first move is still in flight. The
    /// record lands later.
    fn there_and_back(&mut self) {
        let leg = if self.random.below(4) > 0 { self.fastest() } else { self.a_leg() };
        let region = self.region();
        let start = self.start_of(region);
        self.write(MILLISECOND, start, 8);
        let time = self.millis(21, 30);
        self.fault(Fault::Freeze(leg, time));
        for other in self.others(leg) {
            let hangs = self.millis(25, 150);
            self.fault(Fault::Hang { leg: other, kind: Kind::Pages, time: hangs });
        }
        if self.random.one_in(3) {
            self.ambush(Mark::AuthorityMovedAgain, 12);
        }
        let gap = self.millis(1, 12);
        for _ in 0..8 + self.random.below(12) {
            let within = self.random.below(100);
            self.write(gap, start + within, 1 + within % 8);
        }
        self.ask(MILLISECOND, Operation::Read, start, 8, false);
        self.crash();
    }

    /// Writes more regions at once than there are records, while one leg is silent and keeps the
    /// regions it owes something in.
    fn too_many_regions(&mut self) {
        let leg = self.a_leg();
        self.flush(0);
        let time = self.millis(30, 200);
        self.fault(Fault::Freeze(leg, time));
        let regions = self.plan.shape.volume_bytes / self.plan.shape.region_bytes;
        for region in 0..regions {
            let start = self.start_of(region) + self.random.below(100);
            let gap = self.gap_below(500);
            self.write(gap, start, 4);
        }
        self.load(8, 5 * MILLISECOND);
    }

    /// Makes writes fail on every leg for a moment, and land in part.
    fn all_writes_fail(&mut self) {
        let legs = self.plan.shape.legs as u8;
        self.flush(MILLISECOND);
        for leg in 0..legs {
            self.fault(Fault::Errors { leg, reads: 0, writes: 2, flushes: 0 });
        }
        for _ in 0..12 {
            let (start, sectors) = (self.random.below(300), 1 + self.random.below(30));
            let gap = self.gap_below(500);
            self.ask(gap, Operation::Write, start, sectors, false);
        }
        self.flush(2 * MILLISECOND);
        for leg in 0..legs {
            self.fault(Fault::Errors { leg, reads: 0, writes: 0, flushes: 0 });
        }
        for _ in 0..20 {
            let (start, sectors) = (self.random.below(300), 1 + self.random.below(30));
            let gap = self.gap_below(500);
            self.ask(gap, Operation::Read, start, sectors, false);
        }
    }

    /// Detaches a leg while it lags, and joins a new one in its place. A crash may follow soon
    /// after.
    fn replace_a_lagging_leg(&mut self) {
        let leg = self.a_leg();
        self.flush(MILLISECOND);
        let serial = self.random.pick(&[1, 5, 20]) * MILLISECOND;
        self.fault(Fault::Serial(leg, serial));
        self.load(40, 50 * MICROSECOND);
        self.fault(Fault::Members(leg));
        self.load(30, 500 * MICROSECOND);
        self.fault(Fault::Serial(leg, 0));
        self.pause(400 * MILLISECOND);
        self.load(4, MILLISECOND);
        if self.random.one_in(2) {
            self.fault(Fault::Serial(leg, MILLISECOND));
        }
        self.ambush(Mark::LegJoined, 80);
        self.fault(Fault::Members(leg));
        self.load(60, 500 * MICROSECOND);
        self.fault(Fault::Serial(leg, 0));
        self.pause(400 * MILLISECOND);
        self.load(4, MILLISECOND);
    }

    /// Removes for good the leg that alone has what the frozen others lack, while the records that
    /// follow from it hang.
    fn last_holder_leaves(&mut self) {
        let leg = if self.random.below(4) > 0 { self.fastest() } else { self.a_leg() };
        for other in self.others(leg) {
            if self.random.one_in(2) {
                let time = self.millis(30, 200);
                self.fault(Fault::Freeze(other, time));
            }
        }
        self.load(12, 3 * MILLISECOND);
        for other in self.others(leg) {
            let kind = self.random.pick(&[Kind::Pages, Kind::Pages, Kind::Superblocks]);
            let time = self.millis(10, 300);
            self.fault(Fault::Hang { leg: other, kind, time });
        }
        let mark = self.random.pick(&[Mark::LegOut, Mark::LegOutRemoved, Mark::OutWaited]);
        self.ambush(mark, 20);
        if self.random.one_in(3) {
            self.fault(Fault::Freeze(leg, 2 * SECOND));
        } else {
            let back = self.random.pick(&[600, 3000]) * MILLISECOND;
            let (cache, zombies) = (Cache::Kept, Some(0));
            self.fault(Fault::Gone { leg, removed: true, cache, back, zombies });
        }
        self.load(20, 5 * MILLISECOND);
        self.pause(3 * SECOND);
        self.load(4, MILLISECOND);
    }

    /// Promotes a leg that is behind the other. The other's metadata looks newer when it comes back
    /// and is filled, while regions stay dirty. Then comes a crash.
    fn behind_leg_is_promoted(&mut self) {
        let behind = self.a_leg();
        let other = 1 - behind;
        self.fault(Fault::Latency(behind, 5 * MILLISECOND));
        self.fault(Fault::Latency(other, 60 * MICROSECOND));
        self.load(6, 6 * MILLISECOND);
        self.fault(Fault::Hang { leg: behind, kind: Kind::Pages, time: 10 * SECOND });
        for _ in 0..2 + self.random.below(4) {
            for region in 0..8 {
                let start = self.start_of(region) + self.random.below(100);
                let gap = self.gap_below(20_000);
                self.write(gap, start, 4);
            }
        }
        let (settings, reread) = (self.plan.settings, self.random.one_in(2));
        let start = Start::Promote { leg: behind, together: false, cut: false };
        self.fault(Fault::Restart { ending: Ending::PowerCut, start, settings, reread });
        let few = self.random.below(3);
        self.load(1 + few, MILLISECOND);
        self.crash();
        // From now on the promoted leg is the fast one.
        let fast = if self.random.one_in(4) { other } else { behind };
        self.fault(Fault::Latency(fast, 60 * MICROSECOND));
        self.fault(Fault::Latency(1 - fast, 5 * MILLISECOND));
        if self.random.below(4) > 0 {
            self.ambush(Mark::LegIn, 30);
        }
        // Some of the other's metadata takes several tries, so that the leg comes in with as few
        // metadata writes as possible.
        if self.random.below(3) > 0 {
            self.fault(Fault::Errors { leg: other, reads: 0, writes: 2, flushes: 0 });
        }
        let region = self.random.below(8);
        let gap = self.millis(8, 20);
        for number in 0..60 {
            let start = self.start_of(region) + self.random.below(100);
            self.write(gap, start, 4);
            if number == 30 {
                self.fault(Fault::Errors { leg: other, reads: 0, writes: 0, flushes: 0 });
            }
        }
        self.crash();
    }
}
