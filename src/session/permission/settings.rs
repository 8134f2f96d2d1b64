//! What decides the permission requests of all sessions alike.

use std::sync::Arc;
use std::time::Duration;

use crate::session::policy::{OnNoSubscriber, PermissionPolicy, ToolCatalogue};

/// The gateway's own policy, and what goes with it.
#[derive(Clone, Debug)]
pub struct PermissionSettings {
    /// The gateway's rules and its default, checked ([`PermissionPolicy::faults`]).
    pub policy: PermissionPolicy,
    /// How long a request waits for an answer, unless its session says otherwise.
    pub timeout: Duration,
    /// What becomes of a request that nobody would see, unless its session says otherwise.
    pub on_no_subscriber: OnNoSubscriber,
    /// Whether the agent writes its plan without asking.
    pub allow_plan_write: bool,
    /// How many answers a session may remember; with as many, "always" is offered no more.
    pub grants: usize,
    /// What is known of the agent's tools.
    pub tools: Arc<dyn ToolCatalogue>,
}
