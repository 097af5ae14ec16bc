//! Live views: four statuses a second and events as they happen, for several viewers.
//!
//! A status is serialised once for all viewers. A slow viewer gets the newest status when it can take one and
//! skips those in between, so nothing is queued for it. It gets all events that are still kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::routes::remembered::{EventsQuery, misunderstood};
use super::routes::{Shared, refuse};
use super::volume::{Census, Refusal, RefusalKind, Volume};

/// Maximum number of viewers of live views and event streams together.
pub(super) const VIEWERS_MAX: usize = 16;
/// Interval between two statuses of a live view.
const STATUS_EVERY: Duration = Duration::from_millis(250);
/// Age up to which a census of the regions is reused for the same request.
const CENSUS_AGE_MAX: Duration = Duration::from_secs(1);
/// Number of events taken from the log at once.
const EVENTS_AT_ONCE: usize = 64;

/// The viewers.
#[derive(Debug)]
pub(super) struct Viewers {
    count: Arc<AtomicUsize>,
    /// The newest status as an event of a stream. Empty until there is a viewer.
    status: watch::Sender<Bytes>,
    /// Held while a census is taken, so that only one runs at a time.
    census: Mutex<()>,
    newest_census: BlockingMutex<Option<(usize, Instant, Arc<Census>)>>,
}

impl Default for Viewers {
    fn default() -> Viewers {
        Viewers {
            count: Arc::default(),
            status: watch::Sender::new(Bytes::new()),
            census: Mutex::default(),
            newest_census: BlockingMutex::default(),
        }
    }
}

/// A viewer's place, released on drop.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Viewers {
    /// Admits one more viewer, if there is a place.
    fn enter(&self) -> Result<Place, Refusal> {
        let taken = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < VIEWERS_MAX).then_some(count + 1)
        });
        taken.map(|_| Place(Arc::clone(&self.count))).map_err(|_| {
            Refusal::new(
                RefusalKind::Conflict,
                format!("there are {VIEWERS_MAX} viewers already"),
                "Close one of them, or poll /v1/status.",
            )
        })
    }

    /// Takes a census, or returns a recent one. Only one is taken at a time.
    pub(super) async fn census(
        &self,
        volume: &dyn Volume,
        cells: usize,
    ) -> Result<Arc<Census>, Refusal> {
        let _turn = self.census.lock().await;
        let newest = || self.newest_census.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, taken, census)) = &*newest()
            && *of == cells
            && taken.elapsed() < CENSUS_AGE_MAX
        {
            return Ok(Arc::clone(census));
        }
        let census = Arc::new(volume.census(cells).await?);
        *newest() = Some((cells, Instant::now(), Arc::clone(&census)));
        Ok(census)
    }
}

/// Serialises the status for all viewers while there are any.
pub(super) async fn publish(shared: Shared) {
    let mut ticks = tokio::time::interval(STATUS_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if shared.viewers.status.receiver_count() > 0 {
            shared.viewers.status.send_replace(status_event(&shared));
        }
    }
}

fn status_event(shared: &Shared) -> Bytes {
    let mut event = b"event: status\ndata: ".to_vec();
    // JSON without line breaks is one line of a stream.
    let written = serde_json::to_writer(&mut event, &shared.status());
    debug_assert!(written.is_ok(), "a status has a form");
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}

/// `GET /v1/live`.
pub(super) async fn live(State(shared): State<Shared>) -> Response {
    let place = match shared.viewers.enter() {
        Ok(place) => place,
        Err(refusal) => return refuse(refusal),
    };
    let mut statuses = shared.viewers.status.subscribe();
    // Events that are read from the file are no news.
    shared.past.until_read().await;
    let mut newest = shared.past.newest();
    let (out, stream) = mpsc::channel(1);
    let first = status_event(&shared);
    let mut last = *newest.borrow_and_update();
    tokio::spawn(async move {
        let _place = place;
        // The status from before is not news.
        statuses.mark_unchanged();
        let mut next = Ok(first);
        while let Ok(status) = next {
            if out.send(status).await.is_err() {
                return;
            }
            next = loop {
                tokio::select! {
                    changed = statuses.changed() => {
                        break changed.map(|()| statuses.borrow_and_update().clone());
                    }
                    changed = newest.changed() => {
                        if changed.is_err() || !send_events(&shared, &mut last, &out, framed).await {
                            return;
                        }
                    }
                    () = out.closed() => return,
                }
            };
        }
    });
    streamed("text/event-stream", stream)
}

/// `GET /v1/events/stream`: one event a line, beginning with those that are kept.
pub(super) async fn events(
    State(shared): State<Shared>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return misunderstood(&rejection),
    };
    let place = match shared.viewers.enter() {
        Ok(place) => place,
        Err(refusal) => return refuse(refusal),
    };
    // Events that are read from the file are no news.
    shared.past.until_read().await;
    let mut newest = shared.past.newest();
    let mut last = query.after.unwrap_or_else(|| *newest.borrow());
    let (out, stream) = mpsc::channel(1);
    tokio::spawn(async move {
        let _place = place;
        while send_events(&shared, &mut last, &out, line).await {
            tokio::select! {
                changed = newest.changed() => if changed.is_err() { return },
                () = out.closed() => return,
            }
        }
    });
    streamed("application/x-ndjson", stream)
}

/// Sends all events after `last`. Returns false if the viewer is gone.
async fn send_events(
    shared: &Shared,
    last: &mut u64,
    out: &mpsc::Sender<Bytes>,
    form: fn(&[u8]) -> Bytes,
) -> bool {
    loop {
        let entries = shared.past.events(Some(*last), EVENTS_AT_ONCE);
        if entries.is_empty() {
            return !out.is_closed();
        }
        for entry in entries {
            *last = entry.id;
            if out.send(form(&entry.json)).await.is_err() {
                return false;
            }
        }
    }
}

fn framed(json: &[u8]) -> Bytes {
    Bytes::from([b"event: event\ndata: ", json, b"\n\n"].concat())
}

fn line(json: &[u8]) -> Bytes {
    Bytes::from([json, b"\n"].concat())
}

fn streamed(kind: &'static str, stream: mpsc::Receiver<Bytes>) -> Response {
    let body = ReceiverStream::new(stream).map(Ok::<_, std::convert::Infallible>);
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(body)).into_response()
}
