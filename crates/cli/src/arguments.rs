//! The command line.

use clap::{Parser, Subcommand};

use crate::commands;

/// The end of the help text.
const AFTER_HELP: &str = "\
Examples:
  hemi create --size 10G --leg /dev/nvme0n1p3 --leg /dev/sdb --name db
  hemi serve --leg /dev/nvme0n1p3 --leg /dev/sdb --nbd unix:/run/hemi/db.nbd
  hemi status --watch

Exit status:
  0  done
  1  failed
  2  the command line or the configuration is invalid
  3  refused, because it could lose data or would have to guess";

/// A volume mirrored over unlike drives.
///
/// hemi mirrors a volume over drives that stall at different times, such as an SSD and a hard
/// disk, or a local drive and a network disk. Writes finish at the speed of whichever drive is
/// not stalling, and no acknowledged write is lost across a crash of hemi.
#[derive(Debug, Parser)]
#[command(name = "hemi", version, long_version = crate::version::version())]
#[command(after_help = AFTER_HELP, max_term_width = 100)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(commands::create::CreateArgs),
    Serve(Box<commands::serve::ServeArgs>),
    Status(commands::status::StatusArgs),
    Dashboard(commands::dashboard::DashboardArgs),
    Events(commands::events::EventsArgs),
    Monitor(commands::monitor::MonitorArgs),
    Exporter(commands::exporter::ExporterArgs),
    Top(commands::top::TopArgs),
    List(commands::list::ListArgs),
    Set(commands::set::SetArgs),
    Attach(commands::attach::AttachArgs),
    DetachDevice(commands::attach::DetachArgs),
    Upgrade(commands::upgrade::UpgradeArgs),
    Grow(commands::grow::GrowArgs),
    Leg(commands::leg::LegArgs),
    Standby(commands::standby::StandbyArgs),
    Scrub(commands::scrub::ScrubArgs),
    Inspect(commands::inspect::InspectArgs),
    Promote(commands::promote::PromoteArgs),
    Settle(commands::settle::SettleArgs),
    Inject(commands::inject::InjectArgs),
    #[cfg(feature = "sim")]
    Advise(Box<commands::advise::AdviseArgs>),
    #[cfg(feature = "sim")]
    Sim(commands::sim::SimArgs),
    #[cfg(feature = "load")]
    Load(commands::load::LoadArgs),
    #[cfg(feature = "sim")]
    Trace(commands::trace::TraceArgs),
    Demo(crate::demo::DemoArgs),
    Config(commands::config::ConfigArgs),
    Generate(commands::generate::GenerateArgs),
    AtDevice(commands::at_device::AtDeviceArgs),
    LookForLegs(commands::look_for_legs::LookForLegsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Every command has a page that names all of its options.
    #[test]
    fn the_documentation_has_every_option() {
        let pages = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands");
        for command in Arguments::command().get_subcommands() {
            if command.is_hide_set() {
                continue;
            }
            let page = pages.join(format!("{}.md", command.get_name()));
            let text = std::fs::read_to_string(&page)
                .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            for section in ["## Synopsis", "## Description", "## Examples", "## Exit status"] {
                assert!(text.contains(section), "{} lacks {section}", page.display());
            }
            let nested = command.get_subcommands().flat_map(|nested| nested.get_arguments());
            for argument in command.get_arguments().chain(nested) {
                if let Some(long) = argument.get_long().filter(|_| !argument.is_hide_set()) {
                    let option = format!("--{long}");
                    assert!(text.contains(&option), "{} lacks {option}", page.display());
                }
            }
            for nested in command.get_subcommands() {
                let name = format!("{} {}", command.get_name(), nested.get_name());
                assert!(text.contains(&name), "{} lacks {name}", page.display());
            }
        }
    }
}
