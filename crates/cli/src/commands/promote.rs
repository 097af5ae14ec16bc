//! `hemi promote`: the operator's decision that one leg decides alone.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use hemi_io::config::legs::{LegConfig, LegSpec, LegSpecError};
use hemi_server::config::Config;
use hemi_server::config::place::Place;
use hemi_server::promote::{LedgerAsked, PromotionPlan, PromotionReport, Stretch};
use hemi_units::Time;
use hemi_units::prose::bytes;

use super::volume::LedgerArgs;
use crate::failure::{Failure, Kind};
use crate::logging::{self, LogArgs};

/// The most stretches that are listed. The sum covers all.
const LISTED_MAX: usize = 20;

/// Let one leg decide alone, where hemi serve refuses to guess.
///
/// Use it if the other legs are lost, or damaged so that recovery cannot tell which leg is right.
/// The volume must not be served. Every other leg is out from then on and can only rejoin by being
/// refilled. Extents that this leg knows it lacks cannot be read until they are written again. It
/// may lack more than it knows. If the volume was served with a ledger since the machine started,
/// the ledger tells where. It is removed after the promotion.
///
/// If the volume was not closed, a remote leg is first left alone for its --quarantine, since its
/// server may still carry out writes of the hemi that was killed.
///
/// Without --accept-loss it lists the data that would be given up, changes nothing and exits
/// with 3.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
#[command(after_help = "\
Examples:
  hemi promote /dev/nvme0n1p3                 what would be given up?
  hemi promote /dev/nvme0n1p3 --accept-loss   do it
  hemi promote /etc/hemi/db.toml ssd          the leg and the ledger of a configuration
  hemi serve --leg /dev/nvme0n1p3 --nbd unix:/run/hemi/db.nbd")]
pub(crate) struct PromoteArgs {
    /// The volume's configuration file: its ledger, its name and the leg's options count.
    #[arg(value_name = "CONFIG.toml")]
    file: Option<PathBuf>,

    /// The leg: a path, stripe:PATH,PATH[,chunk=64K], end:PATH, external:PATH,metadata=PATH, or an
    /// NBD URI; with CONFIG.toml, one of its legs, by this or by its name.
    #[arg(value_name = "LEG")]
    leg: String,

    /// Promote the leg and give up the data that only other legs hold.
    #[arg(long)]
    accept_loss: bool,

    /// A remote leg: how long the writes of a hemi that was killed may still land [default: 10s].
    #[arg(long, value_name = "DURATION")]
    quarantine: Option<Time>,

    /// Do not bypass the page cache (for file systems without O_DIRECT).
    #[arg(long)]
    no_direct: bool,

    #[command(flatten)]
    ledger: LedgerArgs,

    /// Print the losses as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    log: LogArgs,
}

/// The leg, and what the configuration says of its volume.
struct Named {
    leg: LegConfig,
    place: Place,
    /// The name that the volume must have.
    volume: Option<String>,
}

impl PromoteArgs {
    fn named(&self) -> Result<Named> {
        let (mut leg, place, volume) = match &self.file {
            Some(file) => {
                let config = Config::load(file, &[])?;
                config.check()?;
                let leg = leg_of(&config, file, &self.leg)?;
                (leg, config.ledger, config.volume)
            }
            None if Path::new(&self.leg).extension().is_some_and(|end| end == "toml") => {
                return Err(Failure::error(
                    Kind::Usage,
                    format!("no leg is named beside {}", self.leg),
                    format!("Name it: hemi promote {} LEG.", self.leg),
                ));
            }
            None => {
                let spec = self.leg.parse().map_err(|error: LegSpecError| {
                    Failure::error(Kind::Usage, error.to_string(), "")
                })?;
                (LegConfig::new(spec), Place::default(), None)
            }
        };
        leg.quarantine = self.quarantine.or(leg.quarantine);
        leg.direct &= !self.no_direct;
        leg.check("leg")?;
        Ok(Named { leg, place: self.ledger.place_or(place), volume })
    }
}

/// Returns the leg of a configuration with this name or spec. A configuration that looks for its legs has any.
fn leg_of(config: &Config, file: &Path, text: &str) -> Result<LegConfig> {
    let spec = text.parse::<LegSpec>().ok();
    let full = |spec: &LegSpec| spec.absolute().unwrap_or_else(|_| spec.clone());
    let is_meant = |leg: &&LegConfig| {
        leg.label() == text || spec.as_ref().is_some_and(|spec| full(spec) == full(&leg.path))
    };
    if let Some(leg) = config.legs.iter().find(is_meant) {
        return Ok(leg.clone());
    }
    match spec {
        Some(spec) if config.scan.is_some() => Ok(LegConfig::new(spec)),
        _ => {
            let labels: Vec<String> = config.legs.iter().map(LegConfig::label).collect();
            Err(Failure::error(
                Kind::Usage,
                format!("{text} is no leg of {}, which has {}", file.display(), labels.join(", ")),
                "Name one of these, or leave out CONFIG.toml.",
            ))
        }
    }
}

pub(crate) fn run(arguments: &PromoteArgs) -> Result<()> {
    let named = arguments.named()?;
    let Named { leg, place, volume } = &named;
    let _logging = logging::start(&arguments.log)?;
    let plan = PromotionPlan::new(leg, place)?;
    if let Some(wanted) = volume.as_ref().filter(|wanted| *wanted != plan.volume()) {
        return Err(Failure::error(
            Kind::Refused,
            format!("{} belongs to volume {:?}, not to {wanted:?}", leg.label(), plan.volume()),
            "Name a leg of that volume, or leave out CONFIG.toml.",
        ));
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(plan.report())?)?;
    } else {
        out.write_all(told(plan.report()).as_bytes())?;
    }
    if !arguments.accept_loss {
        return Err(Failure::error(
            Kind::Refused,
            "nothing was changed",
            "Look for the missing legs first. To go on without them: --accept-loss.",
        ));
    }
    let report = plan.carry_out()?;
    if !arguments.json {
        writeln!(
            out,
            "\nLeg {} decides alone now. Serve the volume with it, and give it others with \
             'hemi leg add' or 'hemi leg replace'.",
            report.leg
        )?;
    }
    Ok(())
}

fn told(report: &PromotionReport) -> String {
    use std::fmt::Write as _;
    let mut text = format!("volume {:?}, leg {} ({})\n\n", report.volume, report.leg, report.path);
    let others: Vec<String> = report.others.iter().map(u8::to_string).collect();
    let others = match others.len() {
        0 => "No other leg belongs to the volume.".to_owned(),
        _ => format!("Out from then on: leg {}.", others.join(", leg ")),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{others}");
    let by_ledger = matches!(report.ledger, LedgerAsked::Read { .. });
    if report.lacks.is_empty() {
        text.push_str("This leg knows of nothing that it lacks.\n");
    } else {
        let _ = writeln!(
            text,
            "This leg knows that it lacks {}; reading there fails until it is written again:",
            bytes(report.lacks_bytes)
        );
        list(&mut text, &report.lacks);
    }
    if report.uncertain_regions > 0 {
        let size = bytes(u64::from(report.uncertain_regions) * report.region_bytes);
        let why = if by_ledger {
            "were being written under another leg's authority by the ledger, or this leg is behind there"
        } else {
            "more were being written under another leg's authority"
        };
        let _ = writeln!(
            text,
            "{size} {why}: the newest writes there may be missing, and older ones be read instead:"
        );
        list(&mut text, &report.uncertain);
    }
    text.push_str(&unknown(&report.ledger));
    if by_ledger && report.uncertain_regions == 0 {
        text.push_str("By the ledger this leg is complete everywhere else.\n");
    }
    if by_ledger {
        text.push_str(
            "The ledger is of the last start that this leg took part in: nothing more is missing, \
             unless others went on without it since.\n",
        );
    } else if report.closed {
        text.push_str(
            "As far as this leg knows the volume was closed clean; if others were used after \
             that, more is missing.\n",
        );
    } else {
        text.push_str(
            "The volume was open when this leg was last written: more may be missing than it \
             knows, if others went on without it.\n",
        );
    }
    text
}

/// Lists stretches, up to the maximum.
fn list(text: &mut String, stretches: &[Stretch]) {
    use std::fmt::Write as _;
    // Writing to a String cannot fail.
    for stretch in stretches.iter().take(LISTED_MAX) {
        let _ =
            writeln!(text, "  {} at byte {}", bytes(stretch.length_bytes), stretch.offset_bytes);
    }
    if let Some(more) = stretches.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "  and {more} stretches more (--json lists all)");
    }
}

/// Describes what cannot be known without the ledger.
fn unknown(ledger: &LedgerAsked) -> String {
    match ledger {
        LedgerAsked::NoneReliedOn | LedgerAsked::Read { .. } => String::new(),
        LedgerAsked::OfAnotherBoot => "The volume was served with a ledger, which ended when the \
             machine was restarted: writes that were acknowledged and not flushed may be missing \
             without this leg knowing.\n"
            .into(),
        LedgerAsked::Unknown { problem, looked_at } => {
            let paths: Vec<String> =
                looked_at.iter().map(|path| path.display().to_string()).collect();
            format!(
                "The volume was served with a ledger, and without it nobody knows which regions \
                 other legs had taken over: acknowledged writes may be missing anywhere without \
                 this leg knowing. The ledger {problem} (looked for at {}; another place is named \
                 by --ledger).\n",
                paths.join(" and ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_told() {
        let stretch = |index: u64| Stretch { offset_bytes: index << 20, length_bytes: 65536 };
        let report = PromotionReport {
            volume: "db".into(),
            path: "/dev/sdb".into(),
            leg: 1,
            closed: false,
            others: vec![0, 2],
            lacks: (0..22).map(stretch).collect(),
            lacks_bytes: 22 * 65536,
            uncertain: vec![Stretch { offset_bytes: 0, length_bytes: 3 * 65536 }],
            uncertain_regions: 3,
            region_bytes: 65536,
            ledger: LedgerAsked::Unknown {
                problem: "is missing".into(),
                looked_at: vec!["/run/hemi/db.ledger".into()],
            },
        };
        let text = told(&report);
        for part in [
            "volume \"db\", leg 1 (/dev/sdb)",
            "Out from then on: leg 0, leg 2.",
            "lacks 1.4 MiB; reading there fails",
            "  64 KiB at byte 1048576\n",
            "and 2 stretches more",
            "192 KiB more were being written",
            "  192 KiB at byte 0\n",
            "The ledger is missing (looked for at /run/hemi/db.ledger;",
            "The volume was open",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }
}
