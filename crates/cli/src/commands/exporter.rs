//! `hemi exporter`: the metrics of all volumes of a machine, on one port.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use hemi_server::config::HttpAddress;
use hemi_server::control::metrics::merged::{self, Scraped};
use hemi_server::control::socket::{VolumeSocket, run_directories};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::failure::{Failure, Kind};
use crate::logging::{self, LogArgs};

/// The longest wait for a volume's answer, well below the 10 s that Prometheus waits by default.
const PATIENCE: Duration = Duration::from_secs(3);

/// Serve the metrics of all volumes of this machine to Prometheus.
///
/// Looks for control sockets in the run directories at each scrape, asks all volumes at once, and
/// answers with what they tell within 3 s. hemi_up says which of them did not answer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi exporter
  hemi exporter --http 192.0.2.7:10810 --http-public")]
pub(crate) struct ExporterArgs {
    /// Address to listen on.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10810")]
    http: HttpAddress,

    /// Allow an address that other machines can reach. They read the metrics without a token.
    #[arg(long)]
    http_public: bool,

    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(arguments: &ExporterArgs) -> Result<()> {
    let _logging = logging::start(&arguments.log)?;
    let listener = bind(arguments)?;
    tracing::info!(address = %listener.local_addr()?, "metrics of all volumes");
    let known = Arc::new(Known::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A signal ends the process, which has nothing to close.
    let (_stop, stopped) = watch::channel(false);
    let scrape = move || scrape(Arc::clone(&known));
    Ok(runtime.block_on(merged::serve(listener, scrape, stopped))?)
}

fn bind(arguments: &ExporterArgs) -> Result<TcpListener> {
    let address = &arguments.http;
    let listener = TcpListener::bind((address.host.as_str(), address.port)).map_err(|error| {
        let what = format!("cannot listen on {address}: {error} (--http)");
        Failure::error(Kind::Failed, what, "Name another address or port.")
    })?;
    // A name is resolved only now.
    let bound = listener.local_addr()?;
    if !bound.ip().is_loopback() && !arguments.http_public {
        return Err(Failure::error(
            Kind::Usage,
            format!("{bound} can be reached from other machines (--http)"),
            format!(
                "Add --http-public to allow it, or listen on a loopback address, such as 127.0.0.1:{}.",
                bound.port()
            ),
        ));
    }
    Ok(listener)
}

/// The name that each socket's volume told last, and whether it answered. The name of a volume that does
/// not answer any more is not in its socket's path: other characters are `_` there.
#[derive(Debug, Default)]
struct Known(Mutex<HashMap<PathBuf, (String, bool)>>);

impl Known {
    /// Notes an answer, and logs if the volume has begun or ceased to answer. Returns the volume's name.
    fn note(&self, control: &Path, name: Option<String>, problem: Option<&str>) -> String {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(control);
        let stem = || control.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.or_else(|| Some(before?.0.clone())).unwrap_or_else(stem);
        if before.is_none_or(|(_, was_up)| *was_up != problem.is_none()) {
            match problem {
                None => tracing::info!(volume = name, "answers"),
                Some(problem) => tracing::warn!(volume = name, problem, "does not answer"),
            }
        }
        known.insert(control.to_owned(), (name.clone(), problem.is_none()));
        name
    }

    /// Forgets sockets that are gone.
    fn keep(&self, sockets: &[PathBuf]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|control, _| sockets.contains(control));
    }
}

/// Asks all volumes of this machine at once.
async fn scrape(known: Arc<Known>) -> Vec<Scraped> {
    let sockets = control_sockets();
    known.keep(&sockets);
    let mut asked = JoinSet::new();
    for socket in sockets {
        let known = Arc::clone(&known);
        asked.spawn(async move { ask(socket, &known).await });
    }
    let mut answers: Vec<Scraped> = asked.join_all().await.into_iter().flatten().collect();
    answers.sort_by(|one, other| (&one.volume, &one.control).cmp(&(&other.volume, &other.control)));
    answers
}

/// Asks the volume behind a socket. Returns `None` if no volume is there: it has been stopped since, or
/// something else answers.
async fn ask(control: PathBuf, known: &Known) -> Option<Scraped> {
    let client = Arc::new(Client::at(control.clone()));
    let answer = async {
        match client.metrics().await {
            Ok(answer) => Some(Ok(answer)),
            Err(_) if !control.exists() => None,
            Err(error) => {
                let asked = Arc::clone(&client);
                let is_other = tokio::task::spawn_blocking(move || asked.meets_another()).await;
                (!is_other.unwrap_or(false)).then(|| Err(format!("{error:#}")))
            }
        }
    };
    let late = || Some(Err(format!("no answer within {} s", PATIENCE.as_secs())));
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| late())?;
    let (name, metrics, problem) = match answer {
        Ok((name, text)) => (name, Some(text), None),
        Err(problem) => (None, None, Some(problem)),
    };
    let volume = known.note(&control, name, problem.as_deref());
    Some(Scraped { volume, control, metrics })
}

/// Returns the control sockets in the run directories. Two of these may be one directory.
fn control_sockets() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        run_directories().iter().filter_map(|directory| directory.canonicalize().ok()).collect();
    directories.dedup();
    let entries = directories.iter().filter_map(|directory| std::fs::read_dir(directory).ok());
    let paths = entries.flat_map(|entries| entries.flatten().map(|entry| entry.path()));
    let extension = VolumeSocket::Control.extension();
    paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter(|path| path.metadata().is_ok_and(|found| found.file_type().is_socket()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_ceases_to_answer_keeps_its_name() {
        let (known, control) = (Known::default(), Path::new("/run/hemi/my_db.sock"));
        assert_eq!(known.note(control, None, Some("late")), "my_db", "nothing else is known yet");
        assert_eq!(known.note(control, Some("my db".into()), None), "my db");
        assert_eq!(known.note(control, None, Some("late")), "my db");
        known.keep(&[]);
        assert_eq!(known.note(control, None, Some("late")), "my_db", "another may have the path");
    }
}
