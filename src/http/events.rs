//! `GET /v1/sessions/{id}/events`: a session's events as a stream or in pages.

mod page;
mod query;

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;

use super::Api;
use super::accept::{EVENT_STREAM, JSON, JSON_LINES};
use super::auth::{Caller, Role, session_of};
use super::problem::{Code, Problem};
use super::request::{PathText, QueryParams};
use super::stream::{
    Ended, Form, Heartbeat, OpenStream, Selection, SessionEvents, Source, Start, Subscription, Until,
};
use crate::metrics::Metrics;
use crate::session::audience::{Reader, Readership};
use crate::session::id::SessionId;

pub(super) use page::EventPageSchema;
pub use query::EventsQuery;
use query::Wanted;
use query::event_id;

/// nginx takes an answer with `no` on without gathering it first.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Follow a session's events, or page through them
///
/// **Server-sent events** (the default) from the session's log. Ids go up by one from 1 and are never given out twice,
/// so a subscriber that comes back with `Last-Event-ID` or `after` misses nothing and sees nothing twice. A cursor that
/// this session has not given out is answered by `stream.reset`, then by all events. The stream ends when the session
/// is deleted, when gander stops, and when the caller's token is taken away. Comments keep it alive; with them a
/// filtered stream gets bare `id:` lines, which move the cursor of a browser.
///
/// **JSON lines** (`Accept: application/x-ndjson`): the same events, each a line. A silent stream is kept alive by lines
/// `{"type":"stream.cursor","next_after":…}`, never by empty ones: every line is JSON. With a filter they also say how
/// far the log has been looked at.
///
/// **A page** (`Accept: application/json`): at most `limit` events behind `after`. `next_after` asks for what follows,
/// and has moved over events that are not selected; there is nothing more when it is `last_event_id`. A page ends early
/// at 4 MiB. With `wait_s` a page without events is held back until there is one, at most as long as the gateway lets
/// anybody wait (`limits.wait`); it comes back empty when the time is up, when the session is deleted, when gander
/// stops, and when the caller's token is taken away.
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
        (
            status = 200,
            description = "The events. Of a stream each `data:` line, or each line, is an `Event`.",
            content((String = "text/event-stream"), (String = "application/x-ndjson"), (EventPageSchema = "application/json")),
        ),
        (status = "4XX", response = super::openapi::Refused),
        (status = 400, description = "`malformed-request`: a cursor or a type that is none, or a parameter of another form", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 404, description = "`session-not-found`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
        (status = 503, description = "`at-capacity`: too many open streams; `storage-unavailable`", body = super::openapi::ProblemSchema, content_type = "application/problem+json"),
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
    let start = query.start(&headers, event_id)?;
    let source = SessionEvents::new(session.log().clone());
    let of = vec![Readership::Session(session.id())];
    answer(&api, &caller, &query, &headers, (source, of), start).await
}

/// What a caller asked for, from any source of events.
pub(super) async fn answer(
    api: &Api,
    caller: &Caller,
    query: &EventsQuery,
    headers: &HeaderMap,
    (source, of): (impl Source, Vec<Readership>),
    start: Start,
) -> Result<Response, Problem> {
    let selection = query.selection()?;
    let readers = || if selection.has_questions() { readers(api, caller, of) } else { Vec::new() };
    match query.wanted(headers, api.settings.wait)? {
        Wanted::Stream(form, until) => {
            let counted = reserve_stream(api, caller)?;
            let counted = if until == Until::Now { counted } else { counted.read_as(readers()) };
            Ok(event_stream(api, caller, counted, source, start, until, (form, selection)))
        }
        Wanted::Page { limit, wait } => {
            // One that waits holds as much as a stream does.
            let _counted =
                if wait.is_zero() { None } else { Some(reserve_stream(api, caller)?.read_as(readers())) };
            let page = page::page(source, start, selection, limit, wait, ended(api, caller)).await?;
            Ok(event_response(JSON, Body::from(page)))
        }
    }
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

/// The caller as one who would see what agents ask: only who may answer counts.
pub(super) fn readers(api: &Api, caller: &Caller, of: Vec<Readership>) -> Vec<Reader> {
    if caller.require(Role::Approve).is_err() {
        return Vec::new();
    }
    of.into_iter().map(|of| api.registry.audience().join(of)).collect()
}

/// An answer that is an event stream.
pub(super) fn event_stream(
    api: &Api,
    caller: &Caller,
    counted: OpenStream,
    source: impl Source,
    start: Start,
    until: Until,
    (form, selection): (Form, Selection),
) -> Response {
    let heartbeat = Heartbeat { every: api.settings.heartbeat, padding: api.settings.heartbeat_padding };
    let ended = ended(api, caller);
    let subscription = Subscription::new(source, start, until, (form, selection), heartbeat, ended);
    stream_response(form, subscription, counted, api.metrics.clone())
}

/// Done when everything has to end at once or the caller's token is taken away. When gander stops, each session closes
/// its log once its turn is over, and its streams end behind the last event.
pub(super) fn ended(api: &Api, caller: &Caller) -> Ended {
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
fn stream_response(
    form: Form,
    subscription: Subscription<impl Source>,
    counted: OpenStream,
    metrics: Metrics,
) -> Response {
    let chunks = futures_util::stream::unfold(
        (subscription, counted, metrics),
        async |(mut subscription, counted, metrics)| {
            let chunk = subscription.next_chunk().await?;
            metrics.streamed(chunk.len());
            Some((Ok::<_, Infallible>(chunk), (subscription, counted, metrics)))
        },
    );
    let content_type = if form == Form::Lines { JSON_LINES } else { EVENT_STREAM };
    event_response(content_type, Body::from_stream(chunks))
}

fn event_response(content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt;

    use super::super::fake_log::FakeLog;
    use super::super::stream::OpenStreams;
    use super::*;
    use crate::session::event::EventKind;

    #[tokio::test]
    async fn the_answer_is_an_event_stream_that_is_counted_until_it_is_dropped() {
        let log = FakeLog::new(1_000);
        log.commit_plain(EventKind::Notice, None, 2);
        let streams = OpenStreams::default();
        let answer = |form, until| {
            let subscription = Subscription::new(
                SessionEvents::new(log.log.clone()),
                Start::After(0),
                until,
                (form, Selection::default()),
                Heartbeat { every: Duration::from_secs(15), padding: 0 },
                Box::pin(std::future::pending()),
            );
            stream_response(form, subscription, streams.open("alice", 1).unwrap(), Metrics::new())
        };
        for (form, content_type) in
            [(Form::Named, "text/event-stream"), (Form::Lines, "application/x-ndjson")]
        {
            let response = answer(form, Until::Now);
            assert_eq!(response.headers()["content-type"], content_type);
            assert_eq!(response.headers()["cache-control"], "no-cache");
            assert_eq!(response.headers()["x-accel-buffering"], "no");
            assert!(streams.open("alice", 1).is_none());
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let expected = if form == Form::Lines { log.lines(0, 2) } else { log.bytes(0, 2) };
            assert!(body.ends_with(&expected));
        }
        drop(answer(Form::Named, Until::LogEnds));
        assert!(streams.open("alice", 1).is_some());
    }
}
