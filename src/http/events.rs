//! `GET /v1/sessions/{id}/events`: a session's events as server-sent events.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::auth::{Caller, Role, session_of};
use super::problem::{Code, Problem};
use super::request::{PathText, QueryParams};
use super::stream::{
    Ended, EventKinds, Naming, OpenStream, Selection, Start, StreamResetType, Subscription, Until,
};
use crate::session::event::EventKind;
use crate::session::id::{EventId, SessionId};
use crate::session::log::SessionLog;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// nginx takes an answer with `no` on without gathering it first.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Which events, from where, in which form.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Begin behind this event: an event id, 0 for all, or `latest` for only new ones. `Last-Event-ID` comes first.
    #[param(example = "42")]
    after: Option<String>,
    /// `false`: end with the last event there is now. Default `true`.
    follow: Option<bool>,
    /// Only these types, separated by commas.
    #[param(example = "turn.completed,permission.requested")]
    types: Option<String>,
    /// `false`: without the `event:` field, for `EventSource.onmessage`. Default `true`.
    named: Option<bool>,
}

impl EventsQuery {
    fn start(&self, last_event_id: Option<&HeaderValue>) -> Result<Start, Problem> {
        let after = match self.after.as_deref() {
            None => Start::After(EventId(0)),
            Some("latest") => Start::Latest,
            Some(text) => {
                Start::After(event_id(text).ok_or_else(|| malformed("in the query: after: is no event id"))?)
            }
        };
        match last_event_id {
            None => Ok(after),
            Some(value) => value
                .to_str()
                .ok()
                .and_then(event_id)
                .map(Start::After)
                .ok_or_else(|| malformed("the header Last-Event-ID is no event id")),
        }
    }

    fn selection(&self) -> Result<Selection, Problem> {
        let kinds = self.types.as_deref().map(event_kinds).transpose()?;
        let naming = if self.named == Some(false) { Naming::Unnamed } else { Naming::Named };
        Ok(Selection { turn: None, kinds, naming })
    }

    fn until(&self) -> Until {
        if self.follow == Some(false) { Until::Now } else { Until::LogEnds }
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::MalformedRequest, detail)
}

/// Digits only: Rust's own parser takes a sign too.
fn event_id(text: &str) -> Option<EventId> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(EventId)).flatten()
}

fn event_kinds(names: &str) -> Result<EventKinds, Problem> {
    let mut kinds = EventKinds::default();
    for name in names.split(',').map(str::trim) {
        match EventKind::from_name(name) {
            Some(kind) => kinds.insert(kind),
            // It is sent in any case, being about the stream.
            None if name == StreamResetType::NAME => {}
            None => return Err(malformed(format!("in the query: types: {name:?} is no event type"))),
        }
    }
    Ok(kinds)
}

/// Follow a session's events
///
/// Server-sent events from the session's log. Ids go up by one from 1 and are never given out twice, so a subscriber
/// that comes back with `Last-Event-ID` or `after` misses nothing and sees nothing twice. A cursor that this session
/// has not given out is answered by `stream.reset`, then by all events. The stream ends when the session is deleted.
/// Comments keep it alive; with them a filtered stream gets bare `id:` lines, which move the cursor of a browser.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/events",
    operation_id = "streamEvents",
    tag = "events",
    params(
        ("session_id" = SessionId, Path, description = "The session."),
        ("Last-Event-ID" = Option<u64>, Header, description = "Begin behind this event. Sent by browsers that connect again."),
        EventsQuery,
    ),
    responses(
        (status = 200, description = "The events: each `data:` line is an `Event`.", content_type = "text/event-stream", body = String),
        (status = "4XX", response = super::openapi::Refused),
        (status = 400, description = "`malformed-request`: a cursor or a type that is none", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`: too many open streams", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
    ),
)]
pub async fn stream_events(
    State(api): State<Api>,
    caller: Caller,
    PathText(session_id): PathText<String>,
    QueryParams(query): QueryParams<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.require(Role::Read)?;
    let session = session_of(&api, &caller, &session_id)?;
    let start = query.start(headers.get(LAST_EVENT_ID))?;
    let selection = query.selection()?;
    let stream = reserve_stream(&api, &caller)?;
    Ok(event_stream(&api, &caller, stream, session.log().clone(), start, query.until(), selection))
}

/// Counts one more open stream of the caller, or 503 when there are too many.
pub(super) fn reserve_stream(api: &Api, caller: &Caller) -> Result<OpenStream, Problem> {
    let limit = api.settings.streams_per_caller;
    api.streams.open(caller.name(), limit).ok_or_else(|| {
        Problem::new(
            Code::AtCapacity,
            format!("this caller has {limit} event streams open, as many as it may"),
        )
    })
}

/// An answer that is an event stream.
pub(super) fn event_stream(
    api: &Api,
    caller: &Caller,
    counted: OpenStream,
    log: SessionLog,
    start: Start,
    until: Until,
    selection: Selection,
) -> Response {
    let heartbeat = api.settings.heartbeat;
    let subscription = Subscription::new(log, start, until, selection, heartbeat, ended(api, caller));
    sse_response(subscription, counted)
}

/// Done when everything has to end at once or the caller's token is taken away. When gander stops, each session closes
/// its log once its turn is over, and its streams end behind the last event.
fn ended(api: &Api, caller: &Caller) -> Ended {
    let hard = api.tasks.hard().clone();
    let revoked = caller.revoked();
    Box::pin(async move {
        tokio::select! {
            () = hard.cancelled() => {}
            () = revoked => {}
        }
    })
}

/// The stream is counted as open until its body is dropped.
fn sse_response(subscription: Subscription, counted: OpenStream) -> Response {
    let chunks =
        futures_util::stream::unfold((subscription, counted), async |(mut subscription, counted)| {
            let chunk = subscription.next_chunk().await?;
            Some((Ok::<_, Infallible>(chunk), (subscription, counted)))
        });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::extract::FromRequestParts;
    use axum::http::Request;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::super::fake_log::FakeLog;
    use super::super::stream::OpenStreams;
    use super::*;

    fn try_query(text: &str) -> Result<EventsQuery, Problem> {
        let request = Request::get(format!("/?{text}")).body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        let query = QueryParams::from_request_parts(&mut parts, &()).now_or_never().unwrap();
        query.map(|QueryParams(query)| query)
    }

    fn query(text: &str) -> EventsQuery {
        try_query(text).unwrap()
    }

    #[test]
    fn parameters_are_known_and_have_their_types() {
        for bad in ["follow=maybe", "named=1", "affter=7", "follow=false&follow=true"] {
            assert_eq!(try_query(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }

    #[test]
    fn the_header_comes_before_the_query_and_the_query_before_the_first_event() {
        let header = HeaderValue::from_static("7");
        assert_eq!(query("").start(None).unwrap(), Start::After(EventId(0)));
        assert_eq!(query("after=0").start(None).unwrap(), Start::After(EventId(0)));
        assert_eq!(query("after=5").start(None).unwrap(), Start::After(EventId(5)));
        assert_eq!(query("after=latest").start(None).unwrap(), Start::Latest);
        for text in ["", "after=5", "after=latest"] {
            assert_eq!(query(text).start(Some(&header)).unwrap(), Start::After(EventId(7)));
        }
    }

    #[test]
    fn a_cursor_that_is_no_event_id_is_refused() {
        for bad in ["", "x", "-1", "+1", " 1", "1.0", "0x1", "99999999999999999999", "Latest"] {
            let in_query = bad.replace('+', "%2B").replace(' ', "%20");
            let by_query = query(&format!("after={in_query}")).start(None).unwrap_err();
            assert_eq!(by_query.code(), Code::MalformedRequest, "{bad:?}");
            let header = HeaderValue::from_str(bad).unwrap();
            assert_eq!(query("").start(Some(&header)).unwrap_err().code(), Code::MalformedRequest, "{bad:?}");
        }
        let latest = HeaderValue::from_static("latest");
        assert!(query("").start(Some(&latest)).is_err(), "a browser never sends that");
        assert!(query("after=x").start(Some(&HeaderValue::from_static("1"))).is_err());
    }

    #[test]
    fn types_are_a_list_of_known_names() {
        let selection = query("types=plan.updated,%20notice,stream.reset").selection().unwrap();
        let kinds = selection.kinds.unwrap();
        for kind in EventKind::ALL {
            let wanted = [EventKind::PlanUpdated, EventKind::Notice].contains(kind);
            assert_eq!(kinds.contains(*kind), wanted, "{kind:?}");
        }
        for bad in ["types=", "types=plan.updated,", "types=plan", "types=plan.updated,nonsense"] {
            assert_eq!(query(bad).selection().unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
        assert_eq!(query("").selection().unwrap(), Selection::default());
        assert_eq!(query("named=true").selection().unwrap(), Selection::default());
        assert_eq!(query("named=false").selection().unwrap().naming, Naming::Unnamed);
    }

    #[test]
    fn a_stream_follows_unless_told_otherwise() {
        assert_eq!(query("").until(), Until::LogEnds);
        assert_eq!(query("follow=true").until(), Until::LogEnds);
        assert_eq!(query("follow=false").until(), Until::Now);
    }

    #[tokio::test]
    async fn the_answer_is_an_event_stream_that_is_counted_until_it_is_dropped() {
        let log = FakeLog::new(1_000);
        log.commit_plain(EventKind::Notice, None, 2);
        let streams = OpenStreams::default();
        let answer = |until| {
            let subscription = Subscription::new(
                log.log.clone(),
                Start::After(EventId(0)),
                until,
                Selection::default(),
                Duration::from_secs(15),
                Box::pin(std::future::pending()),
            );
            sse_response(subscription, streams.open("alice", 1).unwrap())
        };
        let response = answer(Until::Now);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-cache");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert!(streams.open("alice", 1).is_none());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.ends_with(&log.bytes(0, 2)));
        drop(answer(Until::LogEnds));
        assert!(streams.open("alice", 1).is_some());
    }
}
