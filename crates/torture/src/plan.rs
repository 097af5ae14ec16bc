//! The plan of a seed, drawn in advance as plain lists: the volume's shape, the requests of every
//! client, and every fault with the request it follows. Because these are lists, a failing run can
//! be reduced by leaving parts out (see [`crate::shrink`]).

use hemi_engine::format::Layout;
use hemi_engine::io::Operation;
use hemi_engine::marks::Mark;
use hemi_engine::settings::{ExposureMode, FlushCopies, Policy, Settings};
use hemi_units::{MICROSECOND, MILLISECOND};
use hemi_world::disk::Cache;

use crate::bad_blocks::add_bad_block;
use crate::endings::{Stop, add_endings};
use crate::faults::Kind;
use crate::put_back::add_put_backs;
use crate::scenes::{add_ambushes, plan_of_scenes};
use crate::walking::add_repairs;
use crate::wider::{ENDINGS_FROM, WIDER_FROM, widen};
use hemi_random::Rng;

/// The number of client requests of a seed.
pub const OPERATIONS: u32 = 2200;
/// The least number of faults of a seed.
pub const FAULTS_MIN: u64 = 10;
/// The duration of a fault that ends only with a restart, or with the run's weather.
pub const FOREVER: u64 = u64::MAX;
/// The number of sectors in the largest request: 1 MiB.
pub const REQUEST_SECTORS_MAX: u64 = 2048;

/// The seeds that are all ordinary: `regressions.txt` lists some of them by what they drew before
/// there were other kinds.
const ORDINARY: std::ops::Range<u64> = 2_000..20_000;
/// The remainder by eight of seeds that are made of scenes, among those that are not ordinary.
const OF_SCENES: u64 = 2;
/// The remainder of those with ambushes.
const WITH_AMBUSHES: u64 = 7;

/// The remainder of those whose metadata writes are lost or misdirected (from 20,000 on, so that lower
/// seeds stay as they were).
const WITH_LIES: u64 = 4;
/// The least number of such writes, and the bound of the number added at random.
const LIES: [u64; 2] = [4, 12];
/// The remainder of those whose legs have a small window in bytes (also from 20,000 on).
const WITH_NARROW_LEGS: u64 = 1;

/// The kinds of fault a run may have besides freezes, changes of latency, kills and power cuts. Each
/// changes what the checker can demand (see [`Weather::requests_may_fail`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Reads and writes fail, transiently or until rewritten.
    pub errors: bool,
    /// Flushes fail.
    pub flush_errors: bool,
    /// Sessions drop and reconnect. Caches are lost where every other leg has everything.
    pub gone: bool,
    /// Caches are lost anywhere, so data that only one leg had may be lost.
    pub caches: bool,
    /// Devices are removed for good, or seem to be.
    pub removed: bool,
    /// Legs are detached and replaced.
    pub members: bool,
    /// Scrubs run.
    pub scrub: bool,
    /// Legs have 4 KiB blocks.
    pub blocks: bool,
    /// Operators promote legs with accepted loss, start legs alone in turn, and meet forks.
    pub promotions: bool,
    /// Metadata blocks rot while hemi is down.
    pub rot: bool,
    /// Metadata writes are lost or misdirected.
    pub lies: bool,
}

impl Weather {
    /// Returns true if a request other than a flush may fail.
    pub fn requests_may_fail(self) -> bool {
        self.errors
            || self.flush_errors
            || self.caches
            || self.removed
            || self.promotions
            || self.rot
    }
}

/// The best pace of a leg.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The least latency, in nanoseconds.
    pub latency: u64,
    /// The most that chance adds to it, in nanoseconds.
    pub jitter: u64,
    /// The time of each I/O on a leg that serves them one by one, in nanoseconds, or zero if it
    /// serves them in parallel.
    pub serial: u64,
}

/// The volume and its legs.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The number of legs.
    pub legs: usize,
    /// The volume's size in bytes.
    pub volume_bytes: u64,
    /// The size of a region in bytes.
    pub region_bytes: u64,
    /// The legs' logical block, in sectors.
    pub block_sectors: u64,
    /// The number of regions in each page of the region table, which has room for more.
    pub page_regions: u32,
    /// The budget of buffers, in sectors.
    pub memory_sectors: u64,
    /// The volume is served with a ledger.
    pub ledger: bool,
    /// The pace of each leg.
    pub paces: Vec<Pace>,
    /// Legs that zero ranges without writing them, as a mask.
    pub fast_zeroes: u8,
    /// The number of client connections.
    pub clients: usize,
    /// The most requests that each client has in flight.
    pub depths: Vec<u32>,
}

impl Shape {
    /// Returns the volume's layout.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.volume_bytes, self.region_bytes)
            .expect("plans draw good sizes only")
            .with_short_pages(self.page_regions)
    }
}

/// A planned request of a client.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRequest {
    /// Its number among all requests of the seed.
    pub number: u32,
    /// The client that sends it.
    pub client: u8,
    /// The least time since that client's previous request, in nanoseconds.
    pub gap: u64,
    /// The operation.
    pub operation: Operation,
    /// The first sector.
    pub start: u64,
    /// The number of sectors.
    pub sectors: u64,
    /// The data must be durable before the answer.
    pub fua: bool,
}

/// The way hemi ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is killed, and the disks go on.
    Kill,
    /// Everything loses power.
    PowerCut,
    /// The operator closes the volume.
    Close,
}

/// The way the volume is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It starts with every leg.
    All,
    /// It starts first without one leg, which has to be refused if the leg is in.
    Without(u8),
    /// One leg is promoted. The others come along, or stay away until the next start.
    Promote {
        /// The leg.
        leg: u8,
        /// The others come along.
        together: bool,
        /// The promotion is first cut short once.
        cut: bool,
    },
    /// A leg that stayed away is promoted too: a fork, to be refused. The operator keeps the other
    /// side and makes this one a new leg.
    Fork(u8),
    /// A metadata block of a leg has rotted.
    Rot(u8),
}

/// A fault, or an operator's action.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A leg does not answer for this many nanoseconds.
    Freeze(u8, u64),
    /// A leg's latency changes to this many nanoseconds.
    Latency(u8, u64),
    /// A leg serves its I/Os one by one, each in this many nanoseconds.
    Serial(u8, u64),
    /// One in this many I/Os of a leg fails, or none if zero.
    Errors {
        /// The leg.
        leg: u8,
        /// The rate for reads.
        reads: u32,
        /// The rate for writes, metadata included.
        writes: u32,
        /// The rate for flushes.
        flushes: u32,
    },
    /// Sectors of a leg are unreadable until they are rewritten.
    Unreadable {
        /// The leg.
        leg: u8,
        /// The first sector of the volume.
        start: u64,
        /// The number of sectors.
        sectors: u64,
    },
    /// Writes of one metadata block of a leg fail.
    BadBlock {
        /// The leg.
        leg: u8,
        /// Chooses the block.
        block: u64,
    },
    /// A leg's session drops.
    Gone {
        /// The leg.
        leg: u8,
        /// The driver reports that the leg will not reconnect by itself.
        removed: bool,
        /// The fate of its cache.
        cache: Cache,
        /// The time until it is back, in nanoseconds.
        back: u64,
        /// The further time until its in-flight I/O is known not to land any more, in nanoseconds.
        /// `None` if at once.
        zombies: Option<u64>,
    },
    /// A leg is detached, or an empty slot gets a new one.
    Members(u8),
    /// A leg that is out or detached is forgotten.
    Remove(u8),
    /// A scrub runs, with repair or without.
    Scrub(bool),
    /// The running scrub is stopped.
    ScrubStop,
    /// A leg's I/O of one kind does not end for a time.
    Hang {
        /// The leg.
        leg: u8,
        /// The kind of I/O.
        kind: Kind,
        /// The time, in nanoseconds.
        time: u64,
    },
    /// The next `count` I/Os of one kind on a leg never end.
    Lose {
        /// The leg.
        leg: u8,
        /// The kind of I/O.
        kind: Kind,
        /// The number of I/Os.
        count: u32,
    },
    /// The checker judges what would be left if legs were lost now (see
    /// [`crate::checker::copies`]).
    Judge,
    /// A leg's next metadata write of a kind reports success and is not there.
    Lie {
        /// The leg.
        leg: u8,
        /// The kind of I/O.
        kind: Kind,
        /// It lands on another block of metadata.
        elsewhere: bool,
    },
    /// A crash is laid: it comes once the engine has taken a rare path this many more times.
    Ambush {
        /// The path.
        mark: Mark,
        /// The number of times.
        count: u32,
        /// The number of steps between that and the crash.
        steps: u32,
        /// The way hemi ends. It then starts with every leg.
        ending: Ending,
        /// The settings of that start.
        settings: Settings,
    },
    /// hemi is stopped in an orderly way and started again with every leg.
    Stop {
        /// The way it is stopped.
        stop: Stop,
        /// The settings of the start that follows.
        settings: Settings,
    },
    /// An image of a leg is taken.
    Image(u8),
    /// The leg of the last image is put back to it: see [`crate::put_back`].
    PutBack {
        /// The way hemi ends before.
        ending: Ending,
        /// The time for which the leg stays out before, in nanoseconds.
        stays: u64,
        /// The settings of the start that follows.
        settings: Settings,
    },
    /// hemi ends and is started again.
    Restart {
        /// The way it ends.
        ending: Ending,
        /// The way it starts.
        start: Start,
        /// The settings of that start.
        settings: Settings,
        /// Reads check the whole volume twice, over different routes.
        reread: bool,
    },
}

impl Fault {
    /// Returns the leg that the fault concerns, to be changed.
    pub(crate) fn leg_mut(&mut self) -> Option<&mut u8> {
        match self {
            Fault::Freeze(leg, _)
            | Fault::Latency(leg, _)
            | Fault::Serial(leg, _)
            | Fault::Errors { leg, .. }
            | Fault::Unreadable { leg, .. }
            | Fault::BadBlock { leg, .. }
            | Fault::Gone { leg, .. }
            | Fault::Members(leg)
            | Fault::Remove(leg)
            | Fault::Image(leg)
            | Fault::Hang { leg, .. }
            | Fault::Lose { leg, .. }
            | Fault::Lie { leg, .. } => Some(leg),
            Fault::Restart { start, .. } => match start {
                Start::Without(leg)
                | Start::Promote { leg, .. }
                | Start::Fork(leg)
                | Start::Rot(leg) => Some(leg),
                Start::All => None,
            },
            Fault::Stop { stop, .. } => stop.hung.as_mut().map(|(leg, _)| leg),
            Fault::Scrub(_)
            | Fault::ScrubStop
            | Fault::Ambush { .. }
            | Fault::PutBack { .. }
            | Fault::Judge => None,
        }
    }
}

/// A fault and the moment at which it comes.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    /// It comes after the request of this number was sent …
    pub after: u32,
    /// … and after this many more steps.
    pub steps: u32,
    /// The fault.
    pub fault: Fault,
}

/// Everything that one seed draws.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The kinds of fault that may happen.
    pub weather: Weather,
    /// The volume.
    pub shape: Shape,
    /// The settings of the first start.
    pub settings: Settings,
    /// The requests, by number.
    pub requests: Vec<PlannedRequest>,
    /// The faults, in order.
    pub faults: Vec<PlannedFault>,
}

impl Plan {
    /// Returns the plan of a seed.
    pub fn of_seed(seed: u64) -> Plan {
        let mut plan = Plan::as_ever(seed);
        if seed >= WIDER_FROM {
            widen(&mut plan);
        }
        if seed >= ENDINGS_FROM {
            // Few volumes here are large enough for the usual bound to count.
            plan.settings.limits.moves_per_input = Rng::new(seed, 12).pick(&[1, 2, 4, 64]);
            add_endings(&mut plan);
            add_put_backs(&mut plan);
            add_repairs(&mut plan);
            add_bad_block(&mut plan);
        }
        plan
    }

    /// Returns true if the plan is made of scenes.
    pub(crate) fn is_of_scenes(&self) -> bool {
        !ORDINARY.contains(&self.seed) && self.seed % 8 == OF_SCENES
    }

    /// Draws the part of a plan that is independent of [`WIDER_FROM`].
    fn as_ever(seed: u64) -> Plan {
        let mut random = Rng::new(seed, 1);
        let aims = !ORDINARY.contains(&seed);
        if aims && seed % 8 == OF_SCENES {
            return plan_of_scenes(seed, random);
        }
        let weather = draw_weather(&mut random);
        let shape = draw_shape(&mut random, weather);
        let settings = draw_settings(&mut random, &shape);
        let requests = draw_requests(&mut random, &shape);
        let faults = draw_faults(&mut random, &shape, weather);
        let mut plan = Plan { seed, weather, shape, settings, requests, faults };
        if aims && seed % 8 == WITH_AMBUSHES {
            add_ambushes(&mut plan, &mut random);
        } else if seed >= ORDINARY.end && seed % 8 == WITH_LIES {
            add_lies(&mut plan);
        } else if seed >= ORDINARY.end && seed % 8 == WITH_NARROW_LEGS {
            // A random stream of its own here, too.
            let random = &mut Rng::new(seed, 4);
            plan.settings.leg_window_bytes = random.pick(&[1, 16 << 10, 256 << 10]);
        }
        plan
    }
}

/// Makes a plan one of freezes, crashes and metadata writes that are not where they should be.
fn add_lies(plan: &mut Plan) {
    // A random stream of its own: the rest of the plan stays as it is without.
    let random = &mut Rng::new(plan.seed, 3);
    plan.weather = Weather { lies: true, ..Weather::default() };
    plan.shape.block_sectors = 1;
    plan.faults.retain_mut(|planned| match &mut planned.fault {
        Fault::Restart { start, .. } => {
            // A start is judged with all legs present.
            *start = Start::All;
            true
        }
        fault => matches!(fault, Fault::Freeze(..) | Fault::Latency(..) | Fault::Serial(..)),
    });
    // Mostly shortly before a crash, because a later write of the block makes it good.
    let crashes: Vec<u32> = plan
        .faults
        .iter()
        .filter(|planned| matches!(planned.fault, Fault::Restart { .. }))
        .map(|planned| planned.after)
        .collect();
    for _ in 0..LIES[0] + random.below(LIES[1]) {
        let before = random.pick(&[5, 30, 200]);
        let after = random.pick(&crashes).saturating_sub(random.below(before) as u32);
        let fault = Fault::Lie {
            leg: random.below(plan.shape.legs as u64) as u8,
            kind: random.pick(&[Kind::Superblocks, Kind::Pages, Kind::Pages]),
            elsewhere: random.one_in(2),
        };
        plan.faults.push(PlannedFault { after, steps: random.below(40) as u32, fault });
    }
    plan.faults.sort_by_key(|planned| (planned.after, planned.steps));
}

fn draw_weather(random: &mut Rng) -> Weather {
    let none = Weather::default();
    match random.below(12) {
        0 | 1 => Weather { scrub: true, ..none },
        2 => Weather { errors: true, scrub: true, ..none },
        3 => Weather { flush_errors: true, caches: true, ..none },
        4 => Weather { gone: true, ..none },
        5 => Weather { gone: true, caches: true, ..none },
        6 => Weather { gone: true, removed: true, ..none },
        7 => Weather { members: true, scrub: true, ..none },
        8 => Weather { blocks: true, errors: true, scrub: true, ..none },
        9 => Weather { promotions: true, ..none },
        10 => Weather { rot: true, ..none },
        _ => Weather {
            errors: true,
            flush_errors: true,
            gone: true,
            caches: true,
            removed: true,
            members: true,
            ..none
        },
    }
}

fn draw_shape(random: &mut Rng, weather: Weather) -> Shape {
    let legs = random.pick(&[2, 2, 3, 3, 4]);
    let region_bytes = 64u64 << (10 + random.below(3));
    let regions = random.pick(&[4, 8, 16, 16, 24]);
    let clients = 1 + random.below(5) as usize;
    let pace = |random: &mut Rng| match random.below(5) {
        0 => Pace { latency: MILLISECOND, jitter: 8 * MILLISECOND, serial: 0 },
        1 => Pace { latency: 200 * MICROSECOND, jitter: 500 * MICROSECOND, serial: 50_000 },
        _ => Pace { latency: 50 * MICROSECOND, jitter: 100 * MICROSECOND, serial: 0 },
    };
    Shape {
        legs,
        volume_bytes: regions * region_bytes - 4096 * random.below(2),
        region_bytes,
        block_sectors: if weather.blocks { 8 } else { 1 },
        page_regions: u32::MAX,
        memory_sectors: random.pick(&[6144, 8192, 16384]),
        ledger: false,
        paces: (0..legs).map(|_| pace(random)).collect(),
        fast_zeroes: if random.one_in(3) { random.draw() as u8 } else { 0xFF },
        clients,
        depths: (0..clients).map(|_| random.pick(&[1, 4, 8, 16])).collect(),
    }
}

fn draw_settings(random: &mut Rng, shape: &Shape) -> Settings {
    let policies = [
        Policy::First,
        Policy::First,
        Policy::First,
        Policy::First,
        Policy::Paper,
        Policy::All,
        Policy::WriteBehind,
    ];
    let one = FlushCopies::Count(1);
    let copies = [one, one, one, FlushCopies::Count(2), FlushCopies::All];
    Settings {
        policy: random.pick(&policies),
        exposure_mode: if random.one_in(4) {
            ExposureMode::FallBehind
        } else {
            ExposureMode::Throttle
        },
        exposure_bytes: random.pick(&[64 << 10, 256 << 10, 1 << 20, 4 << 20]),
        out_after: random.pick(&[100, 400, 3000, 60_000]) * MILLISECOND,
        flush_copies: random.pick(&copies),
        wait_ceiling: random.pick(&[20, 250, 1000]) * MILLISECOND,
        slow_leg: random.below(shape.legs as u64) as u8,
        write_behind_limit: random.pick(&[1, 8, 256]),
        leg_window: random.pick(&[1, 2, 8, 32]),
        drain_bytes: random.pick(&[4 << 10, 16 << 10, 128 << 10]),
        requests_max: 64,
        dirty_regions_max: random.pick(&[1, 3, 8, 64]),
        owed_extents_max: random.pick(&[4, 16, 64, 512]),
        copies_reserve: random.pick(&[0, 0, 512 << 10, u64::MAX]),
        clean_after: random.pick(&[20, 100, 300, 2000]) * MILLISECOND,
        resync_bytes: 0,
        hedge_permille: random.pick(&[0, 20, 1000]),
        ..Settings::default()
    }
}

/// The share of each kind of request, in twentieths: reads, writes, zeroes, discards.
const MIXES: [[u64; 4]; 4] = [[7, 8, 1, 1], [12, 6, 0, 0], [2, 12, 2, 1], [4, 9, 0, 0]];

fn draw_requests(random: &mut Rng, shape: &Shape) -> Vec<PlannedRequest> {
    let mix = random.pick(&MIXES);
    let block = shape.block_sectors;
    let blocks = shape.volume_bytes / 512 / block;
    let hot = random.pick(&[40, 200, 600]);
    let fua = random.pick(&[4, 6, 40]);
    let idle = random.pick(&[50, 200]);
    let mut burst = false;
    let requests = (0..OPERATIONS).map(|number| {
        if random.one_in(60) {
            burst = !burst;
        }
        let gap = match random.below(6) {
            _ if burst => 0,
            0 if random.one_in(idle) => 400 * MILLISECOND,
            0 | 1 => 0,
            2 => MICROSECOND,
            3 => 20 * MICROSECOND,
            4 => 200 * MICROSECOND,
            _ if random.one_in(6) => 5 * MILLISECOND,
            _ => 500 * MICROSECOND,
        };
        let longest = match random.below(60) {
            0 => REQUEST_SECTORS_MAX / block,
            1..=5 => 300 / block,
            _ => 24,
        };
        let within = if random.below(3) > 0 { blocks.min(hot) } else { blocks };
        let start = random.below(within);
        let count = (1 + random.below(longest)).min(blocks - start);
        let may_unmap = random.one_in(2);
        let durable = random.one_in(fua);
        let mut draw = random.below(20);
        let kinds = [
            Operation::Read,
            Operation::Write,
            Operation::WriteZeroes { may_unmap },
            Operation::Discard,
        ];
        let operation = kinds
            .into_iter()
            .zip(mix)
            .find(|&(_, share)| {
                let found = draw < share;
                draw = draw.wrapping_sub(share);
                found
            })
            .map_or(Operation::Flush, |(kind, _)| kind);
        let writes = matches!(operation, Operation::Write | Operation::WriteZeroes { .. });
        PlannedRequest {
            number,
            client: random.below(shape.clients as u64) as u8,
            gap,
            operation,
            start: start * block,
            sectors: count * block,
            fua: durable && writes,
        }
    });
    requests.collect()
}

fn draw_faults(random: &mut Rng, shape: &Shape, weather: Weather) -> Vec<PlannedFault> {
    let count = FAULTS_MIN + random.below(30);
    let restarts = 1 + random.below(4);
    let mut faults: Vec<PlannedFault> = (0..count + restarts)
        .map(|index| {
            let fault = if index < restarts {
                draw_restart(random, shape, weather, index == 0)
            } else {
                draw_fault(random, shape, weather)
            };
            PlannedFault {
                after: random.below(u64::from(OPERATIONS)) as u32,
                steps: random.below(40) as u32,
                fault,
            }
        })
        .collect();
    faults.sort_by_key(|planned| (planned.after, planned.steps));
    faults
}

fn draw_restart(random: &mut Rng, shape: &Shape, weather: Weather, crash: bool) -> Fault {
    let leg = random.below(shape.legs as u64) as u8;
    let ending = match random.below(6) {
        0 if !crash => Ending::Close,
        0..=2 => Ending::Kill,
        _ => Ending::PowerCut,
    };
    let start = match random.below(4) {
        0 | 1 if weather.promotions => {
            Start::Promote { leg, together: random.one_in(3), cut: random.one_in(3) }
        }
        2 if weather.promotions => Start::Fork(leg),
        0..=2 if weather.rot => Start::Rot(leg),
        3 => Start::Without(leg),
        _ => Start::All,
    };
    let settings = draw_settings(random, shape);
    Fault::Restart { ending, start, settings, reread: random.one_in(4) }
}

fn draw_fault(random: &mut Rng, shape: &Shape, weather: Weather) -> Fault {
    let leg = random.below(shape.legs as u64) as u8;
    match random.below(16) {
        0..=4 => {
            let longest = match random.below(12) {
                0 => 20_000,
                1..=3 => 4000,
                _ => 300,
            };
            Fault::Freeze(leg, (1 + random.below(longest)) * MILLISECOND)
        }
        5 => Fault::Latency(leg, (1 + random.below(20)) * MILLISECOND),
        6 => Fault::Latency(leg, 50 * MICROSECOND),
        7 => Fault::Serial(leg, random.pick(&[0, 0, 500 * MICROSECOND, 5 * MILLISECOND])),
        8 | 9 if weather.errors || weather.flush_errors => {
            let mut rate = |on: bool| if on { random.below(2) as u32 * 8 } else { 0 };
            Fault::Errors {
                leg,
                reads: rate(weather.errors),
                writes: rate(weather.errors),
                flushes: rate(weather.flush_errors) / 4,
            }
        }
        10 if weather.errors => Fault::Unreadable {
            leg,
            start: random.below(shape.volume_bytes / 512),
            sectors: 1 + random.below(64),
        },
        11 | 12 if weather.gone || weather.caches || weather.removed => {
            let zombies = [None, Some(0), Some(0), Some(50 * MILLISECOND)];
            Fault::Gone {
                leg,
                removed: weather.removed && random.one_in(3),
                cache: random.pick(&[Cache::Kept, Cache::Dropped, Cache::Any]),
                back: random.pick(&[0, 1, 30, 600, 3000]) * MILLISECOND,
                zombies: random.pick(&zombies),
            }
        }
        13 if weather.members => Fault::Members(leg),
        14 if weather.members && random.one_in(2) => Fault::Remove(leg),
        14 | 15 if weather.scrub => {
            if random.one_in(4) {
                Fault::ScrubStop
            } else {
                Fault::Scrub(random.one_in(2))
            }
        }
        15 if weather.errors || weather.flush_errors => {
            Fault::Errors { leg, reads: 0, writes: 0, flushes: 0 }
        }
        _ => Fault::Freeze(leg, (10 + random.below(60)) * MILLISECOND),
    }
}
