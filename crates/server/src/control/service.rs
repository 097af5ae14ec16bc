//! The process's surroundings: signals that stop it, and notifications to systemd.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::api::VolumeStatus;
use super::health::{self, Health};
use super::routes::{SNAPSHOT_AGE_MAX, Shared};
use super::volume::{Phase, Request};
use crate::handover::store;
use hemi_units::Time;
use hemi_units::prose::bytes;

/// Interval at which the status line for systemd is renewed, if it has changed.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Time requested from systemd repeatedly while a stop drains.
const STOP_EXTENSION: Duration = Duration::from_secs(15);
/// Extension of the start timeout, requested from systemd repeatedly while a start waits for legs. It is
/// longer than a scan of the machine, which may come between two requests.
const WAIT_EXTENSION: Duration = Duration::from_secs(60);
/// Exit code after a third signal, the one that a shell reports for SIGTERM.
const EXIT_AT_ONCE: i32 = 143;

/// TERM, INT and HUP, caught from the moment this is made.
#[derive(Debug)]
pub(super) struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
    is_stopped: Arc<AtomicBool>,
}

impl Signals {
    /// Catches the signals. Must be called within a tokio runtime.
    pub(super) fn catch() -> io::Result<Signals> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
        }
        // A write beyond a limit of the size of files (RLIMIT_FSIZE) would end the process. With the signal
        // caught it fails, and the leg with it.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            is_stopped,
        })
    }

    /// Returns the flag that TERM and INT set as soon as they arrive.
    pub(super) fn is_stopped(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_stopped)
    }

    /// Returns the name of the next signal that stops the volume. HUP does not: a terminal that closes must
    /// not end a volume in use. It reloads the certificates.
    async fn next_stop(&mut self, shared: &Shared) -> &'static str {
        loop {
            tokio::select! {
                _ = self.term.recv() => return "TERM",
                _ = self.interrupt.recv() => return "INT",
                _ = self.hangup.recv() => reload(shared).await,
            }
        }
    }
}

/// Handles signals and notifies systemd until aborted.
pub(super) async fn attend(signals: Signals, shared: Shared) {
    tokio::join!(stop_on(signals, shared.clone()), notify(shared));
}

/// Handles TERM and INT. The first drains and closes, the second closes without draining, and the third ends
/// the process as a kill would. Acknowledged data is safe either way.
async fn stop_on(mut signals: Signals, shared: Shared) {
    for count in 1u32.. {
        let name = signals.next_stop(&shared).await;
        let drain = match count {
            1 => shared.config().drain_on_stop,
            2 => Time(0),
            _ => {
                tracing::error!(signal = name, "ending at once, debts as last recorded");
                std::process::exit(EXIT_AT_ONCE);
            }
        };
        if count == 1 && is_handed_over(name, &shared).await {
            continue;
        }
        tracing::info!(signal = name, drain = %drain, "stopping");
        let outcome = shared.volume.request(Request::Shutdown { drain });
        tokio::spawn(async move {
            if let Err(refusal) = outcome.await {
                tracing::warn!(what = %refusal.what, "stop");
            }
        });
    }
}

/// Hands the clients over to the next start of the service, if systemd keeps them until then. Otherwise
/// returns false, and the volume must be stopped as usual.
async fn is_handed_over(signal: &str, shared: &Shared) -> bool {
    if signal != "TERM" || store::room() == 0 {
        return false;
    }
    match shared.volume.request(Request::HandOver).await {
        Ok(()) => true,
        Err(refusal) => {
            tracing::warn!(what = %refusal.what, "clients are not kept for the next start");
            false
        }
    }
}

async fn reload(shared: &Shared) {
    match shared.volume.request(Request::Reload).await {
        Ok(()) => tracing::info!(signal = "HUP", "certificates read again; TERM stops the volume"),
        Err(refusal) => tracing::warn!(what = %refusal.what, "certificates were not read again"),
    }
}

/// Sends READY once clients are served, STATUS when it changes, and WATCHDOG while the data path moves.
async fn notify(shared: Shared) {
    let watchdog = sd_notify::watchdog_enabled();
    // systemd recommends half of its limit.
    let every = watchdog.map_or(STATUS_EVERY, |limit| (limit / 2).min(STATUS_EVERY));
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut ready, mut told) = (false, String::new());
    loop {
        ticks.tick().await;
        let status = shared.status();
        if !ready && status.phase == Phase::Serving {
            ready = true;
            tell(&[NotifyState::Ready]);
        }
        if status.phase == Phase::Closing {
            // A drain may last longer than systemd's own limit, so ask for more time as it goes on.
            let more = u32::try_from(STOP_EXTENSION.as_micros()).unwrap_or(u32::MAX);
            tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(more)]);
        }
        let line = status_line(&status);
        if line != told {
            tell(&[NotifyState::Status(&line)]);
            told = line;
        }
        let moves = Duration::from_nanos(status.age_ns) <= SNAPSHOT_AGE_MAX;
        if watchdog.is_some() && moves {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Tells systemd that the service is stopping.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells systemd that a start is waiting, and asks for more time.
pub(super) fn waiting(text: &str) {
    let more = u32::try_from(WAIT_EXTENSION.as_micros()).unwrap_or(u32::MAX);
    // A line break would begin another message.
    let text = text.replace('\n', "; ");
    tell(&[NotifyState::ExtendTimeoutUsec(more), NotifyState::Status(&text)]);
}

fn tell(states: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET this does nothing, and with a broken one nobody is listening.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd could not be notified");
    }
}

/// Returns one line for `systemctl status`: the worst condition.
fn status_line(status: &VolumeStatus) -> String {
    let word = health::word(status);
    let line = format!("{} ({}): {word}", status.name, bytes(status.size_bytes));
    match (status.phase, status.health) {
        (Phase::Serving, Health::Degraded | Health::NotServing) => {
            format!("{line}. {}", status.summary.text)
        }
        _ => line,
    }
}
