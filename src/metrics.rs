//! Figures about the running gateway, in the format that Prometheus reads (`OpenMetrics`).
//!
//! What happens in sessions is counted from their committed events ([`Metrics::observer`]), by a reader like any other
//! subscriber: the core counts nothing, and what is counted is what callers were told. What is so at a moment (sessions
//! by state, what waits for a commit) is asked for when somebody reads the figures.
//!
//! Every label has a fixed set of values: names of routes, states, classes. None comes from a caller.

mod born;
mod observer;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::observer::Observer;

/// Bounds in seconds for what a person waits for: calls, first words.
const WAITS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// Bounds in seconds for what machines do among themselves.
const MOMENTS: [f64; 11] = [0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];
/// Bounds in seconds for turns and for people's answers.
const WORK: [f64; 11] = [0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabels {
    state: &'static str,
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PermissionLabels {
    by: String,
    decision: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolCallLabels {
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StartLabels {
    kind: &'static str,
}

/// What became of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanFate {
    /// The collector has taken them.
    Sent,
    /// They did not fit the queue, or the collector did not take them.
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpanLabels {
    fate: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    key: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// All figures. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Figures>);

struct Figures {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    internal_errors: Counter,
    request_seconds: Histogram,
    turns: Family<TurnLabels, Counter>,
    turn_seconds: Histogram,
    first_event_seconds: Histogram,
    tool_calls: Family<ToolCallLabels, Counter>,
    permissions: Family<PermissionLabels, Counter>,
    permission_wait_seconds: Histogram,
    agent_starts: Family<StartLabels, Counter>,
    events: Counter,
    visible_seconds: Histogram,
    commit_seconds: Histogram,
    committed_bytes: Counter,
    stream_bytes: Counter,
    spans: Family<SpanLabels, Counter>,
    sessions: Family<StateLabels, Gauge>,
    agents: Gauge,
    streams: Gauge,
    queued_bytes: Gauge,
    storage_bytes: Gauge,
    storage_writable: Gauge,
    limits: Family<LimitLabels, Gauge>,
    processes_killed: Counter,
    resident_bytes: Gauge,
}

/// What is so at the moment, asked for when the figures are read.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// How many sessions are in each state, by the state's name.
    pub sessions: Vec<(&'static str, usize)>,
    /// Agents that run.
    pub agents: usize,
    /// Event streams that are open.
    pub streams: usize,
    /// Bytes that wait to be committed.
    pub queued_bytes: usize,
    /// Bytes of the database's files.
    pub storage_bytes: u64,
    /// Whether the store takes something.
    pub storage_writable: bool,
    /// The configuration's limits that figures come near to, by key; 0 for none.
    pub limits: Vec<(&'static str, u64)>,
    /// Processes that were killed since the start because nobody was left that they belonged to.
    pub processes_killed: u64,
    /// Bytes of memory that gander itself takes.
    pub resident_bytes: u64,
}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("gander");
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build", "Always 1; the version is a label", build);
        let started = Gauge::<i64>::default();
        started.set(seconds_since_epoch());
        registry.register_with_unit(
            "start_time",
            "When this process started, in Unix time",
            Unit::Seconds,
            started,
        );
        let mut figures = Figures {
            registry: Registry::default(),
            requests: Family::default(),
            internal_errors: Counter::default(),
            request_seconds: Histogram::new(WAITS),
            turns: Family::default(),
            turn_seconds: Histogram::new(WORK),
            first_event_seconds: Histogram::new(WAITS),
            tool_calls: Family::default(),
            permissions: Family::default(),
            permission_wait_seconds: Histogram::new(WORK),
            agent_starts: Family::default(),
            events: Counter::default(),
            visible_seconds: Histogram::new(MOMENTS),
            commit_seconds: Histogram::new(MOMENTS),
            committed_bytes: Counter::default(),
            stream_bytes: Counter::default(),
            spans: Family::default(),
            sessions: Family::default(),
            agents: Gauge::default(),
            streams: Gauge::default(),
            queued_bytes: Gauge::default(),
            storage_bytes: Gauge::default(),
            storage_writable: Gauge::default(),
            limits: Family::default(),
            processes_killed: Counter::default(),
            resident_bytes: Gauge::default(),
        };
        figures.register(&mut registry);
        figures.registry = registry;
        let metrics = Self(Arc::new(figures));
        // From the start on: who counts what is lost has to see the first one.
        metrics.spans(SpanFate::Sent, 0);
        metrics.spans(SpanFate::Dropped, 0);
        metrics.0.begin_at_zero();
        metrics
    }

    /// Counts what happens in sessions.
    #[must_use]
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(observer::Counting::new(self.clone()))
    }

    /// A request was answered, or its caller left before (`None`). `method` is `None` where the caller has made it up;
    /// `route` is the route's pattern.
    pub fn answered(&self, method: Option<&'static str>, route: &str, status: Option<u16>, after: Duration) {
        let method = method.unwrap_or("other");
        if status == Some(500) {
            self.0.internal_errors.inc();
        }
        // 499: as proxies write it when the caller has left.
        let labels = RequestLabels { method, route: route.to_owned(), status: status.unwrap_or(499) };
        self.0.requests.get_or_create(&labels).inc();
        self.0.request_seconds.observe(after.as_secs_f64());
    }

    /// Bytes were given to a subscriber.
    pub fn streamed(&self, bytes: usize) {
        self.0.stream_bytes.inc_by(bytes as u64);
    }

    /// Something became of spans.
    pub fn spans(&self, fate: SpanFate, count: usize) {
        let fate = match fate {
            SpanFate::Sent => "sent",
            SpanFate::Dropped => "dropped",
        };
        self.0.spans.get_or_create(&SpanLabels { fate }).inc_by(count as u64);
    }

    /// The store has committed so many bytes.
    pub fn committed(&self, bytes: usize, took: Duration) {
        self.0.commit_seconds.observe(took.as_secs_f64());
        self.0.committed_bytes.inc_by(bytes as u64);
    }

    /// All figures as text.
    #[must_use]
    pub fn text(&self, moment: &Moment) -> String {
        let figures = &self.0;
        for (state, count) in &moment.sessions {
            figures.sessions.get_or_create(&StateLabels { state }).set(gauge(*count as u64));
        }
        figures.agents.set(gauge(moment.agents as u64));
        figures.streams.set(gauge(moment.streams as u64));
        figures.queued_bytes.set(gauge(moment.queued_bytes as u64));
        figures.storage_bytes.set(gauge(moment.storage_bytes));
        figures.storage_writable.set(i64::from(moment.storage_writable));
        for (key, limit) in &moment.limits {
            figures.limits.get_or_create(&LimitLabels { key }).set(gauge(*limit));
        }
        figures.resident_bytes.set(gauge(moment.resident_bytes));
        let counted: &AtomicU64 = figures.processes_killed.inner();
        counted.fetch_max(moment.processes_killed, std::sync::atomic::Ordering::Relaxed);
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &figures.registry);
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Figures {
    fn register(&self, to: &mut Registry) {
        to.register("http_requests", "Requests answered, by route", self.requests.clone());
        to.register(
            "http_internal_errors",
            "Requests answered with 500: gander's own fault",
            self.internal_errors.clone(),
        );
        let seconds = Unit::Seconds;
        to.register_with_unit(
            "http_request",
            "From a request's head to its answer's head",
            seconds.clone(),
            self.request_seconds.clone(),
        );
        to.register(
            "turns",
            "Turns that ended, by state and, when they failed, by class",
            self.turns.clone(),
        );
        to.register_with_unit(
            "turn",
            "From a turn's start to its end",
            seconds.clone(),
            self.turn_seconds.clone(),
        );
        to.register_with_unit(
            "first_event",
            "From a turn's start to the first word or tool call of its agent",
            seconds.clone(),
            self.first_event_seconds.clone(),
        );
        to.register("tool_calls", "Tool calls that ended, by status", self.tool_calls.clone());
        to.register(
            "permissions",
            "Permission requests that were decided, by who or what decided and how",
            self.permissions.clone(),
        );
        to.register_with_unit(
            "permission_wait",
            "How long permission requests waited that a caller answered",
            seconds.clone(),
            self.permission_wait_seconds.clone(),
        );
        to.register(
            "agent_starts",
            "Agents started, for new sessions and to wake one",
            self.agent_starts.clone(),
        );
        to.register("events", "Events committed", self.events.clone());
        to.register_with_unit(
            "event_visible",
            "From an event's time, when the agent's words were read, to its being there for subscribers",
            seconds.clone(),
            self.visible_seconds.clone(),
        );
        to.register_with_unit("commit", "How long a commit took", seconds, self.commit_seconds.clone());
        let bytes = Unit::Bytes;
        to.register_with_unit("committed", "What was committed", bytes.clone(), self.committed_bytes.clone());
        to.register_with_unit(
            "streamed",
            "What subscribers were given",
            bytes.clone(),
            self.stream_bytes.clone(),
        );
        to.register("spans", "Spans of traces, by what became of them", self.spans.clone());
        to.register("sessions", "Sessions, by state", self.sessions.clone());
        to.register("agents", "Agents that run", self.agents.clone());
        to.register("streams", "Event streams that are open", self.streams.clone());
        to.register_with_unit(
            "queued",
            "What waits to be committed",
            bytes.clone(),
            self.queued_bytes.clone(),
        );
        to.register(
            "storage_writable",
            "1 while something can be written, else 0",
            self.storage_writable.clone(),
        );
        to.register(
            "limit",
            "The configuration's limits that other figures come near to, by key; 0 for none",
            self.limits.clone(),
        );
        to.register_with_unit("storage", "The database's files", bytes.clone(), self.storage_bytes.clone());
        to.register_with_unit("resident", "Memory of gander itself", bytes, self.resident_bytes.clone());
        to.register(
            "processes_killed",
            "Processes killed because nobody was left that they belonged to",
            self.processes_killed.clone(),
        );
    }
}

/// A gauge's value. Nothing that is counted here comes near the limit.
fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn seconds_since_epoch() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    gauge(since.as_secs())
}

#[cfg(test)]
mod tests;
