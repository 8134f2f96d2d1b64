//! `/v1/sessions/{id}/permissions`: what the agent asks, and the answers.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::{Code, FieldError, Problem};
use super::request::{Identifier, JsonBody, PageRequest, PathText, QueryParams, next_cursor};
use crate::session::id::{PermissionId, SessionId};
use crate::session::log::{Owner, PermissionsOf};
use crate::session::permission::{Answer, Decision, Permission, PermissionState, Scope};

/// A reason is for people to read.
const REASON_CHARS: usize = 2_000;

/// Which permissions, and which part of the list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PermissionsQuery {
    /// Only those in this state.
    #[param(inline)]
    state: Option<PermissionState>,
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Permission requests, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PermissionList {
    /// The requests.
    pub permissions: Vec<Permission>,
    /// Asks for the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// The answer to a permission request: either a `decision`, or an `option_id`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionAnswer {
    /// What is decided.
    #[schema(inline)]
    decision: Option<Decision>,
    /// For how long; only with `decision`. Default `once`, the only one there is.
    #[schema(examples("once"))]
    scope: Option<String>,
    /// One of the request's `options`, instead of a decision.
    #[schema(examples("allow_once"))]
    option_id: Option<String>,
    /// Why, for people; kept with the outcome.
    #[schema(max_length = 2000)]
    reason: Option<String>,
}

impl PermissionAnswer {
    fn check(self) -> Result<Answer, Problem> {
        let decision = match (self.decision, self.option_id.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("/option_id", "must not come together with decision"));
            }
            (None, None) => return Err(Problem::invalid("", "needs a decision or an option_id")),
            (None, Some(_)) if self.scope.is_some() => {
                return Err(Problem::invalid("/scope", "must not come together with option_id"));
            }
            (Some(decision), None) => decision,
            (None, Some("allow_once")) => Decision::Allow,
            (None, Some("reject_once")) => Decision::Reject,
            (None, Some(_)) => return Err(unknown_option("option_id", "allow_once or reject_once")),
        };
        let scope = match self.scope.as_deref() {
            None | Some("once") => Scope::Once,
            Some(_) => return Err(unknown_option("scope", "once")),
        };
        if self.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            let detail = format!("must not be longer than {REASON_CHARS} characters");
            return Err(Problem::invalid("/reason", detail));
        }
        Ok(Answer { decision, scope, reason: self.reason })
    }
}

fn unknown_option(field: &str, offered: &str) -> Problem {
    let error = FieldError::new(format!("/{field}"), format!("must be {offered}"));
    Problem::new(Code::UnknownPermissionOption, format!("{field} must be {offered}")).errors(vec![error])
}

/// List a session's permission requests
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/permissions",
    operation_id = "listSessionPermissions",
    tag = "permissions",
    params(("session_id" = SessionId, Path, description = "The session."), PermissionsQuery),
    responses(
        (status = 200, description = "The requests.", body = PermissionList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_session_permissions(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<PermissionsQuery>,
) -> Result<Json<PermissionList>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    let PermissionsQuery { state, limit, cursor } = query;
    let of = PermissionsOf::Session(session.number());
    list(&api, of, state, limit, cursor.as_deref()).await.map(Json)
}

/// A page of a list of requests.
pub(super) async fn list(
    api: &Api,
    of: PermissionsOf,
    state: Option<PermissionState>,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Result<PermissionList, Problem> {
    let (page, limit) = PageRequest::new(limit, cursor)?.to_store();
    let mut permissions = api.registry.store().permissions(of, state, page).await?;
    let next_cursor = next_cursor(&mut permissions, limit, |permission| permission.id);
    Ok(PermissionList { permissions, next_cursor })
}

/// Whose things a caller sees in lists.
pub(super) fn visible_to(caller: &Caller) -> Owner {
    if caller.is_admin() { Owner::Anyone } else { Owner::Caller(caller.name().to_owned()) }
}

/// Get a permission request
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/permissions/{permission_id}",
    operation_id = "getPermission",
    tag = "permissions",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("permission_id" = PermissionId, Path, description = "The request."),
    ),
    responses(
        (status = 200, description = "The request.", body = Permission),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `permission-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn get_permission(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, permission_id)): PathText<(String, String)>,
) -> Result<Json<Permission>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    Ok(Json(session.permission(PermissionId::identify(&permission_id)?).await?))
}

/// Answer a permission request
///
/// Exactly one answer wins. The same decision and scope again is answered with the stored outcome; another one, or any
/// after the request has expired or was cancelled, is refused with the permission as it is.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/permissions/{permission_id}",
    operation_id = "answerPermission",
    tag = "permissions",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("permission_id" = PermissionId, Path, description = "The request."),
    ),
    request_body = PermissionAnswer,
    responses(
        (status = 200, description = "The request with its outcome.", body = Permission),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `permission-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`permission-already-resolved` with `permission`, `idempotency-key-reused`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`, `unknown-permission-option`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn answer_permission(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, permission_id)): PathText<(String, String)>,
    JsonBody(body): JsonBody<PermissionAnswer>,
) -> Result<Json<Permission>, Problem> {
    caller.require(Role::Approve)?;
    let session = session_of(&api, &caller, &session_id)?;
    let permission = PermissionId::identify(&permission_id)?;
    Ok(Json(session.answer(caller.name(), permission, body.check()?).await?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(body: Value) -> Result<Answer, Problem> {
        serde_json::from_value::<PermissionAnswer>(body).unwrap().check()
    }

    #[test]
    fn decisions_and_option_ids_mean_the_same() {
        let allow = Answer { decision: Decision::Allow, scope: Scope::Once, reason: None };
        let reject = Answer { decision: Decision::Reject, ..allow.clone() };
        for (body, expected) in [
            (json!({"decision": "allow"}), &allow),
            (json!({"decision": "allow", "scope": "once"}), &allow),
            (json!({"option_id": "allow_once"}), &allow),
            (json!({"decision": "reject"}), &reject),
            (json!({"option_id": "reject_once"}), &reject),
        ] {
            assert_eq!(check(body).unwrap(), *expected);
        }
        let answer = check(json!({"decision": "reject", "reason": "not here"})).unwrap();
        assert_eq!(answer.reason.as_deref(), Some("not here"));
    }

    #[test]
    fn an_answer_is_one_or_the_other() {
        for body in [
            json!({}),
            json!({"reason": "because"}),
            json!({"scope": "once"}),
            json!({"decision": "allow", "option_id": "allow_once"}),
            json!({"option_id": "allow_once", "scope": "once"}),
        ] {
            assert_eq!(check(body.clone()).unwrap_err().code(), Code::InvalidRequest, "{body}");
        }
    }

    #[test]
    fn what_is_not_offered_is_refused_as_such() {
        for body in [
            json!({"option_id": "allow_always"}),
            json!({"option_id": "reject_always"}),
            json!({"option_id": ""}),
            json!({"decision": "allow", "scope": "session"}),
        ] {
            assert_eq!(check(body.clone()).unwrap_err().code(), Code::UnknownPermissionOption, "{body}");
        }
    }

    #[test]
    fn a_reason_is_bounded_in_characters() {
        let of = |length| json!({"decision": "allow", "reason": "é".repeat(length)});
        assert!(check(of(REASON_CHARS)).is_ok());
        assert_eq!(check(of(REASON_CHARS + 1)).unwrap_err().code(), Code::InvalidRequest);
    }
}
