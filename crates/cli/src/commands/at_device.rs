//! A hidden command: what waits for requests of a block device, in a process of its own.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use hemi_server::device::apart;

#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct AtDeviceArgs {
    /// The queue's directory in sysfs, or the block device to flush and hold until standard input ends.
    path: PathBuf,

    /// A setting of the queue.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(arguments: &AtDeviceArgs) -> Result<()> {
    match arguments.set.as_slice() {
        [] => apart::hold_until_input_ends(&arguments.path)?,
        settings => apart::write_settings(&arguments.path, settings)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::arguments::{Arguments, Command};

    #[test]
    fn a_server_calls_it_by_its_name() {
        let [path, setting] = ["/sys/block/ublkb0/queue", "scheduler=none"];
        let line = ["hemi", apart::COMMAND, path, apart::SET_OPTION, setting];
        let matches = Arguments::command().get_matches_from(line);
        let parsed = Arguments::from_arg_matches(&matches).expect("it has been matched");
        let Command::AtDevice(arguments) = parsed.command else { panic!("another command") };
        assert_eq!(arguments.path, PathBuf::from(path));
        assert_eq!(arguments.set, [setting]);
    }
}
