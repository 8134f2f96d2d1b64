//! `/v1/sessions/{id}/permissions`: what the agent asks, and the answers.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::{Code, FieldError, Problem};
use super::request::{Identifier, JsonBody, PageRequest, PathText, QueryParams, next_cursor};
use crate::session::handle::{AskedCall, Refusal};
use crate::session::id::{PermissionId, SessionId};
use crate::session::log::{Owner, PermissionsOf};
use crate::session::permission::{Answer, Decision, Explanation, Permission, PermissionState, Scope};

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
    /// For how long; only with `decision`. Default `once`. `session` only where the request offers it: its `options`
    /// say what would be remembered.
    #[schema(examples("once", "session"))]
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
        let (decision, scope) = match (self.decision, self.option_id.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("/option_id", "must not come together with decision"));
            }
            (None, None) => return Err(Problem::invalid("", "needs a decision or an option_id")),
            (None, Some(_)) if self.scope.is_some() => {
                return Err(Problem::invalid("/scope", "must not come together with option_id"));
            }
            (Some(decision), None) => match self.scope.as_deref() {
                None | Some("once") => (decision, Scope::Once),
                Some("session") => (decision, Scope::Session),
                Some(_) => return Err(unknown_option("scope", "must be once or session")),
            },
            (None, Some(option)) => match option {
                "allow_once" => (Decision::Allow, Scope::Once),
                "allow_always" => (Decision::Allow, Scope::Session),
                "reject_once" => (Decision::Reject, Scope::Once),
                "reject_always" => (Decision::Reject, Scope::Session),
                _ => return Err(unknown_option("option_id", "must be one of the request's options")),
            },
        };
        if self.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            let detail = format!("must not be longer than {REASON_CHARS} characters");
            return Err(Problem::invalid("/reason", detail));
        }
        Ok(Answer { decision, scope, reason: self.reason })
    }
}

fn unknown_option(field: &str, detail: &str) -> Problem {
    let error = FieldError::new(format!("/{field}"), detail);
    Problem::new(Code::UnknownPermissionOption, format!("/{field}: {detail}")).errors(vec![error])
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
///
/// With the scope `session` (the options `allow_always` and `reject_always`) the answer is remembered for this session:
/// what for, the option's name says, and `permission-grants` lists it. It spares questions only: no remembered answer
/// lets through what a rule asks about or rejects.
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
    let field = if body.option_id.is_some() { "option_id" } else { "scope" };
    match session.answer(&caller.by(), permission, body.check()?).await {
        Err(refusal @ Refusal::OptionNotOffered) => Err(unknown_option(field, &refusal.to_string())),
        result => Ok(Json(result?)),
    }
}

/// A tool call to ask about.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SupposedCall {
    /// The tool's name, as in a permission's `tool_call`.
    #[schema(examples("shell"), min_length = 1, max_length = 1024)]
    tool: String,
    /// The extension that provides it; left out: the one that is known to have such a tool.
    #[schema(examples("developer"))]
    extension: Option<String>,
    /// The tool's arguments.
    #[schema(value_type = Object, example = json!({"command": "git status"}))]
    input: Value,
}

/// Explain what would become of a tool call
///
/// By the very decision that the agent's calls get: the gateway's rules and the session's, what "always" has remembered,
/// the session's mode, and where its paths lead now. Nothing is asked and nothing changes.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/permissions/explain",
    operation_id = "explainPermission",
    tag = "permissions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    request_body = SupposedCall,
    responses(
        (status = 200, description = "What would become of it, and why.", body = Explanation),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn explain_permission(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    JsonBody(body): JsonBody<SupposedCall>,
) -> Result<Json<Explanation>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    let SupposedCall { tool, extension, input } = body;
    if tool.is_empty() {
        return Err(Problem::invalid("/tool", "must not be empty"));
    }
    if !input.is_object() {
        return Err(Problem::invalid("/input", "must be an object: the tool's arguments"));
    }
    Ok(Json(session.explain(AskedCall { tool, extension, input }).await?))
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
        let always = Answer { scope: Scope::Session, ..allow.clone() };
        let never = Answer { scope: Scope::Session, ..reject.clone() };
        for (body, expected) in [
            (json!({"decision": "allow"}), &allow),
            (json!({"decision": "allow", "scope": "once"}), &allow),
            (json!({"option_id": "allow_once"}), &allow),
            (json!({"decision": "reject"}), &reject),
            (json!({"option_id": "reject_once"}), &reject),
            (json!({"option_id": "allow_always"}), &always),
            (json!({"decision": "allow", "scope": "session"}), &always),
            (json!({"option_id": "reject_always"}), &never),
            (json!({"decision": "reject", "scope": "session"}), &never),
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
            json!({"option_id": "allow"}),
            json!({"option_id": ""}),
            json!({"decision": "allow", "scope": "week"}),
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
