//! The HTTP routes: the control API on the unix socket; metrics, health and the dashboard on TCP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use hemi_engine::command::ScrubRepair;
use hemi_engine::settings::Settings;
use hemi_units::Extent;
use serde::de::DeserializeOwned;
use tokio::task::JoinError;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::IntervalStream;

use super::Life;
use super::access::{self, Access, AccessAnswer};
use super::api::{
    AddLeg, AddStandby, AttachDevice, AttachLeg, Empty, ErrorBody, Grow, Inject, OneLeg,
    RemoveStandby, ReplaceLeg, Scrub, Shutdown, Upgrade, VolumeStatus,
};
use super::connections::Peer;
use super::events;
use super::health::{self, Health};
use super::history::History;
use super::live::{self, Viewers};
use super::metadata::{self, LostMetadata};
use super::past::Past;
use super::scrubs::{self, Scrubs};
use super::view::volume_status;
use super::volume::{Phase, Refusal, RefusalKind, Request, Volume};
use super::{metrics, named, settings};
use crate::config::Config;
use crate::dashboard;
use crate::drive::Drives;
use hemi_io::clock::unix_ms;

/// Largest body of a request, far above any sensible one.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Interval between two lines of `GET /v1/status/stream`.
pub(super) const STREAM_EVERY: Duration = Duration::from_secs(1);
/// Age of the figures beyond which the data path counts as stuck.
pub(super) const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(10);

pub(super) mod remembered;

/// A request's body, or the reason why it could not be received.
pub(super) type Received = Result<Bytes, BytesRejection>;

/// The state that all routes share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) volume: Arc<dyn Volume>,
    /// The configuration in force.
    pub(super) config: Arc<ArcSwap<Config>>,
    /// Held while the configuration is being changed.
    pub(super) changing: Arc<tokio::sync::Mutex<()>>,
    /// Held only to copy a few figures. The data path never takes it.
    pub(super) history: Arc<Mutex<History>>,
    pub(super) scrubs: Arc<Mutex<Scrubs>>,
    pub(super) life: Arc<Life>,
    pub(super) drives: Arc<Drives>,
    pub(super) lost_metadata: Arc<LostMetadata>,
    /// The rules of the HTTP listener.
    pub(super) access: Arc<Access>,
    pub(super) past: Arc<Past>,
    pub(super) viewers: Arc<Viewers>,
}

impl Shared {
    /// Returns the configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Returns the engine's settings in force.
    pub(super) fn settings(&self) -> Settings {
        self.config.load().settings()
    }

    /// Puts a configuration in force for this thread.
    pub(super) fn replace_config(&self, config: Config) {
        self.config.store(Arc::new(config));
    }

    pub(super) fn status(&self) -> VolumeStatus {
        let (snapshot, settings) = (self.volume.snapshot(), self.settings());
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let mut status = volume_status(&snapshot, &settings, &history, Instant::now());
        drop(history);
        status.scrub.last = self.scrubs().last();
        status.standbys.clone_from(&self.volume.standbys());
        status.config_file.clone_from(&self.config.load().file);
        self.drives.show_in(&mut status);
        self.lost_metadata.show_in(&mut status);
        status.at_ms = unix_ms();
        (status.hidden, status.process) = self.past.figures();
        health::fill_in(&mut status, &settings);
        status
    }

    /// Returns the status of a volume that is no longer served, and what is left on its legs.
    pub(super) fn left(&self) -> (VolumeStatus, health::Summary) {
        let status = self.status();
        let left = health::at_rest(&status, &self.settings());
        (status, left)
    }

    pub(super) fn scrubs(&self) -> MutexGuard<'_, Scrubs> {
        self.scrubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the routes of the control API on the unix socket.
pub(super) fn control(shared: Shared) -> Router {
    Router::new()
        .route("/v1/access", get(access_of_socket))
        .route("/v1/config", get(config))
        .route("/v1/legs/add", post(add))
        .route("/v1/legs/remove", post(remove))
        .route("/v1/standbys/add", post(add_standby))
        .route("/v1/standbys/remove", post(remove_standby))
        .route("/v1/device/attach", post(attach_device))
        .route("/v1/device/detach", post(detach_device))
        .route("/v1/reload", post(reload))
        .route("/v1/upgrade", post(upgrade))
        .route("/v1/grow", post(grow))
        .route("/v1/shutdown", post(shutdown))
        .merge(readable())
        .merge(changeable())
        .merge(observed())
        .merge(dashboard::routes())
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(shared.clone(), named::name))
        .with_state(shared)
}

/// Returns the routes of the HTTP listener: metrics and health for everybody, the dashboard and its requests
/// by the rules of [`Access`].
pub(super) fn public(shared: Shared) -> Router {
    let page = dashboard::routes().route("/v1/access", get(access_of_request));
    Router::new()
        .merge(page.route_layer(from_fn_with_state(shared.clone(), access::page)))
        .merge(readable().route_layer(from_fn_with_state(shared.clone(), access::read)))
        .merge(changeable().route_layer(from_fn_with_state(shared.clone(), access::change)))
        .merge(observed())
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// The paths that a page may ask for, with the token where one is required: those of [`readable`], [`changeable`]
/// and [`observed`].
pub(super) const PAGE_PATHS: [&str; 20] = [
    "/v1/status",
    "/v1/status/stream",
    "/v1/legs",
    "/v1/differences",
    "/v1/settings",
    "/v1/events",
    "/v1/events/stream",
    "/v1/history",
    "/v1/live",
    "/v1/regions",
    "/v1/legs/replace",
    "/v1/legs/detach",
    "/v1/legs/attach",
    "/v1/scrub",
    "/v1/inject",
    "/v1/set",
    "/v1/access",
    "/metrics",
    "/healthz",
    "/livez",
];

/// Returns true if a page may ask for a path. What ends the service, runs another program, changes the machine's
/// devices or tells the configuration is left to the control socket.
pub fn is_for_pages(path: &str) -> bool {
    PAGE_PATHS.contains(&path)
}

/// Returns the routes that only read: on the socket for everybody, on the HTTP listener for clients that may
/// read.
fn readable() -> Router<Shared> {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/status/stream", get(stream))
        .route("/v1/legs", get(legs))
        .route("/v1/differences", get(differences))
        .route("/v1/settings", get(settings::list))
        .route("/v1/events", get(remembered::events))
        .route("/v1/events/stream", get(live::events))
        .route("/v1/history", get(remembered::history))
        .route("/v1/live", get(live::live))
        .route("/v1/regions", get(remembered::regions))
}

/// Returns the routes for changes that are possible over HTTP with the token, as well as on the socket.
/// Requests that end the service, run another program or change the machine's devices are left to the socket.
fn changeable() -> Router<Shared> {
    Router::new()
        .route("/v1/legs/replace", post(replace))
        .route("/v1/legs/detach", post(detach))
        .route("/v1/legs/attach", post(attach))
        .route("/v1/scrub", post(scrub))
        .route("/v1/inject", post(inject))
        .route("/v1/set", post(settings::set))
}

fn observed() -> Router<Shared> {
    Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(healthz))
        .route("/livez", get(livez))
}

async fn access_of_socket(State(shared): State<Shared>) -> Json<AccessAnswer> {
    Json(shared.access.of_socket())
}

async fn access_of_request(State(shared): State<Shared>, headers: HeaderMap) -> Json<AccessAnswer> {
    Json(shared.access.of_request(&headers))
}

async fn status(State(shared): State<Shared>) -> Json<VolumeStatus> {
    Json(shared.status())
}

/// Sends one JSON object a line until the client disconnects.
async fn stream(State(shared): State<Shared>) -> Response {
    let mut ticks = tokio::time::interval(STREAM_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let lines = IntervalStream::new(ticks).map(move |_| {
        let mut line = serde_json::to_vec(&shared.status()).unwrap_or_default();
        line.push(b'\n');
        Ok::<_, Infallible>(Bytes::from(line))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

async fn legs(State(shared): State<Shared>) -> Response {
    Json(shared.status().legs).into_response()
}

async fn differences(State(shared): State<Shared>) -> Response {
    Json(&*shared.volume.snapshot().differences).into_response()
}

async fn config(State(shared): State<Shared>) -> Response {
    Json(&*shared.config()).into_response()
}

async fn add(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |AddLeg { leg, config, wipe, spare }| {
        Ok(Request::Add { leg, config, wipe, spare })
    })
    .await
}

async fn remove(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |OneLeg { leg }| Ok(Request::Remove { leg })).await
}

async fn replace(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |ReplaceLeg { leg, config, wipe, spare }| {
        Ok(Request::Replace { leg, config, wipe, spare })
    })
    .await
}

async fn detach(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |OneLeg { leg }| Ok(Request::Detach { leg })).await
}

async fn attach(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |AttachLeg { config, wipe }| Ok(Request::Attach { config, wipe })).await
}

async fn add_standby(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |AddStandby { config, wipe }| Ok(Request::AddStandby { config, wipe })).await
}

async fn remove_standby(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |RemoveStandby { standby }| Ok(Request::RemoveStandby { standby })).await
}

async fn scrub(State(shared): State<Shared>, body: Received) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreceived(&rejection),
    };
    let asked: Scrub = match parse(&body) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(refusal),
    };
    if asked.stop {
        if asked != (Scrub { stop: true, ..Scrub::default() }) {
            return refuse(Refusal::new(
                RefusalKind::BadRequest,
                "`stop` is set beside other fields",
                "Leave them out.",
            ));
        }
        shared.scrubs().stop();
        return answer(
            tokio::spawn(async move { perform(&shared, Request::ScrubStop).await }).await,
        );
    }
    match scrubs::request(&asked, &shared.volume.snapshot()) {
        Ok((repair, part)) => {
            answer(tokio::spawn(async move { compare(&shared, repair, part).await }).await)
        }
        Err(refusal) => refuse(refusal),
    }
}

/// Compares the legs and keeps the result.
async fn compare(
    shared: &Shared,
    repair: ScrubRepair,
    part: Option<Extent>,
) -> Result<(), Refusal> {
    if shared.volume.snapshot().status.scrub.is_none() {
        shared.scrubs().begin(Instant::now());
    }
    let outcome = perform(shared, Request::Scrub { repair, part }).await;
    match outcome {
        // It fails only if it left what it found.
        Ok(()) | Err(Refusal { kind: RefusalKind::Failed, .. }) => {
            // The snapshot was published before the outcome.
            let snapshot = shared.volume.snapshot();
            let (differ, unreadable) = scrubs::found(&snapshot);
            let repaired = repair != ScrubRepair::Nothing;
            {
                let mut scrubs = shared.scrubs();
                scrubs.end(Instant::now(), differ, unreadable, repaired);
                scrubs.keep_differences(&snapshot.differences);
            }
            let metadata = if part.is_none() { metadata::check(shared).await } else { Ok(()) };
            outcome.map_err(|_| scrubs::left(repair, differ, unreadable)).and(metadata)
        }
        // Another scrub is running.
        Err(Refusal { kind: RefusalKind::Conflict, .. }) => outcome,
        Err(_) => {
            shared.scrubs().refused();
            outcome
        }
    }
}

async fn inject(State(shared): State<Shared>, body: Received) -> Response {
    let allowed = shared.config().allow_inject;
    act(&shared, body, |Inject { leg, fault }| {
        if allowed {
            return super::inject::check(&fault).map(|()| Request::Inject { leg, fault });
        }
        Err(Refusal::new(
            RefusalKind::Forbidden,
            "faults may not be injected into this volume",
            "Serve it with --allow-inject, on test data.",
        ))
    })
    .await
}

async fn attach_device(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |AttachDevice { driver }| Ok(Request::AttachDevice { driver })).await
}

async fn detach_device(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |_: Empty| Ok(Request::DetachDevice)).await
}

async fn reload(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |_: Empty| Ok(Request::Reload)).await
}

async fn upgrade(
    State(shared): State<Shared>,
    peer: Option<Extension<Peer>>,
    body: Received,
) -> Response {
    let own = rustix::process::geteuid().as_raw();
    let is_owner = peer.is_some_and(|Extension(Peer(user))| user == 0 || user == own);
    act(&shared, body, |Upgrade { binary, force }| match binary {
        // A client that may use the control socket must not be able to run any program as this user.
        Some(_) if !is_owner => Err(Refusal::new(
            RefusalKind::Forbidden,
            "only root and the user that serves the volume may name a program",
            "Leave `binary` out: the installed program takes over.",
        )),
        Some(path) if !path.is_absolute() => Err(Refusal::new(
            RefusalKind::BadRequest,
            format!("`binary` is {}, which is no absolute path", path.display()),
            "Name the program by a path that begins with /.",
        )),
        binary => Ok(Request::Upgrade { binary, force, grow: None }),
    })
    .await
}

async fn grow(State(shared): State<Shared>, body: Received) -> Response {
    act(&shared, body, |Grow { to, force }| {
        Ok(Request::Upgrade { binary: None, force, grow: Some(to) })
    })
    .await
}

async fn shutdown(State(shared): State<Shared>, body: Received) -> Response {
    let default = shared.config().drain_on_stop;
    act(&shared, body, |Shutdown { drain }| {
        Ok(Request::Shutdown { drain: drain.unwrap_or(default) })
    })
    .await
}

/// Reads the body, sends the request and waits for its outcome.
///
/// The wait is a task of its own, so a client that disconnects ends neither the request nor its log line.
async fn act<B: DeserializeOwned>(
    shared: &Shared,
    body: Received,
    request: impl FnOnce(B) -> Result<Request, Refusal>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreceived(&rejection),
    };
    match parse(&body).and_then(request) {
        Ok(request) => {
            let shared = shared.clone();
            answer(tokio::spawn(async move { perform(&shared, request).await }).await)
        }
        Err(refusal) => refuse(refusal),
    }
}

/// Parses a request's body.
pub(super) fn parse<B: DeserializeOwned>(body: &[u8]) -> Result<B, Refusal> {
    // No body counts as an empty object, so that `POST /v1/scrub` alone works.
    let text = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice::<B>(text).map_err(|error| {
        Refusal::new(
            RefusalKind::BadRequest,
            format!("the request's body is not understood: {error}"),
            "docs/control-api.md lists each request's fields.",
        )
    })
}

/// Sends a request, waits for its outcome and logs both.
pub(super) async fn perform(shared: &Shared, request: Request) -> Result<(), Refusal> {
    tracing::info!(%request, "asked");
    // Where one is running already, another one is refused.
    if let Request::Scrub { repair, part } = request
        && shared.volume.snapshot().status.scrub.is_none()
    {
        shared.past.happened(events::scrub_begins(repair, part, &shared.volume.snapshot()));
    }
    let asked = Instant::now();
    let result = shared.volume.request(request.clone()).await;
    let snapshot = shared.volume.snapshot();
    shared.past.happened(events::of_request(&request, &result, asked.elapsed(), &snapshot));
    let word = events::word(&request, &result);
    match &result {
        Ok(()) => tracing::info!(%request, "{word}"),
        Err(refusal) => tracing::warn!(%request, what = %refusal.what, "{word}"),
    }
    result
}

/// Returns the answer to a request whose task has ended with this outcome.
pub(super) fn answer(outcome: Result<Result<(), Refusal>, JoinError>) -> Response {
    match outcome {
        Ok(Ok(())) => Json(serde_json::json!({ "done": true })).into_response(),
        Ok(Err(refusal)) => refuse(refusal),
        Err(_) => refuse(Refusal::new(
            RefusalKind::Closing,
            "the volume ended before it answered",
            "See its log; serve it again.",
        )),
    }
}

/// Refuses a body that is too large or was cut off.
pub(super) fn unreceived(rejection: &BytesRejection) -> Response {
    let mut response = refuse(Refusal::new(
        RefusalKind::BadRequest,
        format!("the request's body could not be received: {rejection}"),
        "A body has at most 64 KiB; docs/control-api.md lists each request's fields.",
    ));
    *response.status_mut() = rejection.status();
    response
}

pub(super) fn refuse(refusal: Refusal) -> Response {
    let code = match refusal.kind {
        RefusalKind::BadRequest => StatusCode::BAD_REQUEST,
        RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::Forbidden => StatusCode::FORBIDDEN,
        RefusalKind::Unauthorized => StatusCode::UNAUTHORIZED,
        RefusalKind::Unsafe | RefusalKind::Conflict => StatusCode::CONFLICT,
        RefusalKind::Closing => StatusCode::SERVICE_UNAVAILABLE,
        RefusalKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let Refusal { kind: error, what, way_out } = refusal;
    (code, Json(ErrorBody { error, what, way_out })).into_response()
}

async fn no_such_route(uri: axum::http::Uri) -> Response {
    refuse(Refusal::new(
        RefusalKind::NotFound,
        format!("there is no {}", uri.path()),
        "docs/control-api.md lists the paths.",
    ))
}

async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> Response {
    let mut response = refuse(Refusal::new(
        RefusalKind::BadRequest,
        format!("{} does not take {method}", uri.path()),
        "Read with GET, change with POST; docs/control-api.md lists which.",
    ));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

async fn metrics_text(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let (hidden, _) = shared.past.figures();
    let (snapshot, status) = (shared.volume.snapshot(), shared.status());
    metrics::answer(&headers, metrics::render(snapshot, status, &shared.drives, hidden))
}

/// Answers 200 while clients are served, with what is at risk, and 503 otherwise.
async fn healthz(State(shared): State<Shared>) -> Response {
    health_of(&shared.status())
}

/// Returns the answer to a health check.
pub(super) fn health_of(status: &VolumeStatus) -> Response {
    let code = match status.health {
        Health::NotServing => StatusCode::SERVICE_UNAVAILABLE,
        Health::Healthy | Health::Degraded => StatusCode::OK,
    };
    let legs: Vec<_> = status
        .legs
        .iter()
        .map(|leg| serde_json::json!({ "leg": leg.leg, "name": leg.name, "state": leg.state }))
        .collect();
    let detail = serde_json::json!({
        "health": status.health,
        "text": status.summary.text,
        "advice": status.summary.advice,
        "volume": status.name,
        "phase": status.phase,
        "legs": legs,
        "risks": status.risks,
    });
    (code, Json(detail)).into_response()
}

/// Answers 200 while the data path moves, whether it serves or not, and 503 when it is stuck.
async fn livez(State(shared): State<Shared>) -> Response {
    let snapshot = shared.volume.snapshot();
    let stuck = snapshot.phase == Phase::Serving && snapshot.taken.elapsed() > SNAPSHOT_AGE_MAX;
    let code = if stuck { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let detail = serde_json::json!({ "live": !stuck, "health": shared.status().health });
    (code, Json(detail)).into_response()
}
