//! Whether the gateway lives, and whether it can do its work.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::host::{AgentProgram, AgentUnusable};

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
    let readiness = Readiness::of(agent, storage, api.tasks.soft().is_cancelled());
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

impl Readiness {
    fn of(agent: Result<AgentProgram, AgentUnusable>, storage_writable: bool, stops: bool) -> Self {
        let unless = |wrong: bool, detail: &str| if wrong { Err(detail.to_owned()) } else { Ok(()) };
        let checks = BTreeMap::from([
            ("agent", Check::of(agent.map(drop).map_err(|error| error.to_string()))),
            ("storage", Check::of(unless(!storage_writable, "the storage cannot be written"))),
            ("draining", Check::of(unless(stops, "the gateway is shutting down"))),
        ]);
        Self { ready: checks.values().all(|check| check.ok), checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_check_is_enough_to_be_unready() {
        let agent = || Ok(AgentProgram { name: "goose".into(), version: "1.52.0".into() });
        let wrong = |readiness: Readiness| -> Vec<&str> {
            let wrong =
                readiness.checks.iter().filter(|(_, check)| !check.ok).map(|(name, _)| *name).collect();
            assert_eq!(readiness.ready, readiness.checks.values().all(|check| check.ok));
            wrong
        };
        assert!(Readiness::of(agent(), true, false).ready);
        assert_eq!(wrong(Readiness::of(agent(), false, false)), ["storage"]);
        assert_eq!(wrong(Readiness::of(agent(), true, true)), ["draining"]);
        let missing = Readiness::of(Err(AgentUnusable("goose was not found".into())), true, false);
        assert_eq!(missing.checks["agent"].detail.as_deref(), Some("goose was not found"));
        assert_eq!(wrong(missing), ["agent"]);
    }
}
