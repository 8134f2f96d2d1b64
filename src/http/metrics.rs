//! `GET /metrics`: figures about the running gateway, for Prometheus.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::Api;
use super::auth::{Caller, Role};
use super::problem::Problem;
use crate::metrics::Moment;
use crate::session::snapshot::SessionState;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Figures about the gateway, for Prometheus
///
/// Takes the role `admin`, since the figures are of all callers together; on `server.metrics_listen` they are read
/// without a token.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    tag = "gateway",
    responses(
        (status = 200, description = "The figures, in the OpenMetrics text format.", body = String, content_type = "application/openmetrics-text"),
        (status = "4XX", response = super::openapi::Refused),
    )
)]
pub async fn metrics(State(api): State<Api>, caller: Caller) -> Result<Response, Problem> {
    caller.require(Role::Admin)?;
    Ok(figures(&api).await)
}

/// The same without a token, and nothing else: for a listener of its own.
pub fn router(api: Api) -> Router {
    Router::new().route("/metrics", get(async |State(api): State<Api>| figures(&api).await)).with_state(api)
}

async fn figures(api: &Api) -> Response {
    let mut counts = SessionState::ALL.map(|state| (state.as_str(), 0));
    for session in api.registry.all() {
        let state = session.state().as_str();
        if let Some((_, count)) = counts.iter_mut().find(|(name, _)| *name == state) {
            *count += 1;
        }
    }
    let moment = Moment {
        sessions: counts.to_vec(),
        agents: api.registry.agents(),
        streams: api.streams.count(),
        ..api.host.moment().await
    };
    ([(header::CONTENT_TYPE, OPEN_METRICS)], api.metrics.text(&moment)).into_response()
}
