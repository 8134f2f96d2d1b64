//! `[traces]`: traces for OpenTelemetry collectors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::error::{Problem, Violation};
use super::limits::{check_at_most, check_count};
use super::parse;
use super::secret::Secret;
use super::server::check_positive;

/// More than any collector's lag needs: a span takes about 1 KiB.
const MOST_SPANS: usize = 1_000_000;

/// `[traces]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSettings {
    /// The collector's address for traces; `None`: nothing is traced.
    #[serde(deserialize_with = "parse::optional_text")]
    pub endpoint: Option<String>,
    /// Headers of every request to it; those of the file among them once loaded.
    #[serde(deserialize_with = "parse::variables")]
    pub headers: BTreeMap<String, Secret>,
    /// A file with more of them.
    #[serde(deserialize_with = "parse::optional_path")]
    headers_file: Option<PathBuf>,
    /// How many of the traces that begin here are kept: 0 none, 1 all.
    pub sample_ratio: f64,
    /// Whether a caller's trace is kept when the caller says so.
    pub caller_decides: bool,
    /// The name of this gateway among those that send traces.
    pub service_name: String,
    /// Whether prompts, answers, and what tools are given and give, are in traces.
    pub content: bool,
    /// Spans that may wait to be sent.
    pub queue_spans: usize,
    /// How long the collector may take to answer.
    #[serde(deserialize_with = "parse::duration")]
    pub timeout: Duration,
}

impl TraceSettings {
    pub(super) fn resolve(&mut self) -> Result<(), Violation> {
        let Some(file) = self.headers_file.as_deref() else { return Ok(()) };
        let headers = read_headers(file).map_err(|problem| Violation::new("traces.headers_file", problem))?;
        self.headers.extend(headers);
        Ok(())
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        if let Some(endpoint) = self.endpoint.as_ref().filter(|endpoint| !is_endpoint(endpoint)) {
            let problem = Problem::NotAnEndpoint { found: endpoint.clone() };
            return Err(Violation::new("traces.endpoint", problem));
        }
        for (name, value) in &self.headers {
            let fits = name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value.expose()).is_ok();
            if !fits {
                let key = format!("traces.headers.{name}");
                return Err(Violation::new(key, Problem::NotAHeader));
            }
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            let problem = Problem::NotARatio { found: self.sample_ratio.to_string() };
            return Err(Violation::new("traces.sample_ratio", problem));
        }
        if self.service_name.trim().is_empty() {
            return Err(Violation::new("traces.service_name", Problem::Empty));
        }
        check_positive("traces.timeout", self.timeout)?;
        check_count("traces.queue_spans", self.queue_spans)?;
        check_at_most("traces.queue_spans", self.queue_spans, MOST_SPANS)
    }
}

fn is_endpoint(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Lines of `Name: value`; empty ones and those that begin with `#` are left out.
fn read_headers(file: &Path) -> Result<Vec<(String, Secret)>, Problem> {
    let text = std::fs::read_to_string(file).map_err(|error| Problem::UnreadableFile {
        found: file.display().to_string(),
        detail: error.to_string(),
    })?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let header = |line: &str| {
        let (name, value) = line.split_once(':').ok_or(Problem::NotAHeader)?;
        Ok((name.trim().to_owned(), Secret::new(value.trim())))
    };
    lines.map(header).collect()
}
