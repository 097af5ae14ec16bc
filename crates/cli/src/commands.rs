//! The subcommands, one file each.

use std::process::ExitCode;

use anyhow::Result;

use crate::arguments::Command;

#[cfg(feature = "sim")]
pub(crate) mod advise;
pub(crate) mod at_device;
pub(crate) mod attach;
pub(crate) mod config;
pub(crate) mod create;
pub(crate) mod dashboard;
pub(crate) mod events;
pub(crate) mod exporter;
pub(crate) mod generate;
pub(crate) mod grow;
pub(crate) mod inject;
pub(crate) mod inspect;
pub(crate) mod leg;
pub(crate) mod list;
#[cfg(feature = "load")]
pub(crate) mod load;
pub(crate) mod look_for_legs;
pub(crate) mod monitor;
pub(crate) mod promote;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod set;
pub(crate) mod settle;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod standby;
pub(crate) mod status;
pub(crate) mod top;
#[cfg(feature = "sim")]
pub(crate) mod trace;
pub(crate) mod upgrade;
mod volume;

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Create(arguments) => done(create::run(&arguments)),
        Command::Inspect(arguments) => done(inspect::run(&arguments)),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Dashboard(arguments) => done(dashboard::run(&arguments)),
        Command::Events(arguments) => done(events::run(&arguments)),
        Command::Exporter(arguments) => done(exporter::run(&arguments)),
        Command::Monitor(arguments) => done(monitor::run(&arguments)),
        Command::Top(arguments) => done(top::run(&arguments)),
        Command::List(arguments) => list::run(&arguments),
        Command::Set(arguments) => done(set::run(&arguments)),
        Command::Attach(arguments) => done(attach::attach(&arguments)),
        Command::DetachDevice(arguments) => done(attach::detach(&arguments)),
        Command::Upgrade(arguments) => done(upgrade::run(&arguments)),
        Command::Grow(arguments) => done(grow::run(&arguments)),
        Command::Leg(arguments) => done(leg::run(&arguments)),
        Command::Standby(arguments) => done(standby::run(&arguments)),
        Command::Scrub(arguments) => scrub::run(&arguments),
        Command::Promote(arguments) => done(promote::run(&arguments)),
        Command::Settle(arguments) => done(settle::run(&arguments)),
        Command::Inject(arguments) => done(inject::run(&arguments)),
        #[cfg(feature = "sim")]
        Command::Advise(arguments) => done(advise::run(&arguments)),
        #[cfg(feature = "sim")]
        Command::Sim(arguments) => done(sim::run(&arguments)),
        #[cfg(feature = "load")]
        Command::Load(arguments) => done(load::run(&arguments)),
        #[cfg(feature = "sim")]
        Command::Trace(arguments) => done(trace::run(&arguments)),
        Command::Demo(arguments) => done(crate::demo::run(&arguments)),
        Command::Config(arguments) => done(config::run(&arguments)),
        Command::AtDevice(arguments) => done(at_device::run(&arguments)),
        Command::LookForLegs(arguments) => done(look_for_legs::run(&arguments)),
        Command::Generate(arguments) => done(generate::run(&arguments)),
    }
}

fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
