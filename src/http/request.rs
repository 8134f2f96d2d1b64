//! What handlers take from a request, with problems for everything that cannot be taken.

use std::str::FromStr;
use std::time::Duration;

use axum::RequestPartsExt;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::Segment;

use super::problem::{Code, Problem, pointer_token};
use crate::session::id::{GrantId, PermissionId, SessionId, TurnId};
use crate::session::log::Page;

/// A JSON body. No body at all means `{}`.
///
/// Rejections: 413 over the body limit, 415 for another content type, 400 for what is no JSON, 422 with a JSON pointer
/// for what does not fit `T`. `T` should deny unknown fields.
#[derive(Clone, Copy, Debug)]
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let bytes = in_time(Bytes::from_request(request, state)).await?.map_err(body_problem)?;
        if bytes.is_empty() {
            return parse_json(b"{}").map(Self);
        }
        if !is_json {
            return Err(Problem::new(Code::UnsupportedMediaType, "the body has to be application/json"));
        }
        parse_json(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn body_problem(rejection: BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        body_too_large()
    } else {
        Problem::new(Code::MalformedRequest, "the body could not be read").caused_by(rejection)
    }
}

/// How long a body may take to arrive: nobody holds a connection by sending a byte now and then.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Bounds the time of reading a body; 400 over it.
pub(super) async fn in_time<T>(read: impl Future<Output = T>) -> Result<T, Problem> {
    let in_time = tokio::time::timeout(BODY_TIMEOUT, read).await;
    in_time.map_err(|_| Problem::new(Code::MalformedRequest, "the body did not arrive in time"))
}

/// The body is over `limits.body_bytes`.
pub(super) fn body_too_large() -> Problem {
    Problem::new(Code::BodyTooLarge, "the body is larger than this gateway takes")
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // The first pass tells broken JSON (400) from JSON that does not fit (422), wherever in the body either is.
    serde_json::from_slice::<IgnoredAny>(bytes).map_err(|error| malformed_json(&error))?;
    // serde also reads a list as a struct, field by field; callers that send one mean something else.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::invalid("", "the body has to be a JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        if !error.inner().is_data() {
            return malformed_json(error.inner());
        }
        let pointer = json_pointer(error.path());
        let text = error.inner().to_string();
        let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
        Problem::invalid(pointer, detail)
    })
}

fn malformed_json(error: &serde_json::Error) -> Problem {
    Problem::new(Code::MalformedRequest, format!("the body is not JSON: {error}"))
}

/// RFC 6901.
fn json_pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                pointer.push('/');
                pointer.push_str(&index.to_string());
            }
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&pointer_token(key));
            }
            // A variant is no step into the document, and what is unknown cannot be pointed at.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// The query's parameters. `T` should deny unknown fields, and must not flatten: numbers would no longer be read.
///
/// Rejection: 400 naming the parameter.
#[derive(Clone, Copy, Debug)]
pub struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let detail = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(Problem::new(Code::MalformedRequest, format!("in the query: {detail}")))
            }
        }
    }
}

/// The variable parts of the path as text: `PathText(id): PathText<String>` or a tuple of them.
///
/// Rejection: 404, since what cannot be read names nothing.
#[derive(Clone, Copy, Debug)]
pub struct PathText<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequestParts<S> for PathText<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extract::<Path<T>>().await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(_) => Err(Problem::new(Code::NotFound, "the path names nothing")),
        }
    }
}

/// An id that callers put into paths.
pub trait Identifier: FromStr {
    /// What it is called, for people.
    const NAME: &str;

    /// The problem when there is no such thing.
    const NOT_FOUND: Code;

    /// Reads the id; a text that cannot be one names nothing: 404.
    fn identify(text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|_| Self::not_found())
    }

    /// There is no such thing.
    #[must_use]
    fn not_found() -> Problem {
        Problem::new(Self::NOT_FOUND, format!("the {} does not exist", Self::NAME))
    }
}

impl Identifier for SessionId {
    const NAME: &str = "session";
    const NOT_FOUND: Code = Code::SessionNotFound;
}

impl Identifier for TurnId {
    const NAME: &str = "turn";
    const NOT_FOUND: Code = Code::TurnNotFound;
}

impl Identifier for PermissionId {
    const NAME: &str = "permission";
    const NOT_FOUND: Code = Code::PermissionNotFound;
}

impl Identifier for GrantId {
    const NAME: &str = "permission grant";
    const NOT_FOUND: Code = Code::NotFound;
}

/// Entries on a page when the caller does not say.
const DEFAULT_PAGE: usize = 50;

/// Entries on a page at most.
pub const MAX_PAGE: usize = 200;

/// Which part of a list the caller wants: `?limit=&cursor=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest<Id> {
    before: Option<Id>,
    limit: usize,
}

impl<Id: FromStr + ToString> PageRequest<Id> {
    /// Reads both parameters; 400 when one is out of range or not ours.
    pub fn new(limit: Option<usize>, cursor: Option<&str>) -> Result<Self, Problem> {
        let limit = limit.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            let detail = format!("in the query: limit: has to be from 1 to {MAX_PAGE}");
            return Err(Problem::new(Code::MalformedRequest, detail));
        }
        let before = cursor.map(str::parse).transpose().map_err(|_| {
            Problem::new(Code::MalformedRequest, "in the query: cursor: is none that this gateway gave")
        })?;
        Ok(Self { before, limit })
    }

    /// What to ask the store for: one entry more than the page takes, which tells whether another page follows.
    #[must_use]
    pub fn to_store(self) -> (Page<Id>, usize) {
        (Page { before: self.before, limit: self.limit + 1 }, self.limit)
    }
}

/// Cuts a list that was asked for with [`PageRequest::to_store`] to its page, and gives the cursor of the next one.
#[must_use]
pub fn next_cursor<T, Id: ToString>(
    entries: &mut Vec<T>,
    limit: usize,
    id_of: impl Fn(&T) -> Id,
) -> Option<String> {
    if entries.len() <= limit {
        return None;
    }
    entries.truncate(limit);
    entries.last().map(|last| id_of(last).to_string())
}

/// What the caller would like of the answer (RFC 7240, `Prefer`). What is not known here is ignored, as the RFC says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    /// `respond-async`: answer at once, not when it is done.
    pub respond_async: bool,
    /// `wait=<seconds>`: answer when it is done, or after so long.
    pub wait: Option<Duration>,
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

impl Preference {
    /// Reads the `Prefer` headers; 400 for a `wait` that is no number of seconds.
    pub fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut preference = Self::default();
        for value in headers.get_all(PREFER) {
            let value = value
                .to_str()
                .map_err(|_| Problem::new(Code::MalformedRequest, "the header Prefer is not readable"))?;
            for entry in value.split(',') {
                // Parameters of a preference follow a semicolon; the two known ones have none.
                let entry = entry.split(';').next().unwrap_or("");
                let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
                let (name, value) = (name.trim(), value.trim().trim_matches('"'));
                if name.eq_ignore_ascii_case("respond-async") {
                    preference.respond_async = true;
                } else if name.eq_ignore_ascii_case("wait") && preference.wait.is_none() {
                    // RFC 7240, section 2: of several only the first counts.
                    let seconds: u32 = value.parse().map_err(|_| {
                        Problem::new(
                            Code::MalformedRequest,
                            "in the header Prefer: wait: no number of seconds",
                        )
                    })?;
                    preference.wait = Some(Duration::from_secs(seconds.into()));
                }
            }
        }
        Ok(preference)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Preference {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.headers)
    }
}

#[cfg(test)]
mod tests;
