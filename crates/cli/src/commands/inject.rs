//! `hemi inject`: injects a fault into a leg of a volume served for tests.

use anyhow::Result;
use clap::{ArgGroup, Args};
use hemi_server::control::api;
use hemi_server::control::volume::{Fault, FaultyOperation};
use hemi_stalls::{Experiment, PhaseSpec};
use hemi_units::Time;

use super::leg::slot;
use crate::client::{Client, Which};

/// Inject a fault into a leg, for tests.
///
/// Works only on volumes served with --allow-inject. The fault acts inside hemi, before the
/// drive, so it shows how the volume behaves, not how a drive does.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("fault").required(true), after_help = "\
Examples:
  hemi inject --leg 1 --freeze 2s
  hemi inject --leg 1 --delay 20ms
  hemi inject --leg 1 --stall reads:0.5,writes:1,by:500ms
  hemi inject --leg 1 --stall writes:0.1,by:1s,for:30s --stall for:1m --stall writes:0.1,by:5s,for:30s
  hemi inject --leg 1 --experiment ebs-intermittent --time-scale 0.1
  hemi inject --leg 0 --error read        every read fails
  hemi inject --leg 0 --error write:0.01  one write in a hundred fails
  hemi inject --leg 0 --clear")]
pub(crate) struct InjectArgs {
    /// Slot of the leg.
    #[arg(long, value_name = "N", value_parser = slot())]
    leg: u8,

    /// Hold back all completions for this long, at most 1h.
    #[arg(long, value_name = "DURATION", group = "fault")]
    freeze: Option<Time>,

    /// Delay every I/O by this much, at most 1m; 0s ends it.
    #[arg(long, value_name = "DURATION", group = "fault")]
    delay: Option<Time>,

    /// Stall single requests: shares of reads and writes (0 to 1), by how much, and for how
    /// long. Repeat it for one phase after another.
    #[arg(long, value_name = "PHASE", group = "fault")]
    stall: Vec<PhaseSpec>,

    /// Stall single requests as a published experiment does: ebs-sustained, ebs-increasing,
    /// ebs-intermittent or ebs-decreasing.
    #[arg(long, value_name = "NAME", group = "fault")]
    experiment: Option<Experiment>,

    /// Factor on the lengths of the experiment's phases; delays stay as they are.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, conflicts_with_all = ["freeze", "delay", "stall", "error", "clear"])]
    time_scale: f64,

    /// Chooses the requests that stall: the same seed stalls the same ones.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["freeze", "delay", "error", "clear"])]
    seed: u64,

    /// Fail read, write or flush: always, or at this rate (0 to 1; 0 ends it).
    #[arg(long, value_name = "OPERATION[:RATE]", group = "fault", value_parser = parse_error)]
    error: Option<Fault>,

    /// End all faults of the leg.
    #[arg(long, group = "fault")]
    clear: bool,

    #[command(flatten)]
    which: Which,
}

fn parse_error(text: &str) -> Result<Fault, String> {
    let (name, rate) = match text.split_once(':') {
        None => (text, 1.0),
        Some((name, rate)) => (
            name,
            rate.parse().map_err(|_| format!("the rate `{rate}` is not a number from 0 to 1"))?,
        ),
    };
    let operation = match name {
        "read" => FaultyOperation::Read,
        "write" => FaultyOperation::Write,
        "flush" => FaultyOperation::Flush,
        _ => return Err(format!("`{name}` is not read, write or flush")),
    };
    let fault = Fault::Error { operation, rate };
    hemi_server::control::inject::check(&fault).map(|()| fault).map_err(|refusal| refusal.what)
}

impl InjectArgs {
    fn fault(&self) -> Fault {
        if let Some(duration) = self.freeze {
            return Fault::Freeze { duration };
        }
        if let Some(delay) = self.delay {
            return Fault::Delay { delay };
        }
        if !self.stall.is_empty() {
            return Fault::Stall { phases: self.stall.clone(), seed: self.seed };
        }
        if let Some(experiment) = self.experiment {
            let name = experiment.name().to_owned();
            return Fault::Experiment { name, time_scale: self.time_scale, seed: self.seed };
        }
        self.error.clone().unwrap_or(Fault::Clear)
    }
}

pub(crate) fn run(arguments: &InjectArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    let request = api::Inject { leg: arguments.leg, fault: arguments.fault() };
    client.block_on(client.post("/v1/inject", &request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_with_and_without_a_rate() {
        let error = |operation, rate| Ok(Fault::Error { operation, rate });
        assert_eq!(parse_error("read"), error(FaultyOperation::Read, 1.0));
        assert_eq!(parse_error("flush:0.25"), error(FaultyOperation::Flush, 0.25));
        for text in ["", "trim", "read:", "read:2", "write:-1", "write:NaN"] {
            assert!(parse_error(text).is_err(), "{text}");
        }
        let error = parse_error("write:7").expect_err("it is no share");
        assert_eq!(error, "an error rate of 7 is out of range: it is a share, from 0 to 1");
    }
}
