//! `[log]`: gander's own log.

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

use super::error::{Problem, Violation};
use super::parse;

/// `[log]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// What is logged, in the words of tracing's `EnvFilter`.
    pub filter: String,
    /// How it is written.
    #[serde(deserialize_with = "parse::word")]
    pub format: LogFormat,
    /// Whether prompts and answers are logged too.
    pub content: bool,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        let problem = if self.filter.trim().is_empty() {
            Problem::Empty
        } else if EnvFilter::try_new(&self.filter).is_err() {
            Problem::LogFilter { found: self.filter.clone() }
        } else {
            return Ok(());
        };
        Err(Violation::new("log.filter", problem))
    }
}
