//! `/v1/sessions`: making, reading, changing and deleting sessions.

mod bodies;
mod policy_body;
mod servers;

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::permissions::visible_to;
use super::problem::Problem;
use super::request::{JsonBody, PageRequest, PathText, Preference, QueryParams, next_cursor};
use super::turns::NoFields;
use crate::session::agent::{LaunchError, Setting};
use crate::session::audit::By;
use crate::session::handle::{Choices, Refusal, SessionHandle};
use crate::session::id::SessionId;
use crate::session::registry::NewSession;
use crate::session::snapshot::{SessionState, Snapshot};

pub use bodies::{CreateSession, PatchSession};

pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Which sessions, and which part of the list.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionsQuery {
    /// Only those in this state.
    #[param(inline)]
    state: Option<SessionState>,
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// How much of a session is asked for.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    /// `all`: the agent's settings with all their choices, also the long list of providers; of a session without an
    /// agent as in `short`.
    #[param(inline)]
    config_options: Option<ConfigOptionsForm>,
}

/// Which choices of the agent's settings are listed.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ConfigOptionsForm {
    /// Of a list of more than 50 choices only what is set now.
    Short,
    /// All.
    All,
}

/// Sessions, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionList {
    /// The sessions.
    pub sessions: Vec<Snapshot>,
    /// Asks for the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// Make a session
///
/// Starts an agent and answers when it is ready for prompts. With `Prefer: respond-async` the answer comes at once,
/// with the session as it starts.
#[utoipa::path(
    post,
    path = "/v1/sessions",
    operation_id = "createSession",
    tag = "sessions",
    params(
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait for the agent."),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key again gives the first answer."),
    ),
    request_body = CreateSession,
    responses(
        (
            status = 201,
            description = "The session is ready.",
            body = Snapshot,
            headers(("Location" = String, description = "The session's path.")),
        ),
        (
            status = 202,
            description = "The session starts (`Prefer: respond-async`).",
            body = Snapshot,
            headers(("Location" = String, description = "The session's path.")),
        ),
        (status = "4XX", response = super::openapi::Refused),
        (status = 409, description = "`idempotency-key-reused`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`, `not-in-this-transport`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 424, description = "`extension-required`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 502, description = "`agent-start-failed`, `provider-not-configured`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`, `draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 504, description = "`agent-start-timeout`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn create_session(
    State(api): State<Api>,
    caller: Caller,
    preference: Preference,
    JsonBody(body): JsonBody<CreateSession>,
) -> Result<Response, Problem> {
    caller.require(Role::Prompt)?;
    if let Some(policy) = body.permission_policy() {
        policy_body::require_role(&caller, policy)?;
    }
    let cwd = match body.cwd() {
        Some(cwd) => Some(bodies::usable_cwd(cwd, &api.settings).await),
        None => None,
    };
    let named = body.named_settings();
    body.refuse_what_needs_an_own_process(api.host.as_ref())?;
    if body.names_unknown_extension(api.host.as_ref()) {
        // The agent's program may have it. Asking it once is enough for `check` to know.
        api.host.extensions().await;
    }
    let new = match (body.check(caller.by(), &api.settings, api.host.as_ref()), cwd.transpose()) {
        (Ok(mut new), Ok(cwd)) => {
            new.launch.cwd = cwd;
            new
        }
        (Err(mut faults), Err(fault)) => {
            faults.insert(0, fault);
            return Err(Problem::unacceptable(faults));
        }
        (Err(faults), Ok(_)) => return Err(Problem::unacceptable(faults)),
        (Ok(_), Err(fault)) => return Err(Problem::unacceptable(vec![fault])),
    };
    let respond_async = preference.respond_async;
    // A task of its own: a caller that leaves must not leave a session half made.
    let making = {
        let api = api.clone();
        async move { make(&api, new, &named, respond_async).await }
    };
    let snapshot = api.tasks.spawn(making.in_current_span()).await.map_err(Problem::internal)??;
    let status = if respond_async { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    let mut response = (status, Json(&snapshot)).into_response();
    set_location(response.headers_mut(), &format!("/v1/sessions/{}", snapshot.id))?;
    if respond_async {
        response.headers_mut().insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    Ok(response)
}

/// `named`: the settings that the caller named itself.
async fn make(
    api: &Api,
    new: NewSession,
    named: &[Setting],
    respond_async: bool,
) -> Result<Snapshot, Problem> {
    let by = new.by.clone();
    let session = api.registry.create(new).await?;
    if respond_async {
        return Ok(session.snapshot().await?);
    }
    match session.started().await? {
        Ok(snapshot) => Ok(snapshot),
        Err(failure) => {
            // The caller gets a problem instead of an id, so nobody would ever delete it.
            remove_failed(&session, &by).await;
            Err(match failure {
                LaunchError::SettingRefused { setting, detail } if named.contains(&setting) => {
                    Problem::invalid(format!("/{setting}"), detail)
                }
                failure => failure.into(),
            })
        }
    }
}

async fn remove_failed(session: &SessionHandle, by: &By) {
    match session.delete(by).await {
        // Somebody who saw it in a list was faster.
        Ok(()) | Err(Refusal::SessionGone) => {}
        Err(refusal) => {
            tracing::warn!(session = %session.id(), %refusal, "a session that did not start could not be deleted");
        }
    }
}

pub(super) fn set_location(headers: &mut HeaderMap, path: &str) -> Result<(), Problem> {
    headers.insert(header::LOCATION, HeaderValue::from_str(path).map_err(Problem::internal)?);
    Ok(())
}

/// List sessions
///
/// The caller's own, newest first; for an admin everybody's.
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listSessions",
    tag = "sessions",
    params(SessionsQuery),
    responses(
        (status = 200, description = "The sessions.", body = SessionList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_sessions(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(query): QueryParams<SessionsQuery>,
) -> Result<Json<SessionList>, Problem> {
    caller.require(Role::Read)?;
    let (page, limit) = PageRequest::new(query.limit, query.cursor.as_deref())?.to_store();
    let mut sessions = api.registry.store().sessions(visible_to(&caller), query.state, page).await?;
    let next_cursor = next_cursor(&mut sessions, limit, |session| session.id);
    Ok(Json(SessionList { sessions, next_cursor }))
}

/// Get a session
///
/// All a page needs to draw itself. Reading on with `/events?after=` and its `last_event_id` has no gap and no double.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}",
    operation_id = "getSession",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session."), SessionQuery),
    responses(
        (status = 200, description = "The session.", body = Snapshot),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn get_session(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<SessionQuery>,
) -> Result<Json<Snapshot>, Problem> {
    caller.require(Role::Read)?;
    let choices = match query.config_options {
        None | Some(ConfigOptionsForm::Short) => Choices::Shortened,
        Some(ConfigOptionsForm::All) => Choices::All,
    };
    Ok(Json(session_of(&api, &caller, &session_id)?.snapshot_with(choices).await?))
}

/// A JSON body that may also call itself a merge patch (RFC 7396).
#[derive(Clone, Copy, Debug)]
pub struct MergePatchBody<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for MergePatchBody<T> {
    type Rejection = Problem;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = content_type.and_then(|text| text.split(';').next()).unwrap_or("").trim();
        if essence.eq_ignore_ascii_case("application/merge-patch+json") {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        JsonBody::from_request(request, state).await.map(|JsonBody(body)| Self(body))
    }
}

/// Change a session
///
/// A merge patch (RFC 7396). Provider, model, thinking effort and mode are given to the agent in this order, which wakes
/// a session without one; if it refuses one, those before it are set back. A new provider comes with its own model. None
/// of the four can be changed while a turn runs. Where the permission policy asks or rejects, the agent runs in mode
/// `approve`, whatever the session's mode (`agent.mode`); a new policy takes effect so with the next turn, and for what
/// the agent asks about already with the next question.
#[utoipa::path(
    patch,
    path = "/v1/sessions/{session_id}",
    operation_id = "updateSession",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    request_body(
        content(
            (PatchSession = "application/json"),
            (PatchSession = "application/merge-patch+json"),
        ),
    ),
    responses(
        (status = 200, description = "The session as it is now.", body = Snapshot),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`turn-in-progress` with `turn_id`, `session-busy`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 424, description = "`extension-required`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 502, description = "`agent-start-failed`, `provider-not-configured`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`, `draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 504, description = "`agent-start-timeout`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn update_session(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    MergePatchBody(body): MergePatchBody<PatchSession>,
) -> Result<Json<Snapshot>, Problem> {
    caller.require(Role::Prompt)?;
    let session = session_of(&api, &caller, &session_id)?;
    let metadata = if body.changes_metadata() { session.snapshot().await?.metadata } else { BTreeMap::new() };
    if let Some(policy) = body.permission_policy() {
        policy_body::require_role(&caller, &policy)?;
    }
    let patch = body.check(&metadata, &api.settings).map_err(Problem::unacceptable)?;
    Ok(Json(session.patch(&caller.by(), patch).await?))
}

/// Let a session's agent go
///
/// The session stays; the next turn, or a change of its settings, starts an agent that goes on where this one was.
/// What tools have left running ends with the agent, which a notice tells.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/hibernate",
    operation_id = "hibernateSession",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    responses(
        (status = 200, description = "The session without an agent.", body = Snapshot),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`turn-in-progress`, `session-busy`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn hibernate_session(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    JsonBody(NoFields {}): JsonBody<NoFields>,
) -> Result<Json<Snapshot>, Problem> {
    caller.require(Role::Prompt)?;
    Ok(Json(session_of(&api, &caller, &session_id)?.hibernate(&caller.by()).await?))
}

/// Delete a session
///
/// Ends its agent and everything that started, and deletes its data. Deleting it again is a 404.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session_id}",
    operation_id = "deleteSession",
    tag = "sessions",
    params(("session_id" = SessionId, Path, description = "The session.")),
    responses(
        (status = 204, description = "The session is gone."),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`session-busy`: it is being deleted", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn delete_session(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Role::Prompt)?;
    session_of(&api, &caller, &session_id)?.delete(&caller.by()).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::super::problem::Code;
    use super::*;

    async fn patch_of(content_type: &str, body: &'static str) -> Result<PatchSession, Problem> {
        let request = Request::patch("/").header(header::CONTENT_TYPE, content_type).body(Body::from(body));
        MergePatchBody::from_request(request.unwrap(), &()).await.map(|MergePatchBody(patch)| patch)
    }

    #[tokio::test]
    async fn a_patch_is_json_or_a_merge_patch() {
        for content_type in ["application/json", "Application/Merge-Patch+JSON; charset=utf-8"] {
            assert!(patch_of(content_type, r#"{"metadata": {}}"#).await.unwrap().changes_metadata());
            let problem = patch_of(content_type, r#"{"owner": "me"}"#).await.unwrap_err();
            assert_eq!(problem.code(), Code::InvalidRequest);
            assert_eq!(patch_of(content_type, "{").await.unwrap_err().code(), Code::MalformedRequest);
        }
        for content_type in ["application/json-patch+json", "text/plain"] {
            let problem = patch_of(content_type, "{}").await.unwrap_err();
            assert_eq!(problem.code(), Code::UnsupportedMediaType);
        }
    }

    #[tokio::test]
    async fn a_list_is_asked_for_with_known_states_and_parameters() {
        async fn query(text: &str) -> Result<SessionsQuery, Problem> {
            let request = Request::get(format!("/?{text}")).body(Body::empty()).unwrap();
            QueryParams::from_request(request, &()).await.map(|QueryParams(query)| query)
        }
        let all = query("state=awaiting_permission&limit=7&cursor=x").await.unwrap();
        assert_eq!((all.state, all.limit), (Some(SessionState::AwaitingPermission), Some(7)));
        for bad in ["state=asleep", "limit=many", "owner=me"] {
            assert_eq!(query(bad).await.unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }
}
