//! `GET /v1/settings` and `POST /v1/set`: reads and changes the configuration of a served volume.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::api::Set;
use super::routes::{Received, Shared, answer, parse, perform, refuse, unreceived};
use super::volume::{Refusal, RefusalKind, Request};
use crate::config::live::{self, ChangeError};

/// Answers with every key, its value, and whether it can change.
pub(super) async fn list(State(shared): State<Shared>) -> Response {
    Json(live::settings(&shared.config())).into_response()
}

/// Changes one key or several. Either all change or none.
pub(super) async fn set(State(shared): State<Shared>, body: Received) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreceived(&rejection),
    };
    let values = match parse::<Set>(&body).and_then(values) {
        Ok(values) => values,
        Err(refusal) => return refuse(refusal),
    };
    // The change is a task of its own: a client that disconnects must not leave the engine's settings and the
    // configuration shown different.
    answer(tokio::spawn(async move { change(&shared, &values).await }).await)
}

fn values(set: Set) -> Result<Vec<(String, String)>, Refusal> {
    let mut values: BTreeMap<String, Value> = set.values;
    match (set.key, set.value) {
        (Some(key), Some(value)) => {
            values.insert(key, value);
        }
        (None, None) if !values.is_empty() => {}
        _ => {
            return Err(Refusal::new(
                RefusalKind::BadRequest,
                "it takes `key` and `value`, or `values`",
                "Write {\"key\": \"engine.exposure.bytes\", \"value\": \"64MiB\"}.",
            ));
        }
    }
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(values.into_iter().map(|(key, value)| (key, text(value))).collect())
}

async fn change(shared: &Shared, values: &[(String, String)]) -> Result<(), Refusal> {
    // Changes run one after another, each on the result of the one before.
    let _turn = shared.changing.lock().await;
    let now = shared.config();
    let changed = live::changed(&now, values).map_err(|error| refusal(&error))?;
    let text = values.iter().map(|(key, value)| format!("{key}={value}"));
    let text = text.collect::<Vec<_>>().join(", ");
    let settings = Box::new(changed.settings());
    perform(shared, Request::Configure { settings, text }).await?;
    shared.replace_config(changed);
    Ok(())
}

fn refusal(error: &ChangeError) -> Refusal {
    let (kind, way_out) = match error {
        ChangeError::Unknown { .. } => {
            (RefusalKind::BadRequest, "hemi set without arguments lists the keys.")
        }
        ChangeError::Fixed { .. } => (
            RefusalKind::Conflict,
            "Change it in the configuration file, then stop the volume and start it again \
             (systemctl restart hemi@NAME).",
        ),
        ChangeError::Bad(_) => (
            RefusalKind::BadRequest,
            "docs/configuration.md lists every key with its range. Nothing has changed.",
        ),
    };
    Refusal::new(kind, error.to_string(), way_out)
}
