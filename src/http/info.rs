//! What callers need to know about this gateway.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Role};
use super::problem::Problem;
use super::request::MAX_PAGE;
use crate::session::agent::Mode;

/// What callers need to know about this gateway.
#[derive(Debug, Serialize, ToSchema)]
pub struct Info {
    /// `gander`.
    name: &'static str,
    /// gander's version.
    version: String,
    /// The agent behind it.
    agent: AgentInfo,
    /// The modes that a session may have.
    modes: Vec<Mode>,
    /// The mode of a session whose caller names none.
    default_mode: Mode,
    /// Whether the built-in scripted model stands in for a provider.
    demo: bool,
    /// Who asks.
    caller: CallerInfo,
    /// Bounds that callers can run into.
    limits: Limits,
}

/// The agent's program.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentInfo {
    /// Its name; null when it was not found.
    #[schema(examples("goose"))]
    name: Option<String>,
    /// Its version; null when it was not found.
    version: Option<String>,
    /// How gander talks to it.
    #[schema(examples("stdio"))]
    transport: String,
}

/// Who asks.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallerInfo {
    /// The name that sessions and events bear.
    name: String,
    /// What the caller may do.
    roles: BTreeSet<Role>,
}

/// Bounds that callers can run into.
#[derive(Debug, Serialize, ToSchema)]
pub struct Limits {
    /// The largest request body, in bytes.
    body_bytes: usize,
    /// The longest `Prefer: wait`, in seconds.
    wait_s: u64,
    /// Event streams that one caller may have open.
    streams_per_caller: usize,
    /// The largest `?limit=` of a list.
    page: usize,
}

/// What callers need to know about this gateway.
#[utoipa::path(
    get,
    path = "/v1/info",
    operation_id = "getInfo",
    tag = "gateway",
    responses(
        (status = 200, description = "About the gateway, its agent and the caller.", body = Info),
        (status = "4XX", response = super::openapi::Refused),
    )
)]
pub async fn info(State(api): State<Api>, caller: Caller) -> Result<Json<Info>, Problem> {
    caller.require(Role::Read)?;
    // An agent that is not found is readiness's business; here it is just not known.
    let agent = api.host.agent().await.ok();
    Ok(Json(Info {
        name: "gander",
        version: api.host.version().to_owned(),
        agent: AgentInfo {
            name: agent.as_ref().map(|agent| agent.name.clone()),
            version: agent.map(|agent| agent.version),
            transport: api.host.transport().to_owned(),
        },
        modes: api.settings.allow_modes.clone(),
        default_mode: api.settings.default_mode,
        demo: api.host.demo(),
        caller: CallerInfo { name: caller.name().to_owned(), roles: caller.roles().clone() },
        limits: Limits {
            body_bytes: api.settings.body_bytes,
            wait_s: api.settings.wait.as_secs(),
            streams_per_caller: api.settings.streams_per_caller,
            page: MAX_PAGE,
        },
    }))
}
