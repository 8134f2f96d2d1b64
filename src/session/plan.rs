//! The agent's plan, as callers see it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a plan entry is. Open: callers ignore values they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanEntryStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
}

/// How much a plan entry matters (ACP's words). A markdown list has no such mark: `medium`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanEntryPriority {
    /// First.
    High,
    /// Ordinary.
    #[default]
    Medium,
    /// Last.
    Low,
}

/// One entry of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanEntry {
    /// The entry's text, without its status words.
    pub content: String,
    /// How far it is.
    pub status: PlanEntryStatus,
    /// How much it matters.
    pub priority: PlanEntryPriority,
    /// Nesting: 0 for an entry of its own, 1 for a part of the entry before it, and so on.
    pub depth: u32,
}

/// The whole plan. Each write replaces it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// 0 before any write, then one more with each.
    pub version: u64,
    /// The entries in order.
    pub entries: Vec<PlanEntry>,
}
