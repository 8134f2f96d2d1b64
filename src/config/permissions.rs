//! `[permissions]`: what happens to goose's permission requests.

use std::time::Duration;

use serde::Deserialize;

use super::error::Violation;
use super::parse;
use super::server::check_positive;

/// `[permissions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionSettings {
    /// How long a request waits for an answer.
    #[serde(deserialize_with = "parse::duration")]
    pub timeout: Duration,
    /// What a request that nobody answered becomes.
    #[serde(deserialize_with = "parse::word")]
    pub on_timeout: OnTimeout,
    /// Whether goose may write its todo list without asking.
    pub allow_plan_write: bool,
}

/// What a request that nobody answered becomes. There is no `allow`: silence is not consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// Rejected; the turn goes on.
    Reject,
}

impl PermissionSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_positive("permissions.timeout", self.timeout)
    }
}
