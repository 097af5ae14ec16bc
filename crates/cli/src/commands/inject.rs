//! `hemi inject`: lays a fault on a leg of a volume served for tests.

use anyhow::Result;
use clap::{ArgGroup, Args};
use hemi_server::config::units::Time;
use hemi_server::control::api;
use hemi_server::control::volume::{Fault, FaultyOperation};

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
  hemi inject --leg 0 --error read        every read fails
  hemi inject --leg 0 --error write:0.01  one write in a hundred fails
  hemi inject --leg 0 --clear")]
pub(crate) struct InjectArgs {
    /// Slot of the leg.
    #[arg(long, value_name = "N")]
    leg: u8,

    /// Hold back all completions for this long, at most 1h.
    #[arg(long, value_name = "DURATION", group = "fault")]
    freeze: Option<Time>,

    /// Delay every I/O by this much, at most 1m; 0s ends it.
    #[arg(long, value_name = "DURATION", group = "fault")]
    delay: Option<Time>,

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
    hemi_server::control::inject::check(fault).map(|()| fault).map_err(|refusal| refusal.what)
}

impl InjectArgs {
    fn fault(&self) -> Fault {
        if let Some(duration) = self.freeze {
            return Fault::Freeze { duration };
        }
        if let Some(delay) = self.delay {
            return Fault::Delay { delay };
        }
        self.error.unwrap_or(Fault::Clear)
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
