//! What all requests have in common, from the outside in: a request id and a log line, a net under panics, the gate,
//! the body limit, and remembered answers.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::auth::Callers;
use super::gate::{self, Gate};
use super::idempotency::{self, Memory, Recheck, RememberedAnswers, StreamAgain};
use super::problem::{Code, Problem};
use super::{HttpSettings, request};
use crate::metrics::Metrics;
use crate::session::audit::AskedBy;
use crate::shutdown::Tasks;

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
    let Shared { settings, callers, answers, tasks, metrics, recheck, stream_again } = shared;
    let (body_bytes, kept_bytes) = (settings.body_bytes, settings.kept_answer_bytes);
    let memory = Memory::new(answers, tasks, (body_bytes, kept_bytes), recheck, stream_again);
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
        .layer(middleware::from_fn_with_state(metrics, observe))
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

/// Gives the request its id, in the answer and in every log line, and logs one line about it.
async fn observe(State(metrics): State<Metrics>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let id_text = id.to_str().unwrap_or("");
    // HTTP/2 knows no such header: there one stream ends without the others.
    let closes_after_refusal = request.version() <= Version::HTTP_11;
    let span = tracing::info_span!("request", request_id = id_text);
    request.extensions_mut().insert(AskedBy { id: id_text.into(), traceparent: None });
    let mut line = LogLine::new(&request, span.clone(), metrics);
    let mut response = next.run(request).instrument(span).await;
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
    line.answered(response.status(), problem);
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

/// Logs and counts a request when dropped: also when its caller left before the answer. Never the query: it may hold a ticket.
struct LogLine {
    span: Span,
    method: Method,
    /// The route's pattern: without ids, so that lines of one kind are alike, and nothing a caller made up.
    path: Option<MatchedPath>,
    started: Instant,
    status: Option<StatusCode>,
    problem: Option<Problem>,
    metrics: Metrics,
}

impl LogLine {
    fn new(request: &Request, span: Span, metrics: Metrics) -> Self {
        let path = request.extensions().get::<MatchedPath>().cloned();
        let method = request.method().clone();
        Self { span, method, path, started: Instant::now(), status: None, problem: None, metrics }
    }

    fn answered(&mut self, status: StatusCode, problem: Option<Problem>) {
        self.status = Some(status);
        self.problem = problem;
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let _in_span = self.span.enter();
        let method = self.method.as_str();
        let path = self.path.as_ref().map_or("(no such path)", MatchedPath::as_str);
        let after = self.started.elapsed();
        self.metrics.answered(method, path, self.status.map(|status| status.as_u16()), after);
        // Tenths are fine enough, and a binary fraction's digits would only make the line long.
        let ms = (after.as_secs_f64() * 10_000.0).round() / 10.0;
        let code = self.problem.as_ref().map(|problem| problem.code().as_str());
        let Some(status) = self.status.map(|status| status.as_u16()) else {
            tracing::info!(method, path, ms, "the caller left before the answer");
            return;
        };
        if let Some(cause) = self.problem.as_ref().and_then(Problem::cause) {
            tracing::error!(method, path, status, ms, code, cause, "answered");
        } else {
            tracing::info!(method, path, status, ms, code, "answered");
        }
    }
}

#[cfg(test)]
mod tests;
