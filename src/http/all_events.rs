//! `GET /v1/events`: the events of all of a caller's sessions as one stream or in pages. A browser has six connections
//! per host; a page that shows many sessions needs one of them.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::events::{EventPageSchema, EventsQuery, answer};
use super::problem::{Code, Problem};
use super::request::QueryParams;
use super::stream::{OrderedEvents, Start};
use crate::session::audience::Readership;
use crate::session::handle::SessionHandle;
use crate::session::id::SessionId;
use crate::session::log::Owner;
use crate::session::order::{OrderCursor, OrderFilter, StoreTag};

/// Follow the events of all sessions, or page through them
///
/// All of the caller's sessions (of an admin: all sessions) as one stream, in the order in which their events happened:
/// of each session in the order of its ids. Sessions that are made later join by themselves. Each event is the same as
/// in its session's own stream; only the SSE `id:` differs: a cursor, opaque, that `Last-Event-ID` or `after` takes and
/// that resumes exactly. `session` names the sessions to follow and may repeat; when all of them are deleted the
/// stream ends.
///
/// A deleted session ends with `session.deleted`. Its events are gone with it: who was away then gets no others of it,
/// but still gets this one. A cursor that cannot be honoured (`cursor_beyond_head`; `cursor_unknown`: of another
/// database; `cursor_expired`: more sessions were deleted since than are remembered) is answered by `stream.reset`, then
/// by all events that there are.
///
/// The forms are those of a session's events. In JSON lines the cursor comes in lines
/// `{"type":"stream.cursor","next_after":…}`, behind the events it stands for: who is cut off before one sees these
/// events again, and tells them by `session_id` and `id`. On a page `next_after` and `last_event_id` are cursors.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "streamAllEvents",
    tag = "events",
    params(
        ("session" = Option<Vec<SessionId>>, Query, style = Form, explode, description = "Only this session. May repeat."),
        ("Last-Event-ID" = Option<String>, Header, description = "Begin behind this cursor. Sent by browsers that connect again."),
        EventsQuery,
    ),
    responses(
        (
            status = 200,
            description = "The events. Of a stream each `data:` line, or each line, is an `Event`.",
            content((String = "text/event-stream"), (String = "application/x-ndjson"), (EventPageSchema = "application/json")),
        ),
        (status = "4XX", response = super::openapi::Refused),
        (status = 400, description = "`malformed-request`: a cursor or a type that is none, or a parameter of another form", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 404, description = "`session-not-found`: a `session` that is not there, or not the caller's", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`: too many open streams; `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn stream_all_events(
    State(api): State<Api>,
    caller: Caller,
    SessionsAndQuery { sessions, query }: SessionsAndQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.require(Role::Read)?;
    let sessions = sessions.iter().map(|id| session_of(&api, &caller, id)).collect::<Result<Vec<_>, _>>()?;
    let store = Arc::clone(api.registry.store());
    let tag = store.order().tag();
    let start = query.start(&headers, |text| order_cursor(text, tag))?;
    let owner = if caller.is_admin() { Owner::Anyone } else { Owner::Caller(caller.name().to_owned()) };
    let numbers = sessions.iter().map(SessionHandle::number).collect();
    let of = if sessions.is_empty() {
        vec![Readership::SessionsOf(owner.clone())]
    } else {
        sessions.iter().map(|session| Readership::Session(session.id())).collect()
    };
    let filter = OrderFilter { owner, sessions: (!sessions.is_empty()).then_some(numbers) };
    let logs: Vec<_> = sessions.iter().map(|session| session.log().clone()).collect();
    answer(&api, &caller, &query, &headers, (OrderedEvents::new(store, filter, &logs), of), start).await
}

/// Reads a cursor; one of another database begins nowhere here.
fn order_cursor(text: &str, tag: StoreTag) -> Option<Start> {
    let cursor: OrderCursor = text.parse().ok()?;
    Some(if cursor.store == tag { Start::After(cursor.position.0) } else { Start::Unknown })
}

/// The query, in which `session` may repeat.
#[derive(Debug)]
pub struct SessionsAndQuery {
    /// As they are in the query: an id has nothing in it that a query would have to encode.
    sessions: Vec<String>,
    query: EventsQuery,
}

impl<S: Send + Sync> FromRequestParts<S> for SessionsAndQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let (sessions, rest): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|parameter| parameter.starts_with("session="));
        let sessions = sessions.iter().map(|parameter| parameter["session=".len()..].to_owned()).collect();
        // It was part of a URI before.
        parts.uri = Uri::try_from(format!("/?{}", rest.join("&"))).map_err(|error| {
            Problem::new(Code::MalformedRequest, "the query cannot be read").caused_by(error)
        })?;
        let QueryParams(query) = QueryParams::from_request_parts(parts, state).await?;
        Ok(Self { sessions, query })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use futures_util::FutureExt;

    use super::*;
    use crate::session::order::Position;

    fn read(query: &str) -> Result<SessionsAndQuery, Problem> {
        let (mut parts, ()) = Request::get(format!("/v1/events{query}")).body(()).unwrap().into_parts();
        SessionsAndQuery::from_request_parts(&mut parts, &()).now_or_never().unwrap()
    }

    #[test]
    fn sessions_may_repeat_and_nothing_else_may() {
        assert!(read("").unwrap().sessions.is_empty());
        let read_all = read("?session=a&types=notice&session=b").unwrap();
        assert_eq!(read_all.sessions, ["a", "b"]);
        assert!(read_all.query.selection().unwrap().kinds.is_some());
        for bad in ["?types=notice&types=notice", "?sessions=a", "?session", "?session=a&affter=1"] {
            assert_eq!(read(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }

    #[test]
    fn a_cursor_of_another_database_begins_nowhere() {
        let cursor = OrderCursor { store: StoreTag(7), position: Position(42) }.to_string();
        assert_eq!(order_cursor(&cursor, StoreTag(7)), Some(Start::After(42)));
        assert_eq!(order_cursor(&cursor, StoreTag(8)), Some(Start::Unknown));
        assert_eq!(order_cursor("42", StoreTag(7)), None);
    }
}
