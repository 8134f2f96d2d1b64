//! `GET /v1/sessions/{id}/plan`.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::Problem;
use super::request::PathText;
use crate::session::id::SessionId;
use crate::session::plan::Plan;

/// Get the plan
///
/// The agent's plan as it last wrote it; before any write it has version 0 and no entries.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/plan",
    operation_id = "getPlan",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    responses(
        (status = 200, description = "The plan.", body = Plan),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn get_plan(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
) -> Result<Json<Plan>, Problem> {
    caller.require(Role::Read)?;
    let snapshot = session_of(&api, &caller, &session_id)?.snapshot().await?;
    Ok(Json(snapshot.plan))
}
