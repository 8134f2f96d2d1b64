//! `Idempotency-Key`: the same request again gets the answer of the first.
//!
//! Only answers that made something (2xx) are kept: a request that was refused made nothing, and trying it again is
//! what its caller wants. The work runs in a task of its own, so that a caller who leaves changes nothing: the work is
//! done and its answer is kept for when the caller comes back. A second request waits for the first in a map of what
//! runs in this process; the store knows what was finished, and over restarts.
//!
//! A gateway that dies in the middle of a request leaves it "in progress" in the store with nobody working on it. The
//! same request again then runs anew: nobody can tell how far the first came, and nobody was told that it succeeded.
//!
//! Before an answer is given again, what the first time asked of the caller is asked anew ([`Recheck`]): a role may have
//! been taken away since. An answer about a session goes when the session is deleted; the same request again is then
//! told that there is no such session. That holds for the request that made it, too: what it made is gone, and a second
//! session is not what a repetition asks for.
//!
//! How the answer is wanted (`Accept`, `Prefer`) is not part of the question: the same request again gets the answer of
//! the first as it was. An event stream is not kept byte by byte. Its answer has a `Location` header with the turn's
//! path, that is what is kept, and the same request again is answered with the same turn's events from the log
//! ([`StreamAgain`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tracing::Instrument;

use super::auth::Caller;
use super::layers::catch_panic;
use super::problem::{Code, Problem};
use super::request::{body_too_large, in_time};
use crate::session::agent::BoxFuture;
use crate::session::id::SessionId;
use crate::session::log::StoreError;
use crate::shutdown::Tasks;

/// What identifies a request: the SHA-256 of caller, method, path and the caller's key.
pub type AnswerKey = [u8; 32];

/// The SHA-256 of a request's body.
pub type BodyHash = [u8; 32];

/// An answer, kept for the same request again. Only answers that made something (2xx) are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers worth repeating, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body. Empty for an event stream, which is told anew from the turn that `location` names, and when the session
    /// that it told of is deleted.
    pub body: Bytes,
}

/// Whether a request came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// No. From now on it counts as in progress.
    Fresh,
    /// Yes, and this was its answer.
    Stored(StoredAnswer),
    /// Yes, with another body.
    Mismatch,
    /// Yes, and it has neither been finished nor forgotten.
    InProgress,
}

/// Where answers are kept, for 24 hours and over restarts.
pub trait RememberedAnswers: Send + Sync + 'static {
    /// Looks a request up, and marks it as in progress when it is new.
    fn begin(&self, key: AnswerKey, body: BodyHash) -> BoxFuture<Result<Begin, StoreError>>;

    /// Keeps the answer of a request that [`begin`](Self::begin) called fresh.
    /// Once `session`, which it tells of, is deleted, its body is forgotten.
    fn finish(
        &self,
        key: AnswerKey,
        session: Option<SessionId>,
        answer: StoredAnswer,
    ) -> BoxFuture<Result<(), StoreError>>;

    /// Forgets a request that made nothing, so that it counts as new again.
    fn forget(&self, key: AnswerKey) -> BoxFuture<Result<(), StoreError>>;
}

/// Whether this caller may have the answer to a request on this path, and may see the session that it tells of.
pub type Recheck =
    Arc<dyn Fn(&Caller, &str, Option<SessionId>) -> Result<(), Problem> + Send + Sync + 'static>;

/// Answers a request whose first answer was an event stream, for this caller: with the events of the turn at the path
/// `location`, from its first on.
pub type StreamAgain =
    Arc<dyn Fn(Caller, String) -> BoxFuture<Result<Response, Problem>> + Send + Sync + 'static>;

/// The longest key.
const MAX_KEY: usize = 255;

/// Requests with a key that may run at once.
const MAX_RUNNING: usize = 1024;

/// The headers worth repeating.
const KEPT_HEADERS: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::LOCATION, HeaderName::from_static("preference-applied")];

const EVENT_STREAM: &str = "text/event-stream";

/// What the layer works with. Cheap to clone.
#[derive(Clone)]
pub(super) struct Memory {
    answers: Arc<dyn RememberedAnswers>,
    tasks: Tasks,
    body_bytes: usize,
    kept_bytes: usize,
    recheck: Recheck,
    stream_again: StreamAgain,
    running: Running,
}

impl Memory {
    /// `body_bytes` bounds a request's body, `kept_bytes` the answer's.
    pub(super) fn new(
        answers: Arc<dyn RememberedAnswers>,
        tasks: Tasks,
        (body_bytes, kept_bytes): (usize, usize),
        recheck: Recheck,
        stream_again: StreamAgain,
    ) -> Self {
        Self { answers, tasks, body_bytes, kept_bytes, recheck, stream_again, running: Running::default() }
    }

    async fn answer(self, request: Request, next: Next) -> Result<Response, Problem> {
        if request.method() != Method::POST {
            return Ok(next.run(request).await);
        }
        let (Some(text), Some(caller)) =
            (key_text(request.headers())?, request.extensions().get::<Caller>().cloned())
        else {
            return Ok(next.run(request).await);
        };
        let (parts, body) = request.into_parts();
        let body = read_body(body, self.body_bytes).await?;
        let key = answer_key(&caller, &parts, &text);
        let body_hash = Sha256::digest(&body).into();
        let claim = loop {
            match self.running.claim(key, body_hash)? {
                Ok(claim) => break claim,
                // It only ever ends: its sender is dropped.
                Err(mut other) => while other.changed().await.is_ok() {},
            }
        };
        let request = Request::from_parts(parts, Body::from(body));
        let tasks = self.tasks.clone();
        let hard = tasks.hard().clone();
        let work =
            async move { hard.run_until_cancelled(self.work(claim, body_hash, caller, request, next)).await };
        match tasks.spawn(work.in_current_span()).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(Problem::new(Code::Draining, "the gateway is shutting down")),
            Err(error) => Err(Problem::internal(error)),
        }
    }

    /// Looks the request up and does it when it is new. Only the holder of the claim gets here.
    async fn work(
        self,
        claim: Claim,
        body_hash: BodyHash,
        caller: Caller,
        request: Request,
        next: Next,
    ) -> Result<Response, Problem> {
        let answers = &self.answers;
        let path = request.uri().path().to_owned();
        let begin = match answers.begin(claim.key, body_hash).await? {
            // The claim is ours, so nobody works on it: a gateway died over it.
            Begin::InProgress => {
                answers.forget(claim.key).await?;
                answers.begin(claim.key, body_hash).await?
            }
            begin => begin,
        };
        match begin {
            Begin::Fresh => {
                let response = catch_panic(next.run(request)).await;
                let (response, answer) = keep(response, self.kept_bytes).await;
                let kept = match answer {
                    Some(answer) => answers.finish(claim.key, answer.session(&path), answer).await,
                    None => answers.forget(claim.key).await,
                };
                if let Err(error) = kept {
                    // What the caller asked for is done, and that is what it is told.
                    tracing::error!(%error, "the answer to a request with an idempotency key could not be kept");
                }
                Ok(response)
            }
            Begin::Stored(answer) => {
                (self.recheck)(&caller, &path, answer.session(&path))?;
                match answer.stream_location() {
                    Some(location) => (self.stream_again)(caller, location.to_owned()).await,
                    None => answer.into_response(),
                }
            }
            Begin::Mismatch => Err(reused()),
            Begin::InProgress => Err(Problem::internal("a forgotten request is still in progress")),
        }
    }
}

/// The layer.
pub(super) async fn remember(State(memory): State<Memory>, request: Request, next: Next) -> Response {
    memory.answer(request, next).await.unwrap_or_else(IntoResponse::into_response)
}

impl StoredAnswer {
    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.iter().find(|(kept, _)| kept == name.as_str()).map(|(_, value)| value.as_str())
    }

    /// The turn's path, when the answer was its event stream.
    fn stream_location(&self) -> Option<&str> {
        self.header(&header::CONTENT_TYPE)
            .filter(|content_type| content_type.starts_with(EVENT_STREAM))
            .and_then(|_| self.header(&header::LOCATION))
    }

    /// The session that it tells of: that of the request's path, else the one that was made.
    fn session(&self, path: &str) -> Option<SessionId> {
        let named = |path: &str| path.strip_prefix("/v1/sessions/")?.split('/').next()?.parse().ok();
        named(path).or_else(|| named(self.header(&header::LOCATION)?))
    }

    fn into_response(self) -> Result<Response, Problem> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(self.status).map_err(Problem::internal)?;
        for (name, value) in self.headers {
            let name = HeaderName::try_from(name).map_err(Problem::internal)?;
            response.headers_mut().insert(name, HeaderValue::try_from(value).map_err(Problem::internal)?);
        }
        Ok(response)
    }
}

/// Takes an answer apart into what its caller gets and what is kept of it, if it is not larger than `kept_bytes`.
async fn keep(response: Response, kept_bytes: usize) -> (Response, Option<StoredAnswer>) {
    if !response.status().is_success() {
        return (response, None);
    }
    let status = response.status().as_u16();
    let kept = |name: &HeaderName| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    };
    let headers: Vec<_> = KEPT_HEADERS.iter().filter_map(kept).collect();
    let answer = StoredAnswer { status, headers, body: Bytes::new() };
    if answer.stream_location().is_some() {
        return (response, Some(answer));
    }
    // A body of unknown or great length is passed on unread: keeping it would mean holding all of it.
    if response.body().size_hint().exact().is_none_or(|size| size > kept_bytes as u64) {
        tracing::warn!(status, "an answer is too large to be kept for its idempotency key");
        return (response, None);
    }
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            let response = Response::from_parts(parts, Body::from(body.clone()));
            (response, Some(StoredAnswer { body, ..answer }))
        }
        Err(error) => (Problem::internal(error).into_response(), None),
    }
}

/// The caller's key; 400 unless it is 1 to 255 printable ASCII characters.
fn key_text(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(text) if values.next().is_none() && (1..=MAX_KEY).contains(&text.len()) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(Problem::new(
            Code::MalformedRequest,
            format!(
                "the header Idempotency-Key has to be there once, with 1 to {MAX_KEY} printable characters"
            ),
        )),
    }
}

fn answer_key(caller: &Caller, parts: &Parts, text: &str) -> AnswerKey {
    let mut hash = Sha256::new();
    for part in [caller.name(), parts.method.as_str(), parts.uri.path(), text] {
        // With its length in front no part can be taken for the end of another.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

async fn read_body(body: Body, body_bytes: usize) -> Result<Bytes, Problem> {
    match in_time(Limited::new(body, body_bytes).collect()).await? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(body_too_large()),
        Err(error) => {
            Err(Problem::new(Code::MalformedRequest, "the body could not be read").caused_by(error))
        }
    }
}

fn reused() -> Problem {
    Problem::new(Code::IdempotencyKeyReused, "this idempotency key came before with another body")
}

/// What runs now in this process.
#[derive(Clone, Default)]
struct Running {
    /// A standard mutex: held for one look-up.
    claims: Arc<Mutex<HashMap<AnswerKey, Claimed>>>,
}

struct Claimed {
    body: BodyHash,
    /// Nothing is ever sent: that the sender is gone is the message.
    done: watch::Receiver<()>,
}

/// The right to work on a request. Given back when dropped, which wakes those who wait for it.
struct Claim {
    key: AnswerKey,
    running: Running,
    _done: watch::Sender<()>,
}

impl Running {
    /// Claims a request, or gives what tells that its present holder is done.
    fn claim(&self, key: AnswerKey, body: BodyHash) -> Result<Result<Claim, watch::Receiver<()>>, Problem> {
        let mut claims = self.lock();
        let running = claims.len();
        match claims.entry(key) {
            Entry::Occupied(claimed) if claimed.get().body != body => Err(reused()),
            Entry::Occupied(claimed) => Ok(Err(claimed.get().done.clone())),
            Entry::Vacant(_) if running >= MAX_RUNNING => {
                Err(Problem::new(Code::AtCapacity, "too many requests with an idempotency key run at once"))
            }
            Entry::Vacant(vacant) => {
                let (sender, done) = watch::channel(());
                vacant.insert(Claimed { body, done });
                Ok(Ok(Claim { key, running: self.clone(), _done: sender }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AnswerKey, Claimed>> {
        // Nothing under the lock can panic half-way.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
