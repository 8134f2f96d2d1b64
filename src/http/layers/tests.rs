use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use axum::body::{Bytes, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::Value;
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::http::fake_settings::settings;
use crate::http::idempotency::{AnswerKey, Begin, BodyHash, StoredAnswer};
use crate::http::request::JsonBody;
use crate::session::agent::BoxFuture;
use crate::session::id::SessionId;
use crate::session::log::StoreError;

/// Remembers nothing: these requests carry no key.
struct NoAnswers;

impl RememberedAnswers for NoAnswers {
    fn begin(&self, _: AnswerKey, _: BodyHash) -> BoxFuture<Result<Begin, StoreError>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    fn finish(
        &self,
        _: AnswerKey,
        _: Option<SessionId>,
        _: StoredAnswer,
    ) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    fn forget(&self, _: AnswerKey) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(async { Err(StoreError::Closed) })
    }
}

fn app() -> Router {
    let routes = Router::new()
        .route("/v1/things/{id}", get(async || "thing").delete(async || StatusCode::NO_CONTENT))
        .route(
            "/v1/echo",
            post(async |JsonBody(value): JsonBody<BTreeMap<String, String>>| format!("{value:?}")),
        )
        .route("/v1/raw", post(async |body: Bytes| body.len().to_string()))
        .route("/v1/panic", get(panics))
        .route("/v1/broken", get(async || Problem::internal("a secret cause")));
    let shared = Shared {
        settings: Arc::new(settings()),
        callers: Callers::anyone(),
        answers: Arc::new(NoAnswers),
        tasks: Tasks::new(),
        metrics: Metrics::new(),
        tracer: Tracer::off(),
        recheck: Arc::new(|_, _, _| Ok(())),
        stream_again: Arc::new(|_, _| Box::pin(async { Err(Problem::internal("no stream")) })),
    };
    apply(routes, shared)
}

async fn panics() -> StatusCode {
    panic!("at /secret/path")
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

async fn send(request: axum::http::request::Builder, body: impl Into<Body>) -> Answer {
    let request = request.header(header::HOST, "localhost").body(body.into()).unwrap();
    let (parts, body) = app().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    if let Some(length) = parts.headers.get(header::CONTENT_LENGTH) {
        assert_eq!(length.to_str().unwrap(), body.len().to_string());
    }
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

#[tokio::test]
async fn every_error_is_a_problem_with_the_requests_id() {
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(2000));
    let json =
        |request: axum::http::request::Builder| request.header(header::CONTENT_TYPE, "application/json");
    let unannounced = Body::from_stream(futures_util::stream::iter(
        (0..20).map(|_| Ok::<_, io::Error>(Bytes::from_static(&[b' '; 100]))),
    ));
    for (answer, status, code) in [
        (send(Request::get("/nothing"), "").await, 404, "not-found"),
        (send(Request::get("/v1/nothing"), "").await, 404, "not-found"),
        (send(Request::post("/v1/things/1"), "").await, 405, "method-not-allowed"),
        (
            send(Request::post("/v1/echo").header(header::CONTENT_TYPE, "text/plain"), "{}").await,
            415,
            "unsupported-media-type",
        ),
        (
            send(json(Request::post("/v1/echo")).header(header::CONTENT_LENGTH, "2008"), large).await,
            413,
            "body-too-large",
        ),
        (send(json(Request::post("/v1/echo")), unannounced).await, 413, "body-too-large"),
        (send(json(Request::post("/v1/echo")), "{").await, 400, "malformed-request"),
        (send(json(Request::post("/v1/echo")), r#"{"a": 1}"#).await, 422, "invalid-request"),
        (send(Request::get("/v1/panic"), "").await, 500, "internal"),
        (send(Request::get("/v1/broken"), "").await, 500, "internal"),
        (send(Request::get("http://evil.example/v1/things/1"), "").await, 421, "host-not-allowed"),
    ] {
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.body);
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(answer.body["request_id"], answer.headers[REQUEST_ID].to_str().unwrap());
        let text = answer.body.to_string();
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let answer = send(Request::post("/v1/things/1"), "").await;
    let allow = answer.headers[header::ALLOW].to_str().unwrap();
    let mut methods: Vec<_> = allow.split(',').map(str::trim).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["DELETE", "GET", "HEAD"]);
}

#[tokio::test]
async fn a_request_id_is_taken_when_it_is_short_and_visible() {
    let long = "x".repeat(MAX_REQUEST_ID + 1);
    for (id, taken) in
        [("abc-1", true), (&long[1..], true), (&long, false), ("", false), ("a b", false), ("é", false)]
    {
        let answer = send(Request::get("/v1/things/1").header(REQUEST_ID, id), "").await;
        let echoed = answer.headers[REQUEST_ID].to_str().unwrap();
        assert_eq!(echoed == id, taken, "{id:?}");
        assert!(taken || Uuid::try_parse(echoed).is_ok(), "{echoed}");
    }
    let made = send(Request::get("/v1/things/1"), "").await;
    assert_ne!(made.headers[REQUEST_ID], send(Request::get("/v1/things/1"), "").await.headers[REQUEST_ID]);
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn lines(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What is logged while `work` runs on this thread.
async fn logged(work: impl Future<Output = ()>) -> Vec<Value> {
    let captured = Captured::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(captured.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    work.await;
    drop(guard);
    captured.lines()
}

#[tokio::test]
async fn a_request_is_one_line_with_its_id_and_without_its_query() {
    let lines = logged(async {
        send(Request::get("/v1/things/77?ticket=secret").header(REQUEST_ID, "r-1"), "").await;
        send(Request::get("/nothing/secret"), "").await;
    })
    .await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    let fields = &lines[0]["fields"];
    assert_eq!(fields["method"], "GET");
    assert_eq!(fields["path"], "/v1/things/{id}");
    assert_eq!(fields["status"], 200);
    assert!(fields["ms"].is_f64());
    assert_eq!(lines[0]["span"]["request_id"], "r-1");
    assert_eq!(lines[1]["fields"]["code"], "not-found");
    assert!(!format!("{lines:?}").contains("secret"));
}

#[tokio::test]
async fn the_cause_of_a_500_is_in_the_log() {
    let lines = logged(async {
        send(Request::get("/v1/broken"), "").await;
        send(Request::get("/v1/panic"), "").await;
    })
    .await;
    assert_eq!(lines[0]["fields"]["cause"], "a secret cause");
    assert_eq!(lines[0]["level"], "ERROR");
    assert!(lines[1]["fields"]["cause"].as_str().unwrap().contains("at /secret/path"));
}

#[tokio::test]
async fn a_caller_that_leaves_is_logged() {
    let lines = logged(async {
        let records = Records { metrics: Metrics::new(), tracer: Tracer::off(), proxies: Arc::default() };
        let routes: Router = Router::new()
            .route("/v1/slow", get(async || std::future::pending::<StatusCode>().await))
            .layer(middleware::from_fn_with_state(records, observe));
        let request = Request::get("/v1/slow").body(Body::empty()).unwrap();
        assert!(routes.oneshot(request).now_or_never().is_none());
    })
    .await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0]["fields"]["message"].as_str().unwrap().contains("left"));
    assert_eq!(lines[0]["fields"]["path"], "/v1/slow");
}
