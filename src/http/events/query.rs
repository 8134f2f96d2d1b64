//! What callers say of the events they want: which, from where, and in which form.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::IntoParams;

use crate::http::accept::{EVENT_STREAM, JSON, JSON_LINES, weight_of};
use crate::http::problem::{Code, Problem};
use crate::http::stream::{EventKinds, Form, Selection, Start, StreamCursorType, StreamResetType, Until};
use crate::session::event::EventKind;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Events on a page when the caller does not say, and at most.
const DEFAULT_PAGE: usize = 200;
const MAX_PAGE: usize = 1000;

/// Which events, from where, in which form.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Begin behind this event: an event id or a cursor as it was given, 0 for all, or `latest` for only new ones.
    /// `Last-Event-ID` comes first.
    #[param(example = "42")]
    pub(super) after: Option<String>,
    /// Streams only. `false`: end with the last event there is now. Default `true`.
    follow: Option<bool>,
    /// Only these types, separated by commas; `permission.*` stands for every type that begins so.
    #[param(example = "turn.completed,permission.*")]
    types: Option<String>,
    /// Server-sent events only. `false`: without the `event:` field, for `EventSource.onmessage`. Default `true`.
    named: Option<bool>,
    /// Pages only. How many events at most.
    #[param(minimum = 1, maximum = 1000, default = 200)]
    limit: Option<usize>,
    /// Pages only. When there is no event yet: wait for the first one, so many seconds at most.
    #[param(example = 25)]
    wait_s: Option<u32>,
    /// In place of the header `Authorization`: a ticket of `POST /v1/stream-tickets`.
    // Whose it is has been found out by the time this is read, and it has no place in anything that is logged.
    #[param(value_type = Option<String>)]
    #[expect(dead_code, reason = "named, so that it is no unknown parameter")]
    ticket: Option<IgnoredAny>,
}

/// What the answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Wanted {
    /// A stream.
    Stream(Form, Until),
    /// A page of at most so many events, after a wait for the first one.
    Page { limit: usize, wait: Duration },
}

impl EventsQuery {
    /// Reads the form from the `Accept` header: server-sent events unless the caller names another one. A parameter
    /// that says nothing about that form is refused: the caller expects something else.
    pub(in crate::http) fn wanted(
        &self,
        headers: &HeaderMap,
        longest_wait: Duration,
    ) -> Result<Wanted, Problem> {
        let [events, lines, json] =
            [EVENT_STREAM, JSON_LINES, JSON].map(|media_type| weight_of(headers, media_type));
        let is_page = json > events && json > lines;
        let is_lines = !is_page && lines > events;
        let given = [
            ("follow", self.follow.is_some(), !is_page),
            ("named", self.named.is_some(), !is_page && !is_lines),
            ("limit", self.limit.is_some(), is_page),
            ("wait_s", self.wait_s.is_some(), is_page),
        ];
        if let Some((name, ..)) = given.iter().find(|(_, given, fits)| *given && !fits) {
            let detail = format!("in the query: {name}: does not go with the form that Accept asks for");
            return Err(malformed(detail));
        }
        if is_page {
            let limit = self.limit.unwrap_or(DEFAULT_PAGE);
            if !(1..=MAX_PAGE).contains(&limit) {
                return Err(malformed(format!("in the query: limit: has to be from 1 to {MAX_PAGE}")));
            }
            let wait = Duration::from_secs(self.wait_s.unwrap_or(0).into()).min(longest_wait);
            return Ok(Wanted::Page { limit, wait });
        }
        let form = match self.named {
            _ if is_lines => Form::Lines,
            Some(false) => Form::Unnamed,
            Some(true) | None => Form::Named,
        };
        let until = if self.follow == Some(false) { Until::Now } else { Until::LogEnds };
        Ok(Wanted::Stream(form, until))
    }

    /// Where to begin: the header, else the query, else the first event. `cursor` reads what is neither `0` nor
    /// `latest`.
    pub(in crate::http) fn start(
        &self,
        headers: &HeaderMap,
        cursor: impl Fn(&str) -> Option<Start>,
    ) -> Result<Start, Problem> {
        let cursor = |text: &str| if text == "0" { Some(Start::After(0)) } else { cursor(text) };
        let after = match self.after.as_deref() {
            None => Start::After(0),
            Some("latest") => Start::Latest,
            Some(text) => cursor(text).ok_or_else(|| malformed("in the query: after: is no cursor"))?,
        };
        match headers.get(LAST_EVENT_ID).map(HeaderValue::to_str) {
            None => Ok(after),
            Some(text) => {
                text.ok().and_then(cursor).ok_or_else(|| malformed("the header Last-Event-ID is no cursor"))
            }
        }
    }

    /// Which types.
    pub(in crate::http) fn selection(&self) -> Result<Selection, Problem> {
        let kinds = self.types.as_deref().map(event_kinds).transpose()?;
        Ok(Selection { turn: None, kinds })
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(Code::MalformedRequest, detail)
}

/// An event id. Digits only: Rust's own parser takes a sign too.
pub(in crate::http) fn event_id(text: &str) -> Option<Start> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(Start::After)).flatten()
}

fn event_kinds(names: &str) -> Result<EventKinds, Problem> {
    let mut kinds = EventKinds::default();
    for name in names.split(',').map(str::trim) {
        let family = name.strip_suffix('*').filter(|family| family.len() > 1 && family.ends_with('.'));
        if let Some(family) = family {
            let mut found = EventKind::ALL.iter().filter(|kind| kind.as_str().starts_with(family)).peekable();
            if found.peek().is_none() {
                return Err(malformed(format!("in the query: types: no event type begins with {family:?}")));
            }
            found.for_each(|kind| kinds.insert(*kind));
            continue;
        }
        match EventKind::from_name(name) {
            Some(kind) => kinds.insert(kind),
            // They are sent in any case, being about the stream.
            None if [StreamResetType::NAME, StreamCursorType::NAME].contains(&name) => {}
            None => return Err(malformed(format!("in the query: types: {name:?} is no event type"))),
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use axum::http::{Request, header};
    use futures_util::FutureExt;

    use super::*;
    use crate::http::request::QueryParams;

    const LONGEST: Duration = Duration::from_mins(5);

    fn try_query(text: &str) -> Result<EventsQuery, Problem> {
        let request = Request::get(format!("/?{text}")).body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        let query = QueryParams::from_request_parts(&mut parts, &()).now_or_never().unwrap();
        query.map(|QueryParams(query)| query)
    }

    fn query(text: &str) -> EventsQuery {
        try_query(text).unwrap()
    }

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    fn start(text: &str, last_event_id: Option<&str>) -> Result<Start, Problem> {
        let headers = last_event_id.map_or_else(HeaderMap::new, |value| headers(LAST_EVENT_ID, value));
        query(text).start(&headers, event_id)
    }

    fn wanted(text: &str, accept: &str) -> Result<Wanted, Problem> {
        query(text).wanted(&headers(header::ACCEPT, accept), LONGEST)
    }

    #[test]
    fn parameters_are_known_and_have_their_types() {
        for bad in
            ["follow=maybe", "named=1", "affter=7", "follow=false&follow=true", "limit=-1", "wait_s=1.5"]
        {
            assert_eq!(try_query(bad).unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
    }

    #[test]
    fn the_header_comes_before_the_query_and_the_query_before_the_first_event() {
        assert_eq!(start("", None).unwrap(), Start::After(0));
        assert_eq!(start("after=0", None).unwrap(), Start::After(0));
        assert_eq!(start("after=5", None).unwrap(), Start::After(5));
        assert_eq!(start("after=latest", None).unwrap(), Start::Latest);
        for text in ["", "after=5", "after=latest"] {
            assert_eq!(start(text, Some("7")).unwrap(), Start::After(7));
        }
    }

    #[test]
    fn a_cursor_that_is_no_event_id_is_refused() {
        for bad in ["", "x", "-1", "+1", " 1", "1.0", "0x1", "99999999999999999999", "Latest"] {
            let in_query = bad.replace('+', "%2B").replace(' ', "%20");
            let by_query = start(&format!("after={in_query}"), None).unwrap_err();
            assert_eq!(by_query.code(), Code::MalformedRequest, "{bad:?}");
            let by_header = start("", Some(bad)).unwrap_err();
            assert_eq!(by_header.code(), Code::MalformedRequest, "{bad:?}");
        }
        assert!(start("", Some("latest")).is_err(), "a browser never sends that");
        assert!(start("after=x", Some("1")).is_err());
    }

    #[test]
    fn types_are_a_list_of_known_names() {
        let selection = query("types=plan.updated,%20notice,stream.reset,stream.cursor").selection().unwrap();
        let kinds = selection.kinds.unwrap();
        for kind in EventKind::ALL {
            let wanted = [EventKind::PlanUpdated, EventKind::Notice].contains(kind);
            assert_eq!(kinds.contains(*kind), wanted, "{kind:?}");
        }
        let kinds = query("types=permission.*,notice").selection().unwrap().kinds.unwrap();
        for kind in EventKind::ALL {
            let wanted = kind.as_str().starts_with("permission.") || *kind == EventKind::Notice;
            assert_eq!(kinds.contains(*kind), wanted, "{kind:?}");
        }
        for bad in [
            "types=",
            "types=plan.updated,",
            "types=plan",
            "types=plan.updated,nonsense",
            "types=*",
            "types=.*",
            "types=permission*",
            "types=nonsense.*",
            "types=permission.re*",
        ] {
            assert_eq!(query(bad).selection().unwrap_err().code(), Code::MalformedRequest, "{bad}");
        }
        assert_eq!(query("").selection().unwrap(), Selection::default());
    }

    #[test]
    fn the_accept_header_chooses_the_form() {
        let stream = |form| Wanted::Stream(form, Until::LogEnds);
        let page = Wanted::Page { limit: 200, wait: Duration::ZERO };
        for (accept, expected) in [
            ("*/*", stream(Form::Named)),
            ("text/html", stream(Form::Named)),
            ("text/event-stream", stream(Form::Named)),
            ("application/x-ndjson", stream(Form::Lines)),
            ("application/json", page),
            ("application/json, text/plain, */*", page),
            ("application/json, text/event-stream", stream(Form::Named)),
            ("application/json, application/x-ndjson;q=0.9", page),
            ("application/json;q=0.8, application/x-ndjson;q=0.9", stream(Form::Lines)),
        ] {
            assert_eq!(wanted("", accept).unwrap(), expected, "{accept}");
        }
        let none = query("").wanted(&HeaderMap::new(), LONGEST).unwrap();
        assert_eq!(none, stream(Form::Named));
    }

    #[test]
    fn parameters_go_with_their_forms_only() {
        assert_eq!(wanted("named=false", "*/*").unwrap(), Wanted::Stream(Form::Unnamed, Until::LogEnds));
        assert_eq!(wanted("named=true", "*/*").unwrap(), Wanted::Stream(Form::Named, Until::LogEnds));
        assert_eq!(wanted("follow=false", JSON_LINES).unwrap(), Wanted::Stream(Form::Lines, Until::Now));
        assert_eq!(wanted("follow=true", "*/*").unwrap(), Wanted::Stream(Form::Named, Until::LogEnds));
        let page = Wanted::Page { limit: 7, wait: Duration::from_secs(25) };
        assert_eq!(wanted("limit=7&wait_s=25", JSON).unwrap(), page);
        for (query, accept) in [
            ("named=false", JSON_LINES),
            ("named=false", JSON),
            ("follow=false", JSON),
            ("limit=7", EVENT_STREAM),
            ("wait_s=1", JSON_LINES),
            ("limit=0", JSON),
            ("limit=1001", JSON),
        ] {
            assert_eq!(wanted(query, accept).unwrap_err().code(), Code::MalformedRequest, "{query} {accept}");
        }
    }

    #[test]
    fn nobody_waits_longer_than_the_gateway_lets_them() {
        let page = Wanted::Page { limit: 200, wait: LONGEST };
        assert_eq!(wanted("wait_s=4000000000", JSON).unwrap(), page);
    }
}
