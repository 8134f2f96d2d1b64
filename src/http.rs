//! The HTTP adapter: routes, bodies, problems, streams.
//!
//! Architecture invariant: nothing here knows goose, JSON-RPC or SQL. Handlers talk to the core's handles and to the
//! ports [`HostFacts`](crate::http::host::HostFacts) and
//! [`RememberedAnswers`](crate::http::idempotency::RememberedAnswers). A handler holds no state change between two
//! awaits: a caller that leaves drops it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{delete, get, post};

use crate::metrics::Metrics;
use crate::session::agent::Mode;
use crate::session::registry::Registry;
use crate::shutdown::Tasks;
use crate::traces::Tracer;

mod accept;
pub mod all_events;
pub mod auth;
pub mod catalogue;
mod docs;
pub mod forwarded;
pub mod gate;
pub mod health;
pub mod host;
pub mod idempotency;
pub mod inbox;
pub mod info;
pub mod events;
mod layers;
pub mod metrics;
pub mod messages;
pub mod openapi;
pub mod permission_grants;
pub mod permissions;
pub mod plan;
pub mod problem;
pub mod prompt;
pub mod request;
pub mod server;
pub mod sessions;
pub mod steer;
pub mod stream;
pub mod stream_tickets;
pub mod turns;

#[cfg(test)]
mod fake_log;
#[cfg(test)]
mod fake_settings;

pub use auth::session_of;

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    /// All sessions.
    pub registry: Registry,
    /// Who may call.
    pub callers: auth::Callers,
    /// Bounds and habits.
    pub settings: Arc<HttpSettings>,
    /// Answers to requests with an `Idempotency-Key`.
    pub answers: Arc<dyn idempotency::RememberedAnswers>,
    /// What the gateway knows about itself.
    pub host: Arc<dyn host::HostFacts>,
    /// The OpenAPI document, once it was asked for.
    pub document: openapi::ServedDocument,
    /// Figures about the running gateway.
    pub metrics: Metrics,
    /// Makes spans of requests.
    pub tracer: Tracer,
    /// The event streams that callers have open.
    pub streams: stream::OpenStreams,
    /// The task tracker and the shutdown signals.
    pub tasks: Tasks,
}

/// Bounds and habits of the HTTP side, from the configuration.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Host names that requests may be addressed to, `name` or `name:port`; without a port every port counts.
    pub allowed_hosts: Vec<String>,
    /// Origins of other web pages that may call, e.g. `https://example.org`.
    pub cors_origins: Vec<String>,
    /// What the gateway is called from outside, without a slash at the end; `None`: as its callers call it.
    pub public_url: Option<String>,
    /// The proxies that are believed when they say for whom they ask.
    pub trusted_proxies: forwarded::TrustedProxies,
    /// How often a silent stream gets a comment.
    pub heartbeat: Duration,
    /// Spaces in such a comment, for proxies that hold back what is small.
    pub heartbeat_padding: usize,
    /// The largest request body, in bytes.
    pub body_bytes: usize,
    /// What a prompt may be made of.
    pub prompt: prompt::PromptLimits,
    /// The largest answer that is kept for an `Idempotency-Key`, in bytes.
    pub kept_answer_bytes: usize,
    /// The longest wait that `Prefer: wait` and `wait_s` get.
    pub wait: Duration,
    /// Event streams that one caller may have open.
    pub streams_per_caller: usize,
    /// Stream tickets that one token may have.
    pub stream_tickets_per_caller: usize,
    /// How long a connection may take to send a request's head.
    pub header_timeout: Duration,
    /// How long a peer may take nothing of what it is sent.
    pub write_timeout: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Whether callers have to show a token.
    pub auth_required: bool,
    /// Whether only the loopback interface is listened on.
    pub loopback_only: bool,
    /// Where the gateway keeps what is its own; no session works there but in a folder that it is given.
    pub storage_dir: PathBuf,
    /// Where sessions may work; see `sessions.cwd_roots`.
    pub cwd_roots: Vec<PathBuf>,
    /// The mode of sessions whose caller names none.
    pub default_mode: Mode,
    /// The modes that callers may ask for.
    pub allow_modes: Vec<Mode>,
    /// The provider of sessions whose caller names none; `None`: what the agent's configuration says.
    pub default_provider: Option<String>,
    /// The model of sessions whose caller names none.
    pub default_model: Option<String>,
    /// Environment variables that a session may set: names, or prefixes ending in `*`.
    pub caller_env: Vec<String>,
}

/// What callers can ask for.
pub fn router(api: Api) -> Router {
    let shared = layers::Shared {
        settings: Arc::clone(&api.settings),
        callers: api.callers.clone(),
        answers: Arc::clone(&api.answers),
        tasks: api.tasks.clone(),
        metrics: api.metrics.clone(),
        tracer: api.tracer.clone(),
        recheck: recheck(api.clone()),
        stream_again: turns::stream_again(api.clone()),
    };
    layers::apply(routes(), shared).with_state(api)
}

/// Every route on one screen. What all of them have in common is in `layers`.
fn routes() -> Router<Api> {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/openapi.json", get(openapi::openapi_json))
        .route("/metrics", get(metrics::metrics))
        .route("/docs", get(docs::to_folder))
        .route("/docs/", get(docs::index))
        .route("/docs/{file}", get(docs::file))
        .route("/v1/events", get(all_events::stream_all_events))
        .route("/v1/info", get(info::info))
        .route("/v1/extensions", get(catalogue::list))
        .route("/v1/stream-tickets", post(stream_tickets::create_stream_ticket))
        .route("/v1/permissions", get(inbox::list_permissions))
        .route("/v1/sessions", get(sessions::list_sessions).post(sessions::create_session))
        .route(
            "/v1/sessions/{session_id}",
            get(sessions::get_session).patch(sessions::update_session).delete(sessions::delete_session),
        )
        .route("/v1/sessions/{session_id}/hibernate", post(sessions::hibernate_session))
        .route("/v1/sessions/{session_id}/events", get(events::stream_events))
        .route("/v1/sessions/{session_id}/messages", get(messages::list_messages))
        .route(
            "/v1/sessions/{session_id}/permission-grants",
            get(permission_grants::list_permission_grants)
                .delete(permission_grants::revoke_permission_grants),
        )
        .route(
            "/v1/sessions/{session_id}/permission-grants/{grant_id}",
            delete(permission_grants::revoke_permission_grant),
        )
        .route("/v1/sessions/{session_id}/permissions", get(permissions::list_session_permissions))
        .route("/v1/sessions/{session_id}/permissions/explain", post(permissions::explain_permission))
        .route(
            "/v1/sessions/{session_id}/permissions/{permission_id}",
            get(permissions::get_permission).post(permissions::answer_permission),
        )
        .route("/v1/sessions/{session_id}/plan", get(plan::get_plan))
        .route("/v1/sessions/{session_id}/turns", get(turns::list_turns).post(turns::create_turn))
        .route("/v1/sessions/{session_id}/turns/{turn_id}", get(turns::get_turn))
        .route("/v1/sessions/{session_id}/turns/{turn_id}/cancel", post(turns::cancel_turn))
        .route("/v1/sessions/{session_id}/turns/{turn_id}/steer", post(steer::steer_turn))
}

/// What the handlers ask of a caller, asked again before an answer is given a second time.
fn recheck(api: Api) -> idempotency::Recheck {
    Arc::new(move |caller, path, session| {
        caller.require(match path {
            _ if path.ends_with("/permissions/explain") => auth::Role::Read,
            _ if path.contains("/permissions/") => auth::Role::Approve,
            "/v1/stream-tickets" => auth::Role::Read,
            _ => auth::Role::Prompt,
        })?;
        session.map_or(Ok(()), |session| session_of(&api, caller, &session.to_string()).map(drop))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn routes_do_not_collide_and_all_of_them_are_described() {
        let _ = routes();
        let source = include_str!("http.rs");
        let (_, text) = source.split_once("fn routes()").unwrap();
        let (text, _) = text.split_once("\n}\n").unwrap();
        // The viewer of the document is no part of what it describes.
        let routed: BTreeSet<&str> =
            text.split('"').filter(|part| part.starts_with('/') && !part.starts_with("/docs")).collect();
        let document = openapi::document();
        let described: BTreeSet<&str> = document.paths.paths.keys().map(String::as_str).collect();
        assert_eq!(routed, described);
    }
}
