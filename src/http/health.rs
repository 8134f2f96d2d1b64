//! Whether the gateway lives, and whether it can do its work.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;

/// The gateway lives.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(examples("ok"))]
    status: &'static str,
}

/// Whether the process lives and answers. Says nothing about agents or storage.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "getHealth",
    tag = "gateway",
    security(()),
    responses(
        (status = 200, description = "It lives.", body = Health),
        (status = 421, response = super::openapi::Refused),
    )
)]
pub async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// One thing that has to be right.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Check {
    /// Whether it is.
    ok: bool,
    /// What is wrong, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Check {
    fn of(result: Result<(), String>) -> Self {
        Self { ok: result.is_ok(), detail: result.err() }
    }
}

/// Whether the gateway can do its work.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether every check is right.
    ready: bool,
    /// `agent` (the agent's program is found), `storage` (something can be written), `draining` (the gateway does not
    /// stop). More may come.
    checks: BTreeMap<&'static str, Check>,
}

/// Whether the gateway can take work: the agent's program is found, the storage can be written, it does not stop.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReadiness",
    tag = "gateway",
    security(()),
    responses(
        (status = 200, description = "It can.", body = Readiness),
        (status = 421, response = super::openapi::Refused),
        (status = 503, description = "It cannot; the checks say why.", body = Readiness),
    )
)]
pub async fn readyz(State(api): State<Api>) -> Response {
    let (agent, storage) = futures_util::join!(api.host.agent(), api.host.storage_writable());
    let storage = if storage { Ok(()) } else { Err("the storage cannot be written".to_owned()) };
    let stops = api.tasks.soft().is_cancelled();
    let draining = if stops { Err("the gateway is shutting down".to_owned()) } else { Ok(()) };
    let checks = BTreeMap::from([
        ("agent", Check::of(agent.map(drop).map_err(|error| error.to_string()))),
        ("storage", Check::of(storage)),
        ("draining", Check::of(draining)),
    ]);
    let ready = checks.values().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, checks })).into_response()
}
