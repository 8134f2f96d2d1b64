//! `/v1/sessions/{id}/permission-grants`: what "always" has remembered.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::Problem;
use super::request::{Identifier, PageRequest, PathText, QueryParams, next_cursor};
use crate::session::id::{GrantId, SessionId};
use crate::session::permission::PermissionGrant;

/// Which part of the list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GrantsQuery {
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Remembered answers, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct GrantList {
    /// The answers.
    pub permission_grants: Vec<PermissionGrant>,
    /// Asks for the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// List what a session remembers
///
/// Answers with the scope `session`, newest first: such a call is not asked about again. None of them beats a rule that
/// asks or rejects.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/permission-grants",
    operation_id = "listPermissionGrants",
    tag = "permissions",
    params(("session_id" = SessionId, Path, description = "The session."), GrantsQuery),
    responses(
        (status = 200, description = "The remembered answers.", body = GrantList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_permission_grants(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<GrantsQuery>,
) -> Result<Json<GrantList>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    let (page, limit) = PageRequest::<GrantId>::new(query.limit, query.cursor.as_deref())?.to_store();
    let grants = session.grants().await?.into_iter().rev();
    let behind = grants.filter(|grant| page.before.is_none_or(|before| grant.id < before));
    let mut permission_grants = behind.take(page.limit).collect();
    let next_cursor = next_cursor(&mut permission_grants, limit, |grant| grant.id);
    Ok(Json(GrantList { permission_grants, next_cursor }))
}

/// Take all remembered answers back
///
/// From now on the session asks again. What runs already goes on.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/permission-grants",
    operation_id = "revokePermissionGrants",
    tag = "permissions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    responses(
        (status = 204, description = "The session remembers nothing."),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn revoke_permission_grants(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Role::Approve)?;
    session_of(&api, &caller, &session_id)?.revoke(&caller.by(), None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a remembered answer back
///
/// Again: 404.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}/permission-grants/{grant_id}",
    operation_id = "revokePermissionGrant",
    tag = "permissions",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("grant_id" = GrantId, Path, description = "The remembered answer."),
    ),
    responses(
        (status = 204, description = "It is forgotten."),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn revoke_permission_grant(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, grant_id)): PathText<(String, String)>,
) -> Result<StatusCode, Problem> {
    caller.require(Role::Approve)?;
    let session = session_of(&api, &caller, &session_id)?;
    session.revoke(&caller.by(), Some(GrantId::identify(&grant_id)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}
