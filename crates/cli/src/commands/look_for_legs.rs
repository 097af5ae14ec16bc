//! A hidden command: the part of a scan that may hang, in a process of its own.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use hemi_server::scan::apart;

#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct LookForLegsArgs {
    /// A file or directory to search, besides the block devices.
    #[arg(long = "in", value_name = "PATH")]
    places: Vec<PathBuf>,

    /// A device to leave alone.
    #[arg(long, value_name = "PATH")]
    except: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &LookForLegsArgs) -> Result<()> {
    Ok(apart::answer(&arguments.places, &arguments.except)?)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[test]
    fn a_scan_calls_it_by_its_name() {
        let [place, except] = ["/srv", "/dev/sdc"];
        let line =
            ["hemi", apart::COMMAND, apart::PLACE_OPTION, place, apart::EXCEPT_OPTION, except];
        let matches = Arguments::command().get_matches_from(line);
        let parsed = Arguments::from_arg_matches(&matches).expect("it has been matched");
        let Command::LookForLegs(arguments) = parsed.command else { panic!("another command") };
        assert_eq!(arguments.places, [PathBuf::from(place)]);
        assert_eq!(arguments.except, [PathBuf::from(except)]);
    }
}
