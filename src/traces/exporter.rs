//! Sends spans to a collector: OTLP over HTTP, as protobuf.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Attributes;
use crate::metrics::{Metrics, SpanFate};

/// Spans in one request.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How often a batch is tried, and how long after the first failure it is tried again; after the next twice as long.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long what waits may take to go out when gander ends.
const FLUSH: Duration = Duration::from_secs(2);
/// How much of a collector's answer is read, in bytes.
const ANSWER_BYTES: usize = 64 * 1024;

/// Where spans go.
#[derive(Clone)]
pub struct ExporterSettings {
    /// The collector's address for traces, e.g. `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// Headers of each request: names and values.
    pub headers: Vec<(String, String)>,
    /// How long the collector may take to answer.
    pub timeout: Duration,
    /// The name of this gateway among the services that send traces.
    pub service_name: String,
}

/// Without the headers, which are secrets.
impl std::fmt::Debug for ExporterSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExporterSettings").field("service_name", &self.service_name).finish_non_exhaustive()
    }
}

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The client cannot be made.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
    /// A header's name.
    #[error("a header of traces.headers has a name that none can have")]
    HeaderName,
    /// A header's value.
    #[error("a header of traces.headers has a value that none can have")]
    HeaderValue(#[from] InvalidHeaderValue),
}

pub(super) struct Exporter {
    client: Client,
    endpoint: String,
    headers: HeaderMap,
    resource: Resource,
    metrics: Metrics,
    /// Whether it was said that the collector does not take spans.
    failing: bool,
}

/// Why a batch was not taken. The text names no address: it may have a secret in it.
struct NotTaken {
    reason: String,
    /// Whether, and after which time at the least, it may be tried again.
    again: Option<Duration>,
}

impl Exporter {
    pub(super) fn new(settings: &ExporterSettings, metrics: Metrics) -> Result<Self, ExporterError> {
        // There is one for the whole process; whoever was first has installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            Client::builder().no_proxy().redirect(Policy::none()).timeout(settings.timeout).build()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let name: HeaderName = name.parse().map_err(|_| ExporterError::HeaderName)?;
            let mut value = HeaderValue::from_str(value)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let attributes = Attributes::new()
            .text("service.name", settings.service_name.as_str())
            .text("service.version", env!("CARGO_PKG_VERSION"))
            .text("service.instance.id", Uuid::now_v7().to_string().as_str());
        let resource = Resource { attributes: attributes.into_list(), ..Resource::default() };
        let endpoint = settings.endpoint.clone();
        Ok(Self { client, endpoint, headers, resource, metrics, failing: false })
    }

    /// Sends what comes until `stop`, then what waits.
    pub(super) async fn run(mut self, mut waiting: mpsc::Receiver<Span>, stop: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            let gathered = async {
                if waiting.recv_many(&mut batch, BATCH).await > 0 && batch.len() < BATCH {
                    let more = async {
                        while batch.len() < BATCH && waiting.recv_many(&mut batch, BATCH).await > 0 {}
                    };
                    // Whether it is full or the time is up.
                    let _ = timeout(GATHER, more).await;
                }
            };
            let stopped = stop.run_until_cancelled(gathered).await.is_none();
            if batch.is_empty() && !stopped && waiting.is_closed() {
                return;
            }
            if !stopped {
                let in_time = stop.run_until_cancelled(self.send(&batch)).await;
                if in_time.is_some() {
                    continue;
                }
            }
            // Nobody may make the end wait for long.
            while let Ok(span) = waiting.try_recv() {
                batch.push(span);
            }
            let count = batch.len();
            if count > 0 && timeout(FLUSH, self.send(&batch)).await.is_err() {
                self.metrics.spans(SpanFate::Dropped, count);
                tracing::warn!(count, "the last spans could not be sent in time");
            }
            return;
        }
    }

    /// Sends a batch, or drops it after some tries.
    async fn send(&mut self, batch: &[Span]) {
        let body = self.request(batch);
        let mut pause = PAUSE;
        for attempt in 1..=TRIES {
            let NotTaken { reason, again } = match self.post(body.clone()).await {
                Ok(rejected) => {
                    self.taken(batch.len(), rejected);
                    return;
                }
                Err(not_taken) => not_taken,
            };
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(reason, "the collector does not take spans (traces.endpoint)");
            }
            let Some(at_least) = again.filter(|_| attempt < TRIES) else { break };
            sleep(at_least.max(pause).min(LONGEST_PAUSE)).await;
            pause *= 2;
        }
        self.metrics.spans(SpanFate::Dropped, batch.len());
    }

    fn taken(&mut self, count: usize, rejected: usize) {
        if std::mem::replace(&mut self.failing, false) {
            tracing::info!("the collector takes spans again");
        }
        let rejected = rejected.min(count);
        self.metrics.spans(SpanFate::Sent, count - rejected);
        self.metrics.spans(SpanFate::Dropped, rejected);
    }

    fn request(&self, batch: &[Span]) -> bytes::Bytes {
        let scope = InstrumentationScope {
            name: "gander".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_spans =
            vec![ScopeSpans { scope: Some(scope), spans: batch.to_vec(), ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec().into()
    }

    /// How many of the spans the collector has rejected.
    async fn post(&self, body: bytes::Bytes) -> Result<usize, NotTaken> {
        let request = self.client.post(&self.endpoint).headers(self.headers.clone()).body(body);
        let response = request.send().await.map_err(|error| {
            let error = error.without_url();
            NotTaken { reason: in_full(&error), again: Some(Duration::ZERO) }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(rejected(response).await);
        }
        let again = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let after = Duration::from_secs(after.unwrap_or(0));
        Err(NotTaken { reason: format!("it answered {status}"), again: again.then_some(after) })
    }
}

/// An error with its causes: the first alone says little.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What a collector says that it has not taken of what it took.
async fn rejected(mut response: Response) -> usize {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES {
            return 0;
        }
    }
    let answer = ExportTraceServiceResponse::decode(body.as_slice()).unwrap_or_default();
    answer.partial_success.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0))
}
