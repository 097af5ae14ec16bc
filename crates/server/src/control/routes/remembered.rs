//! The routes for events, history and regions.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State, rejection::QueryRejection};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hemi_engine::status::RegionCounts;
use serde::{Deserialize, Serialize};

use super::{Shared, refuse};
use crate::control::events::EVENTS_PER_ANSWER;
use crate::control::volume::{Census, Refusal, RefusalKind};

/// Number of events in an answer by default.
const EVENTS_USUAL: usize = 200;
/// Default span of a history in seconds.
const SPAN_USUAL: u64 = 900;
/// Longest span of a history in seconds: a day.
const SPAN_SECONDS_MAX: u64 = 86_400;
/// Default number of steps of a history.
const POINTS_USUAL: usize = 300;
/// Maximum number of steps of a history.
const POINTS_MAX: usize = 1440;
/// Default number of cells of the map of regions.
const CELLS_USUAL: usize = 1024;
/// Maximum number of cells of the map of regions.
const CELLS_MAX: usize = 2048;

/// The parameters of a request for events.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::control) struct EventsQuery {
    /// Selects only events after this id.
    pub(in crate::control) after: Option<u64>,
    limit: Option<usize>,
}

/// The parameters of a request for the history.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryQuery {
    span: Option<u64>,
    points: Option<usize>,
}

/// The parameters of a request for the regions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RegionsQuery {
    cells: Option<usize>,
}

pub(super) type Asked<T> = Result<Query<T>, QueryRejection>;

/// Refuses a query that cannot be parsed.
pub(in crate::control) fn misunderstood(rejection: &QueryRejection) -> Response {
    refuse(Refusal::new(
        RefusalKind::BadRequest,
        format!("the query is not understood: {}", rejection.body_text()),
        "docs/control-api.md lists each path's parameters.",
    ))
}

fn out_of_range(name: &str, value: u64, most: u64) -> Response {
    refuse(Refusal::new(
        RefusalKind::BadRequest,
        format!("`{name}` is {value}, which is out of range"),
        format!("Allowed are 1 to {most}."),
    ))
}

/// `GET /v1/events`.
pub(super) async fn events(State(shared): State<Shared>, query: Asked<EventsQuery>) -> Response {
    let EventsQuery { after, limit } = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return misunderstood(&rejection),
    };
    let limit = limit.unwrap_or(EVENTS_USUAL);
    let most = usize::from(EVENTS_PER_ANSWER);
    if !(1..=most).contains(&limit) {
        return out_of_range("limit", limit as u64, most as u64);
    }
    shared.past.until_read().await;
    let entries = shared.past.events(after, limit);
    let next = entries.last().map_or(after.unwrap_or(0), |entry| entry.id);
    let mut body = b"{\"events\":[".to_vec();
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&entry.json);
    }
    body.extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
    json(body)
}

/// `GET /v1/history`.
pub(super) async fn history(State(shared): State<Shared>, query: Asked<HistoryQuery>) -> Response {
    let HistoryQuery { span, points } = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return misunderstood(&rejection),
    };
    let (span, points) = (span.unwrap_or(SPAN_USUAL), points.unwrap_or(POINTS_USUAL));
    if !(1..=SPAN_SECONDS_MAX).contains(&span) {
        return out_of_range("span", span, SPAN_SECONDS_MAX);
    }
    if !(1..=POINTS_MAX).contains(&points) {
        return out_of_range("points", points as u64, POINTS_MAX as u64);
    }
    shared.past.until_read().await;
    json(shared.past.history(span * 1000, points, &shared.volume.snapshot().legs))
}

fn json(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// The answer to `GET /v1/regions`.
#[derive(Debug, Serialize)]
struct RegionsAnswer {
    regions: u32,
    region_bytes: u64,
    cells: usize,
    /// The leg that is the authority for most of the touched regions of a cell; `null` if none is
    /// touched.
    authority: Vec<Option<u8>>,
    armed: Vec<u32>,
    touched: Vec<u32>,
    owed: Vec<u32>,
}

impl RegionsAnswer {
    fn new(census: &Census, region_bytes: u64) -> RegionsAnswer {
        let permille = |count: fn(&RegionCounts) -> u32| {
            let share = |cell: &RegionCounts| {
                // Rounded up, so that a cell shows a condition even if only one of its many regions
                // is in it.
                (u64::from(count(cell)) * 1000).div_ceil(u64::from(cell.regions.max(1))) as u32
            };
            census.cells.iter().map(share).collect()
        };
        RegionsAnswer {
            regions: census.regions,
            region_bytes,
            cells: census.cells.len(),
            authority: census.cells.iter().map(|cell| cell.authority().map(|leg| leg.0)).collect(),
            armed: permille(|cell| cell.armed),
            touched: permille(RegionCounts::touched),
            owed: permille(|cell| cell.owed),
        }
    }
}

/// `GET /v1/regions`.
pub(super) async fn regions(State(shared): State<Shared>, query: Asked<RegionsQuery>) -> Response {
    let cells = match query {
        Ok(Query(RegionsQuery { cells })) => cells.unwrap_or(CELLS_USUAL),
        Err(rejection) => return misunderstood(&rejection),
    };
    if !(1..=CELLS_MAX).contains(&cells) {
        return out_of_range("cells", cells as u64, CELLS_MAX as u64);
    }
    let region_bytes = shared.volume.snapshot().identity.region_bytes;
    let census = shared.viewers.census(&*shared.volume, cells).await;
    match census {
        Ok(census) => Json(RegionsAnswer::new(&census, region_bytes)).into_response(),
        Err(refusal) => refuse(refusal),
    }
}
