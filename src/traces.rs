//! Traces for OpenTelemetry collectors: a span for each request, turn, tool call and permission.
//!
//! Requests are traced where they are answered. The rest is read from committed events ([`Tracer::observer`]), so the
//! core knows nothing of traces: what ties a turn to its request is the request's trace context, which is a part of the
//! turn and so outlives queues and restarts. A turn's span has an id that follows from the turn's own ([`Context`]), so
//! that what was told of it before a restart fits what is told after it.
//!
//! Spans go through one bounded queue to one task that posts them (OTLP over HTTP). Nobody waits for it: what does not fit
//! is dropped and counted. The task and its queue are gander's own, on the messages that the OpenTelemetry project
//! generates: its own exporter reads the environment by itself, and its queue neither counts what it drops nor runs
//! among the tasks that shutdown knows.

mod attributes;
mod context;
mod exporter;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::attributes::Attributes;
pub use self::context::{Context, Sampling, SpanId, TraceId};
pub use self::exporter::{ExporterError, ExporterSettings};
use crate::metrics::{Metrics, SpanFate};
use crate::observer::Observer;
use crate::shutdown::Tasks;

/// What is traced, and how.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    /// Where spans go.
    pub exporter: ExporterSettings,
    /// Which traces are kept.
    pub sampling: Sampling,
    /// Whether prompts, answers, and what tools are given and give, are attributes.
    pub content: bool,
    /// Spans that may wait to be sent.
    pub queue_spans: usize,
}

/// Makes spans, or nothing. Cheap to clone.
#[derive(Clone)]
pub struct Tracer(Option<Arc<Shared>>);

struct Shared {
    queue: mpsc::Sender<Span>,
    sampling: Sampling,
    content: bool,
    metrics: Metrics,
    /// Whether it was said that the queue is full.
    warned: AtomicBool,
}

/// A request's place in its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTrace {
    /// Of the request's own span, when gander makes one; else the caller's; `None` when nobody traces.
    pub context: Option<Context>,
    /// The caller's span.
    parent: Option<Context>,
}

impl RequestTrace {
    /// Whether the caller traces.
    #[must_use]
    pub fn has_parent(&self) -> bool {
        self.parent.is_some()
    }
}

impl Tracer {
    /// Traces nothing.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Sends spans until `stop`, and then those that wait, within a short time.
    pub fn start(
        settings: &TraceSettings,
        metrics: &Metrics,
        tasks: &Tasks,
        stop: CancellationToken,
    ) -> Result<Self, ExporterError> {
        let (queue, waiting) = mpsc::channel(settings.queue_spans);
        let exporter = exporter::Exporter::new(&settings.exporter, metrics.clone())?;
        tasks.spawn(exporter.run(waiting, stop));
        let TraceSettings { sampling, content, .. } = *settings;
        let metrics = metrics.clone();
        Ok(Self(Some(Arc::new(Shared { queue, sampling, content, metrics, warned: AtomicBool::new(false) }))))
    }

    /// The place of a request whose caller sent this `traceparent` header. What is not valid counts as none.
    #[must_use]
    pub fn request(&self, traceparent: Option<&str>) -> RequestTrace {
        let parent = traceparent.and_then(Context::parse);
        let context = match &self.0 {
            Some(shared) => Some(shared.sampling.child(parent, SpanId::random(), TraceId::random)),
            None => parent,
        };
        RequestTrace { context, parent }
    }

    /// Ends a request's span. It began at `start`.
    pub fn answered(
        &self,
        trace: &RequestTrace,
        name: String,
        start: SystemTime,
        attributes: Attributes,
        failed: bool,
    ) {
        let Some((shared, context)) = self.0.as_ref().zip(trace.context) else { return };
        let mut span = context.span(trace.parent, name, (start, SystemTime::now()), attributes);
        span.kind = attributes::SERVER;
        if failed {
            attributes::fail(&mut span);
        }
        shared.end(context, span);
    }

    /// Makes spans of what happens in sessions; `None` when nothing is traced.
    #[must_use]
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let shared = self.0.clone()?;
        Some(Box::new(turns::TurnSpans::new(shared)))
    }
}

impl Shared {
    /// What is kept of what was said: nothing unless that is asked for, and never much.
    fn excerpt(&self, said: Option<&RawValue>) -> Option<String> {
        said.filter(|_| self.content).map(|said| attributes::excerpt(said.get()))
    }

    fn end(&self, context: Context, span: Span) {
        if !context.sampled {
            return;
        }
        if self.queue.try_send(span).is_err() {
            self.metrics.spans(SpanFate::Dropped, 1);
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "spans are dropped, since more of them wait to be sent than may (traces.queue_spans)"
                );
            }
        }
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tracer").field(&self.0.is_some()).finish()
    }
}
