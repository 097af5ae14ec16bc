//! A volume that is being watched.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hemi_server::control::api::VolumeStatus;
use hemi_server::control::events::{Event, Severity};
use hemi_server::control::health::Health;
use tokio::sync::mpsc;

use super::deliver::{Happened, unix_ms};
use super::{Target, is_news};
use crate::client::Client;
use crate::commands::events::Page;

/// The pause before a volume that does not answer is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// The time without an answer after which a volume that was not stopped is news.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(30);

/// A volume and its state.
struct Watched {
    name: String,
    client: Client,
    /// True if the volume's own name counts.
    is_found: bool,
    /// The id of the last event that was sent, or `None` if the volume is seen for the first time.
    last: Option<u64>,
    /// True if events show that it was stopped.
    is_stopped: bool,
    silent_since: Option<Instant>,
    is_unreachable: bool,
    out: mpsc::Sender<Happened>,
}

/// Watches a volume forever. Sends each event after `last`, or each from now on if that is `None`.
pub(super) async fn watch(target: Target, last: Option<u64>, out: mpsc::Sender<Happened>) {
    let Target { name, client, is_found } = target;
    let mut watched = Watched {
        name,
        client,
        is_found,
        last,
        is_stopped: false,
        silent_since: None,
        is_unreachable: false,
        out,
    };
    while !watched.out.is_closed() {
        if let Err(error) = watched.follow().await {
            tracing::debug!(volume = watched.name, %error, "it does not answer");
        }
        watched.note_silence().await;
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

impl Watched {
    /// Sends events until the volume goes away.
    async fn follow(&mut self) -> Result<()> {
        let status: VolumeStatus = self.client.get("/v1/status").await?;
        self.silent_since = None;
        if self.is_found && self.name != status.name {
            // It did not tell its name when it was found, or another volume has come to this socket.
            tracing::info!(volume = status.name, socket = %self.client.socket().display(), "watching");
            self.name.clone_from(&status.name);
        }
        if std::mem::take(&mut self.is_unreachable) {
            self.tell("reachable", Severity::Notice, "The volume answers again.".into(), 0).await;
        }
        let after = match self.last {
            Some(last) => last,
            None => self.first_sight(&status).await?,
        };
        self.last = Some(after);
        // Events that happened while nobody watched come first.
        let (send, mut receive) = mpsc::channel(16);
        let path = format!("/v1/events/stream?after={after}");
        let client = &self.client;
        let streaming = client.lines(&path, |line| {
            let event: Event =
                serde_json::from_slice(line).context("a line of the event stream")?;
            // A volume keeps its events: those that find no room are requested again.
            match send.try_send(event) {
                Ok(()) => Ok(ControlFlow::Continue(())),
                Err(_) => Ok(ControlFlow::Break(())),
            }
        });
        let mut streaming = std::pin::pin!(streaming);
        let ended = loop {
            tokio::select! {
                ended = &mut streaming => break ended,
                Some(event) = receive.recv() => {
                    self.silent_since = None;
                    self.is_stopped = event.kind == "stopped" && event.severity < Severity::Critical;
                    self.last = Some(event.id);
                    send_on(&self.name, &self.out, event).await;
                }
            }
        };
        while let Ok(event) = receive.try_recv() {
            self.is_stopped = event.kind == "stopped" && event.severity < Severity::Critical;
            self.last = Some(event.id);
            send_on(&self.name, &self.out, event).await;
        }
        ended
    }

    /// Examines a volume that is seen for the first time, and returns the id of its newest event.
    /// Reports the volume if it is already at risk.
    async fn first_sight(&mut self, status: &VolumeStatus) -> Result<u64> {
        let newest: Page = self.client.get("/v1/events?limit=1").await?;
        if status.health > Health::Healthy {
            let text = format!("{} It was so when the monitor began.", status.summary.text);
            // With this id the next monitor goes on from here, and does not report it again.
            self.tell("at-risk", Severity::Warning, text, newest.next).await;
        }
        Ok(newest.next)
    }

    /// Notes that the volume does not answer, and reports it when that has lasted.
    async fn note_silence(&mut self) {
        if self.is_unreachable || self.is_stopped {
            return;
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= UNREACHABLE_AFTER {
            self.is_unreachable = true;
            let text = format!(
                "The volume has not answered for {} s, and had not been stopped.",
                UNREACHABLE_AFTER.as_secs()
            );
            self.tell("unreachable", Severity::Critical, text, 0).await;
        }
    }

    /// Reports an observation of the monitor itself. `id` is that of the newest event known with
    /// it.
    async fn tell(&self, kind: &'static str, severity: Severity, text: String, id: u64) {
        let event =
            Event { id, at: unix_ms(), kind: kind.into(), severity, text, ..Event::default() };
        send_on(&self.name, &self.out, event).await;
    }
}

async fn send_on(volume: &str, out: &mpsc::Sender<Happened>, event: Event) {
    let is_news = is_news(&event);
    // Nobody takes it when the monitor ends.
    let _ = out.send(Happened { volume: volume.to_owned(), event, is_news }).await;
}
