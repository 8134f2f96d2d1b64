//! A collector of traces: a real HTTP server that reads what OpenTelemetry's protocol sends (OTLP, protobuf).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use gander::shutdown::Tasks;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;

use super::until;

/// A span that has arrived, in texts.
#[derive(Clone, Debug)]
pub(crate) struct CollectedSpan {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first of a trace.
    pub(crate) parent: String,
    pub(crate) kind: SpanKind,
    pub(crate) failed: bool,
    pub(crate) nanos: u64,
    /// The service that sent it.
    pub(crate) service: String,
    attributes: Vec<(String, String)>,
}

impl CollectedSpan {
    /// An attribute as text; empty without it.
    pub(crate) fn attribute(&self, key: &str) -> &str {
        self.attributes.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }
}

/// What the collector does with what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Everything,
    /// Never answers.
    Silence,
    /// Answers with this status, and tells how often.
    Nothing(StatusCode),
}

/// The collector.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    tasks: Tasks,
}

struct Shared {
    takes: Mutex<Takes>,
    asked: Mutex<Vec<(HeaderMap, Bytes)>>,
}

impl Collector {
    pub(crate) async fn start(takes: Takes) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { takes: Mutex::new(takes), asked: Mutex::default() });
        let routes = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&shared));
        let tasks = Tasks::new();
        let hard = tasks.hard().clone();
        tasks.spawn(
            async move { hard.run_until_cancelled(axum::serve(listener, routes).into_future()).await },
        );
        Self { address, shared, tasks }
    }

    /// gander's configuration that sends traces here, to which more keys of the section can be added.
    pub(crate) fn config(&self) -> String {
        format!("[traces]\nendpoint = \"http://{}/v1/traces\"", self.address)
    }

    pub(crate) fn takes(&self, takes: Takes) {
        *self.shared.takes.lock().unwrap() = takes;
    }

    /// How many requests there have been.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.lock().unwrap().len()
    }

    /// The headers and the body of every request.
    pub(crate) fn requests(&self) -> Vec<(HeaderMap, Bytes)> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Every span, in the order in which they came.
    pub(crate) fn spans(&self) -> Vec<CollectedSpan> {
        self.requests().iter().flat_map(|(_, body)| spans_of(body)).collect()
    }

    /// Waits for spans of a name; gives the first.
    pub(crate) async fn span(&self, name: &str) -> CollectedSpan {
        let find = || self.spans().into_iter().find(|span| span.name == name);
        until(&format!("the span {name}"), || find().is_some()).await;
        find().unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tasks.hard().cancel();
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let takes = *shared.takes.lock().unwrap();
    shared.asked.lock().unwrap().push((headers, body));
    match takes {
        Takes::Everything => StatusCode::OK.into_response(),
        Takes::Silence => std::future::pending().await,
        Takes::Nothing(status) => status.into_response(),
    }
}

fn spans_of(body: &Bytes) -> Vec<CollectedSpan> {
    let request = ExportTraceServiceRequest::decode(body.as_ref()).unwrap();
    let mut found = Vec::new();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap_or_default().attributes;
        let service = attributes.iter().find(|pair| pair.key == "service.name");
        let service = service.and_then(|pair| pair.value.clone()?.value).map_or_else(String::new, text);
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let attributes = span.attributes.into_iter().map(|pair| {
                let value = pair.value.and_then(|value| value.value);
                (pair.key, value.map_or_else(String::new, text))
            });
            found.push(CollectedSpan {
                kind: SpanKind::try_from(span.kind).unwrap(),
                failed: span.status.is_some_and(|status| status.code == SpanStatus::Error as i32),
                nanos: span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).unwrap(),
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                service: service.clone(),
                attributes: attributes.collect(),
            });
        }
    }
    found
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(list) => {
            let values = list.values.into_iter().filter_map(|value| value.value);
            values.map(text).collect::<Vec<_>>().join(",")
        }
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
