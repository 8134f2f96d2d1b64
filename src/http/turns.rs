//! `/v1/sessions/{id}/turns`: prompting the agent.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::accept::{EVENT_STREAM, JSON, weight_of};
use super::auth::{Caller, Role, session_of};
use super::events::{event_stream, readers, reserve_stream};
use super::idempotency::StreamAgain;
use super::problem::Problem;
use super::prompt::prompt_of;
use super::request::{Identifier, JsonBody, PageRequest, PathText, Preference, QueryParams, next_cursor};
use super::sessions::{PREFERENCE_APPLIED, set_location};
use super::stream::{Form, OpenStream, Selection, SessionEvents, Start, Until};
use crate::session::audience::Readership;
use crate::session::handle::SessionHandle;
use crate::session::id::{SessionId, TurnId};
use crate::session::turn::{Prompt, Turn, WhenBusy};

/// What begins a turn.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTurn {
    /// Text, or ACP content blocks: `text`, `image`, `resource` with text, and `resource_link` to a file in the session's
    /// directory or to a web page.
    #[schema(value_type = Prompt)]
    prompt: Value,
    /// What to do while another turn runs, the session starts, or no place is free for its agent.
    #[serde(default)]
    when_busy: WhenBusy,
}

/// Which part of the list of turns.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TurnsQuery {
    /// How many at most.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<usize>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Turns, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TurnList {
    /// The turns.
    pub turns: Vec<Turn>,
    /// Asks for the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// How a caller wants a new turn answered.
#[derive(Debug)]
enum Wanted {
    /// At once.
    Turn,
    /// When it is over, or after so long.
    FinishedTurn(Duration),
    /// With its events.
    Events(OpenStream),
}

/// Prompt the agent
///
/// Begins a turn. Answers at once (202); with `Accept: text/event-stream` with the turn's events, ending behind its
/// last one; with `Prefer: wait=<seconds>` with the finished turn, or 202 when it is not finished in time. A turn that
/// fails is still 200 then: the request worked, the turn did not. A caller that leaves ends no turn: only cancel does.
///
/// While another turn runs, the session starts, or no place is free for its agent, the prompt is refused, or with
/// `"when_busy": "queue"` its turn waits: it is `queued`, begins when those before it are over, and is answered in the
/// same ways.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/turns",
    operation_id = "createTurn",
    tag = "turns",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("Prefer" = Option<String>, Header, description = "`wait=30`: wait for the turn's end, in seconds."),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key again gives the first answer."),
    ),
    request_body = StartTurn,
    responses(
        (
            status = 200,
            description = "The finished turn (`Prefer: wait`), or the turn's events (`Accept: text/event-stream`).",
            content((Turn = "application/json"), (String = "text/event-stream")),
            headers(("Location" = String, description = "The turn's path.")),
        ),
        (
            status = 202,
            description = "The turn has begun, or is queued.",
            body = Turn,
            headers(("Location" = String, description = "The turn's path.")),
        ),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`turn-in-progress` with `turn_id`, `session-busy`, `idempotency-key-reused`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 422, description = "`invalid-request`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`, `draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn create_turn(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    preference: Preference,
    headers: HeaderMap,
    JsonBody(body): JsonBody<StartTurn>,
) -> Result<Response, Problem> {
    caller.require(Role::Prompt)?;
    let session = session_of(&api, &caller, &session_id)?;
    let prompt = prompt_of(body.prompt, api.settings.prompt).map_err(Problem::unacceptable)?;
    // Before the turn begins: a stream that may not be opened must not cost a turn.
    let wanted = if wants_events(&headers) {
        caller.require(Role::Read)?;
        // Whoever follows the turn counts from the first on as one who sees what it asks.
        Wanted::Events(followed(&api, &caller, &session)?)
    } else {
        preference.wait.map_or(Wanted::Turn, |wait| Wanted::FinishedTurn(wait.min(api.settings.wait)))
    };
    let turn = session.prompt(&caller.by(), prompt, body.when_busy).await?;
    let path = path_of(session.id(), turn.id);
    let mut response = match wanted {
        Wanted::Turn => (StatusCode::ACCEPTED, Json(turn)).into_response(),
        Wanted::FinishedTurn(wait) => {
            let mut response = finished_in_time(&api, &session, turn, wait).await;
            let applied = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
            response.headers_mut().insert(PREFERENCE_APPLIED, applied.map_err(Problem::internal)?);
            response
        }
        Wanted::Events(counted) => turn_stream(&api, &caller, counted, &session, &turn),
    };
    set_location(response.headers_mut(), &path)?;
    Ok(response)
}

/// 200 with the finished turn, or 202 with the turn as it is when the time is up or everything has to end at once.
async fn finished_in_time(api: &Api, session: &SessionHandle, turn: Turn, wait: Duration) -> Response {
    let ended = tokio::select! {
        biased;
        ended = session.turn_ended(turn.id) => ended.ok(),
        () = tokio::time::sleep(wait) => None,
        () = api.tasks.hard().cancelled() => None,
    };
    match ended {
        Some(turn) => Json(turn).into_response(),
        // Also when its end could not be learned: the turn has begun, and an error here would say that it has not.
        None => {
            let turn = session.turn(turn.id).await.unwrap_or(turn);
            (StatusCode::ACCEPTED, Json(turn)).into_response()
        }
    }
}

/// Counts a stream that follows a turn of this session.
fn followed(api: &Api, caller: &Caller, session: &SessionHandle) -> Result<OpenStream, Problem> {
    let readers = readers(api, caller, vec![Readership::Session(session.id())]);
    Ok(reserve_stream(api, caller)?.read_as(readers))
}

/// The events of one turn, from its first to its last.
fn turn_stream(
    api: &Api,
    caller: &Caller,
    counted: OpenStream,
    session: &SessionHandle,
    turn: &Turn,
) -> Response {
    let start = Start::After(turn.first_event_id.0.saturating_sub(1));
    let selection = (Form::Named, Selection { turn: Some(turn.id), ..Selection::default() });
    let source = SessionEvents::new(session.log().clone());
    event_stream(api, caller, counted, source, start, Until::TurnEnds(turn.id), selection)
}

/// Answers repeated requests whose first answer was a turn's event stream.
pub(super) fn stream_again(api: Api) -> StreamAgain {
    Arc::new(move |caller, location| {
        let api = api.clone();
        Box::pin(async move { stream_turn_at(&api, &caller, &location).await })
    })
}

/// The event stream of the turn at a path, from its first event on.
async fn stream_turn_at(api: &Api, caller: &Caller, path: &str) -> Result<Response, Problem> {
    caller.require(Role::Read)?;
    let (session_id, turn_id) = ids_of_path(path).ok_or_else(TurnId::not_found)?;
    let session = session_of(api, caller, session_id)?;
    let turn = session.turn(TurnId::identify(turn_id)?).await?;
    let counted = followed(api, caller, &session)?;
    let mut response = turn_stream(api, caller, counted, &session, &turn);
    set_location(response.headers_mut(), path)?;
    Ok(response)
}

fn path_of(session: SessionId, turn: TurnId) -> String {
    format!("/v1/sessions/{session}/turns/{turn}")
}

/// The ids of session and turn in a turn's path.
fn ids_of_path(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/v1/sessions/")?.split_once("/turns/")
}

/// Whether a caller prefers an event stream to JSON: it names the type, and does not name JSON with the same or a
/// greater weight. Wildcards mean JSON, what every caller can read.
fn wants_events(headers: &HeaderMap) -> bool {
    weight_of(headers, EVENT_STREAM) > weight_of(headers, JSON)
}

/// List a session's turns
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/turns",
    operation_id = "listTurns",
    tag = "turns",
    params(("session_id" = SessionId, Path, description = "The session."), TurnsQuery),
    responses(
        (status = 200, description = "The turns.", body = TurnList),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn list_turns(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<TurnsQuery>,
) -> Result<Json<TurnList>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    let (page, limit) = PageRequest::new(query.limit, query.cursor.as_deref())?.to_store();
    let mut turns = api.registry.store().turns(session.number(), page).await?;
    let next_cursor = next_cursor(&mut turns, limit, |turn| turn.id);
    Ok(Json(TurnList { turns, next_cursor }))
}

/// Get a turn
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/turns/{turn_id}",
    operation_id = "getTurn",
    tag = "turns",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("turn_id" = TurnId, Path, description = "The turn."),
    ),
    responses(
        (status = 200, description = "The turn.", body = Turn),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `turn-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn get_turn(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, turn_id)): PathText<(String, String)>,
) -> Result<Json<Turn>, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    Ok(Json(session.turn(TurnId::identify(&turn_id)?).await?))
}

/// Cancel a turn
///
/// The turn ends `cancelled`, shortly after this answer; a queued one at once.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/turns/{turn_id}/cancel",
    operation_id = "cancelTurn",
    tag = "turns",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("turn_id" = TurnId, Path, description = "The turn."),
    ),
    responses(
        (status = 202, description = "The turn is being cancelled.", body = Turn),
        (status = "4XX", response = super::openapi::Refused),
        (status = 404, description = "`session-not-found`, `turn-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 409, description = "`turn-not-running`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`draining`, `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn cancel_turn(
    State(api): State<Api>,
    caller: Caller,
    PathText((session_id, turn_id)): PathText<(String, String)>,
    JsonBody(NoFields {}): JsonBody<NoFields>,
) -> Result<(StatusCode, Json<Turn>), Problem> {
    caller.require(Role::Prompt)?;
    let session = session_of(&api, &caller, &session_id)?;
    let turn = session.cancel(&caller.by(), TurnId::identify(&turn_id)?).await?;
    Ok((StatusCode::ACCEPTED, Json(turn)))
}

/// A body with nothing in it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_is_for_those_who_ask_for_it_more_than_for_json() {
        let cases = [
            (vec![], false),
            (vec!["*/*"], false),
            (vec!["application/json"], false),
            (vec!["text/event-stream"], true),
            (vec!["Text/Event-Stream; charset=utf-8"], true),
            (vec!["text/event-stream, */*"], true),
            (vec!["application/json, text/event-stream"], false),
            (vec!["application/json;q=0.9, text/event-stream"], true),
            (vec!["application/json", "text/event-stream"], false),
            (vec!["application/json; Q=0.25", "text/event-stream;q=0.3"], true),
            (vec!["text/event-stream;q=0"], false),
            (vec!["text/event-stream;q=0.000, */*"], false),
            (vec!["text/event-stream;q=0.001"], true),
            (vec!["text/event-stream;q=no"], false),
            (vec!["text/*"], false),
            (vec!["text/event-streams"], false),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in &accept {
                headers.append(axum::http::header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(wants_events(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn a_turns_path_can_be_read_again() {
        let (session, turn) = (SessionId::new(), TurnId::new());
        let path = path_of(session, turn);
        assert_eq!(ids_of_path(&path), Some((session.to_string().as_str(), turn.to_string().as_str())));
        assert_eq!(ids_of_path("/v1/sessions/a"), None);
    }

    #[test]
    fn a_prompt_is_required_and_nothing_else_is_known() {
        assert!(serde_json::from_str::<StartTurn>(r#"{"prompt": "hello"}"#).is_ok());
        assert!(serde_json::from_str::<StartTurn>("{}").is_err());
        assert!(serde_json::from_str::<StartTurn>(r#"{"prompt": "hello", "promt": 1}"#).is_err());
    }
}
