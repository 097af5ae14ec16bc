//! Answers while a start waits for legs: 503 on `/healthz`, and a status that says what is missing.
//!
//! The volume's own control thread begins once the volume is open. Until then this one listens at the same
//! addresses, and answers nothing else. It begins when there is something to wait for, and ends before the
//! others bind.

use std::cell::RefCell;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::sync::watch;

use super::api::VolumeStatus;
use super::connections;
use super::health;
use super::metrics;
use super::named;
use super::routes::{health_of, refuse};
use super::socket::{self, OwnedSocket, VolumeSocket};
use super::volume::{Identity, Refusal, RefusalKind, Snapshot};
use crate::config::Config;
use crate::drive::Drives;
use hemi_engine::settings::Settings;
use hemi_io::clock::unix_ms;

/// The place where those who ask wait with the start.
#[derive(Debug)]
pub struct WaitingRoom<'a> {
    config: &'a Config,
    open: RefCell<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    said: Said,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The status of a volume that is not open, with the legs it waits for.
#[derive(Clone, Debug)]
struct Said {
    status: Arc<Mutex<VolumeStatus>>,
}

impl<'a> WaitingRoom<'a> {
    /// Returns a room that is closed.
    pub fn new(config: &'a Config) -> WaitingRoom<'a> {
        WaitingRoom { config, open: RefCell::default() }
    }

    /// Says what the start waits for, and opens the room if it is closed. What cannot be bound is left: the
    /// start goes on, and its own listeners report the error.
    pub(crate) fn say(&self, why: &str) {
        super::service::waiting(why);
        let mut open = self.open.borrow_mut();
        match &*open {
            Some(open) => open.said.say(why),
            None => *open = Open::begin(self.config, why),
        }
    }
}

impl Open {
    fn begin(config: &Config, why: &str) -> Option<Open> {
        let name = config.volume.clone().unwrap_or_default();
        let path = match &config.control {
            Some(path) => Some(path.clone()),
            None if name.is_empty() => None,
            None => socket::run_directory()
                .ok()
                .map(|directory| VolumeSocket::Control.path(&directory, &name)),
        };
        let control =
            path.and_then(|path| OwnedSocket::bind(&path, socket::CONTROL_MODE, "--control").ok());
        let http = config.http.as_ref().and_then(|address| {
            let listener = TcpListener::bind((address.host.as_str(), address.port)).ok()?;
            let is_near = listener.local_addr().is_ok_and(|bound| bound.ip().is_loopback());
            (is_near || config.http_public).then_some(listener)
        });
        let status = VolumeStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name,
            policy: config.settings().policy,
            config_file: config.file.clone(),
            ..VolumeStatus::default()
        };
        let said = Said { status: Arc::new(Mutex::new(status)) };
        said.say(why);
        let (stop, stopped) = watch::channel(false);
        let answering = said.clone();
        let thread = std::thread::Builder::new()
            .name("hemi-waiting".into())
            .spawn(move || {
                if let Err(error) = answer(control, http, &answering, stopped) {
                    tracing::debug!(%error, "nothing answers while the start waits");
                }
            })
            .ok()?;
        Some(Open { said, stop, thread: Some(thread) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It has no state that a panic could harm, and the start goes on.
            let _ = thread.join();
        }
    }
}

impl Said {
    fn say(&self, why: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.waits_for = Some(why.to_owned());
        health::fill_in(&mut status, &Settings::default());
    }

    fn status(&self) -> VolumeStatus {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        VolumeStatus { at_ms: unix_ms(), ..status }
    }
}

fn answer(
    control: Option<OwnedSocket>,
    http: Option<TcpListener>,
    said: &Said,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let public = Router::new()
            .route("/healthz", get(healthz))
            .route("/livez", get(livez))
            .route("/metrics", get(metrics_text))
            .fallback(not_open);
        let private = public.clone().route("/v1/status", get(status));
        let private = private.layer(from_fn_with_state(said.clone(), name));
        let http = async {
            let Some(listener) = http else { return Ok(()) };
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            connections::serve(listener, public.with_state(said.clone()), stopped.clone()).await;
            Ok(())
        };
        let control = async {
            let Some(control) = control else { return Ok(()) };
            // The file is removed at the end.
            let (listener, _file) = control.into_parts();
            let listener = tokio::net::UnixListener::from_std(listener)?;
            connections::serve(listener, private.with_state(said.clone()), stopped.clone()).await;
            Ok(())
        };
        let (http, control): (std::io::Result<()>, std::io::Result<()>) =
            tokio::join!(http, control);
        http.and(control)
    })
}

/// Names the volume, if the configuration does, as the volume's own control socket will.
async fn name(State(said): State<Said>, request: Request, next: Next) -> Response {
    match said.status().name.as_str() {
        "" => next.run(request).await,
        name => named::answer(name, request, next).await,
    }
}

async fn status(State(said): State<Said>) -> Json<VolumeStatus> {
    Json(said.status())
}

async fn healthz(State(said): State<Said>) -> Response {
    health_of(&said.status())
}

async fn livez(State(said): State<Said>) -> Response {
    Json(serde_json::json!({ "live": true, "health": said.status().health })).into_response()
}

async fn metrics_text(State(said): State<Said>, headers: HeaderMap) -> Response {
    let status = said.status();
    let identity = Identity { name: status.name.clone(), ..Identity::default() };
    let snapshot = Arc::new(Snapshot::opening(identity, Vec::new()));
    let hidden = status.hidden;
    metrics::answer(&headers, metrics::render(snapshot, status, &Drives::default(), hidden))
}

async fn not_open(State(said): State<Said>) -> Response {
    let summary = said.status().summary;
    let advice = summary.advice.unwrap_or_else(|| "Ask again when the volume is open.".into());
    let mut response = refuse(Refusal::new(RefusalKind::Conflict, summary.text, advice));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}
