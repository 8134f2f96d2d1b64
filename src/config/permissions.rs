//! `[permissions]`: what happens to goose's permission requests.

use std::time::Duration;

use serde::Deserialize;

use super::error::{Problem, Violation};
use super::parse;
use super::server::check_positive;
use crate::session::policy::{Action, OnNoSubscriber, OnTimeout, PermissionPolicy, Rule, RuleFault};

/// `[permissions]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionSettings {
    /// What happens to calls that no rule fits.
    #[serde(deserialize_with = "parse::word")]
    pub default: Action,
    /// The rules. Not in the defaults' file, so that a copy of it can go on with `[[permissions.rules]]`.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// How long a request waits for an answer.
    #[serde(deserialize_with = "parse::duration")]
    pub timeout: Duration,
    /// What a request that nobody answered becomes.
    #[serde(deserialize_with = "parse::word")]
    pub on_timeout: OnTimeout,
    /// What a request becomes while nobody who may answer reads its session's events.
    #[serde(deserialize_with = "parse::word")]
    pub on_no_subscriber: OnNoSubscriber,
    /// Whether goose may write its todo list without asking.
    pub allow_plan_write: bool,
}

impl PermissionSettings {
    pub(super) fn validate(&self) -> Result<(), Violation> {
        check_positive("permissions.timeout", self.timeout)?;
        let rules = PermissionPolicy { rules: self.rules.clone(), ..PermissionPolicy::default() };
        match rules.faults().into_iter().next() {
            None => Ok(()),
            Some(fault) => Err(Violation::new("permissions.rules", Problem::Rule(rule_fault(&fault)))),
        }
    }
}

/// The fault's place as one counts in a file: `/rules/0/path` is rule 1, path.
fn rule_fault(fault: &RuleFault) -> String {
    let mut place = fault.pointer.splitn(4, '/').skip(2);
    let number = place.next().and_then(|number| number.parse::<usize>().ok());
    match (number, place.next()) {
        (Some(number), Some(part)) => format!("rule {}: {part} {}", number + 1, fault.detail),
        _ => fault.detail.clone(),
    }
}
