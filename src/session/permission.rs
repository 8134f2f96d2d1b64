//! Permission requests: asked by the agent, decided exactly once.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::id::{PermissionId, SessionId, Timestamp, TurnId};

/// How far a permission request is. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionState {
    /// Nobody has decided yet.
    Pending,
    /// A caller decided.
    Resolved,
    /// Its time ran out.
    Expired,
    /// The turn, the agent or the gateway ended first.
    Cancelled,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The tool may run.
    Allow,
    /// The tool may not run; the turn goes on.
    Reject,
}

/// For how long a decision holds. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// For this tool call.
    #[default]
    Once,
}

/// Who or what decided. In JSON: `caller:<name>`, `timeout`, `cancel`, `agent_exit`, `restart`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DecidedBy {
    /// The caller of that name.
    Caller(String),
    /// `expires_at` passed.
    Timeout,
    /// The turn was cancelled or ended.
    Cancel,
    /// The agent's process ended.
    AgentExit,
    /// The gateway was restarted.
    Restart,
}

impl From<DecidedBy> for String {
    fn from(by: DecidedBy) -> Self {
        match by {
            DecidedBy::Caller(name) => format!("caller:{name}"),
            DecidedBy::Timeout => "timeout".into(),
            DecidedBy::Cancel => "cancel".into(),
            DecidedBy::AgentExit => "agent_exit".into(),
            DecidedBy::Restart => "restart".into(),
        }
    }
}

impl TryFrom<String> for DecidedBy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "timeout" => Ok(Self::Timeout),
            "cancel" => Ok(Self::Cancel),
            "agent_exit" => Ok(Self::AgentExit),
            "restart" => Ok(Self::Restart),
            other => match other.strip_prefix("caller:") {
                Some(name) => Ok(Self::Caller(name.to_owned())),
                None => Err(format!("unknown decider {other:?}")),
            },
        }
    }
}

/// How a permission request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outcome {
    /// What was decided; whatever was not decided in time is a reject.
    pub decision: Decision,
    /// For how long.
    pub scope: Scope,
    /// By whom.
    #[schema(value_type = String, examples("caller:alice", "timeout", "cancel"))]
    pub by: DecidedBy,
    /// In the decider's words.
    pub reason: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// The tool call a permission is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PermissionToolCall {
    /// The tool call's id, as in `tool_call.started`.
    pub id: String,
    /// The tool's name.
    pub tool: Option<String>,
    /// The extension that provides it.
    pub extension: Option<String>,
    /// For people.
    pub title: Option<String>,
    /// ACP's tool kind.
    pub kind: Option<String>,
    /// The tool's arguments.
    pub input: Option<Value>,
    /// Where it would run.
    pub cwd: String,
}

/// One way to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionOption {
    /// What `option_id` takes.
    pub id: String,
    /// For people.
    pub name: String,
    /// ACP's kind of option.
    pub kind: String,
}

/// The ways to answer that callers have.
#[must_use]
pub fn offered_options() -> Vec<PermissionOption> {
    [("allow_once", "Allow"), ("reject_once", "Reject")]
        .into_iter()
        .map(|(id, name)| PermissionOption { id: id.into(), name: name.into(), kind: id.into() })
        .collect()
}

/// What kind of thing is asked for. Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    /// To run a tool.
    #[default]
    Tool,
}

/// A permission request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Permission {
    /// gander's id.
    pub id: PermissionId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// The turn whose tool call it is about.
    pub turn_id: TurnId,
    /// What is asked for.
    pub kind: PermissionKind,
    /// How far it is.
    pub state: PermissionState,
    /// The tool call.
    pub tool_call: PermissionToolCall,
    /// The ways to answer.
    pub options: Vec<PermissionOption>,
    /// When the agent asked.
    pub requested_at: Timestamp,
    /// When it is rejected by itself.
    pub expires_at: Timestamp,
    /// How it ended; null while pending.
    pub outcome: Option<Outcome>,
}

/// A caller's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What the caller decides.
    pub decision: Decision,
    /// For how long.
    pub scope: Scope,
    /// Why, in the caller's words.
    pub reason: Option<String>,
}
