//! `hemi advise`: which drives serve a recorded load, and at what price.

mod text;

use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::SystemTime;

use anyhow::Result;
use clap::{Args, ValueEnum};
use hemi_advise::freezes::FreezeRate;
use hemi_advise::load::Change;
use hemi_advise::prices::Prices;
use hemi_advise::{AdviseError, Load, Request, Step, advise};
use hemi_drives::preset::Precondition;
use hemi_units::{Size, Time};
use hemi_workload::traces::load::Trace;

use super::sim::json::JsonArgs;
use super::sim::progress::Bars;
use super::sim::snapshots::SnapshotArgs;
use super::trace::{self, ReadingArgs};
use crate::failure::{Failure, Kind};

/// Say which drives serve a recorded load, and at what price.
///
/// Replays a trace at its own times on single drives, stripes, and pairs mirrored by hemi, all
/// simulated from models of real drives that have a price. Lists them by what they cost over the
/// years, with latencies, exposure, wear and energy, the kind of request that decided, and how far
/// the models are known to be off for it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi advise db.capture --p99.9 2ms --budget 400
  hemi advise vm.vscsi --p99.9 5ms --copies 2 --what-if freeze=2s/day
  hemi advise vm.vscsi --have hdd-20tb --p99.9 5ms
  hemi advise db.capture --json advice.json && hemi-lab advise advice.json")]
pub(crate) struct AdviseArgs {
    /// The trace, plain or compressed by gzip; - for standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    #[command(flatten)]
    reading: ReadingArgs,

    /// Take only this volume of the trace; * merges all of them into one address space.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,

    /// Longest that the 99.9th percentile of all latencies may be.
    #[arg(long = "p99.9", value_name = "TIME")]
    target: Option<Time>,

    /// Bound of the data that only one leg of a pair has [default: the engine's, 256MiB].
    #[arg(long, value_name = "SIZE")]
    exposure: Option<Size>,

    /// Most that drives may cost over the years: purchase, replacements and rent.
    #[arg(long, value_name = "AMOUNT")]
    budget: Option<f64>,

    /// Years that costs and wear are counted for.
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    years: f64,

    /// Least number of copies of everything, 1 or 2.
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: u32,

    /// Size of the volume [default: as far as the trace's requests reach].
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,

    /// A drive you have: says which second leg to put beside it.
    #[arg(long, value_name = "PRESET")]
    have: Option<String>,

    /// Drives to choose from, names of presets or paths of preset files [default: all with a
    /// price].
    #[arg(long, value_name = "PRESET", value_delimiter = ',')]
    candidates: Vec<String>,

    /// Prices and ratings that replace those of the presets, a TOML file.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Freezes of a drive, as in freeze=2s/day; the worst leg counts.
    #[arg(long, value_name = "FREEZE", value_parser = FreezeRate::from_str)]
    what_if: Option<FreezeRate>,

    /// Factor by which requests arrive faster than recorded, as in 2x.
    #[arg(long, value_name = "FACTOR", value_parser = factor, default_value = "1x")]
    scale: f64,

    /// Copies of the trace that run at once, each at its own addresses and times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    tenants: u32,

    /// State of flash before the trace.
    #[arg(long, value_name = "STATE", value_enum, default_value_t = State::Worn)]
    state: State,

    /// Price of a kilowatt-hour, to count energy among the costs.
    #[arg(long, value_name = "AMOUNT")]
    electricity: Option<f64>,

    /// Energy for cooling, as a percentage of the drives' own.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    cooling: f64,

    /// Divide the capacity of flash by this, besides the presets' own scale [default: chosen].
    #[arg(long, value_name = "N")]
    flash_scale: Option<u64>,

    /// Choose from pairs of wide stripes, too: legs of twice as many drives as they need.
    #[arg(long, conflicts_with = "have")]
    wide: bool,

    /// List this many systems.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Simulate all systems, also those too dear to be among the first --top that meet what is
    /// asked for.
    #[arg(long)]
    all: bool,

    /// Seed for all randomness.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Systems simulated at a time [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    #[command(flatten)]
    json: JsonArgs,

    #[command(flatten)]
    snapshots: SnapshotArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    /// Full, and overwritten at random until nothing changes any more.
    Worn,
    /// Full, written once in order.
    Filled,
    /// Empty, as out of the box.
    Fresh,
}

impl State {
    fn precondition(self) -> Precondition {
        match self {
            State::Worn => Precondition::Steady,
            State::Filled => Precondition::Sequential,
            State::Fresh => Precondition::None,
        }
    }
}

/// Parses a factor, `2` or `2x`.
fn factor(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix(['x', '×']).unwrap_or(text);
    number.trim().parse().map_err(|_| format!("`{text}` is not a factor: write 2x or 0.5x"))
}

pub(crate) fn run(arguments: &AdviseArgs) -> Result<()> {
    let request = arguments.request()?;
    request.check().map_err(|error| refused(&error))?;
    let reader = arguments.reading.open(&arguments.trace)?;
    let trace = Trace::from_reader(reader, arguments.volume.as_deref())
        .map_err(|error| trace::refused(&error))?;
    trace::warn(trace.lacking());
    let change = Change { scale: arguments.scale, tenants: arguments.tenants };
    let load = Load::of(&trace, change).map_err(|error| refused(&error))?;
    drop(trace);
    let bars = Bars::new(0, "drives prepared and systems simulated");
    let stock = arguments.snapshots.stock(&bars)?;
    let advice = advise(&load, &request, &stock, &|step| show(&bars, step));
    bars.clear();
    let advice = advice.map_err(|error| refused(&error))?;
    if arguments.json.write(&advice)? {
        return Ok(());
    }
    let text = text::advice(&advice, arguments.top, SystemTime::now());
    let mut out = std::io::stdout().lock();
    write!(out, "{text}")?;
    out.flush().map_err(Into::into)
}

fn show(bars: &Bars, step: Step<'_>) {
    match step {
        Step::Preparing(count) | Step::Simulating(count) => bars.more(count),
        Step::Prepared | Step::Ended(_) => bars.done_one(),
        Step::Began(_) => {}
    }
}

impl AdviseArgs {
    fn request(&self) -> Result<Request> {
        let prices = match &self.prices {
            None => Prices::default(),
            Some(path) => Prices::load(path).map_err(|error| refused(&error))?,
        };
        Ok(Request {
            target: self.target.map(|time| time.0),
            exposure: self.exposure,
            budget: self.budget,
            years: self.years,
            copies: self.copies,
            capacity: self.capacity,
            state: self.state.precondition(),
            electricity: self.electricity,
            cooling_percent: self.cooling,
            flash_scale: self.flash_scale,
            what_if: self.what_if,
            have: self.have.clone(),
            candidates: self.candidates.clone(),
            prices,
            seed: self.seed,
            wide: self.wide,
            enough: (!self.all).then_some(self.top),
            jobs: self.jobs,
        })
    }
}

fn refused(error: &AdviseError) -> anyhow::Error {
    let way_out = match error {
        AdviseError::Option { .. } => "Change the option as it says.",
        AdviseError::NoTime { .. } => "Say what the trace is with --from and --time-unit.",
        AdviseError::Preset(_) => "hemi sim presets lists them; or give the path of a preset file.",
        AdviseError::Prices { .. } => "docs/commands/advise.md shows a file of prices.",
        AdviseError::Nothing { .. } => {
            "Give prices with --prices, other drives with --candidates, or ask for less."
        }
    };
    Failure::error(Kind::Usage, error.to_string(), way_out)
}
