//! What all requests have in common, from the outside in: a request id and a log line, a net under panics, the gate,
//! the body limit, and remembered answers.

mod record;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::Instrument;
use uuid::Uuid;

use self::record::Records;
use super::auth::Callers;
use super::forwarded::Peer;
use super::gate::{self, Gate};
use super::idempotency::{self, Memory, Recheck, RememberedAnswers, StreamAgain};
use super::problem::{Code, Problem};
use super::{HttpSettings, request};
use crate::metrics::Metrics;
use crate::shutdown::Tasks;
use crate::traces::Tracer;

/// The header that carries a request's id both ways.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Ids of callers longer than this are not taken.
const MAX_REQUEST_ID: usize = 128;

/// What the layers work with.
pub(super) struct Shared {
    pub(super) settings: Arc<HttpSettings>,
    pub(super) callers: Callers,
    pub(super) answers: Arc<dyn RememberedAnswers>,
    pub(super) tasks: Tasks,
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    /// Whether a caller may have the answer to a repeated request.
    pub(super) recheck: Recheck,
    /// Answers a repeated request whose first answer was an event stream.
    pub(super) stream_again: StreamAgain,
}

/// Puts every layer around the routes.
pub(super) fn apply<S>(routes: Router<S>, shared: Shared) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let Shared { settings, callers, answers, tasks, metrics, tracer, recheck, stream_again } = shared;
    let (body_bytes, kept_bytes) = (settings.body_bytes, settings.kept_answer_bytes);
    let memory = Memory::new(answers, tasks, (body_bytes, kept_bytes), recheck, stream_again);
    let records = Records { metrics, tracer, proxies: settings.trusted_proxies.clone().into() };
    let gate = Gate { settings, callers };
    // The layer added last is the outermost.
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(memory, idempotency::remember))
        .layer(DefaultBodyLimit::max(body_bytes))
        .layer(middleware::from_fn_with_state(body_bytes, refuse_announced_body))
        .layer(middleware::from_fn_with_state(gate, gate::admit))
        .layer(middleware::from_fn(survive_panic))
        .layer(middleware::from_fn_with_state(records, observe))
}

async fn not_found() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this path")
}

/// The router adds the `Allow` header.
async fn method_not_allowed() -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        "this path does not take this method; the header Allow says which it takes",
    )
}

/// Refuses a body that says it is too large before any of it is read. What does not say so is cut off by the limit.
async fn refuse_announced_body(State(body_bytes): State<usize>, request: Request, next: Next) -> Response {
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match announced.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > body_bytes as u64 => request::body_too_large().into_response(),
        _ => next.run(request).await,
    }
}

async fn survive_panic(request: Request, next: Next) -> Response {
    catch_panic(next.run(request)).await
}

/// A panic of a handler becomes a 500. Nothing that handlers share is left half changed: they share only handles.
pub(super) async fn catch_panic(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|payload| {
        Problem::internal(format_args!("a handler panicked: {}", panic_text(payload.as_ref())))
            .into_response()
    })
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

/// Finds out who sends the request, gives it its id, in the answer and in every log line, and logs one line about it.
async fn observe(State(records): State<Records>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let id_text = id.to_str().unwrap_or("");
    // HTTP/2 knows no such header: there one stream ends without the others.
    let closes_after_refusal = request.version() <= Version::HTTP_11;
    let peer = request.extensions().get::<Peer>().copied();
    let client = records.proxies.client(peer, request.headers());
    let mut record = records.begin(id_text, &request, &client);
    request.extensions_mut().insert(client);
    request.extensions_mut().insert(record.asked_by());
    let mut response = next.run(request).instrument(record.span.clone()).await;
    let problem = response.extensions_mut().remove::<Problem>();
    if let Some(problem) = &problem {
        // The problem was written before anybody could know the id.
        *response.body_mut() = Body::from(problem.body(Some(id_text)));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        if problem.code() == Code::BodyTooLarge && closes_after_refusal {
            // The rest of the body is not read, so the connection ends here; a caller that is not told so
            // would send its next request into it (RFC 9112, section 9.6).
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    record.answered(response.status(), problem);
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The caller's id when it is short and visible ASCII, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let usable = |id: &HeaderValue| {
        (1..=MAX_REQUEST_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    headers.get(REQUEST_ID).filter(|id| usable(id)).cloned().unwrap_or_else(|| {
        // A UUID is visible ASCII, so this does not fail.
        HeaderValue::try_from(Uuid::now_v7().to_string()).unwrap_or(HeaderValue::from_static("unknown"))
    })
}

#[cfg(test)]
mod tests;
