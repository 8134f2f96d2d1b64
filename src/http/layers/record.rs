//! What is left of each request: a line of the log, a count, and a span.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method, StatusCode};
use tracing::Span;

use crate::http::forwarded::{Client, TrustedProxies};
use crate::http::problem::Problem;
use crate::metrics::Metrics;
use crate::session::audit::AskedBy;
use crate::traces::{Attributes, RequestTrace, Tracer};

/// What is asked every few seconds all day: traced only as a part of its caller's trace.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The methods of HTTP (RFC 9110, section 9, and RFC 5789). All others a caller has made up.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Where requests are recorded. Cheap to clone.
#[derive(Clone)]
pub(super) struct Records {
    pub(super) metrics: Metrics,
    pub(super) tracer: Tracer,
    pub(super) proxies: Arc<TrustedProxies>,
}

/// One request. Recorded when dropped: also when its caller left before the answer. Never the query: it may hold a
/// ticket.
pub(super) struct Record {
    records: Records,
    /// What all lines of the log about this request have in common.
    pub(super) span: Span,
    id: Arc<str>,
    trace: RequestTrace,
    method: Method,
    /// The route's pattern: without ids, so that lines of one kind are alike, and nothing a caller made up.
    route: Option<MatchedPath>,
    /// The path itself, where there is such a route.
    path: String,
    client: Option<IpAddr>,
    scheme: Option<Arc<str>>,
    began: SystemTime,
    started: Instant,
    status: Option<StatusCode>,
    problem: Option<Problem>,
}

impl Records {
    /// Begins a request's record.
    pub(super) fn begin(&self, id: &str, request: &Request, client: &Client) -> Record {
        let route = request.extensions().get::<MatchedPath>().cloned();
        let traceparent = traceparent(request.headers());
        let is_probe = route.as_ref().is_some_and(|route| PROBES.contains(&route.as_str()));
        let trace = match self.tracer.request(traceparent) {
            trace if is_probe && !trace.has_parent() => RequestTrace::default(),
            trace => trace,
        };
        let trace_id = trace.context.map(|context| tracing::field::display(context.trace));
        Record {
            records: self.clone(),
            span: tracing::info_span!("request", request_id = id, trace_id),
            id: id.into(),
            trace,
            method: request.method().clone(),
            path: route.as_ref().map(|_| request.uri().path().to_owned()).unwrap_or_default(),
            route,
            client: client.address,
            scheme: client.scheme.clone(),
            began: SystemTime::now(),
            started: Instant::now(),
            status: None,
            problem: None,
        }
    }
}

/// The one `traceparent` that the caller sent; several are none (W3C Trace Context, section 3.2).
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all("traceparent").iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

impl Record {
    /// The request, for those who are asked by it.
    pub(super) fn asked_by(&self) -> AskedBy {
        let traceparent = self.trace.context.map(|context| context.to_string().into());
        AskedBy { id: Arc::clone(&self.id), traceparent }
    }

    pub(super) fn answered(&mut self, status: StatusCode, problem: Option<Problem>) {
        self.status = Some(status);
        self.problem = problem;
    }

    fn known_method(&self) -> Option<&'static str> {
        METHODS.into_iter().find(|known| *known == self.method.as_str())
    }

    fn end_span(&self, status: Option<u16>, code: Option<&'static str>) {
        let method = self.known_method();
        let route = self.route.as_ref().map(MatchedPath::as_str);
        // As OpenTelemetry's conventions have it.
        let verb = method.unwrap_or("HTTP");
        let name = route.map_or_else(|| verb.to_owned(), |route| format!("{verb} {route}"));
        let failed = status.is_some_and(|status| status >= 500);
        let error = if status.is_none() { Some("caller_left") } else { code.filter(|_| failed) };
        let attributes = Attributes::new()
            .text("http.request.method", method.unwrap_or("_OTHER"))
            .text("http.route", route)
            .text("url.path", route.map(|_| self.path.as_str()))
            .text("url.scheme", self.scheme.as_deref())
            .text("client.address", self.client.map(|client| client.to_string()).as_deref())
            .number("http.response.status_code", status.map(u64::from))
            .text("error.type", error)
            .text("gander.problem", code)
            .text("gander.request_id", self.id.as_ref());
        self.records.tracer.answered(&self.trace, name, self.began, attributes, failed);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _in_span = self.span.enter();
        let method = self.method.as_str();
        let path = self.route.as_ref().map_or("(no such path)", MatchedPath::as_str);
        let after = self.started.elapsed();
        let status = self.status.map(|status| status.as_u16());
        let code = self.problem.as_ref().map(|problem| problem.code().as_str());
        self.records.metrics.answered(self.known_method(), path, status, after);
        self.end_span(status, code);
        // Tenths are fine enough, and a binary fraction's digits would only make the line long.
        let ms = (after.as_secs_f64() * 10_000.0).round() / 10.0;
        let client = self.client.map(tracing::field::display);
        let Some(status) = status else {
            tracing::info!(method, path, client, ms, "the caller left before the answer");
            return;
        };
        if let Some(cause) = self.problem.as_ref().and_then(Problem::cause) {
            tracing::error!(method, path, client, status, ms, code, cause, "answered");
        } else {
            tracing::info!(method, path, client, status, ms, code, "answered");
        }
    }
}
