//! `POST /v1/sessions/{id}/turns/{turn_id}/steer`: putting words into a running turn.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::Problem;
use super::prompt::prompt_of;
use super::request::{Identifier, JsonBody, PathText};
use crate::session::id::{SessionId, TurnId};
use crate::session::turn::{Prompt, Turn};

/// What is put into a running turn.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteerTurn {
    /// Text, or ACP content blocks, as a turn begins with.
    #[schema(value_type = Prompt)]
    prompt: Value,
}

/// Put words into a running turn
///
/// The agent has taken them when this is answered, told as `turn.steered`, and uses them with its next model call, told
/// as `message.user` with the same `message_id`. When the turn ends before that, by a cancel or a failure, a notice
/// `steer-unused` says so.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/turns/{turn_id}/steer",
    operation_id = "steerTurn",
    tag = "turns",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("turn_id" = TurnId, Path, description = "The turn."),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key again gives the first answer."),
    ),
    request_body = SteerTurn,
    responses(
        (status = 202, description = "The agent has taken the words.", body = Turn),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `turn-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`turn-not-running` (over, queued, or being cancelled), `session-busy` (the agent is not ready for the turn yet), `idempotency-key-reused`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`, `not-in-this-transport` (the agent cannot)", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 502, description = "`agent-start-failed`: the agent does not answer", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`: too much waits for the agent; `draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn steer_turn(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, turn_id)): PathText<(String, String)>,
    JsonBody(body): JsonBody<SteerTurn>,
) -> Result<(StatusCode, Json<Turn>), Problem> {
    caller.require(Role::Prompt)?;
    let session = session_of(&api, &caller, &session_id)?;
    let turn = TurnId::identify(&turn_id)?;
    let prompt = prompt_of(body.prompt, api.settings.prompt).map_err(Problem::unacceptable)?;
    Ok((StatusCode::ACCEPTED, Json(session.steer(&caller.by(), turn, prompt).await?)))
}
