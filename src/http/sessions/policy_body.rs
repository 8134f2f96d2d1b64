//! What callers may say about a session's permission policy, checked.

use serde::Deserialize;
use utoipa::ToSchema;

use super::bodies::{Faults, given};
use crate::http::auth::{Caller, Role};
use crate::http::problem::{FieldError, Problem};
use crate::session::permission::PolicyPatch;
use crate::session::policy::{Action, OnNoSubscriber, OnTimeout, PermissionPolicy, Rule};

/// A change of a session's permission policy (RFC 7396): what is left out stays, null removes.
#[expect(clippy::option_option, reason = "absent, null and a value are three things in a merge patch")]
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchPermissionPolicy {
    /// The rules, whole.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Vec<Rule>>, max_items = 200)]
    rules: Option<Option<Vec<Rule>>>,
    /// For calls that no rule fits.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Action>, inline)]
    default: Option<Option<Action>>,
    /// Seconds that a request waits for an answer.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 31_536_000)]
    timeout_s: Option<Option<u64>>,
    /// What becomes of it then.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<OnTimeout>, inline)]
    on_timeout: Option<Option<OnTimeout>>,
    /// What becomes of a request while nobody who may answer reads the session's events.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<OnNoSubscriber>, inline)]
    on_no_subscriber: Option<Option<OnNoSubscriber>>,
}

impl PatchPermissionPolicy {
    /// What is said of the policy, as one that is nothing else.
    pub(super) fn said(&self) -> PermissionPolicy {
        self.clone().into_patch().applied_to(&PermissionPolicy::default())
    }

    pub(super) fn into_patch(self) -> PolicyPatch {
        let Self { rules, default, timeout_s, on_timeout, on_no_subscriber } = self;
        PolicyPatch { rules, default, timeout_s, on_timeout, on_no_subscriber }
    }
}

/// Adds everything that is wrong with a policy.
pub(super) fn add_faults(policy: &PermissionPolicy, faults: &mut Faults) {
    let found = policy.faults().into_iter();
    faults.extend(
        found.map(|fault| FieldError::new(format!("/permission_policy{}", fault.pointer), fault.detail)),
    );
}

/// Who allows something by a rule answers questions before they are asked, so it takes the role for answering.
pub(super) fn require_role(caller: &Caller, policy: &PermissionPolicy) -> Result<(), Problem> {
    let allows =
        policy.default == Some(Action::Allow) || policy.rules.iter().any(|rule| rule.action == Action::Allow);
    if allows { caller.require(Role::Approve) } else { Ok(()) }
}
