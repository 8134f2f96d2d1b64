//! Whether the gateway lives, and whether it can do its work.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::host::{AgentProgram, AgentUnusable};
use super::problem::{Code, Problem};

/// The names of the checks.
const AGENT: &str = "agent";
const STORAGE: &str = "storage";
const DRAINING: &str = "draining";

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
        (status = 503, description = "It cannot; the checks, as in the answer 200, say why.",
            content_type = "application/problem+json", body = super::openapi::ProblemSchema),
    )
)]
pub async fn readyz(State(api): State<Api>) -> Result<Json<Readiness>, Problem> {
    let (agent, storage) = futures_util::join!(api.host.agent(), api.host.storage_writable());
    Readiness::of(agent, storage, api.tasks.soft().is_cancelled()).answer().map(Json)
}

impl Readiness {
    fn of(agent: Result<AgentProgram, AgentUnusable>, storage_writable: bool, stops: bool) -> Self {
        let unless = |wrong: bool, detail: &str| if wrong { Err(detail.to_owned()) } else { Ok(()) };
        let checks = BTreeMap::from([
            (AGENT, Check::of(agent.map(drop).map_err(|error| error.to_string()))),
            (STORAGE, Check::of(unless(!storage_writable, "the storage cannot be written"))),
            (DRAINING, Check::of(unless(stops, "the gateway is shutting down"))),
        ]);
        Self { ready: checks.values().all(|check| check.ok), checks }
    }

    fn answer(self) -> Result<Self, Problem> {
        // What ends by itself comes last: it is only the reason when nothing else is.
        let reasons = [
            (STORAGE, Code::StorageUnavailable),
            (AGENT, Code::AgentStartFailed),
            (DRAINING, Code::Draining),
        ];
        let wrong = reasons.into_iter().find_map(|(name, code)| {
            let check = self.checks.get(name).filter(|check| !check.ok)?;
            Some((code, check.detail.clone().unwrap_or_default()))
        });
        match wrong {
            None => Ok(self),
            Some((code, detail)) => Err(Problem::new(code, detail)
                .unavailable()
                .with("ready", self.ready)
                .with("checks", self.checks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn one_wrong_check_is_enough_to_be_unready() {
        let found = || Ok(AgentProgram { name: "goose".into(), version: "1.52.0".into() });
        let missing = || Err(AgentUnusable("goose was not found".into()));
        assert!(Readiness::of(found(), true, false).answer().unwrap().ready);
        for (agent, storage, stops, wrong, code) in [
            (found(), false, false, &[STORAGE][..], Code::StorageUnavailable),
            (found(), true, true, &[DRAINING], Code::Draining),
            (missing(), true, false, &[AGENT], Code::AgentStartFailed),
            (missing(), false, true, &[AGENT, DRAINING, STORAGE], Code::StorageUnavailable),
        ] {
            let problem = Readiness::of(agent, storage, stops).answer().unwrap_err();
            assert_eq!(problem.code(), code);
            let body: serde_json::Value = serde_json::from_slice(&problem.body(None)).unwrap();
            assert_eq!((&body["ready"], &body["status"]), (&false.into(), &503.into()));
            let checks = body["checks"].as_object().unwrap();
            let not_ok: Vec<_> =
                checks.iter().filter(|(_, check)| check["ok"] == false).map(|(name, _)| name).collect();
            assert_eq!(not_ok, wrong);
            assert!(checks.values().all(|check| check["ok"] == true || check["detail"].is_string()));
            assert_eq!(problem.into_response().status(), 503);
        }
    }
}
