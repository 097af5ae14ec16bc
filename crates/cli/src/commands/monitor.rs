//! `hemi monitor`: mails important events, and runs a program for every event.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use hemi_server::control::events::{Event, Severity};
use hemi_server::control::health::Condition;
use tokio::sync::mpsc;

use crate::client::{self, Client};
use crate::failure::{Failure, Kind};
use crate::logging::{self, LogArgs};
use deliver::{Delivery, Happened};
use known::Known;

mod deliver;
mod known;
mod volume;

/// The time between two searches for volumes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The condition of a volume whose leg does not answer. The leg answers again, or is out in the end.
const SILENT: &str = Condition::LegSilent.name();
/// The number of events that may wait for delivery. Volumes keep those that do not fit.
const WAITING_MAX: usize = 64;

/// Mail what happens to served volumes.
///
/// Watches the volumes that are named, or all that are served on this machine now or later. Mails
/// events that need attention, and runs a program for every event. Remembers across its restarts
/// which events it has delivered.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi monitor --mail root
  hemi monitor --mail admin@example.org --program /usr/local/bin/page-somebody --volume db
  hemi monitor --mail root --test")]
pub(crate) struct MonitorArgs {
    /// Mail events that need attention to this address, with sendmail(8).
    #[arg(long, value_name = "ADDRESS")]
    mail: Option<String>,

    /// Run this program for every event, with the event's kind, the volume and the leg.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// Deliver a test event for each volume, and exit.
    #[arg(long)]
    test: bool,

    /// Watch this volume, and not all; may be repeated.
    #[arg(long, value_name = "NAME")]
    volume: Vec<String>,

    /// Watch the volume with this control socket, and not all; may be repeated.
    #[arg(long, value_name = "PATH")]
    control: Vec<PathBuf>,

    /// The program that takes mail as sendmail(8) does.
    #[arg(long, value_name = "PATH", default_value = "/usr/sbin/sendmail")]
    sendmail: PathBuf,

    #[command(flatten)]
    log: LogArgs,
}

impl MonitorArgs {
    fn check(&self) -> Result<()> {
        let refuse = |what: String, way_out: &str| Err(Failure::error(Kind::Usage, what, way_out));
        if self.mail.is_none() && self.program.is_none() {
            return refuse("nobody would be told".into(), "Give --mail, --program, or both.");
        }
        if let Some(address) = &self.mail
            && (address.is_empty()
                || address.starts_with('-')
                || address.chars().any(char::is_control))
        {
            let what = format!("--mail {address:?} is no address");
            return refuse(what, "Write for example root or admin@example.org.");
        }
        let programs = self.program.iter().chain(self.mail.as_ref().map(|_| &self.sendmail));
        for program in programs {
            if !program.is_file() {
                let what = format!("there is no program {}", program.display());
                return refuse(
                    what,
                    "Name it by its full path; --sendmail names the one that takes mail.",
                );
            }
        }
        Ok(())
    }

    fn delivery(&self) -> Delivery {
        let mail = self.mail.clone().map(|address| (address, self.sendmail.clone()));
        Delivery::new(mail, self.program.clone())
    }

    /// Returns the volumes to watch. Volumes that are named need not be served.
    fn volumes(&self) -> Vec<Target> {
        let at = |name: String, socket: &PathBuf, is_found| Target {
            name,
            client: Client::at(socket.clone()),
            is_found,
        };
        if self.volume.is_empty() && self.control.is_empty() {
            return client::served()
                .into_iter()
                .map(|(name, path)| at(name, &path, true))
                .collect();
        }
        let given = |socket: &PathBuf| at(socket.display().to_string(), socket, false);
        let mut found: Vec<Target> = self.control.iter().map(given).collect();
        for name in &self.volume {
            let target = |client| Target { name: name.clone(), client, is_found: false };
            found.extend(client::client_of(name).map(target));
        }
        found
    }
}

/// A volume to watch.
struct Target {
    name: String,
    client: Client,
    /// True if nobody named it. Its name is then the one that it gives itself.
    is_found: bool,
}

pub(crate) fn run(arguments: &MonitorArgs) -> Result<()> {
    arguments.check()?;
    if arguments.test {
        return test(arguments);
    }
    let _logging = logging::start(&arguments.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(watch(arguments))
}

/// Delivers a test event for each volume. Fails if one could not be delivered.
fn test(arguments: &MonitorArgs) -> Result<()> {
    let mut volumes: Vec<String> = arguments.volumes().into_iter().map(|one| one.name).collect();
    if volumes.is_empty() {
        volumes.push("(no volume is served here)".into());
    }
    let delivery = arguments.delivery();
    for volume in volumes {
        let text = "This is a test. Nothing has happened.";
        let event = Event {
            at: deliver::unix_ms(),
            kind: "test".into(),
            text: text.into(),
            ..Event::default()
        };
        let happened = Happened { volume: volume.clone(), event, is_news: true };
        delivery.run_program(&happened).and_then(|()| delivery.mail(&[&happened])).map_err(
            |error| {
                Failure::error(
                    Kind::Failed,
                    format!("the test was not delivered: {error}"),
                    "See there.",
                )
            },
        )?;
        println!("delivered a test event of {volume}");
    }
    Ok(())
}

/// Watches until a signal ends the process.
async fn watch(arguments: &MonitorArgs) -> Result<()> {
    let (out, mut happened) = mpsc::channel::<Happened>(WAITING_MAX);
    let mut known = Known::open();
    let mut watched: HashSet<PathBuf> = HashSet::new();
    let mut pending = Pending::default();
    let delivery = std::sync::Arc::new(arguments.delivery());
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut looked: Option<Instant> = None;
    loop {
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) {
            looked = Some(Instant::now());
            for target in arguments.volumes() {
                if watched.insert(target.client.socket().to_owned()) {
                    tracing::info!(volume = target.name, "watching");
                    let last = known.of(&target.name).map(|told| told.mailed);
                    tokio::spawn(volume::watch(target, last, out.clone()));
                }
            }
        }
        tokio::select! {
            Some(one) = happened.recv(), if pending.has_room() => {
                let delivery = std::sync::Arc::clone(&delivery);
                // Events not mailed before the last stop are mailed now. The program has been run
                // for them.
                let id = one.event.id;
                let is_known = id > 0 && known.of(&one.volume).is_some_and(|told| id <= told.run);
                let run = tokio::task::spawn_blocking(move || {
                    if !is_known && let Err(error) = delivery.run_program(&one) {
                        tracing::warn!(%error, kind = &*one.event.kind, volume = one.volume, "not delivered");
                    }
                    one
                });
                if let Ok(one) = run.await {
                    let (volume, is_news) = (one.volume.clone(), one.is_news);
                    if is_news {
                        pending.add(one);
                    }
                    if id > 0 {
                        known.note_run(&volume, id, pending.news.is_empty());
                    }
                }
            }
            _ = ticks.tick() => {}
        }
        if pending.is_due() {
            let (delivery, news) =
                (std::sync::Arc::clone(&delivery), std::mem::take(&mut pending.news));
            let mailed = tokio::task::spawn_blocking(move || {
                let sent = delivery.mail(&news.iter().collect::<Vec<_>>());
                (sent, news)
            });
            if let Ok((sent, news)) = mailed.await {
                pending.mailed(sent, news);
            }
            if pending.news.is_empty() {
                known.note_mailed();
            }
        }
    }
}

/// News that waits to be mailed.
#[derive(Debug, Default)]
struct Pending {
    news: Vec<Happened>,
    /// The time at which the oldest of the news came.
    since: Option<Instant>,
    last_mail: Option<Instant>,
}

impl Pending {
    /// The time for which news is collected for one mail.
    const COLLECT: Duration = Duration::from_secs(3);
    /// The shortest time between two mails.
    const BETWEEN: Duration = Duration::from_secs(60);
    /// The most news items that wait for a mail.
    const NEWS_MAX: usize = 256;

    fn has_room(&self) -> bool {
        self.news.len() < Pending::NEWS_MAX
    }

    fn add(&mut self, happened: Happened) {
        self.since.get_or_insert_with(Instant::now);
        self.news.push(happened);
    }

    fn is_due(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= Pending::COLLECT)
            && self.last_mail.is_none_or(|last| last.elapsed() >= Pending::BETWEEN)
    }

    fn mailed(&mut self, sent: std::io::Result<()>, news: Vec<Happened>) {
        self.last_mail = Some(Instant::now());
        match sent {
            Ok(()) => {
                self.since = None;
                tracing::info!(events = news.len(), "mailed");
            }
            Err(error) => {
                tracing::error!(%error, events = news.len(), "the mail was not sent; it is tried again");
                self.news = news;
            }
        }
    }
}

/// Returns true if an event needs attention. An event that passes by itself and that clients do not
/// notice does not.
fn is_news(event: &Event) -> bool {
    let is_silence = event.values.get("condition").is_some_and(|name| name == SILENT);
    let passes = matches!(&*event.kind, "freeze" | "throttle") || is_silence;
    event.severity >= Severity::Warning && !passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_no_news() {
        let event = |kind: &'static str, severity, condition: Option<Condition>| {
            let mut event = Event { kind: kind.into(), severity, ..Event::default() };
            if let Some(condition) = condition {
                event.values.insert("condition".into(), condition.name().into());
            }
            is_news(&event)
        };
        assert!(event("out", Severity::Warning, None));
        assert!(event("condition", Severity::Warning, Some(Condition::SoleLeg)));
        assert!(event("condition", Severity::Critical, Some(Condition::NoLegAnswers)));
        assert!(!event("condition", Severity::Warning, Some(Condition::LegSilent)));
        assert!(!event("condition", Severity::Notice, None));
        assert!(!event("freeze", Severity::Warning, None));
    }
}
