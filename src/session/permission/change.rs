//! A change of a session's permission policy.

use crate::session::policy::{Action, OnNoSubscriber, OnTimeout, PermissionPolicy, Rule};

/// A merge patch (RFC 7396) of a [`PermissionPolicy`]: what is `None` stays, `Some(None)` removes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyPatch {
    /// The rules, whole: a list is replaced, never merged.
    pub rules: Option<Option<Vec<Rule>>>,
    /// For calls that no rule fits.
    pub default: Option<Option<Action>>,
    /// Seconds that a request waits for an answer.
    pub timeout_s: Option<Option<u64>>,
    /// What becomes of it then.
    pub on_timeout: Option<Option<OnTimeout>>,
    /// What becomes of a request that nobody would see.
    pub on_no_subscriber: Option<Option<OnNoSubscriber>>,
}

impl PolicyPatch {
    /// The policy with this change.
    #[must_use]
    pub fn applied_to(&self, policy: &PermissionPolicy) -> PermissionPolicy {
        PermissionPolicy {
            rules: match &self.rules {
                Some(rules) => rules.clone().unwrap_or_default(),
                None => policy.rules.clone(),
            },
            default: self.default.unwrap_or(policy.default),
            timeout_s: self.timeout_s.unwrap_or(policy.timeout_s),
            on_timeout: self.on_timeout.unwrap_or(policy.on_timeout),
            on_no_subscriber: self.on_no_subscriber.unwrap_or(policy.on_no_subscriber),
        }
    }
}
